/* `tidepool`: the command line. Finds the command in the groups' tables, reads its options, runs it
 * and turns the result into an exit code. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "server/base/options.h"

#define FIELD(member) offsetof(struct cli_options, member)
static const struct argument options[] = {
    {"json", ARGUMENT_FLAG, FIELD(json), OPTION_COMMON, 0, 0, NULL,
     "one JSON document on stdout, also on failure"},
    {"server", ARGUMENT_TEXT, FIELD(server), OPTION_COMMON, 0, 0, "ADDRESS",
     "HOST:PORT or unix:PATH (default: TIDEPOOL_SERVER, else the local socket)"},
    {"token", ARGUMENT_TEXT, FIELD(token), OPTION_COMMON, 0, 0, "TOKEN",
     "bearer token for changes over TCP (default: TIDEPOOL_TOKEN)"},
    {"timeout", ARGUMENT_NUMBER, FIELD(timeout_s), OPTION_COMMON, 0.001, 1e8, "SECONDS",
     "give up after this time (default: 30 for a call, none for waiting on a job)"},
    {"help", ARGUMENT_FLAG, FIELD(help), OPTION_COMMON, 0, 0, NULL, "what this command does"},
    {"once", ARGUMENT_FLAG, FIELD(once), OPTION_ONCE, 0, 0, NULL, "one picture, then end"},
    {"interval", ARGUMENT_NUMBER, FIELD(interval_s), OPTION_ONCE, 0.1, 3600, "SECONDS",
     "time between pictures (default 0.5)"},
    {"wait", ARGUMENT_FLAG, FIELD(wait), OPTION_WAIT, 0, 0, NULL,
     "until the job is over; the exit code tells how it went"},
    {"request-id", ARGUMENT_TEXT, FIELD(request_id), OPTION_REQUEST, 0, 0, "ID",
     "the same id submitted again is the same job, not another one"},
    {"dry-run", ARGUMENT_FLAG, FIELD(dry_run), OPTION_DRY_RUN, 0, 0, NULL,
     "tell what it would bring, and change nothing"},
    {"active", ARGUMENT_FLAG, FIELD(active), OPTION_ACTIVE, 0, 0, NULL,
     "only jobs that are not over"},
    {"name", ARGUMENT_TEXT, FIELD(name), OPTION_SERVE, 0, 0, "NAME",
     "of the endpoint (default: from the file's name)"},
    {"slo-ms", ARGUMENT_NUMBER, FIELD(slo_ms), OPTION_SERVE | OPTION_SETTINGS, 0.001, 3.6e6, "MS",
     "promised latency (default: the model's own configuration, else 100)"},
    {"devices", ARGUMENT_RANGE, FIELD(devices), OPTION_SERVE | OPTION_SETTINGS, 0, 4096, "MIN:MAX",
     "how many devices serve it (default 0 to all)"},
    {"no-wait", ARGUMENT_FLAG, FIELD(no_wait), OPTION_NO_WAIT, 0, 0, NULL,
     "do not wait until the endpoint is ready"},
    {"reason", ARGUMENT_TEXT, FIELD(reason), OPTION_REASON, 0, 0, "TEXT",
     "shown by status and why"},
    {"actor", ARGUMENT_TEXT, FIELD(actor), OPTION_TERMS, 0, 0, "NAME",
     "who changes it (default: your user number)"},
    {"expires", ARGUMENT_NUMBER, FIELD(expires_s), OPTION_TERMS, 1, 31622400, "SECONDS",
     "then what the configuration says holds again (default: it stays)"},
    {"expected-revision", ARGUMENT_INT, FIELD(expected_revision), OPTION_TERMS, 1, 9e15, "N",
     "only if its settings have not been changed after this revision"},
    {"within", ARGUMENT_NUMBER, FIELD(within_s), OPTION_WITHIN, 0, 2592000, "SECONDS",
     "until the device is empty (default: as soon as its holders can)"},
    {"stays", ARGUMENT_FLAG, FIELD(stays), OPTION_WITHIN, 0, 0, NULL,
     "of reclaim: it is not wanted back any more"},
    {"weight", ARGUMENT_INT, FIELD(weight), OPTION_TEAM, 1, 1000000, "N",
     "of a team: its share of what is beyond all quotas"},
    {"quota", ARGUMENT_LIST, FIELD(quotas), OPTION_TEAM, 0, 0, "KIND=DEVICES",
     "of a team: what it gets back whenever it wants them; more of them"},
    {"provider", ARGUMENT_TEXT, FIELD(provider), OPTION_ANNOUNCE, 0, 0, "NAME",
     "who has the devices on their way (default: cli)"},
    {"kind", ARGUMENT_TEXT, FIELD(kind), OPTION_ANNOUNCE, 0, 0, "KIND",
     "of the devices (default: cpu)"},
    {"within", ARGUMENT_NUMBER, FIELD(within_s), OPTION_ANNOUNCE, 0, 2592000, "SECONDS",
     "until the last of them is there"},
    {"lead", ARGUMENT_NUMBER, FIELD(lead_s), OPTION_ANNOUNCE, 0, 2592000, "SECONDS",
     "what one takes that is asked for now (default: planner.scale_lead_s)"},
    {"priority", ARGUMENT_INT, FIELD(endpoint_priority), OPTION_SETTINGS, 0, 100, "N",
     "higher goes first"},
    {"moves", ARGUMENT_INT, FIELD(moves), OPTION_WHY, 1, 1000, "N",
     "how many of the last moves (default 20)"},
    {"output", ARGUMENT_TEXT, FIELD(output), OPTION_INFER, 0, 0, "FILE",
     "write the result there instead of stdout"},
    {"devices", ARGUMENT_RANGE, FIELD(devices), OPTION_RUN, 1, 4096, "MIN:MAX",
     "how many devices, for example 2 or 1:4 (default 1)"},
    {"kind", ARGUMENT_TEXT, FIELD(kind), OPTION_RUN, 0, 0, "KIND", "of device (default: cpu)"},
    {"priority", ARGUMENT_INT, FIELD(priority), OPTION_RUN, 0, 100, "N",
     "higher goes first (default 0)"},
    {"name", ARGUMENT_TEXT, FIELD(name), OPTION_RUN, 0, 0, "NAME",
     "of the job (default: the program's)"},
    {"notice", ARGUMENT_NUMBER, FIELD(notice_s), OPTION_RUN, 0, 3600, "SECONDS",
     "told so long before devices are taken (default: the server's, 30)"},
    {"signal", ARGUMENT_TEXT, FIELD(notice_signal), OPTION_RUN, 0, 0, "NAME[@SECONDS]",
     "sent so long before that, if the program has a handler: USR1@60"},
    {"time", ARGUMENT_TEXT, FIELD(time), OPTION_RUN, 0, 0, "TIME",
     "of running, at most: 90, 30m, 2h (default: no bound)"},
    {"retries", ARGUMENT_INT, FIELD(retries), OPTION_RUN, 0, 100, "N",
     "runs again so often after a failure of its own (default 0)"},
    {"output", ARGUMENT_TEXT, FIELD(output), OPTION_RUN, 0, 0, "FILE",
     "the output is also appended to it, without a bound"},
    {"directory", ARGUMENT_TEXT, FIELD(directory), OPTION_RUN, 0, 0, "FOLDER",
     "to run in (default: this one)"},
    {"no-freeze", ARGUMENT_FLAG, FIELD(no_freeze), OPTION_RUN, 0, 0, NULL,
     "never stop it in place: it talks to what does not wait"},
    {"detach", ARGUMENT_FLAG, FIELD(detach), OPTION_RUN, 0, 0, NULL,
     "print the job's id and end; the job goes on", 'd'},
    {"team", ARGUMENT_TEXT, FIELD(team), OPTION_RUN, 0, 0, "TEAM",
     "whose share and quota of the devices it uses"},
    {"array", ARGUMENT_INT, FIELD(array), OPTION_RUN, 1, 1000, "N",
     "N jobs, told apart by ARRAY_INDEX (0 to N - 1); with --detach"},
    {"follow", ARGUMENT_FLAG, FIELD(follow), OPTION_LOGS, 0, 0, NULL,
     "go on until the job has ended", 'f'},
    {"run", ARGUMENT_INT, FIELD(run), OPTION_LOGS, 1, 4e9, "N",
     "from its Nth run on (default: the first that is kept)"},
    {"tail", ARGUMENT_INT, FIELD(tail_bytes), OPTION_LOGS, 1, 9e15, "BYTES",
     "only the last bytes of its last run"},
    {"all", ARGUMENT_FLAG, FIELD(all), OPTION_SIGNAL, 0, 0, NULL,
     "to each of its processes (default: the first one)"},
    {"step", ARGUMENT_INT, FIELD(step), OPTION_REPORT, 0, 1e15, "N", "steps done"},
    {"checkpointed-step", ARGUMENT_INT, FIELD(checkpointed_step), OPTION_REPORT, 0, 1e15, "N",
     "it can go on from there (alone: --step is the same)"},
    {"waiting", ARGUMENT_NUMBER, FIELD(waiting_s), OPTION_REPORT, 0, 1e9, "SECONDS",
     "spent waiting for data since the last report"},
    {"metric", ARGUMENT_LIST, FIELD(metrics), OPTION_REPORT, 0, 0, "NAME=NUMBER",
     "for example loss=0.3; more of them"},
    {"acknowledge", ARGUMENT_FLAG, FIELD(acknowledge), OPTION_REPORT, 0, 0, NULL,
     "what must be kept is saved: the notice's devices may be taken now"},
    {"extend", ARGUMENT_NUMBER, FIELD(extend_s), OPTION_REPORT, 0.001, 86400, "SECONDS",
     "ask, once per notice, for more time"},
};

static const struct command_group *const groups[] = {
    &commands_status,  &commands_outside,  &commands_jobs, &commands_endpoints,
    &commands_devices, &commands_settings, &commands_sim};
#define GROUP_COUNT (sizeof(groups) / sizeof(groups[0]))

static const struct {
    const char *code, *meaning;
} exit_codes[] = {
    {"0", "success"},
    {"any", "run, wait: the program's own exit code"},
    {"1", "the job that was waited for failed or was cancelled"},
    {"2", "the command line is wrong"},
    {"121", "the job was preempted and will not go on by itself"},
    {"122", "the server refused the request"},
    {"123", "no server could be reached, or it went away"},
    {"124", "time-out"},
    {"125", "another failure of Tidepool"},
    {"126", "run: the program cannot be executed; 127: there is none of that name"},
    {"128+n", "ended by signal n (130: Ctrl-C, 141: the reader of the output went away)"},
};

static struct arguments arguments_shared(const char *where, uint32_t accepted)
{
    return (struct arguments){.table = options,
                              .count = sizeof(options) / sizeof(options[0]),
                              .groups = accepted,
                              .where = where};
}

static struct arguments arguments_of(const struct command *command)
{
    const struct command_options *own = command->own;
    if (own != NULL) {
        return (struct arguments){own->table, own->count, UINT32_MAX, command->name};
    }
    struct arguments shared = arguments_shared(command->name, OPTION_COMMON | command->options);
    shared.first_ends = (command->options & OPTION_COMMAND) != 0;
    return shared;
}

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < GROUP_COUNT; i++) {
        for (size_t j = 0; j < groups[i]->count; j++) {
            if (strcmp(groups[i]->commands[j].name, name) == 0) {
                return &groups[i]->commands[j];
            }
        }
    }
    return NULL;
}

static void help_print(FILE *out)
{
    struct arguments common = arguments_shared("tidepool", OPTION_COMMON);
    fprintf(out, "usage: tidepool COMMAND [ARGUMENTS] [OPTIONS]\n");
    for (size_t i = 0; i < GROUP_COUNT; i++) {
        fprintf(out, "\n%s\n", groups[i]->title);
        for (size_t j = 0; j < groups[i]->count; j++) {
            const struct command *command = &groups[i]->commands[j];
            char left[64];
            snprintf(left, sizeof(left), "%s %s", command->name, command->arguments);
            fprintf(out, "  %-24s %s\n", left, command->help);
        }
    }
    fprintf(out, "\nOptions of every command (more: tidepool help COMMAND)\n");
    arguments_print(&common, out);
    fprintf(out, "\nExit codes\n");
    for (size_t i = 0; i < sizeof(exit_codes) / sizeof(exit_codes[0]); i++) {
        fprintf(out, "  %-6s %s\n", exit_codes[i].code, exit_codes[i].meaning);
    }
}

static void command_help_print(const struct command *command, FILE *out)
{
    struct arguments own = arguments_of(command);
    fprintf(out,
            own.first_ends ? "usage: tidepool %s [OPTIONS] %s\n%s\n\n"
                           : "usage: tidepool %s %s [OPTIONS]\n%s\n\n",
            command->name, command->arguments, command->help);
    arguments_print(&own, out);
}

static int command_unknown(struct cli *cli, const char *name)
{
    const char *names[64];
    size_t count = 0;
    for (size_t i = 0; i < GROUP_COUNT; i++) {
        for (size_t j = 0; j < groups[i]->count && count < 64; j++) {
            names[count++] = groups[i]->commands[j].name;
        }
    }
    const char *nearest = options_nearest(name, names, count);
    cli->command = "help";
    return nearest != NULL
               ? cli_fail_usage(cli, "no command '%s'; do you mean '%s'?", name, nearest)
               : cli_fail_usage(cli, "no command '%s'; 'tidepool help' lists them", name);
}

static int help_run(struct cli *cli, int argc, char **argv)
{
    const struct command *command = argc > 0 ? command_find(argv[0]) : NULL;
    if (argc > 0 && command == NULL) {
        return command_unknown(cli, argv[0]);
    }
    if (command != NULL) {
        command_help_print(command, stdout);
    } else {
        help_print(stdout);
    }
    return EXIT_OK;
}

/* --json counts for the error of a command line that cannot be read, too. */
static bool json_asked(int argc, char **argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            return true;
        }
    }
    return false;
}

static int command_run(struct cli *cli, const struct command *command, int argc, char **argv)
{
    struct error error = {0};
    struct arguments own = arguments_of(command);
    void *target = &cli->options;
    cli->command = command->name;
    if (command->own != NULL) {
        command->own->reset();
        target = command->own->target;
        cli->options.json = false; /* its --json is its own */
    }
    if (own.first_ends) {
        cli->options.json = false; /* a --json behind it is another program's */
    }
    if (arguments_parse(&own, argc, argv, target, cli->arguments, &cli->argument_count, &error) <
        0) {
        const char *text = error.text + strlen(command->name) + 2; /* it is named already */
        return cli_fail_usage(cli, "%s", text);
    }
    if (command->own != NULL ? *command->own->help : cli->options.help) {
        command_help_print(command, stdout);
        return EXIT_OK;
    }
    if (cli->argument_count < command->arguments_min ||
        cli->argument_count > command->arguments_max) {
        return cli_fail_usage(cli, "wants '%s', got %zu argument%s; see --help", command->arguments,
                              cli->argument_count, cli->argument_count == 1 ? "" : "s");
    }
    if (cli->options.token == NULL) {
        cli->options.token = getenv("TIDEPOOL_TOKEN");
    }
    return command->run(cli);
}

/* What could not be written is a failure, but a reader that went away is none of our errors. */
static int output_finish(int exit_code)
{
    errno = 0;
    if (fflush(stdout) == 0 && ferror(stdout) == 0) {
        return exit_code;
    }
    if (errno == EPIPE) {
        return EXIT_SIGNAL + SIGPIPE;
    }
    fprintf(stderr, "tidepool: write the output: %s\n", strerror(errno));
    return EXIT_OTHER;
}

int main(int argc, char **argv)
{
    struct cli cli = {.command = "help",
                      .signal_fd = -1,
                      .options = {.notice_s = -1,
                                  .step = -1,
                                  .checkpointed_step = -1,
                                  .waiting_s = -1,
                                  .endpoint_priority = -1}};
    int exit_code;
    if (argc < 2) {
        help_print(stderr);
        return EXIT_USAGE;
    }
    cli.options.json = json_asked(argc, argv);
    cli.arguments = calloc((size_t)argc, sizeof(*cli.arguments));
    if (cli.arguments == NULL) {
        fprintf(stderr, "tidepool: no memory\n");
        return EXIT_OTHER;
    }
    const struct command *command = command_find(argv[1]);
    if (command != NULL) {
        exit_code = command_run(&cli, command, argc - 2, argv + 2);
    } else if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        exit_code = help_run(&cli, argc - 2, argv + 2);
    } else {
        exit_code = command_unknown(&cli, argv[1]);
    }
    grpc_client_destroy(cli.client);
    if (cli.signal_fd >= 0) {
        close(cli.signal_fd);
    }
    free(cli.arguments);
    return output_finish(exit_code);
}
