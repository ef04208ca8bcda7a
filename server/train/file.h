/* file.h: opening data, where a path from outside may name anything.
 * Thread: any; never waits, not even for the other end of a pipe. */
#ifndef TIDEPOOL_TRAIN_FILE_H
#define TIDEPOOL_TRAIN_FILE_H

#include "server/base/error.h"

/* A regular file for reading: its descriptor, or a negative error. */
int file_open(const char *path, struct error *error);

#endif
