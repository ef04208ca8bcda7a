/* test_ways_out.c: every way out of a lease, in pairs at the same moment and in every phase, gives
 * each device back exactly once (LP-4); random requests are granted whole or not at all, and nobody
 * waits for ever (LP-3). */
#include <inttypes.h>
#include <stdio.h>

#include "tests/unit/core/rig.h"

enum way {
    WAY_RELEASE,
    WAY_RELEASE_OLD, /* with a token that is not current */
    WAY_RELEASE_ONE, /* device 1 only */
    WAY_CANCEL,
    WAY_EXIT,
    WAY_EXIT_AGAIN,
    WAY_PAUSE,
    WAY_FAIL, /* device 2 */
    WAY_RECLAIM,
    WAY_ACTION_FAILED,
    WAY_EXPIRE,
    WAY_COUNT,
};

enum phase {
    PHASE_WAITING,
    PHASE_GRANTING,
    PHASE_HELD,
    PHASE_REVOKING,
    PHASE_VERIFYING,
    PHASE_COUNT,
};

struct history {
    uint32_t owners[3]; /* grants minus verified releases or losses, by device */
    uint64_t grants, gives;
    uint64_t last_action[3]; /* grant or revoke that is awaited */
};

static void on_action(struct rig *rig, const struct core_action *action)
{
    struct history *history = rig->context;
    if (action->kind == CORE_ACTION_GRANT) {
        assert_int_equal(history->owners[action->grant.device], 0);
        history->owners[action->grant.device]++;
        history->last_action[action->grant.device] = action->id;
        history->grants++;
    } else if (action->kind == CORE_ACTION_REVOKE && action->revoke.rung == CORE_RUNG_NONE) {
        assert_int_equal(history->owners[action->revoke.device], 1);
        history->owners[action->revoke.device]--;
        history->gives++;
    } else if (action->kind == CORE_ACTION_QUARANTINE && action->device.lease != 0) {
        assert_int_equal(history->owners[action->device.device], 1);
        history->owners[action->device.device]--;
        history->gives++;
    }
}

static void on_event(struct rig *rig, const struct core_event *event)
{
    struct history *history = rig->context;
    struct core_device_view view;
    bool verified = event->kind == CORE_EVENT_RELEASE_VERIFIED;
    bool failed = event->kind == CORE_EVENT_DEVICE_FAILED;
    uint64_t device = verified ? event->verified.device : event->device.device;
    if ((verified || failed) && core_device_find(rig->core, device, &view) &&
        view.hold == CORE_HOLD_VERIFYING && view.lease != 0) {
        assert_int_equal(history->owners[device], 1);
        history->owners[device]--;
        history->gives++;
    }
}

static void leave(struct rig *rig, enum way way)
{
    struct history *history = rig->context;
    struct core_event event = {0};
    struct core_lease_view view;
    uint64_t run = core_lease_find(rig->core, 1, &view) ? view.run : 0;
    switch (way) {
    case WAY_RELEASE:
    case WAY_RELEASE_OLD:
    case WAY_RELEASE_ONE:
        event.kind = CORE_EVENT_LEASE_RELEASED;
        event.lease_released.device = way == WAY_RELEASE_ONE;
        event.lease_released.generation = way == WAY_RELEASE_OLD ? run + 100 : run;
        break;
    case WAY_CANCEL:
        event.kind = CORE_EVENT_LEASE_CANCELLED;
        break;
    case WAY_EXIT:
    case WAY_EXIT_AGAIN:
        event.kind = CORE_EVENT_JOB_EXITED;
        event.job_exited.generation = run;
        event.job_exited.again = way == WAY_EXIT_AGAIN;
        break;
    case WAY_PAUSE:
        event.kind = CORE_EVENT_LEASE_PAUSED;
        break;
    case WAY_FAIL:
        rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 2);
        return;
    case WAY_RECLAIM:
        rig_send(rig, (struct core_event){
                          .kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                          .device_time = {.device = 1, .by_ns = rig->now_ns + SECONDS(1)}});
        return;
    case WAY_ACTION_FAILED:
        rig_send(rig,
                 (struct core_event){.kind = CORE_EVENT_ACTION_FAILED,
                                     .answer = {.action = history->last_action[1], .device = 1}});
        return;
    case WAY_EXPIRE: /* one second after the lease was asked for */
    case WAY_COUNT:
        rig_run(rig, SECONDS(1));
        return;
    }
    event.lease.lease = 1;
    rig_send(rig, event);
}

static void reach(struct rig *rig, enum phase phase)
{
    struct core_lease_spec spec = rig_lease_spec(1, 1, 2);
    spec.until_ns = rig->now_ns + SECONDS(1);
    rig->answers = phase != PHASE_GRANTING;
    if (phase == PHASE_WAITING) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_HOLD, .hold = {.on = true}});
    }
    rig_request(rig, spec);
    if (phase == PHASE_WAITING || phase == PHASE_GRANTING) {
        return;
    }
    rig_run(rig, MS(20));
    rig->answers = phase == PHASE_HELD;
    if (phase == PHASE_REVOKING || phase == PHASE_VERIFYING) {
        rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
        for (uint64_t i = 0; i < rig->count && phase == PHASE_VERIFYING; i++) {
            if (rig->actions[i].kind == CORE_ACTION_REVOKE) {
                rig_later(rig,
                          (struct core_event){.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED,
                                              .answer = {.action = rig->actions[i].id,
                                                         .device = rig->actions[i].revoke.device}},
                          0);
            }
        }
        rig_run(rig, 0);
    }
}

/* All is well again: another lease can have the whole pool. */
static void assert_all_back(struct rig *rig, const struct history *history)
{
    rig->answers = true;
    rig_run(rig, SECONDS(60)); /* deadlines, kills and time-outs */
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_HOLD});
    for (uint64_t id = 1; id <= 2; id++) {
        rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                          .device_time = {.device = id}});
        rig_device_event(rig, CORE_EVENT_DEVICE_RECOVERED, id);
    }
    rig_run(rig, SECONDS(60));
    assert_int_equal(rig_lease_view(rig, 1).state, CORE_LEASE_ENDED);
    assert_int_equal(history->owners[1] + history->owners[2], 0);
    assert_int_equal(history->grants, history->gives);
    rig_lease(rig, 2, 2, 2);
    assert_int_equal(rig_count(rig, CORE_ACTION_GRANT), 2);
}

static void play_pair(enum phase phase, enum way first, enum way second)
{
    struct history history = {0};
    struct rig *rig = rig_create(NULL);
    rig->seed = (uint64_t)phase * 10000 + first * 100 + second; /* names the case in a failure */
    rig->context = &history;
    rig->on_action = on_action;
    rig->on_event = on_event;
    rig_device(rig, 1);
    rig_device(rig, 2);
    rig_reconcile(rig);
    reach(rig, phase);
    leave(rig, first);
    leave(rig, second);
    assert_all_back(rig, &history);
    rig_destroy(rig);
}

static void every_pair_of_ways_out_gives_each_device_back_once(void **state)
{
    (void)state;
    for (int phase = 0; phase < PHASE_COUNT; phase++) {
        for (int first = 0; first < WAY_COUNT; first++) {
            for (int second = 0; second < WAY_COUNT; second++) {
                play_pair((enum phase)phase, (enum way)first, (enum way)second);
            }
        }
    }
}

static uint64_t draw(uint64_t *random, uint64_t below)
{
    uint64_t z = *random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

/* Each request fits the pool, so each must have its turn: a lease that runs ends by itself after
 * some seconds; the longest wait is bounded by overtaking, age and the jobs before it. */
static void feasible_requests_all_have_their_turn(void **state)
{
    (void)state;
    uint64_t random = 99, next = 1, oldest_wait_ns = 0;
    struct rig *rig = rig_create(NULL);
    for (uint64_t device = 1; device <= 4; device++) {
        rig_device(rig, device);
    }
    rig_reconcile(rig);
    for (int second = 0; second < 6000; second++) {
        struct core_lease_view view;
        for (size_t i = 0; core_lease_at(rig->core, i, &view); i++) {
            if (view.state == CORE_LEASE_RUNNING && draw(&random, 10) == 0) {
                rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, view.spec.lease);
            } else if (view.state == CORE_LEASE_WAITING &&
                       rig->now_ns - view.since_ns > oldest_wait_ns) {
                oldest_wait_ns = rig->now_ns - view.since_ns;
            }
        }
        if (draw(&random, 7) == 0 && second < 5400) {
            struct core_lease_spec spec = rig_lease_spec(next++, 1, 0);
            spec.devices_min += (uint32_t)draw(&random, draw(&random, 3) == 0 ? 4 : 2);
            spec.devices_max = spec.devices_min + (uint32_t)draw(&random, 3);
            spec.priority = (int32_t)draw(&random, 2);
            rig_request(rig, spec);
        }
        rig_run(rig, SECONDS(1));
    }
    struct core_lease_view view;
    for (size_t i = 0; core_lease_at(rig->core, i, &view); i++) {
        assert_int_not_equal(view.state, CORE_LEASE_WAITING);
        assert_true(view.runs > 0);
    }
    assert_true(next > 500);
    printf("%" PRIu64 " requests, longest wait %" PRIu64 " s\n", next - 1,
           oldest_wait_ns / SECONDS(1));
    assert_true(oldest_wait_ns < SECONDS(600));
    rig_destroy(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_ways_out_gives_each_device_back_once),
        cmocka_unit_test(feasible_requests_all_have_their_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
