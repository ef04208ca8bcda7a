#include "server/net/loop.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/net/call.h"
#include "server/net/connection.h"
#include "server/net/server.h"

static _Thread_local const struct loop *loop_current;

void loop_enter(const struct loop *loop)
{
    loop_current = loop;
}

bool loop_is_current(const struct loop *loop)
{
    return loop_current == loop;
}

/* What a thread holds back between grpc_answers_begin and _end, by loop. */
#define HELD_LOOPS_MAX 8
static _Thread_local struct {
    bool active;
    size_t count;
    struct {
        struct loop *loop;
        struct letter *first, *last;
    } lists[HELD_LOOPS_MAX];
} held;

static void held_send(void)
{
    for (size_t i = 0; i < held.count; i++) {
        mailbox_send_all(held.lists[i].loop->mailbox, held.lists[i].first);
    }
    held.count = 0;
}

static void held_add(struct loop *loop, struct letter *letter)
{
    size_t i = 0;
    letter->next = NULL;
    while (i < held.count && held.lists[i].loop != loop) {
        i++;
    }
    if (i == HELD_LOOPS_MAX) {
        held_send(); /* all of them, so that a call's letters keep their order */
        i = 0;
    }
    if (i == held.count) {
        held.lists[held.count++].loop = loop;
        held.lists[i].first = letter;
    } else {
        held.lists[i].last->next = letter;
    }
    held.lists[i].last = letter;
}

void grpc_answers_begin(void)
{
    held.active = true;
}

void grpc_answers_end(void)
{
    held.active = false;
    held_send();
}

void loop_post(struct loop *loop, struct note *note)
{
    if (!loop_is_current(loop)) {
        if (held.active) {
            held_add(loop, &note->letter);
        } else {
            mailbox_send(loop->mailbox, &note->letter);
        }
        return;
    }
    note->letter.next = NULL;
    if (loop->own.posted_last == NULL) {
        loop->own.posted = note;
    } else {
        loop->own.posted_last->letter.next = &note->letter;
    }
    loop->own.posted_last = note;
}

void loop_wake(struct loop *loop)
{
    loop->own.now_ns = clock_now_ns();
}

static void loop_drain(struct loop *loop)
{
    loop->own.draining = true;
    for (struct listener *listener = loop->server->listeners; loop->index == 0 && listener != NULL;
         listener = listener->next) {
        listener_stop(listener);
    }
    uint64_t timeout_ns = loop->own.drain_timeout_ms * NS_PER_MS;
    timer_arm(&loop->own.timers, &loop->own.drain_timer,
              clock_add_ns(loop->own.now_ns, timeout_ns));
    struct connection *next;
    for (struct connection *each = loop->own.connections; each != NULL; each = next) {
        next = each->next;
        connection_drain(each, loop->own.drain_timeout_ms);
    }
}

/* The drain time is over. */
static void on_drain_end(struct timer *timer, uint64_t now_ns)
{
    struct loop *loop =
        (struct loop *)(void *)((char *)timer - offsetof(struct loop, own.drain_timer));
    (void)now_ns;
    for (struct connection *each = loop->own.connections; each != NULL; each = each->next) {
        connection_abort(each);
    }
}

static void loop_stop(struct loop *loop)
{
    loop->own.stopping = true;
    loop->own.draining = true;
    for (struct listener *listener = loop->server->listeners; loop->index == 0 && listener != NULL;
         listener = listener->next) {
        listener_stop(listener);
    }
    while (loop->own.connections != NULL) {
        connection_free(loop->own.connections);
    }
    if (loop->own.calls_owed > 0) {
        log_write(LOG_INFO, "net", "waits for handlers to finish their calls", "calls=%zu",
                  loop->own.calls_owed);
    }
}

static void loop_deliver(struct loop *loop, struct note *note)
{
    switch (note->kind) {
    case NOTE_CONNECTION:
        connection_open(loop, (struct arrival *)note);
        free(note);
        break;
    case NOTE_SEND: {
        struct outgoing *outgoing = (struct outgoing *)note;
        response_message(outgoing->call, outgoing);
        break;
    }
    case NOTE_FINISH:
        call_finished((struct grpc_call *)note);
        break;
    case NOTE_DRAIN:
        loop_drain(loop);
        break;
    case NOTE_STOP:
        loop_stop(loop);
        break;
    }
}

static struct grpc_call *ready_take(struct loop *loop)
{
    struct grpc_call *call = loop->own.ready;
    if (call != NULL) {
        loop->own.ready = call->ready_next;
        if (loop->own.ready == NULL) {
            loop->own.ready_last = NULL;
        }
        call->ready_next = NULL;
        call->queued = false;
    }
    return call;
}

static struct note *posted_take(struct loop *loop)
{
    struct note *note = loop->own.posted;
    if (note != NULL) {
        loop->own.posted = (struct note *)note->letter.next;
        if (loop->own.posted == NULL) {
            loop->own.posted_last = NULL;
        }
    }
    return note;
}

static void timer_event_arm(struct loop *loop)
{
    uint64_t next_ns = timers_next_ns(&loop->own.timers);
    if (next_ns >= loop->own.armed_ns) {
        return; /* it fires earlier and looks again */
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_us = next_ns > now_ns ? (next_ns - now_ns) / NS_PER_US + 1 : 0;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000),
                           .tv_usec = (suseconds_t)(wait_us % 1000000)};
    event_add(&loop->own.timer_event, &wait);
    loop->own.armed_ns = next_ns;
}

static void drained_tell(struct loop *loop)
{
    if (loop->own.draining && !loop->own.drained && loop->own.connections == NULL) {
        loop->own.drained = true;
        timer_disarm(&loop->own.timers, &loop->own.drain_timer);
        server_loop_drained(loop->server);
    }
    if (loop->own.stopping && loop->own.calls_owed == 0) {
        event_base_loopbreak(loop->own.base);
    }
}

void grpc_call_after_handlers(struct grpc_call *call, void (*callback)(void *arg, bool spare),
                              void *arg)
{
    struct loop *loop = call->loop;
    assert(loop_is_current(loop));
    for (size_t i = 0; i < loop->own.after_count; i++) {
        if (loop->own.after[i].callback == callback && loop->own.after[i].arg == arg) {
            return;
        }
    }
    if (loop->own.after_count == LOOP_AFTER_MAX) {
        callback(arg, false); /* nothing to share, but done */
        return;
    }
    loop->own.after[loop->own.after_count++] = (struct after){callback, arg};
}

static void after_run(struct loop *loop)
{
    size_t count = loop->own.after_count;
    /* Sockets and letters that became readable together with this turn's. */
    bool spare =
        count == 1 && event_base_get_num_events(loop->own.base, EVENT_BASE_COUNT_ACTIVE) == 0;
    loop->own.after_count = 0;
    for (size_t i = 0; i < count; i++) {
        loop->own.after[i].callback(loop->own.after[i].arg, spare);
    }
}

void loop_settle(struct loop *loop)
{
    do {
        struct grpc_call *call;
        struct note *note;
        struct connection *connection;
        while ((call = ready_take(loop)) != NULL) {
            request_run(call);
        }
        after_run(loop);
        while ((note = posted_take(loop)) != NULL) {
            loop_deliver(loop, note);
        }
        while ((connection = loop->own.dirty) != NULL) {
            loop->own.dirty = connection->dirty_next;
            connection->dirty = false;
            connection_flush(connection);
        }
    } while (loop->own.ready != NULL || loop->own.posted != NULL);
    timer_event_arm(loop);
    drained_tell(loop);
}

static void on_mailbox(evutil_socket_t fd, short what, void *arg)
{
    struct loop *loop = arg;
    (void)fd;
    (void)what;
    loop_wake(loop);
    struct letter *next;
    for (struct letter *letter = mailbox_take(loop->mailbox); letter != NULL; letter = next) {
        next = letter->next;
        loop_deliver(loop, (struct note *)letter);
    }
    loop_settle(loop);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct loop *loop = arg;
    (void)fd;
    (void)what;
    loop_wake(loop);
    loop->own.armed_ns = UINT64_MAX;
    timers_run(&loop->own.timers, loop->own.now_ns);
    loop_settle(loop);
}

bool loop_init(struct loop *loop, struct grpc_server *server, unsigned index)
{
    loop->server = server;
    loop->index = index;
    loop->drain_note.kind = NOTE_DRAIN;
    loop->stop_note.kind = NOTE_STOP;
    loop->own.armed_ns = UINT64_MAX;
    loop->own.drain_timer.fire = on_drain_end;
    loop->own.scratch = malloc(SCRATCH_BYTES);
    loop->mailbox = mailbox_create();
    struct event_config *config = event_config_new();
    /* Each base belongs to one thread, which others wake through the mailbox: no locks in it. */
    if (config != NULL && event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0) {
        loop->own.base = event_base_new_with_config(config);
    }
    if (config != NULL) {
        event_config_free(config);
    }
    if (!gather_init(&loop->own.gather) || loop->own.scratch == NULL || loop->mailbox == NULL ||
        loop->own.base == NULL) {
        return false;
    }
    return event_assign(&loop->own.mailbox_event, loop->own.base, mailbox_fd(loop->mailbox),
                        EV_READ | EV_PERSIST, on_mailbox, loop) == 0 &&
           event_add(&loop->own.mailbox_event, NULL) == 0 &&
           evtimer_assign(&loop->own.timer_event, loop->own.base, on_timer, loop) == 0;
}

static void *loop_main(void *arg)
{
    struct loop *loop = arg;
    char name[16];
    loop_enter(loop);
    snprintf(name, sizeof name, "tide-net-%u", loop->index % 1000);
    pthread_setname_np(pthread_self(), name);
    if (event_base_loop(loop->own.base, EVLOOP_NO_EXIT_ON_EMPTY) < 0) {
        log_write(LOG_ERROR, "net", "event loop ended", "thread=%u", loop->index);
    }
    loop_enter(NULL);
    return NULL;
}

int loop_start(struct loop *loop)
{
    int failure = pthread_create(&loop->thread, NULL, loop_main, loop);
    loop->started = failure == 0;
    return failure;
}

/* Connections that were accepted but never reached a loop that runs. */
static void arrivals_close(struct loop *loop)
{
    struct letter *next;
    for (struct letter *letter = mailbox_take(loop->mailbox); letter != NULL; letter = next) {
        next = letter->next;
        struct note *note = (struct note *)letter;
        if (note->kind == NOTE_CONNECTION) {
            evutil_closesocket(((struct arrival *)note)->fd);
            free(note);
        }
    }
}

void loop_fini(struct loop *loop)
{
    if (loop->started) {
        mailbox_send(loop->mailbox, &loop->stop_note.letter);
        pthread_join(loop->thread, NULL);
    }
    assert(loop->own.connections == NULL && loop->own.calls_owed == 0);
    if (loop->mailbox != NULL) {
        arrivals_close(loop);
    }
    while (loop->own.blocks != NULL) {
        void *block = loop->own.blocks;
        loop->own.blocks = *(void **)block;
        free(block);
    }
    if (loop->own.base != NULL) {
        event_base_free(loop->own.base);
    }
    mailbox_destroy(loop->mailbox);
    timers_fini(&loop->own.timers);
    gather_fini(&loop->own.gather);
    free(loop->own.scratch);
}
