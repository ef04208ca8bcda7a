#include "server/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Cuts a half-written UTF-8 character off the end of a text that filled its space. */
static void text_cut(char *text, size_t size)
{
    size_t length = strlen(text);
    if (length + 1 < size) {
        return;
    }
    while (length > 0 && ((unsigned char)text[length - 1] & 0xC0) == 0x80) {
        length--;
    }
    if (length > 0 && (unsigned char)text[length - 1] >= 0xC0) {
        length--;
    }
    text[length] = '\0';
}

int error_set(struct error *error, enum error_code code, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        va_start(arguments, format);
        error->code = code;
        error->bound.name[0] = '\0';
        (void)vsnprintf(error->text, sizeof(error->text), format, arguments);
        va_end(arguments);
        text_cut(error->text, sizeof(error->text));
    }
    return -(int)code;
}

void error_set_bound(struct error *error, const char *name, uint64_t value, uint64_t most)
{
    if (error != NULL) {
        (void)snprintf(error->bound.name, sizeof(error->bound.name), "%s", name);
        error->bound.value = value;
        error->bound.most = most;
    }
}

static enum error_code code_of_errno(int number)
{
    switch (number) {
    case ENOENT:
        return ERROR_NOT_FOUND;
    case EACCES:
    case EPERM:
        return ERROR_PERMISSION_DENIED;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
        return ERROR_RESOURCE_EXHAUSTED;
    case EEXIST:
        return ERROR_ALREADY_EXISTS;
    case EADDRINUSE:
        return ERROR_UNAVAILABLE;
    default:
        return ERROR_INTERNAL;
    }
}

int error_set_errno(struct error *error, int number, const char *format, ...)
{
    enum error_code code = code_of_errno(number);
    if (error != NULL) {
        char reason[128];
        char text[sizeof(error->text)];
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(text, sizeof(text), format, arguments);
        va_end(arguments);
        text_cut(text, sizeof(text));
        (void)error_set(error, code, "%s: %s", text, strerror_r(number, reason, sizeof(reason)));
    }
    return -(int)code;
}

int error_prefix(struct error *error, const char *format, ...)
{
    char before[sizeof(error->text)];
    char text[sizeof(error->text)];
    va_list arguments;
    if (error == NULL) {
        return -(int)ERROR_UNKNOWN;
    }
    va_start(arguments, format);
    (void)vsnprintf(before, sizeof(before), format, arguments);
    va_end(arguments);
    memcpy(text, error->text, sizeof(text));
    struct error_bound bound = error->bound;
    int result = error_set(error, error->code, "%s: %s", before, text);
    error->bound = bound;
    return result;
}

const char *error_code_name(enum error_code code)
{
    static const char *const names[] = {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    };
    return (size_t)code < sizeof(names) / sizeof(names[0]) ? names[code] : "UNKNOWN";
}
