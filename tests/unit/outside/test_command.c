/* Tests server/outside/command.c: the specification of an outside job. */
#include "server/outside/command.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "server/base/options.h"

#define LEAST "\"command\": [\"train.py\"], \"working_directory\": \"/home\""

static int read_text(const char *text, struct command *ret_command, struct error *error)
{
    json_t *specification = options_parse_text(text, strlen(text), "job", error);
    assert_non_null(specification);
    int result = command_read(specification, ret_command, error);
    json_decref(specification);
    return result;
}

static void the_least_that_is_given_is_made_whole_by_defaults(void **state)
{
    struct command command;
    struct error error;
    (void)state;
    assert_int_equal(read_text("{" LEAST "}", &command, &error), 0);
    assert_string_equal(command.name, "train.py");
    assert_int_equal(command.argument_count, 1);
    assert_null(command.arguments[1]);
    assert_int_equal(command.devices_min, 1);
    assert_int_equal(command.devices_max, 1);
    assert_int_equal(command.umask, 022);
    assert_int_equal(command.retries, 3);
    assert_int_equal(command.log_bytes, 64 << 20);
    assert_true(command.notice_s < 0);
    assert_string_equal(command.kind, "cpu");
    assert_null(command.output);
    command_fini(&command);
}

static void all_that_can_be_given_is_read(void **state)
{
    struct command command;
    struct error error;
    (void)state;
    assert_int_equal(
        read_text("{\"name\": \"a-b.c_1\", \"command\": [\"/bin/x\", \"\"], \"environment\": "
                  "[\"A=1\", \"B=\"], \"working_directory\": \"/\", \"output\": \"/tmp/o\", "
                  "\"devices\": \"2:4\", \"notice_s\": 0, \"notice_signal\": \"SIGUSR1\", "
                  "\"limits\": [{\"resource\": \"NOFILE\", \"soft\": 10, \"hard\": "
                  "\"unlimited\"}], \"umask\": 0, \"retries\": 0, \"no_freeze\": true}",
                  &command, &error),
        0);
    assert_string_equal(command.name, "a-b.c_1");
    assert_string_equal(command.arguments[1], "");
    assert_string_equal(command.environment[1], "B=");
    assert_int_equal(command.devices_min, 2);
    assert_int_equal(command.devices_max, 4);
    assert_true(command.notice_s == 0);
    assert_int_equal(command.notice_signal, SIGUSR1);
    assert_int_equal(command.limit_count, 1);
    assert_int_equal(command.limits[0].resource, RLIMIT_NOFILE);
    assert_int_equal(command.limits[0].soft, 10);
    assert_true(command.limits[0].hard == RLIM_INFINITY);
    assert_int_equal(command.umask, 0);
    assert_int_equal(command.retries, 0);
    assert_true(command.no_freeze);
    command_fini(&command);
}

static void what_makes_no_sense_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *named;
    } cases[] = {
        {"{\"working_directory\": \"/\"}", "command"},
        {"{\"command\": [\"x\"]}", "working_directory"},
        {"{\"command\": [], \"working_directory\": \"/\"}", "no program"},
        {"{\"command\": [\"\"], \"working_directory\": \"/\"}", "no program"},
        {"{\"command\": [1], \"working_directory\": \"/\"}", "item 0"},
        {"{\"command\": \"x\", \"working_directory\": \"/\"}", "list"},
        {"{\"command\": [\"x\"], \"working_directory\": \"a\"}", "absolute"},
        {"{" LEAST ", \"output\": \"a\"}", "job.output"},
        {"{" LEAST ", \"environment\": [\"=x\"]}", "NAME=value"},
        {"{" LEAST ", \"environment\": [\"TIDEPOOL_JOB=x\"]}", "TIDEPOOL_JOB"},
        {"{" LEAST ", \"devices\": \"4:2\"}", "4:2"},
        {"{" LEAST ", \"devices\": \"0\"}", "'0'"},
        {"{" LEAST ", \"devices\": \"1:2x\"}", "1:2x"},
        {"{" LEAST ", \"notice_signal\": \"STOP\"}", "STOP"},
        {"{" LEAST ", \"notice_signal\": \"NONE\"}", "NONE"},
        {"{" LEAST ", \"name\": \"../up\"}", "../up"},
        {"{" LEAST ", \"name\": \".\"}", "'.'"},
        {"{" LEAST ", \"limits\": [{\"resource\": \"X\", \"soft\": 1, \"hard\": 1}]}", "'X'"},
        {"{" LEAST ", \"limits\": [{\"resource\": \"AS\", \"soft\": 2, \"hard\": 1}]}", "AS"},
        {"{" LEAST ", \"prioritty\": 1}", "priority"},
        {"{" LEAST ", \"nice\": 20}", "nice"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct command command = {0};
        struct error error = {0};
        if (read_text(cases[i].text, &command, &error) != -ERROR_INVALID_ARGUMENT ||
            strstr(error.text, cases[i].named) == NULL) {
            fail_msg("%s: '%s' does not name '%s'", cases[i].text, error.text, cases[i].named);
        }
        assert_null(command.arguments);
    }
}

static void a_name_is_made_of_the_programs(void **state)
{
    struct command command;
    struct error error;
    (void)state;
    assert_int_equal(read_text("{\"command\": [\"/opt/.my job!\"], \"working_directory\": \"/\"}",
                               &command, &error),
                     0);
    assert_string_equal(command.name, "_my_job_");
    command_fini(&command);
}

static void signals_have_names_and_numbers(void **state)
{
    (void)state;
    assert_int_equal(command_signal_number("TERM"), SIGTERM);
    assert_int_equal(command_signal_number("SIGTERM"), SIGTERM);
    assert_int_equal(command_signal_number("15"), 15);
    assert_int_equal(command_signal_number("0"), 0);
    assert_int_equal(command_signal_number("15x"), 0);
    assert_int_equal(command_signal_number("999"), 0);
    assert_int_equal(command_signal_number("term"), 0);
    assert_int_equal(command_signal_number(""), 0);
}

static void the_page_has_the_table(void **state)
{
    char *table = NULL, page[65536];
    size_t size = 0;
    FILE *out = open_memstream(&table, &size);
    FILE *file = fopen("docs/outside-jobs.md", "r");
    (void)state;
    assert_non_null(out);
    assert_non_null(file);
    command_print_help(out);
    (void)fclose(out);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    (void)fclose(file);
    if (strstr(page, table) == NULL) {
        fail_msg("docs/outside-jobs.md is old: its table is\n%s", table);
    }
    free(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_that_is_given_is_made_whole_by_defaults),
        cmocka_unit_test(all_that_can_be_given_is_read),
        cmocka_unit_test(what_makes_no_sense_is_refused_by_name),
        cmocka_unit_test(a_name_is_made_of_the_programs),
        cmocka_unit_test(signals_have_names_and_numbers),
        cmocka_unit_test(the_page_has_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
