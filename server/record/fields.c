/* fields.c: see fields.h. */
#include "server/record/fields.h"

#include <assert.h>
#include <string.h>

#define EVENT(member) ((struct core_event *)0)->member
/* A field of the event's part `part`, and an array of `type` in it. */
#define AT(part, field, sense)                                                                     \
    {                                                                                              \
        .name = #field, .offset = offsetof(struct core_event, part.field),                         \
        .size = sizeof EVENT(part.field), .count = 1, .meaning = RECORD_##sense                    \
    }
#define ARRAY(part, field, type, sense)                                                            \
    {                                                                                              \
        .name = #field, .offset = offsetof(struct core_event, part.field), .size = sizeof(type),   \
        .count = sizeof EVENT(part.field) / sizeof(type), .meaning = RECORD_##sense                \
    }

static const struct record_field device_spec_fields[] = {
    AT(device_added, device, NUMBER),
    AT(device_added, kind, NUMBER),
    AT(device_added, memory_bytes, BYTES),
    AT(device_added, node, NUMBER),
    AT(device_added, link, NUMBER),
    AT(device_added, provider, NUMBER),
    AT(device_added, available_until_ns, TIME),
};
static const struct record_field device_fields[] = {
    AT(device, device, NUMBER),
};
static const struct record_field device_flag_fields[] = {
    AT(device_flag, device, NUMBER),
    AT(device_flag, on, FLAG),
};
static const struct record_field device_time_fields[] = {
    AT(device_time, device, NUMBER),
    AT(device_time, by_ns, TIME),
};
static const struct record_field device_speed_fields[] = {
    AT(device_speed, device, NUMBER),
    AT(device_speed, speed_permille, NUMBER),
};
static const struct record_field device_sample_fields[] = {
    AT(device_sample, device, NUMBER),   AT(device_sample, interval_ns, SPAN),
    AT(device_sample, serving_ns, SPAN), AT(device_sample, waiting_ns, SPAN),
    AT(device_sample, restore_ns, SPAN), AT(device_sample, slices, NUMBER),
};
static const struct record_field kind_spec_fields[] = {
    AT(kind_measured, kind, NUMBER),
    ARRAY(kind_measured, speed_permille, uint32_t, NUMBER),
    AT(kind_measured, bandwidth_bytes_s, BYTES),
};
static const struct record_field endpoint_spec_fields[] = {
    AT(endpoint_spec, endpoint, NUMBER),
    AT(endpoint_spec, slo_ns, SPAN),
    AT(endpoint_spec, target_permille, NUMBER),
    AT(endpoint_spec, priority, SIGNED),
    AT(endpoint_spec, devices_min, NUMBER),
    AT(endpoint_spec, devices_max, NUMBER),
    AT(endpoint_spec, kinds_mask, NUMBER),
    AT(endpoint_spec, memory_bytes, BYTES),
    AT(endpoint_spec, work, WORK),
};
static const struct record_field endpoint_fields[] = {
    AT(endpoint, endpoint, NUMBER),
};
static const struct record_field endpoint_service_fields[] = {
    AT(endpoint_service, endpoint, NUMBER),
    AT(endpoint_service, kind, NUMBER),
    ARRAY(endpoint_service, service_ns, uint64_t, SPAN),
};
static const struct record_field endpoint_sample_fields[] = {
    AT(endpoint_sample, endpoint, NUMBER),     AT(endpoint_sample, interval_ns, SPAN),
    AT(endpoint_sample, arrivals, NUMBER),     AT(endpoint_sample, queue_length, NUMBER),
    AT(endpoint_sample, oldest_wait_ns, SPAN), AT(endpoint_sample, busy_ns, SPAN),
};
static const struct record_field endpoint_danger_fields[] = {
    AT(endpoint_danger, endpoint, NUMBER),
    AT(endpoint_danger, projected_wait_ns, SPAN),
    AT(endpoint_danger, queue_length, NUMBER),
};
static const struct record_field instance_fields[] = {
    AT(instance, action, ACTION),
    AT(instance, endpoint, NUMBER),
    AT(instance, device, NUMBER),
};
static const struct record_field lease_spec_fields[] = {
    AT(lease_spec, lease, NUMBER),
    AT(lease_spec, devices_min, NUMBER),
    AT(lease_spec, devices_max, NUMBER),
    AT(lease_spec, priority, SIGNED),
    AT(lease_spec, team, NUMBER),
    AT(lease_spec, kinds_mask, NUMBER),
    AT(lease_spec, memory_bytes, BYTES),
    AT(lease_spec, until_ns, TIME),
    AT(lease_spec, duration_ns, SPAN),
    AT(lease_spec, preemptible, FLAG),
    AT(lease_spec, in_process, FLAG),
    AT(lease_spec, work, WORK),
    AT(lease_spec, heartbeats, FLAG),
    AT(lease_spec, floor, NUMBER),
    AT(lease_spec, run_min_ns, SPAN),
    AT(lease_spec, revokes_per_hour, NUMBER),
    AT(lease_spec, stops_per_hour, NUMBER),
    AT(lease_spec, rungs_mask, NUMBER),
    AT(lease_spec, notice_ns, SPAN),
    AT(lease_spec, extension, FLAG),
    AT(lease_spec, extension_ns, SPAN),
    AT(lease_spec, stopped_cap_ns, SPAN),
    AT(lease_spec, pause_residue_bytes, BYTES),
    AT(lease_spec, swap_residue_bytes, BYTES),
};
static const struct record_field lease_resized_fields[] = {
    AT(lease_resized, lease, NUMBER),
    AT(lease_resized, devices_min, NUMBER),
    AT(lease_resized, devices_max, NUMBER),
};
static const struct record_field lease_fields[] = {
    AT(lease, lease, NUMBER),
};
static const struct record_field lease_released_fields[] = {
    AT(lease_released, lease, NUMBER),
    AT(lease_released, device, NUMBER),
    AT(lease_released, generation, GENERATION),
};
static const struct record_field lease_progress_fields[] = {
    AT(lease_progress, lease, NUMBER),
    AT(lease_progress, generation, GENERATION),
    AT(lease_progress, step, NUMBER),
    AT(lease_progress, checkpointed_step, NUMBER),
};
static const struct record_field lease_speed_fields[] = {
    AT(lease_speed, lease, NUMBER),
    AT(lease_speed, kind, NUMBER),
    AT(lease_speed, speed_permille, NUMBER),
};
static const struct record_field lease_heartbeat_fields[] = {
    AT(lease_heartbeat, lease, NUMBER),
    AT(lease_heartbeat, generation, GENERATION),
};
static const struct record_field team_spec_fields[] = {
    AT(team_spec, team, NUMBER),
    AT(team_spec, weight, NUMBER),
    ARRAY(team_spec, quota, uint32_t, NUMBER),
};
static const struct record_field team_fields[] = {
    AT(team, team, NUMBER),
};
static const struct record_field job_exited_fields[] = {
    AT(job_exited, lease, NUMBER), AT(job_exited, generation, GENERATION),
    AT(job_exited, kept, FLAG),    AT(job_exited, again, FLAG),
    AT(job_exited, failed, FLAG),
};
static const struct record_field answer_fields[] = {
    AT(answer, action, ACTION),
    AT(answer, device, NUMBER),
};
static const struct record_field verified_fields[] = {
    AT(verified, action, ACTION),
    AT(verified, device, NUMBER),
    AT(verified, gone, FLAG),
};
static const struct record_field suspended_fields[] = {
    AT(suspended, action, ACTION),
    AT(suspended, device, NUMBER),
    AT(suspended, residue_bytes, BYTES),
};
static const struct record_field extension_fields[] = {
    AT(extension, lease, NUMBER),
    AT(extension, device, NUMBER),
    AT(extension, generation, GENERATION),
    AT(extension, extension_ns, SPAN),
};
static const struct record_field rung_measured_fields[] = {
    AT(rung_measured, lease, NUMBER), AT(rung_measured, rung, RUNG),
    AT(rung_measured, kind, NUMBER),  AT(rung_measured, take_ns, SPAN),
    AT(rung_measured, give_ns, SPAN),
};
static const struct record_field mode_fields[] = {
    AT(mode, mode, MODE),
};
static const struct record_field hold_fields[] = {
    AT(hold, on, FLAG),
};
static const struct record_field restored_grant_fields[] = {
    AT(restored_grant, lease, NUMBER),          AT(restored_grant, device, NUMBER),
    AT(restored_grant, generation, GENERATION), AT(restored_grant, alive, FLAG),
    AT(restored_grant, stopped, RUNG),          AT(restored_grant, stopped_ns, SPAN),
    AT(restored_grant, residue_bytes, BYTES),
};

#define KIND(name, fields)                                                                         \
    {                                                                                              \
        name, fields, sizeof(fields) / sizeof *(fields)                                            \
    }

static const struct record_fields events[CORE_EVENT_COUNT] = {
    [CORE_EVENT_TIMER] = {"timer", NULL, 0},
    [CORE_EVENT_DEVICE_ADDED] = KIND("device_added", device_spec_fields),
    [CORE_EVENT_DEVICE_REMOVED] = KIND("device_removed", device_fields),
    [CORE_EVENT_DEVICE_FAILED] = KIND("device_failed", device_fields),
    [CORE_EVENT_DEVICE_RECOVERED] = KIND("device_recovered", device_fields),
    [CORE_EVENT_DEVICE_SLOW] = KIND("device_slow", device_flag_fields),
    [CORE_EVENT_DEVICE_SPEED] = KIND("device_speed", device_speed_fields),
    [CORE_EVENT_DEVICE_CORDONED] = KIND("device_cordoned", device_flag_fields),
    [CORE_EVENT_DEVICE_OCCUPIED] = KIND("device_occupied", device_flag_fields),
    [CORE_EVENT_DEVICE_RECLAIM_BY] = KIND("device_reclaim_by", device_time_fields),
    [CORE_EVENT_DEVICE_SAMPLE] = KIND("device_sample", device_sample_fields),
    [CORE_EVENT_KIND_MEASURED] = KIND("kind_measured", kind_spec_fields),
    [CORE_EVENT_ENDPOINT_ADDED] = KIND("endpoint_added", endpoint_spec_fields),
    [CORE_EVENT_ENDPOINT_CHANGED] = KIND("endpoint_changed", endpoint_spec_fields),
    [CORE_EVENT_ENDPOINT_REMOVED] = KIND("endpoint_removed", endpoint_fields),
    [CORE_EVENT_ENDPOINT_SERVICE] = KIND("endpoint_service", endpoint_service_fields),
    [CORE_EVENT_ENDPOINT_SAMPLE] = KIND("endpoint_sample", endpoint_sample_fields),
    [CORE_EVENT_ENDPOINT_DANGER] = KIND("endpoint_danger", endpoint_danger_fields),
    [CORE_EVENT_INSTANCE_READY] = KIND("instance_ready", instance_fields),
    [CORE_EVENT_INSTANCE_FAILED] = KIND("instance_failed", instance_fields),
    [CORE_EVENT_INSTANCE_STOPPED] = KIND("instance_stopped", instance_fields),
    [CORE_EVENT_LEASE_REQUESTED] = KIND("lease_requested", lease_spec_fields),
    [CORE_EVENT_LEASE_RESIZED] = KIND("lease_resized", lease_resized_fields),
    [CORE_EVENT_LEASE_PAUSED] = KIND("lease_paused", lease_fields),
    [CORE_EVENT_LEASE_RESUMED] = KIND("lease_resumed", lease_fields),
    [CORE_EVENT_LEASE_CANCELLED] = KIND("lease_cancelled", lease_fields),
    [CORE_EVENT_LEASE_RELEASED] = KIND("lease_released", lease_released_fields),
    [CORE_EVENT_LEASE_SPEED] = KIND("lease_speed", lease_speed_fields),
    [CORE_EVENT_LEASE_PROGRESS] = KIND("lease_progress", lease_progress_fields),
    [CORE_EVENT_LEASE_HEARTBEAT] = KIND("lease_heartbeat", lease_heartbeat_fields),
    [CORE_EVENT_JOB_EXITED] = KIND("job_exited", job_exited_fields),
    [CORE_EVENT_REVOKE_ACKNOWLEDGED] = KIND("revoke_acknowledged", answer_fields),
    [CORE_EVENT_RELEASE_VERIFIED] = KIND("release_verified", verified_fields),
    [CORE_EVENT_ACTION_DONE] = KIND("action_done", answer_fields),
    [CORE_EVENT_ACTION_FAILED] = KIND("action_failed", answer_fields),
    [CORE_EVENT_SUSPENDED] = KIND("suspended", suspended_fields),
    [CORE_EVENT_RESUMED] = KIND("resumed", answer_fields),
    [CORE_EVENT_EXTENSION_ASKED] = KIND("extension_asked", extension_fields),
    [CORE_EVENT_RUNG_MEASURED] = KIND("rung_measured", rung_measured_fields),
    [CORE_EVENT_TEAM_CHANGED] = KIND("team_changed", team_spec_fields),
    [CORE_EVENT_TEAM_REMOVED] = KIND("team_removed", team_fields),
    [CORE_EVENT_MODE_CHANGED] = KIND("mode_changed", mode_fields),
    [CORE_EVENT_HOLD] = KIND("hold", hold_fields),
    [CORE_EVENT_RESTORED_LEASE] = KIND("restored_lease", lease_spec_fields),
    [CORE_EVENT_RESTORED_GRANT] = KIND("restored_grant", restored_grant_fields),
    [CORE_EVENT_RESTORED_INSTANCE] = KIND("restored_instance", instance_fields),
    [CORE_EVENT_RECONCILE_DONE] = {"reconcile_done", NULL, 0},
};

#define CONFIG(field) ((struct core_config *)0)->field
#define SETTING_NAMED(text, field, sense)                                                          \
    {                                                                                              \
        .name = text, .offset = offsetof(struct core_config, field), .size = sizeof CONFIG(field), \
        .count = 1, .meaning = RECORD_##sense                                                      \
    }
#define SETTING(field, sense) SETTING_NAMED(#field, field, sense)
#define PRIOR(name, rung)                                                                          \
    SETTING_NAMED(name "_take_ns", rung_prior[rung].take_ns, SPAN),                                \
        SETTING_NAMED(name "_give_ns", rung_prior[rung].give_ns, SPAN)

static const struct record_field settings[] = {
    {.name = "seed", .offset = offsetof(struct core_config, seed), .size = 8, .count = 2},
    SETTING(store_epoch, NUMBER),
    SETTING(generation, NUMBER),
    SETTING(mode, MODE),
    SETTING(late_budget_ppm, NUMBER),
    SETTING(demand_fast_ns, SPAN),
    SETTING(demand_slow_ns, SPAN),
    SETTING(load_high_permille, NUMBER),
    SETTING(load_low_permille, NUMBER),
    SETTING(danger_hold_ns, SPAN),
    SETTING(utilisation_ns, SPAN),
    SETTING(sample_stale_ns, SPAN),
    SETTING(quiet_ns, SPAN),
    SETTING(shrink_high_permille, NUMBER),
    SETTING(shrink_after_ns, SPAN),
    SETTING(shrink_low_permille, NUMBER),
    SETTING(cool_down_ns, SPAN),
    SETTING(hold_min_ns, SPAN),
    SETTING(shrink_deadline_ns, SPAN),
    SETTING(notice_ns, SPAN),
    SETTING(extension_ns, SPAN),
    SETTING(suspend_deadline_ns, SPAN),
    SETTING(stopped_cap_ns, SPAN),
    SETTING(sustained_ns, SPAN),
    PRIOR("none", CORE_RUNG_NONE),
    PRIOR("free", CORE_RUNG_FREE),
    PRIOR("yield", CORE_RUNG_YIELD),
    PRIOR("shrink", CORE_RUNG_SHRINK),
    PRIOR("freeze", CORE_RUNG_FREEZE),
    PRIOR("pause", CORE_RUNG_PAUSE),
    PRIOR("swap", CORE_RUNG_SWAP),
    PRIOR("notice", CORE_RUNG_NOTICE),
    PRIOR("kill", CORE_RUNG_KILL),
    SETTING(restore_prior_ns, SPAN),
    SETTING(stopped_prior_ns, SPAN),
    SETTING(kill_bound_ns, SPAN),
    SETTING(action_timeout_ns, SPAN),
    SETTING(place_timeout_ns, SPAN),
    SETTING(retry_ns, SPAN),
    SETTING(age_ns, SPAN),
    SETTING(overtake_ns, SPAN),
    SETTING(usage_half_life_ns, SPAN),
    SETTING(heartbeat_lost_ns, SPAN),
    SETTING(retries, NUMBER),
    SETTING(credit_ns, SPAN),
    SETTING(credit_fades_ns, SPAN),
    SETTING(outlook_ns, SPAN),
    SETTING(slow_permille, NUMBER),
    SETTING(drain_permille, NUMBER),
    SETTING(drain_after_ns, SPAN),
    SETTING(health_budget_permille, NUMBER),
    SETTING(leave_lead_ns, SPAN),
    SETTING(leave_useful_ns, SPAN),
    SETTING(moves_per_hour, NUMBER),
    SETTING(moves_extra, NUMBER),
    SETTING(ended_kept, NUMBER),
    SETTING(explanations_kept, NUMBER),
};

static const struct record_fields config = KIND("config", settings);

const struct record_fields *record_event_fields(enum core_event_kind kind)
{
    assert(kind < CORE_EVENT_COUNT);
    return &events[kind];
}

const struct record_fields *record_config_fields(void)
{
    return &config;
}

uint64_t record_field_read(const void *object, const struct record_field *field, size_t index)
{
    const unsigned char *at = (const unsigned char *)object + field->offset + index * field->size;
    uint64_t wide;
    uint32_t narrow;
    assert(index < field->count);
    switch (field->size) {
    case 1:
        return *(const bool *)at;
    case 4:
        memcpy(&narrow, at, sizeof narrow);
        return field->meaning == RECORD_SIGNED ? (uint64_t)(int64_t)(int32_t)narrow : narrow;
    default:
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
}

void record_field_write(void *object, const struct record_field *field, size_t index,
                        uint64_t value)
{
    unsigned char *at = (unsigned char *)object + field->offset + index * field->size;
    uint32_t narrow = (uint32_t)value;
    assert(index < field->count);
    switch (field->size) {
    case 1:
        *(bool *)at = value != 0;
        break;
    case 4:
        memcpy(at, &narrow, sizeof narrow);
        break;
    default:
        memcpy(at, &value, sizeof value);
    }
}

bool record_field_fits(const struct record_field *field, uint64_t value)
{
    switch (field->size) {
    case 1:
        return value <= 1;
    case 4:
        return field->meaning == RECORD_SIGNED
                   ? (int64_t)value >= INT32_MIN && (int64_t)value <= INT32_MAX
                   : value <= UINT32_MAX;
    default:
        return true;
    }
}
