#include "server/train/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

int file_open(const char *path, struct error *error)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_set_errno(error, errno, "open '%s'", path);
    }
    if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        (void)close(fd);
        return error_set(error, ERROR_INVALID_ARGUMENT, "'%s': is not a regular file", path);
    }
    return fd;
}

int directory_make(const char *path, mode_t mode, struct error *error)
{
    char above[PATH_MAX];
    if (mkdir(path, mode) < 0) {
        return errno == EEXIST ? 0 : error_set_errno(error, errno, "create '%s'", path);
    }
    (void)snprintf(above, sizeof(above), "%s", path); /* mkdir takes no longer one */
    return directory_sync(dirname(above), error);
}

int directory_sync(const char *path, struct error *error)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = 0;
    if (fd < 0 || fsync(fd) < 0) {
        result = error_set_errno(error, errno, "sync '%s'", path);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return result;
}
