/* log.h: the server's copy of what one run wrote, as its shim keeps it: `log`, and before it
 * `log.1`; read on while it grows and is rotated.
 * Offsets: bytes of what the run wrote; those that a full disk lost are not counted.
 * Thread:  one. Blocks on the disk. */
#ifndef TIDEPOOL_OUTSIDE_LOG_H
#define TIDEPOOL_OUTSIDE_LOG_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct log_reader {
    char folder[PATH_MAX];
    int fd; /* -1: not open yet */
    ino_t inode;
    uint64_t offset; /* of the next byte */
};

void log_reader_init(struct log_reader *reader, const char *folder);
void log_reader_fini(struct log_reader *reader);
/* The next bytes: their number, with *ret_offset of the first; 0: nothing now. `dropped`: bytes
 * rotated away, as last known: where what is kept begins. */
size_t log_reader_read(struct log_reader *reader, uint64_t dropped, void *bytes, size_t size,
                       uint64_t *ret_offset);
/* All that is kept now. */
uint64_t log_size(const char *folder);

#endif
