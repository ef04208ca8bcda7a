#include "server/serve/pbtxt.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct parser {
    const char *at, *end, *line_start;
    unsigned line;
    unsigned fields;
    const char *where;
    struct error *error;
};

static int refuse(struct parser *parser, const char *what)
{
    return error_set(parser->error, ERROR_INVALID_ARGUMENT, "%s: line %u column %zu: %s",
                     parser->where, parser->line, (size_t)(parser->at - parser->line_start) + 1,
                     what);
}

/* Space and comments. */
static void space_skip(struct parser *parser)
{
    while (parser->at < parser->end) {
        char c = *parser->at;
        if (c == '#') {
            const char *stop = memchr(parser->at, '\n', (size_t)(parser->end - parser->at));
            parser->at = stop == NULL ? parser->end : stop;
            continue;
        }
        if (c == '\n') {
            parser->line++;
            parser->line_start = parser->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r' && c != '\v' && c != '\f') {
            return;
        }
        parser->at++;
    }
}

static bool next_is(struct parser *parser, char c)
{
    space_skip(parser);
    return parser->at < parser->end && *parser->at == c;
}

static bool take(struct parser *parser, char c)
{
    bool there = next_is(parser, c);
    parser->at += there;
    return there;
}

static bool word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '+' || c == '-';
}

static size_t word_length(const struct parser *parser)
{
    size_t length = 0;
    while (parser->at + length < parser->end && word_byte(parser->at[length])) {
        length++;
    }
    return length;
}

static int word_read(struct parser *parser, char **ret_text)
{
    space_skip(parser);
    size_t length = word_length(parser);
    if (length == 0) {
        return refuse(parser, parser->at == parser->end ? "the text ends within a field"
                                                        : "a name or value is missing here");
    }
    *ret_text = strndup(parser->at, length);
    if (*ret_text == NULL) {
        return refuse(parser, "no memory");
    }
    parser->at += length;
    return 0;
}

/* Digits of a base at the front, at most so many; returns how many. */
static size_t digits_read(struct parser *parser, unsigned base, size_t most, uint32_t *ret_value)
{
    size_t count = 0;
    *ret_value = 0;
    while (count < most && parser->at < parser->end) {
        const char *digits = "0123456789abcdef";
        const char *found = strchr(digits, tolower((unsigned char)*parser->at));
        if (*parser->at == '\0' || found == NULL || found - digits >= (int)base) {
            break;
        }
        *ret_value = *ret_value * base + (uint32_t)(found - digits);
        parser->at++;
        count++;
    }
    return count;
}

static size_t utf8_write(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xC0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xE0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (char)(0x80 | (code & 0x3F));
    return 4;
}

/* What follows a backslash; writes at most 4 bytes, never more than the escape itself is long. */
static int escape_read(struct parser *parser, char *out, size_t *ret_length)
{
    static const char plain[] = "abfnrtv\\'\"?", means[] = "\a\b\f\n\r\t\v\\'\"?";
    char c = parser->at < parser->end ? *parser->at : '\0';
    const char *found = c == '\0' ? NULL : strchr(plain, c);
    uint32_t value = 0;
    *ret_length = 1;
    if (found != NULL) {
        parser->at++;
        out[0] = means[found - plain];
        return 0;
    }
    if (c >= '0' && c <= '7') {
        (void)digits_read(parser, 8, 3, &value);
    } else if (c == 'x' || c == 'X') {
        parser->at++;
        if (digits_read(parser, 16, 2, &value) == 0) {
            return refuse(parser, "\\x without digits");
        }
    } else if (c == 'u' || c == 'U') {
        parser->at++;
        size_t wanted = c == 'u' ? 4 : 8;
        if (digits_read(parser, 16, wanted, &value) != wanted || value > 0x10FFFF) {
            return refuse(parser, "\\u wants 4 and \\U 8 digits of a character");
        }
        *ret_length = utf8_write(value, out);
        return value == 0 ? refuse(parser, "a NUL within a string") : 0;
    } else {
        return refuse(parser, "unknown escape in a string");
    }
    out[0] = (char)value;
    return value == 0 || value > 0xFF ? refuse(parser, "a NUL or too large a byte in a string") : 0;
}

/* Quoted pieces, one after another, are one string. */
static int string_read(struct parser *parser, char **ret_text)
{
    /* An escape is never shorter than what it stands for, so the rest of the text bounds it. */
    char *text = malloc((size_t)(parser->end - parser->at) + 1);
    size_t length = 0;
    int result = text == NULL ? refuse(parser, "no memory") : 0;
    while (result == 0 && (next_is(parser, '"') || next_is(parser, '\''))) {
        char quote = *parser->at++;
        while (result == 0 && parser->at < parser->end && *parser->at != quote) {
            char c = *parser->at;
            if (c == '\n' || c == '\0') {
                result = refuse(parser, "a string ends at its line's end; its quote is missing");
                break;
            }
            parser->at++;
            size_t added = 1;
            if (c == '\\') {
                result = escape_read(parser, text + length, &added);
            } else {
                text[length] = c;
            }
            length += added;
        }
        if (result == 0 && parser->at == parser->end) {
            result = refuse(parser, "a string's closing quote is missing");
        }
        parser->at += result == 0;
    }
    if (result < 0) {
        free(text);
        return result;
    }
    text[length] = '\0';
    char *fitting = realloc(text, length + 1);
    *ret_text = fitting == NULL ? text : fitting;
    return 0;
}

static int fields_read(struct parser *parser, char close, unsigned depth,
                       struct pbtxt_field **ret_first);

static struct pbtxt_field *field_create(struct parser *parser, const char *name)
{
    struct pbtxt_field *field;
    if (++parser->fields > PBTXT_FIELDS_MAX) {
        (void)refuse(parser, "more fields than are read in one file");
        return NULL;
    }
    field = calloc(1, sizeof(*field));
    if (field != NULL) {
        field->name = strdup(name);
        field->line = parser->line;
    }
    if (field == NULL || field->name == NULL) {
        free(field);
        (void)refuse(parser, "no memory");
        return NULL;
    }
    return field;
}

/* One value after a field's name (and colon), put at the end of the list. */
static int value_read(struct parser *parser, const char *name, unsigned depth,
                      struct pbtxt_field ***tail)
{
    struct pbtxt_field *field = field_create(parser, name);
    if (field == NULL) {
        return -ERROR_INVALID_ARGUMENT;
    }
    **tail = field; /* the list owns it from here on, whatever comes */
    *tail = &field->next;
    if (take(parser, '{')) {
        field->kind = PBTXT_MESSAGE;
        return fields_read(parser, '}', depth + 1, &field->first);
    }
    if (take(parser, '<')) {
        field->kind = PBTXT_MESSAGE;
        return fields_read(parser, '>', depth + 1, &field->first);
    }
    if (next_is(parser, '"') || next_is(parser, '\'')) {
        field->kind = PBTXT_STRING;
        return string_read(parser, &field->text);
    }
    field->kind = PBTXT_WORD;
    return word_read(parser, &field->text);
}

static int list_read(struct parser *parser, const char *name, unsigned depth,
                     struct pbtxt_field ***tail)
{
    int result = 0;
    if (take(parser, ']')) {
        return 0;
    }
    do {
        result = value_read(parser, name, depth, tail);
    } while (result == 0 && take(parser, ','));
    if (result == 0 && !take(parser, ']')) {
        result = refuse(parser, "a list's ',' or ']' is missing");
    }
    return result;
}

static int field_read(struct parser *parser, unsigned depth, struct pbtxt_field ***tail)
{
    char *name = NULL;
    int result = word_read(parser, &name);
    if (result < 0) {
        return result;
    }
    bool colon = take(parser, ':');
    if (!colon && !next_is(parser, '{') && !next_is(parser, '<') && !next_is(parser, '[')) {
        result = refuse(parser, "':' or '{' is missing after a field's name");
    } else if (take(parser, '[')) {
        result = list_read(parser, name, depth, tail);
    } else {
        result = value_read(parser, name, depth, tail);
    }
    free(name);
    if (result == 0 && !take(parser, ',')) {
        (void)take(parser, ';');
    }
    return result;
}

/* Fields up to `close`, or to the end of the text where that is NUL. */
static int fields_read(struct parser *parser, char close, unsigned depth,
                       struct pbtxt_field **ret_first)
{
    struct pbtxt_field **tail = ret_first;
    if (depth > PBTXT_DEPTH_MAX) {
        return refuse(parser, "nested more deeply than is read");
    }
    for (;;) {
        space_skip(parser);
        if (parser->at == parser->end) {
            return close == '\0' ? 0 : refuse(parser, "the text ends before a '{' is closed");
        }
        if (close != '\0' && take(parser, close)) {
            return 0;
        }
        int result = field_read(parser, depth, &tail);
        if (result < 0) {
            return result;
        }
    }
}

struct pbtxt_field *pbtxt_parse(const char *text, size_t length, const char *where,
                                struct error *error)
{
    struct parser parser = {.at = text,
                            .end = text + length,
                            .line_start = text,
                            .line = 1,
                            .where = where,
                            .error = error};
    struct pbtxt_field *root;
    if (length > PBTXT_BYTES_MAX) {
        (void)error_set(error, ERROR_INVALID_ARGUMENT, "%s: %zu bytes, at most %zu are read", where,
                        length, PBTXT_BYTES_MAX);
        return NULL;
    }
    root = field_create(&parser, "");
    if (root == NULL) {
        return NULL;
    }
    root->kind = PBTXT_MESSAGE;
    if (fields_read(&parser, '\0', 0, &root->first) < 0) {
        pbtxt_free(root);
        return NULL;
    }
    return root;
}

void pbtxt_free(struct pbtxt_field *field)
{
    while (field != NULL) {
        struct pbtxt_field *next = field->next;
        pbtxt_free(field->first); /* as deep as the parser went: PBTXT_DEPTH_MAX */
        free(field->name);
        free(field->text);
        free(field);
        field = next;
    }
}

int pbtxt_integer(const struct pbtxt_field *field, int64_t minimum, int64_t maximum,
                  int64_t *ret_value)
{
    char *end = NULL;
    if (field->kind != PBTXT_WORD || field->text[0] == '+') {
        return -1;
    }
    errno = 0;
    int64_t value = strtoll(field->text, &end, 0);
    if (errno != 0 || end == field->text || *end != '\0' || value < minimum || value > maximum) {
        return -1;
    }
    *ret_value = value;
    return 0;
}
