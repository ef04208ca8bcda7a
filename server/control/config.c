#include "server/control/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/base/options.h"
#include "server/control/config_table.h"

#define CONFIG_QUOTA_MAX 16384

static const char *const service_names[] = {"inference", "health", "control", "http",
                                            "metrics",   "json",   NULL};

static const struct {
    const char *address;
    unsigned services;
} standard_listeners[] = {
    {"127.0.0.1:8001", CONFIG_SERVICES_GRPC},
    {"127.0.0.1:8000", CONFIG_SERVICE_HTTP | CONFIG_SERVICE_JSON},
    {"127.0.0.1:8002", CONFIG_SERVICE_METRICS},
};

const char *config_service_name(unsigned bit_index)
{
    unsigned count = sizeof service_names / sizeof service_names[0] - 1;
    return bit_index < count ? service_names[bit_index] : NULL;
}

void config_services_print(unsigned services, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned bit = 0; service_names[bit] != NULL && used < size; bit++) {
        if ((services & (1u << bit)) != 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     service_names[bit]);
        }
    }
}

/* ---- listeners ------------------------------------------------------------------------------- */

static int listener_add(struct config *config, const char *address, unsigned services,
                        struct error *error)
{
    if (config->listener_count == CONFIG_LISTENERS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "config.listeners: more than %d",
                         CONFIG_LISTENERS_MAX);
    }
    char *copy = strdup(address);
    if (copy == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "read config: no memory");
    }
    config->listeners[config->listener_count++] = (struct config_listener){copy, services};
    return 0;
}

static int service_read(const json_t *value, const char *where, unsigned *services,
                        struct error *error)
{
    const char *name = json_string_value(value);
    size_t count = sizeof service_names / sizeof service_names[0] - 1;
    for (size_t bit = 0; name != NULL && bit < count; bit++) {
        if (strcmp(name, service_names[bit]) == 0) {
            *services |= 1u << bit;
            return 0;
        }
    }
    char all[128];
    config_services_print(~0u, all, sizeof all);
    return error_set(error, ERROR_INVALID_ARGUMENT, "%s.services: '%.64s' is none of %s", where,
                     name != NULL ? name : "(not a text)", all);
}

static int services_read(const json_t *list, const char *where, unsigned *services,
                         struct error *error)
{
    size_t index;
    json_t *value;
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s.services: must be a list of at least one name", where);
    }
    json_array_foreach((json_t *)list, index, value)
    {
        int result = service_read(value, where, services, error);
        if (result < 0) {
            return result;
        }
    }
    if ((*services & CONFIG_SERVICES_GRPC) != 0 && (*services & ~CONFIG_SERVICES_GRPC) != 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s.services: one address speaks gRPC (inference, health, control) or "
                         "HTTP (http, metrics, json), not both; make it two listeners",
                         where);
    }
    return 0;
}

static int listener_read(struct config *config, const json_t *object, const char *where,
                         struct error *error)
{
    struct config_listener_entry entry = {0};
    unsigned services = 0;
    int result = options_read(config_listener_table, config_listener_table_count, object, where,
                              &entry, error);
    if (result == 0) {
        result = services_read(entry.services, where, &services, error);
    }
    if (result == 0 && strncmp(entry.address, "unix:", 5) == 0 &&
        (services & ~CONFIG_SERVICES_GRPC) != 0) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "%s: http, metrics and json are served on TCP addresses only", where);
    }
    if (result == 0) {
        result = listener_add(config, entry.address, services, error);
    }
    options_free(config_listener_table, config_listener_table_count, &entry);
    return result;
}

static int listeners_read(struct config *config, struct error *error)
{
    size_t index;
    json_t *object;
    if (config->parts.listeners == NULL) {
        int result = 0;
        for (size_t i = 0; i < sizeof standard_listeners / sizeof standard_listeners[0]; i++) {
            result = result < 0 ? result
                                : listener_add(config, standard_listeners[i].address,
                                               standard_listeners[i].services, error);
        }
        return result;
    }
    if (!json_is_array(config->parts.listeners)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "config.listeners: must be a list");
    }
    json_array_foreach(config->parts.listeners, index, object)
    {
        char where[64];
        snprintf(where, sizeof where, "config.listeners[%zu]", index);
        int result = listener_read(config, object, where, error);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int hosts_read(struct config *config, struct error *error)
{
    size_t index;
    json_t *value;
    const json_t *list = config->parts.http_hosts;
    if (list != NULL && !json_is_array(list)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "config.http_hosts: must be a list");
    }
    json_array_foreach((json_t *)(uintptr_t)list, index, value)
    {
        const char *name = json_string_value(value);
        if (name == NULL || name[0] == '\0' || config->http_host_count == CONFIG_HOSTS_MAX) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "config.http_hosts[%zu]: must be one of at most %d names, without a "
                             "port",
                             index, CONFIG_HOSTS_MAX);
        }
        config->http_hosts[config->http_host_count++] = name;
    }
    return 0;
}

/* ---- teams ----------------------------------------------------------------------------------- */

static int quota_check(const struct config_team *team, const char *where, struct error *error)
{
    const char *kind;
    json_t *devices;
    if (team->quota != NULL && !json_is_object(team->quota)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s.quota: must be an object", where);
    }
    json_object_foreach(team->quota, kind, devices)
    {
        if (!json_is_integer(devices) || json_integer_value(devices) < 0 ||
            json_integer_value(devices) > CONFIG_QUOTA_MAX) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "%s.quota.%.32s: must be a whole number from 0 to %d", where, kind,
                             CONFIG_QUOTA_MAX);
        }
    }
    return 0;
}

static int teams_read(struct config *config, struct error *error)
{
    size_t index;
    json_t *object;
    if (config->parts.teams != NULL && !json_is_array(config->parts.teams)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "config.teams: must be a list");
    }
    json_array_foreach(config->parts.teams, index, object)
    {
        char where[64];
        snprintf(where, sizeof where, "config.teams[%zu]", index);
        if (index == CONFIG_TEAMS_MAX) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "config.teams: more than %d",
                             CONFIG_TEAMS_MAX);
        }
        struct config_team *team = &config->teams[config->team_count++];
        int result =
            options_read(config_team_table, config_team_table_count, object, where, team, error);
        result = result == 0 ? quota_check(team, where, error) : result;
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int part_read(const struct config_part *part, struct config *config, struct error *error)
{
    char where[64];
    json_t *object = *(json_t **)((char *)config + part->offset);
    json_t *empty = object == NULL ? json_object() : NULL;
    snprintf(where, sizeof where, "config.%s", part->name);
    int result = options_read(part->table, part->count, object != NULL ? object : empty, where,
                              config, error);
    json_decref(empty);
    return result;
}

static int thresholds_check(const struct config *config, struct error *error)
{
    if (config->planner.load_low >= config->planner.load_high) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "config.planner.load_low: %g must be less than load_high (%g)",
                         config->planner.load_low, config->planner.load_high);
    }
    if (config->planner.drain >= config->planner.slow) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "config.planner.drain: %g must be less than slow (%g)",
                         config->planner.drain, config->planner.slow);
    }
    if (config->planner.shrink_low >= config->planner.shrink_high) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "config.planner.shrink_low: %g must be less than shrink_high (%g)",
                         config->planner.shrink_low, config->planner.shrink_high);
    }
    return 0;
}

int config_read(struct config *ret_config, const char *path, struct error *error)
{
    int result = -ERROR_RESOURCE_EXHAUSTED;
    struct config config = {0};
    config.file = path != NULL ? options_parse_file(path, error) : json_object();
    if (config.file == NULL) {
        result = error != NULL && error->code != ERROR_NONE ? -(int)error->code : result;
        goto failed;
    }
    result = options_read(config_table, config_table_count, config.file, "config", &config, error);
    for (size_t i = 0; i < config_parts_count && result == 0; i++) {
        result = part_read(&config_parts[i], &config, error);
    }
    if (result == 0) {
        result = listeners_read(&config, error);
    }
    if (result == 0) {
        result = hosts_read(&config, error);
    }
    if (result == 0) {
        result = teams_read(&config, error);
    }
    if (result == 0) {
        result = thresholds_check(&config, error);
    }
    if (result < 0) {
        goto failed;
    }
    *ret_config = config;
    return 0;
failed:
    config_fini(&config);
    return result;
}

void config_fini(struct config *config)
{
    options_free(config_table, config_table_count, config);
    for (uint32_t i = 0; i < config->listener_count; i++) {
        free(config->listeners[i].address);
    }
    config->listener_count = 0;
    for (uint32_t i = 0; i < config->team_count; i++) {
        options_free(config_team_table, config_team_table_count, &config->teams[i]);
    }
    config->team_count = 0;
    json_decref(config->file);
    config->file = NULL;
}

static int text_replace(char **field, const char *value, struct error *error)
{
    if (value == NULL) {
        return 0;
    }
    char *copy = strdup(value);
    if (copy == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "read config: no memory");
    }
    free(*field);
    *field = copy;
    return 0;
}

int config_override(struct config *config, const char *model_repository, const char *state,
                    struct error *error)
{
    int result = text_replace(&config->model_repository, model_repository, error);
    return result < 0 ? result : text_replace(&config->state, state, error);
}

/* ---- what is left open ------------------------------------------------------------------------
 */

#define SYSTEM_STATE "/var/lib/tidepool"
#define SYSTEM_SOCKET "unix:/run/tidepool/tidepool.sock"

static int state_find(struct config *config, struct error *error)
{
    char path[4096];
    const char *state_home = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    if (geteuid() == 0) {
        snprintf(path, sizeof path, SYSTEM_STATE);
    } else if (state_home != NULL && state_home[0] == '/') {
        snprintf(path, sizeof path, "%s/tidepool", state_home);
    } else if (home != NULL && home[0] == '/') {
        snprintf(path, sizeof path, "%s/.local/state/tidepool", home);
    } else {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "state directory: $HOME is not set; give --state DIR");
    }
    return text_replace(&config->state, path, error);
}

int config_complete(struct config *config, struct error *error)
{
    char address[4160];
    int result = config->state == NULL ? state_find(config, error) : 0;
    if (result < 0) {
        return result;
    }
    for (uint32_t i = 0; i < config->listener_count; i++) {
        if (strncmp(config->listeners[i].address, "unix:", 5) == 0) {
            return 0;
        }
    }
    if (strcmp(config->state, SYSTEM_STATE) == 0) {
        snprintf(address, sizeof address, SYSTEM_SOCKET);
    } else {
        snprintf(address, sizeof address, "unix:%s/tidepool.sock", config->state);
    }
    return listener_add(config, address, CONFIG_SERVICES_GRPC, error);
}

/* ---- reload -----------------------------------------------------------------------------------
 */

static void name_append(char *text, size_t size, const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", name);
}

void config_changes(const struct config *old, const struct config *new, char *ret_live,
                    size_t live_size, char *ret_restart, size_t restart_size)
{
    ret_live[0] = '\0';
    ret_restart[0] = '\0';
    for (size_t i = 0; i < config_table_count; i++) {
        const char *name = config_table[i].name;
        const json_t *before = json_object_get(old->file, name);
        const json_t *after = json_object_get(new->file, name);
        if (before == after || (before != NULL && after != NULL && json_equal(before, after))) {
            continue;
        }
        if (strcmp(name, "log") == 0 || strcmp(name, "testing") == 0) {
            name_append(ret_live, live_size, name);
        } else {
            name_append(ret_restart, restart_size, name);
        }
    }
}
