/* trial.h: runs something that may fail, abort or hang in a process of its own, and tells how. */
#ifndef TIDEPOOL_TESTS_SIM_TRIAL_H
#define TIDEPOOL_TESTS_SIM_TRIAL_H

#include <stdbool.h>
#include <sys/types.h>

#define TRIAL_TEXT_MAX 2048

struct trial {
    pid_t pid;
    int output; /* what it wrote to its standard error, a file */
};

struct trial_end {
    bool failed;
    char text[TRIAL_TEXT_MAX];   /* what it said, if it failed */
    char reason[TRIAL_TEXT_MAX]; /* the same without numbers: equal for the same failure */
};

/* After `seconds` it is ended. */
struct trial trial_begin(void (*run)(void *context), void *context, unsigned seconds);
/* Waits; frees. */
void trial_wait(struct trial *trial, struct trial_end *ret_end);

#endif
