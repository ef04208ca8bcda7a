/* Tests server/outside/outside.c and supervisor.c with real shims. Each wait ends by itself. */
#include "server/outside/outside.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/shim/cgroup.h"
#include "server/shim/spawner.h"

#define WAIT_S 30 /* far more than anything here takes, sanitizers included */
#define EVENTS_MAX 64
#define JOB 7
#define SECOND UINT64_C(1000000000)

struct fixture {
    char state[64], jobs[80];
    struct spawner *spawner;
    struct outside *outside;
    struct {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct outside_event events[EVENTS_MAX];
        size_t count, seen;
    } shared; /* under lock */
};

static void on_event(void *context, const struct outside_event *event)
{
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->shared.lock);
    if (fixture->shared.count < EVENTS_MAX) {
        fixture->shared.events[fixture->shared.count++] = *event;
    }
    pthread_cond_signal(&fixture->shared.changed);
    pthread_mutex_unlock(&fixture->shared.lock);
}

/* The next one; it must be of this kind. */
static struct outside_event expect(struct fixture *fixture, enum outside_event_kind kind)
{
    struct outside_event event = {0};
    struct timespec until;
    int result = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&fixture->shared.lock);
    while (fixture->shared.seen == fixture->shared.count && result == 0) {
        result = pthread_cond_timedwait(&fixture->shared.changed, &fixture->shared.lock, &until);
    }
    bool there = fixture->shared.seen < fixture->shared.count;
    if (there) {
        event = fixture->shared.events[fixture->shared.seen++];
    }
    pthread_mutex_unlock(&fixture->shared.lock);
    if (!there || event.kind != kind) {
        fail_msg("event %d (%s) in place of %d", there ? (int)event.kind : -1, event.text,
                 (int)kind);
    }
    return event;
}

static void begin(struct fixture *fixture)
{
    struct outside_options options = {.state_directory = fixture->state,
                                      .spawner = fixture->spawner,
                                      .notify = on_event,
                                      .context = fixture};
    fixture->outside = outside_create(&options, NULL);
    assert_non_null(fixture->outside);
}

/* build/[variant/]tests/unit/outside/test_outside: the shim is beside tests. */
static void shim_path(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 4 && strrchr(path, '/') != NULL; up++) {
        *strrchr(path, '/') = '\0';
    }
    (void)strcat(path, "/tidepool-shim");
}

static int fixture_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    char shim[4200];
    shim_path(shim, 4096);
    (void)snprintf(fixture->state, sizeof fixture->state, "/tmp/tidepool-outside-XXXXXX");
    assert_non_null(mkdtemp(fixture->state));
    (void)snprintf(fixture->jobs, sizeof fixture->jobs, "%s/jobs", fixture->state);
    pthread_mutex_init(&fixture->shared.lock, NULL);
    pthread_cond_init(&fixture->shared.changed, NULL);
    struct spawner_rules rules = {shim, fixture->jobs, geteuid()};
    assert_int_equal(spawner_create(&rules, &fixture->spawner, NULL), 0);
    begin(fixture);
    *state = fixture;
    return 0;
}

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    outside_destroy(fixture->outside);
    spawner_destroy(fixture->spawner);
    (void)nftw(fixture->state, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
    pthread_cond_destroy(&fixture->shared.changed);
    pthread_mutex_destroy(&fixture->shared.lock);
    free(fixture);
    return 0;
}

static struct outside_lease lease_of(uint32_t run)
{
    return (struct outside_lease){.job = JOB,
                                  .run = run,
                                  .id = "test-7",
                                  .devices = "cpu:0",
                                  .cpus = "",
                                  .device_count = 1,
                                  .core_count = 1,
                                  .restarts = run - 1,
                                  .epoch = 1,
                                  .generation = 1,
                                  .secret = 5};
}

static void start(struct fixture *fixture, uint32_t run, const char *script)
{
    char text[1024];
    struct outside_lease lease = lease_of(run);
    (void)snprintf(text, sizeof text,
                   "{\"command\": [\"/bin/sh\", \"-c\", \"%s\"], \"working_directory\": \"/\"}",
                   script);
    assert_int_equal(outside_start(fixture->outside, &lease, text), 0);
}

/* As a server that ended and the next one. */
static void restart(struct fixture *fixture)
{
    outside_destroy(fixture->outside);
    begin(fixture);
}

static void end(struct fixture *fixture)
{
    outside_kill(fixture->outside, JOB, 0, 10 * SECOND);
    expect(fixture, OUTSIDE_ENDED);
    outside_forget(fixture->outside, JOB);
}

static void a_run_is_told_from_its_begin_to_its_exit_code(void **state)
{
    start(*state, 1, "exit 3");
    struct outside_event event = expect(*state, OUTSIDE_RUNNING);
    assert_true(event.record.leader_pid > 0);
    assert_int_equal(event.job, JOB);
    event = expect(*state, OUTSIDE_ENDED);
    assert_int_equal(event.record.exit_code, 3);
    outside_forget(((struct fixture *)*state)->outside, JOB);
    start(*state, 2, "exit $TIDEPOOL_RESTART_COUNT");
    expect(*state, OUTSIDE_RUNNING);
    event = expect(*state, OUTSIDE_ENDED);
    assert_int_equal(event.run, 2);
    assert_int_equal(event.record.exit_code, 1);
}

static void what_cannot_be_executed_is_told_with_its_reason(void **state)
{
    struct outside_lease lease = lease_of(1);
    outside_start(((struct fixture *)*state)->outside, &lease,
                  "{\"command\": [\"/no/such\"], \"working_directory\": \"/\"}");
    struct outside_event event = expect(*state, OUTSIDE_NOT_STARTED);
    assert_int_equal(event.record.error_number, ENOENT);
    assert_non_null(strstr(event.text, "/no/such"));
}

static void a_job_is_frozen_thawed_and_killed_though_it_ignores_term(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, 1, "trap '' TERM; while true; do sleep 0.01; done");
    expect(fixture, OUTSIDE_RUNNING);
    outside_freeze(fixture->outside, JOB, 11);
    assert_int_equal(expect(fixture, OUTSIDE_FROZEN).tag, 11);
    outside_thaw(fixture->outside, JOB, 12);
    assert_int_equal(expect(fixture, OUTSIDE_THAWED).tag, 12);
    outside_pause(fixture->outside, JOB, 13); /* it has nobody who could stop at a step */
    assert_int_equal(expect(fixture, OUTSIDE_NOT_FROZEN).tag, 13);
    outside_freeze(fixture->outside, JOB, 14);
    expect(fixture, OUTSIDE_FROZEN);
    outside_kill(fixture->outside, JOB, SECOND / 10, 10 * SECOND); /* a frozen one is thawed */
    struct outside_event event = expect(fixture, OUTSIDE_ENDED);
    assert_int_equal(event.record.exit_signal, 9);
}

static void the_next_server_finds_a_run_and_commands_it(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, 1, "while true; do sleep 0.01; done");
    uint64_t pid = expect(fixture, OUTSIDE_RUNNING).record.leader_pid;
    restart(fixture);
    outside_find(fixture->outside, JOB, "test-7", 1);
    assert_int_equal(expect(fixture, OUTSIDE_RUNNING).record.leader_pid, pid);
    outside_freeze(fixture->outside, JOB, 1);
    expect(fixture, OUTSIDE_FROZEN);
    restart(fixture);
    outside_find(fixture->outside, JOB, "test-7", 1);
    assert_true(expect(fixture, OUTSIDE_RUNNING).frozen);
    outside_thaw(fixture->outside, JOB, 2);
    expect(fixture, OUTSIDE_THAWED);
    end(fixture);
}

static void a_run_that_never_was_is_not_found(void **state)
{
    struct fixture *fixture = *state;
    outside_find(fixture->outside, JOB, "test-7", 1);
    expect(fixture, OUTSIDE_NOT_FOUND);
}

static void a_run_whose_shim_died_is_ended_with_it(void **state)
{
    struct fixture *fixture = *state;
    start(fixture, 1, "while true; do sleep 0.01; done");
    struct outside_event event = expect(fixture, OUTSIDE_RUNNING);
    assert_int_equal(kill((pid_t)event.record.shim_pid, 9), 0);
    event = expect(fixture, OUTSIDE_LOST);
    /* Without a control group nobody can be sure. */
    assert_int_equal(event.empty, event.record.cgroup_kind != CGROUP_NONE);
    assert_int_equal(kill((pid_t)event.record.leader_pid, 0), -1);
}

static void count_found(void *context, const struct outside_found *found)
{
    unsigned *count = context;
    assert_string_equal(found->id, "test-7");
    assert_int_equal(found->job, JOB);
    assert_int_equal(found->run, 1);
    assert_string_equal(found->record->devices, "cpu:0");
    assert_non_null(strstr(found->specification, "/bin/sh"));
    ++*count;
}

static void a_lost_store_is_read_from_the_folders(void **state)
{
    struct fixture *fixture = *state;
    unsigned count = 0;
    start(fixture, 1, "while true; do sleep 0.01; done");
    expect(fixture, OUTSIDE_RUNNING);
    outside_scan(fixture->state, count_found, &count);
    assert_int_equal(count, 1);
    end(fixture);
}

static void a_notice_is_a_file_that_is_gone_in_the_next_run(void **state)
{
    struct fixture *fixture = *state;
    struct outside_notice notice = {1, 1000, "cpu:0", "demand"};
    char path[160];
    (void)snprintf(path, sizeof path, "%s/test-7/notice", fixture->jobs);
    start(fixture, 1, "while ! test -e $TIDEPOOL_NOTICE_FILE; do sleep 0.01; done; exit 9");
    expect(fixture, OUTSIDE_RUNNING);
    outside_notify(fixture->outside, JOB, &notice);
    assert_int_equal(expect(fixture, OUTSIDE_ENDED).record.exit_code, 9);
    assert_int_equal(access(path, F_OK), 0);
    outside_forget(fixture->outside, JOB);
    start(fixture, 2, "test -e $TIDEPOOL_NOTICE_FILE");
    expect(fixture, OUTSIDE_RUNNING);
    assert_int_equal(expect(fixture, OUTSIDE_ENDED).record.exit_code, 1);
}

static void only_the_newest_runs_are_kept(void **state)
{
    struct fixture *fixture = *state;
    char oldest[160], newest[160];
    (void)snprintf(oldest, sizeof oldest, "%s/test-7/run-1", fixture->jobs);
    (void)snprintf(newest, sizeof newest, "%s/test-7/run-2", fixture->jobs);
    for (uint32_t run = 1; run <= 2; run++) {
        start(fixture, run, "exit 0");
        expect(fixture, OUTSIDE_RUNNING);
        expect(fixture, OUTSIDE_ENDED);
        outside_forget(fixture->outside, JOB);
    }
    assert_int_equal(access(oldest, F_OK), 0);
    start(fixture, 1 + OUTSIDE_RUNS_KEPT, "exit 0");
    expect(fixture, OUTSIDE_RUNNING);
    expect(fixture, OUTSIDE_ENDED);
    assert_int_equal(access(oldest, F_OK), -1);
    assert_int_equal(access(newest, F_OK), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_run_is_told_from_its_begin_to_its_exit_code),
        TEST(what_cannot_be_executed_is_told_with_its_reason),
        TEST(a_job_is_frozen_thawed_and_killed_though_it_ignores_term),
        TEST(the_next_server_finds_a_run_and_commands_it),
        TEST(a_run_that_never_was_is_not_found),
        TEST(a_run_whose_shim_died_is_ended_with_it),
        TEST(a_lost_store_is_read_from_the_folders),
        TEST(a_notice_is_a_file_that_is_gone_in_the_next_run),
        TEST(only_the_newest_runs_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
