/* test_baselines.c: fixed.c, keda.c, knative.c, rayserve.c, reactive.c, scaler.c: when the emulated
 * controllers move devices, on arrivals made by hand. Devices change hands at once, so that every
 * time seen is the controller's own. */
#include "clients/sim/baselines.h"
#include "tests/unit/sim/script.h"

#define DEVICES_MAX 40
#define MOVES_MAX 256

struct move {
    uint64_t at_ns;
    int devices; /* above 0: to serving; below: to training */
};

struct play {
    struct sim_setup setup;
    struct sim_job jobs[DEVICES_MAX];
    struct sim_request requests[64];
    struct policy_choice choice;
    struct sim_result result;
    struct move moves[MOVES_MAX];
    size_t move_count;
};

/* Moves of one moment the same way become one. */
static void handover(void *context, uint32_t device, bool to_training, uint64_t at_ns)
{
    struct play *play = context;
    struct move *last = play->move_count > 0 ? &play->moves[play->move_count - 1] : NULL;
    (void)device;
    if (last == NULL || last->at_ns != at_ns || (last->devices < 0) != to_training) {
        assert_true(play->move_count < MOVES_MAX);
        last = &play->moves[play->move_count++];
        *last = (struct move){.at_ns = at_ns};
    }
    last->devices += to_training ? -1 : 1;
}

static void play_init(struct play *play, const struct policy_class *class, uint32_t devices,
                      uint64_t end_ns)
{
    memset(play, 0, sizeof(*play));
    for (uint32_t i = 0; i < devices; i++) {
        play->jobs[i] = (struct sim_job){.devices_min = 1,
                                         .devices_max = 1,
                                         .kinds_mask = 1,
                                         .checkpoint_ns = BASELINE_CHECKPOINT_NS};
    }
    play->choice = policy_standard(class);
    play->setup = (struct sim_setup){
        .requests = play->requests,
        .endpoint_count = 1,
        .jobs = play->jobs,
        .job_count = devices,
        .device_count = devices,
        .rungs = {{.rung = CORE_RUNG_FREEZE}},
        .rung_count = 1,
        .slo_ns = SECONDS(1),
        .end_ns = end_ns,
        .hold_ns = ENGINE_NEVER_NS,
        .observer = {.context = play, .handover = handover},
    };
}

static void parameter_set(struct play *play, const char *name, double value)
{
    const struct policy_class *class = play->choice.class;
    for (size_t i = 0; i < class->parameter_count; i++) {
        if (strcmp(class->parameters[i].name, name) == 0) {
            play->choice.parameters[i] = value;
            return;
        }
    }
    fail_msg("%s has no parameter %s", class->name, name);
}

static void requests_add(struct play *play, unsigned count, uint64_t at_ns, uint64_t service_ns)
{
    for (unsigned i = 0; i < count; i++) {
        play->requests[play->setup.request_count++] =
            (struct sim_request){.arrival_ns = at_ns, .service_ns = service_ns};
    }
}

static void play_run(struct play *play)
{
    struct error error = {0};
    baseline_setup(play->choice.class, &play->setup);
    if (engine_run(&play->setup, &play->choice, &play->result, &error) < 0) {
        fail_msg("%s", error.text);
    }
    assert_true(play->result.ledger_balanced);
}

static void moves_are(const struct play *play, const struct move *moves, size_t count)
{
    for (size_t i = 0; i < count || i < play->move_count; i++) {
        const struct move none = {0};
        const struct move *is = i < play->move_count ? &play->moves[i] : &none;
        const struct move *wanted = i < count ? &moves[i] : &none;
        if (is->at_ns != wanted->at_ns || is->devices != wanted->devices) {
            fail_msg("move %zu: %+d at %.3f s, not %+d at %.3f s", i, is->devices,
                     (double)is->at_ns * 1e-9, wanted->devices, (double)wanted->at_ns * 1e-9);
        }
    }
}

#define MOVES_ARE(play, ...)                                                                       \
    moves_are(play, (const struct move[]){__VA_ARGS__},                                            \
              sizeof((const struct move[]){__VA_ARGS__}) / sizeof(struct move))

/* ---- fixed ----------------------------------------------------------------------------------- */

static void serve_all_moves_nothing_and_a_static_split_moves_once(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_serve_all, 8, SECONDS(100));
    requests_add(&play, 20, SECONDS(10), SECONDS(1));
    play_run(&play);
    assert_int_equal(play.move_count, 0);
    assert_true(play.result.harvest_fraction == 0);

    play_init(&play, &policy_static, 8, SECONDS(100));
    parameter_set(&play, "serving", 3);
    requests_add(&play, 20, SECONDS(10), SECONDS(1));
    play_run(&play);
    MOVES_ARE(&play, {0, -5});
    assert_true(play.result.harvest_fraction == 5.0 / 8);
}

static void a_static_split_keeps_its_number_when_a_device_breaks(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_static, 8, SECONDS(100000));
    parameter_set(&play, "serving", 3);
    play.setup.faults.device_mtbf_ns = SECONDS(10000);
    play.setup.faults.device_repair_ns = SECONDS(1000);
    play_run(&play);
    assert_true(play.result.faults > 40);
    double reserve = play.result.account_s[CORE_ACCOUNT_RESERVE] / 100000;
    if (reserve < 2.99 || reserve > 3.2) {
        fail_msg("%.3f devices served on average, not 3", reserve);
    }
    double there = 800000 - play.result.account_s[CORE_ACCOUNT_QUARANTINED];
    double trained =
        play.result.account_s[CORE_ACCOUNT_TRAINING] + play.result.account_s[CORE_ACCOUNT_LOST];
    assert_true(trained / (there - 300000) > 0.95); /* jobs go on when their devices are back */
}

/* ---- KEDA ------------------------------------------------------------------------------------ */

static void keda_reacts_at_its_poll_and_goes_down_after_300_seconds(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_keda, 4, SECONDS(1300));
    requests_add(&play, 4, SECONDS(610), SECONDS(200));
    play_run(&play);
    /* The poll at 630 sees 4 requests for 20 of 30 s: 3 devices; the one at 660 sees 4. Of the
     * answers to the polls at 810 (4), 840 (3) and 870 (1), each counts for 300 s from its last
     * repetition, 15 s after it. */
    MOVES_ARE(&play, {SECONDS(315), -3}, {SECONDS(630), 2}, {SECONDS(660), 1}, {SECONDS(1125), -1},
              {SECONDS(1155), -2});
}

static void keda_goes_up_by_4_or_twofold_at_a_sync(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_keda, 40, SECONDS(900));
    requests_add(&play, 40, SECONDS(570), SECONDS(1000));
    play_run(&play);
    MOVES_ARE(&play, {SECONDS(315), -39}, {SECONDS(600), 4}, {SECONDS(615), 5}, {SECONDS(630), 10},
              {SECONDS(645), 20});
}

static void keda_leaves_alone_what_is_within_the_tolerance(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_keda, 20, SECONDS(1800));
    requests_add(&play, 10, SECONDS(1), SECONDS(1799));
    requests_add(&play, 1, SECONDS(1201), SECONDS(599)); /* 11 in flight on 10 devices: 1.1 */
    requests_add(&play, 1, SECONDS(1501), SECONDS(299));
    play_run(&play);
    MOVES_ARE(&play, {SECONDS(315), -10}, {SECONDS(1530), 2});
}

static void keda_sleeps_at_none_and_wakes_at_a_poll(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_keda, 4, SECONDS(700));
    parameter_set(&play, "min", 0);
    requests_add(&play, 1, SECONDS(601), SECONDS(1));
    play_run(&play);
    MOVES_ARE(&play, {SECONDS(315), -4}, {SECONDS(630), 1});
    assert_int_equal(play.result.late_requests, 1);
}

/* ---- Knative --------------------------------------------------------------------------------- */

static void knative_panics_at_twice_the_devices_and_rests_60_seconds(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_knative, 8, SECONDS(170));
    requests_add(&play, 4, MS(100500), SECONDS(30));
    play_run(&play);
    /* Down by half every 2 s. At 102 the last 6 s ask for 2 devices where none is, at 104 for 4
     * where 2 are: the last reason to panic. At 106 for 6; 60 s after 104 the next decision goes
     * down, by half at most. */
    MOVES_ARE(&play, {SECONDS(2), -4}, {SECONDS(4), -2}, {SECONDS(6), -1}, {SECONDS(8), -1},
              {SECONDS(102), 2}, {SECONDS(104), 2}, {SECONDS(106), 2}, {SECONDS(166), -3});
}

static void knative_follows_the_60_second_average_without_panic(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_knative, 8, SECONDS(300));
    parameter_set(&play, "min", 2);
    parameter_set(&play, "target", 1);
    requests_add(&play, 3, SECONDS(100), SECONDS(200));
    play_run(&play);
    /* 3 in flight on 2 devices is no panic; the long window has more than 2 of it after 40 s. */
    MOVES_ARE(&play, {SECONDS(2), -4}, {SECONDS(4), -2}, {SECONDS(142), 1});
}

/* ---- Ray Serve ------------------------------------------------------------------------------- */

static void ray_serve_goes_up_after_30_seconds_and_down_after_600(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_rayserve, 4, SECONDS(2000));
    parameter_set(&play, "target", 1);
    requests_add(&play, 3, MS(700500), SECONDS(300));
    play_run(&play);
    /* The push at 720 is the first that asks for more than 1 device; by 750 one asked for 3. The
     * first request ends at 1000.5, the push at 1040 is the first that asks for less than 3; by
     * 1640 there is no load any more. */
    MOVES_ARE(&play, {MS(610100), -3}, {MS(750100), 2}, {MS(1640100), -2});
}

static void ray_serve_forgets_a_burst_that_ends_within_the_delay(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_rayserve, 4, SECONDS(1000));
    parameter_set(&play, "target", 1);
    requests_add(&play, 2, SECONDS(700), SECONDS(20)); /* one after the other: until 740 */
    play_run(&play);
    MOVES_ARE(&play, {MS(610100), -3});
}

/* ---- the reactive family --------------------------------------------------------------------- */

static void hindsight_keeps_a_reserve_and_holds_a_device_after_it_was_needed(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_hindsight, 8, SECONDS(60));
    parameter_set(&play, "reserve", 1);
    parameter_set(&play, "hold", 5);
    parameter_set(&play, "window", 10);
    parameter_set(&play, "headroom", 0);
    requests_add(&play, 2, SECONDS(20), SECONDS(3));
    play_run(&play);
    /* Both end at 23: one device for the average until 30, and the reserve. */
    MOVES_ARE(&play, {SECONDS(5), -7}, {SECONDS(20), 2}, {SECONDS(28), -1}, {SECONDS(35), -1});
}

static void hindsight_takes_what_starts_the_queue_within_the_slo(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_hindsight, 8, SECONDS(60));
    parameter_set(&play, "reserve", 0);
    parameter_set(&play, "hold", 0);
    parameter_set(&play, "window", 5);
    requests_add(&play, 1, SECONDS(10), MS(200)); /* its length is known afterwards */
    requests_add(&play, 10, SECONDS(20), MS(200));
    play_run(&play);
    uint32_t most = 0, serving = 8;
    for (size_t i = 0; i < play.move_count; i++) {
        serving = (uint32_t)((int)serving + play.moves[i].devices);
        most = play.moves[i].at_ns >= SECONDS(20) && serving > most ? serving : most;
    }
    assert_in_range(most, 2, 4); /* ten of 0.2 s fit into 1 s on two, beside the average's one */
    assert_int_equal(play.result.late_requests, 0);
}

static void hindsight_shares_all_devices_where_training_yields(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_hindsight, 4, SECONDS(100));
    play.setup.rungs[0].rung = CORE_RUNG_YIELD;
    requests_add(&play, 10, SECONDS(20), SECONDS(5));
    play_run(&play);
    MOVES_ARE(&play, {0, -4});
    assert_true(play.result.harvest_fraction == play.result.idle_bound);
}

static void kill_and_restart_pays_30_seconds_and_what_was_not_saved(void **state)
{
    struct play play;
    (void)state;
    play_init(&play, &policy_kill, 1, SECONDS(3000));
    parameter_set(&play, "reserve", 0);
    parameter_set(&play, "hold", 0);
    requests_add(&play, 1, SECONDS(1000), SECONDS(100));
    play_run(&play);
    /* It trains from 30 s on and has saved at 630; what came after is lost. The request starts at
     * 1001 and needs its device, on the average of its window, until 1010; then it runs until
     * 1101. Training starts again 30 s later. */
    assert_int_equal(play.moves[1].at_ns, SECONDS(1001));
    assert_true(play.result.lost_work_fraction * 3000 > 369.9);
    assert_true(play.result.lost_work_fraction * 3000 < 370.1);
    assert_true(play.result.harvest_fraction * 3000 < 600 + 3000 - 1131 + 0.1);
    assert_true(play.result.harvest_fraction * 3000 > 600 + 3000 - 1131 - 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serve_all_moves_nothing_and_a_static_split_moves_once),
        cmocka_unit_test(a_static_split_keeps_its_number_when_a_device_breaks),
        cmocka_unit_test(keda_reacts_at_its_poll_and_goes_down_after_300_seconds),
        cmocka_unit_test(keda_goes_up_by_4_or_twofold_at_a_sync),
        cmocka_unit_test(keda_leaves_alone_what_is_within_the_tolerance),
        cmocka_unit_test(keda_sleeps_at_none_and_wakes_at_a_poll),
        cmocka_unit_test(knative_panics_at_twice_the_devices_and_rests_60_seconds),
        cmocka_unit_test(knative_follows_the_60_second_average_without_panic),
        cmocka_unit_test(ray_serve_goes_up_after_30_seconds_and_down_after_600),
        cmocka_unit_test(ray_serve_forgets_a_burst_that_ends_within_the_delay),
        cmocka_unit_test(hindsight_keeps_a_reserve_and_holds_a_device_after_it_was_needed),
        cmocka_unit_test(hindsight_takes_what_starts_the_queue_within_the_slo),
        cmocka_unit_test(hindsight_shares_all_devices_where_training_yields),
        cmocka_unit_test(kill_and_restart_pays_30_seconds_and_what_was_not_saved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
