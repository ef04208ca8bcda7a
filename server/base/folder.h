/* folder.h: folders that are there, and on disk.
 * Thread: any; blocks on the disk. */
#ifndef TIDEPOOL_BASE_FOLDER_H
#define TIDEPOOL_BASE_FOLDER_H

#include <sys/types.h>

#include "server/base/error.h"

/* One that is there already is fine; a new one is synced into the folder above it. */
int folder_make(const char *path, mode_t mode, struct error *error);
/* With those above it (0755) as far as they are missing. */
int folder_make_all(const char *path, mode_t mode, struct error *error);
/* What was created, renamed or removed in it is on disk. */
int folder_sync(const char *path, struct error *error);

#endif
