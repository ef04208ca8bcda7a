/* cgroup.h: a control group of a job's own, where one may be made: the kernel then freezes and
 * kills whole trees at once, whoever double-forked or changed its session.
 * Kinds:   v2 (cgroup.freeze, cgroup.kill) or the v1 freezer; a machine may have either, both (a
 *          v2 tree without controllers beside v1) or none that we may write to.
 * Errors:  negative with a text; nothing is half made. */
#ifndef TIDEPOOL_SHIM_CGROUP_H
#define TIDEPOOL_SHIM_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "server/base/error.h"

enum cgroup_kind { CGROUP_NONE, CGROUP_V2, CGROUP_V1 };
enum cgroup_mode { CGROUP_AUTO, CGROUP_ONLY_V2, CGROUP_ONLY_V1, CGROUP_NEVER };

struct cgroup {
    enum cgroup_kind kind;
    char path[PATH_MAX]; /* of its directory; "" for CGROUP_NONE */
};

/* Makes `name` below the caller's own group. CGROUP_AUTO gives CGROUP_NONE where no kind works. */
int cgroup_create(enum cgroup_mode mode, const char *name, struct cgroup *ret_cgroup,
                  struct error *error);
int cgroup_enter(const struct cgroup *cgroup); /* the calling process; 0 or -errno */

/* Asks the kernel; cgroup_is_frozen tells when it is done. 0 or -errno. */
int cgroup_freeze(const struct cgroup *cgroup, bool frozen);
bool cgroup_is_frozen(const struct cgroup *cgroup);
/* SIGKILL to all members, thawed so that they can die. 0 or -errno. */
int cgroup_kill(const struct cgroup *cgroup);
/* Live members, groups below counted in: 1 yes, 0 none, -errno: cannot be told. */
int cgroup_populated(const struct cgroup *cgroup);
/* Removes it and all below; members must be gone. 0 or -errno; one that is gone is fine. */
int cgroup_remove(const struct cgroup *cgroup);

#endif
