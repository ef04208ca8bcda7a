/* log.h: one line per event, `<time> <level> <component>: <what> key=value …`, or one JSON object.
 * Values:  written with the *_field macros' order kept; text values are quoted when they hold
 *          spaces, quotes or control bytes, and never break the line.
 * Thread:  any; one write(2) per line, so that lines never mix. */
#ifndef TIDEPOOL_BASE_LOG_H
#define TIDEPOOL_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_open(int fd, enum log_level minimum, bool json); /* default: 2, LOG_INFO, text */

/* `fields` is a printf format of key=value pairs, for example
 * log_write(LOG_ERROR, "device", "lost", "device=%s leases=%u", id, count).
 * Give text values through log_quote: log_write(..., "name=%s", log_quote(buffer, name)). */
void log_write(enum log_level level, const char *component, const char *what, const char *fields,
               ...) __attribute__((format(printf, 4, 5)));

struct log_text {
    char text[256];
};
/* Returns `buffer->text`: the value as it may stand after a `key=`, cut with "…" if too long. */
const char *log_quote(struct log_text *buffer, const char *value);

#endif
