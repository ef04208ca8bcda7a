/* rig.c: see rig.h. */
#include "tests/unit/core/rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"

static void *grown(void *array, size_t *capacity, size_t count, size_t size)
{
    if (count > *capacity) {
        *capacity = count * 2;
        array = realloc(array, *capacity * size);
        assert_non_null(array);
    }
    return array;
}

struct rig *rig_create(const struct core_config *config)
{
    struct core_config defaults;
    core_config_init(&defaults);
    defaults.seed[0] = 1;
    defaults.store_epoch = 7;
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    rig->core = core_create(config != NULL ? config : &defaults);
    assert_non_null(rig->core);
    rig->answers = true;
    rig->answer_ns = MS(1);
    rig->place_ns = MS(20);
    rig->release_ns = MS(2);
    rig->stop_ns = MS(5);
    rig->resume_ns = MS(5);
    rig->now_ns = SECONDS(1);
    return rig;
}

void rig_destroy(struct rig *rig)
{
    core_destroy(rig->core);
    free(rig->actions);
    free(rig->pending);
    free(rig);
}

void rig_later(struct rig *rig, struct core_event event, uint64_t delay_ns)
{
    rig->pending =
        grown(rig->pending, &rig->pending_capacity, rig->pending_count + 1, sizeof *rig->pending);
    event.time_ns = rig->now_ns + delay_ns;
    rig->pending[rig->pending_count++] =
        (struct rig_pending){.event = event, .order = ++rig->order};
}

static bool is_stop(const struct core_action *action)
{
    return action->kind == CORE_ACTION_REVOKE &&
           (action->revoke.rung == CORE_RUNG_FREEZE || action->revoke.rung == CORE_RUNG_PAUSE ||
            action->revoke.rung == CORE_RUNG_SWAP);
}

/* With as much left in memory as the lease said. */
static struct core_event suspended(const struct rig *rig, const struct core_action *action)
{
    struct core_lease_spec spec = rig_lease_view(rig, action->revoke.lease).spec;
    enum core_rung rung = action->revoke.rung;
    return (struct core_event){
        .kind = CORE_EVENT_SUSPENDED,
        .suspended = {.action = action->id,
                      .device = action->revoke.device,
                      .residue_bytes = rung == CORE_RUNG_PAUSE  ? spec.pause_residue_bytes
                                       : rung == CORE_RUNG_SWAP ? spec.swap_residue_bytes
                                                                : spec.memory_bytes}};
}

static void answer(struct rig *rig, const struct core_action *action)
{
    struct core_event event = {0};
    uint64_t delay_ns = rig->answer_ns;
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        event.kind = action->kind == CORE_ACTION_PLACE ? CORE_EVENT_INSTANCE_READY
                                                       : CORE_EVENT_INSTANCE_STOPPED;
        event.instance.action = action->id;
        event.instance.endpoint = action->instance.endpoint;
        event.instance.device = action->instance.device;
        delay_ns = rig->place_ns;
        break;
    case CORE_ACTION_GRANT:
        event.kind = CORE_EVENT_ACTION_DONE;
        event.answer.action = action->id;
        event.answer.device = action->grant.device;
        break;
    case CORE_ACTION_REVOKE:
    case CORE_ACTION_KILL:
        if (action->revoke.rung == CORE_RUNG_NONE) {
            return;
        }
        if (is_stop(action)) {
            rig_later(rig, suspended(rig, action), rig->stop_ns);
            return;
        }
        event.kind = action->kind == CORE_ACTION_KILL ? CORE_EVENT_ACTION_DONE
                                                      : CORE_EVENT_REVOKE_ACKNOWLEDGED;
        event.answer.action = action->id;
        event.answer.device = action->revoke.device;
        delay_ns = rig->release_ns;
        break;
    case CORE_ACTION_RESUME:
        event.kind = CORE_EVENT_RESUMED;
        event.answer.action = action->id;
        event.answer.device = action->revoke.device;
        delay_ns = rig->resume_ns;
        break;
    case CORE_ACTION_VERIFY:
        event.kind = CORE_EVENT_RELEASE_VERIFIED;
        event.verified.action = action->id;
        event.verified.device = action->device.device;
        event.verified.gone = true;
        break;
    default:
        return;
    }
    rig_later(rig, event, delay_ns);
}

void rig_send(struct rig *rig, struct core_event event)
{
    char text[256];
    event.time_ns = rig->now_ns;
    if (rig->on_event != NULL) {
        rig->on_event(rig, &event);
    }
    if (rig->whole) {
        core_touch_all(rig->core);
    }
    rig->actions =
        grown(rig->actions, &rig->capacity, core_actions_max(rig->core), sizeof *rig->actions);
    rig->count = core_step(rig->core, &event, rig->actions);
    rig->steps++;
    if (!core_check(rig->core, text, sizeof text)) {
        fail_msg("%s seed %" PRIu64 ", step %" PRIu64 ", event %d: %s", rig->place, rig->seed,
                 rig->steps, (int)event.kind, text);
    }
    if (rig->on_step != NULL) {
        rig->on_step(rig, &event);
    }
    for (size_t i = 0; i < rig->count; i++) {
        const struct core_action *action = &rig->actions[i];
        rig->total[action->kind]++;
        if (action->kind == CORE_ACTION_SET_TIMER) {
            rig->timer_ns = action->timer.at_ns;
        }
        if (rig->on_action != NULL) {
            rig->on_action(rig, action);
        }
        if (rig->answers) {
            answer(rig, action);
        }
    }
}

static bool next_pending(const struct rig *rig, size_t *ret_index)
{
    for (size_t i = 0; i < rig->pending_count; i++) {
        const struct rig_pending *best = &rig->pending[i == 0 ? 0 : *ret_index];
        const struct rig_pending *one = &rig->pending[i];
        if (i == 0 || one->event.time_ns < best->event.time_ns ||
            (one->event.time_ns == best->event.time_ns && one->order < best->order)) {
            *ret_index = i;
        }
    }
    return rig->pending_count > 0;
}

void rig_run(struct rig *rig, uint64_t span_ns)
{
    uint64_t end_ns = rig->now_ns + span_ns;
    for (;;) {
        size_t index = 0;
        bool some = next_pending(rig, &index);
        uint64_t at_ns = some ? rig->pending[index].event.time_ns : UINT64_MAX;
        struct core_event event = {.kind = CORE_EVENT_TIMER};
        bool timer = rig->timer_ns != 0 && rig->timer_ns < at_ns;
        at_ns = timer ? rig->timer_ns : at_ns;
        if (at_ns > end_ns) {
            break;
        }
        if (timer) {
            rig->timer_ns = 0;
        } else {
            event = rig->pending[index].event;
            rig->pending[index] = rig->pending[--rig->pending_count];
        }
        rig->now_ns = at_ns > rig->now_ns ? at_ns : rig->now_ns;
        rig_send(rig, event);
    }
    rig->now_ns = end_ns;
}

const struct core_action *rig_find(const struct rig *rig, enum core_action_kind kind)
{
    for (size_t i = 0; i < rig->count; i++) {
        if (rig->actions[i].kind == kind) {
            return &rig->actions[i];
        }
    }
    return NULL;
}

size_t rig_count(const struct rig *rig, enum core_action_kind kind)
{
    size_t found = 0;
    for (size_t i = 0; i < rig->count; i++) {
        found += rig->actions[i].kind == kind;
    }
    return found;
}

void rig_device(struct rig *rig, uint64_t device)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                      .device_added = {.device = device}});
}

void rig_device_event(struct rig *rig, enum core_event_kind kind, uint64_t device)
{
    rig_send(rig, (struct core_event){.kind = kind, .device = {.device = device}});
}

void rig_device_flag(struct rig *rig, enum core_event_kind kind, uint64_t device, bool on)
{
    rig_send(rig, (struct core_event){.kind = kind, .device_flag = {.device = device, .on = on}});
}

void rig_endpoint(struct rig *rig, uint64_t endpoint, uint64_t slo_ns, uint64_t service_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = endpoint,
                                                        .slo_ns = slo_ns,
                                                        .target_permille = 990,
                                                        .devices_min = 1,
                                                        .devices_max = 16,
                                                        .kinds_mask = 1}});
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_ENDPOINT_SERVICE,
                      .endpoint_service = {.endpoint = endpoint, .service_ns = {service_ns}}});
}

struct core_lease_spec rig_lease_spec(uint64_t lease, uint32_t min, uint32_t max)
{
    return (struct core_lease_spec){.lease = lease,
                                    .devices_min = min,
                                    .devices_max = max,
                                    .kinds_mask = 1,
                                    .preemptible = true,
                                    .in_process = true};
}

struct core_lease_spec rig_outside_spec(uint64_t lease, uint32_t min, uint32_t max, uint32_t rungs)
{
    struct core_lease_spec spec = rig_lease_spec(lease, min, max);
    spec.in_process = false;
    spec.rungs_mask = rungs;
    return spec;
}

void rig_request(struct rig *rig, struct core_lease_spec spec)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_LEASE_REQUESTED, .lease_spec = spec});
}

void rig_lease(struct rig *rig, uint64_t lease, uint32_t min, uint32_t max)
{
    rig_request(rig, rig_lease_spec(lease, min, max));
}

void rig_lease_event(struct rig *rig, enum core_event_kind kind, uint64_t lease)
{
    rig_send(rig, (struct core_event){.kind = kind, .lease = {.lease = lease}});
}

void rig_reconcile(struct rig *rig)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_RECONCILE_DONE});
}

void rig_team(struct rig *rig, uint64_t team, uint32_t weight, uint32_t quota)
{
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_TEAM_CHANGED,
                                 .team_spec = {.team = team, .weight = weight, .quota = {quota}}});
}

void rig_sample(struct rig *rig, uint64_t device, uint64_t interval_ns, uint64_t serving_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_SAMPLE,
                                      .device_sample = {.device = device,
                                                        .interval_ns = interval_ns,
                                                        .serving_ns = serving_ns,
                                                        .slices = serving_ns > 0}});
}

void rig_danger(struct rig *rig, uint64_t endpoint, uint64_t projected_wait_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_DANGER,
                                      .endpoint_danger = {.endpoint = endpoint,
                                                          .projected_wait_ns = projected_wait_ns}});
}

void rig_load(struct rig *rig, uint64_t endpoint, uint64_t interval_ns, uint32_t arrivals)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_SAMPLE,
                                      .endpoint_sample = {.endpoint = endpoint,
                                                          .interval_ns = interval_ns,
                                                          .arrivals = arrivals}});
}

struct core_device_view rig_device_view(const struct rig *rig, uint64_t device)
{
    struct core_device_view view;
    assert_true(core_device_find(rig->core, device, &view));
    return view;
}

struct core_lease_view rig_lease_view(const struct rig *rig, uint64_t lease)
{
    struct core_lease_view view;
    assert_true(core_lease_find(rig->core, lease, &view));
    return view;
}

struct core_team_view rig_team_view(const struct rig *rig, uint64_t team)
{
    struct core_team_view view;
    assert_true(core_team_find(rig->core, team, &view));
    return view;
}

struct core_endpoint_view rig_endpoint_view(const struct rig *rig, uint64_t endpoint)
{
    struct core_endpoint_view view;
    assert_true(core_endpoint_find(rig->core, endpoint, &view));
    return view;
}

struct core_ledger rig_ledger(const struct rig *rig)
{
    struct core_ledger ledger;
    core_ledger_read(rig->core, rig->now_ns, &ledger);
    return ledger;
}

struct core_explanation rig_explanation(const struct rig *rig, enum core_what what, uint64_t device,
                                        uint64_t lease)
{
    struct core_explanation all[256];
    size_t count = core_explanations(rig->core, device, lease, 0, all, 256);
    for (size_t i = 0; i < count; i++) {
        if (all[i].what == what) {
            return all[i];
        }
    }
    fail_msg("no explanation '%s' for device %" PRIu64 ", lease %" PRIu64, core_what_name(what),
             device, lease);
    return all[0];
}
