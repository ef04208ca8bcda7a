// peer: the same service on gRPC C++: ModelInfer, answered from its handler on one completion
// queue, as its users write it.
//     peer [ANSWER_BYTES]
// Prints its port and serves until standard input ends.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "inference/inference.grpc.pb.h"

namespace
{

std::size_t answer_bytes = SIZE_MAX;

class Call
{
  public:
    Call(inference::GRPCInferenceService::AsyncService *service, grpc::ServerCompletionQueue *queue)
        : service_(service), queue_(queue), responder_(&context_)
    {
        service_->RequestModelInfer(&context_, &request_, &responder_, queue_, queue_, this);
    }

    void Proceed(bool ok)
    {
        if (answered_ || !ok) {
            delete this;
            return;
        }
        new Call(service_, queue_); // takes the next one
        answered_ = true;
        if (request_.inputs_size() != 1 || request_.raw_input_contents_size() != 1) {
            responder_.FinishWithError(
                grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "exactly one raw input"), this);
            return;
        }
        Answer();
        responder_.Finish(response_, grpc::Status::OK, this);
    }

  private:
    void Answer()
    {
        const auto &input = request_.inputs(0);
        const std::string &raw = request_.raw_input_contents(0);
        response_.set_model_name(request_.model_name());
        response_.set_model_version("1");
        response_.set_id(request_.id());
        auto *output = response_.add_outputs();
        output->set_name(input.name());
        output->set_datatype(input.datatype());
        *output->mutable_shape() = input.shape();
        response_.add_raw_output_contents(raw.data(), std::min(raw.size(), answer_bytes));
    }

    inference::GRPCInferenceService::AsyncService *service_;
    grpc::ServerCompletionQueue *queue_;
    grpc::ServerContext context_;
    inference::ModelInferRequest request_;
    inference::ModelInferResponse response_;
    grpc::ServerAsyncResponseWriter<inference::ModelInferResponse> responder_;
    bool answered_ = false;
};

} // namespace

int main(int count, char **arguments)
{
    if (count > 1) {
        answer_bytes = std::strtoul(arguments[1], nullptr, 10);
    }
    inference::GRPCInferenceService::AsyncService service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    builder.SetMaxReceiveMessageSize(64 << 20);
    std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) {
        std::fprintf(stderr, "peer: the server does not start\n");
        return 1;
    }
    std::printf("%d\n", port);
    std::fflush(stdout);
    std::thread worker([&] {
        for (int i = 0; i < 256; i++) {
            new Call(&service, queue.get());
        }
        void *tag;
        bool ok;
        while (queue->Next(&tag, &ok)) {
            static_cast<Call *>(tag)->Proceed(ok);
        }
    });
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    server->Shutdown();
    queue->Shutdown();
    worker.join();
    return 0;
}
