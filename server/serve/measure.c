#include "server/serve/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/blank.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/serve/digest.h"

#define RUNS_MAX 15
#define CACHE_BYTES_MAX 65536
#define WARM_UP_NS (100 * NS_PER_MS)

/* ---- the table ---------------------------------------------------------------------------------
 */

/* The line through (x0, y0) and (x1, y1) at x; a falling one counts as level. */
static uint64_t line_at(uint32_t x0, uint64_t y0, uint32_t x1, uint64_t y1, uint32_t x)
{
    double slope = y1 > y0 ? (double)(y1 - y0) / (double)(x1 - x0) : 0;
    double y = (double)(y1 > y0 ? y0 : y1) + slope * ((double)x - (double)x0);
    return y >= 9e18 ? (uint64_t)9e18 : (uint64_t)y;
}

uint64_t service_table_ns(const struct service_table *table, uint32_t rows)
{
    uint32_t high = 0;
    if (table->count == 0) {
        return 0;
    }
    if (rows <= table->batch[0]) {
        return table->ns[0];
    }
    while (high < table->count && table->batch[high] < rows) {
        high++;
    }
    if (high < table->count) {
        return line_at(table->batch[high - 1], table->ns[high - 1], table->batch[high],
                       table->ns[high], rows);
    }
    if (table->count == 1) { /* nothing says that more rows are cheaper */
        return line_at(0, 0, table->batch[0], table->ns[0], rows);
    }
    return line_at(table->batch[high - 2], table->ns[high - 2], table->batch[high - 1],
                   table->ns[high - 1], rows);
}

uint32_t service_table_rows(const struct service_table *table, uint64_t budget_ns,
                            uint32_t rows_max)
{
    uint32_t low = 1, high = rows_max > 1 ? rows_max : 1;
    if (table->count == 0) {
        return 1;
    }
    while (low < high) { /* service times never fall, so halving finds the last that fits */
        uint32_t middle = low + (high - low + 1) / 2;
        if (service_table_ns(table, middle) <= budget_ns) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* ---- measuring ---------------------------------------------------------------------------------
 */

static int time_compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* How long this thread was ready to run and others had its core, since it began; 0 where the kernel
 * does not say. */
static uint64_t waited_ns(void)
{
    unsigned long long waited = 0;
    FILE *file = fopen("/proc/thread-self/schedstat", "re");
    if (file != NULL) {
        if (fscanf(file, "%*u %llu", &waited) != 1) {
            waited = 0;
        }
        fclose(file);
    }
    return waited;
}

/* Without what a busy machine adds: it would stay in the cache, and keep the model from devices. */
static int run_once(const struct measure_subject *subject, struct instance *instance,
                    const struct run_request *request, uint64_t *ret_ns, struct error *error)
{
    struct tensor outputs[MODEL_TENSORS_MAX];
    uint64_t waited = waited_ns(), start = clock_now_ns();
    int result = subject->runtime->run(instance, request, 1, outputs, error);
    uint64_t took = clock_now_ns() - start;
    waited = waited_ns() - waited;
    *ret_ns = took > waited ? took - waited : 1;
    return result;
}

/* Median of some runs. The first one reserves memory and does not count, unless it alone took the
 * time allowed. */
static int size_measure(const struct measure_subject *subject, struct instance *instance,
                        const struct blank_form *form, uint64_t until_ns, uint64_t *ret_ns,
                        struct error *error)
{
    struct blank_inputs blank;
    uint64_t times[RUNS_MAX + 1];
    size_t count = 0;
    int result = blank_inputs_init(&blank, subject->signature, form, error);
    if (result < 0) {
        return result;
    }
    const struct run_request request = {.inputs = blank.tensors, .rows = form->rows};
    do {
        result = run_once(subject, instance, &request, &times[count], error);
        count++;
    } while (result == 0 && count <= RUNS_MAX && clock_now_ns() < until_ns);
    blank_inputs_fini(&blank);
    if (result == 0) {
        size_t first = count > 1 ? 1 : 0;
        qsort(times + first, count - first, sizeof(times[0]), time_compare);
        *ret_ns = times[first + (count - first) / 2];
    }
    return result;
}

/* The sizes to measure: 1, 2, 4 … and the largest. */
static uint32_t size_next(uint32_t rows, uint32_t rows_max)
{
    return rows * 2 > rows_max && rows < rows_max ? rows_max : rows * 2;
}

static int table_measure(const struct measure_subject *subject, struct instance *instance,
                         uint32_t variable, struct service_table *ret_table, struct error *error)
{
    uint32_t rows_max = subject->signature->batch_max > 0 ? subject->signature->batch_max : 1;
    uint64_t start = clock_now_ns();
    struct service_table table = {0};
    for (uint32_t rows = 1; rows <= rows_max && table.count < SERVICE_SIZES_MAX;
         rows = size_next(rows, rows_max)) {
        uint64_t now = clock_now_ns(), ns = 0;
        uint64_t left = start + MEASURE_TIME_MAX_NS > now ? start + MEASURE_TIME_MAX_NS - now : 0;
        /* Twice the rows may take twice the time, and it takes at least two runs to tell. */
        if (table.count > 0 && left < 4 * table.ns[table.count - 1]) {
            break;
        }
        const struct blank_form form = {.rows = rows, .variable = variable};
        int result = size_measure(subject, instance, &form, now + left / 4, &ns, error);
        if (result < 0) {
            *ret_table = table; /* what was measured before holds */
            return result;
        }
        if (table.count > 0 && ns < table.ns[table.count - 1]) {
            ns = table.ns[table.count - 1]; /* noise: more rows are never quicker */
        }
        table.batch[table.count] = rows;
        table.ns[table.count++] = ns > 0 ? ns : 1;
    }
    *ret_table = table;
    return 0;
}

/* ---- the cache ---------------------------------------------------------------------------------
 */

static int cache_path(const struct measure_subject *subject, const char *state_dir, char *ret_path,
                      size_t size)
{
    char text[512], key[DIGEST_TEXT_SIZE];
    (void)snprintf(text, sizeof(text), "1 %.64s %.16s %u %.32s %.64s", subject->digest,
                   subject->device_kind, subject->core_count, subject->runtime->name,
                   subject->runtime->version());
    if (digest_compute(NULL, text, key, NULL) < 0 ||
        (size_t)snprintf(ret_path, size, "%s/measurements/%s.json", state_dir, key) >= size) {
        return -1;
    }
    return 0;
}

/* False for anything that is not a whole, rising table. */
static bool table_decode(const json_t *object, struct service_table *ret_table)
{
    const json_t *batches = json_object_get(object, "batch");
    const json_t *times = json_object_get(object, "ns");
    size_t count = json_array_size(batches);
    struct service_table table = {.count = (uint32_t)count};
    if (count == 0 || count > SERVICE_SIZES_MAX || json_array_size(times) != count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        json_int_t batch = json_integer_value(json_array_get(batches, i));
        json_int_t ns = json_integer_value(json_array_get(times, i));
        if (batch <= (i == 0 ? 0 : (json_int_t)table.batch[i - 1]) || batch > UINT32_MAX ||
            ns <= 0 || (i > 0 && ns < (json_int_t)table.ns[i - 1])) {
            return false;
        }
        table.batch[i] = (uint32_t)batch;
        table.ns[i] = (uint64_t)ns;
    }
    *ret_table = table;
    return true;
}

static bool cache_read(const char *path, struct service_table *ret_table)
{
    json_t *object;
    bool good;
    struct stat status;
    if (stat(path, &status) < 0 || status.st_size > CACHE_BYTES_MAX) {
        return false;
    }
    object = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    good = object != NULL && table_decode(object, ret_table);
    json_decref(object);
    if (!good) {
        struct log_text quoted;
        log_write(LOG_WARN, "measure", "kept measurement is damaged and is made anew", "path=%s",
                  log_quote(&quoted, path));
    }
    return good;
}

static json_t *table_encode(const struct measure_subject *subject,
                            const struct service_table *table)
{
    json_t *batches = json_array(), *times = json_array();
    for (uint32_t i = 0; i < table->count; i++) {
        json_array_append_new(batches, json_integer(table->batch[i]));
        json_array_append_new(times, json_integer((json_int_t)table->ns[i]));
    }
    return json_pack("{s:s, s:s, s:i, s:s, s:o, s:o}", "model", subject->name, "device_kind",
                     subject->device_kind, "cores", (int)subject->core_count, "runtime",
                     subject->runtime->version(), "batch", batches, "ns", times);
}

/* Under another name first, so that a reader or a crash never meets half a file. */
static int cache_write_file(const char *path, const json_t *object)
{
    char temporary[PATH_MAX];
    int result;
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >= sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = mkstemp(temporary);
    if (fd < 0) {
        return -1;
    }
    result = json_dumpfd(object, fd, JSON_INDENT(2));
    result |= fsync(fd);
    result |= close(fd);
    if (result == 0) {
        result = rename(temporary, path);
    }
    if (result != 0) {
        (void)unlink(temporary);
    }
    return result;
}

static void cache_write(const struct measure_subject *subject, const char *state_dir,
                        const char *path, const struct service_table *table)
{
    char folder[PATH_MAX];
    struct log_text where, why;
    json_t *object = table_encode(subject, table);
    (void)snprintf(folder, sizeof(folder), "%s/measurements", state_dir);
    if (object == NULL || (mkdir(folder, 0755) < 0 && errno != EEXIST) ||
        cache_write_file(path, object) != 0) {
        log_write(LOG_WARN, "measure", "measurement is not kept: the next start measures again",
                  "model=%s path=%s error=%s", subject->name, log_quote(&where, path),
                  log_quote(&why, strerror(errno)));
    }
    json_decref(object);
}

/* ---- both together -----------------------------------------------------------------------------
 */

/* Runs the largest measured batch that takes little time, so that requests find memory reserved. */
static int warm_up(const struct measure_subject *subject, struct instance *instance,
                   uint32_t variable, const struct service_table *table, struct error *error)
{
    struct blank_inputs blank;
    struct blank_form form = {.rows = table->batch[0], .variable = variable};
    uint64_t ns;
    for (uint32_t i = 1; i < table->count && table->ns[i] <= WARM_UP_NS; i++) {
        form.rows = table->batch[i];
    }
    int result = blank_inputs_init(&blank, subject->signature, &form, error);
    if (result == 0) {
        const struct run_request request = {.inputs = blank.tensors, .rows = form.rows};
        result = run_once(subject, instance, &request, &ns, error);
        blank_inputs_fini(&blank);
    }
    return result;
}

/* With variable dimensions of the first size that the model runs on, from the cache or anew. */
static int sizes_try(const struct measure_subject *subject, struct instance *instance, bool found,
                     struct service_table *table, struct error *error)
{
    static const uint32_t sizes[] = BLANK_SIZES;
    int result = -1;
    for (size_t i = 0; i < BLANK_SIZE_COUNT && result < 0; i++) {
        result = found ? warm_up(subject, instance, sizes[i], table, error)
                       : table_measure(subject, instance, sizes[i], table, error);
        if (result == -ERROR_UNAVAILABLE || result == -ERROR_CANCELLED ||
            (!found && table->count > 0)) {
            break;
        }
    }
    return result;
}

int measure_instance(const struct measure_subject *subject, struct instance *instance,
                     const char *state_dir, struct service_table *ret_table, struct error *error)
{
    char path[PATH_MAX];
    struct error problem = {0};
    struct log_text text;
    struct service_table table = {0};
    bool cached = state_dir != NULL && cache_path(subject, state_dir, path, sizeof(path)) == 0;
    bool found = cached && cache_read(path, &table);
    int result = sizes_try(subject, instance, found, &table, &problem);
    if (result == -ERROR_UNAVAILABLE || result == -ERROR_CANCELLED) {
        return error_set(error, problem.code, "%s", problem.text);
    }
    if (result < 0) {
        log_write(LOG_WARN, "measure", "a batch of zeros did not run; its time will be learned",
                  "model=%s sizes_measured=%u text=%s", subject->name, table.count,
                  log_quote(&text, problem.text));
    } else if (cached && !found) {
        cache_write(subject, state_dir, path, &table);
    }
    *ret_table = table;
    return 0;
}
