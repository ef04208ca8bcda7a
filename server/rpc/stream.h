/* stream.h: server streams that the control thread feeds, from their start to their end, whoever
 * ends them: the client, the server that stops, or an error.
 * Life:    a stream is malloc'ed by its handler with a struct stream first; stream_open takes it
 *          over, stream_end (or a cancel) frees it.
 * Thread:  stream_open: a network thread, in the handler; stream_end: the control thread. */
#ifndef TIDEPOOL_RPC_STREAM_H
#define TIDEPOOL_RPC_STREAM_H

#include <stdatomic.h>

#include "server/control/control.h"
#include "server/rpc/exchange.h"

struct stream;

struct stream_set {
    struct control *control; /* set once */
    /* The first messages. Control thread. It may end the stream. */
    void (*begin)(struct control *control, struct stream *stream);
    /* Something has changed, or 100 ms have passed: sends what is due. It may end the stream. */
    void (*pass)(struct control *control, struct stream *stream);
    struct {
        struct stream *streams;
        bool closed;
    } own; /* the control thread's */
};

struct stream {
    struct control_call letter; /* first; starts it */
    struct stream *next;
    struct stream_set *set;
    struct exchange exchange;
    bool ended;                 /* finished; only waits for its letter */
    _Atomic bool cancel_posted; /* set on a network thread */
};

void stream_open(struct stream *stream, struct stream_set *set, struct exchange exchange);
/* Frees the stream. */
void stream_end(struct stream *stream, enum error_code status, const char *text);
/* Soon, from any thread: ends all with UNAVAILABLE; those that come later too. The set must live
 * until the control thread has stopped. */
void stream_set_close(struct stream_set *set);

#endif
