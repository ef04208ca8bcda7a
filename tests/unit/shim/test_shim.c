/* Tests server/shim/shim.c on real trees, hostile ones too: stopped, set going, ended as a whole,
 * and verified empty. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/shim/remains.h"
#include "server/shim/tree.h"
#include "tests/unit/shim/acts.h"
#include "tests/unit/shim/fixture.h"

#define TREE_SIZE                                                                                  \
    5 /* of act "tree": the leader, a child, in its group, in its session, forked twice */
#define PIDS_MAX 16

/* Waits until all of the tree have said who they are. */
static void tree_start(struct fixture *fixture, const char *kind, pid_t *pids)
{
    uint64_t until = boottime_now_ns() + WAIT_MS * UINT64_C(1000000);
    size_t expected = strcmp(kind, "leave") == 0 ? TREE_SIZE - 1 : TREE_SIZE;
    fixture_act(fixture, "tree", kind);
    fixture_start(fixture);
    while (fixture_pids(fixture, pids, PIDS_MAX) < expected) {
        assert_true(boottime_now_ns() < until);
        fixture_turn(fixture, 5);
    }
}

static void none_lives(const pid_t *pids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_false(pid_lives(pids[i]));
    }
}

static void a_kill_reaches_who_changed_group_or_session_or_forked_twice(void **state)
{
    struct fixture *fixture = *state;
    const struct answer *answer;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "deaf", pids);
    answer = fixture_answer(fixture, shim_client_verify(fixture->client));
    assert_false(answer->empty);
    assert_int_equal(answer->processes, TREE_SIZE);
    answer = fixture_answer(fixture, shim_client_kill(fixture->client, 5000));
    assert_int_equal(answer->kind, SHIM_DONE);
    assert_true(answer->empty);
    none_lives(pids, TREE_SIZE);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_signal, SIGKILL);
    assert_true(fixture_answer(fixture, shim_client_verify(fixture->client))->empty);
}

static void a_signal_reaches_the_whole_tree(void **state)
{
    struct fixture *fixture = *state;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "plain", pids);
    assert_int_equal(
        fixture_answer(fixture, shim_client_signal(fixture->client, SIGTERM, false))->kind,
        SHIM_DONE);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_signal, SIGTERM);
    none_lives(pids, TREE_SIZE);
}

static void what_outlives_its_leader_is_ended_and_only_then_has_the_job_ended(void **state)
{
    struct fixture *fixture = *state;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "leave", pids);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_code, 7); /* the leader's own */
    none_lives(pids, TREE_SIZE - 1);
}

static void a_job_that_ignores_term_is_killed_after_its_grace(void **state)
{
    struct fixture *fixture = *state;
    fixture_shell(fixture, "trap '' TERM; (sleep 60; sleep 60) & exit 3");
    fixture->job.grace_ms = 100;
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_code, 3);
}

static void wrong_signals_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static const int signals[] = {0, -1, 65, 1000, SIGSTOP, SIGCONT};
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        assert_int_equal(
            fixture_answer(fixture, shim_client_signal(fixture->client, signals[i], false))->code,
            ERROR_INVALID_ARGUMENT);
    }
}

/* ---- freeze ----------------------------------------------------------------------------- */

static const volatile uint64_t *counter_open(struct fixture *fixture, char path[320])
{
    void *counter;
    int fd;
    fixture_open_path(fixture, "counter-", path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 4096) == 0);
    counter = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(counter != MAP_FAILED);
    (void)close(fd);
    return counter;
}

static void counter_moves(struct fixture *fixture, const volatile uint64_t *counter)
{
    uint64_t before = *counter;
    for (int waits = 0; *counter == before; waits++) {
        assert_true(waits < 1000);
        fixture_turn(fixture, 5);
    }
}

static int by_size(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

/* The machine's load is in these: they are told, and judged by the benchmarks. */
static void times_tell(const char *what, uint64_t *times_ns, size_t count)
{
    qsort(times_ns, count, sizeof(times_ns[0]), by_size);
    print_message("%s: median %llu us, longest %llu us\n", what,
                  (unsigned long long)times_ns[count / 2] / 1000,
                  (unsigned long long)times_ns[count - 1] / 1000);
}

#define FREEZES 20

static void a_frozen_job_stands_still_until_it_is_thawed(void **state)
{
    struct fixture *fixture = *state;
    char path[320];
    uint64_t times_ns[FREEZES];
    const volatile uint64_t *counter = counter_open(fixture, path);
    fixture_act(fixture, "spin", path);
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    for (int round = 0; round < FREEZES; round++) {
        const struct answer *answer;
        uint64_t stood;
        counter_moves(fixture, counter);
        answer = fixture_answer(fixture, shim_client_freeze(fixture->client, 5000));
        assert_int_equal(answer->kind, SHIM_DONE);
        times_ns[round] = answer->took_ns;
        stood = *counter; /* DONE means quiet: from now on, at once */
        fixture_turn(fixture, 10);
        assert_true(*counter == stood);
        assert_int_equal(fixture_answer(fixture, shim_client_thaw(fixture->client))->kind,
                         SHIM_DONE);
    }
    counter_moves(fixture, counter);
    times_tell("frozen in", times_ns, FREEZES);
    (void)munmap((void *)(uintptr_t)counter, 4096);
}

static void all_of_a_tree_are_frozen_and_die_frozen(void **state)
{
    struct fixture *fixture = *state;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "deaf", pids);
    assert_int_equal(fixture_answer(fixture, shim_client_freeze(fixture->client, 5000))->kind,
                     SHIM_DONE);
    if (fixture->mode == CGROUP_NEVER) {
        for (int i = 0; i < TREE_SIZE; i++) {
            assert_true(process_quiet(pids[i]));
        }
    }
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 5000))->empty);
    none_lives(pids, TREE_SIZE);
}

static void a_freeze_is_known_to_the_next_server(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "pid ");
    assert_int_equal(fixture_answer(fixture, shim_client_freeze(fixture->client, 5000))->kind,
                     SHIM_DONE);
    assert_true(fixture_restart(fixture));
    fixture_wait_state(fixture, SHIM_RUNNING);
    while (!fixture->told) {
        fixture_turn(fixture, 5);
    }
    assert_true(fixture->frozen);
}

static void who_is_set_going_by_others_is_stopped_again(void **state)
{
    struct fixture *fixture = *state;
    uint64_t until = boottime_now_ns() + WAIT_MS * UINT64_C(1000000);
    if (fixture->mode != CGROUP_NEVER) {
        return; /* the kernel's freezer does not listen to signals */
    }
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "pid ");
    assert_int_equal(fixture_answer(fixture, shim_client_freeze(fixture->client, 5000))->kind,
                     SHIM_DONE);
    assert_int_equal(kill((pid_t)fixture->record.leader_pid, SIGCONT), 0);
    while (fixture->stirred == 0) {
        assert_true(boottime_now_ns() < until);
        fixture_turn(fixture, 5);
    }
    while (!process_quiet((pid_t)fixture->record.leader_pid)) {
        assert_true(boottime_now_ns() < until);
        fixture_turn(fixture, 5);
    }
}

static void a_job_that_was_stopped_by_somebody_can_be_killed(void **state)
{
    struct fixture *fixture = *state;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "plain", pids);
    for (int i = 0; i < TREE_SIZE; i++) {
        assert_int_equal(kill(pids[i], SIGSTOP), 0);
    }
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 5000))->empty);
    none_lives(pids, TREE_SIZE);
}

static void nothing_is_frozen_after_the_end(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "exit", "0");
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture_answer(fixture, shim_client_freeze(fixture->client, 100))->code,
                     ERROR_FAILED_PRECONDITION);
    assert_int_equal(fixture_answer(fixture, shim_client_thaw(fixture->client))->code,
                     ERROR_FAILED_PRECONDITION);
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 100))->empty);
}

/* ---- hostile jobs ----------------------------------------------------------------------- */

static void five_hundred_deaf_children_are_ended(void **state)
{
    struct fixture *fixture = *state;
    const struct answer *answer;
    fixture_act(fixture, "many", "500");
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    answer = fixture_answer(fixture, shim_client_freeze(fixture->client, 10000));
    assert_int_equal(answer->kind, SHIM_DONE);
    assert_int_equal(answer->processes, 501);
    answer = fixture_answer(fixture, shim_client_kill(fixture->client, 10000));
    assert_int_equal(answer->kind, SHIM_DONE);
    assert_true(answer->empty);
    fixture_wait_state(fixture, SHIM_ENDED);
}

static void processes_that_fork_faster_than_they_can_be_looked_at_are_ended(void **state)
{
    struct fixture *fixture = *state;
    const struct answer *answer;
    fixture_act(fixture, "chain", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    fixture_turn(fixture, 20);
    answer = fixture_answer(fixture, shim_client_kill(fixture->client, 15000));
    assert_int_equal(answer->kind, SHIM_DONE);
    assert_true(answer->empty);
}

static void processes_that_flee_into_new_sessions_are_ended(void **state)
{
    struct fixture *fixture = *state;
    const struct answer *answer;
    fixture_act(fixture, "flight", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    fixture_turn(fixture, 20);
    answer = fixture_answer(fixture, shim_client_kill(fixture->client, 1000));
    if (fixture->mode != CGROUP_NEVER) {
        assert_int_equal(answer->kind, SHIM_DONE);
        assert_true(answer->empty);
    } else {
        /* By looking alone it may take long; then it is said, and the shim goes on. */
        assert_true(answer->empty == (answer->kind == SHIM_DONE));
        print_message("without a control group: %s after %llu ms\n",
                      answer->empty ? "ended" : "not yet",
                      (unsigned long long)answer->took_ns / 1000000);
    }
    fixture_wait_state(fixture, SHIM_ENDED);
}

static void a_fork_bomb_within_its_limit_is_frozen_and_ended(void **state)
{
    struct fixture *fixture = *state;
    struct job_limit limit = {RLIMIT_NPROC, 200, 200};
    const struct answer *answer;
    fixture->job.limits = &limit;
    fixture->job.limit_count = 1;
    if (fixture->uid == 0) {
        fixture->job.uid = fixture->job.gid = PLAIN_USER; /* root has no such limit */
    }
    fixture_act(fixture, "bomb", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    fixture_turn(fixture, 100);
    answer = fixture_answer(fixture, shim_client_freeze(fixture->client, 15000));
    assert_int_equal(answer->kind, SHIM_DONE);
    assert_true(answer->processes <= 200);
    answer = fixture_answer(fixture, shim_client_kill(fixture->client, 15000));
    assert_int_equal(answer->kind, SHIM_DONE);
    assert_true(answer->empty);
}

static void a_kill_that_is_not_done_in_time_says_so_and_goes_on(void **state)
{
    struct fixture *fixture = *state;
    const struct answer *answer;
    fixture_act(fixture, "many", "300");
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    answer = fixture_answer(fixture, shim_client_kill(fixture->client, 0));
    if (answer->kind == SHIM_FAILED_COMMAND) { /* a fast machine may be done in no time */
        assert_int_equal(answer->code, ERROR_DEADLINE_EXCEEDED);
        assert_false(answer->empty);
        assert_true(answer->processes > 0);
    }
    fixture_wait_state(fixture, SHIM_ENDED);
}

static void a_job_that_writes_a_gigabyte_ends_and_leaves_a_bounded_log(void **state)
{
    struct fixture *fixture = *state;
    const char *bytes = fixture->mode == CGROUP_ONLY_V2 ? "1000000000" : "20000000";
    char before[sizeof(fixture->log_path) + 2], copy[320];
    struct stat log, older, own;
    fixture_act(fixture, "write", bytes);
    fixture_open_path(fixture, "copy-", copy);
    if (fixture->mode != CGROUP_ONLY_V2) {
        fixture->job.output = copy;
    }
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_code, 0);
    (void)snprintf(before, sizeof(before), "%s.1", fixture->log_path);
    assert_int_equal(stat(fixture->log_path, &log), 0);
    assert_int_equal(stat(before, &older), 0);
    assert_true(log.st_size + older.st_size <= (off_t)fixture->job.log_bytes);
    assert_int_equal(fixture->record.log_written, strtoull(bytes, NULL, 10) + 14);
    assert_int_equal(fixture->record.log_dropped + (uint64_t)log.st_size + (uint64_t)older.st_size,
                     fixture->record.log_written);
    assert_int_equal(fixture->record.log_lost, 0);
    assert_non_null(strstr(fixture_log(fixture), "the last line\n"));
    if (fixture->job.output != NULL) {
        assert_int_equal(stat(copy, &own), 0); /* uncapped */
        assert_int_equal(own.st_size, fixture->record.log_written);
        (void)unlink(copy);
    }
}

static void lines_after_term_are_kept(void **state)
{
    struct fixture *fixture = *state;
    const char *log;
    fixture_act(fixture, "talk", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    assert_int_equal(
        fixture_answer(fixture, shim_client_signal(fixture->client, SIGTERM, false))->kind,
        SHIM_DONE);
    fixture_wait_state(fixture, SHIM_ENDED);
    log = fixture_log(fixture);
    assert_non_null(strstr(log, "line 1\n"));
    assert_non_null(strstr(log, "line 200\n"));
}

static void a_job_without_output_lives_on_and_is_ended(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "close", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "pid ");
    fixture_turn(fixture, 20);
    assert_int_equal(fixture->record.state, SHIM_RUNNING);
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 5000))->empty);
}

/* ---- cores ------------------------------------------------------------------------------ */

static void all_threads_move_to_other_cores_also_those_that_come(void **state)
{
    struct fixture *fixture = *state;
    cpu_set_t mine, set;
    int first = -1, last = -1;
    char cpus[32];
    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &mine)) {
            first = first < 0 ? cpu : first;
            last = cpu;
        }
    }
    (void)snprintf(cpus, sizeof(cpus), "%d", first);
    fixture->job.cpus = cpus;
    fixture_act(fixture, "threads", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "ready");
    assert_int_equal(sched_getaffinity((pid_t)fixture->record.leader_pid, sizeof(set), &set), 0);
    assert_int_equal(CPU_COUNT(&set), 1);
    assert_true(CPU_ISSET(first, &set));
    (void)snprintf(cpus, sizeof(cpus), "%d", last);
    assert_int_equal(fixture_answer(fixture, shim_client_pin(fixture->client, cpus))->kind,
                     SHIM_DONE);
    for (int looks = 0; looks < 20; looks++) {
        char path[64];
        struct stat status;
        fixture_turn(fixture, 2);
        for (pid_t task = (pid_t)fixture->record.leader_pid;
             task < (pid_t)fixture->record.leader_pid + 200; task++) {
            (void)snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)fixture->record.leader_pid,
                           task);
            if (stat(path, &status) == 0 && sched_getaffinity(task, sizeof(set), &set) == 0) {
                assert_true(CPU_COUNT(&set) == 1 && CPU_ISSET(last, &set));
            }
        }
    }
    assert_int_equal(fixture_answer(fixture, shim_client_pin(fixture->client, "1-"))->code,
                     ERROR_INVALID_ARGUMENT);
}

/* ---- the shim itself -------------------------------------------------------------------- */

static enum remains remains_settle(const struct shim_record *record)
{
    enum remains remains = REMAINS_LIVE;
    for (int tries = 0; tries < 2000 && remains == REMAINS_LIVE; tries++) {
        remains = remains_end(record);
        if (remains == REMAINS_LIVE) {
            (void)poll(NULL, 0, 5);
        }
    }
    return remains;
}

/* Where the answer is "unsure", who is dying already may take a moment longer. */
static void none_lives_soon(const pid_t *pids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        for (int waits = 0; pid_lives(pids[i]); waits++) {
            assert_true(waits < 2000);
            (void)poll(NULL, 0, 5);
        }
    }
}

static void a_dead_shim_takes_its_leader_down_and_the_rest_is_found(void **state)
{
    struct fixture *fixture = *state;
    struct shim_record record;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "deaf", pids);
    assert_int_equal(kill((pid_t)fixture->record.shim_pid, SIGKILL), 0);
    fixture_wait_lost(fixture);
    for (int waits = 0; pid_lives((pid_t)fixture->record.leader_pid); waits++) {
        assert_true(waits < 2000); /* by the kernel, with nobody's help */
        (void)poll(NULL, 0, 5);
    }
    assert_false(fixture_restart(fixture));
    assert_int_equal(record_read(fixture->directory, &record, NULL), 0);
    /* Without a control group nobody can be certain, and that is said. */
    assert_int_equal(remains_settle(&record),
                     fixture->mode == CGROUP_NEVER ? REMAINS_UNSURE : REMAINS_EMPTY);
    none_lives_soon(pids, TREE_SIZE);
}

static void what_a_dead_shim_leaves_frozen_is_thawed_so_that_it_can_die(void **state)
{
    struct fixture *fixture = *state;
    struct shim_record record;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "deaf", pids);
    assert_int_equal(fixture_answer(fixture, shim_client_freeze(fixture->client, 5000))->kind,
                     SHIM_DONE);
    assert_int_equal(kill((pid_t)fixture->record.shim_pid, SIGKILL), 0);
    fixture_wait_lost(fixture);
    assert_int_equal(record_read(fixture->directory, &record, NULL), 0);
    assert_int_equal(remains_settle(&record),
                     fixture->mode == CGROUP_NEVER ? REMAINS_UNSURE : REMAINS_EMPTY);
    none_lives_soon(pids, TREE_SIZE);
}

static void a_stopped_shim_and_its_tree_are_ended_and_verified(void **state)
{
    struct fixture *fixture = *state;
    pid_t pids[PIDS_MAX];
    tree_start(fixture, "deaf", pids);
    assert_int_equal(kill((pid_t)fixture->record.shim_pid, SIGSTOP), 0);
    assert_int_equal(remains_settle(&fixture->record), REMAINS_EMPTY);
    none_lives(pids, TREE_SIZE);
    fixture_wait_lost(fixture);
}

static void nobody_elses_process_is_ended_for_a_number_used_again(void **state)
{
    struct fixture *fixture = *state;
    struct shim_record record;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    record = fixture->record;
    (void)stpcpy(record.tag, "TIDEPOOL_JOB_TAG=another");
    record.cgroup_kind = CGROUP_NONE;
    record.shim_pid = (uint64_t)getpid(); /* numbers that are other processes' now */
    record.leader_start++;
    assert_int_equal(remains_end(&record), REMAINS_UNSURE);
    assert_true(pid_lives((pid_t)fixture->record.leader_pid));
    record = fixture->record;
    record.boot[0] ^= 1;
    assert_int_equal(remains_end(&record), REMAINS_EMPTY); /* nobody lives through a reboot */
    assert_true(pid_lives((pid_t)fixture->record.leader_pid));
}

static void a_record_that_cannot_be_written_refuses_an_update_and_the_job_runs_on(void **state)
{
    struct fixture *fixture = *state;
    struct shim_record update;
    char path[320];
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    update = fixture->record;
    update.generation = 11;
    (void)snprintf(path, sizeof(path), "%s/record.new", fixture->directory);
    assert_int_equal(mkdir(path, 0700), 0); /* in the way, even of root */
    assert_int_equal(fixture_answer(fixture, shim_client_update(fixture->client, &update))->kind,
                     SHIM_FAILED_COMMAND);
    assert_true(pid_lives((pid_t)fixture->record.leader_pid));
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 5000))->empty);
    fixture_wait_state(fixture, SHIM_ENDED); /* told, though not written */
    assert_int_equal(rmdir(path), 0);
    for (int waits = 0; update.state != SHIM_ENDED; waits++) {
        assert_true(waits < 2000); /* written when it can be */
        assert_int_equal(record_read(fixture->directory, &update, NULL), 0);
        fixture_turn(fixture, 5);
    }
    assert_int_equal(update.generation, 10);
}

static int group(void)
{
#define SHIM_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        SHIM_TEST(a_kill_reaches_who_changed_group_or_session_or_forked_twice),
        SHIM_TEST(a_signal_reaches_the_whole_tree),
        SHIM_TEST(what_outlives_its_leader_is_ended_and_only_then_has_the_job_ended),
        SHIM_TEST(a_job_that_ignores_term_is_killed_after_its_grace),
        SHIM_TEST(wrong_signals_are_refused),
        SHIM_TEST(a_frozen_job_stands_still_until_it_is_thawed),
        SHIM_TEST(all_of_a_tree_are_frozen_and_die_frozen),
        SHIM_TEST(a_freeze_is_known_to_the_next_server),
        SHIM_TEST(who_is_set_going_by_others_is_stopped_again),
        SHIM_TEST(a_job_that_was_stopped_by_somebody_can_be_killed),
        SHIM_TEST(nothing_is_frozen_after_the_end),
        SHIM_TEST(five_hundred_deaf_children_are_ended),
        SHIM_TEST(processes_that_fork_faster_than_they_can_be_looked_at_are_ended),
        SHIM_TEST(processes_that_flee_into_new_sessions_are_ended),
        SHIM_TEST(a_fork_bomb_within_its_limit_is_frozen_and_ended),
        SHIM_TEST(a_kill_that_is_not_done_in_time_says_so_and_goes_on),
        SHIM_TEST(a_job_that_writes_a_gigabyte_ends_and_leaves_a_bounded_log),
        SHIM_TEST(lines_after_term_are_kept),
        SHIM_TEST(a_job_without_output_lives_on_and_is_ended),
        SHIM_TEST(all_threads_move_to_other_cores_also_those_that_come),
        SHIM_TEST(a_dead_shim_takes_its_leader_down_and_the_rest_is_found),
        SHIM_TEST(what_a_dead_shim_leaves_frozen_is_thawed_so_that_it_can_die),
        SHIM_TEST(a_stopped_shim_and_its_tree_are_ended_and_verified),
        SHIM_TEST(nobody_elses_process_is_ended_for_a_number_used_again),
        SHIM_TEST(a_record_that_cannot_be_written_refuses_an_update_and_the_job_runs_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int count, char **arguments)
{
    act_if_asked(count, arguments);
    return fixture_run_modes(group);
}
