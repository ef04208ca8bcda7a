#include "server/progress/line.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/base/options.h"
#include "server/base/utf8.h"

#define ABILITIES_MAX 16
#define QUOTED_BYTES 80
#define ID_MAX 9007199254740991.0 /* what every reader of JSON keeps exactly */

/* ---- reading ---------------------------------------------------------------------------- */

/* What the tables cannot say is read from these afterwards. */
struct fields {
    struct progress_message message;
    json_t *can, *metrics;
};

#define FIELD(member) offsetof(struct fields, message.member)
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const struct option hello_fields[] = {
    {"rank", OPTION_INT, FIELD(rank), "", 0, PROGRESS_RANKS_MAX - 1, NULL, NULL, false, ""},
    {"ranks", OPTION_INT, FIELD(ranks), "", 1, PROGRESS_RANKS_MAX, NULL, NULL, false, ""},
    {"pid", OPTION_INT, FIELD(pid), "", 0, INT32_MAX, NULL, NULL, false, ""},
    {"can", OPTION_JSON, offsetof(struct fields, can), "", 0, 0, NULL, NULL, false, ""},
};
static const struct option step_fields[] = {
    {"step", OPTION_INT, FIELD(step), "", 0, PROGRESS_STEP_MAX, NULL, NULL, true, "steps done"},
    {"checkpointed_step", OPTION_INT, FIELD(checkpointed_step), "", 0, PROGRESS_STEP_MAX, NULL,
     NULL, false, ""},
    {"waiting_s", OPTION_NUMBER, FIELD(waiting_s), "s", 0, 1e9, NULL, NULL, false, ""},
    {"step_s", OPTION_NUMBER, FIELD(step_s), "s", 0, 1e9, NULL, NULL, false, ""},
    {"metrics", OPTION_JSON, offsetof(struct fields, metrics), "", 0, 0, NULL, NULL, false, ""},
};
static const struct option stand_fields[] = {
    {"request", OPTION_INT, FIELD(request), "", 0, ID_MAX, NULL, NULL, true, "the pause's"},
    {"step", OPTION_INT, FIELD(step), "", 0, PROGRESS_STEP_MAX, NULL, NULL, true, "steps done"},
};
static const struct option resumed_fields[] = {
    {"request", OPTION_INT, FIELD(request), "", 0, ID_MAX, NULL, NULL, true, "the resume's"},
};
static const struct option acknowledged_fields[] = {
    {"notice", OPTION_INT, FIELD(notice), "", 0, ID_MAX, NULL, NULL, true, "its number"},
};
static const struct option extend_fields[] = {
    {"notice", OPTION_INT, FIELD(notice), "", 0, ID_MAX, NULL, NULL, true, "its number"},
    {"seconds", OPTION_NUMBER, FIELD(seconds), "s", 0.001, 86400, NULL, NULL, true, "more"},
};

static const struct {
    const char *name;
    const struct option *fields;
    size_t count;
} kinds[] = {
    [PROGRESS_HELLO] = {"hello", hello_fields, COUNT(hello_fields)},
    [PROGRESS_STEP] = {"progress", step_fields, COUNT(step_fields)},
    [PROGRESS_STOPPED] = {"stopped", stand_fields, COUNT(stand_fields)},
    [PROGRESS_LATE] = {"late", stand_fields, COUNT(stand_fields)},
    [PROGRESS_RESUMED] = {"resumed", resumed_fields, COUNT(resumed_fields)},
    [PROGRESS_ACKNOWLEDGED] = {"acknowledged", acknowledged_fields, COUNT(acknowledged_fields)},
    [PROGRESS_EXTEND] = {"extend", extend_fields, COUNT(extend_fields)},
};

static int kind_find(const char *name, enum progress_kind *ret_kind, struct error *error)
{
    const char *names[COUNT(kinds)];
    for (size_t i = 0; i < COUNT(kinds); i++) {
        names[i] = kinds[i].name;
        if (strcmp(name, names[i]) == 0) {
            *ret_kind = (enum progress_kind)i;
            return 0;
        }
    }
    const char *nearest = options_nearest(name, names, COUNT(kinds));
    return error_set(error, ERROR_INVALID_ARGUMENT, "line: unknown key '%.64s'%s%s%s", name,
                     nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "'?" : "");
}

static int abilities_read(const json_t *can, unsigned *ret_can, struct error *error)
{
    static const char *const names[] = {"pause", "notice", "resize"};
    size_t index;
    json_t *value;
    if (!json_is_array(can) || json_array_size(can) > ABILITIES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "hello.can: must be a list of at most %d texts", ABILITIES_MAX);
    }
    *ret_can = 0;
    json_array_foreach((json_t *)can, index, value)
    {
        if (!json_is_string(value)) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "hello.can: must hold texts only");
        }
        for (unsigned i = 0; i < COUNT(names); i++) {
            if (strcmp(json_string_value(value), names[i]) == 0) {
                *ret_can |= 1u << i;
            }
        }
    }
    return 0;
}

static int metric_read(const char *name, const json_t *value, struct progress_message *message,
                       struct error *error)
{
    struct progress_metric *metric;
    if (name[0] == '\0' || strlen(name) >= PROGRESS_NAME_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "progress.metrics: a name has 1 to %d bytes, '%.16s…' has %zu",
                         PROGRESS_NAME_MAX - 1, name, strlen(name));
    }
    if (!json_is_number(value) && !json_is_null(value)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "progress.metrics.%s: must be a number, or null for one that is not",
                         name);
    }
    metric = &message->metrics[message->metric_count++];
    memcpy(metric->name, name, strlen(name) + 1);
    metric->value = json_is_null(value) ? (double)NAN : json_number_value(value);
    return 0;
}

static int metrics_read(const json_t *metrics, struct progress_message *message,
                        struct error *error)
{
    const char *name;
    json_t *value;
    if (!json_is_object(metrics) || json_object_size(metrics) > PROGRESS_METRICS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "progress.metrics: must be an object of at most %d numbers",
                         PROGRESS_METRICS_MAX);
    }
    json_object_foreach((json_t *)metrics, name, value)
    {
        int result = metric_read(name, value, message, error);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

static int fields_check(struct fields *fields, struct error *error)
{
    struct progress_message *message = &fields->message;
    if (fields->metrics != NULL) {
        return metrics_read(fields->metrics, message, error);
    }
    if (message->ranks > 0 && message->rank >= message->ranks) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "hello.rank: %lld is none of %lld ranks, which begin with 0",
                         (long long)message->rank, (long long)message->ranks);
    }
    return fields->can == NULL ? 0 : abilities_read(fields->can, &message->can, error);
}

static int message_read(const json_t *root, struct progress_message *ret_message,
                        struct error *error)
{
    struct fields fields = {.message = {.checkpointed_step = -1}};
    const char *name = json_object_iter_key(json_object_iter((json_t *)root));
    int result;
    if (json_object_size(root) != 1) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "line: must be an object of one key");
    }
    fields.message.waiting_s = fields.message.step_s = (double)NAN;
    result = kind_find(name, &fields.message.kind, error);
    if (result == 0) {
        const struct option *table = kinds[fields.message.kind].fields;
        size_t count = kinds[fields.message.kind].count;
        result = options_read(table, count, json_object_get(root, name), name, &fields, error);
        if (result == 0) {
            result = fields_check(&fields, error);
        }
        options_free(table, count, &fields);
    }
    if (result == 0) {
        *ret_message = fields.message;
    }
    return result;
}

int progress_line_read(const char *line, size_t length, struct progress_message *ret_message,
                       struct error *error)
{
    int result;
    json_t *root = options_parse_text(line, length, "line", error);
    if (root == NULL) {
        return -(int)ERROR_INVALID_ARGUMENT;
    }
    result = message_read(root, ret_message, error);
    json_decref(root);
    return result;
}

/* ---- writing ---------------------------------------------------------------------------- */

/* Takes over `value`, which may be NULL. */
static char *text_of(json_t *value, const char *end)
{
    char *text = NULL;
    size_t length = value == NULL ? 0 : json_dumpb(value, NULL, 0, JSON_COMPACT);
    if (length > 0) {
        text = malloc(length + strlen(end) + 1);
    }
    if (text != NULL) {
        (void)json_dumpb(value, text, length, JSON_COMPACT);
        memcpy(text + length, end, strlen(end) + 1);
    }
    json_decref(value);
    return text;
}

static double seconds_until(uint64_t deadline_ns, uint64_t now_ns)
{
    return deadline_ns > now_ns ? (double)((deadline_ns - now_ns) / NS_PER_MS) / 1e3 : 0;
}

static json_t *notice_json(const struct progress_notice *notice, uint64_t now_ns)
{
    json_t *devices = json_array(), *ranks = json_array();
    for (size_t i = 0; i < notice->device_count; i++) {
        (void)json_array_append_new(devices, json_string(notice->devices[i]));
    }
    for (size_t i = 0; i < notice->rank_count; i++) {
        (void)json_array_append_new(ranks, json_integer(notice->ranks[i]));
    }
    return json_pack("{s:I,s:f,s:I,s:o,s:o,s:s,s:s}", "notice", (json_int_t)notice->notice,
                     "deadline_s", seconds_until(notice->deadline_ns, now_ns),
                     "deadline_boottime_ns", (json_int_t)notice->deadline_ns, "devices", devices,
                     "ranks", ranks, "reason", notice->reason, "asked", notice->asked);
}

char *progress_notice_text(const struct progress_notice *notice, uint64_t now_ns)
{
    return text_of(notice_json(notice, now_ns), "");
}

char *progress_line_notice(const struct progress_notice *notice, uint64_t now_ns)
{
    return text_of(json_pack("{s:o}", "notice", notice_json(notice, now_ns)), "\n");
}

char *progress_line_notice_over(uint64_t notice, const char *result, uint64_t deadline_ns,
                                uint64_t now_ns)
{
    json_t *over = json_pack("{s:I,s:s}", "notice", (json_int_t)notice, "result", result);
    if (deadline_ns != 0) {
        (void)json_object_set_new(over, "deadline_s",
                                  json_real(seconds_until(deadline_ns, now_ns)));
        (void)json_object_set_new(over, "deadline_boottime_ns",
                                  json_integer((json_int_t)deadline_ns));
    }
    return text_of(json_pack("{s:o}", "notice_over", over), "\n");
}

char *progress_line_pause(uint64_t request, int64_t step)
{
    return text_of(json_pack("{s:{s:I,s:I}}", "pause", "request", (json_int_t)request, "step",
                             (json_int_t)step),
                   "\n");
}

char *progress_line_resume(uint64_t request)
{
    return text_of(json_pack("{s:{s:I}}", "resume", "request", (json_int_t)request), "\n");
}

/* As much of the line as reads as text; a byte that does not is shown as '?'. */
static void line_quote(const char *line, size_t length, char quoted[QUOTED_BYTES + 1])
{
    size_t used = 0;
    for (size_t at = 0; at < length && used < QUOTED_BYTES;) {
        size_t size = utf8_character_length((const unsigned char *)line + at, length - at);
        if (size > QUOTED_BYTES - used) {
            break;
        }
        if (size == 0 || line[at] == '\0') {
            quoted[used++] = '?';
            at++;
            continue;
        }
        memcpy(quoted + used, line + at, size);
        used += size;
        at += size;
    }
    quoted[used] = '\0';
}

char *progress_line_error(const char *line, size_t length, const char *text)
{
    char quoted[QUOTED_BYTES + 1];
    line_quote(line, length, quoted);
    return text_of(json_pack("{s:{s:s,s:s}}", "error", "line", quoted, "text", text), "\n");
}
