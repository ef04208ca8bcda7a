/* rig.h: a core with a shell in virtual time around it, for tests. Actions are answered by a model
 * shell after given delays; every step is followed by core_check. A failure prints the seed. */
#ifndef TIDEPOOL_TESTS_UNIT_CORE_RIG_H
#define TIDEPOOL_TESTS_UNIT_CORE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/core/core.h"

#define MS(n) ((uint64_t)(n)*UINT64_C(1000000))
#define SECONDS(n) ((uint64_t)(n)*UINT64_C(1000000000))

#define RIG_PLACE_MAX 128

struct rig_pending {
    struct core_event event; /* with its time */
    uint64_t order;          /* first come first served at equal times */
};

struct rig {
    struct core *core;
    struct core_action *actions; /* of the last step */
    size_t count, capacity;
    uint64_t now_ns, timer_ns;
    uint64_t seed;             /* printed by a failure, as is ... */
    char place[RIG_PLACE_MAX]; /* ... where in a file this comes from; empty: from no file */
    struct rig_pending *pending;
    size_t pending_count, pending_capacity;
    uint64_t order;
    bool answers;                /* the shell answers by itself */
    uint64_t answer_ns;          /* grant, verify, kill */
    uint64_t place_ns;           /* place, remove */
    uint64_t release_ns;         /* from revoke to its acknowledgement */
    uint64_t stop_ns, resume_ns; /* from revoke to suspended, from resume to resumed */
    uint64_t total[CORE_ACTION_COUNT];
    uint64_t steps;
    bool whole; /* every step looks at everything */
    void (*on_event)(struct rig *rig, const struct core_event *event); /* before the step */
    void (*on_step)(struct rig *rig, const struct core_event *event);  /* after it */
    void (*on_action)(struct rig *rig, const struct core_action *action);
    void *context;
};

struct rig *rig_create(const struct core_config *config); /* NULL config: the defaults */
void rig_destroy(struct rig *rig);
void rig_send(struct rig *rig, struct core_event event); /* at now_ns */
void rig_later(struct rig *rig, struct core_event event, uint64_t delay_ns);
/* Lets time pass: answers and timers come in order. */
void rig_run(struct rig *rig, uint64_t span_ns);
/* The first action of a kind in the last step, or NULL. */
const struct core_action *rig_find(const struct rig *rig, enum core_action_kind kind);
size_t rig_count(const struct rig *rig, enum core_action_kind kind);

/* Shorthands for events. */
void rig_device(struct rig *rig, uint64_t device);
void rig_device_event(struct rig *rig, enum core_event_kind kind, uint64_t device);
void rig_device_flag(struct rig *rig, enum core_event_kind kind, uint64_t device, bool on);
void rig_endpoint(struct rig *rig, uint64_t endpoint, uint64_t slo_ns, uint64_t service_ns);
struct core_lease_spec rig_lease_spec(uint64_t lease, uint32_t min, uint32_t max);
void rig_lease(struct rig *rig, uint64_t lease, uint32_t min, uint32_t max);
/* One of an outside job: `rungs` are bits 1 << CORE_RUNG_*. */
struct core_lease_spec rig_outside_spec(uint64_t lease, uint32_t min, uint32_t max, uint32_t rungs);
void rig_request(struct rig *rig, struct core_lease_spec spec);
void rig_lease_event(struct rig *rig, enum core_event_kind kind, uint64_t lease);
void rig_reconcile(struct rig *rig);
void rig_team(struct rig *rig, uint64_t team, uint32_t weight, uint32_t quota); /* of kind 0 */
void rig_sample(struct rig *rig, uint64_t device, uint64_t interval_ns, uint64_t serving_ns);
void rig_danger(struct rig *rig, uint64_t endpoint, uint64_t projected_wait_ns);
void rig_load(struct rig *rig, uint64_t endpoint, uint64_t interval_ns, uint32_t arrivals);

/* Shorthands for views. */
struct core_device_view rig_device_view(const struct rig *rig, uint64_t device);
struct core_lease_view rig_lease_view(const struct rig *rig, uint64_t lease);
struct core_team_view rig_team_view(const struct rig *rig, uint64_t team);
struct core_endpoint_view rig_endpoint_view(const struct rig *rig, uint64_t endpoint);
struct core_ledger rig_ledger(const struct rig *rig);
/* The newest explanation of this kind about a device and lease (0: any); fails if there is none. */
struct core_explanation rig_explanation(const struct rig *rig, enum core_what what, uint64_t device,
                                        uint64_t lease);

#endif
