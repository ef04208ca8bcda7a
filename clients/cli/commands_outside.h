/* commands_outside.h: the commands about jobs of one's own programs.
 * Thread:  one. */
#ifndef TIDEPOOL_CLI_COMMANDS_OUTSIDE_H
#define TIDEPOOL_CLI_COMMANDS_OUTSIDE_H

#include "clients/cli/cli.h"

int cli_run(struct cli *cli);
int cli_report(struct cli *cli);
int cli_doctor(struct cli *cli);
/* The story of the job that the first argument names. */
int cli_story(struct cli *cli);

/* How a run ended: "completed", "killed at deadline". Never NULL. */
const char *cli_exit_class(const Tidepool__V1__Job *job);
/* One line on stderr, unless the job has completed. */
void cli_end_print(const struct cli *cli, const Tidepool__V1__Job *job);

#endif
