/* lock.h: one server per state directory. Inside the store only. */
#ifndef TIDEPOOL_STORE_LOCK_H
#define TIDEPOOL_STORE_LOCK_H

#include <stdint.h>

#include "server/base/error.h"

/* Makes the directory where it is missing (with its parents, 0700) and locks `<directory>/lock`,
 * which then holds this process's number. Returns the descriptor that holds the lock. The epoch is
 * what lock_note wrote last, 0 when it never did: known even when the database is lost. */
int lock_take(const char *directory, uint64_t *ret_epoch, struct error *error);
/* Writes the epoch, on disk, beside this process's number. */
int lock_note(int fd, uint64_t epoch, struct error *error);

#endif
