#include "server/base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int folder_make(const char *path, mode_t mode, struct error *error)
{
    char above[PATH_MAX];
    if (mkdir(path, mode) < 0) {
        return errno == EEXIST ? 0 : error_set_errno(error, errno, "create '%s'", path);
    }
    (void)snprintf(above, sizeof above, "%s", path); /* mkdir takes no longer one */
    return folder_sync(dirname(above), error);
}

int folder_make_all(const char *path, mode_t mode, struct error *error)
{
    char part[PATH_MAX];
    int result = 0;
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "create '%.64s…': too long a path", path);
    }
    for (char *slash = strchr(part + 1, '/'); slash != NULL && result == 0;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        result = folder_make(part, 0755, error);
        *slash = '/';
    }
    return result < 0 ? result : folder_make(path, mode, error);
}

int folder_sync(const char *path, struct error *error)
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
