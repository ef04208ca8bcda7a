/* repository.h: a folder of models in Triton's layout, read and loaded.
 * Layout:  <root>/<model>/<version>/model.onnx; beside the versions config.pbtxt or config.json
 *          (ours; wins when both are there), or neither: then everything comes from the model.
 * Version: the largest number among the folders' names; a model of runtime "identity" needs none.
 * Links:   followed when they end beneath the root; others are refused before anything is opened.
 * Errors:  one model's never keep others from loading; texts name the file and the setting.
 * Thread:  any thread that may take seconds; no shared state. */
#ifndef TIDEPOOL_SERVE_REPOSITORY_H
#define TIDEPOOL_SERVE_REPOSITORY_H

#include "server/serve/model_config.h"

#define MODEL_DIGEST_SIZE 65 /* hexadecimal */

/* A model loaded and checked, with all that an endpoint needs to know about it. */
struct repository_model {
    struct model_config config; /* in force: batch_max is the signature's */
    uint32_t version;
    struct model *model;                     /* of config.runtime */
    const struct model_signature *signature; /* the model's */
    char digest[MODEL_DIGEST_SIZE]; /* SHA-256 of the model's file and of what shapes its runs */
};

struct repository_names {
    char (*names)[MODEL_NAME_MAX + 1]; /* sorted */
    size_t count;
};

/* Lists the model folders; names that break the rule are left out with a warning. */
int repository_list(const char *root, struct repository_names *ret_names, struct error *error);
void repository_names_fini(struct repository_names *names);

int repository_load(const char *root, const char *name, struct repository_model **ret_model,
                    struct error *error);
/* One model file outside a repository, version 1, with a config by the caller (init'ed, then
 * changed where wanted; its contents become the model's, also on an error). */
int repository_load_file(const char *path, struct model_config *config,
                         struct repository_model **ret_model, struct error *error);
/* After the instances made of it. NULL is fine. */
void repository_model_destroy(struct repository_model *model);

/* A valid name for a model file: its own, or its folder's when it is "model.onnx" in a version
 * folder; "model" when neither can be one. */
void repository_name_of_file(const char *path, char ret_name[MODEL_NAME_MAX + 1]);

#endif
