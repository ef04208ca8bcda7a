/* control.h: the service tidepool.v1.Control (proto/tidepool/v1/control.proto).
 * Threads: handlers come on network threads and go to the control thread, which answers.
 * Who:     reads: everybody; changes: over the Unix socket the server's own user and root, over
 *          TCP whoever has the token. The text of a PERMISSION_DENIED says how.
 * Wiring:  create after control_create, before control_start; at shutdown control_service_close
 *          (ends the Watch streams), then drain and destroy the grpc server, then control_stop,
 *          then control_service_destroy. */
#ifndef TIDEPOOL_RPC_CONTROL_H
#define TIDEPOOL_RPC_CONTROL_H

#include "server/control/control.h"
#include "server/net/grpc.h"
#include "server/rpc/inference.h"

struct control_service;

struct control_service_options {
    struct control *control;
    struct inference_context *inference; /* its counters are part of the status; NULL: none */
    const char *version;                 /* outlives the service */
    const char *token_file;              /* NULL: none; read at once, and by reload */
};

struct control_service *control_service_create(const struct control_service_options *options,
                                               struct error *error);
void control_service_destroy(struct control_service *service); /* NULL is fine */
struct grpc_service control_service_table(struct control_service *service);
/* Reads the token's file again. On an error the old token stays in force. Any thread. */
int control_service_reload(struct control_service *service, struct error *error);
void control_service_close(struct control_service *service);

#endif
