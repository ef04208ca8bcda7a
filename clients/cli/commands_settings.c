/* commands_settings.c: settings changed while the server runs, and how they stand beside its
 * configuration. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "clients/common/view.h"
#include "server/base/clock.h"

static char *text_or(const char *text, char *otherwise)
{
    return text != NULL ? (char *)(uintptr_t)text : otherwise;
}

static void terms_fill(const struct cli *cli, Tidepool__V1__Terms *terms)
{
    tidepool__v1__terms__init(terms);
    terms->actor = text_or(cli->options.actor, terms->actor);
    terms->reason = text_or(cli->options.reason, terms->reason);
    terms->expires_in_s = (uint64_t)cli->options.expires_s;
    terms->expected_revision = (uint64_t)cli->options.expected_revision;
    terms->validate_only = cli->options.dry_run;
}

/* ---- devices ---- */

static void device_tell(const Tidepool__V1__Device *device)
{
    printf("%s is %s%s%s%s\n", device->id, control_device_state(device),
           device->cordoned ? ", cordoned" : "", device->reason[0] != '\0' ? ": " : "",
           device->reason);
}

static int device_call(struct cli *cli, const char *method, const ProtobufCMessage *request)
{
    struct error error = {0};
    Tidepool__V1__ChangedDevice *changed = NULL;
    if (cli_call(cli, method, request, &changed, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &changed->base);
    } else if (cli->options.dry_run) {
        cli_tell_dry_run(changed->would);
    } else {
        device_tell(changed->device);
    }
    control_free(changed);
    return exit_code;
}

static int device_cordon(struct cli *cli, char *device, Tidepool__V1__Terms *terms)
{
    Tidepool__V1__CordonDeviceRequest request = TIDEPOOL__V1__CORDON_DEVICE_REQUEST__INIT;
    request.device = device;
    request.terms = terms;
    return device_call(cli, "CordonDevice", &request.base);
}

static int device_uncordon(struct cli *cli, char *device, Tidepool__V1__Terms *terms)
{
    Tidepool__V1__UncordonDeviceRequest request = TIDEPOOL__V1__UNCORDON_DEVICE_REQUEST__INIT;
    request.device = device;
    request.terms = terms;
    return device_call(cli, "UncordonDevice", &request.base);
}

static int device_drain(struct cli *cli, char *device, Tidepool__V1__Terms *terms)
{
    Tidepool__V1__DrainDeviceRequest request = TIDEPOOL__V1__DRAIN_DEVICE_REQUEST__INIT;
    request.device = device;
    request.within_s = cli->options.within_s;
    request.terms = terms;
    return device_call(cli, "DrainDevice", &request.base);
}

static int device_reclaim(struct cli *cli, char *device, Tidepool__V1__Terms *terms)
{
    Tidepool__V1__ReclaimDeviceRequest request = TIDEPOOL__V1__RECLAIM_DEVICE_REQUEST__INIT;
    request.device = device;
    request.terms = terms;
    if (cli->options.stays) {
        request.when_case = TIDEPOOL__V1__RECLAIM_DEVICE_REQUEST__WHEN_STAYS;
        request.stays = true;
    } else {
        request.when_case = TIDEPOOL__V1__RECLAIM_DEVICE_REQUEST__WHEN_WITHIN_S;
        request.within_s = cli->options.within_s;
    }
    return device_call(cli, "ReclaimDevice", &request.base);
}

int cli_change_device(struct cli *cli)
{
    static const struct {
        const char *name;
        int (*run)(struct cli *cli, char *device, Tidepool__V1__Terms *terms);
    } changes[] = {{"cordon", device_cordon},
                   {"uncordon", device_uncordon},
                   {"drain", device_drain},
                   {"reclaim", device_reclaim}};
    Tidepool__V1__Terms terms;
    terms_fill(cli, &terms);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0] && cli->argument_count == 2; i++) {
        if (strcmp(cli->arguments[0], changes[i].name) == 0) {
            return changes[i].run(cli, (char *)(uintptr_t)cli->arguments[1], &terms);
        }
    }
    return cli_fail_usage(cli, "wants nothing, or cordon, uncordon, drain or reclaim and a device");
}

/* ---- endpoints ---- */

static void endpoint_tell(const Tidepool__V1__Endpoint *endpoint)
{
    printf("%s: %u to %u devices, SLO %g ms, priority %u\n", endpoint->name, endpoint->devices_min,
           endpoint->devices_max, endpoint->slo_ms, endpoint->priority);
}

static void settings_fill(const struct cli *cli, Tidepool__V1__SetEndpointRequest *request)
{
    if (cli->options.devices.maximum > 0) {
        request->devices_min_or_not_case =
            TIDEPOOL__V1__SET_ENDPOINT_REQUEST__DEVICES_MIN_OR_NOT_DEVICES_MIN;
        request->devices_min = cli->options.devices.minimum;
        request->devices_max_or_not_case =
            TIDEPOOL__V1__SET_ENDPOINT_REQUEST__DEVICES_MAX_OR_NOT_DEVICES_MAX;
        request->devices_max = cli->options.devices.maximum;
    }
    if (cli->options.slo_ms > 0) {
        request->slo_ms_or_not_case = TIDEPOOL__V1__SET_ENDPOINT_REQUEST__SLO_MS_OR_NOT_SLO_MS;
        request->slo_ms = cli->options.slo_ms;
    }
    if (cli->options.endpoint_priority >= 0) {
        request->priority_or_not_case =
            TIDEPOOL__V1__SET_ENDPOINT_REQUEST__PRIORITY_OR_NOT_PRIORITY;
        request->priority = (uint32_t)cli->options.endpoint_priority;
    }
}

int cli_set_endpoint(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__SetEndpointRequest request = TIDEPOOL__V1__SET_ENDPOINT_REQUEST__INIT;
    Tidepool__V1__ChangedEndpoint *changed = NULL;
    Tidepool__V1__Terms terms;
    if (cli->argument_count != 2 || strcmp(cli->arguments[0], "set") != 0) {
        return cli_fail_usage(cli, "wants nothing, or set and an endpoint");
    }
    terms_fill(cli, &terms);
    settings_fill(cli, &request);
    request.name = (char *)(uintptr_t)cli->arguments[1];
    request.terms = &terms;
    if (cli_call(cli, "SetEndpoint", &request.base, &changed, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &changed->base);
    } else if (cli->options.dry_run) {
        cli_tell_dry_run(changed->would);
    } else {
        endpoint_tell(changed->endpoint);
    }
    control_free(changed);
    return exit_code;
}

/* ---- teams ---- */

static void team_tell(const Tidepool__V1__Team *team)
{
    printf("%-20s%8u%6u%9u%14.0f ", team->name, team->weight, team->jobs, team->jobs_waiting,
           team->usage_device_s);
    for (size_t i = 0; i < team->n_kinds; i++) {
        printf(" %s %u of %u", team->kinds[i]->kind, team->kinds[i]->held, team->kinds[i]->quota);
    }
    putchar('\n');
}

static void teams_head(void)
{
    printf("%-20s%8s%6s%9s%14s  %s\n", "TEAM", "WEIGHT", "JOBS", "WAITING", "USED",
           "HELD OF QUOTA");
}

static int teams_list(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__ListTeamsRequest request = TIDEPOOL__V1__LIST_TEAMS_REQUEST__INIT;
    Tidepool__V1__ListTeamsResponse *list = NULL;
    if (cli_call(cli, "ListTeams", &request.base, &list, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &list->base);
    } else {
        teams_head();
        for (size_t i = 0; i < list->n_teams; i++) {
            team_tell(list->teams[i]);
        }
    }
    control_free(list);
    return exit_code;
}

/* "cpu=2": the kind is cut out of the argument. */
static bool quota_read(const char *text, char kind[32], Tidepool__V1__Quota *quota)
{
    const char *equals = strchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - text) : 0;
    char *end = NULL;
    unsigned long devices = equals != NULL ? strtoul(equals + 1, &end, 10) : 0;
    tidepool__v1__quota__init(quota);
    if (length == 0 || length >= 32 || equals[1] < '0' || equals[1] > '9' || *end != '\0' ||
        devices > UINT32_MAX) {
        return false;
    }
    snprintf(kind, 32, "%.*s", (int)length, text);
    quota->kind = kind;
    quota->devices = (uint32_t)devices;
    return true;
}

static int team_call(struct cli *cli, Tidepool__V1__SetTeamRequest *request)
{
    struct error error = {0};
    Tidepool__V1__ChangedTeam *changed = NULL;
    if (cli_call(cli, "SetTeam", &request->base, &changed, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &changed->base);
    } else if (cli->options.dry_run) {
        cli_tell_dry_run(changed->would);
    } else {
        teams_head();
        team_tell(changed->team);
    }
    control_free(changed);
    return exit_code;
}

static int teams_run(struct cli *cli)
{
    Tidepool__V1__SetTeamRequest request = TIDEPOOL__V1__SET_TEAM_REQUEST__INIT;
    Tidepool__V1__Terms terms;
    Tidepool__V1__Quota quotas[ARGUMENT_LIST_MAX], *list[ARGUMENT_LIST_MAX];
    char kinds[ARGUMENT_LIST_MAX][32];
    const struct argument_list *given = &cli->options.quotas;
    if (cli->argument_count == 0) {
        return teams_list(cli);
    }
    if (cli->argument_count != 2 || strcmp(cli->arguments[0], "set") != 0) {
        return cli_fail_usage(cli, "wants nothing, or set and a team");
    }
    for (size_t i = 0; i < given->count; i++) {
        if (!quota_read(given->values[i], kinds[i], &quotas[i])) {
            return cli_fail_usage(cli, "--quota wants KIND=DEVICES, not '%s'", given->values[i]);
        }
        list[i] = &quotas[i];
    }
    terms_fill(cli, &terms);
    request.name = (char *)(uintptr_t)cli->arguments[1];
    request.terms = &terms;
    request.quotas = list;
    request.n_quotas = given->count;
    if (cli->options.weight > 0) {
        request.weight_or_not_case = TIDEPOOL__V1__SET_TEAM_REQUEST__WEIGHT_OR_NOT_WEIGHT;
        request.weight = (uint32_t)cli->options.weight;
    }
    return team_call(cli, &request);
}

/* ---- devices on their way ---- */

int cli_announce(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__AnnounceDevicesRequest request = TIDEPOOL__V1__ANNOUNCE_DEVICES_REQUEST__INIT;
    Tidepool__V1__ScaleSignal *signal = NULL;
    char *end = NULL;
    unsigned long devices = cli->argument_count == 2 ? strtoul(cli->arguments[1], &end, 10) : 0;
    if (end == NULL || strcmp(cli->arguments[0], "announce") != 0 || cli->arguments[1][0] < '0' ||
        cli->arguments[1][0] > '9' || *end != '\0' || devices > UINT32_MAX) {
        return cli_fail_usage(cli, "wants nothing, or announce and a number of devices");
    }
    request.provider =
        (char *)(uintptr_t)(cli->options.provider != NULL ? cli->options.provider : "cli");
    request.kind = (char *)(uintptr_t)(cli->options.kind != NULL ? cli->options.kind : "cpu");
    request.devices = (uint32_t)devices;
    request.arrives_in_ns = (uint64_t)(cli->options.within_s * 1e9);
    request.lead_ns = (uint64_t)(cli->options.lead_s * 1e9);
    if (cli_call(cli, "AnnounceDevices", &request.base, &signal, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &signal->base);
    } else {
        printf("%lu devices of kind %s are counted as on their way\n", devices, request.kind);
    }
    control_free(signal);
    return exit_code;
}

/* ---- what differs from the configuration ---- */

static void override_tell(const Tidepool__V1__Override *override)
{
    struct text_small made, expires;
    char value[96];
    snprintf(value, sizeof value, "%s -> %s",
             override->configured[0] != '\0' ? override->configured : "?", override->value);
    printf("%-9s%-20s%-24s%-24s%-16s%s  %s%s%s%s\n", override->object, override->name,
           override->field, value, override->actor, text_wall(&made, override->made_wall_ns),
           override->expires_wall_ns != 0 ? "until " : "",
           override->expires_wall_ns != 0 ? text_wall(&expires, override->expires_wall_ns) : "",
           override->reason[0] != '\0' ? "  " : "", override->reason);
}

static void overrides_tell(const Tidepool__V1__ListOverridesResponse *list)
{
    if (list->n_overrides == 0) {
        printf("nothing differs from the configuration\n");
        return;
    }
    printf("%-9s%-20s%-24s%-24s%-16s%s\n", "OBJECT", "NAME", "FIELD", "FILE -> NOW", "BY", "SINCE");
    for (size_t i = 0; i < list->n_overrides; i++) {
        override_tell(list->overrides[i]);
    }
}

static int overrides_call(struct cli *cli, const char *method, const ProtobufCMessage *request)
{
    struct error error = {0};
    Tidepool__V1__ListOverridesResponse *list = NULL;
    if (cli_call(cli, method, request, &list, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &list->base);
    } else {
        overrides_tell(list);
    }
    control_free(list);
    return exit_code;
}

/* diff | drop OBJECT NAME [FIELD] */
static int config_run(struct cli *cli)
{
    Tidepool__V1__ListOverridesRequest list = TIDEPOOL__V1__LIST_OVERRIDES_REQUEST__INIT;
    Tidepool__V1__DropOverrideRequest drop = TIDEPOOL__V1__DROP_OVERRIDE_REQUEST__INIT;
    Tidepool__V1__Terms terms;
    if (strcmp(cli->arguments[0], "diff") == 0 && cli->argument_count == 1) {
        return overrides_call(cli, "ListOverrides", &list.base);
    }
    if (strcmp(cli->arguments[0], "drop") != 0 || cli->argument_count < 3) {
        return cli_fail_usage(cli, "wants 'diff', or 'drop device|endpoint|team NAME [FIELD]'");
    }
    terms_fill(cli, &terms);
    drop.object = (char *)(uintptr_t)cli->arguments[1];
    drop.name = (char *)(uintptr_t)cli->arguments[2];
    drop.field = cli->argument_count > 3 ? (char *)(uintptr_t)cli->arguments[3] : drop.field;
    drop.terms = &terms;
    return overrides_call(cli, "DropOverride", &drop.base);
}

static const struct command commands[] = {
    {"teams", "[set TEAM]", "teams, their weights and quotas; change one", 0, 2,
     OPTION_TERMS | OPTION_REASON | OPTION_TEAM | OPTION_DRY_RUN, teams_run},
    {"config", "diff|drop", "what calls have set beside the file; take something back", 1, 4,
     OPTION_TERMS | OPTION_REASON, config_run},
};
const struct command_group commands_settings = {"Configuration", commands,
                                                sizeof(commands) / sizeof(commands[0])};
