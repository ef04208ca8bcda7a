#include "server/control/overrides.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S(n) ((uint64_t)(n)*1000000000)

static struct override make(enum override_object object, const char *name, const char *field,
                            int64_t value)
{
    struct override made = {.object = object, .value = value, .expires_ns = UINT64_MAX};
    snprintf(made.name, sizeof made.name, "%s", name);
    snprintf(made.field, sizeof made.field, "%s", field);
    snprintf(made.actor, sizeof made.actor, "tester");
    return made;
}

static void set(struct overrides *overrides, const struct override *override, uint64_t now_ns)
{
    assert_int_equal(overrides_set(overrides, override, now_ns, NULL), 0);
}

static int setup(void **state)
{
    *state = overrides_create();
    return *state != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    overrides_destroy(*state);
    return 0;
}

static void they_are_kept_in_the_order_of_their_names(void **state)
{
    struct overrides *overrides = *state;
    struct override made[] = {
        make(OVERRIDE_ENDPOINT, "b", "slo_ms", 1), make(OVERRIDE_DEVICE, "cpu:1", "cordoned", 1),
        make(OVERRIDE_ENDPOINT, "a", "slo_ms", 2), make(OVERRIDE_ENDPOINT, "a", "devices_max", 3)};
    static const char *const fields[] = {"cordoned", "devices_max", "slo_ms", "slo_ms"};
    for (size_t i = 0; i < 4; i++) {
        set(overrides, &made[i], i);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(overrides_at(overrides, i)->field, fields[i]);
    }
    assert_null(overrides_at(overrides, 4));
    assert_int_equal(overrides_find(overrides, OVERRIDE_ENDPOINT, "b", "slo_ms")->value, 1);
    assert_null(overrides_find(overrides, OVERRIDE_DEVICE, "b", "slo_ms"));
}

static void a_later_one_takes_the_place_of_an_earlier_one(void **state)
{
    struct overrides *overrides = *state;
    struct override made = make(OVERRIDE_ENDPOINT, "a", "slo_ms", 1);
    set(overrides, &made, 1);
    made.value = 2;
    set(overrides, &made, 2);
    assert_int_equal(overrides_find(overrides, OVERRIDE_ENDPOINT, "a", "slo_ms")->value, 2);
    assert_null(overrides_at(overrides, 1));
    assert_true(overrides_remove(overrides, OVERRIDE_ENDPOINT, "a", "slo_ms", "other", "", 3));
    assert_false(overrides_remove(overrides, OVERRIDE_ENDPOINT, "a", "slo_ms", "other", "", 4));
    assert_null(overrides_at(overrides, 0));
}

static void their_time_ends_them(void **state)
{
    struct overrides *overrides = *state;
    struct override stays = make(OVERRIDE_DEVICE, "cpu:0", "cordoned", 1);
    struct override ends = make(OVERRIDE_DEVICE, "cpu:1", "cordoned", 1);
    ends.expires_ns = S(10);
    set(overrides, &stays, 0);
    set(overrides, &ends, 0);
    assert_null(overrides_over(overrides, S(10) - 1));
    assert_string_equal(overrides_over(overrides, S(10))->name, "cpu:1");
}

static void the_story_is_of_the_newest_change_before(void **state)
{
    struct overrides *overrides = *state;
    struct override made = make(OVERRIDE_DEVICE, "cpu:0", "cordoned", 1);
    set(overrides, &made, S(1));
    overrides_remove(overrides, OVERRIDE_DEVICE, "cpu:0", "cordoned", "somebody", "fixed", S(2));
    assert_null(overrides_story(overrides, OVERRIDE_DEVICE, "cpu:0", S(1) - 1));
    assert_false(overrides_story(overrides, OVERRIDE_DEVICE, "cpu:0", S(1))->removed);
    const struct override_story *last = overrides_story(overrides, OVERRIDE_DEVICE, "cpu:0", S(9));
    assert_true(last->removed);
    assert_string_equal(last->override.actor, "somebody");
    assert_string_equal(last->override.reason, "fixed");
    assert_null(overrides_story(overrides, OVERRIDE_DEVICE, "cpu:1", S(9)));
}

static void a_full_table_refuses_and_keeps_what_it_has(void **state)
{
    struct overrides *overrides = *state;
    struct error error = {0};
    struct override made = make(OVERRIDE_ENDPOINT, "", "slo_ms", 1);
    for (int i = 0; i < OVERRIDES_MAX; i++) {
        snprintf(made.name, sizeof made.name, "%05d", i);
        set(overrides, &made, 0);
    }
    snprintf(made.name, sizeof made.name, "more");
    assert_int_equal(overrides_set(overrides, &made, 0, &error), -ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "4096"));
    snprintf(made.name, sizeof made.name, "%05d", 7);
    made.value = 9;
    set(overrides, &made, 0);
    assert_int_equal(overrides_find(overrides, OVERRIDE_ENDPOINT, "00007", "slo_ms")->value, 9);
}

/* ---- over a restart ---- */

static void put_row(struct store *store, const char *name, uint64_t made_s, uint64_t expires_s)
{
    struct store_override row = {.object = "device",
                                 .name = name,
                                 .field = "cordoned",
                                 .actor = "ops",
                                 .reason = "fans",
                                 .value = 1,
                                 .made_wall_ns = S(made_s),
                                 .expires_wall_ns = S(expires_s)};
    assert_int_equal(store_put_overrides(store, &row, 1, NULL, NULL), 0);
}

static void what_was_kept_has_the_time_that_is_left(void **state)
{
    struct overrides *overrides = *state;
    char directory[] = "/tmp/test-overrides-XXXXXX";
    char command[64];
    assert_non_null(mkdtemp(directory));
    struct store *store = store_open(directory, NULL);
    assert_non_null(store);
    assert_int_equal(store_start(store, NULL), 0);
    put_row(store, "stays", 1000, 0);
    put_row(store, "left", 1000, 1100);
    put_row(store, "over", 1000, 1010);
    put_row(store, "clock set back", 5000, 5100);
    struct store_override gone = {.object = "device", .name = "stays", .field = "x", .gone = true};
    assert_int_equal(store_put_overrides(store, &gone, 1, NULL, NULL), 0);
    store_close(store);
    store = store_open(directory, NULL);
    assert_int_equal(overrides_load(overrides, store, S(7), S(1050), NULL), 0);
    store_close(store);
    const struct override *stays = overrides_find(overrides, OVERRIDE_DEVICE, "stays", "cordoned");
    assert_int_equal(stays->value, 1);
    assert_string_equal(stays->reason, "fans");
    assert_true(stays->expires_ns == UINT64_MAX);
    assert_true(overrides_find(overrides, OVERRIDE_DEVICE, "left", "cordoned")->expires_ns ==
                S(7 + 50));
    assert_true(overrides_find(overrides, OVERRIDE_DEVICE, "over", "cordoned")->expires_ns == S(7));
    assert_true(
        overrides_find(overrides, OVERRIDE_DEVICE, "clock set back", "cordoned")->expires_ns ==
        S(7 + 100));
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(they_are_kept_in_the_order_of_their_names),
        TEST(a_later_one_takes_the_place_of_an_earlier_one),
        TEST(their_time_ends_them),
        TEST(the_story_is_of_the_newest_change_before),
        TEST(a_full_table_refuses_and_keeps_what_it_has),
        TEST(what_was_kept_has_the_time_that_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
