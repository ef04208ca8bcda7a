/* main.c: `tidepool sim --serve` starts this program: reads the traces, wires the server's own
 * control thread and control API to a virtual world, serves until it is told to stop. */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/virtual/world.h"
#include "server/base/log.h"
#include "server/net/grpc.h"
#include "server/rpc/control.h"
#include "server/rpc/external_scaler.h"

#define VERSION "0.1.0"
#define FILES_MAX 64
#define SPEED_MAX 100
#define DRAIN_MS 1000
#define SLO_MS 1000
#define LATE_BUDGET 0.005

struct arguments {
    const char *requests[FILES_MAX], *jobs[FILES_MAX], *listen[CONFIG_LISTENERS_MAX];
    size_t request_count, job_count, listen_count;
    const char *config, *token_file;
    double devices, seed, speed, slo_ms, scale, late_budget, from_s, until_s;
    struct trace_options trace;
};

/* In the order of their making; unmade the other way round. */
struct virtual_server {
    struct trace trace;
    struct workload workload;
    struct clock_pace pace;
    struct world_plan plan;
    char state[64]; /* a folder of its own, gone with it; "": not made yet */
    struct config config;
    struct device_set devices;
    struct store *store;
    struct control *control;
    struct serve *serve;
    struct trainer *trainer;
    struct control_service *service;
    struct external_scaler *scaler;
    struct grpc_service services[2];
    struct grpc_server *grpc;
};

/* ---- the command line ---- */

static bool list_add(const char **list, size_t *count, size_t capacity, const char *value)
{
    if (*count < capacity) {
        list[(*count)++] = value;
        return true;
    }
    return false;
}

/* Of the options that are numbers, in the order of their indexes below. */
static const struct number_option {
    const char *name;
    double least, most;
    size_t offset;
} numbers[] = {
    {"speed", 0.01, SPEED_MAX, offsetof(struct arguments, speed)},
    {"slo-ms", 1, 3.6e6, offsetof(struct arguments, slo_ms)},
    {"scale", 0, 1e6, offsetof(struct arguments, scale)},
    {"late-budget", 0, 1, offsetof(struct arguments, late_budget)},
    {"from-s", 0, 1e9, offsetof(struct arguments, from_s)},
    {"until-s", 0, 1e9, offsetof(struct arguments, until_s)},
    {"time-scale", 1e-6, 1e6, offsetof(struct arguments, trace.time_scale)},
    {"rate-scale", 1e-6, 1e6, offsetof(struct arguments, trace.rate_scale)},
    {"rate-rps", 0, 1e6, offsetof(struct arguments, trace.rate_mean)},
    {"devices", 1, DEVICES_MAX, offsetof(struct arguments, devices)},
    {"seed", 0, 9e15, offsetof(struct arguments, seed)},
};
#define NUMBERS (sizeof numbers / sizeof *numbers)
#define NUMBER_FIRST 256

static bool number_read(const char *text, const struct number_option *option,
                        struct arguments *arguments)
{
    char *end;
    double number = strtod(text, &end);
    *(double *)((char *)arguments + option->offset) = number;
    return end != text && *end == '\0' && number >= option->least && number <= option->most;
}

static bool option_read(struct arguments *arguments, int option, const char *value)
{
    switch (option) {
    case 'r':
        return list_add(arguments->requests, &arguments->request_count, FILES_MAX, value);
    case 'j':
        return list_add(arguments->jobs, &arguments->job_count, FILES_MAX, value);
    case 'l':
        return list_add(arguments->listen, &arguments->listen_count, CONFIG_LISTENERS_MAX, value);
    case 'c':
        arguments->config = value;
        return true;
    case 't':
        arguments->token_file = value;
        return true;
    default:
        return number_read(value, &numbers[option - NUMBER_FIRST], arguments);
    }
}

static int say_out_of_range(const char *option, const char *value)
{
    fprintf(
        stderr,
        "tidepool sim --serve: --%s '%s' is out of range: devices 1 to %d, speed 0.01 to %d, at "
        "most %d files and %d addresses\n",
        option, value, DEVICES_MAX, SPEED_MAX, FILES_MAX, CONFIG_LISTENERS_MAX);
    return -1;
}

static int options_read_all(int count, char **values, struct arguments *arguments)
{
    struct option options[6 + NUMBERS] = {
        {"requests", required_argument, NULL, 'r'},   {"jobs", required_argument, NULL, 'j'},
        {"listen", required_argument, NULL, 'l'},     {"config", required_argument, NULL, 'c'},
        {"token-file", required_argument, NULL, 't'},
    };
    int option, index = 0;
    for (size_t i = 0; i < NUMBERS; i++) {
        options[5 + i] =
            (struct option){numbers[i].name, required_argument, NULL, NUMBER_FIRST + (int)i};
    }
    while ((option = getopt_long(count, values, "", options, &index)) != -1) {
        if (option == '?') {
            return -1;
        }
        if (!option_read(arguments, option, optarg)) {
            return say_out_of_range(options[index].name, optarg);
        }
    }
    return 0;
}

static int arguments_read(int count, char **values, struct arguments *arguments)
{
    *arguments = (struct arguments){
        .devices = 8, .seed = 1, .speed = 1, .slo_ms = SLO_MS, .late_budget = LATE_BUDGET};
    trace_options_init(&arguments->trace);
    if (options_read_all(count, values, arguments) < 0) {
        return -1;
    }
    arguments->trace.seed = (uint64_t)arguments->seed;
    arguments->trace.from_ns = (uint64_t)(arguments->from_s * 1e9 + 0.5);
    arguments->trace.until_ns = (uint64_t)(arguments->until_s * 1e9 + 0.5);
    if (arguments->listen_count == 0) {
        list_add(arguments->listen, &arguments->listen_count, 1, "127.0.0.1:8001");
    }
    return 0;
}

/* ---- making ---- */

/* Names of a trace that no model could have: what does not fit becomes "_". */
static void names_fit(struct trace_names *names)
{
    for (uint32_t i = 0; i < names->count; i++) {
        char *name = names->names[i];
        for (size_t j = 0; name[j] != '\0'; j++) {
            bool letter = (name[j] >= 'a' && name[j] <= 'z') ||
                          (name[j] >= 'A' && name[j] <= 'Z') ||
                          (name[j] >= '0' && name[j] <= '9') || name[j] == '_';
            name[j] = letter || (j > 0 && (name[j] == '.' || name[j] == '-')) ? name[j] : '_';
        }
    }
}

static int traces_read(struct virtual_server *server, const struct arguments *arguments,
                       struct error *error)
{
    const char *files[2 * FILES_MAX];
    size_t count = arguments->request_count + arguments->job_count;
    struct workload_options options = {.device_count = (uint32_t)arguments->devices,
                                       .scale = arguments->scale};
    memcpy(files, arguments->requests, arguments->request_count * sizeof *files);
    memcpy(files + arguments->request_count, arguments->jobs, arguments->job_count * sizeof *files);
    int result = count > 0 ? trace_read(files, count, &arguments->trace, &server->trace, error) : 0;
    if (result == 0) {
        names_fit(&server->trace.endpoints);
        result = workload_make(&server->trace, &options, &server->workload, error);
    }
    return result;
}

static int config_make(struct virtual_server *server, const struct arguments *arguments,
                       struct error *error)
{
    strcpy(server->state, "/tmp/tidepool-sim-XXXXXX");
    if (mkdtemp(server->state) == NULL) {
        server->state[0] = '\0';
        return error_set_errno(error, errno, "make a folder for the state");
    }
    int result = config_read(&server->config, arguments->config, error);
    if (result == 0) { /* the endpoints of the trace are its models */
        result = config_override(&server->config, server->state, server->state, error);
    }
    return result;
}

static int parts_create(struct virtual_server *server, const struct arguments *arguments,
                        struct error *error)
{
    int result = world_begin(&server->plan, (uint32_t)arguments->devices, &server->devices, error);
    if (result < 0) {
        return result;
    }
    server->store = store_open(server->config.state, error);
    if (server->store == NULL) {
        return -(int)error->code;
    }
    struct control_parts parts = {&server->config, &server->devices, server->store, &server->pace};
    server->control = control_create(&parts, error);
    if (server->control == NULL) {
        return -(int)error->code;
    }
    struct serve_options options = {.notify = control_notify_serve, .context = server->control};
    server->serve = serve_create(&server->devices, &options, error);
    server->trainer = trainer_create(&server->devices, server->config.state, control_notify_train,
                                     server->control, error);
    return server->serve != NULL && server->trainer != NULL ? 0 : -(int)error->code;
}

static int service_create(struct virtual_server *server, const struct arguments *arguments,
                          struct error *error)
{
    struct control_service_options options = {
        server->control, NULL, VERSION,
        arguments->token_file != NULL ? arguments->token_file : server->config.token_file};
    server->service = control_service_create(&options, error);
    server->scaler =
        server->service != NULL ? external_scaler_create(server->control, error) : NULL;
    if (server->scaler == NULL) {
        return -(int)error->code;
    }
    server->services[0] = control_service_table(server->service);
    server->services[1] = external_scaler_service(server->scaler);
    server->grpc = grpc_server_create(1, &grpc_limits_default, server->services, 2, error);
    return server->grpc != NULL ? 0 : -(int)error->code;
}

/* Says where, on stdout too: a test that asked for port 0 reads it there. */
static int listen_at(struct virtual_server *server, const char *address, struct error *error)
{
    char bound[300];
    uint16_t port = 0;
    const char *colon = strrchr(address, ':');
    int result = grpc_server_listen(server->grpc, address, UINT64_MAX, &port, error);
    if (result < 0) {
        return result;
    }
    snprintf(bound, sizeof bound, "%.255s", address);
    if (strncmp(address, "unix:", 5) != 0 && colon != NULL) {
        snprintf(bound, sizeof bound, "%.*s:%u", (int)(colon - address), address, port);
    }
    printf("listening at %s\n", bound);
    fflush(stdout);
    return control_add_listener(server->control, bound, CONFIG_SERVICE_CONTROL);
}

static int server_start(struct virtual_server *server, const struct arguments *arguments,
                        struct error *error)
{
    int result = traces_read(server, arguments, error);
    result = result == 0 ? config_make(server, arguments, error) : result;
    if (result < 0) {
        return result;
    }
    server->plan =
        (struct world_plan){&server->trace, &server->workload, &server->pace,
                            (uint64_t)(arguments->slo_ms * NS_PER_MS), 1 - arguments->late_budget};
    clock_pace_begin(&server->pace, arguments->speed);
    result = parts_create(server, arguments, error);
    result = result == 0 ? service_create(server, arguments, error) : result;
    for (size_t i = 0; i < arguments->listen_count && result == 0; i++) {
        result = listen_at(server, arguments->listen[i], error);
    }
    result = result == 0 ? store_start(server->store, error) : result;
    struct control_rooms rooms = {server->serve, server->trainer, NULL};
    result = result == 0 ? control_start(server->control, &rooms, error) : result;
    result = result == 0 ? world_start(server->control, error) : result;
    return result == 0 ? grpc_server_start(server->grpc, error) : result;
}

/* ---- stopping ---- */

static void state_remove(const char *folder)
{
    DIR *files = folder[0] != '\0' ? opendir(folder) : NULL;
    struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path) < 0 && entry->d_name[0] != '.') {
            state_remove(path); /* of the recorded events */
        }
    }
    if (files != NULL) {
        closedir(files);
        rmdir(folder);
    }
}

static void server_drain(struct virtual_server *server)
{
    control_service_close(server->service);
    external_scaler_close(server->scaler);
    grpc_server_drain(server->grpc, DRAIN_MS);
}

static void server_destroy(struct virtual_server *server)
{
    grpc_server_destroy(server->grpc);
    world_stop();
    if (server->control != NULL) {
        control_stop(server->control);
    }
    control_service_destroy(server->service);
    external_scaler_destroy(server->scaler);
    trainer_destroy(server->trainer);
    serve_destroy(server->serve);
    store_close(server->store);
    control_destroy(server->control);
    world_end();
    config_fini(&server->config);
    workload_free(&server->workload);
    trace_free(&server->trace);
    state_remove(server->state);
}

int main(int argc, char **argv)
{
    static struct virtual_server server;
    struct arguments arguments;
    struct error error = {0};
    sigset_t signals;
    int number, code = 0;
    if (arguments_read(argc, argv, &arguments) < 0) {
        return 2;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* inherited by every thread */
    signal(SIGPIPE, SIG_IGN);
    log_open(STDERR_FILENO, LOG_INFO, false);
    if (server_start(&server, &arguments, &error) < 0) {
        fprintf(stderr, "tidepool sim --serve: %s\n", error.text);
        code = error.code == ERROR_INVALID_ARGUMENT ? 2 : 125;
    } else {
        sigwait(&signals, &number);
        server_drain(&server);
    }
    server_destroy(&server);
    return code;
}
