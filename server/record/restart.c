/* restart.c: see restart.h. */
#include "server/record/restart.h"

#include <stdlib.h>

#include "server/record/log.h"

/* ---- what was told ---- */

struct told_key {
    uint64_t object;
    uint32_t part, kind;
};

/* False: the core shows it, or it is over. */
static bool key_of(const struct core_event *event, struct told_key *ret_key)
{
    switch (event->kind) {
    case CORE_EVENT_KIND_MEASURED:
        *ret_key = (struct told_key){.kind = event->kind_measured.kind};
        return true;
    case CORE_EVENT_ENDPOINT_SERVICE:
        *ret_key =
            (struct told_key){event->endpoint_service.endpoint, 0, event->endpoint_service.kind};
        return true;
    case CORE_EVENT_LEASE_SPEED:
        *ret_key = (struct told_key){event->lease_speed.lease, 0, event->lease_speed.kind};
        return true;
    case CORE_EVENT_RUNG_MEASURED:
        *ret_key = (struct told_key){event->rung_measured.lease, event->rung_measured.rung,
                                     event->rung_measured.kind};
        return true;
    default:
        return false;
    }
}

static bool is_about_the_same(const struct core_event *a, const struct core_event *b)
{
    struct told_key left, right;
    return a->kind == b->kind && key_of(a, &left) && key_of(b, &right) &&
           left.object == right.object && left.part == right.part && left.kind == right.kind;
}

static bool lease_is_over(const struct core *core, uint64_t lease)
{
    struct core_lease_view view;
    return !core_lease_find(core, lease, &view) || view.state == CORE_LEASE_ENDED;
}

static bool is_over(const struct core *core, const struct core_event *event)
{
    struct core_endpoint_view endpoint;
    switch (event->kind) {
    case CORE_EVENT_ENDPOINT_SERVICE:
        return !core_endpoint_find(core, event->endpoint_service.endpoint, &endpoint) ||
               endpoint.removing;
    case CORE_EVENT_LEASE_SPEED:
    case CORE_EVENT_RUNG_MEASURED:
        return lease_is_over(core, event->lease.lease);
    default:
        return false;
    }
}

static void forget_what_is_over(struct record_restart *restart, const struct core *core)
{
    size_t left = 0;
    for (size_t i = 0; i < restart->count; i++) {
        if (!is_over(core, &restart->told[i])) {
            restart->told[left++] = restart->told[i];
        }
    }
    restart->count = left;
}

static bool make_room(struct record_restart *restart, const struct core *core)
{
    if (restart->count < restart->capacity) {
        return true;
    }
    forget_what_is_over(restart, core);
    if (restart->count >= restart->capacity / 2) {
        size_t capacity = restart->capacity == 0 ? 16 : restart->capacity * 2;
        struct core_event *grown = realloc(restart->told, capacity * sizeof *grown);
        if (grown == NULL) {
            restart->failed = true;
            return restart->count < restart->capacity;
        }
        restart->told = grown;
        restart->capacity = capacity;
    }
    return true;
}

void record_restart_fini(struct record_restart *restart)
{
    free(restart->told);
    *restart = (struct record_restart){0};
}

void record_restart_note(struct record_restart *restart, const struct core *core,
                         const struct core_event *event)
{
    struct told_key key;
    if (!key_of(event, &key)) {
        return;
    }
    for (size_t i = 0; i < restart->count; i++) {
        if (is_about_the_same(&restart->told[i], event)) {
            restart->told[i] = *event;
            return;
        }
    }
    if (make_room(restart, core)) {
        restart->told[restart->count++] = *event;
    }
}

/* ---- writing ---- */

struct writing {
    const struct record_restart *restart;
    const struct core *core;
    struct record_bytes *bytes;
    uint64_t now_ns, before_ns;
};

static void put(struct writing *writing, struct core_event event)
{
    event.time_ns = writing->now_ns;
    record_event_write(writing->bytes, &event, &writing->before_ns);
}

static void put_told(struct writing *writing, enum core_event_kind kind)
{
    for (size_t i = 0; i < writing->restart->count; i++) {
        const struct core_event *told = &writing->restart->told[i];
        if (told->kind == kind && !is_over(writing->core, told)) {
            put(writing, *told);
        }
    }
}

static void put_device_flag(struct writing *writing, enum core_event_kind kind, uint64_t device,
                            bool on)
{
    if (on) {
        put(writing, (struct core_event){.kind = kind, .device_flag = {device, true}});
    }
}

static void put_device(struct writing *writing, const struct core_device_view *view)
{
    uint64_t device = view->device;
    put(writing, (struct core_event){.kind = CORE_EVENT_DEVICE_ADDED,
                                     .device_added = {.device = device,
                                                      .kind = view->kind,
                                                      .memory_bytes = view->memory_bytes,
                                                      .node = view->node,
                                                      .link = view->link,
                                                      .provider = view->provider,
                                                      .available_until_ns = view->reclaim_by_ns}});
    if (view->speed_permille != 1000) {
        put(writing, (struct core_event){.kind = CORE_EVENT_DEVICE_SPEED,
                                         .device_speed = {device, view->speed_permille}});
    }
    put_device_flag(writing, CORE_EVENT_DEVICE_SLOW, device, view->health == CORE_HEALTH_SLOW);
    put_device_flag(writing, CORE_EVENT_DEVICE_CORDONED, device, view->cordoned);
    put_device_flag(writing, CORE_EVENT_DEVICE_OCCUPIED, device, view->occupied);
    if (view->health == CORE_HEALTH_FAILED || view->health == CORE_HEALTH_QUARANTINED) {
        put(writing, (struct core_event){.kind = CORE_EVENT_DEVICE_FAILED, .device = {device}});
    }
}

static void put_devices(struct writing *writing)
{
    struct core_device_view view;
    for (size_t i = 0; core_device_at(writing->core, i, &view); i++) {
        put_device(writing, &view);
    }
    put_told(writing, CORE_EVENT_KIND_MEASURED);
}

static void put_teams(struct writing *writing)
{
    struct core_team_view view;
    for (size_t i = 0; core_team_at(writing->core, i, &view); i++) {
        if (view.added) {
            put(writing,
                (struct core_event){.kind = CORE_EVENT_TEAM_CHANGED, .team_spec = view.spec});
        }
    }
}

static void put_endpoints(struct writing *writing)
{
    struct core_endpoint_view view;
    for (size_t i = 0; core_endpoint_at(writing->core, i, &view); i++) {
        if (!view.removing) {
            put(writing,
                (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED, .endpoint_spec = view.spec});
        }
    }
    put_told(writing, CORE_EVENT_ENDPOINT_SERVICE);
}

static void put_leases(struct writing *writing)
{
    struct core_lease_view view;
    for (size_t i = 0; core_lease_at(writing->core, i, &view); i++) {
        if (view.state != CORE_LEASE_ENDED && view.state != CORE_LEASE_ENDING) {
            put(writing,
                (struct core_event){.kind = CORE_EVENT_RESTORED_LEASE, .lease_spec = view.spec});
        }
        if (view.state == CORE_LEASE_PAUSED) {
            put(writing,
                (struct core_event){.kind = CORE_EVENT_LEASE_PAUSED, .lease = {view.spec.lease}});
        }
    }
    put_told(writing, CORE_EVENT_LEASE_SPEED);
    put_told(writing, CORE_EVENT_RUNG_MEASURED);
}

static void put_grants(struct writing *writing)
{
    struct core_device_view view;
    for (size_t i = 0; core_device_at(writing->core, i, &view); i++) {
        if (view.lease == 0) {
            continue;
        }
        bool stopped = view.hold == CORE_HOLD_SUSPENDED;
        put(writing,
            (struct core_event){.kind = CORE_EVENT_RESTORED_GRANT,
                                .restored_grant = {.lease = view.lease,
                                                   .device = view.device,
                                                   .generation = view.generation,
                                                   .alive = view.hold != CORE_HOLD_KILLING &&
                                                            view.hold != CORE_HOLD_VERIFYING,
                                                   .stopped = stopped ? view.rung : CORE_RUNG_NONE,
                                                   .residue_bytes = view.residue_bytes}});
    }
}

static void put_instances(struct writing *writing)
{
    struct core_endpoint_view endpoint;
    struct core_device_view device;
    for (size_t i = 0; core_endpoint_at(writing->core, i, &endpoint); i++) {
        uint64_t number = endpoint.spec.endpoint;
        for (size_t j = 0; core_device_at(writing->core, j, &device) && !endpoint.removing; j++) {
            if (core_instance_find(writing->core, number, device.device) == CORE_INSTANCE_READY) {
                put(writing, (struct core_event){.kind = CORE_EVENT_RESTORED_INSTANCE,
                                                 .instance = {0, number, device.device}});
            }
        }
    }
}

static void put_progress(struct writing *writing)
{
    struct core_lease_view view;
    for (size_t i = 0; core_lease_at(writing->core, i, &view); i++) {
        if (view.run != 0 && view.step > 0 && view.devices + view.devices_stopped > 0) {
            put(writing,
                (struct core_event){.kind = CORE_EVENT_LEASE_PROGRESS,
                                    .lease_progress = {view.spec.lease, view.run, view.step,
                                                       view.checkpointed_step}});
        }
    }
}

void record_restart_write(const struct record_restart *restart, const struct core *core,
                          uint64_t now_ns, struct record_bytes *bytes)
{
    struct writing writing = {restart, core, bytes, now_ns, 0};
    put(&writing, (struct core_event){.kind = CORE_EVENT_HOLD, .hold = {core_hold_now(core)}});
    put_devices(&writing);
    put_teams(&writing);
    put_endpoints(&writing);
    put_leases(&writing);
    put_grants(&writing);
    put_instances(&writing);
    put(&writing, (struct core_event){.kind = CORE_EVENT_RECONCILE_DONE});
    put_progress(&writing);
    bytes->failed = bytes->failed || restart->failed;
}
