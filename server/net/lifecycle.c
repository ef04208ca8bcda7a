/* A call from its stream's first header to the last who needs it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/net/call.h"
#include "server/net/server.h"

#define BLOCKS_IDLE_MAX 1024

static void on_deadline(struct timer *timer, uint64_t now_ns)
{
    struct grpc_call *call =
        (struct grpc_call *)(void *)((char *)timer - offsetof(struct grpc_call, timer));
    (void)now_ns;
    response_fail(call, ERROR_DEADLINE_EXCEEDED, "the call's deadline passed");
    call_cancel(call);
}

static void *block_take(struct loop *loop)
{
    void *block = loop->own.blocks;
    if (block == NULL) {
        return malloc(CALL_BLOCK_BYTES);
    }
    loop->own.blocks = *(void **)block;
    loop->own.block_count--;
    return block;
}

static void block_give(struct loop *loop, void *block)
{
    if (loop->own.block_count >= BLOCKS_IDLE_MAX) {
        free(block);
        return;
    }
    *(void **)block = loop->own.blocks;
    loop->own.blocks = block;
    loop->own.block_count++;
}

static void call_link(struct grpc_call *call)
{
    struct connection *connection = call->connection;
    call->next = connection->calls;
    if (call->next != NULL) {
        call->next->previous = call;
    }
    connection->calls = call;
}

static void call_unlink(struct grpc_call *call)
{
    struct connection *connection = call->connection;
    if (call->next != NULL) {
        call->next->previous = call->previous;
    }
    if (call->previous != NULL) {
        call->previous->next = call->next;
    } else {
        connection->calls = call->next;
    }
    if (connection->recent == call) {
        connection->recent = NULL;
    }
    call->connection = NULL;
}

struct grpc_call *call_create(struct connection *connection, int32_t stream_id)
{
    struct loop *loop = connection->loop;
    const struct grpc_limits *limits = &loop->server->limits;
    struct grpc_call *call = block_take(loop);
    if (call == NULL) {
        return NULL;
    }
    memset(call, 0, sizeof *call);
    call->finish_note.kind = NOTE_FINISH;
    call->response.reply.note.kind = NOTE_SEND;
    call->response.reply.call = call;
    call->loop = loop;
    call->connection = connection;
    call->stream_id = stream_id;
    call->has_peer = connection->has_peer;
    call->uid = connection->uid;
    call->pid = connection->pid;
    call->request.begin_ns = loop->own.now_ns;
    call->request.deadline_ns = UINT64_MAX;
    call->timer.fire = on_deadline;
    /* A stored header costs at most twice what the header limit counts for it. */
    arena_init(&call->arena, call + 1, CALL_BLOCK_BYTES - sizeof *call,
               (size_t)limits->header_list_bytes_max * 2 + CALL_BLOCK_BYTES * 4);
    pthread_mutex_init(&call->shared.lock, NULL);
    call_link(call);
    loop->own.calls_open++;
    LOOP_COUNT(loop, calls_started, 1);
    LOOP_COUNT(loop, calls_open, 1);
    return call;
}

void call_queue(struct grpc_call *call)
{
    struct loop *loop = call->loop;
    if (call->queued) {
        return;
    }
    call->queued = true;
    if (loop->own.ready_last == NULL) {
        loop->own.ready = call;
    } else {
        loop->own.ready_last->ready_next = call;
    }
    loop->own.ready_last = call;
}

void call_release(struct grpc_call *call)
{
    struct loop *loop = call->loop;
    if (call->connection != NULL || call->owed || call->queued) {
        return;
    }
    assert(call->timer.place == 0);
    request_fini(call);
    response_fini(call);
    arena_fini(&call->arena);
    free(call->finish_text);
    pthread_mutex_destroy(&call->shared.lock);
    loop->own.calls_open--;
    LOOP_COUNT(loop, calls_open, -1);
    block_give(loop, call);
}

void call_cancel(struct grpc_call *call)
{
    atomic_store(&call->cancelled, true);
    if (!call->owed) {
        return;
    }
    pthread_mutex_lock(&call->shared.lock);
    if (!atomic_load(&call->finished) && call->shared.on_cancel != NULL) {
        void (*callback)(void *) = call->shared.on_cancel;
        call->shared.on_cancel = NULL;
        callback(call->shared.on_cancel_arg);
    }
    pthread_mutex_unlock(&call->shared.lock);
}

void call_detach(struct grpc_call *call)
{
    struct response *response = &call->response;
    timer_disarm(&call->loop->own.timers, &call->timer);
    while (response->first != NULL) {
        struct outgoing *outgoing = response->first;
        response->first = outgoing->next;
        outgoing_drop(outgoing);
    }
    response->last = NULL;
    call_unlink(call);
    if (!response->answered) {
        response->answered = true;
        LOOP_COUNT(call->loop, calls_cancelled, 1);
        call_cancel(call);
    }
    call_release(call);
}

void call_deadline_arm(struct grpc_call *call)
{
    if (call->request.deadline_ns != UINT64_MAX && call->timer.place == 0 &&
        !timer_arm(&call->loop->own.timers, &call->timer, call->request.deadline_ns)) {
        response_fail(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the call's deadline");
        call_cancel(call);
    }
}

void call_finished(struct grpc_call *call)
{
    call->owed = false;
    call->loop->own.calls_owed--;
    if (call->response.reply.buffer != NULL) {
        response_message(call, &call->response.reply);
    }
    response_finish(call, call->finish_status, call->finish_text);
    call_release(call);
}
