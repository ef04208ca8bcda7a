#include "clients/cli/commands_outside.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/follow.h"

/* ---- how it ended ------------------------------------------------------------------------- */

static const char *const classes[] = {
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_UNSPECIFIED] = "has not ended",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_COMPLETED] = "completed",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_FAILED] = "failed",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_PREEMPTED] = "preempted",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_KILLED_AT_DEADLINE] = "killed at the deadline",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_LOST_DEVICE] = "lost a device",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_CANCELLED] = "was cancelled",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_NOT_STARTED] = "did not start",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_LOST] = "was lost",
    [TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_TIME_LIMIT] = "reached its time limit",
};

const char *cli_exit_class(const Tidepool__V1__Job *job)
{
    size_t index = (size_t)job->exit_class;
    return index < sizeof(classes) / sizeof(classes[0]) ? classes[index] : "ended";
}

int cli_job_exit(const Tidepool__V1__Job *job)
{
    bool finished = job->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_FINISHED;
    if (job->command == NULL) {
        return finished ? EXIT_OK : EXIT_FAILED;
    }
    switch (job->exit_class) {
    case TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_COMPLETED:
        return EXIT_OK;
    case TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_PREEMPTED:
    case TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_KILLED_AT_DEADLINE:
        return EXIT_PREEMPTED;
    case TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_TIME_LIMIT:
        return EXIT_TIMEOUT;
    case TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_LOST:
    case TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_LOST_DEVICE:
        return EXIT_OTHER;
    default:
        return job->exit_code > 0 ? job->exit_code : finished ? EXIT_OK : EXIT_FAILED;
    }
}

void cli_end_print(const struct cli *cli, const Tidepool__V1__Job *job)
{
    if (job->exit_class == TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_COMPLETED) {
        return;
    }
    fprintf(stderr, "tidepool %s: job %s: %s\n", cli->command, job->id,
            job->reason[0] != '\0' ? job->reason : control_job_state(job));
}

/* ---- logs, signal ------------------------------------------------------------------------- */

static int logs_run(struct cli *cli)
{
    struct error error = {0};
    struct follow follow = {.job = cli->arguments[0],
                            .to_the_end = cli->options.follow,
                            .fd = STDOUT_FILENO,
                            .tail_bytes = (uint64_t)cli->options.tail_bytes,
                            .run = (uint32_t)cli->options.run};
    if (cli->options.json) {
        return cli_fail_usage(cli, "a job's output is no JSON; leave --json out");
    }
    if (cli_connect(cli, &error) < 0) {
        return cli_fail(cli, &error);
    }
    cli_catch_signals(cli);
    int result = cli_follow(cli, &follow, &error);
    if (follow.reader_gone) {
        return EXIT_SIGNAL + SIGPIPE;
    }
    return result == 0 ? EXIT_OK : cli_fail(cli, &error);
}

static int signal_run(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__Job *job = NULL;
    Tidepool__V1__SignalJobRequest request = TIDEPOOL__V1__SIGNAL_JOB_REQUEST__INIT;
    request.job = (char *)(uintptr_t)cli->arguments[0]; /* only read */
    request.signal = (char *)(uintptr_t)cli->arguments[1];
    request.all = cli->options.all;
    if (cli_call(cli, "SignalJob", &request.base, &job, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = cli->options.json ? cli_write_message(cli, &job->base) : EXIT_OK;
    control_free(job);
    return exit_code;
}

static const struct command commands[] = {
    {"run", "-- COMMAND", "your program on devices; its output here, its exit code", 1, UINT32_MAX,
     OPTION_RUN | OPTION_REQUEST | OPTION_COMMAND, cli_run},
    {"logs", "JOB", "what it wrote", 1, 1, OPTION_LOGS, logs_run},
    {"signal", "JOB SIGNAL", "for example USR1", 2, 2, OPTION_SIGNAL, signal_run},
    {"report", "", "from inside a job: how far it is, what it has saved", 0, 0, OPTION_REPORT,
     cli_report},
    {"doctor", "", "what of this machine can be used, and what stands in for the rest", 0, 0, 0,
     cli_doctor},
};
const struct command_group commands_outside = {"Your own program", commands,
                                               sizeof(commands) / sizeof(commands[0])};
