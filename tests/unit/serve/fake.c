#include "tests/unit/serve/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"

struct fake_world fake_world = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};

struct model {
    struct model_signature signature;
    struct tensor_spec input, output;
};

struct instance {
    struct model *model;
    _Atomic bool aborted;
    bool running; /* under the world's lock */
    int64_t *outputs;
};

static const char *fake_version(void)
{
    return "1";
}

static void fake_unload(struct model *model)
{
    if (model != NULL) {
        free(model->input.name);
        free(model->output.name);
        free(model);
    }
}

static const struct model_signature *fake_signature(const struct model *model)
{
    return &model->signature;
}

static bool fake_runs_inline(const struct model *model)
{
    (void)model;
    return true;
}

static int fake_instance_create(struct model *model, const struct instance_place *place,
                                struct instance **ret_instance, struct error *error)
{
    (void)place;
    pthread_mutex_lock(&fake_world.lock);
    bool fails = fake_world.fail_create;
    fake_world.instances += fails ? 0 : 1;
    pthread_mutex_unlock(&fake_world.lock);
    if (fails) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "the fake model is broken");
    }
    struct instance *instance = calloc(1, sizeof(*instance));
    instance->model = model;
    instance->outputs = calloc((size_t)FAKE_ROWS_MAX * FAKE_ROWS_MAX, sizeof(int64_t));
    *ret_instance = instance;
    return 0;
}

static void fake_instance_destroy(struct instance *instance)
{
    if (instance != NULL) {
        pthread_mutex_lock(&fake_world.lock);
        fake_world.instances--;
        pthread_mutex_unlock(&fake_world.lock);
        free(instance->outputs);
        free(instance);
    }
}

static uint64_t fake_instance_bytes(const struct instance *instance)
{
    (void)instance;
    return 4096;
}

static void gate_pass(struct instance *instance)
{
    pthread_mutex_lock(&fake_world.lock);
    fake_world.gated++;
    pthread_cond_broadcast(&fake_world.changed);
    while (!fake_world.open && !instance->aborted) {
        pthread_cond_wait(&fake_world.changed, &fake_world.lock);
    }
    fake_world.gated--;
    pthread_cond_broadcast(&fake_world.changed);
    pthread_mutex_unlock(&fake_world.lock);
}

static void run_begin(struct instance *instance)
{
    pthread_mutex_lock(&fake_world.lock);
    instance->aborted = false;
    fake_world.two_in_a_run |= instance->running;
    instance->running = true;
    fake_world.runner = pthread_self();
    pthread_mutex_unlock(&fake_world.lock);
}

static void run_end(struct instance *instance, size_t count, uint32_t rows)
{
    pthread_mutex_lock(&fake_world.lock);
    instance->running = false;
    fake_world.runs++;
    fake_world.rows_max = rows > fake_world.rows_max ? rows : fake_world.rows_max;
    fake_world.requests_max =
        count > fake_world.requests_max ? (uint32_t)count : fake_world.requests_max;
    pthread_mutex_unlock(&fake_world.lock);
}

static int fake_run(struct instance *instance, const struct run_request *requests, size_t count,
                    struct tensor *ret_outputs, struct error *error)
{
    int64_t *out = instance->outputs;
    uint32_t rows = 0;
    bool bad = false, lost = false;
    run_begin(instance);
    for (size_t i = 0; i < count; i++) {
        const int64_t *in = requests[i].inputs[0].data;
        ret_outputs[i] = requests[i].inputs[0];
        ret_outputs[i].data = out;
        memcpy(out, in, requests[i].inputs[0].bytes);
        out += requests[i].inputs[0].bytes / sizeof(int64_t);
        rows += requests[i].rows;
        bad |= in[0] == FAKE_BAD;
        lost |= in[0] == FAKE_LOST;
        if (in[0] == FAKE_GATE) {
            gate_pass(instance);
        }
    }
    run_end(instance, count, rows);
    if (instance->aborted) {
        return error_set(error, ERROR_CANCELLED, "aborted");
    }
    if (lost) {
        return error_set(error, ERROR_UNAVAILABLE, "the fake device fell off");
    }
    return bad ? error_set(error, ERROR_INVALID_ARGUMENT, "bad data") : 0;
}

static void fake_instance_abort(struct instance *instance)
{
    pthread_mutex_lock(&fake_world.lock);
    instance->aborted = true;
    fake_world.aborts++;
    pthread_cond_broadcast(&fake_world.changed);
    pthread_mutex_unlock(&fake_world.lock);
}

const struct model_runtime fake_runtime = {
    .name = "fake",
    .platform = "fake",
    .version = fake_version,
    .unload = fake_unload,
    .signature = fake_signature,
    .runs_inline = fake_runs_inline,
    .instance_create = fake_instance_create,
    .instance_destroy = fake_instance_destroy,
    .instance_bytes = fake_instance_bytes,
    .run = fake_run,
    .instance_abort = fake_instance_abort,
};

void fake_reset(void)
{
    pthread_mutex_lock(&fake_world.lock);
    fake_world.open = false;
    fake_world.fail_create = false;
    fake_world.two_in_a_run = false;
    fake_world.runs = fake_world.rows_max = fake_world.requests_max = fake_world.aborts = 0;
    memset(fake_world.events, 0, sizeof(fake_world.events));
    pthread_mutex_unlock(&fake_world.lock);
}

void fake_notify(void *context, const struct serve_event *event)
{
    (void)context;
    pthread_mutex_lock(&fake_world.lock);
    fake_world.events[event->kind]++;
    fake_world.last[event->kind] = *event;
    pthread_cond_broadcast(&fake_world.changed);
    pthread_mutex_unlock(&fake_world.lock);
}

struct repository_model *fake_model(const char *name, uint32_t batch_max, bool variable)
{
    struct repository_model *made = calloc(1, sizeof(*made));
    struct model *model = calloc(1, sizeof(*model));
    model_config_init(&made->config, name);
    made->config.runtime = &fake_runtime;
    made->config.batch_max = batch_max;
    model->input = (struct tensor_spec){
        .name = strdup("IN"), .datatype = DATATYPE_INT64, .rank = 1, .dims = {variable ? -1 : 1}};
    model->output = model->input;
    model->output.name = strdup("OUT");
    model->signature = (struct model_signature){.batch_max = batch_max,
                                                .input_count = 1,
                                                .output_count = 1,
                                                .inputs = &model->input,
                                                .outputs = &model->output};
    made->version = 1;
    made->model = model;
    made->signature = &model->signature;
    (void)snprintf(made->digest, sizeof(made->digest), "%s", name);
    return made;
}

static void fake_done(struct serve_request *done, enum error_code status, const char *text,
                      const struct tensor *outputs)
{
    struct fake_request *request = (struct fake_request *)done;
    pthread_mutex_lock(&fake_world.lock);
    request->status = status;
    (void)snprintf(request->text, sizeof(request->text), "%s", text != NULL ? text : "");
    if (status == ERROR_NONE) {
        memcpy(request->results, outputs[0].data, outputs[0].bytes);
    }
    atomic_fetch_add(&request->answered, 1);
    pthread_cond_broadcast(&fake_world.changed);
    pthread_mutex_unlock(&fake_world.lock);
}

void fake_request_init(struct fake_request *request, uint32_t rows, int64_t value)
{
    memset(request, 0, sizeof(*request));
    request->request = (struct serve_request){.inputs = &request->input,
                                              .rows = rows,
                                              .bytes = rows * sizeof(int64_t),
                                              .arrival_ns = clock_now_ns(),
                                              .deadline_ns = UINT64_MAX,
                                              .deadline_watched = true,
                                              .done = fake_done};
    request->input = (struct tensor){.datatype = DATATYPE_INT64,
                                     .rank = 2,
                                     .dims = {rows, 1},
                                     .data = request->values,
                                     .bytes = rows * sizeof(int64_t)};
    for (uint32_t i = 0; i < rows; i++) {
        request->values[i] = value;
    }
}

void fake_request_wait(struct fake_request *request)
{
    pthread_mutex_lock(&fake_world.lock);
    while (atomic_load(&request->answered) == 0) {
        pthread_cond_wait(&fake_world.changed, &fake_world.lock);
    }
    pthread_mutex_unlock(&fake_world.lock);
}

void fake_event_wait(enum serve_event_kind kind, uint32_t count)
{
    pthread_mutex_lock(&fake_world.lock);
    while (fake_world.events[kind] < count) {
        pthread_cond_wait(&fake_world.changed, &fake_world.lock);
    }
    pthread_mutex_unlock(&fake_world.lock);
}

void fake_gated_wait(uint32_t count)
{
    pthread_mutex_lock(&fake_world.lock);
    while (fake_world.gated != count) {
        pthread_cond_wait(&fake_world.changed, &fake_world.lock);
    }
    pthread_mutex_unlock(&fake_world.lock);
}

void fake_gate_open(bool open)
{
    pthread_mutex_lock(&fake_world.lock);
    fake_world.open = open;
    pthread_cond_broadcast(&fake_world.changed);
    pthread_mutex_unlock(&fake_world.lock);
}
