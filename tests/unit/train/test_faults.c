/* What goes wrong, and what is said and kept then. */
#include "fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/train/checkpoint.h"
#include "server/train/npy.h"
#include "server/train/order.h"

#define ROWS 2000

static int setup(void **state)
{
    struct fixture *fixture = malloc(sizeof(*fixture));
    fixture_init(fixture);
    fixture_data_write(fixture, ROWS, 16, 4);
    *state = fixture;
    return 0;
}

/* The thread that thread_hang() has caught, if one has been, goes on. */
static _Atomic bool hang_let_go;

static int teardown(void **state)
{
    atomic_store(&hang_let_go, true);
    fixture_fini(*state);
    free(*state);
    return 0;
}

#define JOB(rest)                                                                                  \
    "{'name': 'small', 'model': {'layers': [16, 64, 4]},"                                          \
    " 'data': {'path': '@/x.npy', 'labels': '@/y.npy', 'held_out': 0.2},"                          \
    " 'batch': 64, 'micro_batch': 16, 'devices': '1:2', 'seed': 3," rest "}"

static void both_grant(struct fixture *fixture)
{
    trainer_job_grant(fixture->job, 0);
    trainer_job_grant(fixture->job, 1);
}

static void job_expect_refused(struct fixture *fixture, json_t *specification, const char *text)
{
    struct error error = {0};
    struct train_job *job = NULL;
    int result = trainer_job_create(fixture->trainer, 1, "refused", specification, &job, &error);
    if (result >= 0 || strstr(error.text, text) == NULL) {
        fail_msg("'%s' lacks '%s'", error.text, text);
    }
    json_decref(specification);
}

static void job_expect_failure(struct fixture *fixture, json_t *specification, const char *text)
{
    struct error error = {0};
    if (trainer_job_create(fixture->trainer, 1, "failing", specification, &fixture->job, &error) <
        0) {
        fail_msg("%s", error.text);
    }
    json_decref(specification);
    fixture_wait(fixture, TRAIN_FAILED, 1);
    if (strstr(fixture->failure, text) == NULL) {
        fail_msg("'%s' lacks '%s'", fixture->failure, text);
    }
    trainer_job_destroy(fixture->job);
}

/* ---- specification and data ---- */

static void wrong_specifications_are_refused_by_name(void **state)
{
    struct fixture *f = *state;
    job_expect_refused(f, fixture_specification(f, JOB("'stepz': 5")),
                       "job: unknown key 'stepz'; did you mean 'steps'?");
    job_expect_refused(f, fixture_specification(f, JOB("'epochs': 1, 'steps': 1")),
                       "either 'steps' or 'epochs', not both");
    job_expect_refused(f, fixture_specification(f, JOB("'steps': 0")),
                       "job.steps: 0 is out of range; 1 to 1e+15 steps");
    job_expect_refused(f, fixture_specification(f, JOB("'steps': 1, 'priority': 101")),
                       "job.priority: 101 is out of range");
    job_expect_refused(f,
                       fixture_specification(f, JOB("'steps': 1, 'optimizer': {'kind': 'adam'}")),
                       "job.optimizer.kind: 'adam' is none of sgd, adamw");
    job_expect_refused(f,
                       fixture_specification(f, JOB("'steps': 1, 'export': {'repository': '/tmp', "
                                                    "'name': '../evil'}")),
                       "job.export.name: '../evil' must be");
    job_expect_refused(
        f,
        fixture_specification(f, "{'model': {'layers': [16, 4]}, 'batch': 10, 'micro_batch': 3, "
                                 "'steps': 1, 'data': {'path': '@/x.npy', 'labels': '@/y.npy'}}"),
        "job.micro_batch: 3 does not divide job.batch, 10");
    job_expect_refused(
        f,
        fixture_specification(f, "{'model': {'layers': [16, 4]}, 'batch': 8, 'devices': '4:2', "
                                 "'steps': 1, 'data': {'path': '@/x.npy', 'labels': '@/y.npy'}}"),
        "job.devices: '4:2' must be a count or minimum:maximum");
}

static void data_that_does_not_fit_the_model_is_refused(void **state)
{
    struct fixture *f = *state;
    job_expect_refused(
        f,
        fixture_specification(f, "{'model': {'layers': [17, 4]}, 'batch': 8, 'steps': 1, "
                                 "'data': {'path': '@/x.npy', 'labels': '@/y.npy'}}"),
        "has 16 columns, the model's first layer takes 17");
    job_expect_refused(
        f,
        fixture_specification(f, "{'model': {'layers': [16, 4]}, 'batch': 8, 'steps': 1, "
                                 "'data': {'path': '@/none.npy', 'labels': '@/y.npy'}}"),
        "/none.npy': No such file");
    job_expect_refused(
        f,
        fixture_specification(f, "{'model': {'layers': [16, 4]}, 'batch': 8, 'steps': 1, "
                                 "'data': {'path': ['@/x.npy', '@/x.npy'], 'labels': '@/y.npy'}}"),
        "has 2000 labels for 4000 rows");
    job_expect_failure(
        f,
        fixture_specification(f, "{'model': {'layers': [16, 3]}, 'batch': 8, 'steps': 1, "
                                 "'data': {'path': '@/x.npy', 'labels': '@/y.npy'}}"),
        "is not a whole number from 0 to 2");
}

/* The control thread checks the files: it must not wait for a pipe's writer. */
static void pipe_as_data_is_refused_at_once(void **state)
{
    struct fixture *f = *state;
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/pipe.csv", f->directory);
    assert_int_equal(mkfifo(path, 0600), 0);
    (void)alarm(20);
    job_expect_refused(f,
                       fixture_specification(f, "{'model': {'layers': [16, 4]}, 'batch': 8, "
                                                "'steps': 1, 'data': {'path': '@/pipe.csv', "
                                                "'label_column': 'y'}}"),
                       "/pipe.csv': is not a regular file");
    (void)alarm(0);
}

static void file_of_a_header_alone_adds_no_rows(void **state)
{
    struct fixture *fixture = *state;
    char path[256];
    FILE *file;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%d.csv", fixture->directory, i);
        file = fopen(path, "w");
        (void)fputs(i == 0 ? "a,y\n" : "a,y\n1,0\n2,1\n", file);
        assert_int_equal(fclose(file), 0);
    }
    fixture_job_start(fixture, "header",
                      fixture_specification(
                          fixture, "{'model': {'layers': [1, 2]}, 'batch': 2, 'steps': 3, 'data': "
                                   "{'path': ['@/0.csv', '@/1.csv'], 'label_column': 'y'}}"));
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_destroy(fixture->job);
}

/* ---- NaN ---- */

/* Puts a NaN into the row that is the first one of this step. */
static void row_poison(const struct fixture *fixture, uint64_t step)
{
    const uint64_t train_rows = ROWS - ROWS / 5;
    uint64_t row = order_row(0, UINT64_MAX, order_row(0, 0, (step - 1) * 64, train_rows), ROWS);
    char path[256];
    struct npy npy;
    struct error error = {0};
    const float poison = NAN;
    int fd;
    (void)snprintf(path, sizeof(path), "%s/x.npy", fixture->directory);
    assert_int_equal(npy_open(path, &npy, &error), 0);
    fd = open(path, O_WRONLY);
    assert_int_equal(
        pwrite(fd, &poison, sizeof(poison), (off_t)(npy.data_offset + row * 16 * sizeof(float))),
        sizeof(poison));
    (void)close(fd);
    npy_close(&npy);
}

static void job_whose_loss_is_no_number_stops_and_keeps_its_checkpoint(void **state)
{
    struct fixture *fixture = *state;
    struct train_status status;
    row_poison(fixture, 16);
    fixture_job_start(fixture, "nan",
                      fixture_specification(fixture, JOB("'steps': 100000, 'checkpoint': "
                                                         "{'every_steps': 10, 'every_s': 0}")));
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_FAILED, 1);
    assert_non_null(strstr(fixture->failure, "the loss is not a number at step 16;"));
    trainer_job_status(fixture->job, &status);
    assert_int_equal(status.devices_held, 0);
    assert_int_equal(status.checkpointed_step, 10);
    assert_int_equal(access(status.checkpoint_path, R_OK), 0);
    trainer_job_destroy(fixture->job);
}

static void job_with_a_huge_learning_rate_fails_and_says_so(void **state)
{
    struct fixture *fixture = *state;
    fixture_job_start(
        fixture, "diverges",
        fixture_specification(fixture, JOB("'steps': 100000, 'optimizer': {'kind': 'sgd', "
                                           "'learning_rate': 100000}")));
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_FAILED, 1);
    assert_non_null(strstr(fixture->failure, "lower optimizer.learning_rate"));
    trainer_job_destroy(fixture->job);
}

/* ---- a thread that does not come back ---- */

struct stuck {
    void (*notify)(void *context, const struct train_event *event);
    void *context;
    sem_t inside, go;
    _Atomic bool once;
    _Atomic uint64_t grant; /* of the last release */
};

/* The training thread that tells of progress first stays here. */
static void stuck_notify(void *context, const struct train_event *event)
{
    struct stuck *stuck = context;
    if (event->kind == TRAIN_PROGRESS && !atomic_exchange(&stuck->once, true)) {
        (void)sem_post(&stuck->inside);
        while (sem_wait(&stuck->go) != 0) {
        }
    }
    if (event->kind == TRAIN_RELEASED) {
        atomic_store(&stuck->grant, event->grant);
    }
    stuck->notify(stuck->context, event);
}

/* A job whose training thread of device 0 stays where it is. */
static void stuck_init(struct stuck *stuck, struct fixture *fixture)
{
    *stuck =
        (struct stuck){.notify = fixture->trainer->notify, .context = fixture->trainer->context};
    assert_int_equal(sem_init(&stuck->inside, 0, 0), 0);
    assert_int_equal(sem_init(&stuck->go, 0, 0), 0);
    fixture->trainer->notify = stuck_notify;
    fixture->trainer->context = stuck;
    fixture_job_start(fixture, "stuck",
                      fixture_specification(fixture, JOB("'steps': 1000000000, 'checkpoint': "
                                                         "{'every_s': 0}")));
    trainer_job_grant(fixture->job, 0);
    assert_int_equal(sem_wait(&stuck->inside), 0);
}

static void stuck_fini(struct stuck *stuck, struct fixture *fixture)
{
    fixture_trainer_stop(fixture);
    (void)sem_destroy(&stuck->inside);
    (void)sem_destroy(&stuck->go);
}

/* Nobody else is in the job who could notice. */
static void only_device_that_fails_for_good_does_not_hold_the_job(void **state)
{
    struct fixture *fixture = *state;
    struct stuck stuck;
    stuck_init(&stuck, fixture);
    trainer_job_device_failed(fixture->job, 0);
    (void)trainer_job_checkpoint(fixture->job);
    fixture_wait(fixture, TRAIN_CHECKPOINT, 1);
    (void)sem_post(&stuck.go);
    trainer_job_destroy(fixture->job);
    stuck_fini(&stuck, fixture);
}

/* Else the control thread would take the device for given back while the job trains on it. */
static void late_release_names_the_grant_that_it_ends(void **state)
{
    struct fixture *fixture = *state;
    struct stuck stuck;
    stuck_init(&stuck, fixture);
    assert_int_equal(trainer_grant_number(fixture->trainer, 0), 1);
    trainer_job_revoke(fixture->job, 0);
    trainer_job_device_failed(fixture->job, 0);
    fixture_wait_released(fixture, 0, 1);
    assert_int_equal(atomic_load(&stuck.grant), 1);
    atomic_store(&stuck.grant, 0);
    trainer_job_grant(fixture->job, 0); /* the device has recovered at once */
    assert_int_equal(trainer_grant_number(fixture->trainer, 0), 2);
    (void)sem_post(&stuck.go);
    fixture_wait_released(fixture, 0, 2); /* the revoke's own */
    assert_int_equal(atomic_load(&stuck.grant), 1);
    fixture_revoke(fixture, 0);
    assert_int_equal(atomic_load(&stuck.grant), 2);
    trainer_job_destroy(fixture->job);
    stuck_fini(&stuck, fixture);
}

/* Its data and state may be gigabytes, and the next job may be long in coming. */
static void destroyed_job_is_freed_without_another_one(void **state)
{
    struct fixture *fixture = *state;
    const struct timespec pause = {.tv_nsec = 1000000};
    fixture_job_start(fixture, "freed", fixture_specification(fixture, JOB("'steps': 10")));
    trainer_job_destroy(fixture->job);
    for (int i = 0; i < 100000 && fixture->trainer->jobs != NULL; i++) {
        trainer_reap(fixture->trainer);
        (void)nanosleep(&pause, NULL);
    }
    assert_null(fixture->trainer->jobs);
}

/* ---- sizes ---- */

static void sizes_that_no_machine_has_are_refused(void **state)
{
    struct fixture *f = *state;
    job_expect_failure(f,
                       fixture_specification(
                           f,
                           "{'model': {'layers': [16, 4]}, 'batch': 16777216, 'micro_batch': 65536,"
                           " 'steps': 1000000000000000,"
                           " 'data': {'path': '@/x.npy', 'labels': "
                           "'@/y.npy'}}"),
                       "are more than the limit of 9e+18 rows in all");
    f->counts[TRAIN_FAILED] = 0;
    fixture_data_write(f, 8, 1024, 2); /* read ahead: gigabytes for each device */
    job_expect_failure(f,
                       fixture_specification(f, "{'model': {'layers': [1024, 2]}, 'steps': 1,"
                                                " 'batch': 1048576, 'micro_batch': 1048576,"
                                                " 'data': {'path': '@/x.npy', 'labels': "
                                                "'@/y.npy'}, 'devices': '2'}"),
                       "the job needs about");
}

/* ---- checkpoints ---- */

static void checkpoint_without_space_warns_and_is_tried_again(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit limit, small;
    struct train_status before, after;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    fixture_job_start(fixture, "space",
                      fixture_specification(fixture, JOB("'steps': 1000000000, 'checkpoint': "
                                                         "{'every_steps': 50, 'every_s': 0}")));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_WARNING, 1);
    trainer_job_status(fixture->job, &before);
    fixture_wait_step(fixture, before.step + 20); /* training goes on */
    assert_int_equal(fixture_count(fixture, TRAIN_CHECKPOINT), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_non_null(strstr(fixture->warning, "no checkpoint of step"));
    assert_non_null(strstr(fixture->warning, "File too large; training goes on"));
    fixture_wait(fixture, TRAIN_CHECKPOINT, 1);
    trainer_job_status(fixture->job, &after);
    assert_int_equal(access(after.checkpoint_path, R_OK), 0);
    fixture_revoke(fixture, 0);
    fixture_revoke(fixture, 1);
    trainer_job_destroy(fixture->job);
}

/* Without an export the last checkpoint is all that is left of the job. */
static void job_ends_only_when_its_last_checkpoint_is_written(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit limit, small;
    struct train_status status;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    fixture_job_start(fixture, "last",
                      fixture_specification(fixture, JOB("'steps': 20, 'checkpoint': "
                                                         "{'every_steps': 0, 'every_s': 0}")));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_WARNING, 2); /* tried again */
    assert_int_equal(fixture_count(fixture, TRAIN_FINISHED), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_non_null(strstr(fixture->warning, "it is tried again until there is space"));
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_status(fixture->job, &status);
    assert_int_equal(status.checkpointed_step, 20);
    assert_int_equal(access(status.checkpoint_path, R_OK), 0);
    trainer_job_destroy(fixture->job);
}

static void job_that_waits_for_space_at_its_end_can_go(void **state)
{
    struct fixture *fixture = *state;
    struct rlimit limit, small;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = limit;
    small.rlim_cur = 4096;
    fixture_job_start(fixture, "goes",
                      fixture_specification(fixture, JOB("'steps': 20, 'checkpoint': "
                                                         "{'every_steps': 0, 'every_s': 0}")));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_WARNING, 1);
    fixture_trainer_stop(fixture); /* joins the keeper */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(fixture_count(fixture, TRAIN_FINISHED), 0);
}

static void file_damage(const char *path)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 1000, SEEK_SET), 0);
    (void)fputc(0x55, file);
    (void)fputc(0xaa, file);
    assert_int_equal(fclose(file), 0);
}

static void damaged_checkpoint_is_named_and_the_one_before_is_used(void **state)
{
    struct fixture *fixture = *state;
    struct train_status status;
    const char *job = JOB("'steps': 300, 'checkpoint': {'every_steps': 100, 'every_s': 0, "
                          "'keep': 5}");
    uint64_t checksum;
    char path[512];
    fixture_job_start(fixture, "damaged", fixture_specification(fixture, "%s", job));
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    checksum = fixture_state_checksum(fixture);
    trainer_job_status(fixture->job, &status);
    (void)snprintf(path, sizeof(path), "%s", status.checkpoint_path);
    fixture_trainer_stop(fixture);
    file_damage(path);
    fixture_trainer_start(fixture);
    fixture_job_start(fixture, "damaged", fixture_specification(fixture, "%s", job));
    trainer_job_status(fixture->job, &status);
    assert_true(status.step < 300);
    assert_int_equal(fixture_count(fixture, TRAIN_WARNING), 1);
    assert_non_null(strstr(fixture->warning, path));
    assert_non_null(strstr(fixture->warning, "is damaged: its checksum does not match"));
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    assert_int_equal(fixture_state_checksum(fixture), checksum);
}

static void checkpoint_of_another_specification_is_refused(void **state)
{
    struct fixture *fixture = *state;
    fixture_job_start(fixture, "other", fixture_specification(fixture, JOB("'steps': 20")));
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_destroy(fixture->job);
    fixture->counts[TRAIN_FAILED] = 0;
    {
        struct error error = {0};
        json_t *specification =
            fixture_specification(fixture, JOB("'steps': 20, 'optimizer': {'learning_rate': 0.5}"));
        assert_int_equal(
            trainer_job_create(fixture->trainer, 2, "other", specification, &fixture->job, &error),
            0);
        json_decref(specification);
    }
    fixture_wait(fixture, TRAIN_FAILED, 1);
    assert_non_null(strstr(fixture->failure, "belongs to another specification"));
    trainer_job_destroy(fixture->job);
}

static void stopped_trainer_leaves_a_checkpoint_to_go_on_from(void **state)
{
    struct fixture *fixture = *state;
    const char *job = JOB("'steps': 600, 'checkpoint': {'every_s': 0}");
    struct train_status status;
    uint64_t expected;
    fixture_job_start(fixture, "whole", fixture_specification(fixture, "%s", job));
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    expected = fixture_state_checksum(fixture);
    fixture_trainer_stop(fixture);
    fixture_trainer_start(fixture);
    fixture_job_start(fixture, "stopped", fixture_specification(fixture, "%s", job));
    both_grant(fixture);
    fixture_wait_step(fixture, 50);
    fixture_trainer_stop(fixture);
    fixture_trainer_start(fixture);
    fixture_job_start(fixture, "stopped", fixture_specification(fixture, "%s", job));
    trainer_job_status(fixture->job, &status);
    assert_true(status.step >= 50);
    assert_int_equal(status.step, status.checkpointed_step);
    both_grant(fixture);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    assert_int_equal(fixture_state_checksum(fixture), expected);
}

static void job_without_devices_can_be_asked_for_a_checkpoint(void **state)
{
    struct fixture *fixture = *state;
    struct train_status status;
    fixture_job_start(fixture, "asked",
                      fixture_specification(fixture, JOB("'steps': 1000000000, 'checkpoint': "
                                                         "{'every_s': 0}")));
    both_grant(fixture);
    fixture_wait_step(fixture, 30);
    fixture_revoke(fixture, 0);
    fixture_revoke(fixture, 1);
    assert_int_equal(fixture_count(fixture, TRAIN_CHECKPOINT), 0);
    assert_int_equal(trainer_job_checkpoint(fixture->job), 0);
    fixture_wait(fixture, TRAIN_CHECKPOINT, 1);
    trainer_job_status(fixture->job, &status);
    assert_int_equal(status.checkpointed_step, status.step);
    trainer_job_destroy(fixture->job);
}

/* As if another machine had written it. */
static void checkpoint_rewrite(const struct fixture *fixture)
{
    const struct train_job *job = fixture->job;
    uint64_t floats = job->keeper.parameters * 3;
    struct checkpoint_head head;
    struct error error = {0};
    char path[PATH_MAX];
    float *state = malloc(floats * sizeof(*state));
    assert_int_equal(checkpoint_load(job->directory, job->specification.hash, floats, &head, state,
                                     path, NULL, NULL, &error),
                     1);
    (void)snprintf(head.blas_core, sizeof(head.blas_core), "Atom");
    head.data_hash++;
    assert_int_equal(checkpoint_write(job->directory, &head, state, 2, path, &error), 0);
    free(state);
}

static void checkpoint_of_another_core_type_ends_strict_mode_with_a_warning(void **state)
{
    struct fixture *fixture = *state;
    const char *job = JOB("'steps': 40");
    fixture_job_start(fixture, "strict", fixture_specification(fixture, "%s", job));
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    checkpoint_rewrite(fixture);
    fixture_trainer_stop(fixture);
    fixture_trainer_start(fixture);
    fixture_job_start(fixture, "strict", fixture_specification(fixture, "%s", job));
    assert_int_equal(fixture_count(fixture, TRAIN_WARNING), 2); /* the data, then this */
    assert_non_null(strstr(fixture->warning, "strict mode ends: the checkpoint was made with"));
    assert_non_null(strstr(fixture->warning, "core Atom"));
}

static void finished_job_made_again_finishes_again(void **state)
{
    struct fixture *fixture = *state;
    struct train_status first, second;
    const char *job = JOB("'steps': 40");
    fixture_job_start(fixture, "again", fixture_specification(fixture, "%s", job));
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_status(fixture->job, &first);
    trainer_job_destroy(fixture->job);
    fixture->counts[TRAIN_READY] = 0;
    fixture_job_start(fixture, "again", fixture_specification(fixture, "%s", job));
    trainer_job_grant(fixture->job, 1);
    fixture_wait(fixture, TRAIN_FINISHED, 2);
    trainer_job_status(fixture->job, &second);
    assert_int_equal(second.step, 40);
    assert_true(second.held_out_loss == first.held_out_loss);
    assert_true(second.loss_last == first.loss_last);
    trainer_job_destroy(fixture->job);
}

static void export_that_cannot_be_written_fails_the_job_after_its_checkpoint(void **state)
{
    struct fixture *fixture = *state;
    struct train_status status;
    fixture_job_start(fixture, "export",
                      fixture_specification(fixture, JOB("'steps': 5, 'export': {'repository': "
                                                         "'@/x.npy', 'name': 'm'}")));
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FAILED, 1);
    assert_non_null(strstr(fixture->failure, "export, after all steps: create '"));
    trainer_job_status(fixture->job, &status);
    assert_int_equal(status.checkpointed_step, 5);
    trainer_job_destroy(fixture->job);
}

/* ---- devices ---- */

#define WIDE_JOB                                                                                   \
    "{'model': {'layers': [16, 512, 512, 4]}, 'data': {'path': '@/x.npy', 'labels': '@/y.npy'},"   \
    " 'batch': 64, 'micro_batch': 16, 'devices': '1:2', 'seed': 3, 'steps': 60,"                   \
    " 'checkpoint': {'every_s': 0}}"

static uint64_t reference_run(struct fixture *fixture)
{
    uint64_t checksum;
    fixture_job_start(fixture, "reference", fixture_specification(fixture, WIDE_JOB));
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    checksum = fixture_state_checksum(fixture);
    trainer_job_destroy(fixture->job);
    fixture->counts[TRAIN_READY] = 0;
    return checksum;
}

/* A signal catches the training thread of device 0 inside an operation and keeps it there, as a
 * driver that hangs would; never inside a library, whose lock it may hold: OpenBLAS has one for its
 * buffers that every product takes. */
static struct {
    struct worker *worker;
    _Atomic bool caught;
} hang;

/* The linker's: where the program's own code lies. */
extern const char __executable_start[], etext[];

static uintptr_t address_of(const ucontext_t *interrupted)
{
#if defined(__x86_64__)
    return (uintptr_t)interrupted->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t)interrupted->uc_mcontext.pc;
#endif
}

static void on_hang(int number, siginfo_t *information, void *interrupted)
{
    enum work_place place = worker_place(hang.worker);
    uintptr_t address = address_of(interrupted);
    (void)number;
    (void)information;
    if (address < (uintptr_t)__executable_start || address >= (uintptr_t)etext ||
        (place != WORK_FORWARD && place != WORK_BACKWARD && place != WORK_APPLY)) {
        return; /* it may hold a lock here */
    }
    atomic_store(&hang.caught, true);
    while (!atomic_load(&hang_let_go)) {
        struct timespec pause = {.tv_nsec = 1000000};
        (void)nanosleep(&pause, NULL);
    }
}

static pid_t thread_find(const char *wanted)
{
    pid_t found = 0;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    while (found == 0 && (entry = readdir(tasks)) != NULL) {
        char path[300], name[32] = "";
        FILE *file;
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = fopen(path, "r");
        if (file != NULL && fgets(name, sizeof(name), file) != NULL) {
            name[strcspn(name, "\n")] = '\0';
            found = strcmp(name, wanted) == 0 ? (pid_t)strtol(entry->d_name, NULL, 10) : 0;
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    (void)closedir(tasks);
    assert_true(found > 0);
    return found;
}

static void thread_hang(struct fixture *fixture)
{
    struct sigaction action = {.sa_sigaction = on_hang, .sa_flags = SA_RESTART | SA_SIGINFO};
    struct timespec pause = {.tv_nsec = 300000};
    pid_t thread = thread_find("train-0");
    hang.worker = fixture->trainer->workers[0];
    atomic_store(&hang.caught, false);
    atomic_store(&hang_let_go, false);
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    while (!atomic_load(&hang.caught)) {
        if (fixture_count(fixture, TRAIN_FINISHED) > 1) {
            fail_msg("the job has ended before its thread was caught");
        }
        assert_int_equal(syscall(SYS_tgkill, getpid(), thread, SIGUSR1), 0);
        (void)nanosleep(&pause, NULL);
    }
}

static void failed_device_whose_thread_hangs_changes_no_byte(void **state)
{
    struct fixture *fixture = *state;
    uint64_t expected = reference_run(fixture);
    fixture_job_start(fixture, "hangs", fixture_specification(fixture, WIDE_JOB));
    both_grant(fixture);
    fixture_wait_step(fixture, 5);
    thread_hang(fixture);
    device_set_failed(&fixture->devices.devices[0], true);
    trainer_job_device_failed(fixture->job, 0);
    assert_int_equal(fixture->released[0], 1); /* at once */
    fixture_wait(fixture, TRAIN_FINISHED, 2);
    assert_int_equal(fixture_state_checksum(fixture), expected);
    assert_true(atomic_load(&fixture->job->figures.step) == 60);
    atomic_store(&hang_let_go, true); /* its late result finds nobody who wants it */
    assert_int_equal(fixture_state_checksum(fixture), expected);
    trainer_job_destroy(fixture->job);
}

/* A batch that never seems to end runs on device 0: device 1 does its piece too. */
static void piece_of_a_standing_device_is_taken_over(void **state)
{
    struct fixture *fixture = *state;
    uint64_t expected = reference_run(fixture);
    fixture_job_start(fixture, "stands", fixture_specification(fixture, WIDE_JOB));
    both_grant(fixture);
    fixture_wait_step(fixture, 3);
    (void)device_serving_begin(&fixture->devices.devices[0], clock_now_ns());
    fixture_wait_step(fixture, 60);
    device_serving_end(&fixture->devices.devices[0], clock_now_ns());
    fixture_wait(fixture, TRAIN_FINISHED, 2);
    assert_int_equal(fixture_state_checksum(fixture), expected);
    trainer_job_destroy(fixture->job);
}

static void revoke_of_a_device_that_stands_still_is_answered(void **state)
{
    struct fixture *fixture = *state;
    fixture_job_start(fixture, "standing", fixture_specification(fixture, WIDE_JOB));
    trainer_job_grant(fixture->job, 0);
    fixture_wait_step(fixture, 2);
    (void)device_serving_begin(&fixture->devices.devices[0], clock_now_ns());
    fixture_revoke(fixture, 0);
    device_serving_end(&fixture->devices.devices[0], clock_now_ns());
    trainer_job_grant(fixture->job, 0);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_destroy(fixture->job);
}

static void device_granted_before_the_job_is_ready_waits_for_it(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {0};
    json_t *specification = fixture_specification(fixture, WIDE_JOB);
    assert_int_equal(
        trainer_job_create(fixture->trainer, 1, "early", specification, &fixture->job, &error), 0);
    json_decref(specification);
    trainer_job_grant(fixture->job, 1);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_destroy(fixture->job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(wrong_specifications_are_refused_by_name),
        TEST(data_that_does_not_fit_the_model_is_refused),
        TEST(pipe_as_data_is_refused_at_once),
        TEST(file_of_a_header_alone_adds_no_rows),
        TEST(job_whose_loss_is_no_number_stops_and_keeps_its_checkpoint),
        TEST(job_with_a_huge_learning_rate_fails_and_says_so),
        TEST(only_device_that_fails_for_good_does_not_hold_the_job),
        TEST(late_release_names_the_grant_that_it_ends),
        TEST(destroyed_job_is_freed_without_another_one),
        TEST(sizes_that_no_machine_has_are_refused),
        TEST(checkpoint_without_space_warns_and_is_tried_again),
        TEST(job_ends_only_when_its_last_checkpoint_is_written),
        TEST(job_that_waits_for_space_at_its_end_can_go),
        TEST(damaged_checkpoint_is_named_and_the_one_before_is_used),
        TEST(checkpoint_of_another_specification_is_refused),
        TEST(stopped_trainer_leaves_a_checkpoint_to_go_on_from),
        TEST(job_without_devices_can_be_asked_for_a_checkpoint),
        TEST(checkpoint_of_another_core_type_ends_strict_mode_with_a_warning),
        TEST(finished_job_made_again_finishes_again),
        TEST(export_that_cannot_be_written_fails_the_job_after_its_checkpoint),
        TEST(failed_device_whose_thread_hangs_changes_no_byte),
        TEST(piece_of_a_standing_device_is_taken_over),
        TEST(revoke_of_a_device_that_stands_still_is_answered),
        TEST(device_granted_before_the_job_is_ready_waits_for_it),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
