/* damage.h: a database that cannot be used any more is moved aside, whole. Inside the store only.
 * Thread:  before start. */
#ifndef TIDEPOOL_STORE_DAMAGE_H
#define TIDEPOOL_STORE_DAMAGE_H

#include <stddef.h>

#include "server/base/error.h"

/* Renames the database and its log to `<path>.damaged-<UTC time>` and `…-wal`, so that the sqlite3
 * shell finds them together, and logs what is lost with it and where it lies now; the same goes to
 * `ret_warning` for the status. */
int damage_move_aside(const char *path, const struct error *damage, char *ret_warning,
                      size_t warning_size, struct error *error);

#endif
