/* tidepool jobs ID: what has become of a job, as a story. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clients/cli/commands_outside.h"
#include "server/base/json_message.h"

#define MOVES_MAX 100
#define WAITING_WORTH_SAYING 0.1

static void clock_print(uint64_t wall_ns)
{
    char text[32];
    struct tm broken;
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    (void)localtime_r(&seconds, &broken);
    (void)strftime(text, sizeof(text), "%F %T", &broken);
    printf("%s.%03u", text, (unsigned)(wall_ns / 1000000u % 1000));
}

static void line_time(const char *what, uint64_t wall_ns)
{
    if (wall_ns != 0) {
        printf("  %-12s ", what);
        clock_print(wall_ns);
        printf("\n");
    }
}

/* As one would type it. */
static void command_print(const Tidepool__V1__Command *command)
{
    printf("  %-12s", "command");
    for (size_t i = 0; i < command->n_arguments; i++) {
        const char *text = command->arguments[i];
        bool plain = text[0] != '\0' && strpbrk(text, " \t\n\"'\\$&|;<>()*?#~`") == NULL;
        printf(plain ? " %s" : " '%s'", text);
    }
    printf("\n  %-12s %s\n", "folder", command->working_directory);
}

static void state_print(const Tidepool__V1__Job *job)
{
    if (job->command != NULL && control_job_over(job) && job->reason[0] != '\0') {
        printf("%s: %s\n", job->id, job->reason); /* it says how it ended */
    } else {
        printf("%s: %s%s%s\n", job->id, control_job_state(job), job->reason[0] != '\0' ? ": " : "",
               job->reason);
    }
    if (job->n_devices > 0) {
        printf("  %-12s", "devices");
        for (size_t i = 0; i < job->n_devices; i++) {
            printf(" %s", job->devices[i]);
        }
        printf("\n");
    }
    if (job->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_WAITING &&
        isfinite(job->expected_wait_s)) {
        printf("  %-12s about %.0f s until it starts\n", "waits", job->expected_wait_s);
    }
    if (job->notice_deadline_wall_ns != 0) {
        printf("  %-12s ", "notice until");
        clock_print(job->notice_deadline_wall_ns);
        printf("%s%s\n", job->notice_reason[0] != '\0' ? ": " : "", job->notice_reason);
    }
}

/* What its ranks tell, and what may be done about it. */
static void ranks_print(const Tidepool__V1__Job *job)
{
    if (job->ranks > 1) {
        printf("  %-12s %u of %u are connected\n", "ranks", job->ranks_here, job->ranks);
    }
    if (job->waiting_fraction >= WAITING_WORTH_SAYING) { /* not NaN */
        printf("  %-12s %.0f %% of its time for data or a peer; more loader workers may help\n",
               "waits", 100 * job->waiting_fraction);
    }
    if (job->slowest_step_s > 0) {
        printf("  %-12s %.4g s", "a step", job->slowest_step_s);
        if (job->ranks > 1) {
            printf(" on rank %u, the slowest", job->slowest_rank);
            if (job->slowest_rank < job->n_devices && job->ranks == job->n_devices) {
                printf(" (%s)", job->devices[job->slowest_rank]);
            }
        }
        printf("\n");
    }
}

static void progress_print(const Tidepool__V1__Job *job)
{
    if (job->step > 0 || job->steps > 0) {
        printf("  %-12s %" PRIu64, "step", job->step);
        if (job->steps > 0) {
            printf(" of %" PRIu64, job->steps);
        }
        printf(", saved %" PRIu64 "\n", job->checkpointed_step);
    }
    if (job->command == NULL) {
        return;
    }
    ranks_print(job);
    printf("  %-12s %u, %u of them failures of its own\n", "runs", job->runs, job->failures);
    printf("  %-12s %.1f device-seconds lost, stood still for %.1f s\n", "cost", job->lost_s,
           job->suspended_s);
    if (job->exit_class != TIDEPOOL__V1__EXIT_CLASS__EXIT_CLASS_UNSPECIFIED) {
        printf("  %-12s %s, exit code %d\n", "last run", cli_exit_class(job), job->exit_code);
    }
    if (job->log_path[0] != '\0') {
        printf("  %-12s %s\n", "output", job->log_path);
    }
}

static void moves_print(const Tidepool__V1__ExplainResponse *explained)
{
    for (size_t i = explained->n_moves; i > 0; i--) { /* they come newest first */
        const Tidepool__V1__Move *move = explained->moves[i - 1];
        printf("  ");
        clock_print(move->time_wall_ns);
        printf("  %s\n", move->text);
    }
}

static json_t *story_json(const Tidepool__V1__Job *job,
                          const Tidepool__V1__ExplainResponse *explained)
{
    return json_pack("{s:o,s:o}", "job", json_from_message(&job->base), "explained",
                     json_from_message(&explained->base));
}

static int story_fetch(struct cli *cli, Tidepool__V1__Job **ret_job,
                       Tidepool__V1__ExplainResponse **ret_explained, struct error *error)
{
    Tidepool__V1__GetJobRequest request = TIDEPOOL__V1__GET_JOB_REQUEST__INIT;
    Tidepool__V1__ExplainRequest explain = TIDEPOOL__V1__EXPLAIN_REQUEST__INIT;
    request.job = explain.job = (char *)(uintptr_t)cli->arguments[0]; /* only read */
    explain.moves_max = MOVES_MAX;
    int result = cli_call(cli, "GetJob", &request.base, ret_job, error);
    return result < 0 ? result : cli_call(cli, "Explain", &explain.base, ret_explained, error);
}

int cli_story(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__Job *job = NULL;
    Tidepool__V1__ExplainResponse *explained = NULL;
    int exit_code = EXIT_OK;
    if (story_fetch(cli, &job, &explained, &error) < 0) {
        exit_code = cli_fail(cli, &error);
    } else if (cli->options.json) {
        exit_code = cli_write_json(cli, story_json(job, explained));
    } else {
        state_print(job);
        if (job->command != NULL) {
            command_print(job->command);
        }
        line_time("submitted", job->submitted_wall_ns);
        line_time("started", job->started_wall_ns);
        line_time("ended", job->finished_wall_ns);
        progress_print(job);
        moves_print(explained);
    }
    control_free(explained);
    control_free(job);
    return exit_code;
}
