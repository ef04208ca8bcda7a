/* health.h: the service grpc.health.v1.Health: Check and Watch.
 * Names:   "" and "inference.GRPCInferenceService": SERVING when serve_ready(); the name of each
 *          endpoint: SERVING when that endpoint is ready. While draining all are NOT_SERVING.
 * Unknown: Check: NOT_FOUND; Watch: SERVICE_UNKNOWN, and the stream stays open.
 * Watch:   the present state at once, then each change; a client that reads slowly gets the newest
 *          state and may miss older ones. Streams end with UNAVAILABLE by health_close.
 * Wiring:  as in inference.h; create it before the first endpoint is added (it becomes serve's
 *          readiness watcher). At shutdown: serve_set_draining (pushes NOT_SERVING), then
 *          health_close, then grpc_server_drain, so that open streams do not hold up the drain. */
#ifndef TIDEPOOL_RPC_HEALTH_H
#define TIDEPOOL_RPC_HEALTH_H

#include "server/net/grpc.h"
#include "server/serve/serve.h"

struct health;

struct health *health_create(struct serve *serve, struct error *error);
void health_destroy(struct health *health); /* after the grpc server; NULL is fine */
struct grpc_service health_service(struct health *health);
void health_close(struct health *health); /* ends all Watch streams; new ones end at once */

#endif
