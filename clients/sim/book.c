/* book.c: every device-second in exactly one account, and what the run came to. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/state.h"

static enum core_account account_of(const struct engine *engine, uint32_t number)
{
    const struct device *device = &engine->devices[number];
    if (device->phase == ENGINE_LOST) {
        return CORE_ACCOUNT_QUARANTINED;
    }
    if (device->request != NONE) {
        return device->begun ? CORE_ACCOUNT_SERVING : CORE_ACCOUNT_HANDOVER;
    }
    switch (device->phase) {
    case ENGINE_SERVING:
    case ENGINE_DRAINING:
        return CORE_ACCOUNT_RESERVE;
    case ENGINE_GIVING:
        return CORE_ACCOUNT_RESTORE;
    case ENGINE_TRAINING:
        break;
    default:
        return CORE_ACCOUNT_HANDOVER;
    }
    if (device->job == NONE) {
        return CORE_ACCOUNT_FREE;
    }
    if (device->returning) {
        return CORE_ACCOUNT_HANDOVER;
    }
    if (device_trains(engine, number)) {
        return CORE_ACCOUNT_TRAINING;
    }
    return engine->jobs[device->job].away > 0 ? CORE_ACCOUNT_SUSPENDED : CORE_ACCOUNT_WAITING;
}

static void span_close(struct engine *engine, uint32_t number)
{
    const struct sim_observer *observer = &engine->setup->observer;
    struct device *device = &engine->devices[number];
    if (engine->now_ns == device->account_since_ns) {
        return;
    }
    engine->account_ns[device->account] += engine->now_ns - device->account_since_ns;
    if (observer->span != NULL) {
        observer->span(observer->context, number, device->account, device->account_since_ns,
                       engine->now_ns);
    }
    device->account_since_ns = engine->now_ns;
}

void book_update(struct engine *engine, uint32_t number)
{
    enum core_account account = account_of(engine, number);
    if (account != engine->devices[number].account) {
        span_close(engine, number);
        engine->devices[number].account = account;
    }
}

void book_handover(struct engine *engine, uint32_t number, bool to_training)
{
    const struct sim_observer *observer = &engine->setup->observer;
    engine->handovers++;
    if (observer->handover != NULL) {
        observer->handover(observer->context, number, to_training, engine->now_ns);
    }
}

/* ---- what it came to ---- */

static double seconds(core_sum_ns ns)
{
    return (double)ns / 1e9;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

static int compare_seconds(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The value below which that share of them lies (nearest rank). */
static double quantile(const double *sorted, size_t count, double part)
{
    size_t rank = (size_t)ceil(part * (double)count);
    return sorted[rank > 0 ? rank - 1 : 0];
}

static void result_waits(const struct engine *engine, struct sim_result *result)
{
    const struct sim_setup *setup = engine->setup;
    double *waits = calloc(setup->job_count + 1, sizeof *waits);
    size_t count = 0;
    result->job_wait_p50_s = result->job_wait_p99_s = NAN;
    for (size_t i = 0; i < engine->next_job && waits != NULL; i++) {
        uint64_t granted = engine->jobs[i].granted_ns;
        uint64_t until = granted != ENGINE_NEVER_NS ? granted : engine->now_ns;
        waits[count++] = seconds(until - setup->jobs[i].submit_ns);
    }
    if (count > 0) {
        qsort(waits, count, sizeof *waits, compare_seconds);
        result->job_wait_p50_s = quantile(waits, count, 0.5);
        result->job_wait_p99_s = quantile(waits, count, 0.99);
    }
    free(waits);
}

struct training {
    double kept_s, progress_s, held_s, lost_s, completion_s;
    core_sum_ns trained_ns;
};

static struct training training_sum(struct engine *engine, struct sim_result *result)
{
    struct training sum = {0};
    for (size_t i = 0; i < engine->next_job; i++) {
        struct job *job = &engine->jobs[i];
        job_advance(engine, job);
        sum.trained_ns += job->trained_ns;
        sum.kept_s += seconds(job->trained_ns - job->lost_ns);
        sum.progress_s += seconds(job->progress_ns);
        sum.held_s += seconds(job->held_ns);
        sum.lost_s += seconds(job->lost_ns);
        if (job->ended_ns != ENGINE_NEVER_NS) {
            sum.completion_s += seconds(job->ended_ns - engine->setup->jobs[i].submit_ns);
            result->jobs_finished++;
        }
    }
    return sum;
}

static bool balanced(struct engine *engine, const struct training *training)
{
    core_sum_ns sum = 0;
    for (int i = 0; i < CORE_ACCOUNT_COUNT; i++) {
        sum += engine->account_ns[i];
    }
    const struct policy_class *class = engine->policy->class;
    return sum == (core_sum_ns)engine->now_ns * engine->setup->device_count &&
           training->trained_ns == engine->account_ns[CORE_ACCOUNT_TRAINING] &&
           (class->balanced == NULL || class->balanced(engine->policy));
}

static void result_accounts(struct engine *engine, const struct training *training,
                            struct sim_result *result)
{
    for (int i = 0; i < CORE_ACCOUNT_COUNT; i++) {
        result->account_s[i] = seconds(engine->account_ns[i]);
    }
    /* A loss is a booked transfer: it was training until then. */
    result->account_s[CORE_ACCOUNT_TRAINING] -= training->lost_s;
    result->account_s[CORE_ACCOUNT_LOST] += training->lost_s;
}

static void jobs_tell(const struct engine *engine)
{
    const struct sim_observer *observer = &engine->setup->observer;
    for (uint32_t i = 0; i < engine->next_job && observer->job != NULL; i++) {
        observer->job(observer->context, i, engine->jobs[i].granted_ns, engine->jobs[i].ended_ns);
    }
}

void book_result(struct engine *engine, struct sim_result *result)
{
    const struct sim_setup *setup = engine->setup;
    double whole_s = seconds(engine->now_ns) * setup->device_count;
    for (uint32_t i = 0; i < setup->device_count; i++) {
        span_close(engine, i);
    }
    struct training training = training_sum(engine, result);
    result->span_s = seconds(engine->now_ns);
    result->requests = engine->next_request;
    result->late_requests = engine->late_requests;
    result->service_s = seconds(engine->service_ns);
    result->late_service_s = seconds(engine->late_service_ns);
    result->late_fraction = result->service_s > 0 ? result->late_service_s / result->service_s : 0;
    result->harvest_fraction = share(training.kept_s, whole_s);
    result->idle_bound = 1 - share(result->service_s, whole_s);
    result->slices_per_device_hour = share((double)engine->slices, whole_s / 3600);
    result->handovers_per_device_hour = share((double)engine->handovers, whole_s / 3600);
    result->lost_work_fraction = share(training.lost_s, whole_s);
    result->goodput_fraction = share(training.progress_s, training.held_s);
    result->effective_training_fraction = share(training.kept_s, training.held_s);
    result->job_completion_mean_s = share(training.completion_s, (double)result->jobs_finished);
    result_waits(engine, result);
    jobs_tell(engine);
    result_accounts(engine, &training, result);
    result->faults = engine->faults + engine->crashes;
    result->reclaims = engine->reclaims;
    result->ledger_balanced = balanced(engine, &training);
    result->events = engine->events;
}
