/* lock.h: one server per state directory. Inside the store only. */
#ifndef TIDEPOOL_STORE_LOCK_H
#define TIDEPOOL_STORE_LOCK_H

#include "server/base/error.h"

/* Makes the directory where it is missing (with its parents, 0700) and locks `<directory>/lock`,
 * which then holds this process's number. Returns the descriptor that holds the lock. */
int lock_take(const char *directory, struct error *error);

#endif
