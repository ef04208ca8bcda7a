/* endpoints.c: the endpoints as objects: their list, their specification for the core, their view.
 */
#include <stdlib.h>
#include <string.h>

#include "server/base/options.h"
#include "server/control/state.h"

/* ---- the list
 * ------------------------------------------------------------------------------------ */

struct endpoint_entry *endpoint_by_number(const struct control *control, uint64_t number,
                                          size_t *ret_index)
{
    for (size_t i = 0; i < control->endpoint_count && number != 0; i++) {
        if (control->endpoints[i]->number == number) {
            if (ret_index != NULL) {
                *ret_index = i;
            }
            return control->endpoints[i];
        }
    }
    return NULL;
}

struct endpoint_entry *endpoint_by_name(const struct control *control, const char *name,
                                        size_t *ret_index)
{
    for (size_t i = 0; i < control->endpoint_count; i++) {
        if (strcmp(control->endpoints[i]->name, name) == 0) {
            if (ret_index != NULL) {
                *ret_index = i;
            }
            return control->endpoints[i];
        }
    }
    return NULL;
}

struct endpoint_entry *endpoint_entry_create(struct control *control, const char *name)
{
    if (control->endpoint_count == control->endpoint_capacity) {
        size_t capacity = control->endpoint_capacity == 0 ? 16 : control->endpoint_capacity * 2;
        struct endpoint_entry **grown =
            realloc(control->endpoints, capacity * sizeof control->endpoints[0]);
        if (grown == NULL) {
            return NULL;
        }
        control->endpoints = grown;
        control->endpoint_capacity = capacity;
    }
    struct endpoint_entry *endpoint = calloc(1, sizeof *endpoint);
    if (endpoint == NULL) {
        return NULL;
    }
    endpoint->number = ++control->endpoint_number;
    endpoint->runtime = "";
    snprintf(endpoint->name, sizeof endpoint->name, "%s", name);
    control->endpoints[control->endpoint_count++] = endpoint;
    revision_touch(control, &endpoint->revisions, true);
    return endpoint;
}

void endpoint_entry_destroy(struct endpoint_entry *endpoint)
{
    if (endpoint != NULL) {
        twin_destroy(endpoint->twin);
        free(endpoint->window);
        free(endpoint->statistics);
        free(endpoint->path);
        free(endpoint);
    }
}

static void keep_totals(struct control *control, const struct endpoint_entry *endpoint)
{
    const struct endpoint_statistics *statistics = endpoint->statistics;
    if (statistics != NULL) {
        control->gone.requests_ok += statistics->success;
        control->gone.requests_late += statistics->late;
        for (int i = 0; i < FAILURE_COUNT; i++) {
            control->gone.requests_failed += statistics->failed[i];
        }
        for (int i = 0; i < REFUSAL_COUNT; i++) {
            control->gone.requests_failed += statistics->refused[i];
        }
    }
    if (endpoint->twin != NULL) {
        struct twin_totals totals = twin_totals(endpoint->twin);
        control->gone.twin_requests += totals.requests;
        control->gone.late_total += totals.late;
        control->gone.late_by_handover += totals.late_by_handover;
    }
}

void endpoint_entry_remove(struct control *control, struct endpoint_entry *endpoint)
{
    size_t index = 0;
    keep_totals(control, endpoint);
    revision_removed(control, false, endpoint->name);
    if (endpoint_by_number(control, endpoint->number, &index) == endpoint) {
        memmove(&control->endpoints[index], &control->endpoints[index + 1],
                (--control->endpoint_count - index) * sizeof control->endpoints[0]);
    }
    endpoint_entry_destroy(endpoint);
}

/* ---- for the core
 * ---------------------------------------------------------------------------------- */

void endpoint_fill_spec(const struct control *control, const struct endpoint_entry *endpoint,
                        struct core_endpoint_spec *ret_spec)
{
    uint32_t most = endpoint->devices_max < control->device_count ? endpoint->devices_max
                                                                  : control->device_count;
    *ret_spec = (struct core_endpoint_spec){
        .endpoint = endpoint->number,
        .slo_ns = endpoint->slo_ns,
        .target_permille = (uint32_t)(endpoint->slo_target * 1000 + 0.5),
        .priority = endpoint->priority,
        .devices_min = endpoint->devices_min < most ? endpoint->devices_min : most,
        .devices_max = most > 0 ? most : 1,
        .kinds_mask = endpoint->kinds_mask,
        .memory_bytes = endpoint->memory_bytes,
    };
}

void endpoint_tell_service(struct control *control, struct endpoint_entry *endpoint, uint32_t kind,
                           const struct service_table *table)
{
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_SERVICE};
    if (table->count == 0) {
        return;
    }
    endpoint->service = *table;
    event.endpoint_service.endpoint = endpoint->number;
    event.endpoint_service.kind = kind;
    for (uint32_t i = 0; i < CORE_BATCH_SIZES; i++) {
        uint32_t rows = 1u << i;
        if (rows == 1 || rows <= endpoint->batch_max) {
            event.endpoint_service.service_ns[i] = service_table_ns(table, rows);
        }
    }
    control_feed(control, event);
}

/* ---- showing
 * ------------------------------------------------------------------------------------------ */

enum control_endpoint_state endpoint_entry_state(const struct endpoint_entry *endpoint)
{
    if (endpoint->stopping) {
        return CONTROL_ENDPOINT_STOPPING;
    }
    if (!endpoint->in_serve) {
        return endpoint->reason.text[0] != '\0' ? CONTROL_ENDPOINT_FAILED
                                                : CONTROL_ENDPOINT_LOADING;
    }
    switch (endpoint->sample.state) {
    case ENDPOINT_LOADING:
        return CONTROL_ENDPOINT_LOADING;
    case ENDPOINT_READY:
        return CONTROL_ENDPOINT_READY;
    case ENDPOINT_COLD:
        return CONTROL_ENDPOINT_COLD;
    case ENDPOINT_FAILED:
        return CONTROL_ENDPOINT_FAILED;
    case ENDPOINT_STOPPING:
        return CONTROL_ENDPOINT_STOPPING;
    }
    return CONTROL_ENDPOINT_FAILED;
}

static void fill_statistics(const struct endpoint_entry *endpoint, struct control_endpoint *shown)
{
    const struct endpoint_statistics *statistics = endpoint->statistics;
    if (statistics != NULL) {
        shown->requests_ok = statistics->success;
        shown->requests_late = statistics->late;
        for (int i = 0; i < FAILURE_COUNT; i++) {
            shown->requests_failed += statistics->failed[i];
        }
        for (int i = 0; i < REFUSAL_COUNT; i++) {
            shown->requests_refused += statistics->refused[i];
        }
    }
    if (endpoint->twin != NULL) {
        struct twin_totals totals = twin_totals(endpoint->twin);
        shown->twin_requests = totals.requests;
        shown->late_total = totals.late;
        shown->late_by_handover = totals.late_by_handover;
    }
}

bool control_endpoint_at(struct control *control, size_t index,
                         struct control_endpoint *ret_endpoint)
{
    static struct reason reason; /* the control thread's */
    if (index >= control->endpoint_count) {
        return false;
    }
    struct endpoint_entry *endpoint = control->endpoints[index];
    struct core_endpoint_view core = {0};
    if (endpoint->in_serve) {
        /* As it is now, for those who have just changed something. */
        serve_endpoint_sample(control->serve, endpoint->number, control->now_ns, &endpoint->sample);
        core_endpoint_find(control->core, endpoint->number, &core);
        serve_endpoint_reason(control->serve, endpoint->number, reason.text, sizeof reason.text);
    } else {
        reason = endpoint->reason;
    }
    if (reason.text[0] == '\0' && core.reason != CORE_REASON_NONE) {
        snprintf(reason.text, sizeof reason.text, "%s", core_reason_name(core.reason));
    }
    *ret_endpoint = (struct control_endpoint){
        .revision = endpoint->revisions.any,
        .state_revision = endpoint->revisions.state,
        .name = endpoint->name,
        .path = endpoint->path != NULL ? endpoint->path : "",
        .runtime = endpoint->runtime,
        .reason = reason.text,
        .version = endpoint->version,
        .state = endpoint_entry_state(endpoint),
        .from_repository = endpoint->from_repository,
        .devices_min = endpoint->devices_min,
        .devices_max = endpoint->devices_max < control->device_count ? endpoint->devices_max
                                                                     : control->device_count,
        .batch_max = endpoint->batch_max,
        .priority = endpoint->priority,
        .slo_ns = endpoint->slo_ns,
        .slo_target = endpoint->slo_target,
        .instances_ready = endpoint->in_serve ? endpoint->sample.instances_ready : 0,
        .devices_wanted = core.devices_needed,
        .queue_requests = endpoint->sample.queue_length,
        .queue_bytes = endpoint->sample.queue_bytes,
        .requests_per_s = endpoint->requests_per_s,
        .p50_ms = endpoint->p50_ms,
        .p99_ms = endpoint->p99_ms,
        .late_fraction = endpoint->late_fraction,
    };
    fill_statistics(endpoint, ret_endpoint);
    return true;
}

int control_endpoint_find(struct control *control, const char *name, size_t *ret_index,
                          struct error *error)
{
    const char *nearest = NULL;
    if (endpoint_by_name(control, name, ret_index) != NULL) {
        return 0;
    }
    const char **names = calloc(control->endpoint_count + 1, sizeof *names);
    if (names != NULL) {
        for (size_t i = 0; i < control->endpoint_count; i++) {
            names[i] = control->endpoints[i]->name;
        }
        nearest = options_nearest(name, names, control->endpoint_count);
        free(names);
    }
    if (nearest != NULL) {
        return error_set(error, ERROR_NOT_FOUND, "no endpoint '%.127s'; did you mean '%s'?", name,
                         nearest);
    }
    return error_set(error, ERROR_NOT_FOUND, "no endpoint '%.127s'", name);
}
