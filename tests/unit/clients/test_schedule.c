#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "clients/common/schedule.h"

static char path[64];

static void file_write(const char *text, bool compressed)
{
    strcpy(path, "/tmp/tidepool-schedule-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    if (compressed) {
        gzFile file = gzdopen(fd, "wb");
        assert_true(gzputs(file, text) == (int)strlen(text));
        assert_int_equal(gzclose(file), Z_OK);
    } else {
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
        close(fd);
    }
}

static void steps_send_at_their_rates_and_keep_silence(void **state)
{
    (void)state;
    struct schedule *schedule = NULL;
    assert_int_equal(schedule_create_steps(SCHEDULE_EVEN, "0:5,100:2,0:1,10:1", 1, &schedule, NULL),
                     0);
    uint64_t offset = 0, before = 0;
    unsigned count = 0;
    while (schedule_next(schedule, &offset)) {
        assert_true(offset >= before);
        if (count == 0) {
            assert_int_equal(offset, 5000000000u);
        }
        if (count == 200) {
            assert_int_equal(offset, 8000000000u);
        }
        before = offset;
        count++;
    }
    assert_int_equal(count, 210);
    assert_false(schedule_next(schedule, &offset));
    schedule_destroy(schedule);
}

static void poisson_arrivals_repeat_with_their_seed_and_have_the_right_spread(void **state)
{
    (void)state;
    struct schedule_segment segment = {200, 500};
    struct schedule *first = NULL, *second = NULL;
    assert_int_equal(schedule_create(SCHEDULE_POISSON, &segment, 1, 7, &first, NULL), 0);
    assert_int_equal(schedule_create(SCHEDULE_POISSON, &segment, 1, 7, &second, NULL), 0);
    uint64_t a = 0, b = 0, before = 0;
    double sum = 0, squares = 0;
    unsigned count = 0;
    while (schedule_next(first, &a)) {
        assert_true(schedule_next(second, &b));
        assert_true(a == b);
        double gap = (double)(a - before) / 1e9;
        sum += gap;
        squares += gap * gap;
        before = a;
        count++;
    }
    assert_false(schedule_next(second, &b));
    double mean = sum / count;
    double deviation = sqrt(squares / count - mean * mean);
    assert_true(count > 99000 && count < 101000); /* 100,000 ± 3.2 standard deviations */
    assert_true(deviation / mean > 0.97 && deviation / mean < 1.03); /* exponential gaps */
    schedule_destroy(first);
    schedule_destroy(second);
}

static void a_trace_is_replayed_at_its_speed_plain_and_compressed(void **state)
{
    (void)state;
    static const char text[] =
        "endpoint,arrival_s,input_tokens\nchat,1.5,10\ncode,2,20\nchat,4,1\n";
    for (int compressed = 0; compressed < 2; compressed++) {
        struct schedule *schedule = NULL;
        uint64_t offset = 0;
        file_write(text, compressed == 1);
        assert_int_equal(schedule_create_replay(path, 2, "chat", &schedule, NULL), 0);
        assert_true(schedule_next(schedule, &offset));
        assert_int_equal(offset, 750000000);
        assert_true(schedule_next(schedule, &offset));
        assert_int_equal(offset, 2000000000);
        assert_false(schedule_next(schedule, &offset));
        schedule_destroy(schedule);
        unlink(path);
    }
}

static void broken_input_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } traces[] = {
        {"", "is empty"},
        {"a,b\n1,2\n", "no column arrival_s"},
        {"arrival_s\n1\nx\n", "line 3"},
        {"arrival_s\n-1\n", "line 2"},
        {"arrival_s\nnan\n", "line 2"},
        {"arrival_s\n2\n1\n", "ascending"},
    };
    for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++) {
        struct schedule *schedule = NULL;
        struct error error = {0};
        file_write(traces[i].text, false);
        assert_true(schedule_create_replay(path, 1, NULL, &schedule, &error) < 0);
        assert_non_null(strstr(error.text, traces[i].says));
        assert_null(schedule);
        unlink(path);
    }
    static const char *const steps[] = {"",         "5",       "5:",    ":5",       "5:1,",
                                        "5:1,,6:1", "-1:5",    "1:-5",  "1:0",      "nan:1",
                                        "1:nan",    "1:1;2:2", "1e9:1", "1:inf,1:1"};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct schedule *schedule = NULL;
        struct error error = {0};
        assert_true(schedule_create_steps(SCHEDULE_EVEN, steps[i], 1, &schedule, &error) < 0);
        assert_true(error.text[0] != '\0');
    }
    struct schedule *schedule = NULL;
    struct error error = {0};
    assert_true(schedule_create_replay("/nonexistent/x.csv", 1, NULL, &schedule, &error) < 0);
    assert_non_null(strstr(error.text, "/nonexistent/x.csv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_send_at_their_rates_and_keep_silence),
        cmocka_unit_test(poisson_arrivals_repeat_with_their_seed_and_have_the_right_spread),
        cmocka_unit_test(a_trace_is_replayed_at_its_speed_plain_and_compressed),
        cmocka_unit_test(broken_input_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
