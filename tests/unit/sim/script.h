/* script.h: small runs of the engine under a policy that does what a list says, and a policy that
 * does anything at random. */
#ifndef TIDEPOOL_TESTS_UNIT_SIM_SCRIPT_H
#define TIDEPOOL_TESTS_UNIT_SIM_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/sim/policy.h"

#define MS(n) ((uint64_t)(n)*1000000)
#define SECONDS(n) ((uint64_t)(n)*1000000000)

enum script_what {
    SCRIPT_GIVE,        /* to `job`, or ENGINE_POOL */
    SCRIPT_GIVE_SHARED, /* the same; requests may run there */
    SCRIPT_TAKE,        /* by `rung` */
    SCRIPT_GIVE_ANY,
    SCRIPT_TAKE_ANY,
    SCRIPT_INSTANCE_OFF, /* of endpoint `job` */
    SCRIPT_INSTANCE_ON,
    SCRIPT_REFUSED_GIVE, /* must come back false */
    SCRIPT_REFUSED_TAKE,
};

struct script_step {
    uint64_t at_ns;
    enum script_what what;
    uint32_t device, job;
    enum core_rung rung;
};

struct script_span {
    uint32_t device;
    enum core_account account;
    uint64_t from_ns, to_ns;
};

struct script {
    struct sim_setup setup; /* filled by script_init; change it before script_run */
    const struct script_step *steps;
    size_t step_count;
    bool random;                      /* steps by chance instead */
    const struct policy_class *class; /* or this policy, as it comes; NULL: the list */
    struct sim_result result;
    /* What happened: starts of requests by number (ENGINE_NEVER_NS: never), spans of accounts,
     * and hooks as text: "moved 0 training". */
    uint64_t start_ns[64];
    struct script_span spans[256];
    size_t span_count;
    char told[4096];
};

/* 1 device, an SLO of 1 s, 100 s, rungs: yield 0/0, freeze 1 s/2 s, notice 30 s/10 s, kill 0/30 s.
 */
void script_init(struct script *script);
void script_run(struct script *script);
/* Seconds that the device was in the account. */
double script_spent_s(const struct script *script, uint32_t device, enum core_account account);

#endif
