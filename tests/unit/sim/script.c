/* script.c: see script.h. */
#include "tests/unit/sim/script.h"

#include <stdio.h>

#define RANDOM_COOKIE UINT64_MAX

struct script_policy {
    struct policy base;
    struct script *script;
    uint64_t random;
};

static struct script *running; /* create gets no context */

static void tell(struct script *script, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void tell(struct script *script, const char *format, ...)
{
    size_t used = strlen(script->told);
    va_list arguments;
    va_start(arguments, format);
    if (used + 40 < sizeof script->told) {
        vsnprintf(script->told + used, sizeof script->told - used, format, arguments);
    }
    va_end(arguments);
}

static void do_step(struct engine *engine, const struct script_step *step)
{
    switch (step->what) {
    case SCRIPT_GIVE:
    case SCRIPT_GIVE_SHARED:
        assert_true(engine_give(engine, step->device, step->job, step->what == SCRIPT_GIVE_SHARED));
        break;
    case SCRIPT_TAKE:
        assert_true(engine_take(engine, step->device, step->rung));
        break;
    case SCRIPT_GIVE_ANY:
        assert_true(engine_give_any(engine));
        break;
    case SCRIPT_TAKE_ANY:
        assert_true(engine_take_any(engine, step->rung));
        break;
    case SCRIPT_INSTANCE_OFF:
    case SCRIPT_INSTANCE_ON:
        engine_instance_set(engine, step->device, step->job, step->what == SCRIPT_INSTANCE_ON);
        break;
    case SCRIPT_REFUSED_GIVE:
        assert_false(engine_give(engine, step->device, step->job, false));
        break;
    case SCRIPT_REFUSED_TAKE:
        assert_false(engine_take(engine, step->device, step->rung));
        break;
    }
}

static uint32_t draw(struct script_policy *policy, uint32_t below)
{
    uint64_t z = policy->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % below);
}

/* Much of it cannot be done and is refused. */
static void do_anything(struct script_policy *policy)
{
    struct engine *engine = policy->base.engine;
    const struct sim_setup *setup = engine_setup(engine);
    uint32_t device = draw(policy, setup->device_count), what = draw(policy, 12);
    uint32_t job = setup->job_count > 0 ? draw(policy, (uint32_t)setup->job_count) : ENGINE_POOL;
    enum core_rung rung = (enum core_rung)draw(policy, CORE_RUNG_COUNT);
    if (what < 3) {
        engine_give(engine, device, draw(policy, 2) ? ENGINE_POOL : job, draw(policy, 2));
    } else if (what < 7) {
        engine_take(engine, device, rung);
    } else if (what < 9) {
        engine_give_any(engine);
    } else if (what < 10) {
        engine_take_any(engine, rung);
    } else {
        engine_instance_set(engine, device, draw(policy, setup->endpoint_count), what == 11);
    }
    engine_wake_at(engine, engine_now_ns(engine) + draw(policy, 400000000), RANDOM_COOKIE);
}

static void on_begin(struct policy *base)
{
    struct script *script = ((struct script_policy *)base)->script;
    for (size_t i = 0; i < script->step_count; i++) {
        engine_wake_at(base->engine, script->steps[i].at_ns, i);
    }
    if (script->random) {
        engine_wake_at(base->engine, 0, RANDOM_COOKIE);
    }
}

static void on_wake(struct policy *base, uint64_t cookie)
{
    struct script_policy *policy = (struct script_policy *)base;
    if (cookie == RANDOM_COOKIE) {
        do_anything(policy);
    } else {
        do_step(base->engine, &policy->script->steps[cookie]);
    }
}

static const char *const phase_names[ENGINE_PHASES] = {
    [ENGINE_SERVING] = "serving",   [ENGINE_DRAINING] = "draining", [ENGINE_GIVING] = "giving",
    [ENGINE_TRAINING] = "training", [ENGINE_TAKING] = "taking",     [ENGINE_LOST] = "lost",
};

static void on_arrived(struct policy *base, uint32_t endpoint)
{
    tell(((struct script_policy *)base)->script, "arrived %u;", endpoint);
}

static void on_serve_began(struct policy *base, uint32_t device, uint32_t endpoint)
{
    tell(((struct script_policy *)base)->script, "began %u %u;", device, endpoint);
}

static void on_serve_ended(struct policy *base, uint32_t device, uint32_t endpoint,
                           uint64_t service_ns)
{
    tell(((struct script_policy *)base)->script, "ended %u %u %g;", device, endpoint,
         (double)service_ns / 1e9);
}

static void on_moved(struct policy *base, uint32_t device, enum engine_phase phase)
{
    assert_int_equal(engine_phase_of(base->engine, device), phase);
    tell(((struct script_policy *)base)->script, "%s %u;", phase_names[phase], device);
}

static void on_wanted(struct policy *base, uint32_t device, uint64_t by_ns)
{
    tell(((struct script_policy *)base)->script, "wanted %u %g;", device,
         (double)(by_ns - engine_now_ns(base->engine)) / 1e9);
}

static void on_job_submitted(struct policy *base, uint32_t job)
{
    tell(((struct script_policy *)base)->script, "submitted %u;", job);
}

static void on_job_ended(struct policy *base, uint32_t job)
{
    tell(((struct script_policy *)base)->script, "finished %u;", job);
}

static struct policy *policy_create(struct engine *engine, const double *parameters,
                                    struct error *error)
{
    struct script_policy *policy = calloc(1, sizeof *policy);
    (void)engine;
    (void)parameters;
    (void)error;
    assert_non_null(policy);
    policy->script = running;
    policy->random = running->setup.seed;
    return &policy->base;
}

static void policy_destroy(struct policy *base)
{
    free(base);
}

static const struct policy_class script_class = {
    .name = "script",
    .create = policy_create,
    .destroy = policy_destroy,
    .begin = on_begin,
    .wake = on_wake,
    .arrived = on_arrived,
    .serve_began = on_serve_began,
    .serve_ended = on_serve_ended,
    .moved = on_moved,
    .wanted = on_wanted,
    .job_submitted = on_job_submitted,
    .job_ended = on_job_ended,
};

/* The same for random runs, where phases may change again before a hook is called. */
static const struct policy_class random_class = {
    .name = "random",
    .create = policy_create,
    .destroy = policy_destroy,
    .begin = on_begin,
    .wake = on_wake,
};

static void on_span(void *context, uint32_t device, enum core_account account, uint64_t from_ns,
                    uint64_t to_ns)
{
    struct script *script = context;
    if (script->span_count < sizeof script->spans / sizeof script->spans[0]) {
        script->spans[script->span_count++] = (struct script_span){device, account, from_ns, to_ns};
    }
}

static void on_request(void *context, const struct sim_request *request, uint64_t start_ns)
{
    struct script *script = context;
    size_t number = (size_t)(request - script->setup.requests);
    if (number < sizeof script->start_ns / sizeof script->start_ns[0]) {
        script->start_ns[number] = start_ns;
    }
}

void script_init(struct script *script)
{
    *script = (struct script){
        .setup = {.endpoint_count = 1,
                  .device_count = 1,
                  .rungs = {{CORE_RUNG_FREEZE, SECONDS(1), SECONDS(2), false},
                            {CORE_RUNG_YIELD, 0, 0, false},
                            {CORE_RUNG_NOTICE, SECONDS(30), SECONDS(10), false},
                            {CORE_RUNG_KILL, 0, SECONDS(30), true}},
                  .rung_count = 4,
                  .slo_ns = SECONDS(1),
                  .end_ns = SECONDS(100),
                  .hold_ns = ENGINE_NEVER_NS,
                  .seed = 1},
    };
    script->setup.observer =
        (struct sim_observer){.context = script, .span = on_span, .request = on_request};
}

void script_run(struct script *script)
{
    struct policy_choice choice = policy_standard(script->class != NULL ? script->class
                                                  : script->random      ? &random_class
                                                                        : &script_class);
    struct error error = {0};
    running = script;
    script->span_count = 0;
    script->told[0] = '\0';
    if (engine_run(&script->setup, &choice, &script->result, &error) < 0) {
        fail_msg("%s", error.text);
    }
    running = NULL;
}

double script_spent_s(const struct script *script, uint32_t device, enum core_account account)
{
    double spent_s = 0;
    for (size_t i = 0; i < script->span_count; i++) {
        const struct script_span *span = &script->spans[i];
        if (span->device == device && span->account == account) {
            spent_s += (double)(span->to_ns - span->from_ns) / 1e9;
        }
    }
    return spent_s;
}
