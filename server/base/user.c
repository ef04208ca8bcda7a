#include "server/base/user.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/folder.h"

int user_find(const char *name, struct user *ret_user, struct error *error)
{
    char *end = NULL;
    unsigned long number = strtoul(name, &end, 10);
    bool is_number = end != name && *end == '\0' && number < UINT_MAX;
    const struct passwd *entry = is_number ? getpwuid((uid_t)number) : getpwnam(name);
    if (entry == NULL || strlen(entry->pw_name) >= sizeof ret_user->name) {
        return error_set(error, ERROR_NOT_FOUND,
                         "no user '%s' on this machine: make one (useradd --system %s), or name "
                         "another",
                         name, is_number ? "NAME" : name);
    }
    *ret_user = (struct user){.uid = entry->pw_uid, .gid = entry->pw_gid};
    (void)stpcpy(ret_user->name, entry->pw_name);
    return 0;
}

static bool folder_is_empty(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    bool empty = folder != NULL;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        empty = empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return empty;
}

int user_give_folder(const struct user *user, const char *path, struct error *error)
{
    struct stat status;
    int result = folder_make_all(path, 0700, error);
    if (result < 0) {
        return result;
    }
    if (lstat(path, &status) < 0) {
        return error_set_errno(error, errno, "look at '%s'", path);
    }
    if (S_ISDIR(status.st_mode) && status.st_uid == user->uid) {
        return 0;
    }
    if (!S_ISDIR(status.st_mode) || !folder_is_empty(path)) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "'%s' belongs to user %u and is in use: chown -R %s '%s', or name another "
                         "folder or user",
                         path, (unsigned)status.st_uid, user->name, path);
    }
    return lchown(path, user->uid, user->gid) < 0
               ? error_set_errno(error, errno, "give '%s' to user %s", path, user->name)
               : 0;
}

int user_become(const struct user *user, struct error *error)
{
    if (user->uid == geteuid() && user->uid == getuid()) {
        return 0;
    }
    if (initgroups(user->name, user->gid) < 0 || setresgid(user->gid, user->gid, user->gid) < 0 ||
        setresuid(user->uid, user->uid, user->uid) < 0) {
        return error_set_errno(error, errno, "become user %s: only root may", user->name);
    }
    if (user->uid != 0 && setuid(0) == 0) {
        return error_set(error, ERROR_INTERNAL, "user %s can become root again", user->name);
    }
    /* The change took it: without it the process may not look at its own descriptors in /proc. */
    (void)prctl(PR_SET_DUMPABLE, 1);
    return 0;
}
