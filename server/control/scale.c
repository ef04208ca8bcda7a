/* scale.c: the scale signal by the names that people use, and what providers announce. */
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"

int scale_create(struct control *control, struct error *error)
{
    struct core_scale_config config = {
        .lead_ns = (uint64_t)(control->config->planner.scale_lead_s * (double)NS_PER_S),
        .hold_ns = (uint64_t)(control->config->planner.scale_hold_s * (double)NS_PER_S)};
    control->scale.signal = core_scale_create(&config);
    return control->scale.signal != NULL
               ? 0
               : error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the scale signal: no memory");
}

bool control_scale_at(const struct control *control, size_t index, struct control_scale *ret_scale)
{
    if (index >= control->kind_count) {
        return false;
    }
    *ret_scale = (struct control_scale){.now_ns = control->now_ns};
    memcpy(ret_scale->kind, control->kinds[index], sizeof ret_scale->kind);
    return core_scale_read(control->scale.signal, (uint32_t)index, &ret_scale->core);
}

void scale_refresh(struct control *control)
{
    bool same = true;
    core_scale_update(control->scale.signal, control->core, control->now_ns);
    for (uint32_t kind = 0; kind < control->kind_count; kind++) {
        struct core_scale_view now, *shown = &control->scale.shown[kind];
        core_scale_read(control->scale.signal, kind, &now);
        same = same && memcmp(&now, shown, sizeof now) == 0;
        *shown = now;
    }
    if (!same) {
        revision_touch(control, &control->status_revisions, false);
    }
}

/* 0: no place is left for another name. */
static uint64_t provider_number(struct control *control, const char *name)
{
    for (uint32_t i = 0; i < control->scale.provider_count; i++) {
        if (strcmp(control->scale.providers[i], name) == 0) {
            return i + 1;
        }
    }
    if (control->scale.provider_count == CORE_SCALE_COMING_MAX) {
        return 0;
    }
    strcpy(control->scale.providers[control->scale.provider_count], name);
    return ++control->scale.provider_count;
}

static int kind_find(const struct control *control, const char *name, uint32_t *ret_kind,
                     struct error *error)
{
    for (uint32_t i = 0; i < control->kind_count; i++) {
        if (strcmp(control->kinds[i], name) == 0) {
            *ret_kind = i;
            return 0;
        }
    }
    return error_set(error, ERROR_NOT_FOUND, "kind '%s': there is no such kind of device here",
                     name);
}

int control_scale_announce(struct control *control, const struct control_coming *coming,
                           struct error *error)
{
    struct core_scale_coming told = {.devices = coming->devices,
                                     .arrives_ns = control->now_ns + coming->arrives_in_ns,
                                     .lead_ns = coming->lead_ns};
    struct log_text text;
    if (kind_find(control, coming->kind, &told.kind, error) < 0) {
        return -(int)error->code;
    }
    size_t length = strlen(coming->provider);
    if (length == 0 || length >= PROVIDER_NAME_SIZE) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "provider: wants 1 to %d bytes, got %zu",
                         PROVIDER_NAME_SIZE - 1, length);
    }
    told.provider = provider_number(control, coming->provider);
    if (told.provider == 0 ||
        core_scale_announce(control->scale.signal, control->core, &told) < 0) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "announce devices: there are announcements of %d providers and kinds "
                         "already",
                         CORE_SCALE_COMING_MAX);
    }
    log_write(LOG_INFO, "scale", "announced", "provider=%s kind=%s devices=%u arrives_in_ms=%llu",
              log_quote(&text, coming->provider), coming->kind, coming->devices,
              (unsigned long long)(coming->arrives_in_ns / NS_PER_MS));
    scale_refresh(control);
    return 0;
}
