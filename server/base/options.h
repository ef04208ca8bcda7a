/* options.h: strict reading of JSON objects by a table: server configuration, a model's
 * config.json, a job's specification. One table also prints the documentation.
 * Strict:  an unknown key is an error that names it, where it stands and the nearest known key;
 *          a wrong type or a number out of range names the key, the limits and what was given.
 * Thread:  any; no shared state. */
#ifndef TIDEPOOL_BASE_OPTIONS_H
#define TIDEPOOL_BASE_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "server/base/error.h"

enum option_kind {
    OPTION_BOOL,   /* bool */
    OPTION_INT,    /* int64_t */
    OPTION_NUMBER, /* double */
    OPTION_TEXT,   /* char *, malloc'ed; the struct's owner frees it */
    OPTION_CHOICE, /* int: index into choices */
    OPTION_JSON,   /* json_t *, a new reference; for objects and lists with a reader of their own */
};

struct option {
    const char *name; /* key in the object */
    enum option_kind kind;
    size_t offset; /* of the field in the struct that is filled */
    const char *unit;
    double minimum, maximum;    /* OPTION_INT, OPTION_NUMBER */
    const char *standard;       /* default as JSON text, or NULL: leave the field as it is */
    const char *const *choices; /* OPTION_CHOICE: names, NULL at the end */
    bool required;
    const char *help;
};

/* Fills `target` from `object`; `where` names it in messages ("config.endpoints.digits").
 * On an error what was already set in `target` stays set (free it as usual). */
int options_read(const struct option *table, size_t count, const json_t *object, const char *where,
                 void *target, struct error *error);
/* Frees the OPTION_TEXT and OPTION_JSON fields of `target` and sets them NULL. */
void options_free(const struct option *table, size_t count, void *target);
/* One Markdown table row per option: name, unit, range, default, help. */
void options_print(const struct option *table, size_t count, FILE *out);
/* The nearest of `count` names by edit distance, or NULL when none is near. */
const char *options_nearest(const char *name, const char *const *names, size_t count);

/* Parses a file or text: duplicates are refused, errors carry line and column, depth ≤ 64. */
json_t *options_parse_file(const char *path, struct error *error);
json_t *options_parse_text(const char *text, size_t length, const char *what, struct error *error);

#endif
