/* error.h: one set of error codes for the whole server, and the text that goes with one.
 * Codes:   the numbers of gRPC's status codes, so that no table translates them.
 * Use:     a function returns 0, or a negative enum error_code with nothing changed and no ret_
 *          written; where it takes a `struct error *`, NULL is fine and the text is then lost.
 * Text:    says what, which, why, what now; no "failed to", no newline, valid UTF-8.
 * Thread:  plain values, no shared state. */
#ifndef TIDEPOOL_BASE_ERROR_H
#define TIDEPOOL_BASE_ERROR_H

#include <stdint.h>

enum error_code {
    ERROR_NONE = 0,
    ERROR_CANCELLED = 1,
    ERROR_UNKNOWN = 2,
    ERROR_INVALID_ARGUMENT = 3,
    ERROR_DEADLINE_EXCEEDED = 4,
    ERROR_NOT_FOUND = 5,
    ERROR_ALREADY_EXISTS = 6,
    ERROR_PERMISSION_DENIED = 7,
    ERROR_RESOURCE_EXHAUSTED = 8,
    ERROR_FAILED_PRECONDITION = 9,
    ERROR_ABORTED = 10,
    ERROR_OUT_OF_RANGE = 11,
    ERROR_UNIMPLEMENTED = 12,
    ERROR_INTERNAL = 13,
    ERROR_UNAVAILABLE = 14,
    ERROR_DATA_LOSS = 15,
    ERROR_UNAUTHENTICATED = 16,
};

/* The bound that stands against what was asked for, where one does: for clients that are programs.
 */
struct error_bound {
    char name[40];  /* "jobs_active"; "": none */
    uint64_t value; /* what it would come to */
    uint64_t most;  /* what would fit */
};

struct error {
    enum error_code code;
    char text[512];
    struct error_bound bound;
};

/* Fills `error` and returns -(int)code, so that `return error_set(...)` reads well.
 * A text that does not fit is cut at a whole UTF-8 character. */
int error_set(struct error *error, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Adds the bound to an error that has been set. */
void error_set_bound(struct error *error, const char *name, uint64_t value, uint64_t most);

/* The same with ": <strerror(number)>" appended; the code follows from the errno (ENOENT →
 * NOT_FOUND, EACCES and EPERM → PERMISSION_DENIED, ENOSPC, EDQUOT, ENOMEM and EMFILE →
 * RESOURCE_EXHAUSTED, EEXIST → ALREADY_EXISTS, EADDRINUSE → UNAVAILABLE, else INTERNAL). */
int error_set_errno(struct error *error, int number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<context>: " before the text that is there. Returns -(int)error->code. */
int error_prefix(struct error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *error_code_name(enum error_code code); /* "INVALID_ARGUMENT"; "UNKNOWN" when odd */

#endif
