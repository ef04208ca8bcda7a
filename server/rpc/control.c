#include "server/rpc/control.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/control/change.h"
#include "server/control/view.h"
#include "server/rpc/control_encode.h"
#include "server/rpc/control_service.h"

/* One call on its way through the control thread. The request lies in the call's arena and is valid
 * until the call is finished. */
struct task {
    struct control_call letter; /* first */
    struct grpc_call *call;
    struct control_service *service;
    const ProtobufCMessage *request;
    bool by_unix; /* a change, asked for by the Unix socket's user (checked), not by a token */
};

/* ---- answers
 * ----------------------------------------------------------------------------------------- */

static void finish_error(struct task *task, const struct error *error)
{
    grpc_call_finish(task->call, error->code, error->text);
    free(task);
}

/* `message` lies in the scratch, NULL: no memory. Frees the scratch. */
static void finish(struct task *task, struct scratch *scratch, void *message)
{
    if (message == NULL || scratch->failed) {
        grpc_call_finish(task->call, ERROR_RESOURCE_EXHAUSTED, "no memory for the answer");
    } else {
        grpc_call_reply(task->call, message);
    }
    scratch_free(scratch);
    free(task);
}

static void finish_status(struct task *task, struct control *control)
{
    struct scratch scratch = {0};
    finish(task, &scratch,
           encode_status(&scratch, control, task->service->version, task->service->inference));
}

static void finish_device(struct task *task, struct control *control, size_t index)
{
    struct scratch scratch = {0};
    struct control_device device;
    control_device_at(control, index, &device);
    finish(task, &scratch, encode_device(&scratch, &device));
}

/* For the changes of change.h: `context` is the task. */
static void on_status_changed(struct control *control, void *context, size_t index,
                              const struct error *error)
{
    (void)index;
    if (error != NULL) {
        finish_error(context, error);
    } else {
        finish_status(context, control);
    }
}

static void on_job_changed(struct control *control, void *context, size_t index,
                           const struct error *error)
{
    struct scratch scratch = {0};
    struct control_job job;
    if (error != NULL) {
        finish_error(context, error);
    } else if (control_job_at(control, index, &job)) {
        finish(context, &scratch, encode_job(&scratch, &job));
    }
}

static void on_endpoint_changed(struct control *control, void *context, size_t index,
                                const struct error *error)
{
    struct scratch scratch = {0};
    struct control_endpoint endpoint;
    if (error != NULL) {
        finish_error(context, error);
    } else if (control_endpoint_at(control, index, &endpoint)) {
        finish(context, &scratch, encode_endpoint(&scratch, &endpoint));
    }
}

/* ---- reads, on the control thread
 * ---------------------------------------------------------------------- */

static void run_get_status(struct control *control, struct control_call *letter)
{
    control_refresh(control);
    finish_status((struct task *)letter, control);
}

static void run_list_devices(struct control *control, struct control_call *letter)
{
    struct scratch scratch = {0};
    Tidepool__V1__ListDevicesResponse answer = TIDEPOOL__V1__LIST_DEVICES_RESPONSE__INIT;
    struct control_device device;
    answer.revision = control_revision(control);
    answer.devices = scratch_take(&scratch, DEVICES_MAX, sizeof *answer.devices);
    while (answer.devices != NULL && control_device_at(control, answer.n_devices, &device)) {
        answer.devices[answer.n_devices++] = encode_device(&scratch, &device);
    }
    finish((struct task *)letter, &scratch, &answer);
}

static void run_list_endpoints(struct control *control, struct control_call *letter)
{
    struct scratch scratch = {0};
    Tidepool__V1__ListEndpointsResponse answer = TIDEPOOL__V1__LIST_ENDPOINTS_RESPONSE__INIT;
    struct control_endpoint endpoint;
    size_t count = 0;
    control_refresh(control);
    while (control_endpoint_at(control, count, &endpoint)) {
        count++;
    }
    answer.revision = control_revision(control);
    answer.endpoints = scratch_take(&scratch, count + 1, sizeof *answer.endpoints);
    for (size_t i = 0; answer.endpoints != NULL && i < count; i++) {
        control_endpoint_at(control, i, &endpoint);
        answer.endpoints[answer.n_endpoints++] = encode_endpoint(&scratch, &endpoint);
    }
    finish((struct task *)letter, &scratch, &answer);
}

static bool job_is_over(const struct control_job *job)
{
    return job->state >= CONTROL_JOB_FINISHED;
}

static void run_list_jobs(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ListJobsRequest *request = (const void *)task->request;
    struct scratch scratch = {0};
    Tidepool__V1__ListJobsResponse answer = TIDEPOOL__V1__LIST_JOBS_RESPONSE__INIT;
    struct control_job job;
    size_t count = 0;
    while (control_job_at(control, count, &job)) {
        count++;
    }
    answer.revision = control_revision(control);
    answer.jobs = scratch_take(&scratch, count + 1, sizeof *answer.jobs);
    for (size_t i = 0; answer.jobs != NULL && i < count; i++) {
        control_job_at(control, i, &job);
        if (!request->active_only || !job_is_over(&job)) {
            answer.jobs[answer.n_jobs++] = encode_job(&scratch, &job);
        }
    }
    finish(task, &scratch, &answer);
}

static void run_get_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__GetJobRequest *request = (const void *)task->request;
    struct error error = {0};
    size_t index = 0;
    if (control_job_find(control, request->job, &index, &error) < 0) {
        finish_error(task, &error);
    } else {
        on_job_changed(control, task, index, NULL);
    }
}

struct explaining {
    struct scratch scratch;
    Tidepool__V1__ExplainResponse answer;
};

static void add_move(void *context, const struct control_move *move)
{
    struct explaining *explaining = context;
    explaining->answer.moves[explaining->answer.n_moves++] =
        encode_move(&explaining->scratch, move);
}

static void run_explain(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ExplainRequest *request = (const void *)task->request;
    struct explaining explaining = {.answer = TIDEPOOL__V1__EXPLAIN_RESPONSE__INIT};
    struct control_subject subject = {0};
    struct error error = {0};
    char summary[1024];
    size_t moves_max = request->moves_max == 0 ? 20 : request->moves_max;
    if (control_subject_find(control, request->device, request->job, request->endpoint, &subject,
                             &error) < 0) {
        finish_error(task, &error);
        return;
    }
    moves_max = moves_max < 256 ? moves_max : 256;
    explaining.answer.moves =
        scratch_take(&explaining.scratch, moves_max, sizeof *explaining.answer.moves);
    if (explaining.answer.moves != NULL) {
        control_explain(control, &subject, moves_max, add_move, &explaining);
    }
    control_summary(control, &subject, summary, sizeof summary);
    explaining.answer.summary = scratch_text(&explaining.scratch, summary);
    finish(task, &explaining.scratch, &explaining.answer);
}

static void run_dry_run(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    struct scratch scratch = {0};
    struct error error = {0};
    Tidepool__V1__DryRunResponse *answer =
        dry_run(&scratch, control, (const void *)task->request, &error);
    if (error.code != ERROR_NONE) {
        scratch_free(&scratch);
        finish_error(task, &error);
    } else {
        finish(task, &scratch, answer);
    }
}

static void run_get_timeline(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__GetTimelineRequest *request = (const void *)task->request;
    struct scratch scratch = {0};
    finish(task, &scratch,
           encode_timeline(&scratch, control, request->from_slot, request->slots_max));
}

static void run_get_scale_signal(struct control *control, struct control_call *letter)
{
    struct scratch scratch = {0};
    finish((struct task *)letter, &scratch, encode_scale_signal(&scratch, control));
}

/* ---- changes, on the control thread
 * ---------------------------------------------------------------------- */

static void finish_unimplemented(struct task *task, const char *what)
{
    struct error error = {0};
    error_set(&error, ERROR_UNIMPLEMENTED, "%s: this server starts none yet", what);
    finish_error(task, &error);
}

static void run_submit_job(struct control *control, struct control_call *letter)
{
    const struct task *task = (struct task *)letter;
    const Tidepool__V1__SubmitJobRequest *request = (const void *)task->request;
    if (request->command != NULL) {
        finish_unimplemented((struct task *)letter, "submit: outside jobs");
        return;
    }
    const struct control_submission submission = {.specification = request->spec_json,
                                                  .request_id = request->request_id,
                                                  .export_anywhere = task->by_unix};
    control_job_submit(control, &submission, on_job_changed, letter);
}

static void change_job(struct control *control, struct task *task, const char *name,
                       void (*change)(struct control *, size_t, control_done *, void *))
{
    struct error error = {0};
    size_t index = 0;
    if (control_job_find(control, name, &index, &error) < 0) {
        finish_error(task, &error);
    } else {
        change(control, index, on_job_changed, task);
    }
}

static void run_cancel_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__CancelJobRequest *request = (const void *)task->request;
    change_job(control, task, request->job, control_job_cancel);
}

static void run_pause_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__PauseJobRequest *request = (const void *)task->request;
    change_job(control, task, request->job, control_job_pause);
}

static void run_resume_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ResumeJobRequest *request = (const void *)task->request;
    change_job(control, task, request->job, control_job_resume);
}

static void run_signal_job(struct control *control, struct control_call *letter)
{
    (void)control;
    finish_unimplemented((struct task *)letter, "signal: outside jobs");
}

static void run_get_logs(struct control *control, struct control_call *letter)
{
    (void)control;
    finish_unimplemented((struct task *)letter, "logs: outside jobs");
}

static void run_serve_model(struct control *control, struct control_call *letter)
{
    const Tidepool__V1__ServeModelRequest *request = (const void *)((struct task *)letter)->request;
    struct control_serve_options options = {.path = request->path,
                                            .model = request->model,
                                            .name = request->name,
                                            .slo_ms = request->slo_ms,
                                            .devices_min = request->devices_min,
                                            .devices_max = request->devices_max};
    control_serve_model(control, &options, on_endpoint_changed, letter);
}

static void run_stop_serving(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__StopServingRequest *request = (const void *)task->request;
    struct error error = {0};
    size_t index = 0;
    if (control_endpoint_find(control, request->name, &index, &error) < 0) {
        finish_error(task, &error);
    } else {
        control_stop_serving(control, index, on_endpoint_changed, task);
    }
}

static void run_set_hold(struct control *control, struct control_call *letter)
{
    const Tidepool__V1__SetHoldRequest *request = (const void *)((struct task *)letter)->request;
    control_set_hold(control, request->hold, request->reason, on_status_changed, letter);
}

static void run_set_mode(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__SetModeRequest *request = (const void *)task->request;
    struct error error = {0};
    if (request->mode < TIDEPOOL__V1__MODE__MODE_OBSERVE ||
        request->mode > TIDEPOOL__V1__MODE__MODE_ACT) {
        error_set(&error, ERROR_INVALID_ARGUMENT, "mode: %d is none of observe, advise, act",
                  (int)request->mode);
        finish_error(task, &error);
        return;
    }
    control_set_mode(control, (enum core_mode)(request->mode - 1), on_status_changed, task);
}

static void run_announce_devices(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__AnnounceDevicesRequest *request = (const void *)task->request;
    const struct control_coming coming = {.provider = request->provider,
                                          .kind = request->kind,
                                          .devices = request->devices,
                                          .arrives_in_ns = request->arrives_in_ns,
                                          .lead_ns = request->lead_ns};
    struct error error = {0};
    if (control_scale_announce(control, &coming, &error) < 0) {
        finish_error(task, &error);
    } else {
        run_get_scale_signal(control, letter);
    }
}

static void run_inject_fault(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__InjectDeviceFaultRequest *request = (const void *)task->request;
    struct control_status status;
    struct error error = {0};
    size_t index = 0;
    control_status(control, &status);
    if (!status.testing && !task->by_unix) {
        error_set(&error, ERROR_PERMISSION_DENIED,
                  "faults are injected over the Unix socket, or anywhere with \"testing\": true "
                  "in the configuration");
        finish_error(task, &error);
    } else if (control_device_find(control, request->device, &index, &error) < 0) {
        finish_error(task, &error);
    } else {
        control_device_fail(control, index, request->reason);
        finish_device(task, control, index);
    }
}

static void run_recover_device(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__RecoverDeviceRequest *request = (const void *)task->request;
    struct error error = {0};
    size_t index = 0;
    if (control_device_find(control, request->device, &index, &error) < 0 ||
        control_device_recover(control, index, &error) < 0) {
        finish_error(task, &error);
    } else {
        finish_device(task, control, index);
    }
}

/* ---- who may
 * ---------------------------------------------------------------------------------------------- */

static int authorize_unix(uint32_t uid, struct error *error)
{
    if (uid == 0 || uid == geteuid()) {
        return 0;
    }
    return error_set(error, ERROR_PERMISSION_DENIED,
                     "over this socket user %u and root may change things; you are user %u",
                     (unsigned)geteuid(), (unsigned)uid);
}

static int authorize_token(struct control_service *service, struct grpc_call *call,
                           struct error *error)
{
    const char *given = grpc_call_metadata(call, "authorization");
    pthread_mutex_lock(&service->shared.lock);
    bool there = service->shared.token[0] != '\0';
    bool matches = token_matches(service->shared.token, given);
    pthread_mutex_unlock(&service->shared.lock);
    if (matches) {
        return 0;
    }
    if (!there) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "this TCP address only shows; use the Unix socket, or give the server a "
                         "\"token_file\" in its configuration");
    }
    return error_set(error, ERROR_PERMISSION_DENIED,
                     given == NULL
                         ? "this TCP address only shows; use the Unix socket, or send the metadata "
                           "'authorization: Bearer <token>' with the token of the server's "
                           "token_file"
                         : "the token is not the one in the server's token_file");
}

/* *ret_unix: by the Unix socket's user, not by a token. */
static int authorize(struct control_service *service, struct grpc_call *call, bool *ret_unix,
                     struct error *error)
{
    uint32_t uid = 0;
    uint32_t pid = 0;
    *ret_unix = grpc_call_peer(call, &uid, &pid);
    return *ret_unix ? authorize_unix(uid, error) : authorize_token(service, call, error);
}

/* ---- handlers, on network threads
 * --------------------------------------------------------------------------- */

static void begin(struct grpc_call *call, const ProtobufCMessage *message,
                  struct control_service *service, bool changes,
                  void (*run)(struct control *control, struct control_call *letter))
{
    struct error error = {0};
    bool by_unix = false;
    if (changes && authorize(service, call, &by_unix, &error) < 0) {
        grpc_call_finish(call, error.code, error.text);
        return;
    }
    struct task *task = calloc(1, sizeof *task);
    if (task == NULL) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    *task = (struct task){.letter = {.run = run},
                          .call = call,
                          .service = service,
                          .request = message,
                          .by_unix = by_unix};
    control_post(service->control, &task->letter);
}

#define READ(name)                                                                                 \
    static void handle_##name(struct grpc_call *call, const ProtobufCMessage *message,             \
                              void *context)                                                       \
    {                                                                                              \
        begin(call, message, context, false, run_##name);                                          \
    }
#define CHANGE(name)                                                                               \
    static void handle_##name(struct grpc_call *call, const ProtobufCMessage *message,             \
                              void *context)                                                       \
    {                                                                                              \
        begin(call, message, context, true, run_##name);                                           \
    }
READ(get_status)
READ(list_devices)
READ(list_endpoints)
READ(list_jobs)
READ(get_job)
READ(explain)
READ(dry_run)
READ(get_timeline)
READ(get_scale_signal)
CHANGE(submit_job)
CHANGE(cancel_job)
CHANGE(pause_job)
CHANGE(resume_job)
CHANGE(signal_job)
CHANGE(get_logs)
CHANGE(serve_model)
CHANGE(stop_serving)
CHANGE(set_hold)
CHANGE(set_mode)
CHANGE(announce_devices)
CHANGE(inject_fault)
CHANGE(recover_device)

#define UNARY(method, type, handler)                                                               \
    {                                                                                              \
        method, GRPC_UNARY, &tidepool__v1__##type##__descriptor, handler                           \
    }
static const struct grpc_method methods[] = {
    UNARY("GetStatus", get_status_request, handle_get_status),
    UNARY("ListDevices", list_devices_request, handle_list_devices),
    UNARY("ListEndpoints", list_endpoints_request, handle_list_endpoints),
    UNARY("ListJobs", list_jobs_request, handle_list_jobs),
    UNARY("GetJob", get_job_request, handle_get_job),
    UNARY("SubmitJob", submit_job_request, handle_submit_job),
    UNARY("CancelJob", cancel_job_request, handle_cancel_job),
    UNARY("PauseJob", pause_job_request, handle_pause_job),
    UNARY("ResumeJob", resume_job_request, handle_resume_job),
    UNARY("SignalJob", signal_job_request, handle_signal_job),
    UNARY("ServeModel", serve_model_request, handle_serve_model),
    UNARY("StopServing", stop_serving_request, handle_stop_serving),
    UNARY("SetHold", set_hold_request, handle_set_hold),
    UNARY("SetMode", set_mode_request, handle_set_mode),
    UNARY("InjectDeviceFault", inject_device_fault_request, handle_inject_fault),
    UNARY("RecoverDevice", recover_device_request, handle_recover_device),
    UNARY("Explain", explain_request, handle_explain),
    UNARY("DryRun", dry_run_request, handle_dry_run),
    UNARY("GetScaleSignal", get_scale_signal_request, handle_get_scale_signal),
    UNARY("AnnounceDevices", announce_devices_request, handle_announce_devices),
    UNARY("GetTimeline", get_timeline_request, handle_get_timeline),
    {"GetLogs", GRPC_SERVER_STREAM, &tidepool__v1__get_logs_request__descriptor, handle_get_logs},
    {"Watch", GRPC_SERVER_STREAM, &tidepool__v1__watch_request__descriptor, watch_handle},
};

struct grpc_service control_service_table(struct control_service *service)
{
    return (struct grpc_service){.name = "tidepool.v1.Control",
                                 .methods = methods,
                                 .method_count = sizeof methods / sizeof methods[0],
                                 .context = service};
}

/* ---- life
 * ------------------------------------------------------------------------------------------------------
 */

int control_service_reload(struct control_service *service, struct error *error)
{
    char token[TOKEN_SIZE] = "";
    if (service->token_file == NULL) {
        return 0;
    }
    int result = token_read(service->token_file, token, error);
    if (result == 0) {
        pthread_mutex_lock(&service->shared.lock);
        memcpy(service->shared.token, token, sizeof token);
        pthread_mutex_unlock(&service->shared.lock);
    }
    explicit_bzero(token, sizeof token);
    return result;
}

struct control_service *control_service_create(const struct control_service_options *options,
                                               struct error *error)
{
    struct control_service *service = calloc(1, sizeof *service);
    if (service == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the control service: no memory");
        return NULL;
    }
    service->control = options->control;
    service->inference = options->inference;
    service->version = options->version;
    service->token_file = options->token_file;
    pthread_mutex_init(&service->shared.lock, NULL);
    if (control_service_reload(service, error) < 0) {
        control_service_destroy(service);
        return NULL;
    }
    return service;
}

void control_service_destroy(struct control_service *service)
{
    if (service != NULL) {
        pthread_mutex_destroy(&service->shared.lock);
        explicit_bzero(service->shared.token, sizeof service->shared.token);
        free(service);
    }
}

struct closing {
    struct control_call letter; /* first */
    struct control_service *service;
};

static void run_close(struct control *control, struct control_call *letter)
{
    struct closing *closing = (struct closing *)letter;
    (void)control;
    watch_close_all(closing->service);
    free(closing);
}

void control_service_close(struct control_service *service)
{
    struct closing *closing = calloc(1, sizeof *closing);
    if (closing == NULL) {
        return; /* the drain's time limit ends the streams then */
    }
    *closing = (struct closing){.letter = {.run = run_close}, .service = service};
    control_post(service->control, &closing->letter);
}
