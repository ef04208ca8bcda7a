/* message.h: what a shim and its server say to each other, and what a shim keeps on disk, as
 * bytes.
 * Bytes:   length (4 bytes, the head counted in), version (2), type (2), id (8), then fields in
 *          protobuf's wire format; all little-endian. On the socket (SOCK_SEQPACKET) one message
 *          is one packet.
 * Version: the shim's own; a server speaks MESSAGE_VERSION and the one before. A reader skips
 *          fields that it does not know, so that a field may be added without a new version.
 * Owner:   a decoded message points into the bytes it was read from.
 * Errors:  negative, as everywhere; what comes in is checked whole before any field is used. */
#ifndef TIDEPOOL_SHIM_MESSAGE_H
#define TIDEPOOL_SHIM_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"
#include "server/base/wire.h"

#define MESSAGE_VERSION 1
#define MESSAGE_VERSION_MIN 1
#define MESSAGE_HEAD 16
#define MESSAGE_PACKET_MAX 16384 /* of a message on the socket */

enum message_type {
    MESSAGE_JOB = 1,    /* server → shim, in a memory file: what to start */
    MESSAGE_RECORD = 2, /* the shim's file */
    MESSAGE_HELLO = 3,  /* server → shim, first on a connection: the secret */
    MESSAGE_STATE = 4,  /* shim → server: how things stand; answers HELLO, and at each change */
    MESSAGE_DONE = 5,   /* shim → server: a command was carried out */
    MESSAGE_FAILED = 6, /* shim → server: it was not, and why */
    /* Commands, server → shim. */
    MESSAGE_FREEZE = 16,
    MESSAGE_THAW = 17,
    MESSAGE_SIGNAL = 18,
    MESSAGE_KILL = 19,
    MESSAGE_VERIFY = 20,
    MESSAGE_PIN = 21,    /* another set of cores */
    MESSAGE_UPDATE = 22, /* lease, token, devices, deadlines of the record */
    MESSAGE_CLOSE = 23,  /* the end was noted: the shim may go */
};

/* The numbers on the wire: never reuse one. */
enum message_field {
    FIELD_JOB = 1,
    FIELD_LEASE = 2,
    FIELD_DEVICES = 3,
    FIELD_EPOCH = 4,
    FIELD_GENERATION = 5,
    FIELD_TOKEN = 6,
    FIELD_NOTICE_DEADLINE = 7, /* ns of CLOCK_BOOTTIME, as the next */
    FIELD_KILL_DEADLINE = 8,
    FIELD_DIRECTORY = 9,
    FIELD_ARGUMENTS = 10,   /* strings, each with its NUL */
    FIELD_ENVIRONMENT = 11, /* the same */
    FIELD_WORKING_DIRECTORY = 12,
    FIELD_OUTPUT = 13,
    FIELD_UID = 14,
    FIELD_GID = 15,
    FIELD_GROUPS = 16, /* 4 bytes each */
    FIELD_UMASK = 17,
    FIELD_LIMITS = 18, /* resource, soft, hard: 8 bytes each */
    FIELD_NICE = 19,   /* + 20 */
    FIELD_CPUS = 20,   /* "0-3,5" */
    FIELD_HAS_STDIN = 21,
    FIELD_LOG_BYTES = 22,
    FIELD_CGROUP_MODE = 23,
    FIELD_OOM_SCORE = 24,
    FIELD_GRACE_MS = 25,
    FIELD_LINGER_MS = 26,
    FIELD_SECRET = 27,
    FIELD_TAG = 28,
    FIELD_BOOT = 29,
    FIELD_SHIM_PID = 30,
    FIELD_SHIM_START = 31,
    FIELD_LEADER_PID = 32,
    FIELD_LEADER_START = 33,
    FIELD_CGROUP_KIND = 34,
    FIELD_CGROUP_PATH = 35,
    FIELD_STATE = 36,
    FIELD_EXIT_CODE = 37,
    FIELD_EXIT_SIGNAL = 38,
    FIELD_STEP = 39,
    FIELD_ERRNO = 40,
    FIELD_TEXT = 41,
    FIELD_USER_NS = 42,
    FIELD_SYSTEM_NS = 43,
    FIELD_RSS_BYTES = 44,
    FIELD_LOG_WRITTEN = 45,
    FIELD_LOG_DROPPED = 46,
    FIELD_LOG_LOST = 47,
    FIELD_BOUND_MS = 48,
    FIELD_SIGNAL = 49,
    FIELD_LEADER_ONLY = 50,
    FIELD_ERROR = 51,
    FIELD_EMPTY = 52,
    FIELD_PROCESSES = 53,
    FIELD_TOOK_NS = 54,
    FIELD_FROZEN = 55,
    FIELD_STIRRED = 56,
    FIELD_OWNER = 57,
    FIELD_COUNT = 58,
};

struct message {
    uint16_t version, type;
    uint64_t id; /* of the command; its answer carries the same */
    uint64_t present;
    uint64_t numbers[FIELD_COUNT];
    struct wire_text texts[FIELD_COUNT];
};

void message_init(struct message *message, enum message_type type, uint64_t id);
void message_put(struct message *message, enum message_field field, uint64_t number);
void message_put_bytes(struct message *message, enum message_field field, const void *data,
                       size_t length); /* not copied */
void message_put_string(struct message *message, enum message_field,
                        const char *); /* with its NUL */

bool message_has(const struct message *message, enum message_field field);
uint64_t message_number(const struct message *message, enum message_field field, uint64_t absent);
/* "" when absent. message_decode has checked that strings end with their only NUL. */
const char *message_string(const struct message *message, enum message_field field);
struct wire_text message_bytes(const struct message *message, enum message_field field);

size_t message_size(const struct message *message);
void message_encode(const struct message *message, unsigned char *bytes); /* message_size of them */
int message_decode(const void *bytes, size_t length, struct message *message, struct error *error);

#endif
