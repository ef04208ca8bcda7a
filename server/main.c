/* main.c: reads the configuration, wires the parts, starts, drains, stops. Nothing else. */
#include <errno.h>
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/clock.h"
#include "server/base/huge_pages.h"
#include "server/base/log.h"
#include "server/base/user.h"
#include "server/control/config.h"
#include "server/control/control.h"
#include "server/device/device.h"
#include "server/net/grpc.h"
#include "server/net/http.h"
#include "server/outside/outside.h"
#include "server/rpc/control.h"
#include "server/rpc/external_scaler.h"
#include "server/rpc/health.h"
#include "server/rpc/inference.h"
#include "server/rpc/json_api.h"
#include "server/rpc/pages.h"
#include "server/serve/serve.h"
#include "server/shim/spawner.h"
#include "server/store/store.h"
#include "server/train/trainer.h"

#define VERSION "0.1.0"

struct arguments {
    const char *config, *model_repository, *state;
    bool check;
};

/* In the order of their making; unmade the other way round. */
#define ROUTES_MAX (PAGES_HEALTH_COUNT + PAGES_METRICS_COUNT + 1)

struct server {
    struct config config;
    struct device_set devices;
    bool devices_found;
    struct store *store;
    struct control *control;
    struct serve *serve;
    struct trainer *trainer;
    char state[2 * PATH_MAX]; /* the absolute path */
    struct spawner *spawner;
    struct outside *outside;
    struct inference_context *inference;
    struct health *health;
    struct control_service *control_service;
    struct external_scaler *scaler;
    /* In the order of enum config_service's bits, then what is offered where control is. */
    struct grpc_service services[4];
    struct grpc_server *grpc;
    struct pages pages;
    struct json_api *json;
    struct http_route health_routes[PAGES_HEALTH_COUNT], metrics_routes[PAGES_METRICS_COUNT];
    struct http_route routes[CONFIG_LISTENERS_MAX][ROUTES_MAX]; /* of each HTTP address */
    struct http_server *http;
};

/* ---- the command line ---------------------------------------------------------------------------
 */

static const char usage[] =
    "tidepoold: serves models and trains on the same devices\n"
    "  --config FILE            configuration (config/README.md); default: none\n"
    "  --model-repository DIR   serves all models in DIR (Triton's layout)\n"
    "  --state DIR              what must survive: jobs, checkpoints, the control socket\n"
    "  --check FILE             only looks whether a configuration is good\n"
    "  --help-config            explains every key of the configuration\n"
    "  --version, --help\n"
    "SIGTERM finishes what was accepted and stops; SIGHUP reads the configuration again.\n";

/* Returns -1 to go on, else the exit code. */
static int arguments_read(int count, char **values, struct arguments *arguments)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"model-repository", required_argument, NULL, 'm'},
        {"state", required_argument, NULL, 's'},
        {"check", required_argument, NULL, 'k'},
        {"help-config", no_argument, NULL, 'p'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int option;
    while ((option = getopt_long(count, values, "", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            arguments->config = optarg;
            break;
        case 'm':
            arguments->model_repository = optarg;
            break;
        case 's':
            arguments->state = optarg;
            break;
        case 'k':
            arguments->config = optarg;
            arguments->check = true;
            break;
        case 'p':
            config_print_help(stdout);
            return 0;
        case 'v':
            puts("tidepoold " VERSION);
            return 0;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind < count) {
        fprintf(stderr, "tidepoold: what is '%s' for?\n%s", values[optind], usage);
        return 2;
    }
    return -1;
}

/* ---- making
 * ----------------------------------------------------------------------------------------- */

static int config_load(const struct arguments *arguments, struct config *config,
                       struct error *error)
{
    int result = config_read(config, arguments->config, error);
    if (result == 0) {
        result = config_override(config, arguments->model_repository, arguments->state, error);
    }
    return result < 0 ? result : config_complete(config, error);
}

/* What needs root comes before: folders of the state and of sockets are handed over. */
static int user_settle(const struct config *config, struct error *error)
{
    struct user user;
    int result = user_find(config->user, &user, error);
    if (result == 0) {
        result = user_give_folder(&user, config->state, error);
    }
    for (uint32_t i = 0; i < config->listener_count && result == 0; i++) {
        const char *address = config->listeners[i].address;
        char path[PATH_MAX];
        if (strncmp(address, "unix:/", 6) == 0) {
            snprintf(path, sizeof path, "%s", address + 5);
            /* One that is in use, like /tmp, stays as it is: binding tells whether that does. */
            (void)user_give_folder(&user, dirname(path), NULL);
        }
    }
    if (result == 0) {
        result = user_become(&user, error);
    }
    if (result == 0) {
        log_write(LOG_INFO, "main", "user", "name=%s uid=%u", user.name, (unsigned)user.uid);
    }
    return result;
}

/* Before any thread. tidepool-shim lies beside this program. */
static int spawner_begin(struct server *server, struct error *error)
{
    char program[PATH_MAX + 32], here[PATH_MAX] = "", jobs[2 * PATH_MAX + 8];
    const char *state = server->config.state;
    ssize_t length = readlink("/proc/self/exe", program, PATH_MAX - 1);
    if (length < 0 || (state[0] != '/' && getcwd(here, sizeof here) == NULL)) {
        return error_set_errno(error, errno, "find tidepool-shim beside this program");
    }
    program[length] = '\0';
    (void)strcpy(strrchr(program, '/') + 1, "tidepool-shim");
    (void)snprintf(server->state, sizeof server->state, "%s%s%s", here, here[0] != '\0' ? "/" : "",
                   state);
    (void)snprintf(jobs, sizeof jobs, "%s/jobs", server->state);
    struct user user = {.uid = geteuid()};
    int result = server->config.user != NULL ? user_find(server->config.user, &user, error) : 0;
    struct spawner_rules rules = {.program = program, .directory = jobs, .owner = user.uid};
    return result < 0 ? result : spawner_create(&rules, &server->spawner, error);
}

static int outside_begin(struct server *server, struct error *error)
{
    struct outside_options options = {.state_directory = server->state,
                                      .spawner = server->spawner,
                                      .notify = control_notify_outside,
                                      .context = server->control};
    server->outside = outside_create(&options, error);
    return server->outside != NULL ? 0 : -(int)error->code;
}

static int parts_create(struct server *server, struct error *error)
{
    const struct config *config = &server->config;
    struct device_config devices = {.cpu_devices = (uint32_t)config->devices.cpu_devices,
                                    .cores_per_device = (uint32_t)config->devices.cores_per_device,
                                    .memory_bytes = (uint64_t)config->devices.memory_mib << 20};
    int result = device_set_discover(&devices, &server->devices, error);
    if (result < 0) {
        return result;
    }
    server->devices_found = true;
    onnx_set_library(config->onnxruntime);
    server->store = store_open(config->state, error);
    if (server->store == NULL) {
        return -(int)error->code;
    }
    struct control_parts parts = {config, &server->devices, server->store, NULL};
    server->control = control_create(&parts, error);
    if (server->control == NULL) {
        return -(int)error->code;
    }
    struct serve_options options = {.state_directory = config->state,
                                    .inline_ns_max = (uint64_t)config->inline_us * NS_PER_US,
                                    .notify = control_notify_serve,
                                    .context = server->control};
    server->serve = serve_create(&server->devices, &options, error);
    if (server->serve == NULL) {
        return -(int)error->code;
    }
    server->trainer = trainer_create(&server->devices, config->state, control_notify_train,
                                     server->control, error);
    return server->trainer != NULL ? outside_begin(server, error) : -(int)error->code;
}

static unsigned network_threads(const struct config *config)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (config->network_threads > 0) {
        return (unsigned)config->network_threads;
    }
    return cores >= 8 ? (unsigned)cores / 4 : 1;
}

static int services_create(struct server *server, struct error *error)
{
    const struct config *config = &server->config;
    struct grpc_limits limits = grpc_limits_default;
    limits.message_bytes_max = (uint32_t)config->limits.message_mib << 20;
    limits.send_bytes_max = limits.message_bytes_max;
    limits.request_bytes_max = (uint64_t)config->limits.requests_mib << 20;
    limits.concurrent_streams_max = (uint32_t)config->limits.streams;
    limits.connections_max = (uint32_t)config->limits.connections;
    limits.calls_max = (uint32_t)config->limits.calls;
    limits.ping_interval_min_ms = (uint32_t)config->limits.ping_interval_ms;
    server->inference = inference_create(server->serve, VERSION, error);
    server->health = server->inference != NULL ? health_create(server->serve, error) : NULL;
    if (server->health == NULL) {
        return -(int)error->code;
    }
    struct control_service_options options = {server->control, server->inference, VERSION,
                                              config->token_file};
    server->control_service = control_service_create(&options, error);
    if (server->control_service == NULL) {
        return -(int)error->code;
    }
    server->scaler = external_scaler_create(server->control, error);
    if (server->scaler == NULL) {
        return -(int)error->code;
    }
    struct json_api_options json = {server->control_service, config->http_hosts,
                                    config->http_host_count};
    server->json = json_api_create(&json, error);
    if (server->json == NULL) {
        return -(int)error->code;
    }
    server->services[0] = inference_service(server->inference);
    server->services[1] = health_service(server->health);
    server->services[2] = control_service_table(server->control_service);
    server->services[3] = external_scaler_service(server->scaler);
    server->grpc = grpc_server_create(network_threads(config), &limits, server->services, 4, error);
    server->pages =
        (struct pages){server->serve, server->control, server->grpc, server->inference, VERSION};
    pages_health_routes(&server->pages, server->health_routes);
    pages_metrics_routes(&server->pages, server->metrics_routes);
    server->http = server->grpc != NULL ? http_server_create(error) : NULL;
    return server->http != NULL ? 0 : -(int)error->code;
}

/* ---- listening
 * ---------------------------------------------------------------------------------------- */

static size_t http_routes(struct server *server, unsigned services, struct http_route *routes)
{
    size_t count = 0;
    for (size_t i = 0; i < PAGES_HEALTH_COUNT && (services & CONFIG_SERVICE_HTTP) != 0; i++) {
        routes[count++] = server->health_routes[i];
    }
    for (size_t i = 0; i < PAGES_METRICS_COUNT && (services & CONFIG_SERVICE_METRICS) != 0; i++) {
        routes[count++] = server->metrics_routes[i];
    }
    if ((services & CONFIG_SERVICE_JSON) != 0) {
        routes[count++] = json_api_route(server->json);
    }
    return count;
}

/* `routes` is the address's own place for them. */
static int listen_at(struct server *server, const char *address, unsigned services,
                     struct http_route *routes, uint16_t *ret_port, struct error *error)
{
    if ((services & CONFIG_SERVICES_GRPC) != 0) {
        uint64_t mask = services | ((services & CONFIG_SERVICE_CONTROL) != 0 ? 1u << 3 : 0);
        return grpc_server_listen(server->grpc, address, mask, ret_port, error);
    }
    size_t count = http_routes(server, services, routes);
    return http_server_listen(server->http, address, routes, count, ret_port, error);
}

/* "127.0.0.1:8001" with another port. */
static void address_with_port(const char *address, unsigned port, char *text, size_t size)
{
    const char *colon = strrchr(address, ':');
    int host = colon != NULL ? (int)(colon - address) : (int)strlen(address);
    snprintf(text, size, "%.*s:%u", host, address, port);
}

static bool address_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0 ||
           strncmp(address, "localhost:", 10) == 0 || strncmp(address, "unix:", 5) == 0;
}

static int listen_one(struct server *server, const struct config_listener *listener,
                      struct http_route *routes, struct error *error)
{
    char bound[4200];
    char services[64];
    uint16_t port = 0;
    bool is_unix = strncmp(listener->address, "unix:", 5) == 0;
    int result = listen_at(server, listener->address, listener->services, routes, &port, error);
    if (result == -ERROR_UNAVAILABLE && server->config.port_fallback && !is_unix) {
        log_write(LOG_WARN, "main", "port in use", "address=%s taken=\"a free one\"",
                  listener->address);
        address_with_port(listener->address, 0, bound, sizeof bound);
        result = listen_at(server, bound, listener->services, routes, &port, error);
    }
    if (result < 0) {
        return result;
    }
    if (is_unix) {
        snprintf(bound, sizeof bound, "%s", listener->address);
    } else {
        address_with_port(listener->address, port, bound, sizeof bound);
    }
    config_services_print(listener->services, services, sizeof services);
    log_write(address_is_loopback(bound) ? LOG_INFO : LOG_WARN, "main", "listening",
              "address=%s services=\"%s\" reach=%s", bound, services,
              address_is_loopback(bound) ? "\"this machine only\""
                                         : "\"other machines, in clear text\"");
    return control_add_listener(server->control, bound, listener->services);
}

/* ---- starting and stopping
 * --------------------------------------------------------------------------------- */

static int server_start(struct server *server, struct error *error)
{
    int result = spawner_begin(server, error);
    if (result == 0 && server->config.user != NULL) {
        result = user_settle(&server->config, error);
    }
    result = result < 0 ? result : parts_create(server, error);
    if (result == 0) {
        result = services_create(server, error);
    }
    for (uint32_t i = 0; i < server->config.listener_count && result == 0; i++) {
        result = listen_one(server, &server->config.listeners[i], server->routes[i], error);
    }
    if (result == 0) {
        result = store_start(server->store, error);
    }
    if (result == 0) {
        struct control_rooms rooms = {server->serve, server->trainer, server->outside};
        result = control_start(server->control, &rooms, error);
    }
    if (result == 0) {
        result = http_server_start(server->http, error);
    }
    return result < 0 ? result : grpc_server_start(server->grpc, error);
}

/* Readiness off, then no new connections, then what was accepted is finished. */
static void server_drain(struct server *server)
{
    log_write(LOG_INFO, "main", "draining", "limit_s=%g", server->config.drain_s);
    serve_set_draining(server->serve, true);
    health_close(server->health);
    control_service_close(server->control_service);
    external_scaler_close(server->scaler);
    grpc_server_drain(server->grpc, (uint64_t)(server->config.drain_s * 1000));
}

static void server_destroy(struct server *server)
{
    http_server_destroy(server->http);
    json_api_destroy(server->json);
    grpc_server_destroy(server->grpc);
    if (server->control != NULL) {
        control_stop(server->control);
    }
    control_service_destroy(server->control_service);
    external_scaler_destroy(server->scaler);
    health_destroy(server->health);
    inference_destroy(server->inference);
    outside_destroy(server->outside); /* their shims and they go on */
    spawner_destroy(server->spawner);
    trainer_destroy(server->trainer);
    serve_destroy(server->serve);
    /* The store's callbacks post to the control thread's box: it goes first. */
    store_close(server->store);
    control_destroy(server->control);
    if (server->devices_found) {
        device_set_destroy(&server->devices);
    }
    config_fini(&server->config);
}

/* ---- signals
 * ---------------------------------------------------------------------------------------------- */

static void signals_block(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, set, NULL); /* inherited by every thread */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file too large for `ulimit -f` is an error of the write */
}

static void log_configure(const struct config *config)
{
    log_open(STDERR_FILENO, (enum log_level)config->log.level, config->log.format == 1);
}

static void reload(struct server *server, const struct arguments *arguments)
{
    struct config fresh = {0};
    struct error error = {0};
    struct log_text text;
    char live[256];
    char restart[256];
    if (config_load(arguments, &fresh, &error) < 0 ||
        control_service_reload(server->control_service, &error) < 0) {
        log_write(LOG_ERROR, "main", "configuration not reloaded", "reason=%s",
                  log_quote(&text, error.text));
        config_fini(&fresh);
        return;
    }
    config_changes(&server->config, &fresh, live, sizeof live, restart, sizeof restart);
    log_configure(&fresh);
    control_set_testing(server->control, fresh.testing);
    log_write(LOG_INFO, "main", "configuration reloaded", "changed=\"%s\" needs_restart=\"%s\"",
              live, restart);
    config_fini(&fresh);
}

static void signals_wait(const sigset_t *set, struct server *server,
                         const struct arguments *arguments)
{
    int number = 0;
    for (;;) {
        if (sigwait(set, &number) != 0) {
            continue;
        }
        if (number != SIGHUP) {
            log_write(LOG_INFO, "main", "told to stop", "signal=%s", strsignal(number));
            return;
        }
        reload(server, arguments);
    }
}

int main(int argc, char **argv)
{
    static struct server server;
    struct arguments arguments = {0};
    struct error error = {0};
    sigset_t signals;
    int code = arguments_read(argc, argv, &arguments);
    if (code >= 0) {
        return code;
    }
    if (!arguments.check) {
        huge_pages_use(argv);
    }
    if (config_load(&arguments, &server.config, &error) < 0) {
        fprintf(stderr, "tidepoold: %s\n", error.text);
        config_fini(&server.config);
        return 2;
    }
    if (arguments.check) {
        printf("%s: good\n", arguments.config);
        config_fini(&server.config);
        return 0;
    }
    log_configure(&server.config);
    signals_block(&signals);
    code = 1;
    if (server_start(&server, &error) < 0) {
        log_write(LOG_ERROR, "main", "not started", "reason=\"%s\"", error.text);
    } else {
        log_write(LOG_INFO, "main", "started", "version=%s devices=%u state=%s", VERSION,
                  server.devices.count, server.config.state);
        signals_wait(&signals, &server, &arguments);
        server_drain(&server);
        code = 0;
    }
    server_destroy(&server);
    if (code == 0) {
        log_write(LOG_INFO, "main", "stopped", "code=0");
    }
    return code;
}
