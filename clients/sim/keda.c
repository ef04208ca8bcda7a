/* keda.c: KEDA's timing with the Kubernetes horizontal pod autoscaler behind it (baselines.h). */
#include <math.h>

#include "clients/sim/baselines.h"
#include "clients/sim/scaler.h"

#define POLL_NS UINT64_C(30000000000)
#define SYNC_NS UINT64_C(15000000000)
#define DOWN_SYNCS 20 /* 300 s of stabilisation */
#define TOLERANCE 0.1
#define UP_DEVICES 4 /* the most that comes at once, or as many again as there are */

enum { KEDA_TARGET, KEDA_MINIMUM };
static const struct policy_parameter keda_parameters[] = {
    {"target", 0.01, 1000, 1, "requests in flight per device, averaged between two polls"},
    {"min", 0, ENGINE_DEVICES_MAX, 1, "devices that serve at least"},
};

struct keda {
    struct scaler scaler;
    double target;
    double polled_sum; /* at the last poll */
    double metric;     /* what that poll saw */
    bool polled;
    uint32_t answers[DOWN_SYNCS]; /* the last 300 s of them */
    uint32_t syncs;
};

static struct policy *keda_create(struct engine *engine, const double *parameters,
                                  struct error *error)
{
    struct keda *keda = scaler_create(engine, sizeof(*keda), parameters[KEDA_MINIMUM], error);
    if (keda != NULL) {
        keda->target = parameters[KEDA_TARGET];
    }
    return (struct policy *)keda;
}

static void keda_begin(struct policy *policy)
{
    engine_wake_at(policy->engine, SYNC_NS, 0);
}

static void keda_poll(struct keda *keda)
{
    double sum = scaler_sum(&keda->scaler);
    keda->metric = (sum - keda->polled_sum) / ((double)POLL_NS * 1e-9);
    keda->polled_sum = sum;
    keda->polled = true;
}

/* What the metric asks for now. From none to one is KEDA's own doing: any load does it. */
static uint32_t keda_answer(const struct keda *keda)
{
    uint32_t current = keda->scaler.wanted;
    if (current == 0) {
        return keda->metric > 0 ? 1 : 0;
    }
    double ratio = keda->metric / (keda->target * current);
    if (!keda->polled || fabs(ratio - 1) <= TOLERANCE) {
        return current;
    }
    return scaler_ceiling(current * ratio, keda->scaler.devices);
}

static uint32_t keda_limit_up(uint32_t current, uint32_t answer)
{
    uint32_t most = current > UP_DEVICES ? 2 * current : current + UP_DEVICES;
    return answer < most ? answer : most;
}

static void keda_sync(struct keda *keda)
{
    uint32_t current = keda->scaler.wanted;
    uint32_t answer = keda_answer(keda);
    /* Until 300 s have passed, the number at the start is one of the answers. */
    uint32_t highest = keda->syncs < DOWN_SYNCS ? keda->scaler.devices : 0;
    keda->answers[keda->syncs++ % DOWN_SYNCS] = answer;
    for (uint32_t i = 0; i < DOWN_SYNCS && i < keda->syncs; i++) {
        highest = keda->answers[i] > highest ? keda->answers[i] : highest;
    }
    if (answer > current) {
        answer = keda_limit_up(current, answer);
    } else {
        answer = highest < current ? highest : current;
    }
    scaler_want(&keda->scaler, answer);
}

static void keda_wake(struct policy *policy, uint64_t cookie)
{
    struct keda *keda = (struct keda *)policy;
    uint64_t now_ns = engine_now_ns(policy->engine);
    (void)cookie;
    if (now_ns % POLL_NS == 0) {
        keda_poll(keda);
    }
    keda_sync(keda);
    engine_wake_at(policy->engine, now_ns + SYNC_NS, 0);
}

const struct policy_class policy_keda = {
    .name = "keda",
    .help = "KEDA and HPA timing: 30 s poll, 15 s sync, 300 s before going down",
    .parameters = keda_parameters,
    .parameter_count = sizeof(keda_parameters) / sizeof(keda_parameters[0]),
    .create = keda_create,
    .destroy = scaler_destroy,
    .begin = keda_begin,
    .wake = keda_wake,
    .arrived = scaler_arrived,
    .serve_ended = scaler_ended,
};
