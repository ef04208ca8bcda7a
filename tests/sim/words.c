/* words.c: see words.h. */
#include "tests/sim/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t ns;
} units[] = {
    {"h", UINT64_C(3600000000000)},
    {"m", UINT64_C(60000000000)},
    {"s", UINT64_C(1000000000)},
    {"ms", 1000000},
    {"us", 1000},
    {"ns", 1},
};
#define UNITS (sizeof units / sizeof *units)

static const char *const work_names[CORE_WORK_COUNT] = {
    [CORE_WORK_ANY] = "any",
    [CORE_WORK_COMPUTE] = "compute",
    [CORE_WORK_MEMORY] = "memory",
};

static bool is_name(const struct record_fields *fields, const char *name, size_t length)
{
    for (size_t i = 0; i < fields->count; i++) {
        const char *other = fields->fields[i].name;
        if (strlen(other) == length && strncmp(other, name, length) == 0) {
            return true;
        }
    }
    return false;
}

void word_of_field(const struct record_fields *fields, const struct record_field *field,
                   char text[WORD_MAX])
{
    static const char *const endings[] = {"_ns", "_bytes"};
    size_t length = strlen(field->name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && strcmp(field->name + length - ending, endings[i]) == 0 &&
            !is_name(fields, field->name, length - ending)) {
            length -= ending;
            break;
        }
    }
    snprintf(text, WORD_MAX, "%.*s", (int)length, field->name);
}

void word_of_span(uint64_t ns, char text[WORD_MAX])
{
    size_t unit = 0;
    while (ns % units[unit].ns != 0) {
        unit++;
    }
    unit = ns == 0 ? UNITS - 4 : unit;
    snprintf(text, WORD_MAX, "%" PRIu64 "%s", ns / units[unit].ns, units[unit].name);
}

bool word_span(const char *text, uint64_t *ret_ns)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (end == text || *text == '-') {
        return false;
    }
    if (*end == 0) {
        *ret_ns = value;
        return true;
    }
    for (size_t i = 0; i < UNITS; i++) {
        if (strcmp(end, units[i].name) == 0) {
            *ret_ns = value * units[i].ns;
            return true;
        }
    }
    return false;
}

bool word_is(const char *name, const char *text)
{
    while (*name != 0 && (*name == *text || (*name == ' ' && *text == '_'))) {
        name++;
        text++;
    }
    return *name == 0 && *text == 0;
}

static const char *name_of(enum record_meaning meaning, uint64_t value)
{
    switch (meaning) {
    case RECORD_MODE:
        return value <= CORE_MODE_ACT ? core_mode_name((enum core_mode)value) : NULL;
    case RECORD_WORK:
        return value < CORE_WORK_COUNT ? work_names[value] : NULL;
    case RECORD_RUNG:
        return value < CORE_RUNG_COUNT ? core_rung_name((enum core_rung)value) : NULL;
    default:
        return NULL;
    }
}

void word_of_value(const struct record_field *field, uint64_t value, char text[WORD_MAX])
{
    const char *name = name_of(field->meaning, value);
    if (name != NULL) {
        snprintf(text, WORD_MAX, "%s", name);
    } else if (field->meaning == RECORD_FLAG) {
        snprintf(text, WORD_MAX, "%s", value != 0 ? "yes" : "no");
    } else if (field->meaning == RECORD_SPAN || field->meaning == RECORD_TIME) {
        word_of_span(value, text);
    } else if (field->meaning == RECORD_SIGNED) {
        snprintf(text, WORD_MAX, "%" PRId64, (int64_t)value);
    } else {
        snprintf(text, WORD_MAX, "%" PRIu64, value);
    }
}

static bool number_value(const char *text, uint64_t *ret_value)
{
    char *end;
    *ret_value = *text == '-' ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    return end != text && *end == 0;
}

bool word_value(const struct record_field *field, const char *text, uint64_t *ret_value)
{
    for (uint64_t value = 0; name_of(field->meaning, value) != NULL; value++) {
        if (strcmp(name_of(field->meaning, value), text) == 0) {
            *ret_value = value;
            return true;
        }
    }
    if (field->meaning == RECORD_FLAG) {
        *ret_value = strcmp(text, "yes") == 0;
        return *ret_value == 1 || strcmp(text, "no") == 0;
    }
    bool span = field->meaning == RECORD_SPAN || field->meaning == RECORD_TIME;
    bool right = span ? word_span(text, ret_value) : number_value(text, ret_value);
    return right && record_field_fits(field, *ret_value);
}
