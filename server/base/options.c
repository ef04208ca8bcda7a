#include "server/base/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX 64
#define DEPTH_MAX 64

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Levenshtein distance over at most NAME_BYTES_MAX bytes of each name. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES_MAX + 1];
    size_t length_a = smaller(strlen(a), NAME_BYTES_MAX);
    size_t length_b = smaller(strlen(b), NAME_BYTES_MAX);
    for (size_t j = 0; j <= length_b; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= length_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = smaller(change, smaller(row[j], row[j - 1]) + 1);
        }
    }
    return row[length_b];
}

const char *options_nearest(const char *name, const char *const *names, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(name) / 2 + 2;
    for (size_t i = 0; i < count; i++) {
        size_t distance = edit_distance(name, names[i]);
        if (distance < best_distance) {
            best_distance = distance;
            best = names[i];
        }
    }
    return best;
}

static const struct option *option_find(const struct option *table, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static int unknown_key(const struct option *table, size_t count, const char *key, const char *where,
                       struct error *error)
{
    const char **names = calloc(count + 1, sizeof(*names));
    const char *nearest = NULL;
    if (names != NULL) {
        for (size_t i = 0; i < count; i++) {
            names[i] = table[i].name;
        }
        nearest = options_nearest(key, names, count);
        free(names);
    }
    if (nearest == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s: unknown key '%.64s'", where, key);
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "%s: unknown key '%.64s'; did you mean '%s'?",
                     where, key, nearest);
}

static const char *kind_name(enum option_kind kind)
{
    static const char *const names[] = {"true or false", "a whole number", "a number",
                                        "a text",        "one of a list",  "a value"};
    return names[kind];
}

static int wrong_type(const struct option *option, const char *where, struct error *error)
{
    return error_set(error, ERROR_INVALID_ARGUMENT, "%s.%s: must be %s", where, option->name,
                     kind_name(option->kind));
}

static int number_check(const struct option *option, double value, const char *where,
                        struct error *error)
{
    if (value >= option->minimum && value <= option->maximum) {
        return 0;
    }
    return error_set(error, ERROR_INVALID_ARGUMENT,
                     "%s.%s: %.15g is out of range; %.15g to %.15g%s%s", where, option->name, value,
                     option->minimum, option->maximum,
                     option->unit != NULL && option->unit[0] != '\0' ? " " : "",
                     option->unit != NULL ? option->unit : "");
}

static int choice_read(const struct option *option, const json_t *value, const char *where,
                       int *field, struct error *error)
{
    char all[256] = "";
    const char *text = json_string_value(value);
    if (text == NULL) {
        return wrong_type(option, where, error);
    }
    for (int i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *field = i;
            return 0;
        }
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof(all) - used, "%s%s", i > 0 ? ", " : "",
                       option->choices[i]);
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "%s.%s: '%.64s' is none of %s", where,
                     option->name, text, all);
}

static int text_read(const struct option *option, const json_t *value, const char *where,
                     char **field, struct error *error)
{
    char *copy;
    const char *text = json_string_value(value);
    if (text == NULL) {
        return wrong_type(option, where, error);
    }
    copy = strdup(text);
    if (copy == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "%s.%s: no memory", where, option->name);
    }
    free(*field);
    *field = copy;
    return 0;
}

static int option_read(const struct option *option, json_t *value, const char *where, void *target,
                       struct error *error)
{
    char *field = (char *)target + option->offset;
    switch (option->kind) {
    case OPTION_BOOL:
        if (!json_is_boolean(value)) {
            return wrong_type(option, where, error);
        }
        *(bool *)field = json_is_true(value);
        return 0;
    case OPTION_INT:
        if (!json_is_integer(value)) {
            return wrong_type(option, where, error);
        }
        *(int64_t *)field = json_integer_value(value);
        return number_check(option, (double)json_integer_value(value), where, error);
    case OPTION_NUMBER:
        if (!json_is_number(value)) {
            return wrong_type(option, where, error);
        }
        *(double *)field = json_number_value(value);
        return number_check(option, json_number_value(value), where, error);
    case OPTION_TEXT:
        return text_read(option, value, where, (char **)field, error);
    case OPTION_CHOICE:
        return choice_read(option, value, where, (int *)field, error);
    case OPTION_JSON:
        json_decref(*(json_t **)field);
        *(json_t **)field = json_incref(value);
        return 0;
    }
    return -(int)ERROR_INTERNAL;
}

static int standard_read(const struct option *option, const char *where, void *target,
                         struct error *error)
{
    int result;
    json_t *value = json_loads(option->standard, JSON_DECODE_ANY, NULL);
    if (value == NULL) { /* the table itself is wrong: a bug of ours */
        return error_set(error, ERROR_INTERNAL, "%s.%s: bad default in the table", where,
                         option->name);
    }
    result = option_read(option, value, where, target, error);
    json_decref(value);
    return result;
}

int options_read(const struct option *table, size_t count, const json_t *object, const char *where,
                 void *target, struct error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s: must be an object", where);
    }
    json_object_foreach((json_t *)object, key, value)
    {
        if (option_find(table, count, key) == NULL) {
            return unknown_key(table, count, key, where, error);
        }
    }
    for (size_t i = 0; i < count; i++) {
        int result = 0;
        value = json_object_get(object, table[i].name);
        if (value != NULL) {
            result = option_read(&table[i], value, where, target, error);
        } else if (table[i].required) {
            result = error_set(error, ERROR_INVALID_ARGUMENT, "%s: '%s' is missing (%s)", where,
                               table[i].name, table[i].help);
        } else if (table[i].standard != NULL) {
            result = standard_read(&table[i], where, target, error);
        }
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

void options_free(const struct option *table, size_t count, void *target)
{
    for (size_t i = 0; i < count; i++) {
        char *field = (char *)target + table[i].offset;
        if (table[i].kind == OPTION_TEXT) {
            free(*(char **)field);
            *(char **)field = NULL;
        } else if (table[i].kind == OPTION_JSON) {
            json_decref(*(json_t **)field);
            *(json_t **)field = NULL;
        }
    }
}

static void range_print(const struct option *option, FILE *out)
{
    if (option->kind == OPTION_INT || option->kind == OPTION_NUMBER) {
        (void)fprintf(out, "%.15g to %.15g", option->minimum, option->maximum);
    } else if (option->kind == OPTION_CHOICE) {
        for (int i = 0; option->choices[i] != NULL; i++) {
            (void)fprintf(out, "%s`%s`", i > 0 ? ", " : "", option->choices[i]);
        }
    } else {
        (void)fputs(kind_name(option->kind), out);
    }
}

void options_print(const struct option *table, size_t count, FILE *out)
{
    (void)fputs("| key | unit | range | default | meaning |\n|---|---|---|---|---|\n", out);
    for (size_t i = 0; i < count; i++) {
        const struct option *option = &table[i];
        (void)fprintf(out, "| `%s` | %s | ", option->name,
                      option->unit != NULL ? option->unit : "");
        range_print(option, out);
        (void)fprintf(out, " | %s | %s |\n",
                      option->required           ? "required"
                      : option->standard != NULL ? option->standard
                                                 : "-",
                      option->help);
    }
}

/* jansson's own depth limit (2048) is too deep for what we read; walk what it has built. */
static bool too_deep(const json_t *value, int depth)
{
    size_t index;
    const char *key;
    json_t *child;
    if (depth > DEPTH_MAX) {
        return true;
    }
    if (json_is_array(value)) {
        json_array_foreach((json_t *)value, index, child)
        {
            if (too_deep(child, depth + 1)) {
                return true;
            }
        }
    } else if (json_is_object(value)) {
        json_object_foreach((json_t *)value, key, child)
        {
            if (too_deep(child, depth + 1)) {
                return true;
            }
        }
    }
    return false;
}

static json_t *parsed(json_t *root, const json_error_t *problem, const char *what,
                      struct error *error)
{
    if (root == NULL) {
        (void)error_set(error, ERROR_INVALID_ARGUMENT, "%s: line %d column %d: %s", what,
                        problem->line, problem->column, problem->text);
        return NULL;
    }
    if (too_deep(root, 0)) {
        json_decref(root);
        (void)error_set(error, ERROR_INVALID_ARGUMENT, "%s: nested deeper than %d levels", what,
                        DEPTH_MAX);
        return NULL;
    }
    return root;
}

json_t *options_parse_file(const char *path, struct error *error)
{
    json_error_t problem;
    json_t *root;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        (void)error_set_errno(error, errno, "open '%s'", path);
        return NULL;
    }
    root = json_loadf(file, JSON_REJECT_DUPLICATES, &problem);
    (void)fclose(file);
    return parsed(root, &problem, path, error);
}

json_t *options_parse_text(const char *text, size_t length, const char *what, struct error *error)
{
    json_error_t problem;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    return parsed(root, &problem, what, error);
}
