/* follow.h: a job's output as it comes, until the job has ended. The server may go and come again
 * meanwhile: the job runs on without it, and the output goes on where it was.
 * Thread:  one. */
#ifndef TIDEPOOL_CLI_FOLLOW_H
#define TIDEPOOL_CLI_FOLLOW_H

#include "clients/cli/cli.h"

struct follow {
    const char *job;
    bool to_the_end; /* false: only what is there */
    int fd;          /* where the output goes */
    uint64_t tail_bytes;
    /* A signal came to this command. True: follow on. */
    bool (*on_signal)(void *context, int signal);
    void *context;
    uint32_t run; /* where to go on: set to begin later than with the first run that is kept */
    uint64_t offset;
    bool reader_gone; /* nobody reads `fd` any more */
};

/* 0: the job has ended, or nothing more is there. Negative: an error; CANCELLED: a signal. */
int cli_follow(struct cli *cli, struct follow *follow, struct error *error);

#endif
