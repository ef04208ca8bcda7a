/* external_scaler.h: the service externalscaler.ExternalScaler: the scale signal as KEDA asks for
 * it (docs/control-api.md: the keys of a trigger's metadata).
 * Metric:  devices that are desired, all of them: neither those that are there nor those on their
 *          way are taken off, since KEDA compares with the replicas it has asked for.
 * Who:     everybody: it only reads.
 * Wiring:  as the control service; create after control_create, close before the drain. */
#ifndef TIDEPOOL_RPC_EXTERNAL_SCALER_H
#define TIDEPOOL_RPC_EXTERNAL_SCALER_H

#include "server/control/control.h"
#include "server/net/grpc.h"

struct external_scaler;

struct external_scaler *external_scaler_create(struct control *control, struct error *error);
void external_scaler_destroy(struct external_scaler *scaler); /* NULL is fine */
struct grpc_service external_scaler_service(struct external_scaler *scaler);
void external_scaler_close(struct external_scaler *scaler); /* ends its streams */

#endif
