#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/common/view.h"
#include "clients/demo/waves.h"
#include "server/base/clock.h"

static void each_use_of_a_device_has_its_own_character(void **state)
{
    (void)state;
    assert_int_equal(view_strip_character(0, 0, 0, 0), '.');
    assert_int_equal(view_strip_character(200, 0, 0, 0), '#');
    assert_int_equal(view_strip_character(0, 200, 0, 0), '-');
    assert_int_equal(view_strip_character(100, 100, 0, 0), '+');
    assert_int_equal(view_strip_character(220, 20, 0, 0), '#');
    assert_int_equal(view_strip_character(20, 220, 0, 0), '-');
    assert_int_equal(view_strip_character(0, 0, 250, 0), '/');
    assert_int_equal(view_strip_character(10, 200, 20, 0), '-'); /* a short hand-over */
    assert_int_equal(view_strip_character(200, 0, 0, 255), 'x');
    assert_int_equal(view_strip_character(2, 2, 2, 2), '.');
}

static void text_is_cut_by_columns_and_control_bytes_do_no_harm(void **state)
{
    (void)state;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    assert_int_equal(text_write(out, "é\033[2Jx", 4), 4);
    text_pad(out, "ab", 4);
    fclose(out);
    assert_string_equal(text, "é?[2ab  ");
    free(text);
}

static void a_strip_shows_the_last_slots_at_the_right(void **state)
{
    (void)state;
    uint8_t serving[8] = {0, 0, 0, 0, 255, 255, 255, 255};
    uint8_t training[8] = {255, 255, 255, 255, 0, 0, 0, 0};
    uint8_t none[8] = {0};
    char id[] = "cpu:0", job[] = "j";
    Tidepool__V1__Device device = TIDEPOOL__V1__DEVICE__INIT;
    Tidepool__V1__Device *devices[] = {&device};
    Tidepool__V1__ListDevicesResponse list = TIDEPOOL__V1__LIST_DEVICES_RESPONSE__INIT;
    Tidepool__V1__DeviceTimeline row = TIDEPOOL__V1__DEVICE_TIMELINE__INIT;
    Tidepool__V1__DeviceTimeline *rows[] = {&row};
    Tidepool__V1__Timeline timeline = TIDEPOOL__V1__TIMELINE__INIT;
    device.id = row.device = id;
    device.job = job;
    list.n_devices = timeline.n_devices = 1;
    list.devices = devices;
    timeline.devices = rows;
    timeline.slot_ms = 100;
    timeline.first_slot = 992;
    timeline.next_slot = 1000;
    row.serving = (ProtobufCBinaryData){8, serving};
    row.training = (ProtobufCBinaryData){8, training};
    row.handover = row.failed = (ProtobufCBinaryData){8, none};
    struct view view = {.devices = &list, .timeline = &timeline};
    for (unsigned columns = 20; columns <= 200; columns += 20) {
        struct view_style style = {.columns = columns, .column_ms = 200};
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        view_draw_devices(out, &view, &style);
        fclose(out);
        assert_non_null(strstr(text, " --##  ")); /* two slots of 100 ms in each column */
        free(text);
    }
}

static char *draw_job(Tidepool__V1__Job *job)
{
    Tidepool__V1__Job *jobs[] = {job};
    Tidepool__V1__ListJobsResponse list = TIDEPOOL__V1__LIST_JOBS_RESPONSE__INIT;
    struct view view = {.jobs = &list};
    struct view_style style = {.columns = 200};
    char *text = NULL;
    size_t length = 0;
    list.n_jobs = 1;
    list.jobs = jobs;
    FILE *out = open_memstream(&text, &length);
    view_draw_jobs(out, &view, &style, UINT32_MAX);
    fclose(out);
    return text;
}

static void a_job_tells_when_it_will_start_or_how_likely_it_loses_a_device(void **state)
{
    (void)state;
    char id[] = "digits-1";
    Tidepool__V1__Job job = TIDEPOOL__V1__JOB__INIT;
    const struct {
        Tidepool__V1__JobState state;
        double wait_s, revoke;
        const char *text;
    } cases[] = {
        {TIDEPOOL__V1__JOB_STATE__JOB_STATE_WAITING, 80, __builtin_nan(""), "in 1 min 20 s"},
        {TIDEPOOL__V1__JOB_STATE__JOB_STATE_RUNNING, __builtin_nan(""), 0.12, "revoke 12 %"},
        {TIDEPOOL__V1__JOB_STATE__JOB_STATE_WAITING, __builtin_nan(""), 0.5, "0               -"},
    };
    job.id = id;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        job.state = cases[i].state;
        job.expected_wait_s = cases[i].wait_s;
        job.revoke_fraction = cases[i].revoke;
        char *text = draw_job(&job);
        assert_non_null(strstr(text, cases[i].text));
        free(text);
    }
}

static void the_tide_rises_and_bursts_when_asked(void **state)
{
    (void)state;
    struct waves waves;
    uint64_t offset = 0, before = 0;
    unsigned low = 0, high = 0, burst = 0;
    waves_init(&waves, 200, 8 * NS_PER_S);
    while (waves_next(&waves, &offset)) {
        assert_true(offset > before && offset < 8 * NS_PER_S);
        low += offset < 3 * NS_PER_S;
        high += offset >= 3 * NS_PER_S && offset < 7 * NS_PER_S;
        before = offset;
    }
    assert_in_range(low, 60, 125);    /* 3 s × 30/s, ± 3.7 standard deviations */
    assert_in_range(high, 805, 1035); /* 4 s × 230/s */
    assert_true(waves.arrivals.whole);
    assert_int_equal(waves.arrivals.offsets_ns[waves.arrivals.count - 1], before);
    waves_fini(&waves);
    waves_init(&waves, 200, 3 * NS_PER_S);
    waves_burst(&waves, 0);
    assert_string_equal(waves_name(&waves, 0), "burst");
    while (waves_next(&waves, &offset)) {
        burst++;
    }
    assert_in_range(burst, 735, 945); /* 3 s × 280/s */
    assert_int_equal(waves.arrivals.count, burst);
    assert_string_equal(waves_name(&waves, 4 * NS_PER_S), "high tide");
    assert_string_equal(waves_name(&waves, 8 * NS_PER_S), "low tide");
    waves_fini(&waves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_use_of_a_device_has_its_own_character),
        cmocka_unit_test(text_is_cut_by_columns_and_control_bytes_do_no_harm),
        cmocka_unit_test(a_strip_shows_the_last_slots_at_the_right),
        cmocka_unit_test(a_job_tells_when_it_will_start_or_how_likely_it_loses_a_device),
        cmocka_unit_test(the_tide_rises_and_bursts_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
