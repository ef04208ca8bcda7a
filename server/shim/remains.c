#include "server/shim/remains.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/shim/cgroup.h"
#include "server/shim/tree.h"

#define STOP_WAITS 40
#define STOP_WAIT_US 500
#define DIE_NS (100 * NS_PER_MS) /* for all of them together */
#define DIE_WAIT_US 200

static void group_take(const struct shim_record *record, struct cgroup *ret_cgroup)
{
    *ret_cgroup = (struct cgroup){.kind = (enum cgroup_kind)record->cgroup_kind};
    memcpy(ret_cgroup->path, record->cgroup_path, sizeof(ret_cgroup->path));
}

static void process_signal(int pidfd, int signal)
{
    (void)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* Stopped and not dying: what is below it stays below it. */
static bool shim_stopped(const struct shim_record *record)
{
    struct process shim;
    return process_read((pid_t)record->shim_pid, &shim) && shim.start == record->shim_start &&
           shim.state == 'T';
}

static bool shim_stop(const struct shim_record *record, int pidfd)
{
    process_signal(pidfd, SIGSTOP);
    for (int waits = 0; waits < STOP_WAITS && !process_over(pidfd); waits++) {
        if (shim_stopped(record)) {
            return true;
        }
        (void)usleep(STOP_WAIT_US);
    }
    return false;
}

/* The shim is there, but silent. Stopped, it starts and reaps nothing, and whoever loses its parent
 * comes to it: two looks at its tree that find only dead prove it empty. */
static enum remains end_below(const struct shim_record *record, int pidfd)
{
    struct tree tree;
    enum remains remains = REMAINS_LIVE;
    if (!shim_stop(record, pidfd)) {
        return REMAINS_LIVE; /* dying, it seems: the next pass finds it dead */
    }
    tree_init(&tree, (pid_t)record->shim_pid);
    if (tree_kill(&tree) == 0) {
        bool first = tree_look(&tree) == 0 && tree_live(&tree) == 0;
        /* One that began to die meanwhile has given its tree away: then nothing is proved. */
        if (first && tree_look(&tree) == 0 && tree_live(&tree) == 0 && shim_stopped(record)) {
            remains = REMAINS_EMPTY;
        }
    }
    tree_fini(&tree);
    return remains;
}

/* A session's number is its first process's; another process may have that number by now, and a
 * session of its own. */
static bool session_is_jobs(const struct process_list *list, const struct shim_record *record)
{
    const struct process *first = process_find(list, (pid_t)record->leader_pid);
    return record->leader_pid != 0 && (first == NULL || first->start == record->leader_start);
}

static bool is_remains(const struct process *process, const struct shim_record *record,
                       bool session_ours)
{
    if (process->start < record->shim_start || process->pid == (pid_t)record->shim_pid ||
        process->state == 'Z' || process->state == 'X') {
        return false;
    }
    return process_has_variable(process->pid, record->tag) ||
           (session_ours && process->session == (pid_t)record->leader_pid &&
            process_user(process->pid) == (uid_t)record->uid);
}

/* What dies loses its environment first: the next look must not come between. */
static void die_wait(int pidfd, uint64_t until_ns)
{
    while (!process_over(pidfd) && boottime_now_ns() < until_ns) {
        (void)usleep(DIE_WAIT_US);
    }
}

static size_t remains_kill(const struct shim_record *record)
{
    struct process_list list = {0};
    size_t found = 0;
    uint64_t until_ns = boottime_now_ns() + DIE_NS;
    bool session_ours;
    if (process_scan(&list) < 0) {
        process_list_fini(&list);
        return 1; /* not known: not gone */
    }
    session_ours = session_is_jobs(&list, record);
    for (size_t i = 0; i < list.count; i++) {
        if (is_remains(&list.items[i], record, session_ours)) {
            int pidfd = process_open(list.items[i].pid, list.items[i].start);
            found++;
            if (pidfd >= 0) {
                process_signal(pidfd, SIGKILL);
                die_wait(pidfd, until_ns);
                (void)close(pidfd);
            }
        }
    }
    process_list_fini(&list);
    return found;
}

static enum remains end_group(const struct shim_record *record)
{
    struct cgroup cgroup;
    group_take(record, &cgroup);
    (void)cgroup_kill(&cgroup);
    if (cgroup_populated(&cgroup) != 0) {
        return REMAINS_LIVE;
    }
    return cgroup_remove(&cgroup) == 0 ? REMAINS_EMPTY : REMAINS_LIVE;
}

/* Without a shim. */
static enum remains end_orphans(const struct shim_record *record)
{
    size_t found;
    if (record->state == SHIM_ENDED || record->state == SHIM_FAILED) {
        return REMAINS_EMPTY; /* verified by the shim before it went */
    }
    found = remains_kill(record);
    if (record->cgroup_kind != CGROUP_NONE) {
        enum remains group = end_group(record);
        return found > 0 ? REMAINS_LIVE : group;
    }
    return found > 0 ? REMAINS_LIVE : REMAINS_UNSURE;
}

enum remains remains_end(const struct shim_record *record)
{
    char boot[BOOT_ID_SIZE];
    enum remains remains;
    int pidfd;
    if (boot_id_read(boot, NULL) < 0) {
        return REMAINS_UNSURE;
    }
    if (strcmp(boot, record->boot) != 0) {
        return REMAINS_EMPTY; /* nobody lives through a reboot */
    }
    pidfd = process_open((pid_t)record->shim_pid, record->shim_start);
    if (pidfd < 0 || process_over(pidfd)) {
        remains = end_orphans(record);
    } else {
        remains = end_below(record, pidfd);
        if (record->cgroup_kind != CGROUP_NONE) {
            enum remains group = end_group(record);
            remains = remains == REMAINS_EMPTY ? group : remains;
        }
        if (remains == REMAINS_EMPTY) {
            process_signal(pidfd, SIGKILL);
        }
    }
    if (pidfd >= 0) {
        (void)close(pidfd);
    }
    return remains;
}
