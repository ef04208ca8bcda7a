/* record.h: what a shim keeps on disk about its job, so that any later server finds both again and
 * a server whose store was lost can rebuild from it; after the end, how it ended.
 * File:    `record` in the job's directory, of the shim's privileges (for a server without
 *          them 0640, of the directory's group): a message and its checksum (CRC-64), replaced as a
 * whole and synced, so that there is always one whole record. Times:   ns of CLOCK_BOOTTIME of the
 * boot that `boot` names; in another boot they mean nothing. Thread:  any. */
#ifndef TIDEPOOL_SHIM_RECORD_H
#define TIDEPOOL_SHIM_RECORD_H

#include <limits.h>
#include <stdint.h>

#include "server/shim/message.h"
#include "server/shim/process.h"

#define SHIM_NAME_MAX 128
#define SHIM_TEXT_MAX 512
#define SHIM_SECRET_SIZE 32
#define SHIM_TOKEN_MAX 64

enum shim_state {
    SHIM_STARTING = 1,
    SHIM_RUNNING = 2,
    SHIM_EXITED = 3, /* the leader is over, others of its tree are being ended */
    SHIM_ENDED = 4,  /* verified empty */
    SHIM_FAILED = 5, /* the command never ran: `step`, `error_number`, `text` */
};

/* What was tried when a start failed; each is the job's own doing, but START_SHIM and START_GROUP.
 */
enum shim_step {
    START_NOTHING = 0,
    START_SHIM = 1,
    START_GROUP = 2,
    START_LIMITS = 3,
    START_USER = 4,
    START_DIRECTORY = 5,
    START_OUTPUT = 6,
    START_EXECUTE = 7,
    START_INTERPRETER = 8,
};

struct shim_record {
    uint16_t version; /* that its shim speaks; of a record that was read */
    /* The server's: whose job, with what. */
    char job[SHIM_NAME_MAX], lease[SHIM_NAME_MAX], devices[SHIM_TEXT_MAX];
    uint64_t epoch, generation; /* of the fencing token: they order, its secret authorises */
    unsigned char token[SHIM_TOKEN_MAX];
    uint64_t token_size;
    uint64_t notice_deadline_ns, kill_deadline_ns; /* 0: none */
    uint64_t uid;
    uint64_t owner; /* the server's user: may command the shim */
    /* Who the shim is, and what proves to it that a caller may command it. */
    char boot[BOOT_ID_SIZE];
    uint64_t shim_pid, shim_start;
    unsigned char secret[SHIM_SECRET_SIZE];
    /* Where its processes are found, also without it. */
    char tag[SHIM_NAME_MAX]; /* NAME=value in the environment of each */
    uint64_t leader_pid, leader_start;
    uint64_t cgroup_kind;
    char cgroup_path[PATH_MAX];
    /* How it went. */
    uint64_t state; /* enum shim_state */
    uint64_t exit_code, exit_signal;
    uint64_t step, error_number;
    char text[SHIM_TEXT_MAX];
    uint64_t user_ns, system_ns, rss_bytes;      /* of all that were reaped */
    uint64_t log_written, log_dropped, log_lost; /* bytes: in all; rotated away; not written */
};

/* The same fields in a message; texts point into the record. */
void record_put(const struct shim_record *record, struct message *message);
/* Takes over the fields that the message has. INVALID_ARGUMENT: one is too long. */
int record_take(struct shim_record *record, const struct message *message, struct error *error);

int record_write(const char *directory, const struct shim_record *record, struct error *error);
/* DATA_LOSS: the file is there but damaged; NOT_FOUND: it is not; PERMISSION_DENIED: neither root
 * nor we have written it. */
int record_read(const char *directory, struct shim_record *ret_record, struct error *error);

#endif
