/* command.h: what a researcher's own program is to be run as: the specification of an outside job
 * (docs/outside-jobs.md prints the table), read strictly.
 * Owner:   texts and arrays belong to the command; command_fini frees them.
 * Thread:  any; no shared state. */
#ifndef TIDEPOOL_OUTSIDE_COMMAND_H
#define TIDEPOOL_OUTSIDE_COMMAND_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "server/base/error.h"
#include "server/shim/job.h"

#define COMMAND_NAME_MAX 63
#define COMMAND_WORDS_MAX 4096 /* arguments; variables of the environment */
#define COMMAND_LIMITS_MAX 16

struct command {
    char *name;
    char **arguments, **environment; /* NULL at the end; environment: as the client gave it */
    size_t argument_count, environment_count;
    char *working_directory;
    char *output; /* NULL: only the server's copy */
    int64_t umask, nice, priority, retries, memory_bytes, log_bytes;
    uint32_t devices_min, devices_max;
    char *kind;
    char *team;      /* "": none */
    double notice_s; /* < 0: the configured one */
    double notice_signal_before_s, time_s;
    int notice_signal; /* 0: none */
    bool no_freeze;
    /* No program of ours: a process of the holder's own has the devices and answers notices by
     * calls (docs/leases.md). Only name, devices, kind, priority, notice, time and memory count. */
    bool held;
    struct job_limit limits[COMMAND_LIMITS_MAX];
    size_t limit_count;
    struct {
        json_t *command, *environment, *limits;
        char *devices, *notice_signal;
    } parts; /* inside command.c only */
};

/* Whether the specification is one of an outside job: it has a `command`, or is `held`. */
bool command_is(const json_t *specification);
/* On an error `ret_command` is empty. */
int command_read(const json_t *specification, struct command *ret_command, struct error *error);
void command_fini(struct command *command);
/* "TERM", "SIGTERM", "15"; 0: none of them. */
int command_signal_number(const char *text);
const char *command_resource_name(uint64_t resource); /* "NOFILE" */
/* The table of docs/outside-jobs.md. */
void command_print_help(FILE *out);

#endif
