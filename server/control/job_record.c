/* job_record.c: a job as the store keeps it, and back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/options.h"
#include "server/control/state.h"
#include "server/serve/model_config.h"

/* A cancelled job in this process that has yet to leave its devices: after a crash it has. An
 * outside job whose last run is over. */
static bool is_as_good_as_ended(const struct job_entry *job)
{
    bool left =
        job->outside == NULL || job->outside->state == RUN_NONE || job->outside->state == RUN_ENDED;
    return !job_ended(job) && left &&
           (job->outcome == CONTROL_JOB_CANCELLED || (job->outside != NULL && job->outcome != 0));
}

/* States that are kept: what the job was doing is found anew after a restart. */
static const char *kept_state(const struct job_entry *job)
{
    if (job_ended(job) || is_as_good_as_ended(job)) {
        return control_job_state_name(job_ended(job) ? job->state : job->outcome);
    }
    if (job->outcome == CONTROL_JOB_CANCELLED) {
        return "cancelling"; /* an outside job: it lives until it is ended */
    }
    return job->paused ? "paused" : "active";
}

/* ---- figures
 * ------------------------------------------------------------------------------------- */

/* JSON knows no NaN: such figures are left out. */
static void put_number(json_t *object, const char *name, double value)
{
    if (isfinite(value)) {
        json_object_set_new(object, name, json_real(value));
    }
}

static double get_number(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static uint64_t get_whole(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_integer(value) ? (uint64_t)json_integer_value(value) : 0;
}

static void get_text(const json_t *object, const char *name, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(object, name));
    snprintf(text, size, "%s", value != NULL ? value : "");
}

static char *figures_print(const struct train_status *figures)
{
    json_t *object = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "step", (json_int_t)figures->step,
                               "steps", (json_int_t)figures->steps, "checkpointed_step",
                               (json_int_t)figures->checkpointed_step, "micro_batches",
                               (json_int_t)figures->micro_batches_done, "micro_batches_returned",
                               (json_int_t)figures->micro_batches_returned, "data_wait_ns",
                               (json_int_t)figures->data_wait_ns);
    char *text = NULL;
    if (object != NULL) {
        put_number(object, "loss_first", figures->loss_first);
        put_number(object, "loss_last", figures->loss_last);
        put_number(object, "held_out_loss", figures->held_out_loss);
        put_number(object, "held_out_accuracy", figures->held_out_accuracy);
        json_object_set_new(object, "checkpoint_path", json_string(figures->checkpoint_path));
        json_object_set_new(object, "export_path", json_string(figures->export_path));
        text = json_dumps(object, JSON_COMPACT);
        json_decref(object);
    }
    return text;
}

static void figures_parse(const char *text, struct train_status *ret_figures)
{
    json_t *object = json_loads(text, 0, NULL);
    *ret_figures = (struct train_status){
        .step = get_whole(object, "step"),
        .steps = get_whole(object, "steps"),
        .checkpointed_step = get_whole(object, "checkpointed_step"),
        .micro_batches_done = get_whole(object, "micro_batches"),
        .micro_batches_returned = get_whole(object, "micro_batches_returned"),
        .data_wait_ns = get_whole(object, "data_wait_ns"),
        .loss_first = get_number(object, "loss_first"),
        .loss_last = get_number(object, "loss_last"),
        .held_out_loss = get_number(object, "held_out_loss"),
        .held_out_accuracy = get_number(object, "held_out_accuracy"),
    };
    get_text(object, "checkpoint_path", ret_figures->checkpoint_path,
             sizeof ret_figures->checkpoint_path);
    get_text(object, "export_path", ret_figures->export_path, sizeof ret_figures->export_path);
    json_decref(object);
}

void job_refresh_figures(struct job_entry *job)
{
    if (job->train != NULL) {
        trainer_job_status(job->train, &job->figures);
    }
}

/* ---- writing
 * ---------------------------------------------------------------------------------------- */

int job_store_new(struct control *control, const struct job_entry *job, const char *request_id,
                  store_done *done, void *context)
{
    struct store_request request = {request_id, job->number, job->id, job->submitted_wall_ns};
    char *result_text = figures_print(&job->figures);
    char *lease_text = job->outside != NULL ? outside_print(job->outside, control) : NULL;
    struct store_job row = {
        .number = job->number,
        .id = job->id,
        .specification = job->specification,
        .state = kept_state(job),
        .ended = job_ended(job) || is_as_good_as_ended(job),
        .reason = job->reason.text,
        .submitted_wall_ns = job->submitted_wall_ns,
        .started_wall_ns = job->started_wall_ns,
        .finished_wall_ns =
            is_as_good_as_ended(job) ? clock_pace_wall_ns(&control->pace) : job->finished_wall_ns,
        .preemptions = job->preemptions_before + job->figures.preemptions,
        .result = result_text != NULL ? result_text : "{}",
        .lease = lease_text != NULL ? lease_text : "",
    };
    int result =
        store_add_job(control->store, &row, request_id[0] != '\0' ? &request : NULL, done, context);
    free(result_text);
    free(lease_text);
    return result;
}

int job_store(struct control *control, const struct job_entry *job, store_done *done, void *context)
{
    return job_store_new(control, job, "", done, context);
}

/* ---- making
 * ------------------------------------------------------------------------------------------- */

int job_train(struct control *control, struct job_entry *job, const json_t *specification,
              struct error *error)
{
    struct train_request request = {0};
    char id[96];
    int result = train_request_read(specification, &request, error);
    if (result < 0) {
        return result;
    }
    if (request.devices_min > control->device_count) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "job.devices: at least %u are wanted and the server has %u",
                           request.devices_min, control->device_count);
        error_set_bound(error, "devices", request.devices_min, control->device_count);
        return result;
    }
    snprintf(id, sizeof id, "%s-%llu", request.name, (unsigned long long)job->number);
    free(job->id);
    free(job->name);
    job->id = strdup(id);
    job->name = strdup(request.name);
    if (job->id == NULL || job->name == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "job '%s': no memory", id);
    }
    job->devices_min = request.devices_min;
    job->devices_max =
        request.devices_max < control->device_count ? request.devices_max : control->device_count;
    job->priority = (int32_t)request.priority;
    result = team_number(control, request.team, &job->team, error);
    return result < 0 ? result
                      : trainer_job_create(control->trainer, job->number, job->id, specification,
                                           &job->train, error);
}

static int export_place_check(const struct control *control, const json_t *export,
                              struct error *error)
{
    const char *repository = control->config->model_repository;
    const char *given = json_string_value(json_object_get(export, "repository"));
    char *own = repository != NULL ? realpath(repository, NULL) : NULL;
    char *wanted = given != NULL ? realpath(given, NULL) : NULL;
    bool same = own != NULL && wanted != NULL && strcmp(own, wanted) == 0;
    free(own);
    free(wanted);
    if (same) {
        return 0;
    }
    return error_set(error, ERROR_PERMISSION_DENIED,
                     "job.export.repository: with a token only the server's own model repository "
                     "(%.200s) is allowed; over the Unix socket any folder is",
                     repository != NULL ? repository : "it has none");
}

static int export_config_check(const json_t *config, struct error *error)
{
    struct model_config read;
    int result;
    model_config_init(&read, "exported");
    result = model_config_read_json(&read, config, "job.export.config", error);
    model_config_fini(&read);
    return result;
}

int job_check_export(const struct control *control, const json_t *specification, bool anywhere,
                     struct error *error)
{
    const json_t *export = json_object_get(specification, "export");
    const json_t *config = json_object_get(export, "config");
    int result = export == NULL || anywhere ? 0 : export_place_check(control, export, error);
    return result < 0 || config == NULL ? result : export_config_check(config, error);
}

/* ---- reading
 * -------------------------------------------------------------------------------------------- */

static enum control_job_state state_of(const char *word)
{
    for (int state = CONTROL_JOB_FINISHED; state < CONTROL_JOB_STATES; state++) {
        if (strcmp(word, control_job_state_name(state)) == 0) {
            return (enum control_job_state)state;
        }
    }
    return CONTROL_JOB_LOADING;
}

/* "digits-3" → "digits" */
static char *name_of_id(const char *id)
{
    const char *dash = strrchr(id, '-');
    return strndup(id, dash != NULL ? (size_t)(dash - id) : strlen(id));
}

/* What it holds can only be looked for when there are devices: outside_boot. */
static int load_outside(struct control *control, struct job_entry *job, const char *lease,
                        struct error *error)
{
    json_t *specification =
        options_parse_text(job->specification, strlen(job->specification), "job", NULL);
    struct error why = {0};
    struct log_text text;
    int result = specification != NULL ? outside_job_create(control, job, specification, &why)
                                       : -(int)ERROR_DATA_LOSS;
    json_decref(specification);
    if (result == 0) {
        outside_parse(job->outside, control, lease);
        return 0;
    }
    log_write(LOG_ERROR, "outside", "job not restored", "job=%s reason=%s", job->id,
              log_quote(&text, why.text));
    if (!job_ended(job)) {
        job->outcome = job->state = CONTROL_JOB_FAILED;
        snprintf(job->reason.text, sizeof job->reason.text, "after a restart: %.200s", why.text);
    }
    (void)error;
    return 0;
}

static int load_job(void *context, const struct store_job *row, struct error *error)
{
    struct control *control = context;
    struct job_entry *job = job_add(control, row->number);
    if (job == NULL || (job->id = strdup(row->id)) == NULL ||
        (job->name = name_of_id(row->id)) == NULL ||
        (job->specification = strdup(row->specification)) == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "read jobs: no memory");
    }
    job->state = state_of(row->state);
    job->paused = strcmp(row->state, "paused") == 0;
    job->committed = true;
    job->submitted_wall_ns = row->submitted_wall_ns;
    job->started_wall_ns = row->started_wall_ns;
    job->finished_wall_ns = row->finished_wall_ns;
    job->preemptions_before = row->preemptions;
    snprintf(job->reason.text, sizeof job->reason.text, "%s", job_ended(job) ? row->reason : "");
    figures_parse(row->result, &job->figures);
    if (strcmp(row->state, "cancelling") == 0) {
        job->outcome = CONTROL_JOB_CANCELLED;
    }
    if (row->lease[0] != '\0') {
        return load_outside(control, job, row->lease, error);
    }
    return 0;
}

static int load_request(void *context, const struct store_request *request, struct error *error)
{
    struct control *control = context;
    return requests_add(control->requests, request, error);
}

int jobs_load(struct control *control, struct error *error)
{
    int result = store_load_jobs(control->store, load_job, control, error);
    if (result == 0) {
        result = store_load_requests(control->store, load_request, control, error);
    }
    return result < 0 ? result : store_load_job_number(control->store, &control->job_number, error);
}

static void restore(struct control *control, struct job_entry *job)
{
    struct error error = {0};
    struct log_text text;
    json_t *specification =
        options_parse_text(job->specification, strlen(job->specification), "job", &error);
    if (specification == NULL || job_train(control, job, specification, &error) < 0) {
        log_write(LOG_ERROR, "train", "job not restored", "job=%s reason=%s", job->id,
                  log_quote(&text, error.text));
        error_prefix(&error, "after a restart");
        job->outcome = CONTROL_JOB_FAILED;
        job->state = CONTROL_JOB_FAILED;
        job->finished_wall_ns = clock_pace_wall_ns(&control->pace);
        snprintf(job->reason.text, sizeof job->reason.text, "%.255s", error.text);
        job_store(control, job, count_store_error, control);
    }
    json_decref(specification);
}

void jobs_boot(struct control *control)
{
    /* Above all folders, too: the store may have been lost, the checkpoints not. */
    uint64_t last = trainer_last_number(control->trainer);
    control->job_number = last > control->job_number ? last : control->job_number;
    for (size_t i = 0; i < control->job_count; i++) {
        if (!job_ended(control->jobs[i]) && control->jobs[i]->outside == NULL) {
            restore(control, control->jobs[i]);
        }
    }
}

void jobs_store(struct control *control)
{
    for (size_t i = 0; i < control->job_count; i++) {
        struct job_entry *job = control->jobs[i];
        if (job->committed) {
            job_refresh_figures(job);
            job_store(control, job, count_store_error, control);
        }
    }
}
