/* tidepool run: a program of one's own as a job, with its output here and its exit code at the end.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/cli/commands_outside.h"
#include "clients/cli/follow.h"
#include "server/base/clock.h"
#include "server/base/json_message.h"

#define ASK_NS (5 * NS_PER_S) /* a second Ctrl-C counts for so long */

extern char **environ;

/* ---- the command as a message ------------------------------------------------------------ */

/* The generated messages want char *; none of them writes to it. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

#define ARRAY_VARIABLES 2 /* behind the others: ARRAY_INDEX, ARRAY_SIZE */

static bool variable_is_ours(const char *variable)
{
    return strncmp(variable, "TIDEPOOL_", strlen("TIDEPOOL_")) == 0 ||
           strncmp(variable, "ARRAY_INDEX=", strlen("ARRAY_INDEX=")) == 0 ||
           strncmp(variable, "ARRAY_SIZE=", strlen("ARRAY_SIZE=")) == 0;
}

/* All but what belongs to Tidepool: a job inside a job is one of its own. */
static int environment_take(Tidepool__V1__Command *command)
{
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    command->environment = calloc(count + ARRAY_VARIABLES, sizeof(*command->environment));
    if (command->environment == NULL) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (!variable_is_ours(environ[i])) {
            command->environment[command->n_environment++] = environ[i];
        }
    }
    return 0;
}

/* "30m" → 1800 */
static int time_parse(const char *text, double *ret_s)
{
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'\0', 1}, {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end = NULL;
    double number = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (end != text && *end == units[i].unit && (*end == '\0' || end[1] == '\0') &&
            number > 0 && isfinite(number)) {
            *ret_s = number * units[i].seconds;
            return 0;
        }
    }
    return -1;
}

/* "USR1@60" into its two parts. */
static int signal_parse(const char *text, char name[32], double *ret_before_s)
{
    const char *at = strchr(text, '@');
    size_t length = at == NULL ? strlen(text) : (size_t)(at - text);
    if (length == 0 || length >= 32 || (at != NULL && time_parse(at + 1, ret_before_s) < 0)) {
        return -1;
    }
    memcpy(name, text, length);
    name[length] = '\0';
    return 0;
}

static int path_absolute(const char *path, char full[PATH_MAX])
{
    char here[PATH_MAX];
    if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
        return -1;
    }
    return snprintf(full, PATH_MAX, path[0] == '/' ? "%s%s" : "%s/%s", path[0] == '/' ? "" : here,
                    path) < PATH_MAX
               ? 0
               : -1;
}

/* Texts that the message points to. */
struct command_texts {
    char output[PATH_MAX], directory[PATH_MAX], signal[32];
};

static int places_take(const struct cli *cli, struct command_texts *texts,
                       Tidepool__V1__Command *command, struct error *error)
{
    const char *directory = cli->options.directory != NULL ? cli->options.directory : ".";
    if (path_absolute(directory, texts->directory) < 0) {
        return error_set_errno(error, errno, "the folder to run in");
    }
    command->working_directory = texts->directory;
    if (strcmp(directory, ".") == 0) {
        texts->directory[strlen(texts->directory) - 2] = '\0'; /* "/.", as a shell would say it */
        command->working_directory = texts->directory[0] == '\0' ? text_of("/") : texts->directory;
    }
    if (cli->options.output != NULL) {
        if (path_absolute(cli->options.output, texts->output) < 0) {
            return error_set_errno(error, errno, "--output");
        }
        command->output = texts->output;
    }
    return 0;
}

static int times_take(const struct cli *cli, struct command_texts *texts,
                      Tidepool__V1__Command *command, struct error *error)
{
    if (cli->options.time != NULL && time_parse(cli->options.time, &command->time_s) < 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--time is a number above 0 with s, m, h or d behind it, not '%s'",
                         cli->options.time);
    }
    if (cli->options.notice_s >= 0) {
        command->notice_or_default_case = TIDEPOOL__V1__COMMAND__NOTICE_OR_DEFAULT_NOTICE_S;
        command->notice_s = cli->options.notice_s;
    }
    if (cli->options.notice_signal == NULL) {
        return 0;
    }
    if (signal_parse(cli->options.notice_signal, texts->signal, &command->notice_signal_before_s) <
        0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--signal is a signal, or one with the seconds before the deadline: "
                         "USR1@60, not '%s'",
                         cli->options.notice_signal);
    }
    command->notice_signal = texts->signal;
    return 0;
}

static void settings_take(const struct cli *cli, Tidepool__V1__Command *command)
{
    const struct cli_options *options = &cli->options;
    mode_t mask = umask(0);
    int nice_now = getpriority(PRIO_PROCESS, 0);
    (void)umask(mask);
    command->umask_or_default_case = TIDEPOOL__V1__COMMAND__UMASK_OR_DEFAULT_UMASK;
    command->umask = mask;
    command->nice = nice_now > 0 ? (uint32_t)nice_now : 0;
    command->name = options->name != NULL ? text_of(options->name) : command->name;
    command->kind = options->kind != NULL ? text_of(options->kind) : command->kind;
    command->team = options->team != NULL ? text_of(options->team) : command->team;
    command->devices_min = options->devices.minimum > 0 ? options->devices.minimum : 1;
    command->devices_max = options->devices.maximum > 0 ? options->devices.maximum : 1;
    command->priority = (uint32_t)options->priority;
    command->no_freeze = options->no_freeze;
    command->retries_or_default_case = TIDEPOOL__V1__COMMAND__RETRIES_OR_DEFAULT_RETRIES;
    command->retries = (uint32_t)options->retries;
    command->n_arguments = cli->argument_count;
    command->arguments = (char **)(uintptr_t)cli->arguments;
}

/* ---- what may happen to it ---------------------------------------------------------------- */

static void promise_print(const Tidepool__V1__Job *job)
{
    const Tidepool__V1__Command *command = job->command;
    if (job->devices_min == job->devices_max) {
        fprintf(stderr, "%s: %u device%s", job->id, job->devices_min,
                job->devices_min == 1 ? "" : "s");
    } else {
        fprintf(stderr, "%s: %u to %u devices", job->id, job->devices_min, job->devices_max);
    }
    fprintf(stderr, "; while others need them it %s",
            command != NULL && command->no_freeze ? "" : "stands still for moments, or ");
    if (command != NULL &&
        command->notice_or_default_case == TIDEPOOL__V1__COMMAND__NOTICE_OR_DEFAULT_NOTICE_S) {
        fprintf(stderr, "is told %g s before they are taken", command->notice_s);
    } else {
        fprintf(stderr, "is told before they are taken");
    }
    fprintf(stderr, ", then runs again. Its story: tidepool jobs %s\n", job->id);
}

/* ---- Ctrl-C ------------------------------------------------------------------------------- */

struct interrupt {
    struct cli *cli;
    const char *job;
    uint64_t asked_ns;
    bool cancelled;
    int signal; /* that ended the command */
};

static void job_cancel(struct interrupt *interrupt)
{
    struct error error = {0};
    Tidepool__V1__Job *job = NULL;
    Tidepool__V1__CancelJobRequest request = TIDEPOOL__V1__CANCEL_JOB_REQUEST__INIT;
    request.job = text_of(interrupt->job);
    if (cli_call(interrupt->cli, "CancelJob", &request.base, &job, &error) < 0) {
        fprintf(stderr, "tidepool run: cancel %s: %s\n", interrupt->job, error.text);
    } else {
        interrupt->cancelled = true;
    }
    control_free(job);
}

static bool on_signal(void *context, int number)
{
    struct interrupt *interrupt = context;
    uint64_t now_ns = clock_now_ns();
    if (number != SIGINT || interrupt->cancelled) {
        interrupt->signal = number; /* this command ends, the job does not */
        return false;
    }
    if (interrupt->asked_ns != 0 && now_ns - interrupt->asked_ns < ASK_NS) {
        fprintf(stderr, "\ncancelling %s; once more leaves without waiting for its end\n",
                interrupt->job);
        job_cancel(interrupt);
        return true;
    }
    interrupt->asked_ns = now_ns;
    fprintf(stderr,
            "\nCtrl-C again within %d s cancels %s; it goes on else (to leave it running: "
            "kill %d)\n",
            (int)(ASK_NS / NS_PER_S), interrupt->job, (int)getpid());
    return true;
}

/* ---- run ---------------------------------------------------------------------------------- */

static int run_end(struct cli *cli, const char *id, const struct interrupt *interrupt)
{
    struct error error = {0};
    Tidepool__V1__Job *job = NULL;
    Tidepool__V1__GetJobRequest request = TIDEPOOL__V1__GET_JOB_REQUEST__INIT;
    request.job = text_of(id);
    if (cli_call(cli, "GetJob", &request.base, &job, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = interrupt->cancelled ? EXIT_SIGNAL + SIGINT : cli_job_exit(job);
    cli_end_print(cli, job);
    if (cli->options.json) {
        cli_write_message(cli, &job->base);
    }
    control_free(job);
    return exit_code;
}

static int run_follow(struct cli *cli, const Tidepool__V1__Job *job)
{
    struct error error = {0};
    struct interrupt interrupt = {.cli = cli, .job = job->id};
    struct follow follow = {.job = job->id,
                            .to_the_end = true,
                            .fd = cli->options.json ? STDERR_FILENO : STDOUT_FILENO,
                            .on_signal = on_signal,
                            .context = &interrupt};
    cli_catch_signals(cli);
    int result = cli_follow(cli, &follow, &error);
    if (result == 0 && !follow.reader_gone) {
        return run_end(cli, job->id, &interrupt);
    }
    fprintf(stderr,
            "tidepool run: job %s goes on without this command ('tidepool logs -f %s', "
            "'tidepool cancel %s')\n",
            job->id, job->id, job->id);
    if (follow.reader_gone) {
        return EXIT_SIGNAL + SIGPIPE;
    }
    return interrupt.signal != 0 ? EXIT_SIGNAL + interrupt.signal : cli_fail(cli, &error);
}

static int job_submit(struct cli *cli, Tidepool__V1__Command *command, const char *request_id,
                      Tidepool__V1__Job **ret_job)
{
    struct error error = {0};
    Tidepool__V1__SubmitJobRequest request = TIDEPOOL__V1__SUBMIT_JOB_REQUEST__INIT;
    request.command = command;
    if (request_id != NULL) {
        request.request_id = text_of(request_id);
    }
    return cli_call(cli, "SubmitJob", &request.base, ret_job, &error) < 0 ? cli_fail(cli, &error)
                                                                          : EXIT_OK;
}

static int run_submit(struct cli *cli, Tidepool__V1__Command *command)
{
    Tidepool__V1__Job *job = NULL;
    int exit_code = job_submit(cli, command, cli->options.request_id, &job);
    if (exit_code != EXIT_OK) {
        return exit_code;
    }
    promise_print(job);
    if (!cli->options.detach) {
        exit_code = run_follow(cli, job);
    } else if (cli->options.json) {
        exit_code = cli_write_message(cli, &job->base);
    } else {
        printf("%s\n", job->id);
    }
    control_free(job);
    return exit_code;
}

/* One job of an array; adds it to the list, or prints its id. */
static int array_submit(struct cli *cli, Tidepool__V1__Command *command, int64_t index,
                        json_t *jobs)
{
    char index_text[32], size_text[32], request_id[192];
    Tidepool__V1__Job *job = NULL;
    (void)snprintf(index_text, sizeof(index_text), "ARRAY_INDEX=%" PRId64, index);
    (void)snprintf(size_text, sizeof(size_text), "ARRAY_SIZE=%" PRId64, cli->options.array);
    command->environment[command->n_environment] = index_text;
    command->environment[command->n_environment + 1] = size_text;
    command->n_environment += ARRAY_VARIABLES;
    if (cli->options.request_id != NULL) {
        (void)snprintf(request_id, sizeof(request_id), "%s/%" PRId64, cli->options.request_id,
                       index);
    }
    int exit_code =
        job_submit(cli, command, cli->options.request_id != NULL ? request_id : NULL, &job);
    command->n_environment -= ARRAY_VARIABLES;
    if (exit_code != EXIT_OK) {
        return exit_code;
    }
    if (cli->options.json) {
        (void)json_array_append_new(jobs, json_from_message(&job->base));
    } else {
        printf("%s\n", job->id);
        (void)fflush(stdout); /* the ids of those that are there, if a later one is refused */
    }
    control_free(job);
    return EXIT_OK;
}

static int array_run(struct cli *cli, Tidepool__V1__Command *command)
{
    json_t *jobs = json_array();
    int exit_code = EXIT_OK;
    for (int64_t i = 0; exit_code == EXIT_OK && i < cli->options.array; i++) {
        exit_code = array_submit(cli, command, i, jobs);
    }
    if (cli->options.json && exit_code == EXIT_OK) {
        return cli_write_json(cli, json_pack("{s:o}", "jobs", jobs));
    }
    json_decref(jobs);
    return exit_code;
}

int cli_run(struct cli *cli)
{
    struct error error = {0};
    struct command_texts texts;
    Tidepool__V1__Command command = TIDEPOOL__V1__COMMAND__INIT;
    int exit_code;
    if (cli->options.array > 0 && !cli->options.detach) {
        return cli_fail_usage(cli, "--array wants --detach: the outputs of several jobs are not "
                                   "mixed; 'tidepool logs' shows each");
    }
    settings_take(cli, &command);
    if (places_take(cli, &texts, &command, &error) < 0 ||
        times_take(cli, &texts, &command, &error) < 0) {
        return cli_fail_usage(cli, "%s", error.text);
    }
    if (environment_take(&command) < 0) {
        (void)error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory");
        return cli_fail(cli, &error);
    }
    exit_code = cli->options.array > 0 ? array_run(cli, &command) : run_submit(cli, &command);
    free(command.environment);
    return exit_code;
}
