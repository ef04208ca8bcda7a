#include "fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "models/native/random.h"
#include "server/base/checksum.h"
#include "server/base/log.h"

#define WAIT_S 120

/* In place of the C library's: training threads stay in the normal class, or a machine that is busy
 * with other tests would starve them. (The device's own tests and the end-to-end tests have them in
 * SCHED_IDLE.) */
int sched_setscheduler(pid_t pid, int policy, const struct sched_param *parameters)
{
    (void)pid;
    (void)policy;
    (void)parameters;
    return 0;
}

static void on_event(void *context, const struct train_event *event)
{
    struct fixture *fixture = context;
    (void)pthread_mutex_lock(&fixture->lock);
    fixture->counts[event->kind]++;
    if (event->kind == TRAIN_RELEASED && event->device < 2) {
        fixture->released[event->device]++;
    }
    if (event->kind == TRAIN_FAILED) {
        (void)snprintf(fixture->failure, sizeof(fixture->failure), "%s", event->text);
    }
    if (event->kind == TRAIN_WARNING) {
        (void)snprintf(fixture->warning, sizeof(fixture->warning), "%s", event->text);
    }
    (void)pthread_cond_broadcast(&fixture->changed);
    (void)pthread_mutex_unlock(&fixture->lock);
}

void fixture_init(struct fixture *fixture)
{
    struct device_config config = {.cpu_devices = 2, .memory_bytes = UINT64_C(4) << 30};
    struct error error = {0};
    memset(fixture, 0, sizeof(*fixture));
    log_open(2, LOG_ERROR, false);
    (void)snprintf(fixture->directory, sizeof(fixture->directory), "/tmp/tidepool-train-XXXXXX");
    assert_non_null(mkdtemp(fixture->directory));
    (void)pthread_mutex_init(&fixture->lock, NULL);
    (void)pthread_cond_init(&fixture->changed, NULL);
    if (device_set_discover(&config, &fixture->devices, &error) < 0) {
        fail_msg("%s", error.text);
    }
    fixture_trainer_start(fixture);
}

void fixture_trainer_start(struct fixture *fixture)
{
    struct error error = {0};
    fixture->trainer =
        trainer_create(&fixture->devices, fixture->directory, on_event, fixture, &error);
    if (fixture->trainer == NULL) {
        fail_msg("%s", error.text);
    }
    memset(fixture->counts, 0, sizeof(fixture->counts));
    memset(fixture->released, 0, sizeof(fixture->released));
}

void fixture_trainer_stop(struct fixture *fixture)
{
    trainer_destroy(fixture->trainer);
    fixture->trainer = NULL;
    fixture->job = NULL;
}

void fixture_fini(struct fixture *fixture)
{
    char command[256];
    fixture_trainer_stop(fixture);
    device_set_destroy(&fixture->devices);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", fixture->directory);
    assert_int_equal(system(command), 0);
    (void)pthread_mutex_destroy(&fixture->lock);
    (void)pthread_cond_destroy(&fixture->changed);
}

void npy_write(const char *path, const char *type, const char *shape, const void *items,
               size_t bytes)
{
    char header[128];
    unsigned char prefix[10] = "\x93NUMPY\x01\x00";
    FILE *file = fopen(path, "w");
    int length = snprintf(header, sizeof(header),
                          "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, shape);
    assert_non_null(file);
    prefix[8] = (unsigned char)(length + 1);
    prefix[9] = 0;
    (void)fwrite(prefix, 1, sizeof(prefix), file);
    (void)fprintf(file, "%s\n", header);
    (void)fwrite(items, 1, bytes, file);
    assert_int_equal(fclose(file), 0);
}

void fixture_data_write(const struct fixture *fixture, uint32_t rows, uint32_t inputs,
                        uint32_t classes)
{
    float *values = malloc((size_t)rows * inputs * sizeof(*values));
    int64_t *labels = malloc(rows * sizeof(*labels));
    char path[256], shape[64];
    assert_non_null(values);
    assert_non_null(labels);
    for (uint32_t row = 0; row < rows; row++) {
        float best = -1e30f;
        for (uint32_t i = 0; i < inputs; i++) {
            values[row * inputs + i] = random_signed_unit(random_at(1, row * inputs + i));
        }
        for (uint32_t class = 0; class < classes; class ++) {
            float score = 0;
            for (uint32_t i = 0; i < inputs; i++) {
                score +=
                    values[row * inputs + i] * random_signed_unit(random_at(2, class * inputs + i));
            }
            labels[row] = score > best ? class : labels[row];
            best = score > best ? score : best;
        }
    }
    (void)snprintf(path, sizeof(path), "%s/x.npy", fixture->directory);
    (void)snprintf(shape, sizeof(shape), "%u, %u", rows, inputs);
    npy_write(path, "<f4", shape, values, (size_t)rows * inputs * sizeof(*values));
    (void)snprintf(path, sizeof(path), "%s/y.npy", fixture->directory);
    (void)snprintf(shape, sizeof(shape), "%u,", rows);
    npy_write(path, "<i8", shape, labels, rows * sizeof(*labels));
    free(values);
    free(labels);
}

json_t *fixture_specification(const struct fixture *fixture, const char *format, ...)
{
    char text[4096], expanded[8192];
    size_t length = 0;
    json_error_t problem;
    json_t *json;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '@') {
            length += (size_t)snprintf(expanded + length, sizeof(expanded) - length, "%s",
                                       fixture->directory);
        } else {
            expanded[length++] = *at == '\'' ? '"' : *at;
        }
        assert_true(length + 256 < sizeof(expanded));
    }
    expanded[length] = '\0';
    json = json_loads(expanded, 0, &problem);
    if (json == NULL) {
        fail_msg("%s in %s", problem.text, expanded);
    }
    return json;
}

void fixture_job_start(struct fixture *fixture, const char *id, json_t *specification)
{
    struct error error = {0};
    if (trainer_job_create(fixture->trainer, 7, id, specification, &fixture->job, &error) < 0) {
        fail_msg("%s", error.text);
    }
    json_decref(specification);
    fixture_wait(fixture, TRAIN_READY, 1);
}

static bool wait_until(struct fixture *fixture, const unsigned *counter, unsigned count)
{
    struct timespec end;
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += WAIT_S;
    while (*counter < count) {
        bool failed =
            fixture->counts[TRAIN_FAILED] > 0 && counter != &fixture->counts[TRAIN_FAILED];
        if (failed || pthread_cond_timedwait(&fixture->changed, &fixture->lock, &end) != 0) {
            return *counter >= count;
        }
    }
    return true;
}

static void wait_counter(struct fixture *fixture, const unsigned *counter, unsigned count,
                         const char *what)
{
    bool seen;
    (void)pthread_mutex_lock(&fixture->lock);
    seen = wait_until(fixture, counter, count);
    (void)pthread_mutex_unlock(&fixture->lock);
    if (!seen) {
        fail_msg("%s: %u of %u events; failure: '%s'", what, *counter, count, fixture->failure);
    }
}

void fixture_wait(struct fixture *fixture, enum train_event_kind kind, unsigned count)
{
    static const char *const names[] = {"ready",    "progress", "released", "checkpoint",
                                        "finished", "failed",   "warning"};
    wait_counter(fixture, &fixture->counts[kind], count, names[kind]);
}

unsigned fixture_count(struct fixture *fixture, enum train_event_kind kind)
{
    unsigned count;
    (void)pthread_mutex_lock(&fixture->lock);
    count = fixture->counts[kind];
    (void)pthread_mutex_unlock(&fixture->lock);
    return count;
}

void fixture_wait_released(struct fixture *fixture, uint32_t device, unsigned count)
{
    wait_counter(fixture, &fixture->released[device], count, "released");
}

void fixture_revoke(struct fixture *fixture, uint32_t device)
{
    unsigned before;
    (void)pthread_mutex_lock(&fixture->lock);
    before = fixture->released[device];
    (void)pthread_mutex_unlock(&fixture->lock);
    trainer_job_revoke(fixture->job, device);
    fixture_wait_released(fixture, device, before + 1);
}

void fixture_wait_step(struct fixture *fixture, uint64_t step)
{
    struct train_status status;
    struct timespec pause = {.tv_nsec = 200000};
    for (int i = 0; i < WAIT_S * 5000; i++) {
        trainer_job_status(fixture->job, &status);
        if (status.step >= step || fixture_count(fixture, TRAIN_FAILED) > 0) {
            return;
        }
        (void)nanosleep(&pause, NULL);
    }
    fail_msg("step %llu is not reached", (unsigned long long)step);
}

uint64_t fixture_state_checksum(const struct fixture *fixture)
{
    struct train_job *job = fixture->job;
    size_t floats =
        job->keeper.parameters * (1 + optimizer_slots(job->specification.optimizer.kind));
    uint64_t checksum;
    (void)pthread_mutex_lock(&job->lock);
    checksum = checksum_add(0, step_state(job->shared.step)->data, floats * sizeof(float));
    (void)pthread_mutex_unlock(&job->lock);
    return checksum;
}
