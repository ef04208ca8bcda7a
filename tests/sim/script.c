/* script.c: see script.h. */
#include "tests/sim/script.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/record/fields.h"

void script_fini(struct script *script)
{
    for (size_t i = 0; i < script->count; i++) {
        free(script->lines[i].text);
    }
    free(script->lines);
    *script = (struct script){0};
}

struct script_line *script_add(struct script *script)
{
    if (script->count == script->capacity) {
        script->capacity = script->capacity > 0 ? script->capacity * 2 : 64;
        script->lines = realloc(script->lines, script->capacity * sizeof *script->lines);
        assert(script->lines != NULL);
    }
    struct script_line *line = &script->lines[script->count++];
    memset(line, 0, sizeof *line);
    return line;
}

/* ---- what is left out ---- */

void script_event_default(struct core_event *event)
{
    switch (event->kind) {
    case CORE_EVENT_LEASE_REQUESTED:
    case CORE_EVENT_RESTORED_LEASE:
        event->lease_spec.devices_min = 1;
        event->lease_spec.devices_max = 1;
        event->lease_spec.kinds_mask = 1;
        event->lease_spec.preemptible = true;
        break;
    case CORE_EVENT_ENDPOINT_ADDED:
    case CORE_EVENT_ENDPOINT_CHANGED:
        event->endpoint_spec.devices_max = 1;
        event->endpoint_spec.kinds_mask = 1;
        event->endpoint_spec.target_permille = 990;
        event->endpoint_spec.slo_ns = 20000000;
        break;
    case CORE_EVENT_RELEASE_VERIFIED:
        event->verified.gone = true;
        break;
    default:
        break;
    }
}

static const struct record_field *field_of(const struct core_event *event,
                                           enum record_meaning meaning)
{
    const struct record_fields *fields = record_event_fields(event->kind);
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->fields[i].meaning == meaning) {
            return &fields->fields[i];
        }
    }
    return NULL;
}

static uint64_t value_of(const struct core_event *event, const char *name)
{
    const struct record_fields *fields = record_event_fields(event->kind);
    for (size_t i = 0; i < fields->count; i++) {
        if (strcmp(fields->fields[i].name, name) == 0) {
            return record_field_read(event, &fields->fields[i], 0);
        }
    }
    return 0;
}

static enum core_action_kind answered_kind(enum core_event_kind kind)
{
    switch (kind) {
    case CORE_EVENT_INSTANCE_READY:
    case CORE_EVENT_INSTANCE_FAILED:
        return CORE_ACTION_PLACE;
    case CORE_EVENT_INSTANCE_STOPPED:
        return CORE_ACTION_REMOVE;
    case CORE_EVENT_REVOKE_ACKNOWLEDGED:
    case CORE_EVENT_SUSPENDED:
        return CORE_ACTION_REVOKE;
    case CORE_EVENT_RESUMED:
        return CORE_ACTION_RESUME;
    case CORE_EVENT_RELEASE_VERIFIED:
        return CORE_ACTION_VERIFY;
    default:
        return CORE_ACTION_GRANT;
    }
}

struct reference script_action_default(const struct core_event *event)
{
    if (field_of(event, RECORD_ACTION) == NULL || event->kind == CORE_EVENT_RESTORED_INSTANCE) {
        return (struct reference){.how = REFERENCE_NUMBER};
    }
    return (struct reference){.how = REFERENCE_ACTION, .kind = answered_kind(event->kind)};
}

struct reference script_generation_default(const struct core_event *event)
{
    uint64_t device = value_of(event, "device");
    if (field_of(event, RECORD_GENERATION) == NULL) {
        return (struct reference){.how = REFERENCE_NUMBER};
    }
    if (device != 0) {
        return (struct reference){.how = REFERENCE_GRANT, .device = device};
    }
    return (struct reference){.how = REFERENCE_RUN};
}

/* ---- numbers to references and back ---- */

static void refer_action(struct script_line *line, const struct history *history)
{
    const struct record_field *field = field_of(&line->event, RECORD_ACTION);
    const struct history_action *action =
        field != NULL ? history_find(history, record_field_read(&line->event, field, 0)) : NULL;
    if (action != NULL && action->device == value_of(&line->event, "device") &&
        action->endpoint == value_of(&line->event, "endpoint")) {
        line->action = (struct reference){
            .how = REFERENCE_ACTION, .kind = action->kind, .age = history_age(history, action)};
        record_field_write(&line->event, field, 0, 0);
    }
}

static void refer_generation(struct script_line *line, const struct history *history,
                             const struct core *core)
{
    const struct record_field *field = field_of(&line->event, RECORD_GENERATION);
    struct core_lease_view view;
    if (field == NULL) {
        return;
    }
    uint64_t generation = record_field_read(&line->event, field, 0);
    const struct history_action *grant = history_grant(history, generation);
    bool runs = core_lease_find(core, line->event.lease.lease, &view) && view.run == generation;
    if (runs && generation != 0) {
        line->generation = (struct reference){.how = REFERENCE_RUN};
    } else if (grant != NULL) {
        line->generation = (struct reference){
            .how = REFERENCE_GRANT, .device = grant->device, .age = history_age(history, grant)};
    } else {
        return;
    }
    record_field_write(&line->event, field, 0, 0);
}

void script_refer(struct script_line *line, const struct history *history, const struct core *core)
{
    refer_action(line, history);
    refer_generation(line, history, core);
}

static bool resolve_generation(const struct script_line *line, const struct history *history,
                               const struct core *core, struct core_event *event)
{
    const struct record_field *field = field_of(event, RECORD_GENERATION);
    struct core_lease_view view;
    uint64_t generation = 0;
    if (line->generation.how == REFERENCE_RUN) {
        generation = core_lease_find(core, event->lease.lease, &view) ? view.run : 0;
    } else {
        const struct history_action *grant = history_at(
            history, CORE_ACTION_GRANT, line->generation.device, 0, line->generation.age);
        generation = grant != NULL ? grant->generation : 0;
    }
    record_field_write(event, field, 0, generation);
    return generation != 0;
}

bool script_resolve(const struct script_line *line, const struct history *history,
                    const struct core *core, struct core_event *ret_event)
{
    *ret_event = line->event;
    if (line->action.how == REFERENCE_ACTION) {
        const struct history_action *action =
            history_at(history, line->action.kind, value_of(ret_event, "device"),
                       value_of(ret_event, "endpoint"), line->action.age);
        if (action == NULL) {
            return false;
        }
        record_field_write(ret_event, field_of(ret_event, RECORD_ACTION), 0, action->id);
    }
    return line->generation.how == REFERENCE_NUMBER ||
           resolve_generation(line, history, core, ret_event);
}
