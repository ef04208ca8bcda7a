/* why.c: the core's explanations with the names that people know. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/control/state.h"

/* ---- names
 * ----------------------------------------------------------------------------------------- */

static const char *device_label(const struct control *control, uint64_t device)
{
    bool known = device >= 1 && device <= control->device_count;
    return known         ? control->devices[device - 1].device->id
           : device == 0 ? ""
                         : "(a new device)"; /* of a dry run */
}

static const char *job_label(const struct control *control, uint64_t number)
{
    const struct job_entry *job = number != 0 ? job_by_number(control, number, NULL) : NULL;
    return number == 0                      ? ""
           : job != NULL && job->id != NULL ? job->id
           : number > control->job_number   ? "(the new job)" /* of a dry run */
                                            : "(a forgotten job)";
}

static const char *endpoint_label(const struct control *control, uint64_t number)
{
    const struct endpoint_entry *endpoint = endpoint_by_number(control, number, NULL);
    return number == 0 ? "" : endpoint != NULL ? endpoint->name : "(a stopped endpoint)";
}

/* ---- who had it, who gets it
 * -------------------------------------------------------------------------- */

static void name_job(const struct control_move *move, char *text, size_t size)
{
    snprintf(text, size, "job %s", move->job);
}

static void name_server(const struct control_move *move, char *text, size_t size)
{
    if (move->endpoint[0] != '\0') {
        snprintf(text, size, "endpoint %s", move->endpoint);
    } else {
        snprintf(text, size, "free");
    }
}

static void fill_ends(struct control_move *move)
{
    switch (move->core.what) {
    case CORE_WHAT_GRANT:
    case CORE_WHAT_YIELD_ENDED:
        name_server(move, move->from, sizeof move->from);
        name_job(move, move->to, sizeof move->to);
        break;
    case CORE_WHAT_REVOKE:
    case CORE_WHAT_YIELD_BEGAN:
    case CORE_WHAT_KILL:
        name_job(move, move->from, sizeof move->from);
        name_server(move, move->to, sizeof move->to);
        break;
    case CORE_WHAT_PLACE:
    case CORE_WHAT_KEEP:
        snprintf(move->from, sizeof move->from, "free");
        name_server(move, move->to, sizeof move->to);
        break;
    case CORE_WHAT_REMOVE:
    case CORE_WHAT_GIVE_BACK:
        name_server(move, move->from, sizeof move->from);
        snprintf(move->to, sizeof move->to, "free");
        break;
    default:
        break; /* nothing changes hands */
    }
}

/* ---- the sentence
 * ------------------------------------------------------------------------------------------ */

struct sentence {
    char *text;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct sentence *sentence, const char *format,
                                                      ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (sentence->used < sentence->size) {
        int length = vsnprintf(sentence->text + sentence->used, sentence->size - sentence->used,
                               format, arguments);
        sentence->used += length > 0 ? (size_t)length : 0;
    }
    va_end(arguments);
}

static void say_what(struct sentence *sentence, const struct control_move *move)
{
    const char *device = move->device[0] != '\0' ? move->device : "a device";
    const char *endpoint = move->endpoint[0] != '\0' ? move->endpoint : "serving";
    switch (move->core.what) {
    case CORE_WHAT_GRANT:
        say(sentence, "%s is granted to job %s", device, move->job);
        break;
    case CORE_WHAT_REVOKE:
        say(sentence, "%s is taken back from job %s", device, move->job);
        break;
    case CORE_WHAT_PLACE:
        say(sentence, "an instance of %s is placed on %s", endpoint, device);
        break;
    case CORE_WHAT_REMOVE:
        say(sentence, "the instance of %s leaves %s", endpoint, device);
        break;
    case CORE_WHAT_YIELD_BEGAN:
        say(sentence, "%s takes turns with job %s on %s", endpoint, move->job, device);
        break;
    case CORE_WHAT_YIELD_ENDED:
        say(sentence, "job %s has %s to itself again", move->job, device);
        break;
    case CORE_WHAT_KEEP:
        say(sentence, "%s stays with %s", device, endpoint);
        break;
    case CORE_WHAT_GIVE_BACK:
        say(sentence, "%s is no longer needed by %s", device, endpoint);
        break;
    case CORE_WHAT_DANGER:
        say(sentence, "the SLO of %s is in danger", endpoint);
        break;
    case CORE_WHAT_WAIT:
        say(sentence, "job %s waits", move->job);
        break;
    case CORE_WHAT_KILL:
        say(sentence, "job %s is ended by force on %s", move->job, device);
        break;
    case CORE_WHAT_QUARANTINE:
        say(sentence, "%s is in quarantine", device);
        break;
    case CORE_WHAT_DEVICE_LOST:
        say(sentence, "%s is lost", device);
        break;
    case CORE_WHAT_LEASE_ENDED:
        say(sentence, "job %s has ended", move->job);
        break;
    case CORE_WHAT_HEARTBEAT_LOST:
        say(sentence, "job %s has not been heard of for a while", move->job);
        break;
    case CORE_WHAT_REJECT:
        say(sentence, "refused: %s%s%s", move->device, move->job, move->endpoint);
        break;
    case CORE_WHAT_SUSPEND:
        say(sentence, "job %s is stopped where it stands, for %s", move->job, endpoint);
        break;
    case CORE_WHAT_RESUME:
        say(sentence, "job %s goes on", move->job);
        break;
    case CORE_WHAT_EXTEND:
        say(sentence, "job %s is given more time to save", move->job);
        break;
    case CORE_WHAT_DRAIN:
        say(sentence, "%s gets nothing new and is emptied", device);
        break;
    case CORE_WHAT_USE_AGAIN:
        say(sentence, "%s is used again", device);
        break;
    case CORE_WHAT_COUNT:
        break;
    }
}

static void say_figures(struct sentence *sentence, const struct core_explanation *core)
{
    if (core->reason != CORE_REASON_NONE) {
        say(sentence, ": %s", core_reason_name(core->reason));
    }
    if (core->rung != CORE_RUNG_NONE) {
        say(sentence, ", rung %s", core_rung_name(core->rung));
    }
    if (core->demand_milli != 0) {
        say(sentence, "; demand %.2f devices", core->demand_milli / 1000.0);
    }
    if (core->devices_have != 0 || core->devices_wanted != 0) {
        say(sentence, ", has %u, wants %u", core->devices_have, core->devices_wanted);
    }
    if (core->utilisation_permille != 0) {
        say(sentence, ", serving takes %u %% of the device", core->utilisation_permille / 10);
    }
    if (core->projected_wait_ns != 0) {
        say(sentence, ", projected wait %.1f ms", (double)core->projected_wait_ns / 1e6);
    }
    if (core->slo_ns != 0) {
        say(sentence, " (SLO %.4g ms)", (double)core->slo_ns / 1e6);
    }
}

static void say_victims(struct sentence *sentence, const struct control_move *move)
{
    for (uint32_t i = 0; i < move->core.victim_count; i++) {
        const struct control_victim *victim = &move->victims[i];
        const struct core_victim *core = &move->core.victims[i];
        say(sentence, "%s %s on %s", i == 0 ? "; considered" : ",", victim->job, victim->device);
        if (core->rung != CORE_RUNG_NONE) {
            say(sentence, " by %s", core_rung_name(core->rung));
        }
        say(sentence, " (%.2f device-s)", (double)victim->cost_ns / 1e9);
        if (victim->chosen || core->refused != CORE_REASON_NONE) {
            say(sentence, ", %s", victim->chosen ? "chosen" : core_reason_name(core->refused));
        }
    }
    if (!move->core.applied) {
        say(sentence, "; not done: %s", "mode or hold keeps it");
    }
}

static void say_story(struct sentence *sentence, const struct override_story *story)
{
    if (story == NULL || story->removed) {
        return;
    }
    if (story->override.object == OVERRIDE_DEVICE) {
        say(sentence, "; asked for by %s", story->override.actor);
    } else {
        say(sentence, "; its %s set by %s", story->override.field, story->override.actor);
    }
    say(sentence, "%s%s", story->override.reason[0] != '\0' ? ": " : "", story->override.reason);
}

/* Who asked for what this follows from, where a call has changed the object's settings. */
static void say_who(const struct control *control, struct sentence *sentence,
                    const struct control_move *move)
{
    const struct core_explanation *core = &move->core;
    bool leaves = core->reason == CORE_REASON_RECLAIM && core->device != 0;
    const struct override_story *story =
        leaves ? overrides_story(control->overrides, OVERRIDE_DEVICE, move->device, core->time_ns)
        : core->endpoint != 0
            ? overrides_story(control->overrides, OVERRIDE_ENDPOINT, move->endpoint, core->time_ns)
            : NULL;
    say_story(sentence, story);
}

void move_fill(struct control *control, const struct core_explanation *core,
               struct control_move *move)
{
    *move = (struct control_move){.core = *core};
    uint64_t ago_ns = control->now_ns > core->time_ns ? control->now_ns - core->time_ns : 0;
    move->time_wall_ns = clock_pace_wall_ns(&control->pace) - ago_ns;
    move->device = device_label(control, core->device);
    move->job = job_label(control, core->lease);
    move->endpoint = endpoint_label(control, core->endpoint);
    for (uint32_t i = 0; i < core->victim_count; i++) {
        const struct core_victim *victim = &core->victims[i];
        move->victims[i] = (struct control_victim){job_label(control, victim->lease),
                                                   device_label(control, victim->device),
                                                   victim->cost_ns, victim->chosen};
    }
    fill_ends(move);
    struct sentence sentence = {move->text, sizeof move->text, 0};
    say_what(&sentence, move);
    say_figures(&sentence, core);
    say_victims(&sentence, move);
    say_who(control, &sentence, move);
}

/* ---- asking
 * -------------------------------------------------------------------------------------------------
 */

int control_subject_find(struct control *control, const char *device, const char *job,
                         const char *endpoint, struct control_subject *ret_subject,
                         struct error *error)
{
    size_t index = 0;
    int result = 0;
    struct control_subject subject = {0};
    if ((device[0] != '\0') + (job[0] != '\0') + (endpoint[0] != '\0') > 1) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "explain: name one device, one job or one endpoint");
    }
    if (device[0] != '\0') {
        result = control_device_find(control, device, &index, error);
        subject.device = device_number((uint32_t)index);
    } else if (job[0] != '\0') {
        result = control_job_find(control, job, &index, error);
        subject.job = result == 0 ? control->jobs[index]->number : 0;
    } else if (endpoint[0] != '\0') {
        result = control_endpoint_find(control, endpoint, &index, error);
        subject.endpoint = result == 0 ? control->endpoints[index]->number : 0;
    }
    if (result == 0) {
        *ret_subject = subject;
    }
    return result;
}

void control_explain(struct control *control, const struct control_subject *subject,
                     size_t moves_max, void (*each)(void *context, const struct control_move *move),
                     void *context)
{
    static struct core_explanation found[256]; /* the control thread's */
    static struct control_move move;
    size_t capacity = sizeof found / sizeof found[0];
    size_t count =
        core_explanations(control->core, subject->device, subject->job, subject->endpoint, found,
                          moves_max < capacity ? moves_max : capacity);
    for (size_t i = 0; i < count; i++) {
        move_fill(control, &found[i], &move);
        each(context, &move);
    }
}

/* ---- the summary
 * ---------------------------------------------------------------------------------------------- */

static void summarise_device(struct control *control, uint64_t number, struct sentence *sentence)
{
    struct control_device device;
    if (!control_device_at(control, (size_t)number - 1, &device)) {
        return;
    }
    say(sentence, "%s is %s", device.device->id, control_device_state_name(device.state));
    if (device.job[0] != '\0') {
        say(sentence, ", held by job %s", device.job);
    }
    for (size_t i = 0; i < device.instance_count; i++) {
        say(sentence, "%s %s", i == 0 ? "; loaded on it:" : ",", device.instances[i]);
    }
    if (device.reason[0] != '\0') {
        say(sentence, " (%s)", device.reason);
    }
    say(sentence, "; of the last second %.0f %% serving, %.0f %% training, %.0f %% hand-over",
        device.serving * 100, device.training * 100, device.handover * 100);
}

static void summarise_job(struct control *control, uint64_t number, struct sentence *sentence)
{
    struct control_job job;
    size_t index = 0;
    if (job_by_number(control, number, &index) == NULL || !control_job_at(control, index, &job)) {
        return;
    }
    say(sentence, "job %s is %s", job.id, control_job_state_name(job.state));
    if (job.reason[0] != '\0') {
        say(sentence, " (%s)", job.reason);
    }
    say(sentence, ", at step %llu of %llu, holds %zu of %u to %u devices",
        (unsigned long long)job.figures.step, (unsigned long long)job.figures.steps,
        job.device_count, job.devices_min, job.devices_max);
}

static void summarise_endpoint(struct control *control, uint64_t number, struct sentence *sentence)
{
    struct control_endpoint endpoint;
    size_t index = 0;
    if (endpoint_by_number(control, number, &index) == NULL ||
        !control_endpoint_at(control, index, &endpoint)) {
        return;
    }
    say(sentence, "endpoint %s has %u ready instances and wants %u", endpoint.name,
        endpoint.instances_ready, endpoint.devices_wanted);
    if (endpoint.reason[0] != '\0') {
        say(sentence, " (%s)", endpoint.reason);
    }
    say(sentence, "; %.0f requests/s", endpoint.requests_per_s);
    if (endpoint.p99_ms == endpoint.p99_ms) {
        say(sentence, ", p99 %.2f ms of %.4g ms", endpoint.p99_ms, (double)endpoint.slo_ns / 1e6);
    }
    say_story(sentence, overrides_story(control->overrides, OVERRIDE_ENDPOINT, endpoint.name,
                                        control->now_ns));
}

void control_summary(struct control *control, const struct control_subject *subject, char *text,
                     size_t size)
{
    struct sentence sentence = {text, size, 0};
    text[0] = '\0';
    if (subject->device != 0) {
        summarise_device(control, subject->device, &sentence);
    } else if (subject->job != 0) {
        summarise_job(control, subject->job, &sentence);
    } else if (subject->endpoint != 0) {
        summarise_endpoint(control, subject->endpoint, &sentence);
    } else {
        say(&sentence, "mode %s%s", core_mode_name(core_mode_now(control->core)),
            core_hold_now(control->core) ? ", on hold" : "");
    }
}
