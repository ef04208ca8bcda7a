/* The trainer as a whole: it learns, it ends, it says what is wrong. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int setup(void **state)
{
    struct fixture *fixture = malloc(sizeof(*fixture));
    fixture_init(fixture);
    fixture_data_write(fixture, 2000, 16, 4);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    fixture_fini(*state);
    free(*state);
    return 0;
}

#define SMALL_JOB                                                                                  \
    "{'name': 'small', 'model': {'layers': [16, 64, 4]},"                                          \
    " 'data': {'path': '@/x.npy', 'labels': '@/y.npy', 'held_out': 0.2},"                          \
    " 'batch': 64, 'micro_batch': 16, 'devices': '1:2', 'seed': 3,"                                \
    " 'checkpoint': {'every_steps': 100, 'every_s': 0},"

static void job_learns_and_exports(void **state)
{
    struct fixture *fixture = *state;
    struct train_status status;
    fixture_job_start(fixture, "learns",
                      fixture_specification(fixture, SMALL_JOB
                                            "'optimizer': {'learning_rate': 0.003}, 'epochs': 20,"
                                            "'export': {'repository': '@/models', 'name': "
                                            "'small', 'config': {'max_batch': 8}}}"));
    trainer_job_grant(fixture->job, 0);
    trainer_job_grant(fixture->job, 1);
    fixture_wait(fixture, TRAIN_FINISHED, 1);
    trainer_job_status(fixture->job, &status);
    assert_int_equal(status.step, status.steps);
    assert_int_equal(status.steps, 500);
    assert_int_equal(status.checkpointed_step, 500);
    assert_int_equal(status.devices_held, 0);
    assert_int_equal(status.micro_batches_done, 2000);
    assert_true(status.loss_last < status.loss_first / 3);
    assert_true(status.held_out_accuracy > 0.85);
    assert_true(status.held_out_loss < 0.5);
    assert_int_equal(access(status.checkpoint_path, R_OK), 0);
    assert_int_equal(access(status.export_path, R_OK), 0);
    assert_non_null(strstr(status.export_path, "/models/small/1/model.onnx"));
    trainer_job_destroy(fixture->job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(job_learns_and_exports, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
