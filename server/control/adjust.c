/* adjust.c: settings that calls change while the server runs: what may be changed, what a change
 * does, how it ends. The values are kept in overrides.h and, over restarts, in the store. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/adjust.h"
#include "server/control/state.h"

#define ROWS_MAX (KINDS_MAX + 1)
#define EXPIRES_MAX_NS (UINT64_C(366) * 86400 * NS_PER_S)
#define LEAVE_MAX_NS (UINT64_C(30) * 86400 * NS_PER_S)
#define SLO_MAX_MS 3600e3

static const char field_cordoned[] = "cordoned";
static const char field_drained[] = "drained_by_wall_ns";
static const char field_reclaimed[] = "reclaimed_by_wall_ns";
static const char field_min[] = "devices_min";
static const char field_max[] = "devices_max";
static const char field_slo[] = "slo_ms"; /* kept in nanoseconds */
static const char field_priority[] = "priority";

/* ---- one change ---- */

struct adjustment {
    const struct control_terms *terms;
    enum override_object object;
    const char *name;
    struct {
        char field[OVERRIDE_FIELD_SIZE];
        int64_t value;
        bool gone;
    } rows[ROWS_MAX];
    size_t count;
};

static void put_row(struct adjustment *adjustment, const char *field, int64_t value, bool gone)
{
    size_t row = adjustment->count++;
    assert(row < ROWS_MAX);
    snprintf(adjustment->rows[row].field, sizeof adjustment->rows[row].field, "%s", field);
    adjustment->rows[row].value = value;
    adjustment->rows[row].gone = gone;
}

static void put(struct adjustment *adjustment, const char *field, int64_t value)
{
    put_row(adjustment, field, value, false);
}

/* What the configuration says holds again. */
static void take_back(struct control *control, struct adjustment *adjustment, const char *field)
{
    if (overrides_find(control->overrides, adjustment->object, adjustment->name, field) != NULL) {
        put_row(adjustment, field, 0, true);
    }
}

static int check_terms(const struct control *control, const struct control_terms *terms,
                       const struct revisions *revisions, const char *what, struct error *error)
{
    size_t actor = strlen(terms->actor), reason = strlen(terms->reason);
    if (actor == 0 || actor >= OVERRIDE_ACTOR_SIZE || reason >= OVERRIDE_REASON_SIZE) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "terms: the actor has 1 to %d bytes, the reason at most %d; got %zu and "
                         "%zu",
                         OVERRIDE_ACTOR_SIZE - 1, OVERRIDE_REASON_SIZE - 1, actor, reason);
    }
    if (terms->expires_in_ns > EXPIRES_MAX_NS) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "terms.expires_in_s: at most 366 days (%" PRIu64 "); 0: it stays",
                         EXPIRES_MAX_NS / NS_PER_S);
    }
    if (terms->expected_revision != 0 && terms->expected_revision < revisions->settings) {
        return error_set(error, ERROR_ABORTED,
                         "%s: its settings were changed after revision %" PRIu64 ", at %" PRIu64
                         "; read it again",
                         what, terms->expected_revision, revisions->settings);
    }
    if (terms->expected_revision > control->revision) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "terms.expected_revision: %" PRIu64 " has not been yet (now %" PRIu64 ")",
                         terms->expected_revision, control->revision);
    }
    return 0;
}

static void row_apply(struct control *control, const struct adjustment *adjustment, size_t index,
                      struct store_override *ret_row)
{
    const struct control_terms *terms = adjustment->terms;
    struct override override = {.object = adjustment->object,
                                .value = adjustment->rows[index].value,
                                .made_wall_ns = clock_pace_wall_ns(&control->pace),
                                .expires_ns = UINT64_MAX};
    if (terms->expires_in_ns > 0) {
        override.expires_wall_ns = override.made_wall_ns + terms->expires_in_ns;
        override.expires_ns = control->now_ns + terms->expires_in_ns;
    }
    snprintf(override.name, sizeof override.name, "%s", adjustment->name);
    snprintf(override.field, sizeof override.field, "%s", adjustment->rows[index].field);
    snprintf(override.actor, sizeof override.actor, "%s", terms->actor);
    snprintf(override.reason, sizeof override.reason, "%s", terms->reason);
    *ret_row = (struct store_override){.object = override_object_name(adjustment->object),
                                       .name = adjustment->name,
                                       .field = adjustment->rows[index].field,
                                       .actor = terms->actor,
                                       .reason = terms->reason,
                                       .value = override.value,
                                       .made_wall_ns = override.made_wall_ns,
                                       .expires_wall_ns = override.expires_wall_ns,
                                       .gone = adjustment->rows[index].gone};
    if (adjustment->rows[index].gone) {
        overrides_remove(control->overrides, override.object, override.name, override.field,
                         terms->actor, terms->reason, control->now_ns);
    } else if (overrides_set(control->overrides, &override, control->now_ns, NULL) < 0) {
        log_write(LOG_ERROR, "control", "override lost", "field=%s", override.field);
    }
}

/* The object's settings as they are now. */
static void settle(struct control *control, enum override_object object, const char *name)
{
    size_t index = 0;
    if (object == OVERRIDE_DEVICE && control_device_find(control, name, &index, NULL) == 0) {
        device_adjust(control, (uint32_t)index);
    } else if (object == OVERRIDE_ENDPOINT) {
        struct endpoint_entry *endpoint = endpoint_by_name(control, name, NULL);
        if (endpoint != NULL) {
            endpoint_adjust(control, endpoint);
        }
    } else if (object == OVERRIDE_TEAM) {
        team_adjust(control, name);
    }
}

static void log_change(const struct adjustment *adjustment)
{
    const struct control_terms *terms = adjustment->terms;
    struct log_text actor, reason;
    for (size_t i = 0; i < adjustment->count; i++) {
        bool gone = adjustment->rows[i].gone;
        log_write(LOG_INFO, "control", gone ? "override taken back" : "override",
                  "%s=%s field=%s value=%" PRId64 " actor=%s reason=%s expires_in_s=%" PRIu64,
                  override_object_name(adjustment->object), adjustment->name,
                  adjustment->rows[i].field, gone ? 0 : adjustment->rows[i].value,
                  log_quote(&actor, terms->actor), log_quote(&reason, terms->reason),
                  terms->expires_in_ns / NS_PER_S);
    }
}

/* Done at once; the answer waits for the disk. */
static void adjust(struct control *control, const struct adjustment *adjustment,
                   struct kept_answer *answer)
{
    struct store_override rows[ROWS_MAX];
    for (size_t i = 0; i < adjustment->count; i++) {
        row_apply(control, adjustment, i, &rows[i]);
    }
    log_change(adjustment);
    settle(control, adjustment->object, adjustment->name);
    if (store_put_overrides(control->store, rows, adjustment->count, kept_answer_done, answer) <
        0) {
        struct error error = {0};
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory");
        kept_answer_done(answer, &error);
    }
    revisions_refresh(control);
}

/* The end of every call here: refused, only looked at, nothing to do, or done. `endpoint`: the
 * number of the endpoint concerned, whose index may change until the answer; 0: none. */
static void conclude(struct control *control, const struct adjustment *adjustment, size_t index,
                     uint64_t endpoint, int result, struct error *error, control_done *done,
                     void *context)
{
    struct kept_answer *answer = NULL;
    size_t room = 0;
    while (overrides_at(control->overrides, room) != NULL) {
        room++;
    }
    if (result == 0 && room + adjustment->count > OVERRIDES_MAX) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED,
                           "%zu settings are overridden, of at most %d; take some back", room,
                           OVERRIDES_MAX);
        error_set_bound(error, "overrides", room + adjustment->count, OVERRIDES_MAX);
    }
    bool changes = result == 0 && !adjustment->terms->validate_only && adjustment->count > 0;
    if (changes) {
        answer = kept_answer_create(control, done, context);
        if (answer == NULL) {
            result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the change");
        }
    }
    if (result < 0 || answer == NULL) {
        done(control, context, index, result < 0 ? error : NULL);
        return;
    }
    answer->index = index;
    answer->endpoint = endpoint;
    adjust(control, adjustment, answer);
}

/* ---- devices ---- */

static int begin_device(struct control *control, size_t index, const struct control_terms *terms,
                        struct adjustment *ret_adjustment, struct error *error)
{
    const struct device_entry *entry = &control->devices[index];
    char what[96];
    *ret_adjustment =
        (struct adjustment){.terms = terms, .object = OVERRIDE_DEVICE, .name = entry->device->id};
    snprintf(what, sizeof what, "device '%s'", entry->device->id);
    return check_terms(control, terms, &entry->revisions, what, error);
}

static int check_within(uint64_t within_ns, struct error *error)
{
    return within_ns <= LEAVE_MAX_NS
               ? 0
               : error_set(error, ERROR_INVALID_ARGUMENT, "within_s: at most 30 days (%" PRIu64 ")",
                           LEAVE_MAX_NS / NS_PER_S);
}

void control_device_cordon(struct control *control, size_t index, bool on,
                           const struct control_terms *terms, control_done *done, void *context)
{
    struct adjustment adjustment;
    struct error error = {0};
    int result = begin_device(control, index, terms, &adjustment, &error);
    if (on) {
        put(&adjustment, field_cordoned, 1);
    } else {
        take_back(control, &adjustment, field_cordoned);
        take_back(control, &adjustment, field_drained);
    }
    conclude(control, &adjustment, index, 0, result, &error, done, context);
}

void control_device_drain(struct control *control, size_t index, uint64_t within_ns,
                          const struct control_terms *terms, control_done *done, void *context)
{
    struct adjustment adjustment;
    struct error error = {0};
    int result = begin_device(control, index, terms, &adjustment, &error);
    result = result == 0 ? check_within(within_ns, &error) : result;
    put(&adjustment, field_cordoned, 1);
    put(&adjustment, field_drained, (int64_t)(clock_pace_wall_ns(&control->pace) + within_ns));
    conclude(control, &adjustment, index, 0, result, &error, done, context);
}

void control_device_reclaim(struct control *control, size_t index, uint64_t within_ns, bool stays,
                            const struct control_terms *terms, control_done *done, void *context)
{
    struct adjustment adjustment;
    struct error error = {0};
    int result = begin_device(control, index, terms, &adjustment, &error);
    result = result == 0 ? check_within(within_ns, &error) : result;
    if (stays) {
        take_back(control, &adjustment, field_reclaimed);
    } else {
        put(&adjustment, field_reclaimed,
            (int64_t)(clock_pace_wall_ns(&control->pace) + within_ns));
    }
    conclude(control, &adjustment, index, 0, result, &error, done, context);
}

/* On the control's clock; never 0, which is "it stays". */
static uint64_t leave_ns(struct control *control, uint64_t by_wall_ns)
{
    uint64_t wall_ns = clock_pace_wall_ns(&control->pace);
    uint64_t by_ns =
        by_wall_ns > wall_ns ? control->now_ns + (by_wall_ns - wall_ns) : control->now_ns;
    return by_ns > 0 ? by_ns : 1;
}

static const struct override *find_device(const struct control *control, uint32_t index,
                                          const char *field)
{
    return overrides_find(control->overrides, OVERRIDE_DEVICE, control->devices[index].device->id,
                          field);
}

/* The earlier of the two times by which it must be empty; 0: it stays. */
static uint64_t leave_wall_ns(const struct control *control, uint32_t index)
{
    const struct override *drained = find_device(control, index, field_drained);
    const struct override *reclaimed = find_device(control, index, field_reclaimed);
    uint64_t first = drained != NULL ? (uint64_t)drained->value : 0;
    uint64_t second = reclaimed != NULL ? (uint64_t)reclaimed->value : 0;
    return first == 0 || (second != 0 && second < first) ? second : first;
}

void device_adjust(struct control *control, uint32_t index)
{
    struct device_entry *entry = &control->devices[index];
    bool cordoned = find_device(control, index, field_cordoned) != NULL;
    uint64_t leaves_wall_ns = leave_wall_ns(control, index);
    struct core_event event = {.kind = CORE_EVENT_DEVICE_CORDONED};
    entry->revisions.settings = control->revision + 1;
    revision_touch(control, &entry->revisions, true);
    if (cordoned != entry->cordoned) {
        entry->cordoned = cordoned;
        event.device_flag.device = device_number(index);
        event.device_flag.on = cordoned;
        control_feed(control, event);
    }
    if (leaves_wall_ns != entry->leaves_wall_ns) {
        entry->leaves_wall_ns = leaves_wall_ns;
        event = (struct core_event){.kind = CORE_EVENT_DEVICE_RECLAIM_BY};
        event.device_time.device = device_number(index);
        event.device_time.by_ns = leaves_wall_ns != 0 ? leave_ns(control, leaves_wall_ns) : 0;
        control_feed(control, event);
    }
}

void device_adjust_reason(const struct control *control, uint32_t index, char *text, size_t size)
{
    const struct override *drained = find_device(control, index, field_drained);
    const struct override *reclaimed = find_device(control, index, field_reclaimed);
    const struct override *cordoned = find_device(control, index, field_cordoned);
    const struct override *said = drained != NULL     ? drained
                                  : reclaimed != NULL ? reclaimed
                                                      : cordoned;
    text[0] = '\0';
    if (said != NULL) {
        snprintf(text, size, "%s by %s%s%s",
                 said == drained     ? "drained"
                 : said == reclaimed ? "wanted back"
                                     : "cordoned",
                 said->actor, said->reason[0] != '\0' ? ": " : "", said->reason);
    }
}

/* ---- endpoints ---- */

struct endpoint_limits {
    uint32_t devices_min, devices_max;
};

/* Of the settings as they would be. */
static struct endpoint_limits limits_with(const struct endpoint_entry *endpoint,
                                          const struct control_endpoint_wish *wish)
{
    return (struct endpoint_limits){wish->sets_min ? wish->devices_min : endpoint->devices_min,
                                    wish->sets_max ? wish->devices_max : endpoint->devices_max};
}

static int check_endpoint(const struct control *control, const struct endpoint_entry *endpoint,
                          const struct control_endpoint_wish *wish, struct error *error)
{
    struct endpoint_limits limits = limits_with(endpoint, wish);
    if (!endpoint->in_serve) {
        return error_set(error, ERROR_FAILED_PRECONDITION, "endpoint '%s' is not served%s%s",
                         endpoint->name, endpoint->reason.text[0] != '\0' ? ": " : " yet",
                         endpoint->reason.text);
    }
    if (limits.devices_min > limits.devices_max || limits.devices_max == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "endpoint '%s': devices_min %u to devices_max %u is no range",
                         endpoint->name, limits.devices_min, limits.devices_max);
    }
    if (wish->sets_min && wish->devices_min > control->device_count) {
        int result = error_set(error, ERROR_INVALID_ARGUMENT,
                               "endpoint '%s': devices_min %u is more than there are (%u)",
                               endpoint->name, wish->devices_min, control->device_count);
        error_set_bound(error, "devices", wish->devices_min, control->device_count);
        return result;
    }
    if (wish->sets_slo && !(wish->slo_ms > 0 && wish->slo_ms <= SLO_MAX_MS)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "endpoint '%s': slo_ms is %g; it may be above 0, to %g", endpoint->name,
                         wish->slo_ms, SLO_MAX_MS);
    }
    if (wish->sets_priority && (wish->priority < 0 || wish->priority > 100)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "endpoint '%s': priority is %d; it may be 0 to 100", endpoint->name,
                         wish->priority);
    }
    return 0;
}

void control_endpoint_set(struct control *control, size_t index,
                          const struct control_endpoint_wish *wish,
                          const struct control_terms *terms, control_done *done, void *context)
{
    const struct endpoint_entry *endpoint = control->endpoints[index];
    struct adjustment adjustment = {
        .terms = terms, .object = OVERRIDE_ENDPOINT, .name = endpoint->name};
    struct error error = {0};
    char what[OVERRIDE_NAME_SIZE + 16];
    snprintf(what, sizeof what, "endpoint '%s'", endpoint->name);
    int result = check_terms(control, terms, &endpoint->revisions, what, &error);
    result = result == 0 ? check_endpoint(control, endpoint, wish, &error) : result;
    if (wish->sets_min) {
        put(&adjustment, field_min, wish->devices_min);
    }
    if (wish->sets_max) {
        put(&adjustment, field_max, wish->devices_max);
    }
    if (wish->sets_slo) {
        put(&adjustment, field_slo, (int64_t)(wish->slo_ms * 1e6));
    }
    if (wish->sets_priority) {
        put(&adjustment, field_priority, wish->priority);
    }
    conclude(control, &adjustment, index, endpoint->number, result, &error, done, context);
}

static int64_t endpoint_value(const struct control *control, const struct endpoint_entry *endpoint,
                              const char *field, int64_t configured)
{
    const struct override *override =
        overrides_find(control->overrides, OVERRIDE_ENDPOINT, endpoint->name, field);
    return override != NULL ? override->value : configured;
}

void endpoint_adjust(struct control *control, struct endpoint_entry *endpoint)
{
    const struct endpoint_settings *base = &endpoint->configured;
    endpoint->devices_max =
        (uint32_t)endpoint_value(control, endpoint, field_max, base->devices_max);
    uint32_t least = (uint32_t)endpoint_value(control, endpoint, field_min, base->devices_min);
    /* Of two overrides one may have ended: the maximum holds. */
    endpoint->devices_min = least < endpoint->devices_max ? least : endpoint->devices_max;
    endpoint->slo_ns =
        (uint64_t)endpoint_value(control, endpoint, field_slo, (int64_t)base->slo_ns);
    endpoint->priority = (int32_t)endpoint_value(control, endpoint, field_priority, base->priority);
    endpoint->revisions.settings = control->revision + 1;
    revision_touch(control, &endpoint->revisions, true);
    if (endpoint->in_serve) {
        struct core_event event = {.kind = CORE_EVENT_ENDPOINT_CHANGED};
        serve_endpoint_set(control->serve, endpoint->number, endpoint->slo_ns, endpoint->priority);
        endpoint_fill_spec(control, endpoint, &event.endpoint_spec);
        control_feed(control, event);
    }
}

/* ---- teams ---- */

void control_team_set(struct control *control, const struct control_team_wish *wish,
                      const struct control_terms *terms, control_done *done, void *context)
{
    struct adjustment adjustment = {.terms = terms, .object = OVERRIDE_TEAM, .name = wish->name};
    const struct revisions none = {0}, *revisions = &none;
    struct core_team_spec spec;
    struct error error = {0};
    char what[TEAM_NAME_SIZE + 16];
    size_t index = TEAMS_MAX; /* of none */
    int result = terms->validate_only ? team_wish_spec(control, wish, &spec, &error)
                                      : team_wish_make(control, wish, &revisions, &error);
    snprintf(what, sizeof what, "team '%.63s'", wish->name);
    result = result == 0 ? check_terms(control, terms, revisions, what, &error) : result;
    if (result == 0 && wish->sets_weight) {
        put(&adjustment, TEAM_WEIGHT, wish->weight);
    }
    for (size_t i = 0; result == 0 && i < wish->quota_count && i < KINDS_MAX; i++) {
        char field[OVERRIDE_FIELD_SIZE];
        uint32_t mask = device_kinds_mask(control, wish->quotas[i].kind);
        team_quota_field(control, (uint32_t)__builtin_ctz(mask), field);
        put(&adjustment, field, wish->quotas[i].devices);
    }
    if (result == 0) {
        control_team_find(control, wish->name, &index, NULL);
    }
    conclude(control, &adjustment, index, 0, result, &error, done, context);
}

/* ---- taking back, and the end of their time ---- */

void control_override_drop(struct control *control, const struct control_override_name *which,
                           const struct control_terms *terms, control_done *done, void *context)
{
    struct adjustment adjustment = {
        .terms = terms, .object = OVERRIDE_OBJECTS, .name = which->name};
    const struct revisions none = {0};
    struct error error = {0};
    for (int object = 0; object < OVERRIDE_OBJECTS; object++) {
        if (strcmp(which->object, override_object_name((enum override_object)object)) == 0) {
            adjustment.object = (enum override_object)object;
        }
    }
    int result = check_terms(control, terms, &none, "override", &error);
    const struct override *each;
    for (size_t i = 0; (each = overrides_at(control->overrides, i)) != NULL && result == 0; i++) {
        if (each->object == adjustment.object && strcmp(each->name, which->name) == 0 &&
            (which->field[0] == '\0' || strcmp(each->field, which->field) == 0)) {
            put_row(&adjustment, each->field, 0, true);
        }
    }
    if (result == 0 && adjustment.count == 0) {
        result = error_set(&error, ERROR_NOT_FOUND, "no override of %.32s '%.128s'%s%.32s",
                           which->object, which->name, which->field[0] != '\0' ? ", field " : "",
                           which->field);
    }
    conclude(control, &adjustment, 0, 0, result, &error, done, context);
}

void overrides_expire(struct control *control)
{
    const struct control_terms terms = {.actor = "(expired)", .reason = ""};
    const struct override *over;
    while ((over = overrides_over(control->overrides, control->now_ns)) != NULL) {
        struct override ended = *over;
        struct adjustment adjustment = {
            .terms = &terms, .object = ended.object, .name = ended.name};
        struct store_override row;
        put_row(&adjustment, ended.field, 0, true);
        row_apply(control, &adjustment, 0, &row);
        log_change(&adjustment);
        settle(control, ended.object, ended.name);
        /* A row that stays on disk ends at the next start: its time is over then, too. */
        store_put_overrides(control->store, &row, 1, count_store_error, control);
    }
}

/* ---- showing ---- */

static void print_value(const char *field, int64_t value, char *text, size_t size)
{
    if (strcmp(field, field_slo) == 0) {
        snprintf(text, size, "%g", (double)value / 1e6);
    } else if (strcmp(field, field_cordoned) == 0) {
        snprintf(text, size, "%s", value != 0 ? "true" : "false");
    } else {
        snprintf(text, size, "%" PRId64, value);
    }
}

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* "": of an object that is not here now. */
static void print_configured(const struct control *control, const struct override *override,
                             char *text, size_t size)
{
    const struct endpoint_entry *endpoint = override->object == OVERRIDE_ENDPOINT
                                                ? endpoint_by_name(control, override->name, NULL)
                                                : NULL;
    text[0] = '\0';
    if (override->object == OVERRIDE_DEVICE) {
        print_value(override->field, 0, text, size);
    } else if (override->object == OVERRIDE_TEAM) {
        print_value(override->field, team_configured(control, override->name, override->field),
                    text, size);
    } else if (endpoint != NULL && endpoint->in_serve) {
        const struct endpoint_settings *base = &endpoint->configured;
        int64_t value = strcmp(override->field, field_min) == 0 ? base->devices_min
                        : strcmp(override->field, field_max) == 0
                            ? least_of(base->devices_max, control->device_count)
                        : strcmp(override->field, field_slo) == 0 ? (int64_t)base->slo_ns
                                                                  : base->priority;
        print_value(override->field, value, text, size);
    }
}

bool control_override_at(const struct control *control, size_t index,
                         struct control_override *ret_override)
{
    const struct override *override = overrides_at(control->overrides, index);
    if (override == NULL) {
        return false;
    }
    *ret_override = (struct control_override){
        .object = override_object_name(override->object),
        .name = override->name,
        .field = override->field,
        .actor = override->actor,
        .reason = override->reason,
        .made_wall_ns = override->made_wall_ns,
        .expires_wall_ns = override->expires_wall_ns,
    };
    print_value(override->field, override->value, ret_override->value, sizeof ret_override->value);
    print_configured(control, override, ret_override->configured, sizeof ret_override->configured);
    return true;
}
