/* user.h: the user that a server started as root becomes, once what needs root is done (a spawner
 * of jobs forked, folders handed over).
 * Thread:  before any other exists: the kernel's privileges are each thread's own. */
#ifndef TIDEPOOL_BASE_USER_H
#define TIDEPOOL_BASE_USER_H

#include <sys/types.h>

#include "server/base/error.h"

struct user {
    uid_t uid;
    gid_t gid;
    char name[64];
};

/* By name or number. NOT_FOUND: there is none. */
int user_find(const char *name, struct user *ret_user, struct error *error);
/* Makes the folder (mode 0700, those above it 0755) where it is not there, and gives it to the user
 * where it is empty. FAILED_PRECONDITION: it is another's and has files in it. */
int user_give_folder(const struct user *user, const char *path, struct error *error);
/* With all its groups and no way back. Nothing to do: it is the caller already. */
int user_become(const struct user *user, struct error *error);

#endif
