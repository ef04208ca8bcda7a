#include "server/rpc/stream.h"

#include <stdlib.h>

#include "server/control/view.h"

/* ---- the end ---- */

static void unlink_stream(struct stream *stream)
{
    struct stream **link = &stream->set->own.streams;
    while (*link != NULL && *link != stream) {
        link = &(*link)->next;
    }
    if (*link == stream) {
        *link = stream->next;
    }
}

void stream_end(struct stream *stream, enum error_code status, const char *text)
{
    unlink_stream(stream);
    /* After this no callback runs any more. */
    exchange_finish(&stream->exchange, status, text);
    stream->ended = true;
    if (!atomic_load(&stream->cancel_posted)) {
        free(stream);
    }
}

struct closing {
    struct control_call letter; /* first */
    struct stream_set *set;
};

static void run_close(struct control *control, struct control_call *letter)
{
    struct closing *closing = (struct closing *)letter;
    struct stream_set *set = closing->set;
    set->own.closed = true;
    while (set->own.streams != NULL) {
        stream_end(set->own.streams, ERROR_UNAVAILABLE, "the server stops");
    }
    control_on_change(control, NULL, set);
    free(closing);
}

void stream_set_close(struct stream_set *set)
{
    struct closing *closing = calloc(1, sizeof *closing);
    if (closing == NULL) {
        return; /* the drain's time limit ends the streams then */
    }
    *closing = (struct closing){.letter = {.run = run_close}, .set = set};
    control_post(set->control, &closing->letter);
}

/* ---- a cancel that comes while the start's letter is on its way must not send it twice ---- */

struct cancel {
    struct control_call letter; /* first */
    struct stream *stream;
};

static void run_cancel(struct control *control, struct control_call *letter)
{
    struct cancel *cancel = (struct cancel *)letter;
    struct stream *stream = cancel->stream;
    (void)control;
    if (!stream->ended) {
        unlink_stream(stream);
        exchange_finish(&stream->exchange, ERROR_CANCELLED, NULL);
    }
    free(stream);
    free(cancel);
}

static void on_cancel(void *arg)
{
    struct stream *stream = arg;
    struct cancel *cancel = calloc(1, sizeof *cancel);
    if (cancel == NULL) {
        return; /* the next send says that the client is gone */
    }
    *cancel = (struct cancel){.letter = {.run = run_cancel}, .stream = stream};
    atomic_store(&stream->cancel_posted, true);
    control_post(stream->set->control, &cancel->letter);
}

/* ---- the start, and what follows ---- */

static void on_notice(void *context)
{
    struct stream_set *set = context;
    struct stream *stream = set->own.streams;
    while (stream != NULL) {
        struct stream *next = stream->next;
        set->pass(set->control, stream);
        stream = next;
    }
    if (set->own.streams == NULL) {
        control_on_change(set->control, NULL, set);
    }
}

static void run_start(struct control *control, struct control_call *letter)
{
    struct stream *stream = (struct stream *)letter;
    struct stream_set *set = stream->set;
    if (set->own.closed) {
        stream_end(stream, ERROR_UNAVAILABLE, "the server stops");
        return;
    }
    stream->next = set->own.streams;
    set->own.streams = stream;
    control_on_change(control, on_notice, set);
    set->begin(control, stream);
}

void stream_open(struct stream *stream, struct stream_set *set, struct exchange exchange)
{
    stream->letter = (struct control_call){.run = run_start};
    stream->set = set;
    stream->exchange = exchange;
    exchange_on_cancel(&exchange, on_cancel, stream);
    control_post(set->control, &stream->letter);
}
