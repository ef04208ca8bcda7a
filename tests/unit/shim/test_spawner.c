/* Tests server/shim/spawner.c: what it does for a server, and what it does for none. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/shim/acts.h"
#include "tests/unit/shim/fixture.h"

static void must_refuse(struct fixture *fixture, const char *text)
{
    struct error error = {.text = ""};
    assert_int_equal(
        shim_client_start(fixture->spawner, &fixture->job, NULL, NULL, &fixture->client, &error),
        -(int)ERROR_PERMISSION_DENIED);
    if (strstr(error.text, text) == NULL) {
        fail_msg("no '%s' in '%s'", text, error.text);
    }
    assert_null(fixture->client);
}

static void a_shim_that_would_obey_another_user_is_not_started(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "exit", "0");
    fixture->job.owner = fixture->uid + 1;
    must_refuse(fixture, "would obey user");
}

static void a_directory_elsewhere_is_refused(void **state)
{
    struct fixture *fixture = *state;
    char path[320];
    fixture_act(fixture, "exit", "0");
    fixture->job.directory = "/tmp";
    must_refuse(fixture, "is not below the server's");
    (void)snprintf(path, sizeof path, "%s/../..", fixture->directory);
    fixture->job.directory = path;
    must_refuse(fixture, "is not below the server's");
}

static void a_job_of_root_needs_a_server_of_root(void **state)
{
    static const uint32_t root_group[] = {PLAIN_USER, 0};
    struct fixture *fixture = *state;
    if (fixture->uid != 0) {
        return;
    }
    fixture_act(fixture, "exit", "0");
    fixture_give_to(fixture, PLAIN_USER);
    fixture->job.uid = 0;
    must_refuse(fixture, "only a server that runs as root");
    fixture->job.uid = PLAIN_USER;
    fixture->job.groups = root_group;
    fixture->job.group_count = 2;
    must_refuse(fixture, "only a server that runs as root");
    fixture->job.group_count = 1;
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_code, 0);
}

static void what_remains_of_a_job_is_ended_by_its_record(void **state)
{
    struct fixture *fixture = *state;
    enum remains remains = REMAINS_LIVE;
    struct error error = {.text = ""};
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    pid_t leader = (pid_t)fixture->record.leader_pid;
    assert_int_equal(kill((pid_t)fixture->record.shim_pid, SIGSTOP), 0);
    for (int tries = 0; tries < 1000 && remains == REMAINS_LIVE; tries++) {
        assert_int_equal(spawner_end(fixture->spawner, fixture->directory, &remains, &error), 0);
    }
    assert_int_equal(remains, REMAINS_EMPTY);
    assert_false(pid_lives(leader));
}

static void a_record_that_no_shim_of_ours_wrote_ends_nobody(void **state)
{
    struct fixture *fixture = *state;
    char path[320];
    enum remains remains;
    struct error error = {.text = ""};
    if (fixture->uid != 0) {
        return; /* its own records are all that it can write */
    }
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    (void)snprintf(path, sizeof path, "%s/record", fixture->directory);
    assert_int_equal(chown(path, PLAIN_USER, PLAIN_USER), 0);
    assert_int_equal(spawner_end(fixture->spawner, fixture->directory, &remains, &error),
                     -(int)ERROR_PERMISSION_DENIED);
    assert_non_null(strstr(error.text, "not trusted"));
    assert_true(pid_lives((pid_t)fixture->record.leader_pid));
    assert_int_equal(chown(path, 0, 0), 0);
    assert_int_equal(spawner_end(fixture->spawner, "/tmp", &remains, &error),
                     -(int)ERROR_PERMISSION_DENIED);
}

static void a_stopped_shim_is_woken(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {.text = ""};
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    assert_int_equal(kill((pid_t)fixture->record.shim_pid, SIGSTOP), 0);
    assert_int_equal(spawner_wake(fixture->spawner, fixture->directory, &error), 0);
    assert_int_equal(fixture_answer(fixture, shim_client_verify(fixture->client))->kind, SHIM_DONE);
}

static void jobs_outlive_the_spawner_and_the_next_one_finds_them(void **state)
{
    struct fixture *fixture = *state;
    uid_t owner = fixture->job.owner;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    pid_t leader = (pid_t)fixture->record.leader_pid;
    fixture_give_to(fixture, owner);
    assert_true(pid_lives(leader));
    assert_true(fixture_restart(fixture));
    assert_int_equal(fixture->record.leader_pid, (uint64_t)leader);
}

static int group(void)
{
#define SPAWNER_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        SPAWNER_TEST(a_shim_that_would_obey_another_user_is_not_started),
        SPAWNER_TEST(a_directory_elsewhere_is_refused),
        SPAWNER_TEST(a_job_of_root_needs_a_server_of_root),
        SPAWNER_TEST(what_remains_of_a_job_is_ended_by_its_record),
        SPAWNER_TEST(a_record_that_no_shim_of_ours_wrote_ends_nobody),
        SPAWNER_TEST(a_stopped_shim_is_woken),
        SPAWNER_TEST(jobs_outlive_the_spawner_and_the_next_one_finds_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int count, char **arguments)
{
    act_if_asked(count, arguments);
    return fixture_run_modes(group);
}
