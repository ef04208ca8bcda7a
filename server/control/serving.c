/* serving.c: models come and go: the repository at the start, `tidepool serve` later. Reading and
 * loading is the loader's; what it has loaded is given to serve and told to the core here. */
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/base/options.h"
#include "server/control/adjust.h"
#include "server/control/state.h"

/* What is wished for one endpoint; also how it is kept in the store. */
struct wish {
    char *path;  /* a file, made absolute; or NULL */
    char *model; /* of the repository; or NULL */
    char name[MODEL_NAME_MAX + 1];
    double slo_ms;
    uint32_t devices_min, devices_max;
};

struct load_task {
    struct loader_task task; /* first */
    const char *repository;  /* the config's: outlives the task */
    struct wish wish;
    bool of_the_start; /* counted in control->loads_open */
    bool restored;     /* is in the store already */
    control_done *done;
    void *context;
    /* What the loader found. */
    struct repository_model *model;
    struct error error;
};

struct list_task {
    struct loader_task task; /* first */
    const char *repository;
    struct repository_names names;
    struct error error;
};

/* ---- tasks
 * ---------------------------------------------------------------------------------------- */

static void wish_fini(struct wish *wish)
{
    free(wish->path);
    free(wish->model);
    wish->path = wish->model = NULL;
}

static void load_destroy(struct load_task *load)
{
    if (load != NULL) {
        repository_model_destroy(load->model);
        wish_fini(&load->wish);
        free(load);
    }
}

/* The server stops: nobody waits for the answer any more but the handler, which must finish. */
static void load_drop(struct loader_task *task)
{
    struct load_task *load = (struct load_task *)task;
    struct error error = {0};
    if (load->done != NULL) {
        error_set(&error, ERROR_UNAVAILABLE, "the server stops");
        load->done(NULL, load->context, 0, &error);
    }
    load_destroy(load);
}

static void wish_apply(const struct wish *wish, struct model_config *config)
{
    if (wish->slo_ms > 0) {
        config->slo_latency_ns = (uint64_t)(wish->slo_ms * 1e6);
    }
    if (wish->devices_min > 0) {
        config->devices_min = wish->devices_min;
    }
    if (wish->devices_max > 0) {
        config->devices_max = wish->devices_max;
    }
}

static void load_work(struct loader_task *task)
{
    struct load_task *load = (struct load_task *)task;
    if (load->wish.path != NULL) {
        struct model_config config;
        model_config_init(&config, load->wish.name);
        wish_apply(&load->wish, &config);
        repository_load_file(load->wish.path, &config, &load->model, &load->error);
        model_config_fini(&config);
    } else if (repository_load(load->repository, load->wish.model, &load->model, &load->error) ==
               0) {
        wish_apply(&load->wish, &load->model->config);
    }
}

/* ---- what was loaded
 * -------------------------------------------------------------------------------- */

static void fill_entry(struct control *control, struct endpoint_entry *endpoint,
                       const struct repository_model *model)
{
    const struct model_config *config = &model->config;
    endpoint->runtime = config->runtime->name;
    endpoint->version = model->version;
    endpoint->batch_max = model->signature->batch_max;
    endpoint->configured = (struct endpoint_settings){.devices_min = config->devices_min,
                                                      .devices_max = config->devices_max,
                                                      .priority = config->priority,
                                                      .slo_ns = config->slo_latency_ns};
    endpoint_adjust(control, endpoint);
    endpoint->slo_target = config->slo_target;
    endpoint->kinds_mask = device_kinds_mask(control, config->device_kind);
    endpoint->requests_per_s = 0;
    endpoint->p50_ms = endpoint->p99_ms = endpoint->late_fraction = __builtin_nan("");
}

/* Gives the loaded model to serve and to the core. */
static int endpoint_begin(struct control *control, struct endpoint_entry *endpoint,
                          struct load_task *load)
{
    fill_entry(control, endpoint, load->model);
    if (endpoint->kinds_mask == 0) {
        return error_set(&load->error, ERROR_FAILED_PRECONDITION,
                         "model '%s': wants a device of kind '%s', and there is none",
                         endpoint->name, load->model->config.device_kind);
    }
    int result = serve_endpoint_add(control->serve, endpoint->number, load->model, &load->error);
    if (result < 0) {
        return result;
    }
    load->model = NULL; /* serve's now */
    endpoint->in_serve = true;
    serve_endpoint_set(control->serve, endpoint->number, endpoint->slo_ns, endpoint->priority);
    endpoint->sampled_ns = control->now_ns;
    endpoint->sample.state = ENDPOINT_LOADING;
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_ADDED};
    endpoint_fill_spec(control, endpoint, &event.endpoint_spec);
    control_feed(control, event);
    log_write(LOG_INFO, "serve", "endpoint added",
              "endpoint=%s version=%u runtime=%s batch_max=%u "
              "slo_ms=%.3g",
              endpoint->name, endpoint->version, endpoint->runtime, endpoint->batch_max,
              (double)endpoint->slo_ns / 1e6);
    return 0;
}

static void load_counted(struct control *control, const struct load_task *load)
{
    if (load->of_the_start && --control->loads_open == 0) {
        control->opened = true;
        serve_set_open(control->serve, true);
        revision_touch_status(control);
        log_write(LOG_INFO, "control", "models read", "endpoints=%zu", control->endpoint_count);
    }
}

/* ---- the answer to a call, once the store has the endpoint
 * -------------------------------------------- */

struct stored_call {
    struct control_call call; /* first */
    struct control *control;
    uint64_t endpoint; /* number */
    control_done *done;
    void *context;
    struct error error;
};

static void run_stored(struct control *control, struct control_call *call)
{
    struct stored_call *stored = (struct stored_call *)call;
    size_t index = 0;
    if (stored->error.code == ERROR_NONE &&
        endpoint_by_number(control, stored->endpoint, &index) == NULL) {
        error_set(&stored->error, ERROR_ABORTED, "the endpoint was stopped meanwhile");
    }
    stored->done(control, stored->context, index,
                 stored->error.code != ERROR_NONE ? &stored->error : NULL);
    free(stored);
}

static void on_stored(void *context, const struct error *error)
{
    struct stored_call *stored = context;
    if (error != NULL) {
        stored->error = *error;
        error_prefix(&stored->error, "it is served, but will not be after a restart");
    }
    control_post(stored->control, &stored->call);
}

static char *wish_print(const struct wish *wish)
{
    json_t *object = json_pack("{s:s*, s:s*, s:f, s:i, s:i}", "path", wish->path, "model",
                               wish->model, "slo_ms", wish->slo_ms, "devices_min",
                               (int)wish->devices_min, "devices_max", (int)wish->devices_max);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return text;
}

/* Calls `done` when the store has it. */
static void keep_endpoint(struct control *control, const struct endpoint_entry *endpoint,
                          struct load_task *load)
{
    char *options = wish_print(&load->wish);
    struct stored_call *stored = calloc(1, sizeof *stored);
    struct store_endpoint row = {.name = endpoint->name,
                                 .path = load->wish.path != NULL ? load->wish.path : "",
                                 .options = options};
    int result = -ERROR_RESOURCE_EXHAUSTED;
    if (stored != NULL && options != NULL) {
        *stored = (struct stored_call){.call = {.run = run_stored},
                                       .control = control,
                                       .endpoint = endpoint->number,
                                       .done = load->done,
                                       .context = load->context};
        result = store_put_endpoint(control->store, &row, on_stored, stored);
    }
    if (result < 0) {
        struct error error = {0};
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "keep endpoint '%s': no memory",
                  endpoint->name);
        free(stored);
        load->done(control, load->context, 0, &error);
    }
    free(options);
}

/* ---- one load, done
 * ---------------------------------------------------------------------------------------- */

static void load_failed(struct control *control, struct endpoint_entry *endpoint,
                        struct load_task *load)
{
    struct log_text text;
    log_write(LOG_ERROR, "serve", "not served", "endpoint=%s reason=%s", load->wish.name,
              log_quote(&text, load->error.text));
    if (load->done != NULL) {
        /* Who asked is told; nothing stays. */
        if (endpoint != NULL) {
            endpoint_entry_remove(control, endpoint);
        }
        load->done(control, load->context, 0, &load->error);
    } else if (endpoint != NULL) {
        snprintf(endpoint->reason.text, sizeof endpoint->reason.text, "%.255s", load->error.text);
        revision_touch(control, &endpoint->revisions, true);
    }
}

static void run_loaded(struct control *control, struct control_call *call)
{
    struct load_task *load = (struct load_task *)call;
    struct endpoint_entry *endpoint = endpoint_by_name(control, load->wish.name, NULL);
    if (control->stopping) {
        load_drop(&load->task);
        return;
    }
    if (load->error.code == ERROR_NONE && endpoint == NULL) {
        error_set(&load->error, ERROR_ABORTED, "endpoint '%s': stopped while it loaded",
                  load->wish.name);
    }
    if (load->error.code == ERROR_NONE) {
        endpoint_begin(control, endpoint, load);
    }
    if (load->error.code != ERROR_NONE) {
        load_failed(control, endpoint, load);
    } else if (load->done != NULL) {
        keep_endpoint(control, endpoint, load);
    }
    load_counted(control, load);
    load_destroy(load);
}

/* Makes the entry (shown as loading) and gives the task to the loader. Takes the wish's texts. */
static int load_begin(struct control *control, struct wish *wish, bool of_the_start,
                      control_done *done, void *context, struct error *error)
{
    struct load_task *load = calloc(1, sizeof *load);
    struct endpoint_entry *endpoint =
        load != NULL ? endpoint_entry_create(control, wish->name) : NULL;
    if (endpoint == NULL) {
        free(load);
        wish_fini(wish);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "serve '%s': no memory", wish->name);
    }
    const char *path = wish->path != NULL ? wish->path : "";
    if (wish->path == NULL) {
        char folder[4096];
        snprintf(folder, sizeof folder, "%s/%s", control->config->model_repository, wish->model);
        endpoint->path = strdup(folder);
    } else {
        endpoint->path = strdup(path);
    }
    endpoint->from_repository = wish->path == NULL;
    *load = (struct load_task){
        .task = {.call = {.run = run_loaded}, .work = load_work, .drop = load_drop},
        .repository = control->config->model_repository,
        .wish = *wish,
        .of_the_start = of_the_start,
        .done = done,
        .context = context};
    *wish = (struct wish){0};
    control->loads_open += of_the_start ? 1 : 0;
    loader_submit(control->loader, &load->task);
    return 0;
}

/* ---- the start
 * ------------------------------------------------------------------------------------------------
 */

static void list_destroy(struct loader_task *task)
{
    struct list_task *list = (struct list_task *)task;
    repository_names_fini(&list->names);
    free(list);
}

static void list_work(struct loader_task *task)
{
    struct list_task *list = (struct list_task *)task;
    repository_list(list->repository, &list->names, &list->error);
}

static void run_listed(struct control *control, struct control_call *call)
{
    struct list_task *list = (struct list_task *)call;
    struct load_task counted = {.of_the_start = true};
    struct log_text text;
    if (control->stopping) {
        list_destroy(&list->task);
        return;
    }
    if (list->error.code != ERROR_NONE) {
        log_write(LOG_ERROR, "serve", "model repository not read", "reason=%s",
                  log_quote(&text, list->error.text));
    }
    for (size_t i = 0; i < list->names.count; i++) {
        struct wish wish = {.model = strdup(list->names.names[i])};
        struct error error = {0};
        snprintf(wish.name, sizeof wish.name, "%s", list->names.names[i]);
        if (wish.model == NULL || endpoint_by_name(control, wish.name, NULL) != NULL) {
            wish_fini(&wish); /* served by a call under this name: that one stays */
            continue;
        }
        if (load_begin(control, &wish, true, NULL, NULL, &error) < 0) {
            log_write(LOG_ERROR, "serve", "not served", "reason=%s", log_quote(&text, error.text));
        }
    }
    load_counted(control, &counted);
    list_destroy(&list->task);
}

static int restore_endpoint(void *context, const struct store_endpoint *row, struct error *error)
{
    struct control *control = context;
    json_t *options = options_parse_text(row->options, strlen(row->options), "store", error);
    struct wish wish = {0};
    json_int_t least = 0;
    json_int_t most = 0;
    const char *path = NULL;
    const char *model = NULL;
    if (options == NULL ||
        json_unpack(options, "{s?s, s?s, s?F, s?I, s?I}", "path", &path, "model", &model, "slo_ms",
                    &wish.slo_ms, "devices_min", &least, "devices_max", &most) < 0) {
        json_decref(options);
        log_write(LOG_ERROR, "serve", "endpoint not restored", "endpoint=%s", row->name);
        return 0;
    }
    snprintf(wish.name, sizeof wish.name, "%s", row->name);
    wish.path = path != NULL ? strdup(path) : NULL;
    wish.model = path == NULL && model != NULL ? strdup(model) : NULL;
    wish.devices_min = (uint32_t)least;
    wish.devices_max = (uint32_t)most;
    json_decref(options);
    if (wish.path == NULL && (wish.model == NULL || control->config->model_repository == NULL)) {
        log_write(LOG_WARN, "serve", "endpoint not restored",
                  "endpoint=%s reason=\"no model repository is configured now\"", row->name);
        wish_fini(&wish);
        return 0;
    }
    return load_begin(control, &wish, true, NULL, NULL, error);
}

void serving_boot(struct control *control)
{
    struct error error = {0};
    struct log_text text;
    struct load_task counted = {.of_the_start = true};
    control->loads_open++; /* keeps the server unready until all are asked for */
    if (store_load_endpoints(control->store, restore_endpoint, control, &error) < 0) {
        log_write(LOG_ERROR, "serve", "endpoints not restored", "reason=%s",
                  log_quote(&text, error.text));
    }
    struct list_task *list =
        control->config->model_repository != NULL ? calloc(1, sizeof *list) : NULL;
    if (list != NULL) {
        list->task = (struct loader_task){
            .call = {.run = run_listed}, .work = list_work, .drop = list_destroy};
        list->repository = control->config->model_repository;
        loader_submit(control->loader, &list->task);
    } else {
        load_counted(control, &counted);
    }
}

/* ---- calls
 * ------------------------------------------------------------------------------------------------------
 */

static int wish_check(struct control *control, const struct control_serve_options *options,
                      struct wish *wish, struct error *error)
{
    bool by_path = options->path[0] != '\0';
    if (by_path == (options->model[0] != '\0')) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "serve: give the path of a model file or the name of a model in the "
                         "repository, one of the two");
    }
    if (!(options->slo_ms >= 0 && options->slo_ms <= 3600e3)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "serve: slo_ms is %g; it may be 0 (the model's own) to 3600000",
                         options->slo_ms);
    }
    if (options->devices_max != 0 && options->devices_min > options->devices_max) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "serve: devices_min %u is more than devices_max %u", options->devices_min,
                         options->devices_max);
    }
    if (!by_path && control->config->model_repository == NULL) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "serve '%.127s': the server has no model repository; start it with "
                         "--model-repository DIR, or give the path of a file",
                         options->model);
    }
    if (by_path && options->path[0] != '/') {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "serve '%.255s': the path must be absolute, as the server may run in "
                         "another folder",
                         options->path);
    }
    wish->slo_ms = options->slo_ms;
    wish->devices_min = options->devices_min;
    wish->devices_max = options->devices_max;
    return 0;
}

static int wish_name(const struct control_serve_options *options, struct wish *wish,
                     struct error *error)
{
    const char *name = options->path[0] == '\0' ? options->model : options->name;
    if (options->path[0] == '\0' && options->name[0] != '\0' &&
        strcmp(options->name, options->model) != 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "serve '%.127s': a model of the repository keeps its name",
                         options->model);
    }
    if (name[0] == '\0') {
        repository_name_of_file(options->path, wish->name);
    } else if (model_name_valid(name, strlen(name))) {
        snprintf(wish->name, sizeof wish->name, "%s", name);
    } else {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "serve: '%.127s' is no name: 1 to %d of A-Z a-z 0-9 . _ -, the first a "
                         "letter, a digit or _",
                         name, MODEL_NAME_MAX);
    }
    return 0;
}

/* A name in use is refused, unless what has it could not be loaded: then this is the next try. */
static int wish_make_room(struct control *control, const struct wish *wish, struct error *error)
{
    struct endpoint_entry *there = endpoint_by_name(control, wish->name, NULL);
    if (there != NULL && (there->in_serve || there->reason.text[0] == '\0')) {
        return error_set(error, ERROR_ALREADY_EXISTS,
                         "endpoint '%s' is served already; stop it first, or give another name",
                         wish->name);
    }
    if (there != NULL) {
        endpoint_entry_remove(control, there);
    }
    return 0;
}

void control_serve_model(struct control *control, const struct control_serve_options *options,
                         control_done *done, void *context)
{
    struct wish wish = {0};
    struct error error = {0};
    int result = wish_check(control, options, &wish, &error);
    if (result == 0) {
        result = wish_name(options, &wish, &error);
    }
    if (result == 0) {
        result = wish_make_room(control, &wish, &error);
    }
    if (result == 0) {
        wish.path = options->path[0] != '\0' ? strdup(options->path) : NULL;
        wish.model = options->model[0] != '\0' ? strdup(options->model) : NULL;
        if (wish.path == NULL && wish.model == NULL) {
            result = error_set(&error, ERROR_RESOURCE_EXHAUSTED, "serve: no memory");
        }
    }
    if (result == 0) {
        result = load_begin(control, &wish, false, done, context, &error);
    }
    if (result < 0) {
        done(control, context, 0, &error);
    }
    revisions_refresh(control);
}

static void stop_serving(struct control *control, struct endpoint_entry *endpoint)
{
    if (!endpoint->in_serve) {
        endpoint_entry_remove(control, endpoint);
        return;
    }
    struct core_event event = {.kind = CORE_EVENT_ENDPOINT_REMOVED};
    event.endpoint.endpoint = endpoint->number;
    serve_endpoint_remove(control->serve, endpoint->number);
    control_feed(control, event);
}

/* On disk first: an endpoint whose end was told does not come back after a crash. */
static void run_forgotten(struct control *control, struct control_call *call)
{
    struct stored_call *stored = (struct stored_call *)call;
    size_t index = 0;
    struct endpoint_entry *endpoint = endpoint_by_number(control, stored->endpoint, &index);
    if (control->stopping) { /* serve may be gone already */
        error_set(&stored->error, ERROR_UNAVAILABLE, "the server stops");
    } else if (stored->error.code != ERROR_NONE) {
        endpoint->stopping = false;
        revision_touch(control, &endpoint->revisions, true);
    }
    if (stored->error.code != ERROR_NONE) {
        stored->done(control, stored->context, index, &stored->error);
    } else {
        stored->done(control, stored->context, index, NULL);
        stop_serving(control, endpoint);
    }
    free(stored);
}

static void on_forgotten(void *context, const struct error *error)
{
    struct stored_call *stored = context;
    if (error != NULL) {
        stored->error = *error;
        error_prefix(&stored->error, "it is served as before");
    }
    control_post(stored->control, &stored->call);
}

void control_stop_serving(struct control *control, size_t index, control_done *done, void *context)
{
    struct endpoint_entry *endpoint = control->endpoints[index];
    struct error error = {0};
    struct stored_call *stored = NULL;
    bool failed = !endpoint->in_serve && endpoint->reason.text[0] != '\0';
    if (endpoint->stopping || (!endpoint->in_serve && !failed)) {
        error_set(&error, ERROR_FAILED_PRECONDITION, "endpoint '%s' %s", endpoint->name,
                  endpoint->stopping ? "is being stopped already" : "is still being read");
        goto failed;
    }
    stored = calloc(1, sizeof *stored);
    if (stored == NULL) {
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "stop '%s': no memory", endpoint->name);
        goto failed;
    }
    *stored = (struct stored_call){.call = {.run = run_forgotten},
                                   .control = control,
                                   .endpoint = endpoint->number,
                                   .done = done,
                                   .context = context};
    if (store_remove_endpoint(control->store, endpoint->name, on_forgotten, stored) < 0) {
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "stop '%s': no memory", endpoint->name);
        goto failed;
    }
    endpoint->stopping = true;
    revision_touch(control, &endpoint->revisions, true);
    revisions_refresh(control);
    return;
failed:
    free(stored);
    done(control, context, 0, &error);
}

void endpoint_stopped(struct control *control, struct endpoint_entry *endpoint)
{
    log_write(LOG_INFO, "serve", "endpoint stopped", "endpoint=%s", endpoint->name);
    endpoint_entry_remove(control, endpoint);
}
