/* config.h: the server's configuration: one JSON file, optional, read strictly.
 * Paths:   relative ones are relative to the folder the server was started in.
 * Owner:   the holder of a struct config frees it with config_fini; texts belong to it.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CONTROL_CONFIG_H
#define TIDEPOOL_CONTROL_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "server/base/error.h"

#define CONFIG_LISTENERS_MAX 16
#define CONFIG_HOSTS_MAX 16
#define CONFIG_TEAMS_MAX 64

enum config_service {
    CONFIG_SERVICE_INFERENCE = 1 << 0,
    CONFIG_SERVICE_HEALTH = 1 << 1, /* grpc.health.v1 */
    CONFIG_SERVICE_CONTROL = 1 << 2,
    CONFIG_SERVICE_HTTP = 1 << 3, /* /v2/health/live, /v2/health/ready */
    CONFIG_SERVICE_METRICS = 1 << 4,
    CONFIG_SERVICE_JSON = 1 << 5, /* control as JSON over HTTP: /tidepool/v1/ */
};
#define CONFIG_SERVICES_GRPC                                                                       \
    (CONFIG_SERVICE_INFERENCE | CONFIG_SERVICE_HEALTH | CONFIG_SERVICE_CONTROL)

struct config_listener {
    char *address;     /* "127.0.0.1:8001", "unix:/path" */
    unsigned services; /* bits of enum config_service: gRPC's or HTTP's, never both */
};

struct config_team {
    char *name;
    int64_t weight;
    json_t *quota; /* NULL, or an object: devices by kind, whole numbers */
};

struct config {
    json_t *file; /* as read, for config_changes; an empty object without a file */
    char *model_repository, *state, *user, *onnxruntime, *token_file; /* NULL: not given */
    struct config_listener listeners[CONFIG_LISTENERS_MAX];
    uint32_t listener_count;
    const char *http_hosts[CONFIG_HOSTS_MAX]; /* texts of `parts` */
    uint32_t http_host_count;
    struct config_team teams[CONFIG_TEAMS_MAX];
    uint32_t team_count;
    bool port_fallback, testing;
    int mode; /* index of observe, advise, act: enum core_mode */
    int64_t network_threads;
    int64_t inline_us;
    double drain_s;
    struct {
        int64_t cpu_devices, cores_per_device, memory_mib;
    } devices;
    struct {
        int64_t message_mib, requests_mib, streams, connections, calls, ping_interval_ms;
    } limits;
    struct {
        double demand_fast_s, demand_slow_s, late_budget, load_high, load_low, shrink_high,
            shrink_after_s, shrink_low, cool_down_s, hold_min_s, notice_s, extension_s,
            stopped_cap_s, sustained_s, kill_bound_s, scale_lead_s, scale_hold_s, leave_lead_s,
            leave_useful_s, slow, drain, drain_after_s, health_budget;
        int64_t moves_per_hour, moves_extra;
    } planner;
    struct {
        bool enabled;
        int64_t max_mib;
    } record;
    struct {
        int level, format; /* enum log_level; 0 text, 1 json */
    } log;
    struct {
        json_t *listeners, *http_hosts, *teams, *devices, *limits, *planner, *record, *log;
    } parts; /* inside config.c only */
};

/* `path` NULL: the defaults. On an error `ret_config` may be finished (config_fini) or not. */
int config_read(struct config *ret_config, const char *path, struct error *error);
void config_fini(struct config *config);

/* What the command line says wins over the file. */
int config_override(struct config *config, const char *model_repository, const char *state,
                    struct error *error);
/* Fills what is still open: the state directory (/var/lib/tidepool for root, else
 * $XDG_STATE_HOME/tidepool or ~/.local/state/tidepool) and a Unix socket for control where no
 * listener is one: /run/tidepool/tidepool.sock with the state directory /var/lib/tidepool, else
 * tidepool.sock in the state directory. */
int config_complete(struct config *config, struct error *error);

/* Names of the top-level keys that differ, as ", "-separated text (cut at size); what can change
 * while the server runs is in `ret_live`, what needs a restart in `ret_restart`. */
void config_changes(const struct config *old, const struct config *new, char *ret_live,
                    size_t live_size, char *ret_restart, size_t restart_size);

/* config/README.md: every key of the server's file and of a model's config.json. */
void config_print_help(FILE *out);

/* "inference, health" */
void config_services_print(unsigned services, char *text, size_t size);
const char *config_service_name(unsigned bit_index); /* NULL past the last one */

#endif
