/* arguments.h: command-line options by a table, which also prints their help.
 * Forms:   --name VALUE, --name=VALUE, --flag, --list VALUE VALUE, -f for a flag that has a letter;
 *          "--" ends the options; "-" alone is no option.
 * Names:   two options of one name are told apart by their groups.
 * Strict:  an unknown option names the nearest known one; a value out of range names the limits.
 * Owner:   texts point into argv.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_ARGUMENTS_H
#define TIDEPOOL_CLIENTS_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/base/error.h"

enum argument_kind {
    ARGUMENT_FLAG,   /* bool */
    ARGUMENT_TEXT,   /* const char * */
    ARGUMENT_INT,    /* int64_t */
    ARGUMENT_NUMBER, /* double */
    ARGUMENT_RANGE,  /* struct argument_range: "2" or "1:4" */
    ARGUMENT_LIST,   /* struct argument_list: every value up to the next option, and again */
};

#define ARGUMENT_LIST_MAX 64

struct argument_list {
    const char *values[ARGUMENT_LIST_MAX];
    size_t count;
};

struct argument_range {
    uint32_t minimum, maximum;
};

struct argument {
    const char *name; /* without the dashes */
    enum argument_kind kind;
    size_t offset;
    uint32_t group; /* accepted where the caller's mask has this bit */
    double minimum, maximum;
    const char *value; /* how the help calls the value; NULL for a flag */
    const char *help;  /* NULL: read, but shown to nobody */
    char letter;       /* of a flag: -f; 0: none */
};

struct arguments {
    const struct argument *table;
    size_t count;
    uint32_t groups;   /* which of them are accepted here */
    const char *where; /* for messages: the command's name */
    bool first_ends;   /* the first positional ends the options: it is a command of its own */
};

/* Reads argv[0..argc): options into `target`, the rest into `positional` (room for `argc`). */
int arguments_parse(const struct arguments *arguments, int argc, char **argv, void *target,
                    const char **positional, size_t *ret_positional_count, struct error *error);
void arguments_print(const struct arguments *arguments, FILE *out);

#endif
