/* rayserve.c: Ray Serve's autoscaling timing (baselines.h). */
#include "clients/sim/baselines.h"
#include "clients/sim/scaler.h"

#define PUSH_NS UINT64_C(10000000000)
#define LOOP_NS UINT64_C(100000000)
#define WINDOW_PUSHES 3 /* 30 s of looking back */
#define UP_NS UINT64_C(30000000000)
#define DOWN_NS UINT64_C(600000000000)

enum { RAYSERVE_TARGET, RAYSERVE_MINIMUM };
static const struct policy_parameter rayserve_parameters[] = {
    {"target", 0.01, 1000, 2, "requests in flight per device (target_ongoing_requests)"},
    {"min", 0, ENGINE_DEVICES_MAX, 1, "devices that serve at least"},
};

enum rayserve_wake { RAYSERVE_PUSH, RAYSERVE_LOOK };

struct rayserve {
    struct scaler scaler;
    double target;
    double sums[WINDOW_PUSHES + 1]; /* at every push, a ring */
    uint64_t pushes;
    uint32_t answer;   /* what the last push asks for */
    int direction;     /* of it against what there is: 1 up, -1 down */
    uint64_t since_ns; /* when the direction began */
};

static struct policy *rayserve_create(struct engine *engine, const double *parameters,
                                      struct error *error)
{
    struct rayserve *rayserve =
        scaler_create(engine, sizeof(*rayserve), parameters[RAYSERVE_MINIMUM], error);
    if (rayserve != NULL) {
        rayserve->target = parameters[RAYSERVE_TARGET];
    }
    return (struct policy *)rayserve;
}

static void rayserve_begin(struct policy *policy)
{
    engine_wake_at(policy->engine, PUSH_NS, RAYSERVE_PUSH);
}

/* Between two pushes nothing changes but the time: only a change of direction and the end of its
 * delay have to be looked at. */
static void rayserve_direct(struct rayserve *rayserve)
{
    uint64_t now_ns = engine_now_ns(rayserve->scaler.policy.engine);
    int direction =
        (rayserve->answer > rayserve->scaler.wanted) - (rayserve->answer < rayserve->scaler.wanted);
    if (direction != rayserve->direction) {
        rayserve->direction = direction;
        rayserve->since_ns = now_ns;
        if (direction != 0) { /* the delay has passed when the loop finds more than it */
            engine_wake_at(rayserve->scaler.policy.engine,
                           now_ns + (direction > 0 ? UP_NS : DOWN_NS) + LOOP_NS, RAYSERVE_LOOK);
        }
    }
}

static void rayserve_push(struct rayserve *rayserve)
{
    rayserve->pushes++;
    double sum = scaler_sum(&rayserve->scaler);
    uint64_t span = rayserve->pushes < WINDOW_PUSHES ? rayserve->pushes : WINDOW_PUSHES;
    rayserve->sums[rayserve->pushes % (WINDOW_PUSHES + 1)] = sum;
    double before = rayserve->sums[(rayserve->pushes - span) % (WINDOW_PUSHES + 1)];
    double average = (sum - before) / ((double)(span * PUSH_NS) * 1e-9);
    uint32_t answer = scaler_ceiling(average / rayserve->target, rayserve->scaler.devices);
    uint32_t minimum = rayserve->scaler.minimum;
    rayserve->answer = answer > minimum ? answer : minimum;
    rayserve_direct(rayserve);
}

static void rayserve_look(struct rayserve *rayserve)
{
    uint64_t now_ns = engine_now_ns(rayserve->scaler.policy.engine);
    uint64_t delay_ns = rayserve->direction > 0 ? UP_NS : DOWN_NS;
    /* The wake of a direction that has ended since comes early. */
    if (rayserve->direction != 0 && now_ns > rayserve->since_ns + delay_ns) {
        scaler_want(&rayserve->scaler, rayserve->answer);
        rayserve_direct(rayserve);
    }
}

static void rayserve_wake(struct policy *policy, uint64_t cookie)
{
    struct rayserve *rayserve = (struct rayserve *)policy;
    if (cookie == RAYSERVE_LOOK) {
        rayserve_look(rayserve);
        return;
    }
    rayserve_push(rayserve);
    engine_wake_at(policy->engine, engine_now_ns(policy->engine) + PUSH_NS, RAYSERVE_PUSH);
}

const struct policy_class policy_rayserve = {
    .name = "rayserve",
    .help = "Ray Serve timing: pushed every 10 s, up after 30 s, down after 600 s",
    .parameters = rayserve_parameters,
    .parameter_count = sizeof(rayserve_parameters) / sizeof(rayserve_parameters[0]),
    .create = rayserve_create,
    .destroy = scaler_destroy,
    .begin = rayserve_begin,
    .wake = rayserve_wake,
    .arrived = scaler_arrived,
    .serve_ended = scaler_ended,
};
