/* Loading a job: its data, and its state from the newest good checkpoint or from the seed. */
#include <math.h>
#include <string.h>

#include "models/native/blas.h"
#include "models/native/gemm.h"
#include "server/base/clock.h"
#include "server/train/checkpoint.h"
#include "server/train/trainer_internal.h"

#define SAMPLES_MAX 9e18 /* positions in the training order are 64-bit numbers */

static void on_damage(void *context, const char *text)
{
    job_warn(context, text);
}

/* Micro-batches whose rows are read before they are needed. */
static uint32_t rows_ahead(const struct train_job *job)
{
    return 2 * job->keeper.window + 4;
}

static int size_check(const struct train_job *job, struct error *error)
{
    const struct specification *s = &job->specification;
    const struct device_set *set = job->trainer->devices;
    uint32_t devices = s->request.devices_max < set->count ? s->request.devices_max : set->count;
    uint64_t vectors = 3 * (1 + (uint64_t)optimizer_slots(s->optimizer.kind)); /* states */
    uint64_t micro_batches = s->batch / s->micro_batch;
    uint64_t bytes, memory = 0;
    vectors += micro_batches < 2u * devices + 2 ? micro_batches + devices : 2u * devices + 2;
    for (; micro_batches > 1; micro_batches /= 2) {
        vectors++; /* the tree */
    }
    bytes = vectors * job->keeper.parameters * sizeof(float) +
            devices * mlp_workspace_bytes(&s->model, s->micro_batch) +
            (uint64_t)(rows_ahead(job) + devices) * s->micro_batch * (s->model.widths[0] + 1) *
                sizeof(float);
    for (uint32_t i = 0; i < set->count; i++) {
        memory += set->devices[i].memory_bytes;
    }
    if (bytes > memory) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "the job needs about %llu MiB, the devices have %llu MiB; train a smaller "
                         "model, or with a smaller micro_batch",
                         (unsigned long long)(bytes >> 20), (unsigned long long)(memory >> 20));
    }
    return 0;
}

static int data_load(struct train_job *job, struct error *error)
{
    const struct specification *s = &job->specification;
    double rows, steps;
    int result = dataset_open(&s->data, s->model.widths[0], s->model.widths[s->model.layer_count],
                              &job->keeper.dataset, error);
    if (result < 0) {
        return result;
    }
    rows = (double)dataset_train_rows(job->keeper.dataset);
    steps = s->steps > 0 ? (double)s->steps : fmax(1, ceil(s->epochs * rows / s->batch));
    if (steps * s->batch > SAMPLES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job: %.3g steps of %u rows are more than the limit of %.3g rows in all",
                         steps, s->batch, SAMPLES_MAX);
    }
    job->steps = (uint64_t)steps;
    return 0;
}

static int pools_create(struct train_job *job, struct error *error)
{
    const struct specification *s = &job->specification;
    uint32_t devices = s->request.devices_max < job->trainer->devices->count
                           ? s->request.devices_max
                           : job->trainer->devices->count;
    job->keeper.parameters = mlp_parameters(&s->model);
    job->keeper.micro_batches = s->batch / s->micro_batch;
    job->keeper.window = devices + 1;
    job->keeper.gradients = vector_pool_create(job->keeper.parameters);
    job->keeper.states =
        vector_pool_create(job->keeper.parameters * (1 + optimizer_slots(s->optimizer.kind)));
    if (job->keeper.gradients == NULL || job->keeper.states == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the job's pools");
    }
    return size_check(job, error);
}

/* The checkpoint's bits are those of other kernels: say so once. */
static void strict_check(struct train_job *job, const struct checkpoint_head *head)
{
    char text[256];
    if (head->data_hash != dataset_hash(job->keeper.dataset)) {
        job_warn(job,
                 "the data is not what the checkpoint was trained on; training goes on with it");
    }
    if (!job->specification.strict || (strcmp(head->blas_version, blas_version()) == 0 &&
                                       strcmp(head->blas_core, blas_core()) == 0 &&
                                       head->tiling_version == GEMM_TILING_VERSION)) {
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "strict mode ends: the checkpoint was made with %s, core %s, tiling %u, here "
                   "are %s, core %s, tiling %u; the weights will differ in their last bits",
                   head->blas_version, head->blas_core, head->tiling_version, blas_version(),
                   blas_core(), GEMM_TILING_VERSION);
    job_warn(job, text);
}

/* From the newest good checkpoint, else from the seed. */
static int state_load(struct train_job *job, struct vector *state, uint64_t *ret_step,
                      struct error *error)
{
    const struct specification *s = &job->specification;
    size_t parameters = job->keeper.parameters;
    uint32_t slots = optimizer_slots(s->optimizer.kind);
    struct checkpoint_head head;
    char path[PATH_MAX];
    int result = checkpoint_load(job->directory, s->hash, parameters * (1 + slots), &head,
                                 state->data, path, on_damage, job, error);
    *ret_step = 0;
    if (result == 1) {
        *ret_step = head.step;
        atomic_store(&job->figures.step, head.step);
        atomic_store(&job->figures.checkpointed_step, head.step);
        atomic_store(&job->figures.loss_first, head.loss_first);
        atomic_store(&job->figures.loss_last, head.loss_last);
        strict_check(job, &head);
    } else if (result == 0) {
        mlp_initialize(&s->model, s->seed, state->data);
        memset(state->data + parameters, 0, slots * parameters * sizeof(float));
    }
    return result < 0 ? result : 0;
}

static struct feed *feed_make(const struct train_job *job, uint64_t step)
{
    const struct specification *s = &job->specification;
    const struct feed_config config = {
        .dataset = job->keeper.dataset,
        .rows = s->micro_batch,
        .inputs = s->model.widths[0],
        .ahead = rows_ahead(job),
        .begin = step * job->keeper.micro_batches,
        .end = job->steps * job->keeper.micro_batches,
    };
    return feed_create(&config);
}

static int step_make(struct train_job *job, struct vector *state, uint64_t number,
                     struct error *error)
{
    const struct specification *s = &job->specification;
    uint64_t held_out = dataset_held_out_rows(job->keeper.dataset);
    const struct step_config config = {
        .micro_batches = job->keeper.micro_batches,
        .window = job->keeper.window,
        .chunks = (uint32_t)((held_out + s->micro_batch - 1) / s->micro_batch),
        .parameters = job->keeper.parameters,
        .sum_on_completion = job->trainer->sum_on_completion,
    };
    struct feed *feed = feed_make(job, number);
    struct step *step = NULL;
    if (feed != NULL) {
        step = step_create(&config, feed, job->keeper.gradients, job->keeper.states, state, number);
    }
    if (step == NULL) {
        feed_destroy(feed);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the job's steps");
    }
    (void)pthread_mutex_lock(&job->lock);
    job->shared.feed = feed;
    job->shared.step = step;
    job->shared.state = JOB_TRAINING;
    job->shared.checkpoint_due_ns =
        clock_now_ns() + (uint64_t)(s->checkpoint.every_s * (double)NS_PER_S);
    if (number >= job->steps) { /* went on after its end: figures and export are still to come */
        if (held_out > 0) {
            step_evaluate(step);
        } else {
            job->shared.state = JOB_ENDING;
        }
    }
    (void)pthread_mutex_unlock(&job->lock);
    return 0;
}

int job_load(struct train_job *job, struct error *error)
{
    struct vector *state = NULL;
    uint64_t number = 0;
    int result = blas_open(error);
    if (result == 0) {
        result = data_load(job, error);
    }
    if (result == 0) {
        result = pools_create(job, error);
    }
    if (result < 0) {
        return result;
    }
    state = vector_take(job->keeper.states);
    if (state == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the job's state");
    }
    result = state_load(job, state, &number, error);
    if (result == 0) {
        result = step_make(job, state, number, error);
    }
    if (result < 0) {
        vector_release(state);
    }
    return result;
}
