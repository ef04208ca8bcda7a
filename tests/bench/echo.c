/* echo: the wire layer by itself: inference.GRPCInferenceService/ModelInfer, decoded, answered on
 * the network thread with the first raw input (cut to ANSWER_BYTES) as raw output, encoded. The
 * peer in peer/ does the same on gRPC C++.
 *     echo [ANSWER_BYTES]
 * Prints its port and serves until standard input ends. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "inference/inference.pb-c.h"
#include "server/net/grpc.h"

static void handle_infer(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Inference__ModelInferRequest *request = (const Inference__ModelInferRequest *)message;
    size_t answer_bytes = *(const size_t *)context;
    if (request->n_inputs != 1 || request->n_raw_input_contents != 1) {
        grpc_call_finish(call, ERROR_INVALID_ARGUMENT, "exactly one raw input");
        return;
    }
    const Inference__ModelInferRequest__InferInputTensor *input = request->inputs[0];
    Inference__ModelInferResponse__InferOutputTensor output =
        INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
    Inference__ModelInferResponse__InferOutputTensor *outputs[] = {&output};
    Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    ProtobufCBinaryData raw = request->raw_input_contents[0];
    raw.len = raw.len < answer_bytes ? raw.len : answer_bytes;
    output.name = input->name;
    output.datatype = input->datatype;
    output.shape = input->shape;
    output.n_shape = input->n_shape;
    response.model_name = request->model_name;
    response.model_version = (char *)(uintptr_t) "1";
    response.id = request->id;
    response.outputs = outputs;
    response.n_outputs = 1;
    response.raw_output_contents = &raw;
    response.n_raw_output_contents = 1;
    grpc_call_reply(call, &response.base);
}

int main(int count, char **arguments)
{
    size_t answer_bytes = count > 1 ? strtoul(arguments[1], NULL, 10) : SIZE_MAX;
    const struct grpc_method methods[] = {
        {"ModelInfer", GRPC_UNARY, &inference__model_infer_request__descriptor, handle_infer}};
    const struct grpc_service service = {"inference.GRPCInferenceService", methods, 1,
                                         &answer_bytes};
    struct error error = {0};
    uint16_t port = 0;
    char byte;
    struct grpc_server *server = grpc_server_create(1, &grpc_limits_default, &service, 1, &error);
    if (server == NULL || grpc_server_listen(server, "127.0.0.1:0", 1, &port, &error) < 0 ||
        grpc_server_start(server, &error) < 0) {
        fprintf(stderr, "echo: %s\n", error.text);
        grpc_server_destroy(server);
        return 1;
    }
    printf("%u\n", port);
    fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    grpc_server_destroy(server);
    return 0;
}
