/* trainer_internal.h: the trainer as its own parts see it. */
#ifndef TIDEPOOL_TRAIN_TRAINER_INTERNAL_H
#define TIDEPOOL_TRAIN_TRAINER_INTERNAL_H

#include "server/train/worker.h"

struct trainer {
    struct device_set *devices;
    char state_directory[PATH_MAX - 256];
    void (*notify)(void *context, const struct train_event *event);
    void *context;
    struct worker *workers[DEVICES_MAX];
    struct train_job *jobs;       /* the control thread */
    uint64_t grants[DEVICES_MAX]; /* the control thread */
    bool sum_on_completion;       /* a test's planted fault, set before a job is made */
};

#endif
