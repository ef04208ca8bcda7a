#include "server/outside/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void log_reader_init(struct log_reader *reader, const char *folder)
{
    *reader = (struct log_reader){.fd = -1};
    (void)snprintf(reader->folder, sizeof reader->folder, "%s", folder);
}

void log_reader_fini(struct log_reader *reader)
{
    if (reader->fd >= 0) {
        (void)close(reader->fd);
    }
    reader->fd = -1;
}

static int file_open(const struct log_reader *reader, const char *name, ino_t *ret_inode)
{
    char path[PATH_MAX + 8];
    struct stat status;
    (void)snprintf(path, sizeof path, "%s/%s", reader->folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &status) == 0) {
        *ret_inode = status.st_ino;
    }
    return fd;
}

static ino_t file_inode(const char *folder, const char *name, uint64_t *ret_size)
{
    char path[PATH_MAX + 8];
    struct stat status;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (lstat(path, &status) < 0) {
        *ret_size = 0;
        return 0;
    }
    *ret_size = (uint64_t)status.st_size;
    return status.st_ino;
}

uint64_t log_size(const char *folder)
{
    uint64_t size = 0, before = 0;
    (void)file_inode(folder, "log", &size);
    (void)file_inode(folder, "log.1", &before);
    return size + before;
}

static size_t file_read(const struct log_reader *reader, void *bytes, size_t size)
{
    ssize_t length;
    do {
        length = read(reader->fd, bytes, size);
    } while (length < 0 && errno == EINTR);
    return length > 0 ? (size_t)length : 0;
}

/* The oldest that is kept. */
static void begin(struct log_reader *reader, uint64_t dropped)
{
    reader->fd = file_open(reader, "log.1", &reader->inode);
    if (reader->fd < 0) {
        reader->fd = file_open(reader, "log", &reader->inode);
    }
    reader->offset = dropped;
}

/* The one that is read has become `log.1`, or is gone: false: neither, it still grows. */
static bool follow(struct log_reader *reader, uint64_t dropped)
{
    uint64_t size;
    ino_t current = file_inode(reader->folder, "log", &size);
    ino_t before = file_inode(reader->folder, "log.1", &size);
    ino_t inode = 0;
    if (current == reader->inode || current == 0) {
        return false;
    }
    int fd = file_open(reader, before == reader->inode ? "log" : "log.1", &inode);
    if (fd < 0) {
        return false;
    }
    if (before != reader->inode) { /* a whole file was rotated away unread */
        reader->offset = dropped > reader->offset ? dropped : reader->offset;
    }
    (void)close(reader->fd);
    reader->fd = fd;
    reader->inode = inode;
    return true;
}

size_t log_reader_read(struct log_reader *reader, uint64_t dropped, void *bytes, size_t size,
                       uint64_t *ret_offset)
{
    if (reader->fd < 0) {
        begin(reader, dropped);
    }
    if (reader->fd < 0) {
        return 0; /* the run has not begun yet */
    }
    size_t length = file_read(reader, bytes, size);
    /* What was written before the rotation is read before what came after it. */
    if (length == 0 && follow(reader, dropped)) {
        length = file_read(reader, bytes, size);
    }
    *ret_offset = reader->offset;
    reader->offset += length;
    return length;
}
