/* status.c: the server as a whole. */
#include <string.h>

#include "server/control/state.h"

static void count_endpoints(struct control *control, struct control_status *status)
{
    for (size_t i = 0; i < control->endpoint_count; i++) {
        const struct endpoint_entry *endpoint = control->endpoints[i];
        struct endpoint_statistics none = {0};
        const struct endpoint_statistics *statistics =
            endpoint->statistics != NULL ? endpoint->statistics : &none;
        status->endpoints_ready += endpoint_entry_state(endpoint) == CONTROL_ENDPOINT_READY;
        status->requests_ok += statistics->success;
        status->requests_late += statistics->late;
        for (int j = 0; j < FAILURE_COUNT; j++) {
            status->requests_failed += statistics->failed[j];
        }
        for (int j = 0; j < REFUSAL_COUNT; j++) {
            status->requests_failed += statistics->refused[j];
        }
        status->requests_per_s += endpoint->requests_per_s;
        if (endpoint->twin != NULL) {
            struct twin_totals totals = twin_totals(endpoint->twin);
            status->twin_requests += totals.requests;
            status->late_total += totals.late;
            status->late_by_handover += totals.late_by_handover;
        }
    }
}

static void count_others(struct control *control, struct control_status *status)
{
    for (uint32_t i = 0; i < control->device_count; i++) {
        enum control_device_state state = control->devices[i].shown.state;
        status->devices_failed +=
            state == CONTROL_DEVICE_FAILED || state == CONTROL_DEVICE_QUARANTINED;
    }
    for (size_t i = 0; i < control->job_count; i++) {
        status->jobs_active += !job_ended(control->jobs[i]);
        status->jobs_running += control->jobs[i]->state == CONTROL_JOB_RUNNING;
    }
}

void control_status(struct control *control, struct control_status *ret_status)
{
    const struct config *config = control->config;
    *ret_status = (struct control_status){
        .revision = control->status_revisions.any,
        .state_revision = control->status_revisions.state,
        .start_wall_ns = control->start_wall_ns,
        .now_wall_ns = clock_pace_wall_ns(&control->pace),
        .uptime_ns = clock_pace_now_ns(&control->pace) - control->start_ns,
        .store_epoch = store_epoch(control->store),
        .store_warning = store_warning(control->store),
        .store_errors = atomic_load(&control->store_errors),
        .state_directory = config->state,
        .model_repository = config->model_repository != NULL ? config->model_repository : "",
        .listeners = control->listeners,
        .listener_count = control->listener_count,
        .mode = core_mode_now(control->core),
        .hold = core_hold_now(control->core),
        .hold_reason = control->hold_reason != NULL ? control->hold_reason : "",
        .hold_since_wall_ns = control->hold_since_wall_ns,
        .ready = serve_ready(control->serve),
        .draining = serve_draining(control->serve),
        .testing = atomic_load(&control->testing),
        .devices = control->device_count,
        .endpoints = (uint32_t)control->endpoint_count,
        .requests_ok = control->gone.requests_ok,
        .requests_failed = control->gone.requests_failed,
        .requests_late = control->gone.requests_late,
        .twin_requests = control->gone.twin_requests,
        .late_total = control->gone.late_total,
        .late_by_handover = control->gone.late_by_handover,
    };
    count_endpoints(control, ret_status);
    count_others(control, ret_status);
    core_health_read(control->core, &ret_status->health);
    core_ledger_read(control->core, control->now_ns, &ret_status->ledger);
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        ret_status->ever_ns[account] = core_sum_clip(control->ever_before_ns[account] +
                                                     ret_status->ledger.account_ns[account]);
    }
}
