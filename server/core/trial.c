/* trial.c: see trial.h. */
#include "server/core/trial.h"

#include <stdlib.h>
#include <string.h>

#include "server/core/state.h"

/* One course of events on a clone. */
struct course {
    struct core *core;
    const struct core_trial_config *config;
    uint64_t end_ns, timer_ns; /* NEVER_NS: none */
    uint64_t told;             /* the last explanation that was seen */
    uint64_t steps;
    struct core_action *actions;
    size_t action_capacity;
    struct core_event *replies; /* on their way, by time, at equal times in their order */
    size_t reply_count, reply_capacity;
    struct core_trial_move *moves;
    size_t move_count, move_capacity;
    enum core_reason refused;
    bool failed; /* no memory */
};

struct core_trial {
    struct course course;
    uint64_t begin_ns, looked_ns;
};

/* ---- room ---- */

static bool reserve(struct course *course, void *array, size_t *capacity, size_t count, size_t size)
{
    void **grown_array = array;
    if (count <= *capacity) {
        return true;
    }
    size_t wanted = count * 2;
    void *grown = realloc(*grown_array, wanted * size);
    course->failed = course->failed || grown == NULL;
    if (grown != NULL) {
        *grown_array = grown;
        *capacity = wanted;
    }
    return grown != NULL;
}

/* ---- the shell ---- */

static void reply_later(struct course *course, struct core_event event, uint64_t delay_ns)
{
    event.time_ns = core_add_u64(course->core->now_ns, delay_ns);
    if (!reserve(course, &course->replies, &course->reply_capacity, course->reply_count + 1,
                 sizeof *course->replies)) {
        return;
    }
    size_t place = course->reply_count++;
    for (; place > 0 && course->replies[place - 1].time_ns > event.time_ns; place--) {
        course->replies[place] = course->replies[place - 1];
    }
    course->replies[place] = event;
}

static void reply_to_instance(struct course *course, const struct core_action *action)
{
    bool place = action->kind == CORE_ACTION_PLACE;
    struct core_event event = {.kind =
                                   place ? CORE_EVENT_INSTANCE_READY : CORE_EVENT_INSTANCE_STOPPED};
    event.instance.action = action->id;
    event.instance.endpoint = action->instance.endpoint;
    event.instance.device = action->instance.device;
    reply_later(course, event, course->config->place_ns);
}

static void reply_done(struct course *course, enum core_event_kind kind, uint64_t action,
                       uint64_t device, uint64_t delay_ns)
{
    struct core_event event = {.kind = kind};
    event.answer.action = action;
    event.answer.device = device;
    reply_later(course, event, delay_ns);
}

static void reply_to_stop(struct course *course, const struct core_action *action,
                          const struct lease *lease, uint64_t take_ns)
{
    const struct core_lease_spec *spec = &lease->spec;
    enum core_rung rung = action->revoke.rung;
    struct core_event event = {.kind = CORE_EVENT_SUSPENDED};
    event.suspended.action = action->id;
    event.suspended.device = action->revoke.device;
    event.suspended.residue_bytes = rung == CORE_RUNG_PAUSE  ? spec->pause_residue_bytes
                                    : rung == CORE_RUNG_SWAP ? spec->swap_residue_bytes
                                                             : spec->memory_bytes;
    reply_later(course, event, take_ns);
}

/* Who does not listen is killed at the deadline; everybody else lets go before it. */
static void reply_to_revoke(struct course *course, const struct core_action *action)
{
    const struct core *core = course->core;
    const struct lease *lease = core_lease_get(core, action->revoke.lease);
    const struct device *device = core_device_get(core, action->revoke.device);
    enum core_rung rung = action->revoke.rung;
    if (lease == NULL || device == NULL || rung < RUNG_FIRST || rung == CORE_RUNG_KILL) {
        return;
    }
    uint64_t take_ns = core_rung_take_ns(core, lease, rung, device->kind);
    uint64_t left_ns = action->revoke.deadline_ns - core->now_ns;
    take_ns = take_ns < left_ns ? take_ns : left_ns;
    if (core_rung_stops(rung)) {
        reply_to_stop(course, action, lease, take_ns);
    } else {
        reply_done(course, CORE_EVENT_REVOKE_ACKNOWLEDGED, action->id, device->id, take_ns);
    }
}

static void reply_to_resume(struct course *course, const struct core_action *action)
{
    const struct device *device = core_device_get(course->core, action->revoke.device);
    uint64_t give_ns = course->config->answer_ns;
    if (device != NULL && device->lease != NULL && device->rung >= RUNG_FIRST) {
        give_ns = core_rung_give_ns(course->core, device->lease, device->rung, device->kind);
    }
    reply_done(course, CORE_EVENT_RESUMED, action->id, action->revoke.device, give_ns);
}

static void reply_to_verify(struct course *course, const struct core_action *action)
{
    struct core_event event = {.kind = CORE_EVENT_RELEASE_VERIFIED};
    event.verified.action = action->id;
    event.verified.device = action->device.device;
    event.verified.gone = true;
    reply_later(course, event, course->config->answer_ns);
}

static void carry_out(struct course *course, const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        reply_to_instance(course, action);
        break;
    case CORE_ACTION_GRANT:
        reply_done(course, CORE_EVENT_ACTION_DONE, action->id, action->grant.device,
                   course->config->answer_ns);
        break;
    case CORE_ACTION_REVOKE:
        reply_to_revoke(course, action);
        break;
    case CORE_ACTION_KILL:
        reply_done(course, CORE_EVENT_ACTION_DONE, action->id, action->revoke.device,
                   course->config->answer_ns);
        break;
    case CORE_ACTION_RESUME:
        reply_to_resume(course, action);
        break;
    case CORE_ACTION_VERIFY:
        reply_to_verify(course, action);
        break;
    case CORE_ACTION_SET_TIMER:
        course->timer_ns = action->timer.at_ns == 0 ? NEVER_NS : action->timer.at_ns;
        break;
    default:
        break; /* told only */
    }
}

/* ---- the course ---- */

static bool is_a_turn(enum core_what what)
{
    return what == CORE_WHAT_YIELD_BEGAN || what == CORE_WHAT_YIELD_ENDED;
}

static void collect(struct course *course)
{
    struct core_explanation explanation;
    for (; course->told < course->core->explanation_id; course->told++) {
        bool found = core_explanation_find(course->core, course->told + 1, &explanation);
        if (found && !is_a_turn(explanation.what) &&
            reserve(course, &course->moves, &course->move_capacity, course->move_count + 1,
                    sizeof *course->moves)) {
            course->moves[course->move_count++] =
                (struct core_trial_move){.explanation = explanation};
        }
    }
}

static void step(struct course *course, const struct core_event *event)
{
    size_t wanted = core_actions_max(course->core);
    if (!reserve(course, &course->actions, &course->action_capacity, wanted,
                 sizeof *course->actions)) {
        return;
    }
    size_t count = core_step(course->core, event, course->actions);
    for (size_t i = 0; i < count; i++) {
        carry_out(course, &course->actions[i]);
    }
    collect(course);
    course->steps++;
}

static void change(struct course *course, const struct core_event *change)
{
    struct core_event event = *change;
    size_t first = course->move_count;
    event.time_ns = course->core->now_ns;
    step(course, &event);
    for (size_t i = first; i < course->move_count && course->refused == CORE_REASON_NONE; i++) {
        const struct core_explanation *move = &course->moves[i].explanation;
        course->refused = move->what == CORE_WHAT_REJECT ? move->reason : CORE_REASON_NONE;
    }
}

/* The next answer or timer that comes by the end. */
static bool next(struct course *course, struct core_event *ret_event)
{
    uint64_t reply_ns = course->reply_count > 0 ? course->replies[0].time_ns : NEVER_NS;
    if (reply_ns > course->end_ns && course->timer_ns > course->end_ns) {
        return false;
    }
    if (course->timer_ns < reply_ns) {
        *ret_event = (struct core_event){.kind = CORE_EVENT_TIMER, .time_ns = course->timer_ns};
        course->timer_ns = NEVER_NS;
        return true;
    }
    *ret_event = course->replies[0];
    course->reply_count--;
    memmove(&course->replies[0], &course->replies[1],
            course->reply_count * sizeof *course->replies);
    return true;
}

/* ---- the beginning ---- */

static enum core_action_kind awaited(enum core_hold hold)
{
    switch (hold) {
    case CORE_HOLD_GRANTING:
        return CORE_ACTION_GRANT;
    case CORE_HOLD_REVOKING:
    case CORE_HOLD_SUSPENDING:
        return CORE_ACTION_REVOKE;
    case CORE_HOLD_RESUMING:
        return CORE_ACTION_RESUME;
    case CORE_HOLD_KILLING:
        return CORE_ACTION_KILL;
    case CORE_HOLD_VERIFYING:
        return CORE_ACTION_VERIFY;
    default:
        return CORE_ACTION_COUNT; /* nothing */
    }
}

static void await_holder(struct course *course, const struct device *device)
{
    struct core_action action = {.kind = awaited(device->hold), .id = device->action};
    if (action.kind == CORE_ACTION_GRANT) {
        action.grant.device = device->id;
    } else if (action.kind == CORE_ACTION_VERIFY) {
        action.device.device = device->id;
    } else {
        action.revoke.device = device->id;
        action.revoke.lease = device->lease != NULL ? device->lease->spec.lease : 0;
        action.revoke.rung = device->rung;
        action.revoke.deadline_ns = device->deadline_ns;
    }
    carry_out(course, &action);
}

static void await_instances(struct course *course, const struct device *device)
{
    DEVICE_ENDPOINTS (course->core, device, endpoint) {
        const struct instance *instance = core_instance_of(device, endpoint);
        bool places = instance->state == CORE_INSTANCE_PLACING;
        struct core_action action = {.kind = places ? CORE_ACTION_PLACE : CORE_ACTION_REMOVE,
                                     .id = instance->action};
        action.instance.endpoint = endpoint->spec.endpoint;
        action.instance.device = device->id;
        if (instance->action != 0) {
            carry_out(course, &action);
        }
    }
}

/* What is under way when it begins is answered too. */
static void await_all(struct course *course)
{
    for (size_t i = 0; i < course->core->device_count; i++) {
        await_holder(course, course->core->devices[i]);
        await_instances(course, course->core->devices[i]);
    }
}

static void course_fini(struct course *course)
{
    core_destroy(course->core);
    free(course->actions);
    free(course->replies);
    free(course->moves);
}

static void course_run(struct course *course, const struct core *core,
                       const struct core_event *changes, size_t count,
                       const struct core_trial_config *config)
{
    struct core_event event;
    *course = (struct course){.core = core_clone(core), .config = config};
    if (course->core == NULL) {
        course->failed = true;
        return;
    }
    course->end_ns = core_add_u64(core->now_ns, config->horizon_ns);
    course->timer_ns = core->told_timer_ns;
    course->told = core->explanation_id;
    /* Load stays as it is, and whoever runs is heard of. */
    course->core->config.sample_stale_ns = course->core->config.heartbeat_lost_ns = NEVER_NS;
    await_all(course);
    for (size_t i = 0; i < count; i++) {
        change(course, &changes[i]);
    }
    while (!course->failed && course->steps < config->steps_max && next(course, &event)) {
        step(course, &event);
    }
}

/* ---- both courses ---- */

static bool is_same(const struct core_explanation *a, const struct core_explanation *b)
{
    return a->what == b->what && a->reason == b->reason && a->rung == b->rung &&
           a->device == b->device && a->lease == b->lease && a->endpoint == b->endpoint &&
           a->applied == b->applied;
}

/* Each move of the other course stands for one of this one. */
static void mark_anyway(struct course *course, struct course *other)
{
    for (size_t i = 0; i < course->move_count; i++) {
        struct core_trial_move *move = &course->moves[i];
        for (size_t j = 0; j < other->move_count && !move->anyway; j++) {
            struct core_trial_move *without = &other->moves[j];
            if (!without->anyway && is_same(&move->explanation, &without->explanation)) {
                move->anyway = without->anyway = true;
            }
        }
    }
}

struct core_trial *core_trial_run(const struct core *core, const struct core_event *changes,
                                  size_t count, const struct core_trial_config *config)
{
    struct core_trial *trial = calloc(1, sizeof *trial);
    struct course without;
    if (trial == NULL) {
        return NULL;
    }
    trial->begin_ns = core->now_ns;
    course_run(&trial->course, core, changes, count, config);
    course_run(&without, core, NULL, 0, config);
    mark_anyway(&trial->course, &without);
    bool whole = trial->course.steps < config->steps_max;
    trial->looked_ns = whole || trial->course.failed ? config->horizon_ns
                                                     : trial->course.core->now_ns - core->now_ns;
    bool failed = trial->course.failed || without.failed;
    trial->course.config = NULL; /* the caller's */
    course_fini(&without);
    if (failed) {
        core_trial_destroy(trial);
        trial = NULL;
    }
    return trial;
}

void core_trial_destroy(struct core_trial *trial)
{
    if (trial != NULL) {
        course_fini(&trial->course);
        free(trial);
    }
}

const struct core_trial_move *core_trial_moves(const struct core_trial *trial, size_t *ret_count)
{
    *ret_count = trial->course.move_count;
    return trial->course.moves;
}

const struct core *core_trial_core(const struct core_trial *trial)
{
    return trial->course.core;
}

enum core_reason core_trial_refused(const struct core_trial *trial)
{
    return trial->course.refused;
}

uint64_t core_trial_after_ns(const struct core_trial *trial, const struct core_trial_move *move)
{
    return move->explanation.time_ns - trial->begin_ns;
}

uint64_t core_trial_looked_ns(const struct core_trial *trial)
{
    return trial->looked_ns;
}

uint64_t core_trial_start_ns(const struct core_trial *trial, uint64_t lease)
{
    for (size_t i = 0; i < trial->course.move_count; i++) {
        const struct core_explanation *move = &trial->course.moves[i].explanation;
        if (move->what == CORE_WHAT_GRANT && move->lease == lease && move->applied) {
            return move->time_ns - trial->begin_ns;
        }
    }
    return UINT64_MAX;
}
