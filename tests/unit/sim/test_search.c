#include "clients/sim/search.h"

#include <math.h>

#include "clients/sim/baselines.h"
#include "tests/unit/sim/script.h"

#define DEVICES 4
#define REQUESTS 60

static const struct sim_job jobs[DEVICES] = {
    {.devices_min = 1, .devices_max = 1, .kinds_mask = 1},
    {.devices_min = 1, .devices_max = 1, .kinds_mask = 1},
    {.devices_min = 1, .devices_max = 1, .kinds_mask = 1},
    {.devices_min = 1, .devices_max = 1, .kinds_mask = 1},
};
static struct sim_request requests[REQUESTS];
static struct sim_setup setup;
static struct error error;

/* Two requests of 1 s every 10 s: two devices serve them without a wait, one makes the second wait
 * for just the SLO, which is not late; none makes all late. */
static int setup_make(void **state)
{
    (void)state;
    for (unsigned i = 0; i < REQUESTS; i++) {
        requests[i] = (struct sim_request){SECONDS(10) * (i / 2 + 1), MS(1001), 0};
    }
    setup = (struct sim_setup){
        .requests = requests,
        .request_count = REQUESTS,
        .endpoint_count = 1,
        .jobs = jobs,
        .job_count = DEVICES,
        .device_count = DEVICES,
        .rungs = {{.rung = CORE_RUNG_NOTICE, .take_ns = SECONDS(3), .give_ns = SECONDS(1)}},
        .rung_count = 1,
        .slo_ns = SECONDS(1),
        .end_ns = SECONDS(310),
        .hold_ns = ENGINE_NEVER_NS,
    };
    return 0;
}

static void a_grid_plays_every_combination_once(void **state)
{
    struct search_points points = {0};
    struct search_axes axes;
    (void)state;
    search_axes(&policy_static, &setup, &axes);
    assert_int_equal(axes.count, 1);
    assert_int_equal(axes.axis[0].count, DEVICES + 1); /* 0 to 4 serve */
    assert_int_equal(search_grid(&setup, &policy_static, &axes, &points, &error), 0);
    assert_int_equal(search_grid(&setup, &policy_static, &axes, &points, &error), 0);
    assert_int_equal(points.count, DEVICES + 1);
    for (size_t i = 0; i <= DEVICES; i++) {
        const struct sim_result *result = &points.points[i].result;
        assert_true(points.points[i].choice.parameters[0] == (double)i);
        assert_true(result->late_fraction == (i == 0 ? 1 : i == 1 ? 0.5 : 0));
        assert_float_equal(result->harvest_fraction, (DEVICES - (double)i) / DEVICES * 309 / 310,
                           0.001);
    }
    search_points_free(&points);
}

static void the_best_has_the_most_harvest_within_the_bound(void **state)
{
    const struct {
        double late_most, serving;
        bool within;
    } cases[] = {{0, 2, true}, {0.49, 2, true}, {0.5, 1, true}, {1, 0, true}, {-1, 2, false}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct search_points points = {0};
        struct search_axes axes;
        struct search_point best;
        const struct search_bound bound = {cases[i].late_most, INFINITY};
        bool within;
        search_axes(&policy_static, &setup, &axes);
        assert_int_equal(
            search_best(&setup, &policy_static, &axes, &bound, &points, &best, &within, &error), 0);
        assert_true(within == cases[i].within);
        if (within) {
            assert_true(best.choice.parameters[0] == cases[i].serving);
        } else {
            assert_true(best.result.late_fraction == 0);
        }
        search_points_free(&points);
    }
}

static void hindsight_is_at_least_as_good_as_the_best_static_split(void **state)
{
    struct search_axes axes;
    struct search_point best;
    const double handovers[] = {INFINITY, 30, 0};
    double before = 1;
    (void)state;
    search_axes(&policy_hindsight, &setup, &axes);
    for (size_t i = 0; i < 3; i++) { /* the fewer hand-overs, the less harvest */
        const struct search_bound bound = {0.1, handovers[i]};
        struct search_points points = {0};
        bool within;
        assert_int_equal(
            search_best(&setup, &policy_hindsight, &axes, &bound, &points, &best, &within, &error),
            0);
        assert_true(within);
        assert_true(best.result.handovers_per_device_hour <= handovers[i]);
        assert_true(best.result.harvest_fraction <= before);
        before = best.result.harvest_fraction;
        if (handovers[i] > 0) { /* a static split moves half of the devices once: 5.8 an hour */
            assert_true(best.result.harvest_fraction >= 2.0 / DEVICES * 309 / 310 - 0.001);
        }
        search_points_free(&points);
    }
}

static void axes_are_within_the_parameters_limits_on_any_number_of_devices(void **state)
{
    static const struct policy_class *const classes[] = {
        &policy_serve_all, &policy_static,   &policy_kill,     &policy_keda,
        &policy_knative,   &policy_rayserve, &policy_hindsight};
    static const uint32_t devices[] = {1, 2, 8, 64, 10000};
    (void)state;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        for (size_t k = 0; k < sizeof(devices) / sizeof(devices[0]); k++) {
            struct search_axes axes;
            setup.device_count = devices[k];
            search_axes(classes[i], &setup, &axes);
            for (size_t p = 0; p < axes.count; p++) {
                const struct policy_parameter *parameter = &classes[i]->parameters[p];
                assert_true(axes.axis[p].count > 0);
                for (size_t v = 0; v < axes.axis[p].count; v++) {
                    assert_true(axes.axis[p].values[v] >= parameter->minimum);
                    assert_true(axes.axis[p].values[v] <= parameter->maximum);
                    assert_true(v == 0 || axes.axis[p].values[v] > axes.axis[p].values[v - 1]);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_grid_plays_every_combination_once, setup_make),
        cmocka_unit_test_setup(the_best_has_the_most_harvest_within_the_bound, setup_make),
        cmocka_unit_test_setup(hindsight_is_at_least_as_good_as_the_best_static_split, setup_make),
        cmocka_unit_test_setup(axes_are_within_the_parameters_limits_on_any_number_of_devices,
                               setup_make),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
