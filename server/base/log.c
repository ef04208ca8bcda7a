#include "server/base/log.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES_MAX 2048

static struct {
    _Atomic int fd;
    _Atomic int minimum;
    _Atomic int json;
} settings = {2, LOG_INFO, 0};

void log_open(int fd, enum log_level minimum, bool json)
{
    settings.fd = fd;
    settings.minimum = (int)minimum;
    settings.json = json;
}

static const char *level_name(enum log_level level)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    return names[level];
}

/* RFC 3339 in UTC with milliseconds. */
static void time_write(char *text, size_t size)
{
    struct timespec now;
    struct tm parts;
    char seconds[32];
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &parts);
    (void)strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &parts);
    (void)snprintf(text, size, "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));
}

struct line {
    char text[LINE_BYTES_MAX];
    size_t length;
};

static void line_add(struct line *line, const char *text, size_t length)
{
    size_t room = sizeof(line->text) - 2 - line->length; /* leaves "}\n" */
    if (length > room) {
        length = room;
    }
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

static void line_text(struct line *line, const char *text)
{
    line_add(line, text, strlen(text));
}

/* A JSON string; a value that came quoted from log_quote is taken as it stands. */
static void line_json_string(struct line *line, const char *text, size_t length)
{
    if (length >= 2 && text[0] == '"' && text[length - 1] == '"') {
        line_add(line, text, length);
        return;
    }
    line_text(line, "\"");
    for (size_t i = 0; i < length; i++) {
        char escaped[8];
        unsigned char byte = (unsigned char)text[i];
        if (byte == '"' || byte == '\\') {
            (void)snprintf(escaped, sizeof(escaped), "\\%c", byte);
            line_text(line, escaped);
        } else if (byte < 0x20) {
            (void)snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
            line_text(line, escaped);
        } else {
            line_add(line, text + i, 1);
        }
    }
    line_text(line, "\"");
}

static size_t value_length(const char *value)
{
    size_t length = 0;
    if (value[0] != '"') {
        return strcspn(value, " ");
    }
    for (length = 1; value[length] != '\0' && value[length] != '"'; length++) {
        if (value[length] == '\\' && value[length + 1] != '\0') {
            length++;
        }
    }
    return length + (value[length] == '"');
}

static bool value_is_number(const char *value, size_t length)
{
    size_t digits = 0;
    for (size_t i = 0; i < length; i++) {
        if (isdigit((unsigned char)value[i])) {
            digits++;
        } else if (!(value[i] == '-' && i == 0) && value[i] != '.') {
            return false;
        }
    }
    return digits > 0 && value[length - 1] != '.' && value[0] != '.' &&
           !(value[0] == '0' && length > 1 && value[1] != '.');
}

/* Turns `key=value key="va lue"` into `,"key":value,…`. */
static void line_json_fields(struct line *line, const char *fields)
{
    while (*fields != '\0') {
        size_t key = strcspn(fields, "= ");
        if (fields[key] != '=') {
            fields += key + (fields[key] == ' ');
            continue;
        }
        line_text(line, ",");
        line_json_string(line, fields, key);
        line_text(line, ":");
        fields += key + 1;
        size_t value = value_length(fields);
        if (value_is_number(fields, value)) {
            line_add(line, fields, value);
        } else {
            line_json_string(line, fields, value);
        }
        fields += value;
        fields += strspn(fields, " ");
    }
}

void log_write(enum log_level level, const char *component, const char *what, const char *fields,
               ...)
{
    struct line line = {.length = 0};
    char values[LINE_BYTES_MAX / 2];
    char when[40];
    va_list arguments;
    if ((int)level < settings.minimum) {
        return;
    }
    va_start(arguments, fields);
    (void)vsnprintf(values, sizeof(values), fields, arguments);
    va_end(arguments);
    time_write(when, sizeof(when));
    if (settings.json) {
        line_text(&line, "{\"time\":\"");
        line_text(&line, when);
        line_text(&line, "\",\"level\":\"");
        line_text(&line, level_name(level));
        line_text(&line, "\",\"component\":\"");
        line_text(&line, component);
        line_text(&line, "\",\"event\":");
        line_json_string(&line, what, strlen(what));
        line_json_fields(&line, values);
        line.text[line.length++] = '}';
    } else {
        const char *parts[] = {when, " ", level_name(level), " ", component, ": ", what};
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            line_text(&line, parts[i]);
        }
        if (values[0] != '\0') {
            line_text(&line, " ");
            line_text(&line, values);
        }
    }
    line.text[line.length++] = '\n';
    (void)!write(settings.fd, line.text, line.length);
}

const char *log_quote(struct log_text *buffer, const char *value)
{
    static const char end[] = "…\"";
    size_t length = 0;
    size_t room = sizeof(buffer->text) - sizeof(end) - 6;
    bool plain = value[0] != '\0' && strlen(value) < room;
    for (const char *at = value; plain && *at != '\0'; at++) {
        plain = (unsigned char)*at > 0x20 && *at != '"' && *at != '\\' && *at != '=';
    }
    if (plain) {
        memcpy(buffer->text, value, strlen(value) + 1);
        return buffer->text;
    }
    buffer->text[length++] = '"';
    for (; *value != '\0' && length < room; value++) {
        unsigned char byte = (unsigned char)*value;
        if (byte == '"' || byte == '\\') {
            buffer->text[length++] = '\\';
            buffer->text[length++] = (char)byte;
        } else if (byte < 0x20 || byte == 0x7F) {
            length += (size_t)snprintf(buffer->text + length, 7, "\\u%04x", byte);
        } else {
            buffer->text[length++] = (char)byte;
        }
    }
    if (*value != '\0') {
        while (((unsigned char)buffer->text[length - 1] & 0xC0) == 0x80) {
            length--; /* the rest of a character that does not fit */
        }
        length -= (unsigned char)buffer->text[length - 1] >= 0xC0;
        memcpy(buffer->text + length, end, sizeof(end));
    } else {
        memcpy(buffer->text + length, "\"", 2);
    }
    return buffer->text;
}
