#include "server/rpc/control.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/change.h"
#include "server/control/view.h"
#include "server/rpc/control_command.h"
#include "server/rpc/control_leases.h"
#include "server/rpc/control_service.h"

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

static void run_submit_job(struct control *control, struct control_call *letter)
{
    const struct task *task = (struct task *)letter;
    const Tidepool__V1__SubmitJobRequest *request = (const void *)task->request;
    struct error error = {0};
    char *command = NULL;
    if (request->command != NULL && request->spec_json[0] != '\0') {
        error_set(&error, ERROR_INVALID_ARGUMENT, "submit: spec_json or command, not both");
    } else if (request->command != NULL) {
        command = command_specification(request->command, &error);
    }
    if (error.code != ERROR_NONE) {
        finish_error((struct task *)letter, &error);
        return;
    }
    const struct control_submission submission = {
        .specification = command != NULL ? command : request->spec_json,
        .request_id = request->request_id,
        .export_anywhere = task->by_unix};
    control_job_submit(control, &submission, on_job_changed, letter);
    free(command);
}

/* `changed`: the revision of the object's last change of state. */
static int check_revision(const char *what, uint64_t expected, uint64_t changed,
                          struct error *error)
{
    return expected == 0 || expected >= changed
               ? 0
               : error_set(error, ERROR_ABORTED,
                           "%.160s has changed after revision %" PRIu64 ", at %" PRIu64
                           "; read it again",
                           what, expected, changed);
}

static int check_status_revision(struct control *control, uint64_t expected, struct error *error)
{
    struct control_status status;
    control_status(control, &status);
    return check_revision("the server's state", expected, status.state_revision, error);
}

static void change_job(struct control *control, struct task *task, const char *name,
                       uint64_t expected_revision,
                       void (*change)(struct control *, size_t, control_done *, void *))
{
    struct error error = {0};
    struct control_job job;
    size_t index = 0;
    if (control_job_find(control, name, &index, &error) < 0 ||
        !control_job_at(control, index, &job) ||
        check_revision(job.id, expected_revision, job.state_revision, &error) < 0) {
        finish_error(task, &error);
    } else {
        change(control, index, on_job_changed, task);
    }
}

static void run_cancel_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__CancelJobRequest *request = (const void *)task->request;
    change_job(control, task, request->job, request->expected_revision, control_job_cancel);
}

static void run_pause_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__PauseJobRequest *request = (const void *)task->request;
    change_job(control, task, request->job, request->expected_revision, control_job_pause);
}

static void run_resume_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ResumeJobRequest *request = (const void *)task->request;
    change_job(control, task, request->job, request->expected_revision, control_job_resume);
}

static void run_signal_job(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__SignalJobRequest *request = (const void *)task->request;
    struct error error = {0};
    size_t index = 0;
    int signal = command_signal_number(request->signal);
    if (signal == 0 || signal == SIGSTOP || signal == SIGCONT) {
        error_set(&error, ERROR_INVALID_ARGUMENT,
                  "signal: '%.32s' is none that is sent; to stop a job and let it go on is "
                  "PauseJob and ResumeJob",
                  request->signal);
        finish_error(task, &error);
    } else if (control_job_find(control, request->job, &index, &error) < 0) {
        finish_error(task, &error);
    } else {
        control_job_signal(control, index, signal, request->all, on_job_changed, task);
    }
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
    struct control_endpoint endpoint;
    size_t index = 0;
    if (control_endpoint_find(control, request->name, &index, &error) < 0 ||
        !control_endpoint_at(control, index, &endpoint) ||
        check_revision(endpoint.name, request->expected_revision, endpoint.state_revision, &error) <
            0) {
        finish_error(task, &error);
    } else {
        control_stop_serving(control, index, on_endpoint_changed, task);
    }
}

static void run_set_hold(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__SetHoldRequest *request = (const void *)task->request;
    struct error error = {0};
    if (check_status_revision(control, request->expected_revision, &error) < 0) {
        finish_error(task, &error);
    } else {
        control_set_hold(control, request->hold, request->reason, on_status_changed, task);
    }
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
    }
    if (error.code != ERROR_NONE ||
        check_status_revision(control, request->expected_revision, &error) < 0) {
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

/* ---- the calls ---- */

/* Kind, name, type of the request, what runs on the control thread, whether it needs what a change
 * needs. */
#define METHODS(X)                                                                                 \
    X(UNARY, GetStatus, get_status_request, get_status, false)                                     \
    X(UNARY, ListDevices, list_devices_request, list_devices, false)                               \
    X(UNARY, ListEndpoints, list_endpoints_request, list_endpoints, false)                         \
    X(UNARY, ListJobs, list_jobs_request, list_jobs, false)                                        \
    X(UNARY, GetJob, get_job_request, get_job, false)                                              \
    X(UNARY, SubmitJob, submit_job_request, submit_job, true)                                      \
    X(UNARY, CancelJob, cancel_job_request, cancel_job, true)                                      \
    X(UNARY, PauseJob, pause_job_request, pause_job, true)                                         \
    X(UNARY, ResumeJob, resume_job_request, resume_job, true)                                      \
    X(UNARY, SignalJob, signal_job_request, signal_job, true)                                      \
    X(UNARY, RequestLease, request_lease_request, request_lease, true)                             \
    X(UNARY, ClaimLease, claim_lease_request, claim_lease, true)                                   \
    X(UNARY, ReportLease, report_lease_request, report_lease, true)                                \
    X(UNARY, ExtendLease, extend_lease_request, extend_lease, true)                                \
    X(UNARY, ReleaseLease, release_lease_request, release_lease, true)                             \
    X(UNARY, ResizeLease, resize_lease_request, resize_lease, true)                                \
    X(UNARY, ServeModel, serve_model_request, serve_model, true)                                   \
    X(UNARY, StopServing, stop_serving_request, stop_serving, true)                                \
    X(UNARY, SetHold, set_hold_request, set_hold, true)                                            \
    X(UNARY, SetMode, set_mode_request, set_mode, true)                                            \
    X(UNARY, CordonDevice, cordon_device_request, cordon_device, true)                             \
    X(UNARY, UncordonDevice, uncordon_device_request, uncordon_device, true)                       \
    X(UNARY, DrainDevice, drain_device_request, drain_device, true)                                \
    X(UNARY, ReclaimDevice, reclaim_device_request, reclaim_device, true)                          \
    X(UNARY, SetEndpoint, set_endpoint_request, set_endpoint, true)                                \
    X(UNARY, SetTeam, set_team_request, set_team, true)                                            \
    X(UNARY, ListTeams, list_teams_request, list_teams, false)                                     \
    X(UNARY, ListOverrides, list_overrides_request, list_overrides, false)                         \
    X(UNARY, DropOverride, drop_override_request, drop_override, true)                             \
    X(UNARY, InjectDeviceFault, inject_device_fault_request, inject_fault, true)                   \
    X(UNARY, RecoverDevice, recover_device_request, recover_device, true)                          \
    X(UNARY, Explain, explain_request, explain, false)                                             \
    X(UNARY, DryRun, dry_run_request, dry_run, false)                                              \
    X(UNARY, GetScaleSignal, get_scale_signal_request, get_scale_signal, false)                    \
    X(UNARY, AnnounceDevices, announce_devices_request, announce_devices, true)                    \
    X(UNARY, GetTimeline, get_timeline_request, get_timeline, false)

#define METHOD(kind, name, type, run, changes)                                                     \
    {#name,     &tidepool__v1__##type##__descriptor,                                               \
     changes,   GRPC_##kind == GRPC_SERVER_STREAM,                                                 \
     run_##run, NULL},
static const struct control_method calls[] = {
    METHODS(METHOD){"GetLogs", &tidepool__v1__get_logs_request__descriptor, true, true, NULL,
                    logs_open},
};

#define INDEX(kind, name, type, run, changes) CALL_##run,
enum { METHODS(INDEX) CALL_get_logs };

/* On network threads. */
#define HANDLER(kind, name, type, run, changes)                                                    \
    static void handle_##run(struct grpc_call *call, const ProtobufCMessage *message,              \
                             void *context)                                                        \
    {                                                                                              \
        task_begin(context, exchange_of_grpc(call), message, &calls[CALL_##run]);                  \
    }
METHODS(HANDLER)
HANDLER(SERVER_STREAM, GetLogs, get_logs_request, get_logs, true)

#define GRPC_METHOD(kind, name, type, run, changes)                                                \
    {#name, GRPC_##kind, &tidepool__v1__##type##__descriptor, handle_##run},
static const struct grpc_method methods[] = {
    METHODS(GRPC_METHOD){"GetLogs", GRPC_SERVER_STREAM, &tidepool__v1__get_logs_request__descriptor,
                         handle_get_logs},
    {"Watch", GRPC_SERVER_STREAM, &tidepool__v1__watch_request__descriptor, watch_handle},
};

const struct control_method *control_method_find(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            return &calls[i];
        }
    }
    return NULL;
}

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
    service->watchers =
        (struct stream_set){.control = options->control, .begin = watch_begin, .pass = watch_pass};
    pthread_mutex_init(&service->shared.lock, NULL);
    service->logs = logs_create(error);
    if (service->logs == NULL || control_service_reload(service, error) < 0) {
        control_service_destroy(service);
        return NULL;
    }
    return service;
}

void control_service_destroy(struct control_service *service)
{
    if (service != NULL) {
        logs_destroy(service->logs);
        pthread_mutex_destroy(&service->shared.lock);
        explicit_bzero(service->shared.token, sizeof service->shared.token);
        free(service);
    }
}

void control_service_close(struct control_service *service)
{
    stream_set_close(&service->watchers);
    logs_close(service->logs);
}
