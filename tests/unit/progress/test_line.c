/* Tests server/progress/line.c: what is understood, what is refused and how it is named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/clock.h"
#include "server/progress/line.h"

static struct progress_message read_line(const char *line)
{
    struct progress_message message;
    struct error error = {0};
    if (progress_line_read(line, strlen(line), &message, &error) < 0) {
        fail_msg("'%s': %s", line, error.text);
    }
    return message;
}

static void must_refuse(const char *line, size_t length, const char *text)
{
    struct progress_message message;
    struct error error = {0};
    assert_int_equal(progress_line_read(line, length, &message, &error),
                     -(int)ERROR_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL) {
        fail_msg("'%s': no '%s' in '%s'", line, text, error.text);
    }
}

static void hello_says_who_it_is_and_what_it_can(void **state)
{
    (void)state;
    struct progress_message message = read_line(
        "{\"hello\":{\"rank\":3,\"ranks\":4,\"pid\":77,\"can\":[\"pause\",\"fly\",\"resize\"]}}");
    assert_int_equal(message.kind, PROGRESS_HELLO);
    assert_int_equal(message.rank, 3);
    assert_int_equal(message.ranks, 4);
    assert_int_equal(message.pid, 77);
    assert_int_equal(message.can, PROGRESS_CAN_PAUSE | PROGRESS_CAN_RESIZE);
    message = read_line("{\"hello\":{}}");
    assert_int_equal(message.rank, 0);
    assert_int_equal(message.ranks, 0);
    assert_int_equal(message.can, 0);
}

static void progress_needs_no_more_than_a_step(void **state)
{
    (void)state;
    struct progress_message message = read_line(" {\"progress\": {\"step\": 12}}\r");
    assert_int_equal(message.kind, PROGRESS_STEP);
    assert_int_equal(message.step, 12);
    assert_int_equal(message.checkpointed_step, -1);
    assert_true(isnan(message.waiting_s) && isnan(message.step_s));
    assert_int_equal(message.metric_count, 0);
}

static void progress_carries_times_and_metrics(void **state)
{
    (void)state;
    struct progress_message message =
        read_line("{\"progress\":{\"step\":12,\"checkpointed_step\":10,\"waiting_s\":0.5,"
                  "\"step_s\":2,\"metrics\":{\"loss\":1.25,\"norm\":null}}}");
    assert_int_equal(message.checkpointed_step, 10);
    assert_true(message.waiting_s == 0.5 && message.step_s == 2);
    assert_int_equal(message.metric_count, 2);
    assert_string_equal(message.metrics[0].name, "loss");
    assert_true(message.metrics[0].value == 1.25);
    assert_true(isnan(message.metrics[1].value)); /* a loss that is no number is news, too */
}

static void answers_carry_their_numbers(void **state)
{
    (void)state;
    struct progress_message message = read_line("{\"stopped\":{\"request\":7,\"step\":14}}");
    assert_int_equal(message.kind, PROGRESS_STOPPED);
    assert_int_equal(message.request, 7);
    assert_int_equal(message.step, 14);
    message = read_line("{\"late\":{\"request\":7,\"step\":15}}");
    assert_int_equal(message.kind, PROGRESS_LATE);
    message = read_line("{\"resumed\":{\"request\":8}}");
    assert_int_equal(message.request, 8);
    message = read_line("{\"acknowledged\":{\"notice\":3}}");
    assert_int_equal(message.notice, 3);
    message = read_line("{\"extend\":{\"notice\":3,\"seconds\":20.5}}");
    assert_int_equal(message.kind, PROGRESS_EXTEND);
    assert_true(message.seconds == 20.5);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"step 12", "line 1"},
        {"{", "line 1"},
        {"{}", "one key"},
        {"[]", "one key"},
        {"{\"progress\":{\"step\":1},\"hello\":{}}", "one key"},
        {"{\"progess\":{\"step\":1}}", "did you mean 'progress'"},
        {"{\"progress\":{\"stpe\":1}}", "did you mean 'step'"},
        {"{\"progress\":{\"loss\":1}}", "unknown key 'loss'"},
        {"{\"progress\":{}}", "'step' is missing"},
        {"{\"progress\":[1]}", "must be an object"},
        {"{\"progress\":{\"step\":1.5}}", "progress.step: must be a whole number"},
        {"{\"progress\":{\"step\":-1}}", "progress.step: -1 is out of range"},
        {"{\"progress\":{\"step\":1,\"step\":2}}", "duplicate"},
        {"{\"progress\":{\"step\":99999999999999999999}}", "line 1"},
        {"{\"progress\":{\"step\":1,\"waiting_s\":-1}}", "progress.waiting_s"},
        {"{\"progress\":{\"step\":1,\"waiting_s\":NaN}}", "line 1"},
        {"{\"progress\":{\"step\":1,\"waiting_s\":1e999}}", "line 1"},
        {"{\"progress\":{\"step\":1,\"metrics\":[]}}", "progress.metrics"},
        {"{\"progress\":{\"step\":1,\"metrics\":{\"loss\":\"low\"}}}", "progress.metrics.loss"},
        {"{\"progress\":{\"step\":1,\"metrics\":{\"\":1}}}", "1 to 63 bytes"},
        {"{\"hello\":{\"rank\":4,\"ranks\":4}}", "hello.rank: 4 is none of 4 ranks"},
        {"{\"hello\":{\"rank\":4096}}", "hello.rank"},
        {"{\"hello\":{\"can\":\"pause\"}}", "hello.can"},
        {"{\"hello\":{\"can\":[1]}}", "hello.can"},
        {"{\"extend\":{\"notice\":3,\"seconds\":0}}", "extend.seconds"},
        {"{\"stopped\":{\"request\":7}}", "'step' is missing"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        must_refuse(cases[i].line, strlen(cases[i].line), cases[i].text);
    }
    must_refuse("{\"progress\":{\"step\":1}}\0x", 25, "line 1"); /* a NUL is no end */
}

static void metrics_are_bounded(void **state)
{
    char line[4096] = "{\"progress\":{\"step\":1,\"metrics\":{\"m\":0";
    (void)state;
    for (int i = 0; i < PROGRESS_METRICS_MAX; i++) {
        size_t used = strlen(line);
        (void)snprintf(line + used, sizeof(line) - used, ",\"m%d\":%d", i, i);
    }
    strcat(line, "}}}");
    must_refuse(line, strlen(line), "at most 32 numbers");
    (void)snprintf(line, sizeof(line), "{\"progress\":{\"step\":1,\"metrics\":{\"%064d\":1}}}", 0);
    must_refuse(line, strlen(line), "has 64");
}

static void a_notice_says_what_is_asked_and_until_when(void **state)
{
    static const char *const devices[] = {"cpu:0-3", "cpu:4-7"};
    static const uint32_t ranks[] = {0, 1};
    struct progress_notice notice = {.notice = 3,
                                     .deadline_ns = 40 * NS_PER_S,
                                     .devices = devices,
                                     .device_count = 2,
                                     .ranks = ranks,
                                     .rank_count = 2,
                                     .reason = "endpoint 'vision' is late",
                                     .asked = "save and give back"};
    (void)state;
    char *text = progress_notice_text(&notice, 10 * NS_PER_S + 250 * NS_PER_MS);
    assert_string_equal(text, "{\"notice\":3,\"deadline_s\":29.75,\"deadline_boottime_ns\":"
                              "40000000000,\"devices\":[\"cpu:0-3\",\"cpu:4-7\"],\"ranks\":[0,1],"
                              "\"reason\":\"endpoint 'vision' is late\",\"asked\":"
                              "\"save and give back\"}");
    free(text);
    text = progress_line_notice(&notice, 50 * NS_PER_S); /* overdue is no time left */
    assert_non_null(strstr(text, "{\"notice\":{\"notice\":3,\"deadline_s\":0.0,"));
    assert_int_equal(text[strlen(text) - 1], '\n');
    free(text);
}

static void requests_are_short_lines(void **state)
{
    (void)state;
    char *text = progress_line_pause(7, 14);
    assert_string_equal(text, "{\"pause\":{\"request\":7,\"step\":14}}\n");
    free(text);
    text = progress_line_resume(8);
    assert_string_equal(text, "{\"resume\":{\"request\":8}}\n");
    free(text);
    text = progress_line_notice_over(3, "withdrawn", 0, 0);
    assert_string_equal(text, "{\"notice_over\":{\"notice\":3,\"result\":\"withdrawn\"}}\n");
    free(text);
    text = progress_line_notice_over(3, "extended", 2 * NS_PER_S, NS_PER_S);
    assert_string_equal(text, "{\"notice_over\":{\"notice\":3,\"result\":\"extended\","
                              "\"deadline_s\":1.0,\"deadline_boottime_ns\":2000000000}}\n");
    free(text);
}

static void an_error_quotes_80_bytes_of_any_line(void **state)
{
    char line[200];
    (void)state;
    char *text = progress_line_error("a\0b\xff\"c\xc3", 7, "why");
    assert_string_equal(text, "{\"error\":{\"line\":\"a?b?\\\"c?\",\"text\":\"why\"}}\n");
    free(text);
    memset(line, 'x', sizeof(line));
    memcpy(line + 79, "\xc3\xa4", 2); /* the 80th and 81st byte are one character */
    text = progress_line_error(line, sizeof(line), "why");
    assert_int_equal(strspn(text + strlen("{\"error\":{\"line\":\""), "x"), 79);
    assert_non_null(strstr(text, "xxx\",\"text\""));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_says_who_it_is_and_what_it_can),
        cmocka_unit_test(progress_needs_no_more_than_a_step),
        cmocka_unit_test(progress_carries_times_and_metrics),
        cmocka_unit_test(answers_carry_their_numbers),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(metrics_are_bounded),
        cmocka_unit_test(a_notice_says_what_is_asked_and_until_when),
        cmocka_unit_test(requests_are_short_lines),
        cmocka_unit_test(an_error_quotes_80_bytes_of_any_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
