#include "server/rpc/control_leases.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/control/change.h"
#include "server/control/view.h"

#define EXTENSION_S_MAX 86400.0

static char *specification(const Tidepool__V1__RequestLeaseRequest *request, struct error *error)
{
    uint32_t least = request->devices_min == 0 ? 1 : request->devices_min;
    uint32_t most = request->devices_max == 0 ? least : request->devices_max;
    char devices[32];
    char *text = NULL;
    snprintf(devices, sizeof devices, "%" PRIu32 ":%" PRIu32, least, most);
    json_t *object =
        json_pack("{s:b, s:s, s:s, s:I, s:I, s:f}", "held", 1, "name", request->name, "devices",
                  devices, "priority", (json_int_t)request->priority, "memory_bytes",
                  (json_int_t)(request->memory_bytes > INT64_MAX ? INT64_MAX
                                                                 : (int64_t)request->memory_bytes),
                  "time_s", request->time_s);
    if (object != NULL && request->kind[0] != '\0') {
        json_object_set_new(object, "kind", json_string(request->kind));
    }
    if (object != NULL) {
        json_object_set_new(object, "team", json_string(request->team));
    }
    if (object != NULL && request->notice_or_default_case ==
                              TIDEPOOL__V1__REQUEST_LEASE_REQUEST__NOTICE_OR_DEFAULT_NOTICE_S) {
        json_object_set_new(object, "notice_s", json_real(request->notice_s));
    }
    if (object != NULL) {
        text = json_dumps(object, JSON_COMPACT);
        json_decref(object);
    }
    if (text == NULL) {
        error_set(error, ERROR_INVALID_ARGUMENT,
                  "lease: a text is not UTF-8, or a number is not finite");
    }
    return text;
}

void run_request_lease(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__RequestLeaseRequest *request = (const void *)task->request;
    struct error error = {0};
    char *text = specification(request, &error);
    if (text == NULL) {
        finish_error(task, &error);
        return;
    }
    const struct control_submission submission = {.specification = text,
                                                  .request_id = request->request_id};
    control_job_submit(control, &submission, on_job_changed, letter);
    free(text);
}

/* Answers the task where there is no such job. */
static bool lease_find(struct control *control, struct task *task, const char *name,
                       size_t *ret_index)
{
    struct error error = {0};
    if (control_job_find(control, name, ret_index, &error) < 0) {
        finish_error(task, &error);
        return false;
    }
    return true;
}

static void finish_lease(struct task *task, struct control *control, size_t index, int result,
                         const struct error *error)
{
    on_job_changed(control, task, index, result < 0 ? error : NULL);
}

void run_claim_lease(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ClaimLeaseRequest *request = (const void *)task->request;
    struct scratch scratch = {0};
    struct error error = {0};
    struct control_job job;
    char token[CONTROL_LEASE_TOKEN_SIZE];
    size_t index = 0;
    if (!lease_find(control, task, request->lease, &index)) {
        return;
    }
    if (control_lease_token(control, index, token, &error) < 0) {
        finish_error(task, &error);
        return;
    }
    Tidepool__V1__ClaimLeaseResponse *message =
        message_new(&scratch, &tidepool__v1__claim_lease_response__descriptor);
    if (message != NULL && control_job_at(control, index, &job)) {
        message->lease = encode_job(&scratch, &job);
        message->token = scratch_text(&scratch, token);
    }
    finish(task, &scratch, message);
}

void run_report_lease(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ReportLeaseRequest *request = (const void *)task->request;
    const struct control_progress progress = {
        .has_step = request->progress_case == TIDEPOOL__V1__REPORT_LEASE_REQUEST__PROGRESS_STEP,
        .step = request->step,
        .checkpointed_step = request->checkpointed_step};
    struct error error = {0};
    size_t index = 0;
    if (lease_find(control, task, request->lease, &index)) {
        int result = control_lease_report(control, index, request->token, &progress, &error);
        finish_lease(task, control, index, result, &error);
    }
}

void run_extend_lease(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ExtendLeaseRequest *request = (const void *)task->request;
    struct error error = {0};
    size_t index = 0;
    if (!lease_find(control, task, request->lease, &index)) {
        return;
    }
    int result =
        isfinite(request->seconds) && request->seconds > 0 && request->seconds <= EXTENSION_S_MAX
            ? control_lease_extend(control, index, request->token, request->seconds, &error)
            : error_set(&error, ERROR_INVALID_ARGUMENT, "seconds: %g is not in 0 … %g",
                        request->seconds, EXTENSION_S_MAX);
    finish_lease(task, control, index, result, &error);
}

void run_release_lease(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ReleaseLeaseRequest *request = (const void *)task->request;
    size_t index = 0;
    if (lease_find(control, task, request->lease, &index)) {
        control_lease_release(control, index, request->token, request->requeue, on_job_changed,
                              task);
    }
}

void run_resize_lease(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ResizeLeaseRequest *request = (const void *)task->request;
    size_t index = 0;
    if (lease_find(control, task, request->lease, &index)) {
        control_lease_resize(control, index, request->devices_min, request->devices_max,
                             on_job_changed, task);
    }
}
