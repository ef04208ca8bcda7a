/* control_service.h: what the files of the control service share. Inside rpc/control*.c only. */
#ifndef TIDEPOOL_RPC_CONTROL_SERVICE_H
#define TIDEPOOL_RPC_CONTROL_SERVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/rpc/control.h"
#include "server/rpc/control_encode.h"
#include "server/rpc/token.h"

struct watcher;

struct control_service {
    struct control *control;
    struct inference_context *inference;
    const char *version, *token_file;
    struct {
        pthread_mutex_t lock;
        char token[TOKEN_SIZE];
    } shared; /* under lock */
    struct {
        struct watcher *watchers;
        bool closed;
    } own; /* the control thread's */
};

/* control_dry_run.c. With an error nothing is returned. Control thread. */
Tidepool__V1__DryRunResponse *dry_run(struct scratch *scratch, struct control *control,
                                      const Tidepool__V1__DryRunRequest *request,
                                      struct error *error);

/* Watch: the handler's half, and the ends of all streams. */
void watch_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context);
void watch_close_all(struct control_service *service); /* control thread */

#endif
