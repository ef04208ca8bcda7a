#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/commands_outside.h"
#include "clients/common/view.h"
#include "server/base/json_message.h"
#include "server/base/options.h"

#define SPEC_BYTES_MAX (1u << 20)
#define PROGRESS_INTERVAL_MS 500

/* ---- waiting
 * ------------------------------------------------------------------------------------- */

struct job_wait {
    const char *id;
    json_t *last;       /* the job as JSON, for --json */
    int exit_code;      /* of a job that is over */
    bool json, shown;   /* shown: a progress line stands on the terminal */
    bool over, outside; /* outside: a program of one's own */
    Tidepool__V1__JobState state;
    char reason[512];
};

static void progress_show(struct job_wait *wait, const Tidepool__V1__Job *job)
{
    struct text_small loss, rate;
    if (!isatty(STDERR_FILENO) || job->command != NULL) {
        return;
    }
    fprintf(stderr, "\r%s %s  step %" PRIu64 "/%" PRIu64 "  loss %s  %s steps/s\033[K", job->id,
            control_job_state(job), job->step, job->steps, text_figure(&loss, job->loss_last, 4),
            text_figure(&rate, job->steps_per_s, 1));
    wait->shown = true;
}

static bool on_job_change(void *context, const Tidepool__V1__Change *change)
{
    struct job_wait *wait = context;
    if (change->object_case == TIDEPOOL__V1__CHANGE__OBJECT_REMOVED &&
        strcmp(change->removed->job, wait->id) == 0) {
        wait->over = true;
        wait->state = TIDEPOOL__V1__JOB_STATE__JOB_STATE_CANCELLED;
        wait->exit_code = EXIT_FAILED;
        snprintf(wait->reason, sizeof(wait->reason), "the server has forgotten it");
        return false;
    }
    if (change->object_case != TIDEPOOL__V1__CHANGE__OBJECT_JOB ||
        strcmp(change->job->id, wait->id) != 0) {
        return true;
    }
    progress_show(wait, change->job);
    if (!control_job_over(change->job)) {
        return true;
    }
    wait->over = true;
    wait->outside = change->job->command != NULL;
    wait->exit_code = cli_job_exit(change->job);
    wait->state = change->job->state;
    snprintf(wait->reason, sizeof(wait->reason), "%s", change->job->reason);
    if (wait->json) {
        wait->last = json_from_message(&change->job->base);
    }
    return false;
}

static int wait_report(struct cli *cli, struct job_wait *wait)
{
    bool finished = wait->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_FINISHED;
    bool failed = wait->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_FAILED;
    if (cli->options.json) {
        cli_write_json(cli, wait->last != NULL ? wait->last : json_object());
        wait->last = NULL;
    } else if (finished && !wait->outside) {
        printf("%s finished\n", wait->id);
    }
    if (!finished && wait->outside && wait->reason[0] != '\0') {
        fprintf(stderr, "tidepool %s: job %s: %s\n", cli->command, wait->id, wait->reason);
    } else if (!finished) {
        fprintf(stderr, "tidepool %s: job %s %s%s%s\n", cli->command, wait->id,
                failed ? "failed" : "was cancelled", wait->reason[0] != '\0' ? ": " : "",
                wait->reason);
    }
    return wait->exit_code;
}

int cli_wait_job(struct cli *cli, const char *job)
{
    struct error error = {0};
    struct job_wait wait = {.id = job, .json = cli->options.json};
    uint64_t timeout_ns = (uint64_t)(cli->options.timeout_s * 1e9); /* 0: none */
    cli_catch_signals(cli);
    int result =
        control_watch(cli->client, PROGRESS_INTERVAL_MS, timeout_ns, on_job_change, &wait, &error);
    if (wait.shown) {
        fprintf(stderr, "\n");
    }
    if (result == 0 && !wait.over) {
        result = error_set(&error, ERROR_UNAVAILABLE,
                           "the server ended the watch before job %s "
                           "was over",
                           job);
    }
    if (result == 0) {
        return wait_report(cli, &wait);
    }
    json_decref(wait.last);
    error_prefix(&error,
                 "job %s goes on without this command ('tidepool wait %s' waits again, "
                 "'tidepool cancel %s' ends it)",
                 job, job, job);
    return cli_fail(cli, &error);
}

/* ---- submit
 * --------------------------------------------------------------------------------------- */

/* Checks that the file holds one JSON object here, where the file's name is known; what is in it
 * the server checks. Returns its text. */
static char *spec_read(const char *path, struct error *error)
{
    json_t *spec = options_parse_file(path, error);
    if (spec == NULL) {
        return NULL;
    }
    char *text = json_is_object(spec) ? json_dumps(spec, JSON_COMPACT) : NULL;
    if (text == NULL) {
        error_set(error, ERROR_INVALID_ARGUMENT, "job '%s': is not a JSON object", path);
    } else if (strlen(text) > SPEC_BYTES_MAX) {
        error_set(error, ERROR_INVALID_ARGUMENT, "job '%s': has %zu bytes, the limit is %u", path,
                  strlen(text), SPEC_BYTES_MAX);
        free(text);
        text = NULL;
    }
    json_decref(spec);
    return text;
}

static int submit_dry_run(struct cli *cli, Tidepool__V1__SubmitJobRequest *submit)
{
    Tidepool__V1__DryRunRequest request = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    request.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SUBMIT_JOB;
    request.submit_job = submit;
    return cli_dry_run(cli, &request);
}

static int submit_run(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__SubmitJobRequest request = TIDEPOOL__V1__SUBMIT_JOB_REQUEST__INIT;
    Tidepool__V1__Job *job = NULL;
    char *text = spec_read(cli->arguments[0], &error);
    if (text == NULL) {
        return cli_fail_usage(cli, "%s", error.text);
    }
    request.spec_json = text;
    char request_id[129];
    if (cli->options.request_id != NULL) {
        snprintf(request_id, sizeof(request_id), "%s", cli->options.request_id);
        request.request_id = request_id;
    }
    int exit_code;
    if (cli->options.request_id != NULL && strlen(cli->options.request_id) >= sizeof(request_id)) {
        exit_code = cli_fail_usage(cli, "--request-id: at most 128 bytes");
    } else if (cli->options.dry_run) {
        exit_code = submit_dry_run(cli, &request);
    } else if (cli_call(cli, "SubmitJob", &request.base, &job, &error) < 0) {
        exit_code = cli_fail(cli, &error);
    } else if (cli->options.wait) {
        fprintf(stderr, "submitted %s\n", job->id);
        exit_code = cli_wait_job(cli, job->id);
    } else if (cli->options.json) {
        exit_code = cli_write_message(cli, &job->base);
    } else {
        printf("%s\n", job->id);
        exit_code = EXIT_OK;
    }
    control_free(job);
    free(text);
    return exit_code;
}

/* ---- the others
 * ------------------------------------------------------------------------------------ */

static int jobs_run(struct cli *cli)
{
    if (cli->argument_count == 1) {
        return cli_story(cli);
    }
    struct error error = {0};
    struct view view = {0};
    Tidepool__V1__ListJobsRequest request = TIDEPOOL__V1__LIST_JOBS_REQUEST__INIT;
    request.active_only = cli->options.active;
    if (cli_call(cli, "ListJobs", &request.base, &view.jobs, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &view.jobs->base);
    } else {
        struct view_style style = {.columns = 512, .colour = terminal_has_colour(STDOUT_FILENO)};
        view_draw_jobs(stdout, &view, &style, UINT32_MAX);
    }
    view_release(&view);
    return exit_code;
}

static int job_change(struct cli *cli, const char *method, ProtobufCMessage *request)
{
    struct error error = {0};
    Tidepool__V1__Job *job = NULL;
    if (cli_call(cli, method, request, &job, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &job->base);
    } else {
        printf("%s %s at step %" PRIu64 "\n", job->id, control_job_state(job), job->step);
    }
    control_free(job);
    return exit_code;
}

/* The generated messages want char *; none of them writes to it. */
static char *job_argument(struct cli *cli)
{
    return (char *)(uintptr_t)cli->arguments[0];
}

static int cancel_run(struct cli *cli)
{
    Tidepool__V1__CancelJobRequest request = TIDEPOOL__V1__CANCEL_JOB_REQUEST__INIT;
    request.job = job_argument(cli);
    Tidepool__V1__DryRunRequest dry = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    dry.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_CANCEL_JOB;
    dry.cancel_job = &request;
    return cli->options.dry_run ? cli_dry_run(cli, &dry)
                                : job_change(cli, "CancelJob", &request.base);
}

static int pause_run(struct cli *cli)
{
    Tidepool__V1__PauseJobRequest request = TIDEPOOL__V1__PAUSE_JOB_REQUEST__INIT;
    request.job = job_argument(cli);
    Tidepool__V1__DryRunRequest dry = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    dry.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_PAUSE_JOB;
    dry.pause_job = &request;
    return cli->options.dry_run ? cli_dry_run(cli, &dry)
                                : job_change(cli, "PauseJob", &request.base);
}

static int resume_run(struct cli *cli)
{
    Tidepool__V1__ResumeJobRequest request = TIDEPOOL__V1__RESUME_JOB_REQUEST__INIT;
    request.job = job_argument(cli);
    Tidepool__V1__DryRunRequest dry = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    dry.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_RESUME_JOB;
    dry.resume_job = &request;
    return cli->options.dry_run ? cli_dry_run(cli, &dry)
                                : job_change(cli, "ResumeJob", &request.base);
}

static int wait_run(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__GetJobRequest request = TIDEPOOL__V1__GET_JOB_REQUEST__INIT;
    Tidepool__V1__Job *job = NULL;
    request.job = job_argument(cli);
    if (cli_call(cli, "GetJob", &request.base, &job, &error) < 0) {
        return cli_fail(cli, &error); /* a job that is not there is not waited for */
    }
    int exit_code = cli_wait_job(cli, job->id);
    control_free(job);
    return exit_code;
}

static const struct command commands[] = {
    {"submit", "FILE.json", "start an in-process training job", 1, 1,
     OPTION_WAIT | OPTION_REQUEST | OPTION_DRY_RUN, submit_run},
    {"jobs", "[JOB]", "jobs and how far they are; of one its story", 0, 1, OPTION_ACTIVE, jobs_run},
    {"wait", "JOB", "until the job is over; the exit code tells how it went", 1, 1, 0, wait_run},
    {"pause", "JOB", "take its devices until resume; nothing is lost", 1, 1, OPTION_DRY_RUN,
     pause_run},
    {"resume", "JOB", "let a paused job go on", 1, 1, OPTION_DRY_RUN, resume_run},
    {"cancel", "JOB", "end a job; its checkpoints stay", 1, 1, OPTION_DRY_RUN, cancel_run},
};
const struct command_group commands_jobs = {"Training", commands,
                                            sizeof(commands) / sizeof(commands[0])};
