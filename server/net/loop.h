/* loop.h: one network thread: an event base, its connections, its calls and its mailbox.
 * Order:   every event callback ends in loop_settle, which runs the handlers of whole requests,
 *          carries out what was posted, then flushes each connection that has something to write,
 *          once. Handlers therefore never run inside an nghttp2 callback.
 * Thread:  all of `own` belongs to the loop's thread; other threads use loop_post only. */
#ifndef TIDEPOOL_NET_LOOP_H
#define TIDEPOOL_NET_LOOP_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/mailbox.h"
#include "server/net/gather.h"
#include "server/net/grpc.h"
#include "server/net/timers.h"

struct connection;
struct grpc_server;

enum note_kind { NOTE_CONNECTION, NOTE_SEND, NOTE_FINISH, NOTE_DRAIN, NOTE_STOP };

/* What a loop is told. Lies at the start of the object that it is about. */
struct note {
    struct letter letter;
    enum note_kind kind;
};

/* A connection just accepted, on its way to its loop; malloc'ed. */
struct arrival {
    struct note note;
    int fd;
    uint64_t service_mask;
    bool has_peer; /* over a Unix socket: who it is */
    uint32_t uid, pid;
};

#define LOOP_AFTER_MAX 4

struct loop {
    struct grpc_server *server;
    unsigned index;
    struct mailbox *mailbox;
    pthread_t thread;
    bool started;
    struct note drain_note, stop_note;
    _Atomic uint32_t connection_count; /* assigned to this loop; raised by the accepting one */
    _Atomic uint64_t counters[sizeof(struct grpc_counters) / sizeof(uint64_t)];
    struct {
        struct event_base *base;
        struct event mailbox_event, timer_event;
        struct timers timers;
        uint64_t armed_ns; /* when timer_event fires */
        uint64_t now_ns;   /* at the start of this turn */
        struct connection *connections;
        struct connection *dirty; /* have something to write */
        struct grpc_call *ready, *ready_last;
        struct note *posted, *posted_last; /* by this thread itself */
        struct after {
            void (*callback)(void *arg, bool spare);
            void *arg;
        } after[LOOP_AFTER_MAX]; /* to run when this turn's handlers have run */
        size_t after_count;
        void *blocks; /* idle call blocks */
        size_t block_count;
        size_t calls_owed; /* handlers that still have to finish */
        size_t calls_open;
        struct gather gather;
        unsigned char *scratch; /* one read */
        uint64_t drain_timeout_ms;
        bool draining, drained, stopping;
        struct timer drain_timer;
    } own;
};
#define SCRATCH_BYTES (size_t)(128 * 1024)

bool loop_init(struct loop *loop, struct grpc_server *server, unsigned index);
void loop_fini(struct loop *loop);
int loop_start(struct loop *loop); /* 0 or an errno */
/* Any thread. On the loop's own thread without a trip through the mailbox. */
void loop_post(struct loop *loop, struct note *note);
void loop_enter(const struct loop *loop); /* the calling thread is this loop's; NULL: none's */
bool loop_is_current(const struct loop *loop);
/* Own thread, at the start and at the end of every event callback. */
void loop_wake(struct loop *loop);
void loop_settle(struct loop *loop);

#define LOOP_COUNT(loop, field, amount)                                                            \
    loop_count(loop, offsetof(struct grpc_counters, field) / sizeof(uint64_t), amount)

/* One writer, so that no locked instruction is needed. */
static inline void loop_count(struct loop *loop, size_t index, int64_t amount)
{
    uint64_t value = atomic_load_explicit(&loop->counters[index], memory_order_relaxed);
    atomic_store_explicit(&loop->counters[index], value + (uint64_t)amount, memory_order_relaxed);
}

#endif
