/* policy.h: who decides in a simulated pool: the contract between the engine and its policies.
 * A policy embeds `struct policy` first, learns through the hooks of its class and asks through
 * engine_give, engine_take and engine_wake_at (engine.h). It never sees the service time of a
 * request before that has finished, nor anything of the future.
 * Hooks:   called at engine_now_ns; all but create and destroy may be NULL (wake: if it never asks
 *          to be woken). A hook may call any engine function; what that brings about at once is
 * told by further hooks after it. Owner:   create's result belongs to the engine, which destroys
 * it. Thread:  the engine's. */
#ifndef TIDEPOOL_CLIENTS_SIM_POLICY_H
#define TIDEPOOL_CLIENTS_SIM_POLICY_H

#include "clients/sim/engine.h"

#define POLICY_PARAMETERS_MAX 8

/* A number that tunes a policy: --policy NAME:PARAMETER=VALUE,... */
struct policy_parameter {
    const char *name;
    double minimum, maximum, standard;
    const char *help; /* with its unit */
};

struct policy_class;

struct policy {
    const struct policy_class *class; /* both set by the engine after create */
    struct engine *engine;
};

struct policy_class {
    const char *name; /* of --policy */
    const char *help;
    const struct policy_parameter *parameters;
    size_t parameter_count;
    /* Before time 0; `parameters` has parameter_count values in their ranges. NULL: error is set.
     */
    struct policy *(*create)(struct engine *engine, const double *parameters, struct error *error);
    void (*destroy)(struct policy *policy);
    void (*begin)(struct policy *policy); /* at time 0, before anything else */
    void (*wake)(struct policy *policy, uint64_t cookie);
    void (*arrived)(struct policy *policy, uint32_t endpoint); /* started already, or waiting */
    void (*serve_began)(struct policy *policy, uint32_t device, uint32_t endpoint);
    void (*serve_ended)(struct policy *policy, uint32_t device, uint32_t endpoint,
                        uint64_t service_ns);
    /* The device reached a phase by itself: SERVING (taken, repaired, left by its job), GIVING
     * (drained), TRAINING (given), LOST. */
    void (*moved)(struct policy *policy, uint32_t device, enum engine_phase phase);
    /* Its provider takes the device back by then: it will be LOST. */
    void (*wanted)(struct policy *policy, uint32_t device, uint64_t by_ns);
    void (*job_submitted)(struct policy *policy, uint32_t job);
    void (*job_ended)(struct policy *policy, uint32_t job); /* finished: its devices are SERVING */
    /* The controller died: it keeps nothing that it did not commit, and is called again only by
     * `restarted`. Without these two hooks the policy just sleeps meanwhile: no hook is called. */
    void (*crashed)(struct policy *policy);
    void (*restarted)(struct policy *policy);
    /* At the end: its own books agree with themselves. NULL: it keeps none. */
    bool (*balanced)(struct policy *policy);
};

/* A class with values for its parameters. */
struct policy_choice {
    const struct policy_class *class;
    double parameters[POLICY_PARAMETERS_MAX];
};

/* The class with its standard values. */
struct policy_choice policy_standard(const struct policy_class *class);

extern const struct policy_class policy_tidepool;

#endif
