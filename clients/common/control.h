/* control.h: calls of the control API (proto/tidepool/v1/control.proto) for all clients.
 * Thread:  as the connection. */
#ifndef TIDEPOOL_CLIENTS_CONTROL_H
#define TIDEPOOL_CLIENTS_CONTROL_H

#include "clients/common/grpc_client.h"
#include "tidepool/v1/control.pb-c.h"

/* A call of tidepool.v1.Control by the method's name. `ret_message` points to a pointer of the
 * method's response type; the message is freed with control_free. */
int control_call(struct grpc_client *client, const char *method, const ProtobufCMessage *request,
                 uint64_t timeout_ns, void *ret_message, struct error *error);
void control_free(void *message); /* NULL is fine */

/* Follows the Watch stream and goes on after the server has cut it for slowness or forgotten
 * revisions, until `on_change` returns false (0) or an error. */
int control_watch(struct grpc_client *client, uint32_t interval_ms, uint64_t timeout_ns,
                  bool (*on_change)(void *context, const Tidepool__V1__Change *change),
                  void *context, struct error *error);

/* Short names for people: "serving", "waiting", "act". Never NULL. */
const char *control_device_state(const Tidepool__V1__Device *device);
const char *control_endpoint_state(const Tidepool__V1__Endpoint *endpoint);
const char *control_job_state(const Tidepool__V1__Job *job);
const char *control_mode(Tidepool__V1__Mode mode);
int control_mode_find(const char *name, Tidepool__V1__Mode *ret_mode); /* negative: no such mode */
bool control_job_over(const Tidepool__V1__Job *job); /* finished, failed or cancelled */

#endif
