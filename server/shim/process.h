/* process.h: processes as the kernel shows them under /proc, and who one is beyond its number.
 * Identity: boot id, pid and start time; a pid alone may be somebody else's by now.
 * Thread:   any; a list belongs to one. */
#ifndef TIDEPOOL_SHIM_PROCESS_H
#define TIDEPOOL_SHIM_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/base/error.h"

#define BOOT_ID_SIZE 40

struct process {
    pid_t pid, parent, group, session;
    uint64_t start; /* clock ticks since boot */
    char state;     /* as in /proc/PID/stat: R S D T t Z X I */
    bool below;     /* of process_keep_below alone */
};

struct process_list {
    struct process *items; /* by pid, ascending */
    size_t count, capacity;
};

uint64_t boottime_now_ns(void); /* CLOCK_BOOTTIME: goes on while the machine sleeps */
int boot_id_read(char boot_id[BOOT_ID_SIZE], struct error *error);

/* False: there is none. */
bool process_read(pid_t pid, struct process *ret_process);
/* Whether all of its threads are stopped or dead. */
bool process_quiet(pid_t pid);
/* A pidfd of exactly this process (pid and start time), or -1: it is gone. */
int process_open(pid_t pid, uint64_t start);
bool process_over(int pidfd);
/* The process's effective user; (uid_t)-1: it is gone. */
uid_t process_user(pid_t pid);
/* Whether its environment, as it was at exec, has this `NAME=value`. False where it may not be
 * read. */
bool process_has_variable(pid_t pid, const char *variable);

/* All processes that are visible now. Not one moment's picture: who forks meanwhile may be missing.
 */
int process_scan(struct process_list *list);
const struct process *process_find(const struct process_list *list, pid_t pid);
/* Leaves only what descends from `root`, itself left out. */
void process_keep_below(struct process_list *list, pid_t root);
void process_list_fini(struct process_list *list);

#endif
