/* ModelStatistics: the counters of one endpoint or of all, as Triton's load generator reads them.
 */
#include <string.h>

#include "inference/inference.pb-c.h"
#include "server/rpc/inference_context.h"
#include "server/rpc/scratch.h"
#include "server/serve/statistics.h"

static Inference__StatisticDuration *duration(struct scratch *scratch, uint64_t count, uint64_t ns)
{
    Inference__StatisticDuration *made = scratch_take(scratch, 1, sizeof(*made));
    if (made != NULL) {
        inference__statistic_duration__init(made);
        made->count = count;
        made->ns = ns;
    }
    return made;
}

static Inference__InferStatistics *totals(struct scratch *scratch,
                                          const struct endpoint_statistics *from)
{
    Inference__InferStatistics *made = scratch_take(scratch, 1, sizeof(*made));
    uint64_t failed = 0;
    if (made == NULL) {
        return NULL;
    }
    for (int i = 0; i < FAILURE_COUNT; i++) {
        failed += from->failed[i];
    }
    inference__infer_statistics__init(made);
    made->success = duration(scratch, from->success, from->success_ns);
    made->fail = duration(scratch, failed, from->fail_ns);
    made->queue = duration(scratch, from->success, from->queue_ns);
    made->compute_input = duration(scratch, from->success, from->input_ns);
    made->compute_infer = duration(scratch, from->success, from->infer_ns);
    made->compute_output = duration(scratch, from->success, from->output_ns);
    made->cache_hit = duration(scratch, 0, 0);
    made->cache_miss = duration(scratch, 0, 0);
    return made;
}

static void batches_fill(struct scratch *scratch, struct endpoint *endpoint,
                         Inference__ModelStatistics *statistics)
{
    uint32_t count = endpoint_batches(endpoint, NULL, 0), found;
    struct batch_statistics *batches = scratch_take(scratch, count, sizeof(*batches));
    Inference__InferBatchStatistics *made = scratch_take(scratch, count, sizeof(*made));
    statistics->batch_stats = scratch_take(scratch, count, sizeof(*statistics->batch_stats));
    if (scratch->failed) {
        return;
    }
    found = endpoint_batches(endpoint, batches, count);
    statistics->n_batch_stats = found < count ? found : count; /* a new size may have come */
    for (uint32_t i = 0; i < statistics->n_batch_stats; i++) {
        inference__infer_batch_statistics__init(&made[i]);
        statistics->batch_stats[i] = &made[i];
        made[i].batch_size = batches[i].batch_size;
        made[i].compute_input = duration(scratch, batches[i].count, batches[i].input_ns);
        made[i].compute_infer = duration(scratch, batches[i].count, batches[i].infer_ns);
        made[i].compute_output = duration(scratch, batches[i].count, batches[i].output_ns);
    }
}

static void memory_fill(struct scratch *scratch, struct endpoint *endpoint,
                        Inference__ModelStatistics *statistics)
{
    static char cpu[] = "CPU", gpu[] = "GPU";
    struct instance_memory memory[DEVICES_MAX];
    uint32_t count = endpoint_memory(endpoint, memory, DEVICES_MAX);
    Inference__MemoryUsage *made = scratch_take(scratch, count, sizeof(*made));
    statistics->memory_usage = scratch_take(scratch, count, sizeof(*statistics->memory_usage));
    if (scratch->failed) {
        return;
    }
    statistics->n_memory_usage = count;
    for (uint32_t i = 0; i < count; i++) {
        inference__memory_usage__init(&made[i]);
        statistics->memory_usage[i] = &made[i];
        made[i].type = strcmp(memory[i].device_kind, "cpu") == 0 ? cpu : gpu;
        made[i].id = memory[i].device;
        made[i].byte_size = memory[i].bytes;
    }
}

static Inference__ModelStatistics *statistics_of(struct scratch *scratch, struct endpoint *endpoint)
{
    Inference__ModelStatistics *made = scratch_take(scratch, 1, sizeof(*made));
    struct endpoint_statistics statistics;
    if (made == NULL) {
        return NULL;
    }
    endpoint_statistics(endpoint, &statistics);
    inference__model_statistics__init(made);
    made->name = scratch_text(scratch, endpoint_name(endpoint));
    made->version = scratch_text(scratch, endpoint_version(endpoint));
    made->last_inference = statistics.last_inference_wall_ms;
    made->inference_count = statistics.inference;
    made->execution_count = statistics.executions;
    made->inference_stats = totals(scratch, &statistics);
    batches_fill(scratch, endpoint, made);
    memory_fill(scratch, endpoint, made);
    return made;
}

/* Holds on the endpoints asked for. 0 with an error that has been answered, or with no models. */
static bool endpoints_of(struct grpc_call *call, struct inference_context *context,
                         const Inference__ModelStatisticsRequest *request, struct scratch *scratch,
                         struct endpoint ***ret_endpoints, size_t *ret_count)
{
    struct wire_text name = {(const unsigned char *)request->name, strlen(request->name)};
    struct wire_text version = {(const unsigned char *)request->version, strlen(request->version)};
    size_t room = name.length > 0 ? 1 : serve_endpoints(context->serve, NULL, 0), count = 1;
    struct endpoint **endpoints = scratch_take(scratch, room, sizeof(struct endpoint *));
    struct error error;
    if (endpoints == NULL) {
        *ret_count = 0;
        return true; /* told with the answer */
    }
    if (name.length == 0) {
        count = serve_endpoints(context->serve, endpoints, room);
    } else if (infer_endpoint_known(context->serve, name, version, &endpoints[0], &error) < 0) {
        grpc_call_finish(call, error.code, error.text);
        return false;
    }
    *ret_endpoints = endpoints;
    *ret_count = count < room ? count : room;
    return true;
}

void model_statistics_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Inference__ModelStatisticsRequest *request =
        (const Inference__ModelStatisticsRequest *)message;
    Inference__ModelStatisticsResponse response = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    struct scratch scratch = {0};
    struct endpoint **endpoints = NULL;
    size_t count;
    if (!endpoints_of(call, context, request, &scratch, &endpoints, &count)) {
        scratch_free(&scratch);
        return;
    }
    response.n_model_stats = count;
    response.model_stats = scratch_take(&scratch, count, sizeof(*response.model_stats));
    for (size_t i = 0; i < count; i++) {
        if (!scratch.failed) {
            response.model_stats[i] = statistics_of(&scratch, endpoints[i]);
        }
        endpoint_release(endpoints[i]);
    }
    if (scratch.failed) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the answer");
    } else {
        grpc_call_reply(call, &response.base);
    }
    scratch_free(&scratch);
}
