/* test_notice.c: server/core/notice.c: a deadline that is fixed at the first notice, and the one
 * extension of it. */
#include "tests/unit/core/rig.h"

#define NOTICE (1u << CORE_RUNG_NOTICE)

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    for (uint64_t device = 1; device <= 2; device++) {
        rig_device(rig, device);
    }
    rig_reconcile(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static struct core_lease_spec spec_of(uint64_t extension_ns)
{
    struct core_lease_spec spec = rig_outside_spec(1, 2, 2, NOTICE);
    spec.notice_ns = SECONDS(20);
    spec.extension = true;
    spec.extension_ns = extension_ns;
    return spec;
}

/* A job on two devices, just told to give them back. Returns the deadline. */
static uint64_t notify(struct rig *rig, struct core_lease_spec spec)
{
    rig_request(rig, spec);
    rig_run(rig, MS(50));
    rig->answers = false;
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 1);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 2);
    return rig_find(rig, CORE_ACTION_REVOKE)->revoke.deadline_ns;
}

static void ask(struct rig *rig, uint64_t device, uint64_t generation, uint64_t extension_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_EXTENSION_ASKED,
                                      .extension = {.lease = 1,
                                                    .device = device,
                                                    .generation = generation,
                                                    .extension_ns = extension_ns}});
}

static void notice_has_the_length_that_was_agreed(void **state)
{
    struct rig *rig = *state;
    uint64_t deadline_ns = notify(rig, spec_of(0));
    assert_int_equal(deadline_ns, rig->now_ns + SECONDS(20));
}

static void extension_moves_the_deadline_once_for_all_devices(void **state)
{
    struct rig *rig = *state;
    uint64_t deadline_ns = notify(rig, spec_of(SECONDS(15)));
    uint64_t run = rig_lease_view(rig, 1).run;
    rig_run(rig, SECONDS(5));
    ask(rig, 0, run, SECONDS(4));
    assert_int_equal(rig_count(rig, CORE_ACTION_EXTEND), 2);
    assert_int_equal(rig_find(rig, CORE_ACTION_EXTEND)->revoke.deadline_ns,
                     deadline_ns + SECONDS(4));
    assert_int_equal(rig_device_view(rig, 2).deadline_ns, deadline_ns + SECONDS(4));
    ask(rig, 0, run, SECONDS(4));
    assert_int_equal(rig_count(rig, CORE_ACTION_EXTEND), 0);
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_EXTENDED);
    rig_run(rig, SECONDS(19) - 1);
    assert_int_equal(rig->total[CORE_ACTION_KILL], 0);
    rig_run(rig, 1);
    assert_int_equal(rig->total[CORE_ACTION_KILL], 1);
}

static void extension_is_no_longer_than_agreed(void **state)
{
    struct rig *rig = *state;
    uint64_t deadline_ns = notify(rig, spec_of(SECONDS(15)));
    ask(rig, 1, rig_device_view(rig, 1).generation, SECONDS(60));
    assert_int_equal(rig_count(rig, CORE_ACTION_EXTEND), 1);
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, deadline_ns + SECONDS(15));
    assert_int_equal(rig_device_view(rig, 2).deadline_ns, deadline_ns);
}

static void extension_is_refused_where_none_was_agreed(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = spec_of(0);
    spec.extension = false;
    uint64_t deadline_ns = notify(rig, spec);
    ask(rig, 0, rig_lease_view(rig, 1).run, SECONDS(1));
    assert_int_equal(rig_find(rig, CORE_ACTION_REJECT)->reject.reason, CORE_REASON_EXTENDED);
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, deadline_ns);
}

static void extension_ends_where_the_device_itself_goes(void **state)
{
    struct rig *rig = *state;
    rig_request(rig, spec_of(0));
    rig_run(rig, MS(50));
    rig->answers = false;
    uint64_t goes_ns = rig->now_ns + SECONDS(22);
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY,
                                      .device_time = {.device = 1, .by_ns = goes_ns}});
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, rig->now_ns + SECONDS(20));
    ask(rig, 1, rig_device_view(rig, 1).generation, SECONDS(10));
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, goes_ns);
}

static void asking_with_an_old_token_or_under_no_notice_changes_nothing(void **state)
{
    struct rig *rig = *state;
    rig_request(rig, spec_of(0));
    rig_run(rig, MS(50));
    ask(rig, 0, rig_lease_view(rig, 1).run, SECONDS(1)); /* nobody asked for anything yet */
    assert_int_equal(rig->count, 0);
    rig->answers = false;
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 1);
    uint64_t deadline_ns = rig_device_view(rig, 1).deadline_ns;
    ask(rig, 0, rig_lease_view(rig, 1).run + 100, SECONDS(1));
    ask(rig, 1, rig_device_view(rig, 2).generation, SECONDS(1));
    assert_int_equal(rig->count, 0);
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, deadline_ns);
}

static void early_acknowledgement_ends_the_notice_at_once(void **state)
{
    struct rig *rig = *state;
    notify(rig, spec_of(0));
    struct core_action revoke = *rig_find(rig, CORE_ACTION_REVOKE);
    rig_send(rig,
             (struct core_event){.kind = CORE_EVENT_REVOKE_ACKNOWLEDGED,
                                 .answer = {.action = revoke.id, .device = revoke.revoke.device}});
    assert_int_equal(rig_device_view(rig, revoke.revoke.device).hold, CORE_HOLD_VERIFYING);
    ask(rig, revoke.revoke.device, rig_device_view(rig, revoke.revoke.device).generation,
        SECONDS(1)); /* too late for that device */
    assert_int_equal(rig_count(rig, CORE_ACTION_EXTEND), 0);
}

static void second_reason_to_take_a_device_does_not_move_its_deadline(void **state)
{
    struct rig *rig = *state;
    uint64_t deadline_ns = notify(rig, spec_of(0));
    rig_run(rig, SECONDS(5));
    rig_lease_event(rig, CORE_EVENT_LEASE_CANCELLED, 1);
    assert_int_equal(rig_count(rig, CORE_ACTION_REVOKE), 0);
    assert_int_equal(rig_device_view(rig, 1).deadline_ns, deadline_ns);
}

static void holder_that_takes_no_notice_has_its_time_all_the_same(void **state)
{
    struct rig *rig = *state;
    struct core_lease_spec spec = spec_of(0);
    spec.rungs_mask = 1u << CORE_RUNG_KILL;
    uint64_t deadline_ns = notify(rig, spec);
    assert_int_equal(rig_find(rig, CORE_ACTION_REVOKE)->revoke.rung, CORE_RUNG_KILL);
    assert_int_equal(deadline_ns, rig->now_ns + SECONDS(20));
    ask(rig, 0, rig_lease_view(rig, 1).run, SECONDS(1)); /* it does not listen, so why ask */
    assert_int_equal(rig_count(rig, CORE_ACTION_EXTEND), 0);
    rig_run(rig, SECONDS(20));
    assert_int_equal(rig->total[CORE_ACTION_KILL], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(notice_has_the_length_that_was_agreed),
        TEST(extension_moves_the_deadline_once_for_all_devices),
        TEST(extension_is_no_longer_than_agreed),
        TEST(extension_is_refused_where_none_was_agreed),
        TEST(extension_ends_where_the_device_itself_goes),
        TEST(asking_with_an_old_token_or_under_no_notice_changes_nothing),
        TEST(early_acknowledgement_ends_the_notice_at_once),
        TEST(second_reason_to_take_a_device_does_not_move_its_deadline),
        TEST(holder_that_takes_no_notice_has_its_time_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
