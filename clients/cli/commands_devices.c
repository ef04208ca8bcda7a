#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/common/view.h"
#include "server/base/clock.h"

static int devices_run(struct cli *cli)
{
    if (cli->argument_count > 0) {
        return cli_change_device(cli);
    }
    struct error error = {0};
    Tidepool__V1__ListDevicesRequest request = TIDEPOOL__V1__LIST_DEVICES_REQUEST__INIT;
    Tidepool__V1__ListDevicesResponse *list = NULL;
    if (cli_call(cli, "ListDevices", &request.base, &list, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &list->base);
    } else {
        printf("%-12s%-6s%-10s%-10s%-12s%-20s%9s%9s%10s%8s  %s\n", "DEVICE", "KIND", "CORES",
               "MEMORY", "STATE", "JOB", "SERVING", "TRAINING", "HANDOVERS", "SLICES", "ENDPOINTS");
        for (size_t i = 0; i < list->n_devices; i++) {
            const Tidepool__V1__Device *device = list->devices[i];
            struct text_small memory;
            printf("%-12s%-6s%-10s%-10s%-12s%-20s%7.0f %%%7.0f %%%10" PRIu64 "%8" PRIu64 " ",
                   device->id, device->kind, device->cores,
                   text_bytes(&memory, device->memory_bytes), control_device_state(device),
                   device->job[0] != '\0' ? device->job : "-", device->serving_fraction * 100,
                   device->training_fraction * 100, device->handovers, device->slices);
            for (size_t j = 0; j < device->n_instances; j++) {
                printf(" %s", device->instances[j]);
            }
            printf("%s%s\n", device->reason[0] != '\0' ? "  " : "", device->reason);
        }
    }
    control_free(list);
    return exit_code;
}

static uint32_t scale_desired(const Tidepool__V1__ScaleKind *kind, const char *reason)
{
    uint32_t devices = 0;
    for (size_t i = 0; i < kind->n_desired; i++) {
        devices =
            strcmp(kind->desired[i]->reason, reason) == 0 ? kind->desired[i]->devices : devices;
    }
    return devices;
}

static void scale_tell(const Tidepool__V1__ScaleSignal *signal)
{
    printf("%-12s%9s%6s%9s%9s%7s%9s%9s%9s%9s\n", "KIND", "DESIRED", "SLO", "WAITING", "BACKLOG",
           "READY", "PENDING", "IN", "SURPLUS", "HORIZON");
    for (size_t i = 0; i < signal->n_kinds; i++) {
        const Tidepool__V1__ScaleKind *kind = signal->kinds[i];
        printf("%-12s%9u%6u%9u%9u%7u%9u%7.0f s%9u%7.0f s\n", kind->kind, kind->desired_total,
               scale_desired(kind, "slo"), scale_desired(kind, "waiting"),
               scale_desired(kind, "backlog"), kind->ready, kind->pending,
               (double)kind->arrives_in_ns / NS_PER_S, kind->surplus,
               (double)kind->horizon_ns / NS_PER_S);
    }
}

static int scale_run(struct cli *cli)
{
    if (cli->argument_count > 0) {
        return cli_announce(cli);
    }
    struct error error = {0};
    Tidepool__V1__GetScaleSignalRequest request = TIDEPOOL__V1__GET_SCALE_SIGNAL_REQUEST__INIT;
    Tidepool__V1__ScaleSignal *signal = NULL;
    if (cli_call(cli, "GetScaleSignal", &request.base, &signal, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &signal->base);
    } else {
        scale_tell(signal);
    }
    control_free(signal);
    return exit_code;
}

static int status_change(struct cli *cli, const char *method, ProtobufCMessage *request)
{
    struct error error = {0};
    Tidepool__V1__Status *status = NULL;
    if (cli_call(cli, method, request, &status, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &status->base);
    } else {
        printf("mode %s, %s\n", control_mode(status->mode),
               status->hold ? "on hold: nothing moves until 'tidepool hold off'" : "not on hold");
    }
    control_free(status);
    return exit_code;
}

static int hold_run(struct cli *cli)
{
    Tidepool__V1__SetHoldRequest request = TIDEPOOL__V1__SET_HOLD_REQUEST__INIT;
    bool on = strcmp(cli->arguments[0], "on") == 0;
    if (!on && strcmp(cli->arguments[0], "off") != 0) {
        return cli_fail_usage(cli, "wants 'on' or 'off', not '%s'", cli->arguments[0]);
    }
    request.hold = on;
    if (cli->options.reason != NULL) {
        request.reason = (char *)(uintptr_t)cli->options.reason;
    }
    return status_change(cli, "SetHold", &request.base);
}

static int mode_run(struct cli *cli)
{
    Tidepool__V1__SetModeRequest request = TIDEPOOL__V1__SET_MODE_REQUEST__INIT;
    if (control_mode_find(cli->arguments[0], &request.mode) < 0) {
        return cli_fail_usage(cli, "wants observe, advise or act, not '%s'", cli->arguments[0]);
    }
    return status_change(cli, "SetMode", &request.base);
}

/* ---- why
 * ------------------------------------------------------------------------------------------- */

static void victims_tell(const Tidepool__V1__Move *move)
{
    for (size_t i = 0; i < move->n_victims; i++) {
        const Tidepool__V1__Victim *victim = move->victims[i];
        printf("      considered: %s on %s by %s, cost %.3g device-seconds%s\n", victim->job,
               victim->device, victim->rung, victim->cost_device_s,
               victim->chosen ? " (chosen)" : "");
    }
}

static void move_tell(const Tidepool__V1__Move *move)
{
    struct text_small wall;
    printf("  %s  %s\n", text_wall(&wall, move->time_wall_ns), move->text);
    if (move->endpoint[0] != '\0') {
        printf("      endpoint %s wanted %.2f devices and had %u; a request would have waited "
               "%.1f ms of the %.1f ms promised\n",
               move->endpoint, move->demand_devices, move->ready_devices, move->projected_wait_ms,
               move->slo_ms);
    }
    victims_tell(move);
}

/* What a name stands for is asked in this order: a device, a job, an endpoint. */
static int why_ask(struct cli *cli, Tidepool__V1__ExplainResponse **ret_story, struct error *error)
{
    Tidepool__V1__ExplainRequest request = TIDEPOOL__V1__EXPLAIN_REQUEST__INIT;
    request.moves_max = (uint32_t)cli->options.moves;
    if (cli->argument_count == 0) {
        return cli_call(cli, "Explain", &request.base, ret_story, error);
    }
    char *const empty = request.device;
    char *const name = (char *)(uintptr_t)cli->arguments[0];
    char **const fields[] = {&request.device, &request.job, &request.endpoint};
    int result = 0;
    for (size_t i = 0; i < 3; i++) {
        *fields[i] = name;
        result = cli_call(cli, "Explain", &request.base, ret_story, error);
        *fields[i] = empty;
        if (result != -(int)ERROR_NOT_FOUND) {
            return result;
        }
    }
    return error_set(error, ERROR_NOT_FOUND,
                     "'%s' is no device, job or endpoint here; 'tidepool devices', 'tidepool "
                     "jobs' and 'tidepool endpoints' list them",
                     name);
}

static int why_run(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__ExplainResponse *story = NULL;
    if (why_ask(cli, &story, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &story->base);
    } else {
        printf("%s\n", story->summary);
        if (story->n_moves > 0) {
            printf("Last moves, newest first:\n");
        }
        for (size_t i = 0; i < story->n_moves; i++) {
            move_tell(story->moves[i]);
        }
    }
    control_free(story);
    return exit_code;
}

static const struct command commands[] = {
    {"devices", "[cordon|uncordon|drain|reclaim DEVICE]",
     "what there is and what holds it; keep work off a device, or empty it", 0, 2,
     OPTION_TERMS | OPTION_REASON | OPTION_WITHIN | OPTION_DRY_RUN, devices_run},
    {"scale", "[announce DEVICES]",
     "how many devices would be needed, and what for; devices that are on their way", 0, 2,
     OPTION_ANNOUNCE, scale_run},
    {"why", "[NAME]", "why a device, job or endpoint is where it is", 0, 1, OPTION_WHY, why_run},
    {"hold", "on|off", "stop all moves, or let them go on", 1, 1, OPTION_REASON, hold_run},
    {"mode", "observe|advise|act", "only record moves, show them, or make them", 1, 1, 0, mode_run},
};
const struct command_group commands_devices = {"Devices", commands,
                                               sizeof(commands) / sizeof(commands[0])};
