#include "clients/common/arguments.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/options.h"

#define ARGUMENTS_MAX 64

/* One that is accepted here, else one of that name at all. */
static const struct argument *argument_find(const struct arguments *arguments, const char *name,
                                            size_t length)
{
    const struct argument *found = NULL;
    for (size_t i = 0; i < arguments->count; i++) {
        const struct argument *argument = &arguments->table[i];
        if (strlen(argument->name) != length || strncmp(argument->name, name, length) != 0) {
            continue;
        }
        if ((argument->group & arguments->groups) != 0) {
            return argument;
        }
        found = argument;
    }
    return found;
}

static const struct argument *letter_find(const struct arguments *arguments, const char *text)
{
    for (size_t i = 0; i < arguments->count; i++) {
        const struct argument *argument = &arguments->table[i];
        if (argument->letter != '\0' && text[0] == argument->letter && text[1] == '\0' &&
            (argument->group & arguments->groups) != 0) {
            return argument;
        }
    }
    return NULL;
}

static int argument_unknown(const struct arguments *arguments, const char *given, size_t length,
                            struct error *error)
{
    const char *names[ARGUMENTS_MAX];
    char name[64];
    size_t count = 0;
    for (size_t i = 0; i < arguments->count && count < ARGUMENTS_MAX; i++) {
        if ((arguments->table[i].group & arguments->groups) != 0 &&
            arguments->table[i].help != NULL) {
            names[count++] = arguments->table[i].name;
        }
    }
    snprintf(name, sizeof(name), "%.*s", (int)length, given);
    const char *nearest = options_nearest(name, names, count);
    if (nearest != NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s: no option --%s; do you mean --%s?",
                         arguments->where, name, nearest);
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "%s: no option --%s; see --help",
                     arguments->where, name);
}

static int number_parse(const struct argument *argument, const char *text, double *ret_number)
{
    char *end = NULL;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || errno == ERANGE || isnan(number) ||
        number < argument->minimum || number > argument->maximum ||
        (argument->kind == ARGUMENT_INT && number != floor(number))) {
        return -1;
    }
    *ret_number = number;
    return 0;
}

static int range_parse(const struct argument *argument, const char *text,
                       struct argument_range *ret_range)
{
    char *end = NULL;
    errno = 0;
    unsigned long minimum = strtoul(text, &end, 10);
    unsigned long maximum = minimum;
    if (end == text || text[0] < '0' || text[0] > '9') {
        return -1;
    }
    if (*end == ':') {
        const char *second = end + 1;
        maximum = strtoul(second, &end, 10);
        if (end == second || second[0] < '0' || second[0] > '9') {
            return -1;
        }
    }
    if (*end != '\0' || errno == ERANGE || minimum > maximum ||
        (double)minimum < argument->minimum || (double)maximum > argument->maximum) {
        return -1;
    }
    *ret_range = (struct argument_range){(uint32_t)minimum, (uint32_t)maximum};
    return 0;
}

static int list_add(const struct arguments *arguments, const struct argument *argument,
                    const char *text, struct argument_list *list, struct error *error)
{
    if (list->count == ARGUMENT_LIST_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s: --%s takes at most %d values",
                         arguments->where, argument->name, ARGUMENT_LIST_MAX);
    }
    list->values[list->count++] = text;
    return 0;
}

static int argument_set(const struct arguments *arguments, const struct argument *argument,
                        const char *text, void *target, struct error *error)
{
    void *field = (char *)target + argument->offset;
    double number = 0;
    switch (argument->kind) {
    case ARGUMENT_LIST:
        return list_add(arguments, argument, text, field, error);
    case ARGUMENT_FLAG:
        *(bool *)field = true;
        return 0;
    case ARGUMENT_TEXT:
        *(const char **)field = text;
        return 0;
    case ARGUMENT_INT:
    case ARGUMENT_NUMBER:
        if (number_parse(argument, text, &number) < 0) {
            break;
        }
        if (argument->kind == ARGUMENT_INT) {
            *(int64_t *)field = (int64_t)number;
        } else {
            *(double *)field = number;
        }
        return 0;
    case ARGUMENT_RANGE:
        if (range_parse(argument, text, field) < 0) {
            break;
        }
        return 0;
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "%s: --%s is %s from %g to %g, not '%s'",
                     arguments->where, argument->name,
                     argument->kind == ARGUMENT_RANGE ? "N or MIN:MAX"
                     : argument->kind == ARGUMENT_INT ? "a whole number"
                                                      : "a number",
                     argument->minimum, argument->maximum, text);
}

/* Reads the option argv[*index] and its value; leaves *index at the last one used. */
static int argument_read(const struct arguments *arguments, int argc, char **argv, int *index,
                         void *target, struct error *error)
{
    const char *name = argv[*index] + 2;
    size_t length = strcspn(name, "=");
    const char *value = name[length] == '=' ? name + length + 1 : NULL;
    const struct argument *argument = argument_find(arguments, name, length);
    if (argument == NULL) {
        return argument_unknown(arguments, name, length, error);
    }
    if ((argument->group & arguments->groups) == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s: takes no option --%s; see --help",
                         arguments->where, argument->name);
    }
    if (argument->kind == ARGUMENT_FLAG && value != NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s: --%s takes no value", arguments->where,
                         argument->name);
    }
    if (argument->kind != ARGUMENT_FLAG && value == NULL) {
        if (*index + 1 >= argc) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "%s: --%s wants a value (%s)",
                             arguments->where, argument->name, argument->value);
        }
        value = argv[++*index];
    }
    int result = argument_set(arguments, argument, value, target, error);
    while (result == 0 && argument->kind == ARGUMENT_LIST && *index + 1 < argc &&
           strncmp(argv[*index + 1], "--", 2) != 0) {
        result = argument_set(arguments, argument, argv[++*index], target, error);
    }
    return result;
}

/* -f */
static int letter_read(const struct arguments *arguments, const char *text, void *target,
                       struct error *error)
{
    const struct argument *argument = letter_find(arguments, text + 1);
    if (argument == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s: options begin with two dashes; '%s' does not", arguments->where,
                         text);
    }
    return argument_set(arguments, argument, NULL, target, error);
}

int arguments_parse(const struct arguments *arguments, int argc, char **argv, void *target,
                    const char **positional, size_t *ret_positional_count, struct error *error)
{
    size_t count = 0;
    bool options_over = false;
    for (int i = 0; i < argc; i++) {
        if (options_over || argv[i][0] != '-' || argv[i][1] == '\0') {
            positional[count++] = argv[i];
            options_over = options_over || arguments->first_ends;
        } else if (strcmp(argv[i], "--") == 0) {
            options_over = true;
        } else if (argv[i][1] != '-') {
            int result = letter_read(arguments, argv[i], target, error);
            if (result < 0) {
                return result;
            }
        } else {
            int result = argument_read(arguments, argc, argv, &i, target, error);
            if (result < 0) {
                return result;
            }
        }
    }
    *ret_positional_count = count;
    return 0;
}

void arguments_print(const struct arguments *arguments, FILE *out)
{
    for (size_t i = 0; i < arguments->count; i++) {
        const struct argument *argument = &arguments->table[i];
        if ((argument->group & arguments->groups) != 0 && argument->help != NULL) {
            char left[64];
            snprintf(left, sizeof(left), "--%s%s%.1s %s", argument->name,
                     argument->letter == '\0' ? "" : ", -", &argument->letter,
                     argument->value == NULL ? "" : argument->value);
            fprintf(out, "  %-24s %s\n", left, argument->help);
        }
    }
}
