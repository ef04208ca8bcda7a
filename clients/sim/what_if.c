/* what_if.c: the recorded world under other settings: see replay.h. */
#include <stdlib.h>

#include "clients/sim/agenda.h"
#include "clients/sim/replay.h"

#define ENDPOINT_SHIFT 8 /* in a moment's kind, above the event's */

struct world {
    struct replay_core core;
    struct replay_course *course;
    const struct replay_delays *delays;
    struct agenda answers;
    uint64_t timer_ns; /* 0: none */
};

/* ---- the shell ---- */

static uint64_t delay_ns(const struct world *world, enum core_action_kind kind)
{
    uint64_t count = world->delays->count[kind];
    return count > 0 ? world->delays->sum_ns[kind] / count : 1000000;
}

static enum core_event_kind answer_of(const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_PLACE:
        return CORE_EVENT_INSTANCE_READY;
    case CORE_ACTION_REMOVE:
        return CORE_EVENT_INSTANCE_STOPPED;
    case CORE_ACTION_GRANT:
    case CORE_ACTION_KILL:
        return CORE_EVENT_ACTION_DONE;
    case CORE_ACTION_RESUME:
        return CORE_EVENT_RESUMED;
    case CORE_ACTION_VERIFY:
        return CORE_EVENT_RELEASE_VERIFIED;
    case CORE_ACTION_REVOKE:
        return action->revoke.rung == CORE_RUNG_NONE ? CORE_EVENT_COUNT
               : action->revoke.rung >= CORE_RUNG_FREEZE && action->revoke.rung <= CORE_RUNG_SWAP
                   ? CORE_EVENT_SUSPENDED
                   : CORE_EVENT_REVOKE_ACKNOWLEDGED;
    default:
        return CORE_EVENT_COUNT; /* told only */
    }
}

static uint64_t device_of(const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        return action->instance.device;
    case CORE_ACTION_GRANT:
        return action->grant.device;
    case CORE_ACTION_VERIFY:
        return action->device.device;
    default:
        return action->revoke.device;
    }
}

static int shell(struct world *world, struct error *error)
{
    for (size_t i = 0; i < world->core.count; i++) {
        const struct core_action *action = &world->core.actions[i];
        enum core_event_kind kind = answer_of(action);
        bool places = action->kind == CORE_ACTION_PLACE || action->kind == CORE_ACTION_REMOVE;
        uint64_t endpoint = places ? action->instance.endpoint : 0;
        struct moment moment = {.time_ns = world->core.now_ns + delay_ns(world, action->kind),
                                .kind = (uint32_t)kind | (uint32_t)endpoint << ENDPOINT_SHIFT,
                                .object = (uint32_t)device_of(action),
                                .detail = action->id};
        if (action->kind == CORE_ACTION_SET_TIMER) {
            world->timer_ns = action->timer.at_ns;
        } else if (kind != CORE_EVENT_COUNT && agenda_add(&world->answers, moment) < 0) {
            return error_set(error, ERROR_RESOURCE_EXHAUSTED, "replay: no memory");
        }
    }
    return 0;
}

static int send(struct world *world, const struct core_event *event, struct error *error)
{
    int result = replay_core_step(&world->core, event, world->course, error);
    return result < 0 ? result : shell(world, error);
}

static struct core_event answer_event(const struct moment *moment)
{
    struct core_event event = {
        .kind = (enum core_event_kind)(moment->kind & ((1u << ENDPOINT_SHIFT) - 1)),
        .time_ns = moment->time_ns};
    uint64_t endpoint = moment->kind >> ENDPOINT_SHIFT;
    if (event.kind == CORE_EVENT_INSTANCE_READY || event.kind == CORE_EVENT_INSTANCE_STOPPED) {
        event.instance.action = moment->detail;
        event.instance.endpoint = endpoint;
        event.instance.device = moment->object;
    } else {
        event.answer.action = moment->detail;
        event.answer.device = moment->object;
    }
    if (event.kind == CORE_EVENT_RELEASE_VERIFIED) {
        event.verified.gone = true;
    }
    return event;
}

/* Answers and timers up to then. */
static int pass_until(struct world *world, uint64_t time_ns, struct error *error)
{
    int result = 0;
    while (result == 0) {
        struct moment moment;
        bool some = agenda_first(&world->answers, &moment);
        uint64_t at_ns = some ? moment.time_ns : UINT64_MAX;
        struct core_event event = {.kind = CORE_EVENT_TIMER, .time_ns = world->timer_ns};
        bool timer = world->timer_ns != 0 && world->timer_ns < at_ns;
        if ((timer ? world->timer_ns : at_ns) > time_ns) {
            break;
        }
        if (timer) {
            world->timer_ns = 0;
        } else {
            agenda_pop(&world->answers);
            event = answer_event(&moment);
        }
        result = send(world, &event, error);
    }
    return result;
}

/* ---- the recorded world ---- */

/* A holder's words carry the token of a grant that was another one here. */
static bool speaks_now(const struct world *world, struct core_event *event)
{
    struct core_lease_view lease;
    struct core_device_view device;
    uint64_t id = event->kind == CORE_EVENT_LEASE_RELEASED    ? event->lease_released.device
                  : event->kind == CORE_EVENT_EXTENSION_ASKED ? event->extension.device
                                                              : 0;
    uint64_t generation = 0;
    if (id != 0) {
        bool its =
            core_device_find(world->core.core, id, &device) && device.lease == event->lease.lease;
        generation = its ? device.generation : 0;
    } else if (core_lease_find(world->core.core, event->lease.lease, &lease)) {
        generation = lease.run;
    }
    switch (event->kind) {
    case CORE_EVENT_LEASE_RELEASED:
        event->lease_released.generation = generation;
        break;
    case CORE_EVENT_LEASE_PROGRESS:
        event->lease_progress.generation = generation;
        break;
    case CORE_EVENT_LEASE_HEARTBEAT:
        event->lease_heartbeat.generation = generation;
        break;
    case CORE_EVENT_JOB_EXITED:
        event->job_exited.generation = generation;
        break;
    default:
        event->extension.generation = generation;
        break;
    }
    return generation != 0;
}

static bool comes_again(const struct world *world, struct core_event *event)
{
    switch (event->kind) {
    case CORE_EVENT_TIMER:
    case CORE_EVENT_INSTANCE_READY:
    case CORE_EVENT_INSTANCE_STOPPED:
    case CORE_EVENT_REVOKE_ACKNOWLEDGED:
    case CORE_EVENT_RELEASE_VERIFIED:
    case CORE_EVENT_ACTION_DONE:
    case CORE_EVENT_ACTION_FAILED:
    case CORE_EVENT_SUSPENDED:
    case CORE_EVENT_RESUMED:
        return false; /* answers: the shell gives its own */
    case CORE_EVENT_INSTANCE_FAILED:
        return event->instance.action == 0;
    case CORE_EVENT_LEASE_RELEASED:
    case CORE_EVENT_LEASE_PROGRESS:
    case CORE_EVENT_LEASE_HEARTBEAT:
    case CORE_EVENT_JOB_EXITED:
    case CORE_EVENT_EXTENSION_ASKED:
        return speaks_now(world, event);
    default:
        return true;
    }
}

static int play(struct world *world, struct record_reader *reader, struct error *error)
{
    struct record_item item;
    for (;;) {
        int result = record_next(reader, &item, error);
        if (result < 0 || item.kind == RECORD_END) {
            return result;
        }
        if (item.kind == RECORD_EVENT) {
            result = pass_until(world, item.event.time_ns, error);
            if (result == 0 && comes_again(world, &item.event)) {
                result = send(world, &item.event, error);
            }
        }
        if (result < 0) {
            return result;
        }
    }
}

int what_if_run(const char *path, const struct core_config *config,
                const struct replay_delays *delays, struct replay_course *ret_course,
                struct error *error)
{
    struct world world = {.course = ret_course, .delays = delays};
    struct record_reader *reader = record_open(path, error);
    int result = reader == NULL ? -(int)error->code : replay_core_init(&world.core, config, error);
    if (result == 0) {
        result = play(&world, reader, error);
    }
    if (result == 0) {
        replay_core_sum(&world.core, ret_course);
        ret_course->torn_bytes = record_torn(reader);
    }
    replay_core_fini(&world.core);
    agenda_fini(&world.answers);
    record_close(reader);
    return result;
}
