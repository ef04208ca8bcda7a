/* fixed.c: policies that do not look: serve-all and the static split. */
#include "clients/sim/baselines.h"
#include "clients/sim/scaler.h"

static const struct policy_parameter static_parameters[] = {
    {"serving", 0, ENGINE_DEVICES_MAX, 4, "devices that serve; the others train"},
};

static struct policy *serve_all_create(struct engine *engine, const double *parameters,
                                       struct error *error)
{
    (void)parameters;
    return scaler_create(engine, sizeof(struct scaler), 0, error);
}

static struct policy *static_create(struct engine *engine, const double *parameters,
                                    struct error *error)
{
    return scaler_create(engine, sizeof(struct scaler), parameters[0], error);
}

static void static_begin(struct policy *policy)
{
    scaler_want((struct scaler *)policy, 0); /* that is: the minimum */
}

/* A device that comes back to life, or that its job leaves, goes where it was. */
static void static_moved(struct policy *policy, uint32_t device, enum engine_phase phase)
{
    (void)device;
    if (phase == ENGINE_SERVING || phase == ENGINE_LOST) {
        static_begin(policy);
    }
}

static void static_job_submitted(struct policy *policy, uint32_t job)
{
    (void)job;
    static_begin(policy);
}

const struct policy_class policy_serve_all = {
    .name = "serve-all",
    .help = "all devices always serve",
    .create = serve_all_create,
    .destroy = scaler_destroy,
};

const struct policy_class policy_static = {
    .name = "static",
    .help = "a fixed number of devices serves, the others train",
    .parameters = static_parameters,
    .parameter_count = 1,
    .create = static_create,
    .destroy = scaler_destroy,
    .begin = static_begin,
    .moved = static_moved,
    .job_submitted = static_job_submitted,
    .job_ended = static_job_submitted,
};
