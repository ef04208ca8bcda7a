/* test_clone.c: a clone of the core does what the core does, and shares nothing with it: random
 * schedules are played into both, clones of clones take over on the way, and changes are tried. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/trial.h"
#include "tests/sim/world.h"

#define SEEDS 20
#define EVENTS 1000
#define GENERATION 100 /* steps, then the clone is cloned and forgotten */

static struct twin {
    struct core *core;
    const struct world *world;
    uint64_t life; /* of the world's core, from 1 */
    struct core_action *actions;
    size_t capacity, steps, clones;
    void (*next)(struct rig *rig, const struct core_event *event);
} twin;

static void twin_renew(const struct core *from)
{
    struct core *clone = core_clone(from);
    assert_non_null(clone);
    core_destroy(twin.core);
    twin.core = clone;
    twin.clones++;
}

static void twin_reserve(void)
{
    size_t needed = core_actions_max(twin.core);
    if (needed > twin.capacity) {
        twin.capacity = needed * 2;
        twin.actions = realloc(twin.actions, twin.capacity * sizeof *twin.actions);
        assert_non_null(twin.actions);
    }
}

static void compare_views(const struct rig *rig)
{
    struct core_lease_view lease, lease_twin;
    struct core_device_view device, device_twin;
    struct core_ledger ledger, ledger_twin;
    memset(&lease, 0, sizeof lease);
    memset(&lease_twin, 0, sizeof lease_twin);
    for (size_t i = 0; core_lease_at(rig->core, i, &lease); i++) {
        assert_true(core_lease_at(twin.core, i, &lease_twin));
        assert_int_equal(lease.spec.lease, lease_twin.spec.lease);
        assert_int_equal(lease.state, lease_twin.state);
        assert_int_equal(lease.position, lease_twin.position);
        assert_int_equal(lease.training_ns, lease_twin.training_ns);
    }
    for (size_t i = 0; core_device_at(rig->core, i, &device); i++) {
        assert_true(core_device_at(twin.core, i, &device_twin));
        assert_int_equal(device.device, device_twin.device);
        assert_int_equal(device.hold, device_twin.hold);
        assert_int_equal(device.lease, device_twin.lease);
        assert_int_equal(device.promised, device_twin.promised);
    }
    core_ledger_read(rig->core, rig->now_ns, &ledger);
    core_ledger_read(twin.core, rig->now_ns, &ledger_twin);
    assert_memory_equal(ledger.account_ns, ledger_twin.account_ns, sizeof ledger.account_ns);
}

/* Whatever state it is asked in, a trial ends, keeps the invariants and leaves the core alone. */
static void try_a_lease(const struct rig *rig)
{
    char text[256];
    const struct core_trial_config config = {
        .horizon_ns = SECONDS(60), .place_ns = SECONDS(1), .answer_ns = MS(10), .steps_max = 2000};
    const struct core_event event = {.kind = CORE_EVENT_LEASE_REQUESTED,
                                     .lease_spec = rig_lease_spec(1000000, 1, 2)};
    uint64_t hash = core_hash(rig->core);
    struct core_trial *trial = core_trial_run(rig->core, &event, 1, &config);
    assert_non_null(trial);
    if (!core_check(core_trial_core(trial), text, sizeof text)) {
        fail_msg("seed %" PRIu64 ", step %" PRIu64 ", trial: %s", rig->seed, rig->steps, text);
    }
    assert_true(core_trial_looked_ns(trial) <= config.horizon_ns);
    core_trial_destroy(trial);
    assert_true(core_hash(rig->core) == hash);
}

static void step_twin(struct rig *rig, const struct core_event *event)
{
    char text[256];
    if (twin.life != world_crashes(twin.world) + 1) { /* the world's core is another one now */
        twin.life = world_crashes(twin.world) + 1;
        twin_renew(rig->core);
    } else {
        twin_reserve();
        core_step(twin.core, event, twin.actions);
        if (core_hash(twin.core) != core_hash(rig->core)) {
            fail_msg("seed %" PRIu64 ", step %" PRIu64 ": the clone decides otherwise", rig->seed,
                     rig->steps);
        }
        if (!core_check(twin.core, text, sizeof text)) {
            fail_msg("seed %" PRIu64 ", step %" PRIu64 ", clone: %s", rig->seed, rig->steps, text);
        }
    }
    if (++twin.steps % GENERATION == 0) {
        compare_views(rig);
        try_a_lease(rig);
        twin_renew(twin.core);
    }
    if (twin.next != NULL) {
        twin.next(rig, event);
    }
}

static void clone_decides_what_its_core_decides(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world *world = world_create(seed, seed % 2 == 1);
        twin.world = world;
        twin.life = 0;
        twin.next = world_rig(world)->on_step;
        world_rig(world)->on_step = step_twin;
        world_play(world, EVENTS);
        world_settle(world);
        world_destroy(world);
    }
    assert_true(twin.clones > SEEDS * EVENTS / GENERATION);
    core_destroy(twin.core);
    free(twin.actions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clone_decides_what_its_core_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
