/* infer_call.h: one ModelInfer on its way: from the decoded message to the answer.
 * Memory:  a pooled block that lives until the call is finished; names and raw tensors point into
 *          the request's body, which the call keeps as long.
 * Copies:  raw inputs none; typed contents one, into their raw form; outputs one, into the answer.
 */
#ifndef TIDEPOOL_RPC_INFER_CALL_H
#define TIDEPOOL_RPC_INFER_CALL_H

#include "server/net/grpc.h"
#include "server/rpc/infer_message.h"
#include "server/serve/endpoint.h"

/* Raw form of a request's typed contents: a short varint can stand for 8 bytes. */
#define INFER_TYPED_BYTES_MAX ((uint64_t)64 << 20)

struct infer_call {
    struct serve_request request; /* first: the endpoint gives it back as this */
    struct grpc_call *call;
    struct endpoint *endpoint; /* a hold */
    struct buffer *memory;     /* this block */
    struct buffer *typed;      /* raw form of typed contents, or NULL */
    struct wire_text model_name, id;
    uint32_t output_count;
    uint8_t outputs[INFER_TENSORS_MAX]; /* the signature's indexes, in the order asked for */
    struct tensor inputs[];             /* the signature's order */
};

/* The endpoint that a request names, the version asked for being its own; it may not be ready.
 * INVALID_ARGUMENT, NOT_FOUND, or UNAVAILABLE while the repository is still being read;
 * ret_endpoint gets a hold. */
int infer_endpoint_known(struct serve *serve, struct wire_text name, struct wire_text version,
                         struct endpoint **ret_endpoint, struct error *error);

/* Checks the message against the endpoint's signature, in the order of the protocol's table, and
 * fills inputs, outputs, rows, deadline and priority. Errors name the tensor, what was expected and
 * what was got. */
int infer_call_fill(struct infer_call *infer, const struct infer_message *message,
                    struct error *error);

/* Parameters only: infer_call_fill's first part. */
int infer_parameters_check(struct infer_call *infer, const struct infer_message *message,
                           struct error *error);

/* The answer, GRPC_PREFIX_BYTES in front; NULL: no memory. */
struct buffer *infer_encode(const struct infer_call *infer, const struct tensor *outputs);

/* Text from outside as it may stand in a message: cut at a whole character. */
struct shown_text {
    char text[80];
};
const char *shown(struct shown_text *buffer, struct wire_text text);

#endif
