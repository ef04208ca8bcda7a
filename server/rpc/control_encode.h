/* control_encode.h: the control thread's views as messages of the control API.
 * Memory:  all of a message lies in the scratch; NULL without memory.
 * Thread:  the control thread. */
#ifndef TIDEPOOL_RPC_CONTROL_ENCODE_H
#define TIDEPOOL_RPC_CONTROL_ENCODE_H

#include "server/control/view.h"
#include "server/rpc/inference.h"
#include "server/rpc/scratch.h"
#include "tidepool/v1/control.pb-c.h"

void *message_new(struct scratch *scratch, const ProtobufCMessageDescriptor *descriptor);
Tidepool__V1__Status *encode_status(struct scratch *scratch, struct control *control,
                                    const char *version, struct inference_context *inference);
Tidepool__V1__ScaleSignal *encode_scale_signal(struct scratch *scratch, struct control *control);
Tidepool__V1__Device *encode_device(struct scratch *scratch, const struct control_device *device);
Tidepool__V1__Endpoint *encode_endpoint(struct scratch *scratch,
                                        const struct control_endpoint *endpoint);
Tidepool__V1__Job *encode_job(struct scratch *scratch, const struct control_job *job);
Tidepool__V1__Move *encode_move(struct scratch *scratch, const struct control_move *move);
Tidepool__V1__Timeline *encode_timeline(struct scratch *scratch, struct control *control,
                                        uint64_t from_slot, uint32_t slots_max);

#endif
