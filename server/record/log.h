/* log.h: the log of core events: what its files hold. A core of the recorded configuration that is
 * given the recorded events emits the recorded actions, byte for byte.
 * File:    blocks. Each has a head of 16 bytes (little-endian: kind, stored length, raw length,
 *          CRC-32 of the stored bytes) and contents compressed by zlib. A block that is cut or
 *          damaged ends the file: what was written when the machine stopped is lost, no more.
 * HEAD:    the first block: version, which part of its run's log it is, names of all kinds of
 *          event and their fields as this server knows them, the configuration with its seed.
 * RESTART: only in further parts: events that give a fresh core what the recorded one knew when the
 *          part began, as after a restart of the server. Not exact: what it had learned is missing.
 * EVENTS:  kinds and values by the names' order, times as differences; at its end the hash of all
 *          actions that the core had emitted by then.
 * Names:   a reader matches them to its own: kinds and fields may be added, moved and, where they
 *          are 0, dropped between versions.
 * Secret:  the seed of fencing tokens is in it; the files are for their owner alone (0600). */
#ifndef TIDEPOOL_RECORD_LOG_H
#define TIDEPOOL_RECORD_LOG_H

#include "server/base/error.h"
#include "server/core/core.h"
#include "server/record/bytes.h"

#define RECORD_VERSION 2
#define RECORD_BLOCK_HEAD 16
#define RECORD_BLOCK_MAX (UINT32_C(1) << 24) /* of contents; a larger one is damage */

enum record_block {
    RECORD_BLOCK_HEADER = 0x44414548,  /* "HEAD" */
    RECORD_BLOCK_RESTART = 0x54534552, /* "REST" */
    RECORD_BLOCK_EVENTS = 0x53545645,  /* "EVTS" */
};

struct record_head {
    uint64_t wall_ns; /* when this part began */
    uint64_t part;    /* of the log of this start of the server (config.store_epoch), from 0 */
    uint64_t events;  /* in the parts before */
    struct core_config config;
};

/* ---- writing: into bytes, for a block ---- */

void record_head_write(struct record_bytes *bytes, const struct record_head *head);
/* `before_ns` is the time of the event before in the block (0 at its beginning), and moves on. */
void record_event_write(struct record_bytes *bytes, const struct core_event *event,
                        uint64_t *before_ns);
/* Ends an EVENTS block. */
void record_hash_write(struct record_bytes *bytes, uint64_t hash);
/* Head and compressed contents. False: no memory. */
bool record_block_pack(enum record_block kind, const struct record_bytes *contents,
                       struct record_bytes *ret_block);

/* ---- reading ---- */

enum record_item_kind { RECORD_EVENT, RECORD_HASH, RECORD_END };

struct record_item {
    enum record_item_kind kind;
    struct core_event event; /* with its time */
    bool restart;            /* the event is of a RESTART block */
    uint64_t hash;           /* of all actions up to here */
};

struct record_reader; /* opaque */

/* Reads this file and, where its name is as the writer gives it, the parts that follow it in its
 * folder, as one; up to the first that is cut or damaged. DATA_LOSS: no log, or its head is
 * damaged. UNIMPLEMENTED: of a version that this one does not read. The path is the caller's. */
struct record_reader *record_open(const char *path, struct error *error);
void record_close(struct record_reader *reader); /* NULL is fine */
/* Of the file that was opened. */
const struct record_head *record_reader_head(const struct record_reader *reader);
/* What follows in RESTART blocks is read only where the opened file begins with one. END also where
 * the file is cut or damaged: record_torn then says how many bytes are left out. Negative: an event
 * that this version does not know (UNIMPLEMENTED), no memory. */
int record_next(struct record_reader *reader, struct record_item *ret_item, struct error *error);
uint64_t record_torn(const struct record_reader *reader);

/* ---- names of files: they sort by age ---- */

#define RECORD_NAME_SIZE 64
void record_name_print(char name[RECORD_NAME_SIZE], uint64_t epoch, uint64_t part);

#endif
