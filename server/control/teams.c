/* teams.c: the teams that jobs name: their weights and quotas, by name. A team that nobody has
 * configured has weight 1 and no quota. */
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/adjust.h"
#include "server/control/state.h"

/* ---- the list ---- */

static const struct team_entry *team_find(const struct control *control, const char *name)
{
    for (uint32_t i = 0; i < control->team_count; i++) {
        if (strcmp(control->teams[i].name, name) == 0) {
            return &control->teams[i];
        }
    }
    return NULL;
}

static bool name_valid(const char *name)
{
    size_t length = strlen(name);
    return length < TEAM_NAME_SIZE && model_name_valid(name, length);
}

static struct team_entry *team_find_or_add(struct control *control, const char *name,
                                           struct error *error)
{
    const struct team_entry *there = team_find(control, name);
    if (there != NULL) {
        return &control->teams[there - control->teams];
    }
    if (!name_valid(name)) {
        error_set(error, ERROR_INVALID_ARGUMENT,
                  "team '%.80s': wants 1 to %d of A-Z a-z 0-9 . _ -, the first a letter, a digit "
                  "or _",
                  name, TEAM_NAME_SIZE - 1);
        return NULL;
    }
    if (control->team_count == TEAMS_MAX) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "team '%s': there are %d teams already", name,
                  TEAMS_MAX);
        error_set_bound(error, "teams", TEAMS_MAX + 1, TEAMS_MAX);
        return NULL;
    }
    struct team_entry *team = &control->teams[control->team_count++];
    *team = (struct team_entry){.weight = 1};
    snprintf(team->name, sizeof team->name, "%s", name);
    revision_touch_status(control);
    return team;
}

static uint64_t number_of(const struct control *control, const struct team_entry *team)
{
    return (uint64_t)(team - control->teams) + 1;
}

int team_number(struct control *control, const char *name, uint64_t *ret_number,
                struct error *error)
{
    *ret_number = 0;
    if (name[0] == '\0') {
        return 0;
    }
    const struct team_entry *team = team_find_or_add(control, name, error);
    if (team == NULL) {
        return -(int)error->code;
    }
    *ret_number = number_of(control, team);
    return 0;
}

uint64_t team_known(const struct control *control, const char *name)
{
    const struct team_entry *team = team_find(control, name);
    return team != NULL ? number_of(control, team) : 0;
}

/* ---- the start ---- */

static int configure(struct control *control, const struct config_team *configured,
                     struct error *error)
{
    struct team_entry *team = team_find_or_add(control, configured->name, error);
    const char *kind;
    json_t *devices;
    if (team == NULL) {
        return error_prefix(error, "config.teams");
    }
    team->configured = true;
    team->weight = (uint32_t)configured->weight;
    json_object_foreach(configured->quota, kind, devices)
    {
        uint32_t mask = kind[0] != '\0' ? device_kinds_mask(control, kind) : 0;
        if (mask == 0) {
            log_write(LOG_WARN, "control", "quota of no device here", "team=%s kind=%s", team->name,
                      kind);
        } else {
            team->quota[__builtin_ctz(mask)] = (uint32_t)json_integer_value(devices);
        }
    }
    return 0;
}

int teams_create(struct control *control, struct error *error)
{
    int result = 0;
    for (uint32_t i = 0; i < control->config->team_count && result == 0; i++) {
        result = configure(control, &control->config->teams[i], error);
    }
    /* Teams that only overrides know. */
    const struct override *override;
    for (size_t i = 0; (override = overrides_at(control->overrides, i)) != NULL && result == 0;
         i++) {
        if (override->object == OVERRIDE_TEAM &&
            team_find_or_add(control, override->name, error) == NULL) {
            result = -(int)error->code;
        }
    }
    return result;
}

void teams_boot(struct control *control)
{
    for (uint32_t i = 0; i < control->team_count; i++) {
        team_adjust(control, control->teams[i].name);
    }
}

/* ---- what holds ---- */

static const struct override *find(const struct control *control, const char *name,
                                   const char *field)
{
    return overrides_find(control->overrides, OVERRIDE_TEAM, name, field);
}

void team_quota_field(const struct control *control, uint32_t kind, char field[OVERRIDE_FIELD_SIZE])
{
    snprintf(field, OVERRIDE_FIELD_SIZE, TEAM_QUOTA "%s", control->kinds[kind]);
}

/* Also whether anything of it is set at all. */
static bool fill_spec(const struct control *control, const struct team_entry *team,
                      struct core_team_spec *ret_spec)
{
    const struct override *weight = find(control, team->name, TEAM_WEIGHT);
    bool set = team->configured || weight != NULL;
    *ret_spec =
        (struct core_team_spec){.team = number_of(control, team),
                                .weight = weight != NULL ? (uint32_t)weight->value : team->weight};
    for (uint32_t kind = 0; kind < control->kind_count; kind++) {
        char field[OVERRIDE_FIELD_SIZE];
        team_quota_field(control, kind, field);
        const struct override *quota = find(control, team->name, field);
        set = set || quota != NULL;
        ret_spec->quota[kind] = quota != NULL ? (uint32_t)quota->value : team->quota[kind];
    }
    return set;
}

void team_adjust(struct control *control, const char *name)
{
    const struct team_entry *there = team_find(control, name);
    struct core_event event = {.kind = CORE_EVENT_TEAM_CHANGED};
    if (there == NULL) {
        return;
    }
    struct team_entry *team = &control->teams[there - control->teams];
    bool set = fill_spec(control, team, &event.team_spec);
    team->revisions.settings = control->revision + 1;
    revision_touch(control, &team->revisions, true);
    if (!set) {
        event = (struct core_event){.kind = CORE_EVENT_TEAM_REMOVED};
        event.team.team = number_of(control, team);
    }
    if (set || team->in_core) {
        team->in_core = set;
        control_feed(control, event);
    }
}

int64_t team_configured(const struct control *control, const char *name, const char *field)
{
    const struct team_entry *team = team_find(control, name);
    const char *kind = field + sizeof TEAM_QUOTA - 1;
    if (strcmp(field, TEAM_WEIGHT) == 0) {
        return team != NULL ? team->weight : 1;
    }
    uint32_t mask = device_kinds_mask(control, kind);
    return team != NULL && kind[0] != '\0' && mask != 0 ? team->quota[__builtin_ctz(mask)] : 0;
}

/* ---- changing ---- */

static int check_wish(const struct control *control, const struct control_team_wish *wish,
                      struct error *error)
{
    if (wish->sets_weight && (wish->weight == 0 || wish->weight > TEAM_WEIGHT_MAX)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "team: weight is %u; it may be 1 to %d",
                         wish->weight, TEAM_WEIGHT_MAX);
    }
    for (size_t i = 0; i < wish->quota_count; i++) {
        const struct control_team_quota *quota = &wish->quotas[i];
        if (quota->kind[0] == '\0' || device_kinds_mask(control, quota->kind) == 0) {
            return error_set(error, ERROR_NOT_FOUND,
                             "team: quota of '%.32s': there is no such kind of device here",
                             quota->kind);
        }
        if (quota->devices > CORE_DEVICES_MAX) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "team: quota of '%s' is %u; at most %d",
                             quota->kind, quota->devices, CORE_DEVICES_MAX);
        }
    }
    return 0;
}

int team_wish_make(struct control *control, const struct control_team_wish *wish,
                   const struct revisions **ret_revisions, struct error *error)
{
    int result = check_wish(control, wish, error);
    const struct team_entry *team =
        result == 0 ? team_find_or_add(control, wish->name, error) : NULL;
    if (team == NULL) {
        return -(int)error->code;
    }
    *ret_revisions = &team->revisions;
    return 0;
}

int team_wish_spec(const struct control *control, const struct control_team_wish *wish,
                   struct core_team_spec *ret_spec, struct error *error)
{
    const struct team_entry *team = team_find(control, wish->name);
    int result = check_wish(control, wish, error);
    if (result < 0) {
        return result;
    }
    *ret_spec = (struct core_team_spec){.team = control->team_count + 1, .weight = 1};
    if (team != NULL) {
        fill_spec(control, team, ret_spec);
    }
    ret_spec->weight = wish->sets_weight ? wish->weight : ret_spec->weight;
    for (size_t i = 0; i < wish->quota_count; i++) {
        uint32_t mask = device_kinds_mask(control, wish->quotas[i].kind);
        ret_spec->quota[__builtin_ctz(mask)] = wish->quotas[i].devices;
    }
    return 0;
}

/* ---- showing ---- */

bool control_team_at(const struct control *control, size_t index, struct control_team *ret_team)
{
    if (index >= control->team_count) {
        return false;
    }
    const struct team_entry *team = &control->teams[index];
    struct core_team_view view = {0};
    struct core_team_spec spec;
    fill_spec(control, team, &spec);
    core_team_find(control->core, spec.team, &view);
    *ret_team = (struct control_team){.revision = team->revisions.any,
                                      .name = team->name,
                                      .weight = spec.weight,
                                      .leases = view.leases,
                                      .leases_waiting = view.leases_waiting,
                                      .usage_ns = view.usage_ns,
                                      .kind_count = control->kind_count};
    for (uint32_t kind = 0; kind < control->kind_count; kind++) {
        ret_team->kinds[kind].kind = control->kinds[kind];
        ret_team->kinds[kind].quota = spec.quota[kind];
        ret_team->kinds[kind].held = view.devices[kind];
    }
    return true;
}

int control_team_find(const struct control *control, const char *name, size_t *ret_index,
                      struct error *error)
{
    const struct team_entry *team = team_find(control, name);
    if (team == NULL) {
        return error_set(error, ERROR_NOT_FOUND, "no team '%.64s'", name);
    }
    *ret_index = (size_t)(team - control->teams);
    return 0;
}
