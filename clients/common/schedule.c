#include "clients/common/schedule.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "server/base/clock.h"
#include "server/base/random.h"

#define LINE_BYTES_MAX 4096

struct schedule {
    enum schedule_kind kind;
    struct schedule_segment *segments; /* NULL: recorded arrivals */
    size_t segment_count, segment;
    double segment_start_s, time_s; /* time_s: of the arrival before, or the segment's start */
    uint64_t index;                 /* of the next arrival in an evenly spaced segment */
    uint64_t random;
    uint64_t *arrivals;
    size_t arrival_count, arrival;
};

static int segment_check(const struct schedule_segment *segment, size_t index, bool last,
                         struct error *error)
{
    if (!(segment->rate >= 0 && segment->rate <= SCHEDULE_RATE_MAX)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "segment %zu: the rate is 0 to %.0f requests per second, not %g",
                         index + 1, SCHEDULE_RATE_MAX, segment->rate);
    }
    if (!(segment->seconds > 0 && (segment->seconds <= 1e8 || (last && isinf(segment->seconds))))) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "segment %zu: its length is above 0 and at most 1e8 seconds, not %g",
                         index + 1, segment->seconds);
    }
    return 0;
}

int schedule_create(enum schedule_kind kind, const struct schedule_segment *segments, size_t count,
                    uint64_t seed, struct schedule **ret_schedule, struct error *error)
{
    if (count == 0 || count > SCHEDULE_SEGMENTS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "schedule: 1 to %d segments, not %zu",
                         SCHEDULE_SEGMENTS_MAX, count);
    }
    for (size_t i = 0; i < count; i++) {
        int result = segment_check(&segments[i], i, i + 1 == count, error);
        if (result < 0) {
            return result;
        }
    }
    struct schedule *schedule = calloc(1, sizeof(*schedule));
    struct schedule_segment *copy = malloc(count * sizeof(*copy));
    if (schedule == NULL || copy == NULL) {
        free(schedule);
        free(copy);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a schedule");
    }
    memcpy(copy, segments, count * sizeof(*copy));
    schedule->kind = kind;
    schedule->segments = copy;
    schedule->segment_count = count;
    schedule->random = seed;
    *ret_schedule = schedule;
    return 0;
}

int schedule_create_steps(enum schedule_kind kind, const char *text, uint64_t seed,
                          struct schedule **ret_schedule, struct error *error)
{
    size_t count = 1;
    for (const char *p = text; *p != '\0'; p++) {
        count += *p == ',';
    }
    struct schedule_segment *segments = calloc(count, sizeof(*segments));
    if (segments == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a schedule");
    }
    const char *p = text;
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        char *end = NULL;
        segments[i].rate = strtod(p, &end);
        bool good = end != p && *end == ':';
        p = good ? end + 1 : p;
        segments[i].seconds = good ? strtod(p, &end) : 0;
        good = good && end != p && *end == (i + 1 < count ? ',' : '\0');
        p = good ? end + 1 : p;
        if (!good) {
            result = error_set(
                error, ERROR_INVALID_ARGUMENT,
                "steps '%s': segment %zu is not RATE:SECONDS, for example 0:5,300:10", text, i + 1);
        }
    }
    if (result == 0) {
        result = schedule_create(kind, segments, count, seed, ret_schedule, error);
    }
    free(segments);
    return result;
}

void schedule_destroy(struct schedule *schedule)
{
    if (schedule != NULL) {
        free(schedule->segments);
        free(schedule->arrivals);
        free(schedule);
    }
}

/* The arrival after the last one in this segment; beyond its end when there is none left. */
static double segment_next(struct schedule *schedule, const struct schedule_segment *segment)
{
    if (segment->rate <= 0) {
        return INFINITY;
    }
    if (schedule->kind == SCHEDULE_POISSON) {
        return schedule->time_s - log(random_unit(&schedule->random)) / segment->rate;
    }
    return schedule->segment_start_s + (double)schedule->index++ / segment->rate;
}

bool schedule_next(struct schedule *schedule, uint64_t *ret_offset_ns)
{
    if (schedule->segments == NULL) {
        if (schedule->arrival == schedule->arrival_count) {
            return false;
        }
        *ret_offset_ns = schedule->arrivals[schedule->arrival++];
        return true;
    }
    while (schedule->segment < schedule->segment_count) {
        const struct schedule_segment *segment = &schedule->segments[schedule->segment];
        double end_s = schedule->segment_start_s + segment->seconds;
        double time_s = segment_next(schedule, segment);
        if (time_s < end_s) {
            schedule->time_s = time_s;
            *ret_offset_ns = (uint64_t)(time_s * 1e9);
            return true;
        }
        schedule->segment_start_s = schedule->time_s = end_s;
        schedule->segment++;
        schedule->index = 0;
    }
    return false;
}

/* ---- replay --------------------------------------------------------------------------------- */

/* The position of a column in a header line, or -1. */
static int column_find(const char *header, const char *name)
{
    size_t length = strlen(name);
    int column = 0;
    for (const char *p = header;; p = strchr(p, ',') + 1, column++) {
        size_t field = strcspn(p, ",\r\n");
        if (field == length && strncmp(p, name, length) == 0) {
            return column;
        }
        if (p[field] != ',') {
            return -1;
        }
    }
}

/* The start of a field, or NULL; *ret_length: without the separator. */
static const char *field_find(const char *line, int column, size_t *ret_length)
{
    const char *p = line;
    for (int i = 0; i < column; i++) {
        p = strchr(p, ',');
        if (p == NULL) {
            return NULL;
        }
        p++;
    }
    *ret_length = strcspn(p, ",\r\n");
    return p;
}

static int arrivals_append(struct schedule *schedule, size_t *capacity, uint64_t arrival_ns)
{
    if (schedule->arrival_count == *capacity) {
        size_t larger = *capacity == 0 ? 4096 : *capacity * 2;
        uint64_t *arrivals = realloc(schedule->arrivals, larger * sizeof(*arrivals));
        if (arrivals == NULL || larger > SCHEDULE_ARRIVALS_MAX) {
            schedule->arrivals = arrivals == NULL ? schedule->arrivals : arrivals;
            return -1;
        }
        schedule->arrivals = arrivals;
        *capacity = larger;
    }
    schedule->arrivals[schedule->arrival_count++] = arrival_ns;
    return 0;
}

static int arrivals_read(struct schedule *schedule, gzFile file, const char *path, double speed,
                         const char *endpoint, struct error *error)
{
    char line[LINE_BYTES_MAX];
    size_t capacity = 0;
    if (gzgets(file, line, sizeof(line)) == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "trace '%s': is empty", path);
    }
    int time_column = column_find(line, "arrival_s");
    int endpoint_column = column_find(line, "endpoint");
    if (time_column < 0 || (endpoint != NULL && endpoint_column < 0)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "trace '%s': the first line has no column %s", path,
                         time_column < 0 ? "arrival_s" : "endpoint");
    }
    uint64_t before = 0;
    for (unsigned long number = 2; gzgets(file, line, sizeof(line)) != NULL; number++) {
        size_t length = 0;
        if (endpoint != NULL) {
            const char *name = field_find(line, endpoint_column, &length);
            if (name == NULL || length != strlen(endpoint) ||
                strncmp(name, endpoint, length) != 0) {
                continue;
            }
        }
        const char *field = field_find(line, time_column, &length);
        char *end = NULL;
        double time_s = field == NULL ? NAN : strtod(field, &end);
        if (!(time_s >= 0 && time_s <= 1e9) || end != field + length) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "trace '%s' line %lu: arrival_s is no number from 0 to 1e9", path,
                             number);
        }
        uint64_t arrival_ns = (uint64_t)(time_s / speed * 1e9);
        if (arrival_ns < before) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "trace '%s' line %lu: arrivals are not in ascending order", path,
                             number);
        }
        before = arrival_ns;
        if (arrivals_append(schedule, &capacity, arrival_ns) < 0) {
            return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                             "trace '%s' line %lu: more arrivals than fit (limit %u)", path, number,
                             SCHEDULE_ARRIVALS_MAX);
        }
    }
    int number = 0;
    const char *text = gzerror(file, &number);
    if (number < 0) {
        return error_set(error, ERROR_DATA_LOSS, "trace '%s': %s", path, text);
    }
    return 0;
}

int schedule_create_replay(const char *path, double speed, const char *endpoint,
                           struct schedule **ret_schedule, struct error *error)
{
    if (!(speed > 0 && speed <= 1e6)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "speed: above 0 and at most 1e6, not %g",
                         speed);
    }
    gzFile file = gzopen(path, "rbe");
    if (file == NULL) {
        return error_set_errno(error, errno == 0 ? ENOMEM : errno, "open trace '%s'", path);
    }
    struct schedule *schedule = calloc(1, sizeof(*schedule));
    int result = schedule == NULL
                     ? error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a schedule")
                     : arrivals_read(schedule, file, path, speed, endpoint, error);
    if (result == 0) {
        *ret_schedule = schedule;
        schedule = NULL;
    }
    schedule_destroy(schedule);
    gzclose(file);
    return result;
}
