/* test_shares.c: many teams with many jobs on a few devices, from seeds: shares converge to the
 * weights, lent quota comes back in time, and everybody has a turn. TIDEPOOL_SIM_SEED changes the
 * seeds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/core/rig.h"

#define TEAMS_MAX 5

struct load {
    struct rig *rig;
    uint64_t random;
    uint32_t devices, teams;
    uint32_t weight[TEAMS_MAX + 1], quota[TEAMS_MAX + 1];
    uint64_t next_lease;
    uint64_t longest_return_ns, returns; /* of lent quota */
};

static uint64_t draw(struct load *load, uint64_t below)
{
    uint64_t z = load->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static uint64_t first_seed(void)
{
    const char *text = getenv("TIDEPOOL_SIM_SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}

static void load_init(struct load *load, uint64_t seed)
{
    struct core_config config;
    core_config_init(&config);
    config.usage_half_life_ns = SECONDS(600);
    *load = (struct load){.rig = rig_create(&config), .random = seed, .next_lease = 1};
    load->rig->seed = seed;
    load->devices = 4 + (uint32_t)draw(load, 13);
    load->teams = 2 + (uint32_t)draw(load, TEAMS_MAX - 1);
    for (uint64_t device = 1; device <= load->devices; device++) {
        rig_device(load->rig, device);
    }
    rig_reconcile(load->rig);
}

/* A job of a random length: an elastic one uses what there is. */
static uint64_t submit(struct load *load, uint32_t team, uint32_t size_max)
{
    struct core_lease_spec spec = rig_lease_spec(load->next_lease++, 1, 1);
    spec.devices_min += (uint32_t)draw(load, size_max);
    spec.devices_max = spec.devices_min + (draw(load, 3) == 0 ? (uint32_t)draw(load, 4) : 0);
    spec.team = team;
    spec.priority = (int32_t)draw(load, 3);
    spec.duration_ns = SECONDS(10) + draw(load, SECONDS(100));
    spec.in_process = draw(load, 2) == 0;
    rig_request(load->rig, spec);
    return spec.lease;
}

static uint32_t waiting_of(const struct load *load, uint32_t team)
{
    struct core_team_view view;
    return core_team_find(load->rig->core, team, &view) ? view.leases_waiting : 0;
}

static void run_saturated(struct load *load, uint64_t span_ns, uint32_t size_max)
{
    uint64_t end_ns = load->rig->now_ns + span_ns;
    while (load->rig->now_ns < end_ns) {
        for (uint32_t team = 1; team <= load->teams; team++) {
            while (waiting_of(load, team) < load->devices) {
                submit(load, team, size_max);
            }
        }
        rig_run(load->rig, SECONDS(5));
    }
}

/* Device time of everything that it had devices for. */
static uint64_t had_ns(const struct load *load, uint32_t team)
{
    struct core_team_view view = rig_team_view(load->rig, team);
    uint64_t had = 0;
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        had += view.account_ns[account];
    }
    return had;
}

/* ---- shares ---- */

static uint64_t worst_share_permille(struct load *load, uint64_t span_ns)
{
    uint64_t before[TEAMS_MAX + 1], all = 0, weights = 0, worst = 0;
    for (uint32_t team = 1; team <= load->teams; team++) {
        before[team] = had_ns(load, team);
        weights += load->weight[team];
    }
    run_saturated(load, span_ns, 2);
    for (uint32_t team = 1; team <= load->teams; team++) {
        all += had_ns(load, team) - before[team];
    }
    for (uint32_t team = 1; team <= load->teams; team++) {
        uint64_t share = (had_ns(load, team) - before[team]) * 1000 / all;
        uint64_t fair = load->weight[team] * UINT64_C(1000) / weights;
        uint64_t off = share > fair ? share - fair : fair - share;
        worst = off > worst ? off : worst;
    }
    return worst;
}

static void shares_converge_to_the_weights_under_saturation(void **state)
{
    (void)state;
    uint64_t worst = 0;
    for (uint64_t seed = first_seed(); seed < first_seed() + 12; seed++) {
        struct load load;
        load_init(&load, seed);
        for (uint32_t team = 1; team <= load.teams; team++) {
            load.weight[team] = 1 + (uint32_t)draw(&load, 8);
            rig_team(load.rig, team, load.weight[team], 0);
        }
        run_saturated(&load, SECONDS(1800), 2);
        uint64_t off = worst_share_permille(&load, SECONDS(7200));
        worst = off > worst ? off : worst;
        if (off > 50) {
            fail_msg("seed %" PRIu64 ": a share is %" PRIu64 " permille off its weight", seed, off);
        }
        rig_destroy(load.rig);
    }
    printf("shares: at most %" PRIu64 " permille of the pool off the weights\n", worst);
}

/* ---- quotas ---- */

/* A job that does not go by itself is gone well within the kill bound. */
static void on_action(struct rig *rig, const struct core_action *action)
{
    struct core_event event = {.kind = CORE_EVENT_ACTION_DONE};
    event.answer.action = action->id;
    event.answer.device = action->revoke.device;
    if (action->kind == CORE_ACTION_KILL) {
        rig_later(rig, event, SECONDS(9));
    }
}

/* Some holders use all of their notice, some do not go at all. */
static void be_slow(struct load *load)
{
    static const uint64_t release_ns[] = {MS(2), SECONDS(4), SECONDS(29), SECONDS(35), SECONDS(45)};
    load->rig->release_ns = release_ns[draw(load, 5)];
}

/* Somebody whose quota has room asks for what fits in it, and must have it in time. */
static void want_back(struct load *load)
{
    uint32_t team = 1 + (uint32_t)draw(load, load->teams);
    struct core_team_view view;
    bool known = core_team_find(load->rig->core, team, &view);
    uint32_t room = load->quota[team] - (known ? view.devices[0] : 0);
    if (known && (view.devices[0] >= load->quota[team] || view.leases_waiting > 0)) {
        return;
    }
    struct core_lease_spec spec = rig_lease_spec(load->next_lease++, room, room);
    spec.team = team;
    uint64_t asked_ns = load->rig->now_ns;
    be_slow(load);
    rig_request(load->rig, spec);
    while (rig_lease_view(load->rig, spec.lease).state == CORE_LEASE_WAITING &&
           load->rig->now_ns < asked_ns + SECONDS(60)) {
        rig_run(load->rig, MS(100));
    }
    uint64_t took_ns = load->rig->now_ns - asked_ns;
    load->longest_return_ns = took_ns > load->longest_return_ns ? took_ns : load->longest_return_ns;
    load->returns++;
    rig_run(load->rig, SECONDS(1 + draw(load, 100)));
    rig_lease_event(load->rig, CORE_EVENT_LEASE_CANCELLED, spec.lease);
    load->rig->release_ns = MS(2);
    rig_run(load->rig, SECONDS(60));
}

static void lent_quota_comes_back_within_notice_and_kill_bound(void **state)
{
    (void)state;
    uint64_t longest_ns = 0, returns = 0;
    for (uint64_t seed = first_seed(); seed < first_seed() + 12; seed++) {
        struct load load;
        load_init(&load, seed);
        uint32_t left = load.devices;
        for (uint32_t team = 1; team <= load.teams; team++) {
            load.quota[team] = 1 + (uint32_t)draw(&load, left - (load.teams - team));
            left -= load.quota[team];
            rig_team(load.rig, team, 1 + (uint32_t)draw(&load, 8), load.quota[team]);
        }
        rig_team(load.rig, TEAMS_MAX + 1, 1, 0);
        load.rig->on_action = on_action;
        for (int round = 0; round < 60; round++) {
            while (waiting_of(&load, TEAMS_MAX + 1) < load.devices) {
                submit(&load, TEAMS_MAX + 1, 3); /* borrows all there is */
            }
            rig_run(load.rig, SECONDS(10));
            want_back(&load);
        }
        /* Notice, kill bound, and a hold time that may run when it is asked. */
        if (load.longest_return_ns > SECONDS(30 + 10 + 1) + MS(200)) {
            fail_msg("seed %" PRIu64 ": lent quota came back after %" PRIu64 " ms", seed,
                     load.longest_return_ns / MS(1));
        }
        longest_ns = load.longest_return_ns > longest_ns ? load.longest_return_ns : longest_ns;
        returns += load.returns;
        rig_destroy(load.rig);
    }
    printf("quotas: %" PRIu64 " times wanted back, at the latest after %" PRIu64 " ms\n", returns,
           longest_ns / MS(1));
    assert_true(returns > 100);
}

/* ---- everybody ---- */

static uint64_t longest_wait(const struct load *load)
{
    struct core_lease_view view;
    uint64_t longest_ns = 0;
    for (size_t i = 0; core_lease_at(load->rig->core, i, &view); i++) {
        uint64_t waited_ns =
            view.state == CORE_LEASE_WAITING ? load->rig->now_ns - view.since_ns : 0;
        longest_ns = waited_ns > longest_ns ? waited_ns : longest_ns;
    }
    return longest_ns;
}

/* Jobs of any size, priority and team arrive at random, together a little less than the pool can
 * do; one of them may need all of it. */
static void nobody_starves_with_random_arrivals(void **state)
{
    (void)state;
    uint64_t longest_ns = 0, jobs = 0;
    for (uint64_t seed = first_seed(); seed < first_seed() + 8; seed++) {
        struct load load;
        load_init(&load, seed);
        for (uint32_t team = 1; team <= load.teams; team++) {
            rig_team(load.rig, team, 1 + (uint32_t)draw(&load, 8), (uint32_t)draw(&load, 3));
        }
        for (int second = 0; second < 7200; second++) {
            /* On average half the pool's size for 60 s, every 40 s. */
            if (draw(&load, 40) == 0) {
                submit(&load, 1 + (uint32_t)draw(&load, load.teams), load.devices);
            }
            rig_run(load.rig, SECONDS(1));
            uint64_t wait_ns = longest_wait(&load);
            longest_ns = wait_ns > longest_ns ? wait_ns : longest_ns;
            if (wait_ns > SECONDS(3600)) {
                fail_msg("seed %" PRIu64 ": a lease waits for more than an hour", seed);
            }
        }
        jobs += load.next_lease - 1;
        rig_destroy(load.rig);
    }
    printf("arrivals: %" PRIu64 " jobs, the longest wait was %" PRIu64 " s\n", jobs,
           longest_ns / SECONDS(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_converge_to_the_weights_under_saturation),
        cmocka_unit_test(lent_quota_comes_back_within_notice_and_kill_bound),
        cmocka_unit_test(nobody_starves_with_random_arrivals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
