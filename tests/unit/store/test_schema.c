#include "server/store/schema.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/log.h"
#include "tests/unit/store/fixture.h"

/* SQLite's writes come here: in a child, the one of this number (from 1) is torn by a kill. */
static int writes_until_kill;
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    if (writes_until_kill > 0 && --writes_until_kill == 0) {
        syscall(SYS_pwrite64, fd, bytes, size / 2, offset);
        kill(getpid(), SIGKILL);
    }
    return syscall(SYS_pwrite64, fd, bytes, size, offset);
}

/* A database as version 1 made it. */
static void make_version_1(const struct place *place)
{
    database_do(
        place,
        "PRAGMA journal_mode = WAL; BEGIN;"
        "CREATE TABLE jobs ("
        " number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, request_id TEXT UNIQUE,"
        " specification TEXT NOT NULL, state TEXT NOT NULL, ended INTEGER NOT NULL,"
        " reason TEXT NOT NULL, submitted_wall_ns INTEGER NOT NULL,"
        " started_wall_ns INTEGER NOT NULL, finished_wall_ns INTEGER NOT NULL,"
        " preemptions INTEGER NOT NULL, result TEXT NOT NULL);"
        "CREATE TABLE endpoints (name TEXT PRIMARY KEY, path TEXT NOT NULL, options TEXT NOT NULL)"
        " WITHOUT ROWID;"
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE accounts (name TEXT PRIMARY KEY, time_ns INTEGER NOT NULL) WITHOUT ROWID;"
        "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
        "INSERT INTO counters VALUES ('epoch', 41), ('job_number', 9);"
        "INSERT INTO jobs VALUES (7, 'digits-7', 'once', '{}', 'finished', 1, 'r7', 70, 71, 72, 3,"
        " '{\"step\":5}'), (9, 'digits-9', NULL, '{\"a\":1}', 'paused', 0, 'r9', 90, 0, 0, 0,"
        " '{}');"
        "INSERT INTO settings VALUES ('mode', 'observe');"
        "INSERT INTO endpoints VALUES ('vision', '/v.onnx', '{}');"
        "INSERT INTO accounts VALUES ('training', 123);"
        "PRAGMA user_version = 1; COMMIT;");
}

static int check_job(void *context, const struct store_job *job, struct error *error)
{
    unsigned *count = context;
    (void)error;
    if ((*count)++ == 0) {
        assert_int_equal(job->number, 7);
        assert_string_equal(job->id, "digits-7");
        assert_string_equal(job->state, "finished");
        assert_true(job->ended);
        assert_string_equal(job->reason, "r7");
        assert_int_equal(job->submitted_wall_ns, 70);
        assert_int_equal(job->started_wall_ns, 71);
        assert_int_equal(job->finished_wall_ns, 72);
        assert_int_equal(job->preemptions, 3);
        assert_string_equal(job->result, "{\"step\":5}");
        assert_string_equal(job->lease, "");
    } else {
        assert_int_equal(job->number, 9);
        assert_string_equal(job->specification, "{\"a\":1}");
        assert_string_equal(job->state, "paused");
        assert_false(job->ended);
    }
    return 0;
}

static void assert_all_of_version_1_is_there(const struct place *place)
{
    struct store *store = open_or_fail(place);
    unsigned count = 0;
    char text[256];
    uint64_t training = 0;
    uint64_t number = 0;
    assert_int_equal(store_load_jobs(store, check_job, &count, NULL), 0);
    assert_int_equal(count, 2);
    load_requests(store, text);
    assert_string_equal(text, "once:7:digits-7:70 ");
    assert_int_equal(store_load_account(store, "training", &training, NULL), 0);
    assert_int_equal(training, 123);
    assert_int_equal(store_load_job_number(store, &number, NULL), 0);
    assert_int_equal(number, 9);
    store_close(store);
    assert_database_is_whole(place);
}

static void version_1_becomes_the_present_one_with_all_that_is_in_it(void **state)
{
    make_version_1(*state);
    struct store *store = open_or_fail(*state);
    assert_int_equal(store_epoch(store), 42);
    store_close(store);
    assert_all_of_version_1_is_there(*state);
    database_do(*state,
                "INSERT INTO requests VALUES ('twice', 9, 'digits-9', 90);"
                "INSERT INTO overrides VALUES ('device', 'cpu:0', 'cordoned', 'a', 'r', 1, 2, 3)");
}

static void in_a_child_killed_at_write(const struct place *place, int number)
{
    writes_until_kill = number;
    struct store *store = store_open(place->directory, NULL);
    _exit(store != NULL ? 0 : 1);
}

static void kill_9_at_any_write_of_the_migration_loses_nothing(void **state)
{
    struct place *place = *state;
    int killed = 0;
    for (int number = 1; killed == number - 1; number++) {
        char command[128];
        int status = 0;
        snprintf(command, sizeof command, "rm -f '%s'/*", place->directory);
        assert_int_equal(system(command), 0);
        make_version_1(place);
        pid_t child = fork();
        if (child == 0) {
            in_a_child_killed_at_write(place, number);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 1 : 0;
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        assert_all_of_version_1_is_there(place);
    }
    assert_true(killed >= 5);
}

static void a_migration_that_does_not_fit_leaves_the_version_before(void **state)
{
    struct error error = {0};
    struct rlimit old;
    make_version_1(*state);
    database_do(*state, "UPDATE jobs SET specification = printf('%.*c', 50000, 'x')"
                        " WHERE number = 7");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    struct rlimit small = {.rlim_cur = 36 << 10, .rlim_max = old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    struct store *store = store_open(((struct place *)*state)->directory, &error);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_null(store);
    if (strstr(error.text, "bring the schema up to date") == NULL) {
        fail_msg("the error says: %s", error.text);
    }
    assert_all_of_version_1_is_there(*state);
}

static void a_newer_schema_is_refused(void **state)
{
    struct error error = {0};
    store_close(open_or_fail(*state));
    database_do(*state, "PRAGMA user_version = 99");
    assert_null(store_open(((struct place *)*state)->directory, &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "newer Tidepool (schema 99"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(version_1_becomes_the_present_one_with_all_that_is_in_it),
        TEST(kill_9_at_any_write_of_the_migration_loses_nothing),
        TEST(a_migration_that_does_not_fit_leaves_the_version_before),
        TEST(a_newer_schema_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
