/* file.h: opening data and making folders, where a path from outside may name anything.
 * Thread: any; file_open never waits, not even for the other end of a pipe. */
#ifndef TIDEPOOL_TRAIN_FILE_H
#define TIDEPOOL_TRAIN_FILE_H

#include <sys/types.h>

#include "server/base/error.h"

/* A regular file for reading: its descriptor, or a negative error. */
int file_open(const char *path, struct error *error);
/* One that is there already is fine; a new one is synced into the folder above it. */
int directory_make(const char *path, mode_t mode, struct error *error);
int directory_sync(const char *path, struct error *error);

#endif
