/* control_adjust.c: calls that change settings while the server runs, or only say what would come
 * of that. */
#include <math.h>
#include <stdlib.h>

#include "server/base/clock.h"
#include "server/control/change.h"
#include "server/control/view.h"
#include "server/rpc/control_service.h"

/* ---- the terms ---- */

void terms_read(const struct task *task, const Tidepool__V1__Terms *wish, struct terms *ret_terms)
{
    *ret_terms = (struct terms){.terms = {.reason = ""}};
    if (task->by_unix) {
        snprintf(ret_terms->actor, sizeof ret_terms->actor, "uid %u", (unsigned)task->uid);
    } else {
        snprintf(ret_terms->actor, sizeof ret_terms->actor, "token");
    }
    ret_terms->terms.actor = ret_terms->actor;
    if (wish == NULL) {
        return;
    }
    if (wish->actor[0] != '\0') {
        ret_terms->terms.actor = wish->actor;
    }
    ret_terms->terms.reason = wish->reason;
    ret_terms->terms.expires_in_ns =
        wish->expires_in_s < UINT64_MAX / NS_PER_S ? wish->expires_in_s * NS_PER_S : UINT64_MAX;
    ret_terms->terms.expected_revision = wish->expected_revision;
    ret_terms->terms.validate_only = wish->validate_only;
}

/* More than any bound when it makes no sense. */
static uint64_t ns_of(double seconds)
{
    return seconds >= 0 && seconds < 1e9 ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
}

static bool validates(const Tidepool__V1__Terms *terms)
{
    return terms != NULL && terms->validate_only;
}

/* ---- answers ---- */

bool would_add(struct task *task, struct control *control, struct scratch *scratch,
               const Tidepool__V1__DryRunRequest *change, Tidepool__V1__DryRunResponse **ret_would)
{
    struct error error = {0};
    *ret_would = dry_run(scratch, control, change, &error);
    if (error.code != ERROR_NONE) {
        scratch_free(scratch);
        finish_error(task, &error);
        return false;
    }
    return true;
}

static void finish_changed_device(struct task *task, struct control *control, size_t index,
                                  const Tidepool__V1__DryRunRequest *change)
{
    struct scratch scratch = {0};
    struct control_device device;
    Tidepool__V1__ChangedDevice answer = TIDEPOOL__V1__CHANGED_DEVICE__INIT;
    if (change != NULL && !would_add(task, control, &scratch, change, &answer.would)) {
        return;
    }
    if (control_device_at(control, index, &device)) {
        answer.device = encode_device(&scratch, &device);
    }
    finish(task, &scratch, &answer);
}

static void on_cordoned(struct control *control, void *context, size_t index,
                        const struct error *error)
{
    struct task *task = context;
    Tidepool__V1__CordonDeviceRequest *request = (void *)(uintptr_t)task->request;
    Tidepool__V1__DryRunRequest change = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    change.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_CORDON_DEVICE;
    change.cordon_device = request;
    if (error != NULL) {
        finish_error(task, error);
    } else {
        finish_changed_device(task, control, index, validates(request->terms) ? &change : NULL);
    }
}

static void on_uncordoned(struct control *control, void *context, size_t index,
                          const struct error *error)
{
    struct task *task = context;
    Tidepool__V1__UncordonDeviceRequest *request = (void *)(uintptr_t)task->request;
    Tidepool__V1__DryRunRequest change = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    change.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_UNCORDON_DEVICE;
    change.uncordon_device = request;
    if (error != NULL) {
        finish_error(task, error);
    } else {
        finish_changed_device(task, control, index, validates(request->terms) ? &change : NULL);
    }
}

/* A device that leaves, for whatever reason. */
static void finish_leaving(struct task *task, struct control *control, size_t index, char *device,
                           double within_s, bool validate_only)
{
    Tidepool__V1__DryRunRequest change = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    Tidepool__V1__RemoveDevice leaving = TIDEPOOL__V1__REMOVE_DEVICE__INIT;
    leaving.device = device;
    leaving.within_s = fmin(within_s, 3600); /* as far as a trial looks */
    change.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_REMOVE_DEVICE;
    change.remove_device = &leaving;
    change.horizon_s = leaving.within_s;
    finish_changed_device(task, control, index, validate_only ? &change : NULL);
}

static void on_drained(struct control *control, void *context, size_t index,
                       const struct error *error)
{
    struct task *task = context;
    const Tidepool__V1__DrainDeviceRequest *request = (const void *)task->request;
    if (error != NULL) {
        finish_error(task, error);
    } else {
        finish_leaving(task, control, index, request->device, request->within_s,
                       validates(request->terms));
    }
}

static void on_reclaimed(struct control *control, void *context, size_t index,
                         const struct error *error)
{
    struct task *task = context;
    const Tidepool__V1__ReclaimDeviceRequest *request = (const void *)task->request;
    bool leaves = request->when_case == TIDEPOOL__V1__RECLAIM_DEVICE_REQUEST__WHEN_WITHIN_S;
    if (error != NULL) {
        finish_error(task, error);
    } else if (leaves) {
        finish_leaving(task, control, index, request->device, request->within_s,
                       validates(request->terms));
    } else {
        finish_changed_device(task, control, index, NULL);
    }
}

/* ---- devices ---- */

/* False: there is none, the task is over. */
static bool device_find(struct control *control, struct task *task, const char *name,
                        size_t *ret_index)
{
    struct error error = {0};
    bool found = control_device_find(control, name, ret_index, &error) == 0;
    if (!found) {
        finish_error(task, &error);
    }
    return found;
}

void run_cordon_device(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__CordonDeviceRequest *request = (const void *)task->request;
    struct terms terms;
    size_t index = 0;
    terms_read(task, request->terms, &terms);
    if (device_find(control, task, request->device, &index)) {
        control_device_cordon(control, index, true, &terms.terms, on_cordoned, task);
    }
}

void run_uncordon_device(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__UncordonDeviceRequest *request = (const void *)task->request;
    struct terms terms;
    size_t index = 0;
    terms_read(task, request->terms, &terms);
    if (device_find(control, task, request->device, &index)) {
        control_device_cordon(control, index, false, &terms.terms, on_uncordoned, task);
    }
}

void run_drain_device(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__DrainDeviceRequest *request = (const void *)task->request;
    struct terms terms;
    size_t index = 0;
    terms_read(task, request->terms, &terms);
    if (device_find(control, task, request->device, &index)) {
        control_device_drain(control, index, ns_of(request->within_s), &terms.terms, on_drained,
                             task);
    }
}

void run_reclaim_device(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__ReclaimDeviceRequest *request = (const void *)task->request;
    struct error error = {0};
    struct terms terms;
    size_t index = 0;
    bool leaves = request->when_case == TIDEPOOL__V1__RECLAIM_DEVICE_REQUEST__WHEN_WITHIN_S;
    bool stays =
        request->when_case == TIDEPOOL__V1__RECLAIM_DEVICE_REQUEST__WHEN_STAYS && request->stays;
    terms_read(task, request->terms, &terms);
    if (leaves == stays) {
        error_set(&error, ERROR_INVALID_ARGUMENT,
                  "reclaim: give within_s, or stays = true when it is not wanted back any more");
        finish_error(task, &error);
    } else if (device_find(control, task, request->device, &index)) {
        uint64_t within_ns = leaves ? ns_of(request->within_s) : 0;
        control_device_reclaim(control, index, within_ns, stays, &terms.terms, on_reclaimed, task);
    }
}

/* ---- endpoints ---- */

static struct control_endpoint_wish wish_of(const Tidepool__V1__SetEndpointRequest *request)
{
    return (struct control_endpoint_wish){
        .sets_min = request->devices_min_or_not_case != 0,
        .sets_max = request->devices_max_or_not_case != 0,
        .sets_slo = request->slo_ms_or_not_case != 0,
        .sets_priority = request->priority_or_not_case != 0,
        .devices_min = request->devices_min,
        .devices_max = request->devices_max,
        .slo_ms = request->slo_ms,
        .priority = request->priority <= INT32_MAX ? (int32_t)request->priority : INT32_MAX,
    };
}

/* As it would be, for a trial. */
static void fill_change(const struct control_endpoint *endpoint,
                        const struct control_endpoint_wish *wish,
                        Tidepool__V1__ChangeEndpoint *ret_change)
{
    ret_change->slo_ms = wish->sets_slo ? wish->slo_ms : 0;
    ret_change->devices_min = wish->sets_min ? wish->devices_min : endpoint->devices_min;
    ret_change->devices_max = wish->sets_max ? wish->devices_max : 0;
    ret_change->priority = wish->sets_priority ? wish->priority : endpoint->priority;
}

static void on_endpoint_set(struct control *control, void *context, size_t index,
                            const struct error *error)
{
    struct task *task = context;
    const Tidepool__V1__SetEndpointRequest *request = (const void *)task->request;
    struct scratch scratch = {0};
    struct control_endpoint endpoint;
    struct control_endpoint_wish wish = wish_of(request);
    Tidepool__V1__ChangedEndpoint answer = TIDEPOOL__V1__CHANGED_ENDPOINT__INIT;
    Tidepool__V1__DryRunRequest change = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    Tidepool__V1__ChangeEndpoint settings = TIDEPOOL__V1__CHANGE_ENDPOINT__INIT;
    if (error != NULL) {
        finish_error(task, error);
        return;
    }
    if (control_endpoint_at(control, index, &endpoint)) {
        answer.endpoint = encode_endpoint(&scratch, &endpoint);
        settings.name = request->name;
        fill_change(&endpoint, &wish, &settings);
    }
    change.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_CHANGE_ENDPOINT;
    change.change_endpoint = &settings;
    if (!validates(request->terms) || would_add(task, control, &scratch, &change, &answer.would)) {
        finish(task, &scratch, &answer);
    }
}

void run_set_endpoint(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__SetEndpointRequest *request = (const void *)task->request;
    struct control_endpoint_wish wish = wish_of(request);
    struct error error = {0};
    struct terms terms;
    size_t index = 0;
    terms_read(task, request->terms, &terms);
    if (control_endpoint_find(control, request->name, &index, &error) < 0) {
        finish_error(task, &error);
    } else {
        control_endpoint_set(control, index, &wish, &terms.terms, on_endpoint_set, task);
    }
}

/* ---- overrides ---- */

static Tidepool__V1__Override *encode_override(struct scratch *scratch,
                                               const struct control_override *override)
{
    Tidepool__V1__Override *message = message_new(scratch, &tidepool__v1__override__descriptor);
    if (message != NULL) {
        message->object = scratch_text(scratch, override->object);
        message->name = scratch_text(scratch, override->name);
        message->field = scratch_text(scratch, override->field);
        message->value = scratch_text(scratch, override->value);
        message->configured = scratch_text(scratch, override->configured);
        message->actor = scratch_text(scratch, override->actor);
        message->reason = scratch_text(scratch, override->reason);
        message->made_wall_ns = override->made_wall_ns;
        message->expires_wall_ns = override->expires_wall_ns;
    }
    return message;
}

void run_list_overrides(struct control *control, struct control_call *letter)
{
    struct scratch scratch = {0};
    Tidepool__V1__ListOverridesResponse answer = TIDEPOOL__V1__LIST_OVERRIDES_RESPONSE__INIT;
    struct control_override override;
    size_t count = 0;
    while (control_override_at(control, count, &override)) {
        count++;
    }
    answer.revision = control_revision(control);
    answer.overrides = scratch_take(&scratch, count + 1, sizeof *answer.overrides);
    for (size_t i = 0; answer.overrides != NULL && i < count; i++) {
        control_override_at(control, i, &override);
        answer.overrides[answer.n_overrides++] = encode_override(&scratch, &override);
    }
    finish((struct task *)letter, &scratch, &answer);
}

static void on_dropped(struct control *control, void *context, size_t index,
                       const struct error *error)
{
    (void)index;
    if (error != NULL) {
        finish_error(context, error);
    } else {
        run_list_overrides(control, context);
    }
}

void run_drop_override(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__DropOverrideRequest *request = (const void *)task->request;
    const struct control_override_name which = {request->object, request->name, request->field};
    struct terms terms;
    terms_read(task, request->terms, &terms);
    control_override_drop(control, &which, &terms.terms, on_dropped, task);
}
