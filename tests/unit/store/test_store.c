#include "server/store/store.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/log.h"
#include "tests/unit/store/fixture.h"

/* What a load must overwrite. */
static char process_memory[1];

/* ---- tests ------------------------------------------------------------------------------------
 */

static void each_start_has_a_new_epoch(void **state)
{
    for (uint64_t start = 1; start <= 3; start++) {
        struct store *store = open_or_fail(*state);
        assert_int_equal(store_epoch(store), start);
        store_close(store);
    }
}

static void a_committed_job_is_there_after_a_restart(void **state)
{
    struct answers answers = ANSWERS_INIT;
    struct store *store = open_or_fail(*state);
    char id[32];
    struct store_job job = job_of(7, id, false);
    assert_int_equal(store_start(store, NULL), 0);
    assert_int_equal(store_put_job(store, &job, count_answer, &answers), 0);
    job.state = "waiting";
    job.reason = "paused by its owner";
    assert_int_equal(store_put_job(store, &job, count_answer, &answers), 0);
    wait_answers(&answers, 2);
    assert_int_equal(answers.failed, 0);
    store_close(store);

    store = open_or_fail(*state);
    struct loaded loaded = load_jobs(store);
    assert_int_equal(loaded.count, 1);
    assert_int_equal(loaded.first, 7);
    assert_string_equal(loaded.state, "waiting");
    assert_string_equal(loaded.reason, "paused by its owner");
    uint64_t number = 0;
    assert_int_equal(store_load_job_number(store, &number, NULL), 0);
    assert_int_equal(number, 7);
    store_close(store);
}

static void what_is_queued_is_written_before_close_returns(void **state)
{
    struct store *store = open_or_fail(*state);
    assert_int_equal(store_start(store, NULL), 0);
    for (uint64_t number = 1; number <= 200; number++) {
        char id[32];
        struct store_job job = job_of(number, id, false);
        assert_int_equal(store_put_job(store, &job, NULL, NULL), 0);
    }
    store_close(store);
    store = open_or_fail(*state);
    assert_int_equal(load_jobs(store).count, 200);
    store_close(store);
}

static void old_ended_jobs_are_forgotten_but_never_their_numbers(void **state)
{
    struct store *store = open_or_fail(*state);
    char id[32];
    assert_int_equal(store_start(store, NULL), 0);
    struct store_job running = job_of(1, id, false);
    assert_int_equal(store_put_job(store, &running, NULL, NULL), 0);
    for (uint64_t number = 2; number <= STORE_ENDED_JOBS_MAX + 51; number++) {
        struct store_job job = job_of(number, id, true);
        assert_int_equal(store_put_job(store, &job, NULL, NULL), 0);
    }
    store_close(store);
    store = open_or_fail(*state);
    struct loaded loaded = load_jobs(store);
    assert_int_equal(loaded.first, 1); /* still running */
    assert_int_equal(loaded.count, STORE_ENDED_JOBS_MAX + 1);
    uint64_t number = 0;
    assert_int_equal(store_load_job_number(store, &number, NULL), 0);
    assert_int_equal(number, STORE_ENDED_JOBS_MAX + 51);
    store_close(store);
}

static void a_request_is_kept_with_its_job_for_a_day(void **state)
{
    struct store *store = open_or_fail(*state);
    char text[256];
    char id[32];
    assert_int_equal(store_start(store, NULL), 0);
    for (uint64_t number = 1; number <= 3; number++) {
        struct store_job job = job_of(number, id, true);
        struct store_request request = {number == 1 ? "first" : "second", number, id,
                                        number * STORE_REQUEST_NS / 2};
        assert_int_equal(store_add_job(store, &job, &request, NULL, NULL), 0);
        assert_int_equal(store_put_job(store, &job, NULL, NULL), 0);
    }
    store_close(store);
    store = open_or_fail(*state);
    /* The first is a day older than the third, whose id is the second's. */
    load_requests(store, text);
    assert_string_equal(text, "second:3:digits-3:129600000000000 ");
    assert_int_equal(load_jobs(store).count, 3);
    store_close(store);
}

static int count_endpoint(void *context, const struct store_endpoint *endpoint, struct error *error)
{
    unsigned *count = context;
    (void)error;
    assert_string_equal(endpoint->name, "digits");
    assert_string_equal(endpoint->path, "/models/digits-2.onnx");
    assert_string_equal(endpoint->options, "{\"slo_ms\": 20}");
    (*count)++;
    return 0;
}

static void endpoints_settings_and_accounts_come_back(void **state)
{
    struct store *store = open_or_fail(*state);
    struct store_endpoint digits = {"digits", "/models/digits.onnx", "{}"};
    struct store_endpoint vision = {"vision", "/models/vision.onnx", "{}"};
    assert_int_equal(store_start(store, NULL), 0);
    store_put_endpoint(store, &digits, NULL, NULL);
    store_put_endpoint(store, &vision, NULL, NULL);
    digits.path = "/models/digits-2.onnx";
    digits.options = "{\"slo_ms\": 20}";
    store_put_endpoint(store, &digits, NULL, NULL);
    store_remove_endpoint(store, "vision", NULL, NULL);
    store_put_setting(store, "mode", "act", NULL, NULL);
    store_put_setting(store, "mode", "observe", NULL, NULL);
    store_put_account(store, "training", 12345678901234, NULL, NULL);
    store_close(store);

    store = open_or_fail(*state);
    unsigned count = 0;
    assert_int_equal(store_load_endpoints(store, count_endpoint, &count, NULL), 0);
    assert_int_equal(count, 1);
    char *mode = NULL;
    char *nothing = process_memory;
    uint64_t training = 0;
    uint64_t serving = 1;
    assert_int_equal(store_load_setting(store, "mode", &mode, NULL), 0);
    assert_string_equal(mode, "observe");
    assert_int_equal(store_load_setting(store, "hold", &nothing, NULL), 0);
    assert_null(nothing);
    assert_int_equal(store_load_account(store, "training", &training, NULL), 0);
    assert_int_equal(training, 12345678901234);
    assert_int_equal(store_load_account(store, "serving", &serving, NULL), 0);
    assert_int_equal(serving, 0);
    free(mode);
    store_close(store);
}

static void a_second_server_is_refused_by_name(void **state)
{
    struct store *store = open_or_fail(*state);
    struct error error = {0};
    char process[32];
    snprintf(process, sizeof process, "process %d", (int)getpid());
    assert_null(store_open(((struct place *)*state)->directory, &error));
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, process));
    assert_non_null(strstr(error.text, "--state"));
    store_close(store);
    store_close(open_or_fail(*state));
}

static void a_directory_that_cannot_be_made_is_an_error(void **state)
{
    struct error error = {0};
    (void)state;
    assert_null(store_open("/proc/tidepool/state", &error));
    assert_non_null(strstr(error.text, "/proc/tidepool"));
}

/* A file size limit stands for the full disk: SQLite meets an error while it writes. */
static void a_write_that_does_not_fit_fails_and_the_next_one_works(void **state)
{
    struct answers answers = ANSWERS_INIT;
    struct store *store = open_or_fail(*state);
    struct rlimit old;
    struct rlimit small;
    char *large = malloc(1 << 20);
    memset(large, 'x', (1 << 20) - 1);
    large[(1 << 20) - 1] = '\0';
    assert_int_equal(store_start(store, NULL), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = (struct rlimit){.rlim_cur = 256 << 10, .rlim_max = old.rlim_max};
    log_open(STDERR_FILENO, LOG_ERROR + 1, false); /* its error is expected here */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(store_put_setting(store, "large", large, count_answer, &answers), 0);
    wait_answers(&answers, 1);
    setrlimit(RLIMIT_FSIZE, &old);
    log_open(STDERR_FILENO, LOG_INFO, false);
    assert_int_equal(answers.failed, 1);
    assert_non_null(strstr(answers.last.text, "tidepool.db"));
    assert_int_equal(store_put_setting(store, "small", "1", count_answer, &answers), 0);
    wait_answers(&answers, 2);
    assert_int_equal(answers.failed, 1);
    store_close(store);

    store = open_or_fail(*state);
    char *value = process_memory;
    assert_int_equal(store_load_setting(store, "large", &value, NULL), 0);
    assert_null(value);
    assert_int_equal(store_load_setting(store, "small", &value, NULL), 0);
    assert_string_equal(value, "1");
    free(value);
    free(large);
    store_close(store);
}

/* ---- kill -9 -----------------------------------------------------------------------------------
 */

struct reporter {
    int fd;
    uint64_t number;
};

static void report_commit(void *context, const struct error *error)
{
    struct reporter *reporter = context;
    if (error != NULL || write(reporter->fd, &reporter->number, sizeof reporter->number) < 0) {
        _exit(3);
    }
    free(reporter);
}

static void write_jobs_for_ever(const struct place *place, int fd)
{
    struct store *store = store_open(place->directory, NULL);
    uint64_t number = 0;
    if (store == NULL || store_load_job_number(store, &number, NULL) < 0 ||
        store_start(store, NULL) < 0) {
        _exit(2);
    }
    for (;;) {
        struct reporter *reporter = malloc(sizeof *reporter);
        char id[32];
        struct store_job job = job_of(++number, id, false);
        *reporter = (struct reporter){fd, number};
        if (store_put_job(store, &job, report_commit, reporter) < 0) {
            _exit(4);
        }
        if (number % 8 == 0) { /* groups of some jobs, not one for ever growing one */
            struct timespec pause = {.tv_nsec = 200000};
            nanosleep(&pause, NULL);
        }
    }
}

/* Returns the highest number that the child said was on disk before it was killed. */
static uint64_t run_and_kill(const struct place *place, unsigned reports)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        write_jobs_for_ever(place, ends[1]);
    }
    close(ends[1]);
    uint64_t number = 0;
    for (unsigned i = 0; i < reports; i++) {
        assert_int_equal(read(ends[0], &number, sizeof number), sizeof number);
    }
    kill(child, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    uint64_t later;
    while (read(ends[0], &later, sizeof later) == sizeof later) {
        number = later;
    }
    close(ends[0]);
    return number;
}

static void all_that_was_reported_survives_kill_9(void **state)
{
    unsigned seed = 20260701;
    uint64_t starts = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t reported = run_and_kill(*state, 1 + (unsigned)rand_r(&seed) % 300);
        struct store *store = open_or_fail(*state);
        struct loaded loaded = load_jobs(store);
        starts += 2;
        assert_int_equal(store_epoch(store), starts);
        assert_int_equal(loaded.first, 1);
        assert_int_equal(loaded.count, loaded.last); /* no gap */
        assert_true(loaded.last >= reported);
        store_close(store);
    }
    assert_database_is_whole(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_start_has_a_new_epoch),
        TEST(a_committed_job_is_there_after_a_restart),
        TEST(what_is_queued_is_written_before_close_returns),
        TEST(old_ended_jobs_are_forgotten_but_never_their_numbers),
        TEST(endpoints_settings_and_accounts_come_back),
        TEST(a_second_server_is_refused_by_name),
        TEST(a_request_is_kept_with_its_job_for_a_day),
        TEST(a_directory_that_cannot_be_made_is_an_error),
        TEST(a_write_that_does_not_fit_fails_and_the_next_one_works),
        TEST(all_that_was_reported_survives_kill_9),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
