#include "server/store/write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/log.h"
#include "tests/unit/store/fixture.h"

/* SQLite's calls come here: how often it waited for the disk. */
static _Atomic unsigned syncs;
int fdatasync(int fd)
{
    atomic_fetch_add(&syncs, 1);
    return (int)syscall(SYS_fdatasync, fd);
}

/* ... and its wait for another program's lock takes no time. */
int usleep(useconds_t microseconds)
{
    (void)microseconds;
    return 0;
}

static unsigned syncs_of_settings(struct store *store, unsigned count)
{
    struct answers answers = ANSWERS_INIT;
    unsigned before = atomic_load(&syncs);
    for (unsigned i = 1; i <= count; i++) {
        char value[32];
        snprintf(value, sizeof value, "%u", before + i); /* what is there already writes nothing */
        assert_int_equal(store_put_setting(store, "mode", value, count_answer, &answers), 0);
        wait_answers(&answers, i); /* each by itself */
    }
    assert_int_equal(answers.failed, 0);
    return atomic_load(&syncs) - before;
}

static void each_answer_comes_after_the_disk(void **state)
{
    struct store *store = open_or_fail(*state);
    assert_int_equal(store_start(store, NULL), 0);
    assert_true(syncs_of_settings(store, 20) >= 20);
    store_close(store);
}

static void what_waits_together_is_one_wait_for_the_disk(void **state)
{
    struct answers answers = ANSWERS_INIT;
    struct store *store = open_or_fail(*state);
    unsigned before = atomic_load(&syncs);
    for (uint64_t number = 1; number <= 200; number++) {
        char id[32];
        struct store_job job = job_of(number, id, false);
        assert_int_equal(store_put_job(store, &job, count_answer, &answers), 0);
    }
    assert_int_equal(store_start(store, NULL), 0); /* finds all of them */
    wait_answers(&answers, 200);
    assert_int_equal(answers.failed, 0);
    assert_in_range(atomic_load(&syncs) - before, 1, 3); /* the log's head and the group */
    store_close(store);
}

static void accounts_do_not_wait_for_the_disk_but_for_the_next_group(void **state)
{
    struct answers answers = ANSWERS_INIT;
    struct store *store = open_or_fail(*state);
    assert_int_equal(store_start(store, NULL), 0);
    syncs_of_settings(store, 1);
    unsigned before = atomic_load(&syncs);
    for (unsigned i = 1; i <= 20; i++) {
        assert_int_equal(store_put_account(store, "training", i, count_answer, &answers), 0);
        wait_answers(&answers, i);
    }
    assert_int_equal(atomic_load(&syncs), before);
    assert_true(syncs_of_settings(store, 1) >= 1);
    store_close(store);

    store = open_or_fail(*state);
    uint64_t training = 0;
    assert_int_equal(store_load_account(store, "training", &training, NULL), 0);
    assert_int_equal(training, 20);
    store_close(store);
}

static void a_refused_write_leaves_its_neighbours_alone(void **state)
{
    struct answers good = ANSWERS_INIT;
    struct answers bad = ANSWERS_INIT;
    struct store *store = open_or_fail(*state);
    char id[32];
    struct store_job first = job_of(1, id, false);
    struct store_job second = first;
    second.number = 2; /* the id is taken */
    assert_int_equal(store_put_setting(store, "mode", "act", count_answer, &good), 0);
    assert_int_equal(store_put_job(store, &first, count_answer, &good), 0);
    assert_int_equal(store_put_job(store, &second, count_answer, &bad), 0);
    assert_int_equal(store_put_account(store, "training", 7, count_answer, &good), 0);
    log_open(STDERR_FILENO, LOG_ERROR + 1, false); /* its error is expected here */
    assert_int_equal(store_start(store, NULL), 0);
    wait_answers(&good, 3);
    wait_answers(&bad, 1);
    log_open(STDERR_FILENO, LOG_INFO, false);
    assert_int_equal(good.failed, 0);
    assert_int_equal(bad.failed, 1);
    assert_int_equal(bad.last.code, ERROR_ALREADY_EXISTS);
    assert_int_equal(load_jobs(store).count, 1);
    store_close(store);
}

static sqlite3 *database_of(const struct place *place)
{
    char path[128];
    sqlite3 *database = NULL;
    snprintf(path, sizeof path, "%s/tidepool.db", place->directory);
    assert_int_equal(sqlite3_open(path, &database), SQLITE_OK);
    return database;
}

static void another_programs_lock_is_an_error_until_it_is_gone(void **state)
{
    struct answers answers = ANSWERS_INIT;
    struct error error = {0};
    struct store *store = open_or_fail(*state);
    sqlite3 *other = database_of(*state);
    assert_int_equal(store_start(store, NULL), 0);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    log_open(STDERR_FILENO, LOG_ERROR + 1, false); /* its error is expected here */
    assert_int_equal(store_put_setting(store, "mode", "act", count_answer, &answers), 0);
    wait_answers(&answers, 1);
    log_open(STDERR_FILENO, LOG_INFO, false);
    assert_int_equal(answers.failed, 1);
    assert_int_equal(answers.last.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(answers.last.text, "another program keeps it locked"));
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_put_setting(store, "mode", "act", count_answer, &answers), 0);
    wait_answers(&answers, 2);
    assert_int_equal(answers.failed, 1);
    store_close(store);

    /* A start does not wait for ever either, and says who is in the way. */
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_null(store_open(((struct place *)*state)->directory, &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "another program keeps it locked"));
    sqlite3_close(other);
}

/* Root may write everywhere: the child is nobody. */
static void in_a_child_as_a_plain_user(const struct place *place)
{
    struct error error = {0};
    if (geteuid() == 0 && setuid(65534) < 0) {
        _exit(1);
    }
    if (store_open(place->directory, &error) != NULL) {
        _exit(2);
    }
    _exit(error.code == ERROR_PERMISSION_DENIED && strstr(error.text, place->directory) != NULL
              ? 0
              : 3);
}

static void assert_refused_as_plain_user(const struct place *place)
{
    pid_t child = fork();
    if (child == 0) {
        in_a_child_as_a_plain_user(place);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_directory_that_may_only_be_read_is_refused(void **state)
{
    struct place *place = *state;
    char command[256];
    store_close(open_or_fail(place));
    snprintf(command, sizeof command, "chmod a-w,a+rX '%s' '%s'/*", place->directory,
             place->directory);
    assert_int_equal(system(command), 0);
    assert_refused_as_plain_user(place);
    /* The lock alone may be written. */
    snprintf(command, sizeof command, "chmod a+w '%s/lock'", place->directory);
    assert_int_equal(system(command), 0);
    assert_refused_as_plain_user(place);
    snprintf(command, sizeof command, "chmod u+w '%s' '%s'/*", place->directory, place->directory);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_answer_comes_after_the_disk),
        TEST(what_waits_together_is_one_wait_for_the_disk),
        TEST(accounts_do_not_wait_for_the_disk_but_for_the_next_group),
        TEST(a_refused_write_leaves_its_neighbours_alone),
        TEST(another_programs_lock_is_an_error_until_it_is_gone),
        TEST(a_directory_that_may_only_be_read_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
