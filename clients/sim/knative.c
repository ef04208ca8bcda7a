/* knative.c: the Knative pod autoscaler's timing (baselines.h). */
#include "clients/sim/baselines.h"
#include "clients/sim/scaler.h"

#define SECOND_NS UINT64_C(1000000000)
#define TICK_S 2
#define STABLE_S 60
#define PANIC_S 6
#define UP_RATE 1000.0
#define DOWN_RATE 2.0

enum { KNATIVE_TARGET, KNATIVE_MINIMUM, KNATIVE_PANIC };
static const struct policy_parameter knative_parameters[] = {
    {"target", 0.01, 1000, 0.7, "requests in flight per device"},
    {"min", 0, ENGINE_DEVICES_MAX, 0, "devices that serve at least"},
    {"panic", 1.1, 10, 2, "panics when the short window asks for so many times the devices"},
};

struct knative {
    struct scaler scaler;
    double target, panic;
    double sums[STABLE_S + 1]; /* of every second, a ring */
    uint64_t seconds;
    bool panics;
    uint64_t panic_s;    /* when there was last a reason for it */
    uint32_t panic_most; /* the most devices asked for in this panic */
};

static struct policy *knative_create(struct engine *engine, const double *parameters,
                                     struct error *error)
{
    struct knative *knative =
        scaler_create(engine, sizeof(*knative), parameters[KNATIVE_MINIMUM], error);
    if (knative != NULL) {
        knative->target = parameters[KNATIVE_TARGET];
        knative->panic = parameters[KNATIVE_PANIC];
    }
    return (struct policy *)knative;
}

static void knative_begin(struct policy *policy)
{
    engine_wake_at(policy->engine, SECOND_NS, 0);
}

/* Requests in flight averaged over the window, or over what there is of it. */
static double average(const struct knative *knative, uint64_t window_s)
{
    uint64_t span = knative->seconds < window_s ? knative->seconds : window_s;
    double now = knative->sums[knative->seconds % (STABLE_S + 1)];
    return (now - knative->sums[(knative->seconds - span) % (STABLE_S + 1)]) / (double)span;
}

static uint32_t rate_limit(uint32_t ready, uint32_t wanted)
{
    uint32_t least = (uint32_t)(ready / DOWN_RATE);
    double most = UP_RATE * ready;
    wanted = wanted > least ? wanted : least;
    return wanted < most ? wanted : (uint32_t)most;
}

static void panic_update(struct knative *knative, bool reason)
{
    if (reason) {
        knative->panic_most = knative->panics ? knative->panic_most : 0;
        knative->panics = true;
        knative->panic_s = knative->seconds;
    } else if (knative->panic_s + STABLE_S < knative->seconds) {
        knative->panics = false;
    }
}

static void knative_decide(struct knative *knative)
{
    struct scaler *scaler = &knative->scaler;
    uint32_t serving = engine_count(scaler->policy.engine, ENGINE_SERVING);
    uint32_t ready = serving > 0 ? serving : 1;
    uint32_t stable = scaler_ceiling(average(knative, STABLE_S) / knative->target, UINT32_MAX);
    uint32_t panic = scaler_ceiling(average(knative, PANIC_S) / knative->target, UINT32_MAX);
    panic_update(knative, panic >= knative->panic * ready);
    uint32_t wanted = rate_limit(ready, stable);
    if (serving == 0 && stable == 0) {
        wanted = 0; /* nothing has come within the long window */
    }
    if (knative->panics) {
        panic = rate_limit(ready, panic);
        wanted = panic > wanted ? panic : wanted;
        knative->panic_most = wanted > knative->panic_most ? wanted : knative->panic_most;
        wanted = knative->panic_most;
    }
    scaler_want(scaler, wanted);
}

static void knative_wake(struct policy *policy, uint64_t cookie)
{
    struct knative *knative = (struct knative *)policy;
    (void)cookie;
    knative->seconds++;
    knative->sums[knative->seconds % (STABLE_S + 1)] = scaler_sum(&knative->scaler);
    if (knative->seconds % TICK_S == 0) {
        knative_decide(knative);
    }
    engine_wake_at(policy->engine, engine_now_ns(policy->engine) + SECOND_NS, 0);
}

const struct policy_class policy_knative = {
    .name = "knative",
    .help = "Knative timing: windows of 60 s and, in panic, 6 s; a decision every 2 s",
    .parameters = knative_parameters,
    .parameter_count = sizeof(knative_parameters) / sizeof(knative_parameters[0]),
    .create = knative_create,
    .destroy = scaler_destroy,
    .begin = knative_begin,
    .wake = knative_wake,
    .arrived = scaler_arrived,
    .serve_ended = scaler_ended,
};
