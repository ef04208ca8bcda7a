#include "server/store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "server/base/folder.h"

static int refuse_locked(int fd, const char *directory, struct error *error)
{
    char holder[24] = "";
    ssize_t length = pread(fd, holder, sizeof holder - 1, 0);
    holder[length > 0 ? length : 0] = '\0';
    long pid = strtol(holder, NULL, 10);
    return error_set(error, ERROR_FAILED_PRECONDITION,
                     "state directory '%s' is in use by another tidepoold (process %ld): stop it, "
                     "or give this one another --state DIR",
                     directory, pid);
}

/* "<process> <epoch>": of one width, so that it is written over in place, even on a full disk. */
static void read_epoch(int fd, uint64_t *ret_epoch)
{
    char text[64] = "";
    char *epoch = NULL;
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    (void)strtol(text, &epoch, 10);
    *ret_epoch = strtoull(epoch, NULL, 10);
}

int lock_note(int fd, uint64_t epoch, struct error *error)
{
    char text[64];
    int length =
        snprintf(text, sizeof text, "%-20ld %-20llu\n", (long)getpid(), (unsigned long long)epoch);
    if (pwrite(fd, text, (size_t)length, 0) != length || fdatasync(fd) < 0) {
        return error_set_errno(error, errno, "write the number of this start into 'lock'");
    }
    return 0;
}

int lock_take(const char *directory, uint64_t *ret_epoch, struct error *error)
{
    int result = folder_make_all(directory, 0700, error);
    int fd = -1;
    char path[PATH_MAX + 8];
    if (result < 0) {
        goto out;
    }
    snprintf(path, sizeof path, "%s/lock", directory);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        result = error_set_errno(error, errno, "open '%s'", path);
        goto out;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        result = errno == EWOULDBLOCK ? refuse_locked(fd, directory, error)
                                      : error_set_errno(error, errno, "lock '%s'", path);
        goto out;
    }
    read_epoch(fd, ret_epoch);
    result = lock_note(fd, *ret_epoch, error);
    if (result == 0) {
        result = fd;
        fd = -1;
    }
out:
    if (fd >= 0) {
        close(fd);
    }
    return result;
}
