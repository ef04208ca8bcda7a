#include "server/shim/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOKS_MAX 3
#define PIN_LOOKS_MAX 50
#define QUIET_WAITS 20
#define QUIET_WAIT_US 200

void tree_init(struct tree *tree, pid_t root)
{
    *tree = (struct tree){.root = root, .session = getsid(root)};
}

void tree_fini(struct tree *tree)
{
    process_list_fini(&tree->members);
}

int tree_look(struct tree *tree)
{
    int result = process_scan(&tree->members);
    if (result == 0) {
        process_keep_below(&tree->members, tree->root);
    }
    return result;
}

static bool state_dead(char state)
{
    return state == 'Z' || state == 'X';
}

size_t tree_live(const struct tree *tree)
{
    size_t live = 0;
    for (size_t i = 0; i < tree->members.count; i++) {
        live += !state_dead(tree->members.items[i].state);
    }
    return live;
}

/* 0, or -errno; one that is gone has nothing to be told. */
static int member_signal(const struct process *member, int signal)
{
    int fd = process_open(member->pid, member->start);
    int result = 0;
    if (fd < 0) {
        return 0;
    }
    if (syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) < 0 && errno != ESRCH) {
        result = -errno;
    }
    (void)close(fd);
    return result;
}

size_t tree_signal(const struct tree *tree, int signal)
{
    size_t refused = 0;
    for (size_t i = 0; i < tree->members.count; i++) {
        const struct process *member = &tree->members.items[i];
        refused += !state_dead(member->state) && member_signal(member, signal) < 0;
    }
    return refused;
}

/* The tree's groups: sessions begin with a member, and a group lives within one session, so a group
 * outside the root's session has members of the tree alone. */
static void groups_signal(const struct tree *tree, int signal)
{
    pid_t last = 0;
    for (size_t i = 0; i < tree->members.count; i++) {
        const struct process *member = &tree->members.items[i];
        struct process now;
        if (member->group == last || member->session == tree->session || member->group <= 1) {
            continue;
        }
        /* Who is still there as it was keeps the group's number from being used again. */
        if (process_read(member->pid, &now) && now.start == member->start &&
            now.group == member->group) {
            (void)kill(-member->group, signal);
            last = member->group;
        }
    }
}

bool tree_quiet(const struct tree *tree)
{
    for (size_t i = 0; i < tree->members.count; i++) {
        if (!process_quiet(tree->members.items[i].pid)) {
            return false;
        }
    }
    return true;
}

static bool same_members(const struct process_list *list, const pid_t *pids, size_t count)
{
    if (list->count != count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (list->items[i].pid != pids[i]) {
            return false;
        }
    }
    return true;
}

static pid_t *member_pids(const struct process_list *list)
{
    pid_t *pids = calloc(list->count + 1, sizeof(*pids));
    for (size_t i = 0; pids != NULL && i < list->count; i++) {
        pids[i] = list->items[i].pid;
    }
    return pids;
}

/* A thread that runs elsewhere stops at its next tick; looking around meanwhile would cost more. */
static bool wait_quiet(const struct tree *tree)
{
    for (int waits = 0; waits < QUIET_WAITS; waits++) {
        if (tree_quiet(tree)) {
            return true;
        }
        (void)usleep(QUIET_WAIT_US);
    }
    return false;
}

static void stop_running(const struct tree *tree)
{
    groups_signal(tree, SIGSTOP);
    for (size_t i = 0; i < tree->members.count; i++) {
        const struct process *member = &tree->members.items[i];
        if (!process_quiet(member->pid)) {
            (void)member_signal(member, SIGSTOP);
        }
    }
}

int tree_stop(struct tree *tree)
{
    int result = tree_look(tree);
    for (int looks = 0; result == 0 && looks < LOOKS_MAX; looks++) {
        size_t count = tree->members.count;
        pid_t *pids = member_pids(&tree->members);
        if (pids == NULL) {
            return -(int)ERROR_RESOURCE_EXHAUSTED;
        }
        if (!tree_quiet(tree)) {
            stop_running(tree);
            (void)wait_quiet(tree);
        }
        /* Quiet is: all stand still, and a look taken after that finds nobody else. */
        result = tree_look(tree);
        if (result == 0 && same_members(&tree->members, pids, count) && tree_quiet(tree)) {
            result = 1;
        }
        free(pids);
    }
    return result;
}

int tree_kill(struct tree *tree)
{
    int result = tree_stop(tree);
    if (result < 0) {
        return result;
    }
    groups_signal(tree, SIGKILL);
    (void)tree_signal(tree, SIGKILL);
    return 0;
}

/* Whether it was moved. What the machine does not let it have (a cpuset) is no move. */
static bool thread_pin(pid_t task, const cpu_set_t *cpus)
{
    cpu_set_t before, after;
    return sched_getaffinity(task, sizeof(before), &before) == 0 && !CPU_EQUAL(&before, cpus) &&
           sched_setaffinity(task, sizeof(*cpus), cpus) == 0 &&
           sched_getaffinity(task, sizeof(after), &after) == 0 && !CPU_EQUAL(&before, &after);
}

static size_t member_pin(pid_t pid, const cpu_set_t *cpus)
{
    char path[64];
    size_t moved = 0;
    struct dirent *entry;
    DIR *tasks;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        pid_t task = (pid_t)strtol(entry->d_name, NULL, 10);
        moved += task > 0 && thread_pin(task, cpus);
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return moved;
}

int tree_pin(struct tree *tree, const cpu_set_t *cpus)
{
    for (int looks = 0; looks < PIN_LOOKS_MAX; looks++) {
        size_t moved = 0;
        int result = tree_look(tree);
        if (result < 0) {
            return result;
        }
        for (size_t i = 0; i < tree->members.count; i++) {
            moved += member_pin(tree->members.items[i].pid, cpus);
        }
        if (moved == 0) {
            return 0;
        }
    }
    return -(int)ERROR_ABORTED;
}

int cpus_parse(const char *text, cpu_set_t *ret_cpus, struct error *error)
{
    cpu_set_t cpus;
    const char *at = text;
    CPU_ZERO(&cpus);
    do {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        bool number = isdigit((unsigned char)*at);
        if (number && *end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            number = isdigit((unsigned char)*at);
        }
        if (!number || last >= CPU_SETSIZE || first > last || (*end != ',' && *end != '\0')) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "cores '%s': not of the form 0-3,5 below %d", text, CPU_SETSIZE);
        }
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            CPU_SET(cpu, &cpus);
        }
        at = *end == ',' ? end + 1 : NULL;
    } while (at != NULL);
    *ret_cpus = cpus;
    return 0;
}
