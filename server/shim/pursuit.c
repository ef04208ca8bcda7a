#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/shim/shim_internal.h"

#define SPIN_NS (4 * NS_PER_MS) /* a freeze or a death mostly takes less */
#define SPIN_SLEEP_US 50
#define FROZEN_LOOK_NS (50 * NS_PER_MS)
#define THAW_LOOKS 3

/* ---- the whole tree --------------------------------------------------------------------- */

bool shim_childless(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno == ECHILD;
}

/* Nobody below lives. */
bool shim_all_gone(const struct shim *shim)
{
    return shim_childless() &&
           (shim->cgroup.kind == CGROUP_NONE || cgroup_populated(&shim->cgroup) == 0);
}

bool shim_empty(struct shim *shim, uint64_t *ret_processes)
{
    *ret_processes = 0;
    shim_reap(shim);
    if (shim_all_gone(shim)) {
        return true;
    }
    /* A look can miss who forks meanwhile: never 0 while somebody is there. */
    *ret_processes = tree_look(&shim->tree) == 0 ? tree_live(&shim->tree) : 0;
    *ret_processes += *ret_processes == 0;
    return false;
}

static void thaw_by_signals(struct shim *shim)
{
    for (int looks = 0; looks < THAW_LOOKS && tree_look(&shim->tree) == 0; looks++) {
        bool stopped = false;
        for (size_t i = 0; i < shim->tree.members.count; i++) {
            stopped = stopped || shim->tree.members.items[i].state == 'T';
        }
        if (!stopped && looks > 0) {
            break;
        }
        (void)tree_signal(&shim->tree, SIGCONT);
    }
}

int shim_thaw_all(struct shim *shim)
{
    int result = 0;
    if (shim->cgroup.kind != CGROUP_NONE) {
        result = cgroup_freeze(&shim->cgroup, false);
    } else {
        thaw_by_signals(shim);
    }
    shim->frozen = shim->frozen && result < 0;
    shim->frozen_look_ns = 0;
    return result;
}

/* ---- pursuits: what takes more than one try --------------------------------------------- */

void pursuit_answer(struct shim *shim, enum error_code code, const char *text)
{
    struct shim_outcome outcome = {.command = shim->pursuit.command, .code = code};
    if (shim->pursuit.command == 0) {
        return;
    }
    (void)snprintf(outcome.text, sizeof(outcome.text), "%s", text);
    outcome.took_ns = boottime_now_ns() - shim->pursuit.began_ns;
    outcome.empty = shim_empty(shim, &outcome.processes);
    shim->pursuit.command = 0;
    shim->listener.finished(shim->listener.arg, &outcome);
}

void pursuit_begin(struct shim *shim, enum shim_goal goal, uint64_t command, uint64_t bound_ns)
{
    pursuit_answer(shim, ERROR_ABORTED, "another command took its place");
    shim->pursuit.goal = goal;
    shim->pursuit.command = command;
    shim->pursuit.began_ns = boottime_now_ns();
    shim->pursuit.bound_ns = clock_add_ns(shim->pursuit.began_ns, bound_ns);
}

static bool frozen_now(struct shim *shim)
{
    return shim->cgroup.kind != CGROUP_NONE ? cgroup_is_frozen(&shim->cgroup)
                                            : tree_stop(&shim->tree) == 1;
}

static bool killed_now(struct shim *shim)
{
    shim_reap(shim);
    return shim_all_gone(shim);
}

static bool goal_reached(struct shim *shim)
{
    return shim->pursuit.goal == GOAL_FREEZE ? frozen_now(shim) : killed_now(shim);
}

static void goal_push(struct shim *shim)
{
    if (shim->pursuit.goal != GOAL_KILL) {
        return;
    }
    if (shim->cgroup.kind != CGROUP_NONE) {
        (void)cgroup_kill(&shim->cgroup);
    }
    /* Those outside the group too: root may have left it. */
    if (tree_look(&shim->tree) == 0 && tree_live(&shim->tree) > 0) {
        if (shim->cgroup.kind == CGROUP_NONE) {
            (void)tree_kill(&shim->tree);
        } else {
            (void)tree_signal(&shim->tree, SIGKILL);
        }
    }
}

static void goal_done(struct shim *shim)
{
    if (shim->pursuit.goal == GOAL_FREEZE) {
        shim->frozen = true;
        shim->frozen_look_ns = boottime_now_ns() + FROZEN_LOOK_NS;
    }
    pursuit_answer(shim, ERROR_NONE, "");
    shim->pursuit.goal = GOAL_NONE;
}

static void goal_late(struct shim *shim)
{
    if (shim->pursuit.goal == GOAL_FREEZE) {
        (void)shim_thaw_all(shim); /* half a freeze would be worse than none */
        pursuit_answer(shim, ERROR_DEADLINE_EXCEEDED, "not all of the job stood still in time");
        shim->pursuit.goal = GOAL_NONE;
    } else {
        pursuit_answer(shim, ERROR_DEADLINE_EXCEEDED, "some of the job live on; the shim goes on");
    }
}

/* A few ms at most. */
void pursuit_push(struct shim *shim)
{
    uint64_t until = boottime_now_ns() + SPIN_NS;
    goal_push(shim);
    do {
        if (goal_reached(shim)) {
            goal_done(shim);
            return;
        }
        (void)usleep(SPIN_SLEEP_US);
    } while (boottime_now_ns() < until);
    if (boottime_now_ns() >= shim->pursuit.bound_ns) {
        goal_late(shim);
    }
}
