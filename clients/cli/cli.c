#include "clients/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clients/common/address.h"
#include "server/base/clock.h"
#include "server/base/json_message.h"

#define CALL_TIMEOUT_S 30.0

uint64_t cli_timeout_ns(const struct cli *cli)
{
    double seconds = cli->options.timeout_s > 0 ? cli->options.timeout_s : CALL_TIMEOUT_S;
    return (uint64_t)(seconds * 1e9);
}

int cli_connect(struct cli *cli, struct error *error)
{
    if (cli->client != NULL) {
        return 0;
    }
    if (cli->options.server != NULL) {
        snprintf(cli->address, sizeof(cli->address), "%s", cli->options.server);
    } else {
        address_default(cli->address, sizeof(cli->address));
    }
    struct grpc_client_options options = {.address = cli->address, .token = cli->options.token};
    int result = grpc_client_create(&options, &cli->client, error);
    if (result == 0) {
        grpc_client_set_wake_fd(cli->client, cli->signal_fd);
    }
    return result;
}

int cli_call(struct cli *cli, const char *method, const ProtobufCMessage *request,
             void *ret_message, struct error *error)
{
    int result = cli_connect(cli, error);
    if (result < 0) {
        return result;
    }
    result = control_call(cli->client, method, request, cli_timeout_ns(cli), ret_message, error);
    if (result == -(int)ERROR_UNIMPLEMENTED) {
        error_prefix(error,
                     "%s does not offer this call of the control API; its address may be "
                     "another one (tidepoold says it when it starts; --server takes it)",
                     cli->address);
    }
    return result;
}

static int fail(struct cli *cli, const char *code, const char *text, int exit_code)
{
    fflush(stdout);
    fprintf(stderr, "tidepool %s: %s\n", cli->command, text);
    if (cli->options.json && !cli->json_written) {
        cli_write_json(cli, json_pack("{s:{s:s,s:o,s:i}}", "error", "code", code, "message",
                                      json_from_text(text), "exitCode", exit_code));
    }
    return exit_code;
}

int cli_fail(struct cli *cli, const struct error *error)
{
    int number = cli_signal(cli);
    int exit_code = number != 0 ? EXIT_SIGNAL + number : (int)exit_code_of(error);
    return fail(cli, error_code_name(error->code), error->text, exit_code);
}

int cli_fail_usage(struct cli *cli, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return fail(cli, "USAGE", text, EXIT_USAGE);
}

int cli_write_json(struct cli *cli, json_t *value)
{
    int result =
        value == NULL ? -1 : json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    putchar('\n');
    json_decref(value);
    cli->json_written = true;
    return result == 0 ? EXIT_OK : EXIT_OTHER;
}

int cli_write_message(struct cli *cli, const ProtobufCMessage *message)
{
    return cli_write_json(cli, json_from_message(message));
}

void cli_catch_signals(struct cli *cli)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    cli->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (cli->client != NULL) {
        grpc_client_set_wake_fd(cli->client, cli->signal_fd);
    }
}

int cli_signal(struct cli *cli)
{
    static int number; /* once seen it stays: several places ask */
    struct signalfd_siginfo info;
    if (number == 0 && cli->signal_fd >= 0 &&
        read(cli->signal_fd, &info, sizeof(info)) == sizeof(info)) {
        number = (int)info.ssi_signo;
    }
    return number;
}
