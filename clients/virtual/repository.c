/* repository.c: server/serve/repository.h of a virtual world: the endpoints of its trace, and
 * whatever file a caller asks to serve. Nothing is read: a model here is a name. */
#include "server/serve/repository.h"

#include <stdlib.h>
#include <string.h>

#include "clients/virtual/world.h"

static const char *version(void)
{
    return "1";
}

static const struct model_runtime virtual_runtime = {
    .name = "virtual", .platform = "virtual", .version = version};
static const struct model_signature nothing = {.batch_max = 1};

int repository_list(const char *root, struct repository_names *ret_names, struct error *error)
{
    const struct trace_names *endpoints = &world.plan->trace->endpoints;
    (void)root;
    *ret_names = (struct repository_names){
        .names = calloc(endpoints->count + 1, sizeof *ret_names->names), .count = endpoints->count};
    if (ret_names->names == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "list the endpoints: no memory");
    }
    for (uint32_t i = 0; i < endpoints->count; i++) {
        snprintf(ret_names->names[i], sizeof ret_names->names[i], "%s", endpoints->names[i]);
    }
    return 0;
}

void repository_names_fini(struct repository_names *names)
{
    free(names->names);
    *names = (struct repository_names){0};
}

static int model_make(const struct model_config *config, struct repository_model **ret_model,
                      struct error *error)
{
    struct repository_model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "model '%s': no memory", config->name);
    }
    model->config = *config;
    model->config.runtime = &virtual_runtime;
    model->config.batch_max = 1;
    model->version = 1;
    model->signature = &nothing;
    *ret_model = model;
    return 0;
}

/* A latency counts serving too, which requests of a trace take very different times for. */
int repository_load(const char *root, const char *name, struct repository_model **ret_model,
                    struct error *error)
{
    struct model_config config;
    (void)root;
    model_config_init(&config, name);
    config.slo_latency_ns = world.plan->slo_ns + 2 * world_service_ns(name);
    config.slo_target = world.plan->slo_target;
    return model_make(&config, ret_model, error);
}

int repository_load_file(const char *path, struct model_config *config,
                         struct repository_model **ret_model, struct error *error)
{
    (void)path;
    return model_make(config, ret_model, error);
}

void repository_model_destroy(struct repository_model *model)
{
    free(model);
}

void repository_name_of_file(const char *path, char ret_name[MODEL_NAME_MAX + 1])
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    size_t length = strcspn(name, ".");
    snprintf(ret_name, MODEL_NAME_MAX + 1, "%.*s", (int)length, name);
    if (!model_name_valid(ret_name, strlen(ret_name))) {
        snprintf(ret_name, MODEL_NAME_MAX + 1, "model");
    }
}
