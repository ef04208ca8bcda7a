/* fixture.h: a trainer on two CPU devices with made-up data, for the trainer's tests. */
#ifndef TIDEPOOL_TESTS_TRAIN_FIXTURE_H
#define TIDEPOOL_TESTS_TRAIN_FIXTURE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/train/trainer_internal.h"

struct fixture {
    char directory[128]; /* removed at the end */
    struct device_set devices;
    struct trainer *trainer;
    struct train_job *job;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned counts[TRAIN_WARNING + 1]; /* events by kind */
    unsigned released[2];
    char failure[256], warning[256];
};

void fixture_init(struct fixture *fixture);
void fixture_fini(struct fixture *fixture);
void fixture_trainer_start(struct fixture *fixture);
void fixture_trainer_stop(struct fixture *fixture);

/* Rows of `inputs` values in ±1 and labels that a hidden linear rule gives them. */
void fixture_data_write(const struct fixture *fixture, uint32_t rows, uint32_t inputs,
                        uint32_t classes);
void npy_write(const char *path, const char *type, const char *shape, const void *items,
               size_t bytes);

/* printf of JSON with ' for "; '@' stands for the fixture's directory. */
json_t *fixture_specification(const struct fixture *fixture, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Makes the fixture's job and waits until it is ready. */
void fixture_job_start(struct fixture *fixture, const char *id, json_t *specification);
/* Waits for `count` events of a kind in all; fails the test when the job fails meanwhile. */
void fixture_wait(struct fixture *fixture, enum train_event_kind kind, unsigned count);
unsigned fixture_count(struct fixture *fixture, enum train_event_kind kind);
void fixture_wait_released(struct fixture *fixture, uint32_t device, unsigned count);
/* Revokes and waits until the device is given back. */
void fixture_revoke(struct fixture *fixture, uint32_t device);
void fixture_wait_step(struct fixture *fixture, uint64_t step);

/* CRC-64 of the job's state (weights and slots) after its last step. */
uint64_t fixture_state_checksum(const struct fixture *fixture);

#endif
