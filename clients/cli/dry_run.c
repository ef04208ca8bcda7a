/* dry_run.c: what a change would bring, as the server tells it. */
#include <math.h>

#include "clients/cli/cli.h"
#include "clients/common/terminal.h"

static void head_print(const Tidepool__V1__DryRunRequest *request,
                       const Tidepool__V1__DryRunResponse *answer)
{
    struct text_small time;
    bool starts = request->change_case == TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SUBMIT_JOB ||
                  request->change_case == TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_RESUME_JOB;
    if (answer->refused[0] != '\0') {
        return;
    }
    if (starts && isnan(answer->starts_after_s)) {
        printf("would not start within %s\n",
               text_duration(&time, (uint64_t)(answer->horizon_s * 1e9)));
    } else if (starts && answer->starts_after_s == 0) {
        printf("would start at once\n");
    } else if (starts) {
        printf("would start after %s\n",
               text_duration(&time, (uint64_t)(answer->starts_after_s * 1e9)));
    }
}

void cli_tell_dry_run(const Tidepool__V1__DryRunResponse *answer)
{
    if (answer->refused[0] != '\0') {
        printf("would be refused: %s\n", answer->refused);
    }

    for (size_t i = 0; i < answer->n_moves; i++) {
        const Tidepool__V1__DryRunMove *move = answer->moves[i];
        printf("%8.2f s  %s%s\n", move->after_s, move->move->text,
               move->anyway ? " (also without this)" : "");
    }
    if (answer->n_moves == 0) {
        printf("nothing would move\n");
    }
}

int cli_dry_run(struct cli *cli, Tidepool__V1__DryRunRequest *request)
{
    struct error error = {0};
    Tidepool__V1__DryRunResponse *answer = NULL;
    if (cli_call(cli, "DryRun", &request->base, &answer, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &answer->base);
    } else {
        head_print(request, answer);
        cli_tell_dry_run(answer);
    }
    control_free(answer);
    return exit_code;
}
