/* control_logs.h: the GetLogs streams of the control service. Inside rpc/control*.c only.
 * Life:    close ends all streams; destroy after the control thread has ended. */
#ifndef TIDEPOOL_RPC_CONTROL_LOGS_H
#define TIDEPOOL_RPC_CONTROL_LOGS_H

#include "server/rpc/exchange.h"

struct logs;
struct control_service;

struct logs *logs_create(struct error *error);
void logs_close(struct logs *logs);
void logs_destroy(struct logs *logs); /* NULL is fine */
/* The transport's thread; whoever asks may read logs. */
void logs_open(struct control_service *service, struct exchange exchange,
               const ProtobufCMessage *message);

#endif
