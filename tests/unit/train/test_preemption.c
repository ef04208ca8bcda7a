/* The weights are the same bytes however often devices were taken, however many there were, and
 * whatever was killed. Everything runs twice: with OpenBLAS's core type for this chip and with
 * Haswell's (the library chooses once per process, so the program starts itself again). */
#include "fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "models/native/random.h"
#include "server/base/clock.h"

#define STRIKES_MIN 200
#define FORWARD_MIN 100
#define BACKWARD_MIN 50
#define APPLY_MIN 20

/* Sanitizers look for races and bad memory, not for other bits: one core type is enough. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#define STEPS 100
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#define STEPS 110
#else
#define SANITIZED 0
#define STEPS 160
#endif

/* The digits job: wide enough that every place of a step lasts long enough to be hit. */
#define DIGITS_JOB                                                                                 \
    "{'name': 'digits', 'model': {'layers': [64, 512, 512, 10], 'activation': 'relu'},"            \
    " 'data': {'path': '%s/digits.npy', 'labels': '%s/digits_labels.npy', 'held_out': 0.2,"        \
    " 'scale': 0.0625}, 'batch': 128, 'micro_batch': 16, 'seed': 5, 'devices': '1:2',"             \
    " 'optimizer': {'learning_rate': 0.0002}, 'steps': %d,"                                        \
    " 'checkpoint': {'every_steps': %d, 'every_s': 0}}"

static const char *program;
static char data_directory[128];
static uint64_t seed;
static uint64_t undisturbed; /* the checksum that all others must have */

static json_t *digits_job(const struct fixture *fixture, int every_steps)
{
    return fixture_specification(fixture, DIGITS_JOB, data_directory, data_directory, STEPS,
                                 every_steps);
}

static int setup(void **state)
{
    struct fixture *fixture = malloc(sizeof(*fixture));
    fixture_init(fixture);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_fini(*state);
    free(*state);
    return 0;
}

static uint64_t finish(struct fixture *fixture)
{
    uint64_t checksum;
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    checksum = fixture_state_checksum(fixture);
    trainer_job_destroy(fixture->job);
    return checksum;
}

static void one_device_gives_the_reference(void **state)
{
    struct fixture *fixture = *state;
    struct train_status status;
    fixture_job_start(fixture, "one", digits_job(fixture, 0));
    trainer_job_grant(fixture->job, 1);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_status(fixture->job, &status);
    assert_true(status.held_out_accuracy > 0.8);
    assert_int_equal(status.micro_batches_returned, 0);
    undisturbed = finish(fixture);
}

static void two_devices_give_the_same_bytes(void **state)
{
    struct fixture *fixture = *state;
    fixture_job_start(fixture, "two", digits_job(fixture, 0));
    trainer_job_grant(fixture->job, 0);
    trainer_job_grant(fixture->job, 1);
    assert_int_equal(finish(fixture), undisturbed);
}

/* ---- random preemptions ---- */

struct strikes {
    unsigned revokes, yields;
    uint64_t forward, backward, apply;
};

static void pause_us(unsigned us)
{
    struct timespec time = {.tv_nsec = (long)us * 1000};
    (void)nanosleep(&time, NULL);
}

/* Until the device is in that part of a step, or it has taken too long. An apply comes but once a
 * step: it is worth the wait for a whole one. */
static void place_await(struct fixture *fixture, uint32_t device, enum work_place place)
{
    int tries = place == WORK_APPLY ? 20000 : 400;
    for (int i = 0; i < tries && worker_place(fixture->trainer->workers[device]) != place &&
                    fixture_count(fixture, TRAIN_FINISHED) == 0;
         i++) {
        pause_us(20);
    }
}

static void strike_revoke(struct fixture *fixture, uint32_t device)
{
    fixture_revoke(fixture, device);
    trainer_job_grant(fixture->job, device);
}

/* A batch of up to 2 ms. */
static void strike_yield(struct fixture *fixture, uint32_t device, uint64_t random)
{
    struct device *target = &fixture->devices.devices[device];
    (void)device_serving_begin(target, clock_now_ns());
    pause_us((unsigned)(random % 2000));
    device_serving_end(target, clock_now_ns());
}

static void strikes_count(const struct fixture *fixture, struct strikes *strikes)
{
    const struct train_job *job = fixture->job;
    strikes->forward = atomic_load(&job->figures.aborts[WORK_FORWARD]) +
                       atomic_load(&job->figures.stands[WORK_FORWARD]);
    strikes->backward = atomic_load(&job->figures.aborts[WORK_BACKWARD]) +
                        atomic_load(&job->figures.stands[WORK_BACKWARD]);
    strikes->apply = atomic_load(&job->figures.aborts[WORK_APPLY]) +
                     atomic_load(&job->figures.stands[WORK_APPLY]);
}

static bool strikes_suffice(const struct strikes *strikes)
{
    return strikes->revokes + strikes->yields >= STRIKES_MIN && strikes->forward >= FORWARD_MIN &&
           strikes->backward >= BACKWARD_MIN && strikes->apply >= APPLY_MIN;
}

/* Strikes where hits are still wanted, at random devices, moments and by random means. */
static enum work_place place_choose(const struct strikes *strikes, uint64_t random)
{
    if (strikes->apply < APPLY_MIN && random % 4 == 0) {
        return WORK_APPLY;
    }
    if (strikes->backward < BACKWARD_MIN && random % 4 == 1) {
        return WORK_BACKWARD;
    }
    return strikes->forward < FORWARD_MIN ? WORK_FORWARD : WORK_BACKWARD;
}

static struct strikes strikes_play(struct fixture *fixture)
{
    struct strikes strikes = {0};
    for (uint64_t i = 0; fixture_count(fixture, TRAIN_FINISHED) == 0 && !strikes_suffice(&strikes);
         i++) {
        uint64_t random = random_at(seed, i);
        uint32_t device = (uint32_t)(random & 1);
        place_await(fixture, device, place_choose(&strikes, random >> 8));
        if ((random >> 1) % 5 < 3) {
            strike_revoke(fixture, device);
            strikes.revokes++;
        } else {
            strike_yield(fixture, device, random >> 16);
            strikes.yields++;
        }
        strikes_count(fixture, &strikes);
    }
    return strikes;
}

static struct strikes preempted_run(struct fixture *fixture, const char *id, uint64_t *ret_checksum)
{
    struct strikes strikes;
    fixture_job_start(fixture, id, digits_job(fixture, 0));
    trainer_job_grant(fixture->job, 0);
    trainer_job_grant(fixture->job, 1);
    strikes = strikes_play(fixture);
    print_message("%u revokes, %u yields: %llu hits in forward, %llu in backward, %llu in apply; "
                  "%llu taken over; at step %llu\n",
                  strikes.revokes, strikes.yields, (unsigned long long)strikes.forward,
                  (unsigned long long)strikes.backward, (unsigned long long)strikes.apply,
                  (unsigned long long)atomic_load(&fixture->job->figures.taken_over),
                  (unsigned long long)atomic_load(&fixture->job->figures.step));
    *ret_checksum = finish(fixture);
    return strikes;
}

static void preemptions_leave_the_same_bytes(void **state)
{
    uint64_t checksum;
    struct strikes strikes = preempted_run(*state, "preempted", &checksum);
    assert_int_equal(checksum, undisturbed);
    assert_true(strikes.revokes + strikes.yields >= STRIKES_MIN);
    assert_true(strikes.forward >= FORWARD_MIN);
    assert_true(strikes.backward >= BACKWARD_MIN);
    assert_true(strikes.apply >= APPLY_MIN);
}

static void sums_in_completion_order_are_noticed(void **state)
{
    struct fixture *fixture = *state;
    uint64_t checksum;
    fixture->trainer->sum_on_completion = true;
    (void)preempted_run(fixture, "faulty", &checksum);
    assert_int_not_equal(checksum, undisturbed);
}

/* ---- kill -9 ---- */

/* The child: trains the same job in `directory` to its end and writes the checksum. */
static int child_main(const char *directory)
{
    struct fixture fixture;
    FILE *file;
    char path[256];
    uint64_t checksum;
    fixture_init(&fixture);
    fixture_trainer_stop(&fixture);
    (void)rmdir(fixture.directory);
    (void)snprintf(path, sizeof(path), "rm -rf '%s'", fixture.directory);
    (void)!system(path);
    (void)snprintf(fixture.directory, sizeof(fixture.directory), "%s", directory);
    fixture_trainer_start(&fixture);
    fixture_job_start(&fixture, "killed", digits_job(&fixture, 5));
    trainer_job_grant(fixture.job, 0);
    trainer_job_grant(fixture.job, 1);
    checksum = finish(&fixture);
    (void)snprintf(path, sizeof(path), "%s/result", directory);
    file = fopen(path, "w");
    (void)fprintf(file, "%llu", (unsigned long long)checksum);
    (void)fclose(file);
    trainer_destroy(fixture.trainer);
    device_set_destroy(&fixture.devices);
    return 0;
}

static pid_t child_start(const char *directory)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, "--child", directory, data_directory, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

/* The newest checkpoint's step, or 0. */
static unsigned checkpoint_newest(const char *directory)
{
    char path[256];
    unsigned newest = 0, step;
    struct dirent *entry;
    DIR *stream;
    (void)snprintf(path, sizeof(path), "%s/jobs/killed", directory);
    stream = opendir(path);
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        if (strstr(entry->d_name, ".tmp") == NULL &&
            sscanf(entry->d_name, "checkpoint-%u", &step) == 1 && step > newest) {
            newest = step;
        }
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    return newest;
}

/* Waits until the child is somewhere after a checkpoint from `step` on. */
static void checkpoint_await(pid_t pid, const char *directory, unsigned step)
{
    int status;
    while (checkpoint_newest(directory) < step) {
        if (waitpid(pid, &status, WNOHANG) != 0) {
            fail_msg("the child ended by itself with status %d", status);
        }
        pause_us(200);
    }
}

static void killed_three_times_gives_the_same_bytes(void **state)
{
    struct fixture *fixture = *state;
    unsigned long long checksum = 0;
    char path[256];
    FILE *file;
    int status;
    for (unsigned kill_number = 0; kill_number < 3; kill_number++) {
        pid_t pid = child_start(fixture->directory);
        checkpoint_await(pid, fixture->directory, STEPS / 8 + STEPS / 4 * kill_number);
        pause_us((unsigned)(random_at(seed, 1000 + kill_number) % 20000));
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* it was not done yet */
    }
    assert_int_equal(waitpid(child_start(fixture->directory), &status, 0) > 0, 1);
    assert_int_equal(status, 0);
    (void)snprintf(path, sizeof(path), "%s/result", fixture->directory);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu", &checksum), 1);
    (void)fclose(file);
    assert_int_equal(checksum, undisturbed);
}

/* ---- the program ---- */

static int tests_run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_device_gives_the_reference, setup, teardown),
        cmocka_unit_test_setup_teardown(two_devices_give_the_same_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(preemptions_leave_the_same_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(sums_in_completion_order_are_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_three_times_gives_the_same_bytes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

static int digits_make(void)
{
    char command[512];
    const char *venv = getenv("TEST_VENV");
    (void)snprintf(data_directory, sizeof(data_directory), "/tmp/tidepool-digits-XXXXXX");
    if (venv == NULL || mkdtemp(data_directory) == NULL) {
        (void)fprintf(stderr, "TEST_VENV names no Python environment; run `make deps`\n");
        return -1;
    }
    (void)snprintf(command, sizeof(command), "'%s/bin/python' config/demo/digits.py '%s'", venv,
                   data_directory);
    return system(command) == 0 ? 0 : -1;
}

static int again_with_haswell(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("OPENBLAS_CORETYPE", "Haswell", 1);
        execl(program, program, "--data", data_directory, (char *)NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

int main(int count, char **arguments)
{
    char command[256];
    const char *given = getenv("TEST_SEED");
    int result;
    program = arguments[0];
    seed = given != NULL ? strtoull(given, NULL, 10) : clock_wall_ns() % 1000000;
    if (count == 4 && strcmp(arguments[1], "--child") == 0) {
        (void)snprintf(data_directory, sizeof(data_directory), "%s", arguments[3]);
        return child_main(arguments[2]);
    }
    print_message("TEST_SEED=%llu OPENBLAS_CORETYPE=%s\n", (unsigned long long)seed,
                  getenv("OPENBLAS_CORETYPE") != NULL ? getenv("OPENBLAS_CORETYPE") : "(CPUID)");
    if (count == 3 && strcmp(arguments[1], "--data") == 0) {
        (void)snprintf(data_directory, sizeof(data_directory), "%s", arguments[2]);
        return tests_run();
    }
    if (digits_make() < 0) {
        return 1;
    }
    result = tests_run();
    if (!SANITIZED) {
        result |= again_with_haswell();
    }
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", data_directory);
    (void)!system(command);
    return result;
}
