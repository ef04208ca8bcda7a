/* cli.h: what all commands of `tidepool` share: the command line that was read, the connection, and
 * the ways to end.
 * Commands: a table per group (commands_*.c); `run` returns the exit code.
 * Output:   data to stdout, errors to stderr; with --json stdout always holds one valid JSON
 *           document, also on failure: {"error": {"code", "message", "exitCode"}}.
 * Exit:     exit_code.h, printed by `tidepool help`.
 * Thread:   one. */
#ifndef TIDEPOOL_CLI_CLI_H
#define TIDEPOOL_CLI_CLI_H

#include <jansson.h>

#include "clients/common/arguments.h"
#include "clients/common/control.h"
#include "clients/common/exit_code.h"

/* Options; a command accepts those of its bits. */
enum {
    OPTION_COMMON = 1u << 0,
    OPTION_ONCE = 1u << 1,
    OPTION_WAIT = 1u << 2,
    OPTION_REQUEST = 1u << 3,
    OPTION_ACTIVE = 1u << 4,
    OPTION_SERVE = 1u << 5,
    OPTION_NO_WAIT = 1u << 6,
    OPTION_REASON = 1u << 7,
    OPTION_WHY = 1u << 8,
    OPTION_INFER = 1u << 9,
    OPTION_DRY_RUN = 1u << 10,
    OPTION_RUN = 1u << 11,
    OPTION_COMMAND = 1u << 12, /* the first positional begins a command of its own */
    OPTION_LOGS = 1u << 13,
    OPTION_SIGNAL = 1u << 14,
    OPTION_REPORT = 1u << 15,
    OPTION_TERMS = 1u << 20, /* --reason comes with OPTION_REASON */
    OPTION_WITHIN = 1u << 21,
    OPTION_SETTINGS = 1u << 22,
    OPTION_TEAM = 1u << 23,
    OPTION_ANNOUNCE = 1u << 24,
};

struct cli_options {
    bool json, help, once, wait, no_wait, active, dry_run, stays;
    const char *actor;
    double expires_s, within_s;
    int64_t expected_revision;
    int64_t endpoint_priority; /* -1: not given */
    int64_t weight;            /* 0: not given */
    const char *provider;
    double lead_s;
    struct argument_list quotas;
    const char *server, *token, *request_id, *name, *reason, *output;
    double timeout_s, slo_ms, interval_s;
    int64_t moves;
    struct argument_range devices;
    /* Of jobs of one's own programs. */
    bool no_freeze, detach, follow, all, acknowledge;
    const char *kind, *notice_signal, *time, *directory, *team;
    double notice_s, extend_s, waiting_s;
    int64_t priority, retries, array, run, tail_bytes, step, checkpointed_step;
    struct argument_list metrics;
};

struct cli {
    const char *command;
    struct cli_options options;
    const char **arguments; /* positional */
    size_t argument_count;
    char address[256];
    struct grpc_client *client; /* NULL until cli_connect */
    int signal_fd;              /* -1 until cli_catch_signals */
    bool json_written;
};

/* Options of one command alone, instead of those that commands share. */
struct command_options {
    const struct argument *table;
    size_t count;
    void *target;
    bool *help;          /* in the target: --help */
    void (*reset)(void); /* before they are read */
};

struct command {
    const char *name, *arguments, *help;
    unsigned arguments_min, arguments_max;
    uint32_t options;
    int (*run)(struct cli *cli);
    const struct command_options *own; /* NULL: the shared ones, by `options` */
};

struct command_group {
    const char *title;
    const struct command *commands;
    size_t count;
};
extern const struct command_group commands_status, commands_jobs, commands_outside,
    commands_devices, commands_endpoints, commands_settings, commands_sim;

uint64_t cli_timeout_ns(const struct cli *cli); /* of one call: --timeout, else 30 s */
int cli_connect(struct cli *cli, struct error *error);
/* Connects if need be and calls the control API; errors as control_call. */
int cli_call(struct cli *cli, const char *method, const ProtobufCMessage *request,
             void *ret_message, struct error *error);

/* Ends a command: says the error and returns its exit code. */
int cli_fail(struct cli *cli, const struct error *error);
int cli_fail_usage(struct cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Writes the one JSON document of the command; takes over `value`. Returns EXIT_OK or EXIT_OTHER.
 */
int cli_write_json(struct cli *cli, json_t *value);
/* cli_write_json of a message. */
int cli_write_message(struct cli *cli, const ProtobufCMessage *message);

/* SIGINT and SIGTERM end blocking calls with CANCELLED instead of the program, so that it can say
 * what goes on without it or give the terminal back. */
void cli_catch_signals(struct cli *cli);
int cli_signal(struct cli *cli); /* the signal that came, 0: none */

/* A setting changed while the server runs: of the device or endpoint that the arguments name. */
int cli_change_device(struct cli *cli);
int cli_set_endpoint(struct cli *cli);
int cli_announce(struct cli *cli);

/* Prints what a trial has found. */
void cli_tell_dry_run(const Tidepool__V1__DryRunResponse *would);
/* Shows what the change in the request would bring; an exit code. */
int cli_dry_run(struct cli *cli, Tidepool__V1__DryRunRequest *request);
/* The exit code of a job that is over: of a program its own, or what became of it. */
int cli_job_exit(const Tidepool__V1__Job *job);
/* Waits until the job is over, showing its progress on stderr; returns the exit code. */
int cli_wait_job(struct cli *cli, const char *job);

#endif
