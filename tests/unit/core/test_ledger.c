/* test_ledger.c: server/core/ledger.c: every device-second in one account. */
#include "tests/unit/core/rig.h"

static int setup(void **state)
{
    struct rig *rig = rig_create(NULL);
    rig_device(rig, 1);
    rig_device(rig, 2);
    rig_reconcile(rig);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_destroy(*state);
    return 0;
}

static uint64_t account(struct rig *rig, enum core_account which)
{
    return rig_ledger(rig).account_ns[which];
}

static void sample(struct rig *rig, uint64_t device, uint64_t serving_ns, uint64_t waiting_ns,
                   uint64_t restore_ns)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_DEVICE_SAMPLE,
                                      .device_sample = {.device = device,
                                                        .interval_ns = MS(100),
                                                        .serving_ns = serving_ns,
                                                        .waiting_ns = waiting_ns,
                                                        .restore_ns = restore_ns,
                                                        .slices = 3}});
}

static void progress(struct rig *rig, uint64_t step, uint64_t checkpointed)
{
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_LEASE_PROGRESS,
                                      .lease_progress = {.lease = 1,
                                                         .generation = rig_lease_view(rig, 1).run,
                                                         .step = step,
                                                         .checkpointed_step = checkpointed}});
}

/* Lease 1 on both devices, with instant answers. */
static void train(struct rig *rig)
{
    rig->answer_ns = 0;
    rig->release_ns = 0;
    rig->place_ns = 0;
    rig_lease(rig, 1, 2, 2);
    rig_run(rig, 0);
    assert_int_equal(rig_device_view(rig, 2).account, CORE_ACCOUNT_TRAINING);
}

static void idle_devices_are_free_and_those_an_endpoint_needs_are_reserve(void **state)
{
    struct rig *rig = *state;
    rig_run(rig, SECONDS(1));
    assert_int_equal(account(rig, CORE_ACCOUNT_FREE), SECONDS(2));
    rig->place_ns = 0;
    rig_send(rig, (struct core_event){.kind = CORE_EVENT_ENDPOINT_ADDED,
                                      .endpoint_spec = {.endpoint = 1,
                                                        .slo_ns = MS(20),
                                                        .devices_min = 2,
                                                        .devices_max = 2,
                                                        .kinds_mask = 1}});
    rig_run(rig, 0);
    rig_run(rig, SECONDS(1));
    assert_int_equal(account(rig, CORE_ACCOUNT_RESERVE), SECONDS(2));
    rig_run(rig, MS(100));
    sample(rig, 1, MS(70), 0, 0);
    assert_int_equal(account(rig, CORE_ACCOUNT_SERVING), MS(70));
    assert_int_equal(account(rig, CORE_ACCOUNT_RESERVE), SECONDS(2) + MS(130));
    assert_int_equal(rig_ledger(rig).elapsed_ns, SECONDS(4) + MS(200));
}

static void slices_move_time_from_training_to_serving(void **state)
{
    struct rig *rig = *state;
    train(rig);
    rig_run(rig, MS(100));
    sample(rig, 1, MS(30), MS(10), MS(5));
    assert_int_equal(account(rig, CORE_ACCOUNT_SERVING), MS(30));
    assert_int_equal(account(rig, CORE_ACCOUNT_WAITING), MS(10));
    assert_int_equal(account(rig, CORE_ACCOUNT_RESTORE), MS(5));
    assert_int_equal(account(rig, CORE_ACCOUNT_TRAINING), MS(155));
    assert_int_equal(rig_lease_view(rig, 1).training_ns, MS(155));
    assert_int_equal(rig_ledger(rig).slices, 3);
    assert_int_equal(rig_ledger(rig).handovers[CORE_RUNG_FREE], 2); /* a slice is none */
}

static void more_time_than_there_was_is_not_booked(void **state)
{
    struct rig *rig = *state;
    train(rig);
    rig_run(rig, MS(100));
    sample(rig, 1, MS(130), 0, 0);
    sample(rig, 1, MS(20), 0, 0); /* the same stretch again */
    assert_int_equal(account(rig, CORE_ACCOUNT_SERVING), MS(100));
    assert_int_equal(rig_ledger(rig).unbooked_ns, MS(50));
}

static void training_is_provisional_until_a_checkpoint_keeps_it(void **state)
{
    struct rig *rig = *state;
    train(rig);
    rig_run(rig, SECONDS(10));
    progress(rig, 10, 0);
    assert_int_equal(rig_ledger(rig).provisional_ns, SECONDS(20));
    progress(rig, 10, 8); /* 2 of 10 steps are not kept yet */
    assert_int_equal(rig_ledger(rig).provisional_ns, SECONDS(4));
    progress(rig, 10, 11); /* nonsense: kept before it was done */
    assert_int_equal(rig_ledger(rig).provisional_ns, SECONDS(4));
    assert_int_equal(rig_lease_view(rig, 1).checkpointed_step, 8);
}

static void exit_without_a_checkpoint_is_a_booked_loss(void **state)
{
    struct rig *rig = *state;
    train(rig);
    rig_run(rig, SECONDS(10));
    progress(rig, 10, 8);
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_JOB_EXITED,
                      .job_exited = {.lease = 1, .generation = rig_lease_view(rig, 1).run}});
    assert_int_equal(account(rig, CORE_ACCOUNT_LOST), SECONDS(4));
    assert_int_equal(account(rig, CORE_ACCOUNT_TRAINING), SECONDS(16));
    assert_int_equal(rig_lease_view(rig, 1).lost_ns, SECONDS(4));
    assert_int_equal(rig_lease_view(rig, 1).training_ns, SECONDS(16));
    assert_int_equal(rig_ledger(rig).provisional_ns, 0);
}

static void release_by_the_holder_keeps_everything(void **state)
{
    struct rig *rig = *state;
    train(rig);
    rig_run(rig, SECONDS(10));
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_LEASE_RELEASED,
                      .lease_released = {.lease = 1, .generation = rig_lease_view(rig, 1).run}});
    rig_run(rig, MS(1));
    assert_int_equal(account(rig, CORE_ACCOUNT_LOST), 0);
    assert_int_equal(account(rig, CORE_ACCOUNT_TRAINING), SECONDS(20));
}

static void letting_go_trains_until_acknowledged_and_is_a_handover_until_verified(void **state)
{
    struct rig *rig = *state;
    train(rig);
    rig->release_ns = MS(40);
    rig->answer_ns = MS(5);
    uint64_t before = account(rig, CORE_ACCOUNT_TRAINING);
    rig_lease_event(rig, CORE_EVENT_LEASE_PAUSED, 1);
    rig_run(rig, MS(100));
    assert_int_equal(account(rig, CORE_ACCOUNT_TRAINING) - before, 2 * MS(40));
    assert_int_equal(account(rig, CORE_ACCOUNT_HANDOVER), 2 * MS(5));
    assert_int_equal(account(rig, CORE_ACCOUNT_FREE), 2 * MS(55));
    assert_int_equal(rig_ledger(rig).handovers[CORE_RUNG_SHRINK], 2);
}

static void failed_and_occupied_time_is_quarantined_and_removed_devices_still_count(void **state)
{
    struct rig *rig = *state;
    rig_device_event(rig, CORE_EVENT_DEVICE_FAILED, 1);
    rig_device_flag(rig, CORE_EVENT_DEVICE_OCCUPIED, 2, true);
    rig_run(rig, SECONDS(3));
    assert_int_equal(account(rig, CORE_ACCOUNT_QUARANTINED), SECONDS(6));
    rig_device_event(rig, CORE_EVENT_DEVICE_REMOVED, 1);
    rig_run(rig, SECONDS(1));
    assert_int_equal(account(rig, CORE_ACCOUNT_QUARANTINED), SECONDS(7));
    assert_int_equal(rig_ledger(rig).elapsed_ns, SECONDS(7));
}

/* As much as 10,000 devices have in 25 days. */
static void device_time_beyond_64_bits_is_booked_whole(void **state)
{
    struct rig *rig = *state;
    const uint64_t devices = 70, span_ns = SECONDS(UINT64_C(10) * 365 * 86400);
    const core_sum_ns whole_ns = (core_sum_ns)span_ns * devices;
    for (uint64_t id = 3; id <= devices; id++) {
        rig_device(rig, id);
    }
    rig->answer_ns = 0;
    rig->release_ns = 0;
    rig_lease(rig, 1, (uint32_t)devices, (uint32_t)devices);
    rig_run(rig, 0);
    rig_run(rig, span_ns);
    assert_true(whole_ns > UINT64_MAX);
    assert_true(rig_ledger(rig).elapsed_ns == whole_ns);
    assert_true(rig_ledger(rig).account_ns[CORE_ACCOUNT_TRAINING] == whole_ns);
    progress(rig, 10, 0);
    assert_true(rig_lease_view(rig, 1).training_ns == whole_ns);
    assert_true(rig_lease_view(rig, 1).provisional_ns == whole_ns);
    progress(rig, 10, 1);
    assert_true(rig_lease_view(rig, 1).provisional_ns == whole_ns / 10 * 9);
    rig_send(rig, (struct core_event){
                      .kind = CORE_EVENT_JOB_EXITED,
                      .job_exited = {.lease = 1, .generation = rig_lease_view(rig, 1).run}});
    assert_true(rig_lease_view(rig, 1).lost_ns == whole_ns / 10 * 9);
    assert_true(rig_ledger(rig).account_ns[CORE_ACCOUNT_TRAINING] == whole_ns / 10);
    assert_int_equal(core_sum_clip(whole_ns), UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(idle_devices_are_free_and_those_an_endpoint_needs_are_reserve),
        TEST(slices_move_time_from_training_to_serving),
        TEST(more_time_than_there_was_is_not_booked),
        TEST(training_is_provisional_until_a_checkpoint_keeps_it),
        TEST(exit_without_a_checkpoint_is_a_booked_loss),
        TEST(release_by_the_holder_keeps_everything),
        TEST(letting_go_trains_until_acknowledged_and_is_a_handover_until_verified),
        TEST(failed_and_occupied_time_is_quarantined_and_removed_devices_still_count),
        TEST(device_time_beyond_64_bits_is_booked_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
