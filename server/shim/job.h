/* job.h: what a shim is to start, as its server tells it: a message in a memory file that the shim
 * inherits, so that nothing of it shows on a command line or in a file.
 * Owner:   texts and arrays are the caller's. */
#ifndef TIDEPOOL_SHIM_JOB_H
#define TIDEPOOL_SHIM_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/base/error.h"
#include "server/shim/cgroup.h"

#define JOB_BYTES_MAX (8 << 20) /* more than the kernel takes as arguments and environment */

struct job_limit {
    uint64_t resource, soft, hard; /* RLIMIT_…, and as setrlimit takes them */
};

struct shim_job {
    const char *directory; /* the shim's own: record, socket, log; 0700, the server's user */
    const char *job, *lease, *devices;
    uint64_t epoch, generation;
    const unsigned char *token;
    size_t token_size;
    const char *const *arguments;   /* NULL at the end; the first is the program */
    const char *const *environment; /* NULL at the end; nothing else is passed on */
    const char *working_directory;
    const char *output; /* also written here, uncapped, opened as the user; NULL: nowhere */
    int stdin_fd;       /* -1: /dev/null */
    uid_t owner;        /* the server's user: has the directory and may command the shim */
    uid_t uid;          /* the job's: the shim's own, or one that it may become */
    gid_t gid;
    const uint32_t *groups;
    size_t group_count;
    mode_t umask;
    const struct job_limit *limits;
    size_t limit_count;
    int nice;           /* -20 to 19 */
    const char *cpus;   /* "0-3,5"; NULL: all that the machine lets it have */
    int oom_score;      /* 0 to 1000: who goes first when memory runs out */
    uint64_t log_bytes; /* of the server's copy, two files together */
    enum cgroup_mode cgroup;
    uint32_t grace_ms;  /* what outlives the leader: between TERM and KILL */
    uint32_t linger_ms; /* the shim waits so long for a server to hear of the end */
};

/* A memory file with the job, close-on-exec: the descriptor, or a negative error. */
int job_write(const struct shim_job *job, struct error *error);

/* The same, read from a descriptor. Owns what its `job` points to. */
struct job_copy {
    struct shim_job job; /* stdin_fd is 0 where there is one, else -1 */
    unsigned char *bytes;
    const char **arguments, **environment;
};
int job_read(int fd, struct job_copy *ret_copy, struct error *error);
void job_copy_fini(struct job_copy *copy);

#endif
