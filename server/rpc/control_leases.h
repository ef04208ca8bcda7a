/* control_leases.h: the calls of leases held from outside. Each runs on the control thread and
 * answers the task. Inside rpc/control*.c only. */
#ifndef TIDEPOOL_RPC_CONTROL_LEASES_H
#define TIDEPOOL_RPC_CONTROL_LEASES_H

#include "server/rpc/control_service.h"

void run_request_lease(struct control *control, struct control_call *letter);
void run_claim_lease(struct control *control, struct control_call *letter);
void run_report_lease(struct control *control, struct control_call *letter);
void run_extend_lease(struct control *control, struct control_call *letter);
void run_release_lease(struct control *control, struct control_call *letter);
void run_resize_lease(struct control *control, struct control_call *letter);

#endif
