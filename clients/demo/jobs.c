#include "clients/demo/jobs.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clients/common/infer_message.h"
#include "server/base/clock.h"

#define CALL_NS (10 * NS_PER_S)
#define WAIT_NS (120 * NS_PER_S)
#define COST_TRIES 15
#define MEASURE_STEPS 5
#define MEASURE_NS NS_PER_S
#define MEASURE_TRY_NS (50 * NS_PER_MS)
#define STEPS_MIN 10

/* What differs between the jobs. WIDE and AGAIN must give the same weights: they differ in where
 * the model is exported to alone. */
static const struct {
    const char *name, *folder, *model;
    uint32_t width, batch, micro_batch;
    uint64_t steps, seed; /* steps 0: what the caller says */
} plans[] = {
    [DEMO_SMALL] = {"digits", "models", "digits", 128, 256, 32, 400, 1},
    [DEMO_WIDE] = {"digits-wide", "models", "digits-wide", 1024, 256, 32, 0, 2},
    [DEMO_AGAIN] = {"again", "again", "digits-wide", 1024, 256, 32, 0, 2},
    [DEMO_LONG] = {"long", NULL, NULL, 1024, 256, 32, 100000000, 3},
};

static json_t *spec_make(const struct demo_server *server, enum demo_job kind, uint64_t steps)
{
    char data[600], labels[600], folder[600];
    uint32_t width = plans[kind].width;
    snprintf(data, sizeof(data), "%s/digits.npy", server->folder);
    snprintf(labels, sizeof(labels), "%s/labels.npy", server->folder);
    snprintf(folder, sizeof(folder), "%s/%s", server->folder,
             plans[kind].folder == NULL ? "" : plans[kind].folder);
    json_t *layers = kind == DEMO_SMALL ? json_pack("[i,i,i]", 64, width, 10)
                                        : json_pack("[i,i,i,i]", 64, width, width, 10);
    json_t *spec = json_pack(
        "{s:s, s:{s:s,s:o}, s:{s:s,s:s,s:f}, s:i, s:i, s:I, s:I, s:s, s:{s:f}}", "name",
        plans[kind].name, "model", "kind", "mlp", "layers", layers, "data", "path", data, "labels",
        labels, "held_out", 0.1, "batch", plans[kind].batch, "micro_batch", plans[kind].micro_batch,
        "steps", (json_int_t)(plans[kind].steps != 0 ? plans[kind].steps : steps), "seed",
        (json_int_t)plans[kind].seed, "devices", "1:2", "optimizer", "learning_rate", 0.0005);
    if (spec != NULL && plans[kind].model != NULL) {
        json_object_set_new(spec, "export",
                            json_pack("{s:s,s:s,s:i,s:{s:i,s:{s:f}}}", "repository", folder, "name",
                                      plans[kind].model, "version", 1, "config", "max_batch",
                                      DEMO_WIDE_ROWS_MAX, "slo", "latency_ms", DEMO_SLO_MS));
    }
    return spec;
}

int demo_job_submit(struct demo_server *server, enum demo_job kind, uint64_t steps,
                    Tidepool__V1__Job **ret_job, struct error *error)
{
    Tidepool__V1__SubmitJobRequest request = TIDEPOOL__V1__SUBMIT_JOB_REQUEST__INIT;
    json_t *spec = spec_make(server, kind, steps);
    char *text = spec == NULL ? NULL : json_dumps(spec, JSON_COMPACT);
    json_decref(spec);
    if (text == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a job");
    }
    request.spec_json = text;
    int result = control_call(server->client, "SubmitJob", &request.base, CALL_NS, ret_job, error);
    free(text);
    return result;
}

int demo_job_get(struct demo_server *server, const char *id, Tidepool__V1__Job **ret_job,
                 struct error *error)
{
    Tidepool__V1__GetJobRequest request = TIDEPOOL__V1__GET_JOB_REQUEST__INIT;
    request.job = (char *)(uintptr_t)id;
    return control_call(server->client, "GetJob", &request.base, CALL_NS, ret_job, error);
}

static bool on_job(void *context, const Tidepool__V1__Change *change)
{
    return change->object_case != TIDEPOOL__V1__CHANGE__OBJECT_JOB ||
           strcmp(change->job->id, context) != 0 || !control_job_over(change->job);
}

int demo_job_wait(struct demo_server *server, const char *id, Tidepool__V1__Job **ret_job,
                  struct error *error)
{
    int result = control_watch(server->client, 100, WAIT_NS, on_job, (char *)(uintptr_t)id, error);
    Tidepool__V1__Job *job = NULL;
    if (result == 0) {
        result = demo_job_get(server, id, &job, error);
    }
    if (result == 0 && job->state != TIDEPOOL__V1__JOB_STATE__JOB_STATE_FINISHED) {
        result = error_set(error, ERROR_INTERNAL, "job %s %s: %s", id, control_job_state(job),
                           job->reason);
        control_free(job);
    } else if (result == 0) {
        *ret_job = job;
    }
    return result;
}

int demo_job_cancel(struct demo_server *server, const char *id, struct error *error)
{
    Tidepool__V1__CancelJobRequest request = TIDEPOOL__V1__CANCEL_JOB_REQUEST__INIT;
    Tidepool__V1__Job *job = NULL;
    request.job = (char *)(uintptr_t)id;
    int result = control_call(server->client, "CancelJob", &request.base, CALL_NS, &job, error);
    control_free(job);
    return result;
}

int demo_steps_measure(struct demo_server *server, double seconds, uint64_t *ret_steps,
                       struct error *error)
{
    Tidepool__V1__Job *job = NULL, *now = NULL;
    int result = demo_job_submit(server, DEMO_LONG, 0, &job, error);
    uint64_t start_ns = 0, end_ns = 0, first_step = 0, steps = 0;
    while (result == 0 && (steps < MEASURE_STEPS || end_ns - start_ns < MEASURE_NS)) {
        struct timespec time = {.tv_nsec = (long)MEASURE_TRY_NS};
        nanosleep(&time, NULL);
        result = demo_job_get(server, job->id, &now, error);
        if (result == 0 && control_job_over(now)) {
            result = error_set(error, ERROR_INTERNAL, "job %s %s: %s", job->id,
                               control_job_state(now), now->reason);
        } else if (result == 0 && now->step > 0) { /* the first step also warms up */
            end_ns = clock_now_ns();
            start_ns = start_ns == 0 ? end_ns : start_ns;
            first_step = first_step == 0 ? now->step : first_step;
            steps = now->step - first_step;
        }
        control_free(now);
        now = NULL;
    }
    if (result == 0) {
        result = demo_job_cancel(server, job->id, error);
        double per_s = (double)steps * 1e9 / (double)(end_ns - start_ns);
        *ret_steps =
            (uint64_t)(per_s * seconds) < STEPS_MIN ? STEPS_MIN : (uint64_t)(per_s * seconds);
    }
    control_free(job);
    return result;
}

static bool on_endpoint(void *context, const Tidepool__V1__Change *change)
{
    return change->object_case != TIDEPOOL__V1__CHANGE__OBJECT_ENDPOINT ||
           strcmp(change->endpoint->name, context) != 0 ||
           (change->endpoint->state != TIDEPOOL__V1__ENDPOINT_STATE__ENDPOINT_STATE_READY &&
            change->endpoint->state != TIDEPOOL__V1__ENDPOINT_STATE__ENDPOINT_STATE_FAILED);
}

/* The endpoint called `name`, from the list; NULL: there is none. */
static const Tidepool__V1__Endpoint *endpoint_find(const Tidepool__V1__ListEndpointsResponse *list,
                                                   const char *name)
{
    for (size_t i = 0; i < list->n_endpoints; i++) {
        if (strcmp(list->endpoints[i]->name, name) == 0) {
            return list->endpoints[i];
        }
    }
    return NULL;
}

int demo_serve(struct demo_server *server, const char *model, struct error *error)
{
    Tidepool__V1__ServeModelRequest request = TIDEPOOL__V1__SERVE_MODEL_REQUEST__INIT;
    Tidepool__V1__ListEndpointsRequest list_request = TIDEPOOL__V1__LIST_ENDPOINTS_REQUEST__INIT;
    Tidepool__V1__ListEndpointsResponse *list = NULL;
    Tidepool__V1__Endpoint *endpoint = NULL;
    request.model = (char *)(uintptr_t)model;
    int result =
        control_call(server->client, "ServeModel", &request.base, CALL_NS, &endpoint, error);
    control_free(endpoint);
    if (result == 0) {
        result = control_watch(server->client, 100, WAIT_NS, on_endpoint, (char *)(uintptr_t)model,
                               error);
    }
    if (result == 0) {
        result = control_call(server->client, "ListEndpoints", &list_request.base, CALL_NS, &list,
                              error);
    }
    const Tidepool__V1__Endpoint *found = result == 0 ? endpoint_find(list, model) : NULL;
    if (result == 0 &&
        (found == NULL || found->state != TIDEPOOL__V1__ENDPOINT_STATE__ENDPOINT_STATE_READY)) {
        result = error_set(error, ERROR_INTERNAL, "endpoint %s: %s", model,
                           found == NULL ? "is gone" : found->reason);
    }
    control_free(list);
    return result;
}

int demo_device_fault(struct demo_server *server, bool fail, struct error *error)
{
    Tidepool__V1__InjectDeviceFaultRequest inject = TIDEPOOL__V1__INJECT_DEVICE_FAULT_REQUEST__INIT;
    Tidepool__V1__RecoverDeviceRequest recover = TIDEPOOL__V1__RECOVER_DEVICE_REQUEST__INIT;
    char device[] = "1", reason[] = "the key f of the demo";
    Tidepool__V1__Device *changed = NULL;
    inject.device = recover.device = device;
    inject.reason = reason;
    int result = fail ? control_call(server->client, "InjectDeviceFault", &inject.base, CALL_NS,
                                     &changed, error)
                      : control_call(server->client, "RecoverDevice", &recover.base, CALL_NS,
                                     &changed, error);
    control_free(changed);
    return result;
}

/* ---- the request
 * -------------------------------------------------------------------------------------- */

/* Least time of a request of so many rows, one at a time: what else runs on the machine makes some
 * slower, none faster. */
static int cost_measure(struct grpc_client *client,
                        const Inference__ModelMetadataResponse *metadata, uint32_t rows,
                        uint64_t *ret_ns, struct error *error)
{
    uint64_t least_ns = UINT64_MAX;
    unsigned char *body = NULL;
    size_t length = 0;
    int result = infer_request_from_metadata(metadata, rows, 1, &body, &length, error);
    Inference__ModelInferRequest *request =
        result < 0 ? NULL : inference__model_infer_request__unpack(NULL, length, body);
    free(body);
    for (size_t i = 0; i < COST_TRIES && result == 0; i++) {
        ProtobufCMessage *answer = NULL;
        uint64_t start = clock_now_ns();
        result = request == NULL
                     ? error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a request")
                     : grpc_client_call(client, INFER_PATH, &request->base,
                                        &inference__model_infer_response__descriptor, CALL_NS,
                                        &answer, error);
        uint64_t taken_ns = clock_now_ns() - start;
        least_ns = taken_ns < least_ns ? taken_ns : least_ns;
        if (answer != NULL) {
            protobuf_c_message_free_unpacked(answer, NULL);
        }
    }
    if (result == 0) {
        *ret_ns = least_ns;
    }
    if (request != NULL) {
        inference__model_infer_request__free_unpacked(request, NULL);
    }
    return result;
}

static uint32_t rows_scale(uint32_t rows, double cost_ms, double wanted_ms)
{
    double scaled = rows * wanted_ms / cost_ms;
    return scaled < 1                    ? 1
           : scaled > DEMO_WIDE_ROWS_MAX ? DEMO_WIDE_ROWS_MAX
                                         : (uint32_t)(scaled + 0.5);
}

int demo_request_make(struct demo_server *server, const char *endpoint, double wanted_ms,
                      unsigned char **ret_body, size_t *ret_length, double *ret_cost_ms,
                      uint32_t *ret_rows, struct error *error)
{
    struct grpc_client_options options = {.address = server->inference};
    struct grpc_client *client = NULL;
    ProtobufCMessage *message = NULL;
    Inference__ModelMetadataRequest request = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    uint64_t cost_ns = 1;
    uint32_t rows = 64;
    request.name = (char *)(uintptr_t)endpoint;
    int result = grpc_client_create(&options, &client, error);
    if (result == 0) {
        result = grpc_client_call(client, INFER_METADATA_PATH, &request.base,
                                  &inference__model_metadata_response__descriptor, CALL_NS,
                                  &message, error);
    }
    const Inference__ModelMetadataResponse *metadata =
        (const Inference__ModelMetadataResponse *)message;
    for (int i = 0; i < 3 && result == 0; i++) { /* the cost is nearly, not quite, linear */
        result = cost_measure(client, metadata, rows, &cost_ns, error);
        rows = i < 2 && result == 0 ? rows_scale(rows, (double)cost_ns / 1e6, wanted_ms) : rows;
    }
    if (result == 0) {
        result = infer_request_from_metadata(metadata, rows, 1, ret_body, ret_length, error);
    }
    if (result == 0) {
        *ret_cost_ms = (double)cost_ns / 1e6;
        *ret_rows = rows;
    }
    if (message != NULL) {
        protobuf_c_message_free_unpacked(message, NULL);
    }
    grpc_client_destroy(client);
    return result;
}
