/* replay.c: the exact repetition, and what it is told by. */
#include "clients/sim/replay.h"

#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/record/fields.h"

/* ---- a core ---- */

int replay_core_init(struct replay_core *core, const struct core_config *config,
                     struct error *error)
{
    *core = (struct replay_core){.core = core_create(config)};
    if (core->core == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "no scheduler can have these settings: see core.h for what fits together");
    }
    return 0;
}

void replay_core_fini(struct replay_core *core)
{
    core_destroy(core->core);
    free(core->actions);
    *core = (struct replay_core){0};
}

int replay_core_step(struct replay_core *core, const struct core_event *event,
                     struct replay_course *course, struct error *error)
{
    size_t needed = core_actions_max(core->core);
    if (needed > core->capacity) {
        struct core_action *actions = realloc(core->actions, 2 * needed * sizeof *actions);
        if (actions == NULL) {
            return error_set(error, ERROR_RESOURCE_EXHAUSTED, "replay: no memory");
        }
        core->actions = actions;
        core->capacity = 2 * needed;
    }
    core->count = core_step(core->core, event, core->actions);
    core->now_ns = event->time_ns > core->now_ns ? event->time_ns : core->now_ns;
    course->first_ns = course->events == 0 ? core->now_ns : course->first_ns;
    course->last_ns = core->now_ns;
    course->events++;
    for (size_t i = 0; i < core->count; i++) {
        course->actions[core->actions[i].kind]++;
    }
    return 0;
}

void replay_core_sum(const struct replay_core *core, struct replay_course *course)
{
    struct core_device_view view;
    course->hash = core_hash(core->core);
    core_ledger_read(core->core, core->now_ns, &course->ledger);
    for (size_t i = 0; core_device_at(core->core, i, &view); i++) {
        course->handovers += view.handovers;
    }
}

/* ---- how long answers take ---- */

#define AWAITED_MAX 4096 /* a ring: older ones are not going to be answered */

struct awaited {
    uint64_t id, time_ns;
    enum core_action_kind kind;
};

struct repetition {
    struct replay *replay;
    struct replay_delays delays;
    struct replay_core core;
    struct awaited awaited[AWAITED_MAX];
    uint64_t awaited_count;
};

static void delays_ask(struct repetition *repetition)
{
    for (size_t i = 0; i < repetition->core.count; i++) {
        const struct core_action *action = &repetition->core.actions[i];
        repetition->awaited[repetition->awaited_count++ % AWAITED_MAX] =
            (struct awaited){action->id, repetition->core.now_ns, action->kind};
    }
}

static void delays_answer(struct repetition *repetition, const struct core_event *event)
{
    const struct record_fields *fields = record_event_fields(event->kind);
    uint64_t id = 0;
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->fields[i].meaning == RECORD_ACTION) {
            id = record_field_read(event, &fields->fields[i], 0);
        }
    }
    for (size_t i = 0; i < AWAITED_MAX && id != 0; i++) {
        const struct awaited *awaited = &repetition->awaited[i];
        if (awaited->id == id) {
            repetition->delays.sum_ns[awaited->kind] += event->time_ns - awaited->time_ns;
            repetition->delays.count[awaited->kind]++;
            break;
        }
    }
}

/* ---- the repetition ---- */

static int take_item(struct repetition *repetition, const struct record_item *item,
                     struct error *error)
{
    struct replay *replay = repetition->replay;
    if (item->kind == RECORD_HASH) {
        replay->hashes++;
        if (item->hash != core_hash(repetition->core.core) && replay->wrong_at == 0) {
            replay->wrong_at = replay->recorded.events;
        }
        return 0;
    }
    delays_answer(repetition, &item->event);
    if (replay_core_step(&repetition->core, &item->event, &replay->recorded, error) < 0) {
        return -(int)error->code;
    }
    delays_ask(repetition);
    return 0;
}

static int repeat(struct repetition *repetition, struct record_reader *reader, struct error *error)
{
    struct record_item item;
    int result = replay_core_init(&repetition->core, &record_reader_head(reader)->config, error);
    while (result == 0) {
        result = record_next(reader, &item, error);
        if (result < 0 || item.kind == RECORD_END) {
            break;
        }
        result = take_item(repetition, &item, error);
    }
    if (result == 0) {
        struct replay *replay = repetition->replay;
        replay_core_sum(&repetition->core, &replay->recorded);
        replay->same = replay->hashes > 0 && replay->wrong_at == 0;
        replay->recorded.torn_bytes = record_torn(reader);
        replay->wall_ns = record_reader_head(reader)->wall_ns;
    }
    replay_core_fini(&repetition->core);
    return result;
}

/* ---- other settings ---- */

static int setting_apply(const char *text, struct core_config *config, struct error *error)
{
    const struct record_fields *fields = record_config_fields();
    const char *value = strchr(text, '=');
    size_t length = value != NULL ? (size_t)(value - text) : 0;
    for (size_t i = 0; i < fields->count && length > 0; i++) {
        const struct record_field *field = &fields->fields[i];
        char *end;
        if (field->count > 1 || strlen(field->name) != length ||
            strncmp(field->name, text, length) != 0) {
            continue;
        }
        uint64_t number = strtoull(value + 1, &end, 10);
        if (end == value + 1 || *end != 0 || value[1] == '-' || !record_field_fits(field, number)) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "--set %s: '%s' is no such number",
                             text, value + 1);
        }
        record_field_write(config, field, 0, number);
        return 0;
    }
    return error_set(error, ERROR_INVALID_ARGUMENT,
                     "--set %s: no setting of this name; they are those of struct core_config, as "
                     "hold_min_ns=2000000000",
                     text);
}

static int try_other(const char *path, const struct core_config *recorded,
                     const char *const *settings, size_t setting_count,
                     const struct replay_delays *delays, struct replay *replay, struct error *error)
{
    struct core_config config = *recorded;
    for (size_t i = 0; i < setting_count; i++) {
        int result = setting_apply(settings[i], &config, error);
        if (result < 0) {
            return result;
        }
    }
    replay->has_other = true;
    return what_if_run(path, &config, delays, &replay->other, error);
}

/* What the recorded settings make of a part without those before it. */
static int rebuild(const char *path, const struct record_head *head, struct replay *replay,
                   struct error *error)
{
    struct replay_delays unknown = {0};
    replay->part = head->part;
    replay->events_before = head->events;
    replay->wall_ns = head->wall_ns;
    return what_if_run(path, &head->config, &unknown, &replay->recorded, error);
}

int replay_run(const char *path, const char *const *settings, size_t setting_count,
               struct replay *ret_replay, struct error *error)
{
    uint64_t began_ns = clock_now_ns();
    int result = -1;
    struct record_reader *reader = record_open(path, error);
    struct repetition *repetition = calloc(1, sizeof *repetition);
    *ret_replay = (struct replay){0};
    if (reader == NULL || repetition == NULL) {
        result = reader == NULL ? -(int)error->code
                                : error_set(error, ERROR_RESOURCE_EXHAUSTED, "replay: no memory");
        goto out;
    }
    repetition->replay = ret_replay;
    const struct record_head *head = record_reader_head(reader);
    result = head->part == 0 ? repeat(repetition, reader, error)
                             : rebuild(path, head, ret_replay, error);
    if (result == 0 && setting_count > 0) {
        result = try_other(path, &head->config, settings, setting_count, &repetition->delays,
                           ret_replay, error);
    }
    ret_replay->wall_s = (double)(clock_now_ns() - began_ns) / 1e9;
out:
    free(repetition);
    record_close(reader);
    return result;
}
