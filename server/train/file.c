#include "server/train/file.h"

#include <errno.h>
#include <fcntl.h>
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
