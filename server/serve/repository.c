#include "server/serve/repository.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/log.h"
#include "server/base/options.h"
#include "server/serve/digest.h"
#include "server/serve/pbtxt.h"

#define CONFIG_BYTES_MAX PBTXT_BYTES_MAX
#define NOT_THERE "'%s' is not there, or is a link that leads out of the repository"

/* ---- paths -------------------------------------------------------------------------------------
 */

/* The real path of `relative` when it lies beneath the root (itself a real path), or NULL: not
 * there, or a link that leads out; which of the two is not told. The caller frees it. */
static char *path_beneath(const char *root, const char *relative)
{
    char joined[PATH_MAX];
    size_t length = strlen(root);
    char *real;
    if ((size_t)snprintf(joined, sizeof(joined), "%s/%s", root, relative) >= sizeof(joined)) {
        return NULL;
    }
    real = realpath(joined, NULL);
    if (real != NULL && (strncmp(real, root, length) != 0 || real[length] != '/') &&
        strcmp(root, "/") != 0) {
        free(real);
        return NULL;
    }
    return real;
}

/* Something of that name is there, link or not. */
static bool path_present(const char *root, const char *relative)
{
    char joined[PATH_MAX];
    struct stat status;
    return (size_t)snprintf(joined, sizeof(joined), "%s/%s", root, relative) < sizeof(joined) &&
           lstat(joined, &status) == 0;
}

/* The whole of a small text file; *ret_text is malloc'ed with a NUL at its end. */
static int text_read(const char *path, char **ret_text, size_t *ret_length, struct error *error)
{
    struct stat status;
    char *text = NULL;
    ssize_t got = -1;
    int result = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return error_set_errno(error, errno, "open '%s'", path);
    }
    if (fstat(fd, &status) < 0) {
        result = error_set_errno(error, errno, "look at '%s'", path);
    } else if (!S_ISREG(status.st_mode) || status.st_size > (off_t)CONFIG_BYTES_MAX) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "'%s' is no file of at most %zu bytes, as a configuration is", path,
                           CONFIG_BYTES_MAX);
    }
    if (result == 0) {
        text = malloc((size_t)status.st_size + 1);
        got = text == NULL ? -1 : read(fd, text, (size_t)status.st_size);
        if (got < 0) {
            result = error_set_errno(error, text == NULL ? ENOMEM : errno, "read '%s'", path);
        }
    }
    (void)close(fd);
    if (result < 0) {
        free(text);
        return result;
    }
    text[got] = '\0';
    *ret_text = text;
    *ret_length = (size_t)got;
    return 0;
}

/* ---- listing -----------------------------------------------------------------------------------
 */

static int name_compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int name_add(struct repository_names *names, const char *name, struct error *error)
{
    if ((names->count & (names->count - 1)) == 0) {
        size_t capacity = names->count == 0 ? 1 : names->count * 2;
        void *grown = realloc(names->names, capacity * sizeof(*names->names));
        if (grown == NULL) {
            return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory to list a repository");
        }
        names->names = grown;
    }
    memcpy(names->names[names->count++], name, strlen(name) + 1);
    return 0;
}

static bool is_folder(int parent, const char *name)
{
    struct stat status;
    return fstatat(parent, name, &status, 0) == 0 && S_ISDIR(status.st_mode);
}

int repository_list(const char *root, struct repository_names *ret_names, struct error *error)
{
    struct repository_names names = {0};
    const struct dirent *entry;
    struct log_text quoted;
    int result = 0;
    DIR *folder = opendir(root);
    if (folder == NULL) {
        return error_set_errno(error, errno, "open model repository '%s'", root);
    }
    while (result == 0 && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.' || !is_folder(dirfd(folder), entry->d_name)) {
            continue; /* files beside the models, hidden folders */
        }
        if (!model_name_valid(entry->d_name, strlen(entry->d_name))) {
            log_write(LOG_WARN, "repository",
                      "folder left out: a model's name is 1 to 127 letters, digits, '.', '_', '-'",
                      "name=%s", log_quote(&quoted, entry->d_name));
            continue;
        }
        result = name_add(&names, entry->d_name, error);
    }
    (void)closedir(folder);
    if (result < 0) {
        repository_names_fini(&names);
        return result;
    }
    if (names.count > 0) {
        qsort(names.names, names.count, sizeof(*names.names), name_compare);
    }
    *ret_names = names;
    return 0;
}

void repository_names_fini(struct repository_names *names)
{
    free(names->names);
    *names = (struct repository_names){0};
}

/* ---- one model's configuration -----------------------------------------------------------------
 */

static int json_config_read(struct model_config *config, const char *text, size_t length,
                            const char *where, struct error *error)
{
    json_t *object = options_parse_text(text, length, where, error);
    if (object == NULL) {
        return -ERROR_INVALID_ARGUMENT;
    }
    int result = model_config_read_json(config, object, where, error);
    json_decref(object);
    return result;
}

static int pbtxt_config_read(struct model_config *config, const char *text, size_t length,
                             const char *where, struct error *error)
{
    char ignored[512];
    struct log_text quoted;
    int result =
        model_config_read_pbtxt(config, text, length, where, ignored, sizeof(ignored), error);
    if (result == 0 && ignored[0] != '\0') {
        log_write(LOG_WARN, "repository", "fields of config.pbtxt are not honoured",
                  "model=%s fields=%s", config->name, log_quote(&quoted, ignored));
    }
    return result;
}

/* config.json, else config.pbtxt, else the defaults stay. `folder` is a real path. */
static int config_read(const char *root, const char *name, struct model_config *config,
                       struct error *error)
{
    static const struct {
        const char *file;
        int (*read)(struct model_config *config, const char *text, size_t length, const char *where,
                    struct error *error);
    } kinds[] = {{"config.json", json_config_read}, {"config.pbtxt", pbtxt_config_read}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char relative[MODEL_NAME_MAX + 32];
        char *text = NULL;
        size_t length = 0;
        (void)snprintf(relative, sizeof(relative), "%s/%s", name, kinds[i].file);
        char *path = path_beneath(root, relative);
        if (path == NULL && path_present(root, relative)) {
            return error_set(error, ERROR_NOT_FOUND, NOT_THERE, relative);
        }
        if (path == NULL) {
            continue;
        }
        int result = text_read(path, &text, &length, error);
        if (result == 0) {
            result = kinds[i].read(config, text, length, relative, error);
        }
        free(text);
        free(path);
        return result;
    }
    return 0;
}

/* The largest version among the folder's, 0: none. */
static uint32_t version_newest(const char *folder_path)
{
    uint32_t newest = 0, version = 0;
    const struct dirent *entry;
    DIR *folder = opendir(folder_path);
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        if (model_version_parse(entry->d_name, strlen(entry->d_name), &version) &&
            version > newest && is_folder(dirfd(folder), entry->d_name)) {
            newest = version;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return newest;
}

/* ---- loading -----------------------------------------------------------------------------------
 */

/* What of the configuration shapes a run, so that its measurements are told apart by it. */
static int digest_make(struct repository_model *model, const char *path, struct error *error)
{
    const struct model_signature *signature = model->signature;
    char text[4096];
    int length = snprintf(text, sizeof(text), "%s %" PRIu32, model->config.runtime->name,
                          signature->batch_max);
    for (size_t i = 0; i < signature->input_count && length < (int)sizeof(text); i++) {
        struct shape_text shape;
        length +=
            snprintf(text + length, sizeof(text) - (size_t)length, " %s%s",
                     datatype_name(signature->inputs[i].datatype),
                     shape_print(&shape, signature->inputs[i].dims, signature->inputs[i].rank));
    }
    return digest_compute(path, text, model->digest, error);
}

/* A batch size that is preferred but larger than the model turned out to allow means nothing. */
static void config_settle(struct model_config *config, uint32_t batch_max)
{
    config->batch_max = batch_max;
    while (config->preferred_count > 0 &&
           config->preferred[config->preferred_count - 1] > batch_max) {
        config->preferred_count--;
    }
}

/* Takes the config's contents over. `path` NULL: a runtime without files. */
static int model_load(const char *path, uint32_t version, struct model_config *config,
                      struct repository_model **ret_model, struct error *error)
{
    struct repository_model *model = calloc(1, sizeof(*model));
    struct model_source source;
    int result;
    if (model == NULL) {
        model_config_fini(config);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a model");
    }
    model->config = *config;
    config->configured = (struct model_signature){0};
    model->version = version;
    source = (struct model_source){.name = model->config.name,
                                   .path = path,
                                   .batch_max = model->config.batch_max,
                                   .configured = &model->config.configured};
    result = model->config.runtime->load(&source, &model->model, error);
    if (result == 0) {
        model->signature = model->config.runtime->signature(model->model);
        config_settle(&model->config, model->signature->batch_max);
        result = digest_make(model, path, error);
    }
    if (result < 0) {
        repository_model_destroy(model);
        return result;
    }
    *ret_model = model;
    return 0;
}

/* Finds version and file beneath the root and loads it. */
static int version_load(const char *root, const char *name, struct model_config *config,
                        struct repository_model **ret_model, struct error *error)
{
    char relative[2 * MODEL_NAME_MAX + 32];
    char *folder = path_beneath(root, name);
    char *path = NULL;
    uint32_t version = folder == NULL ? 0 : version_newest(folder);
    int result;
    free(folder);
    if (config->runtime == &identity_runtime) {
        return model_load(NULL, version == 0 ? 1 : version, config, ret_model, error);
    }
    if (version == 0) {
        result = error_set(error, ERROR_NOT_FOUND,
                           "no version is there: '%s/1/%s' is where its file is looked for", name,
                           config->filename);
        goto out;
    }
    (void)snprintf(relative, sizeof(relative), "%s/%" PRIu32 "/%s", name, version,
                   config->filename);
    path = path_beneath(root, relative);
    if (path == NULL) {
        result =
            error_set(error, ERROR_NOT_FOUND,
                      "'%s' is not there, or is a link that leads out of the repository", relative);
        goto out;
    }
    result = model_load(path, version, config, ret_model, error);
out:
    model_config_fini(config);
    free(path);
    return result;
}

int repository_load(const char *root, const char *name, struct repository_model **ret_model,
                    struct error *error)
{
    struct model_config config;
    char *real_root, *folder;
    int result;
    if (!model_name_valid(name, strlen(name))) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "a model's name is 1 to 127 letters, digits, '.', '_' and '-', the first "
                         "a letter, a digit or '_'");
    }
    real_root = realpath(root, NULL);
    if (real_root == NULL) {
        return error_set_errno(error, errno, "open model repository '%s'", root);
    }
    folder = path_beneath(real_root, name);
    if (folder == NULL) {
        free(real_root);
        return error_set(error, ERROR_NOT_FOUND,
                         "model '%s' is not in the repository, or is a link that leads out of it",
                         name);
    }
    model_config_init(&config, name);
    result = config_read(real_root, name, &config, error);
    if (result == 0) {
        result = version_load(real_root, name, &config, ret_model, error);
    } else {
        model_config_fini(&config);
    }
    free(folder);
    free(real_root);
    return result < 0 && error != NULL ? error_prefix(error, "model '%s'", name) : result;
}

int repository_load_file(const char *path, struct model_config *config,
                         struct repository_model **ret_model, struct error *error)
{
    char name[MODEL_NAME_MAX + 1];
    memcpy(name, config->name, sizeof(name));
    int result =
        model_load(config->runtime == &identity_runtime ? NULL : path, 1, config, ret_model, error);
    return result < 0 && error != NULL ? error_prefix(error, "model '%s'", name) : result;
}

void repository_model_destroy(struct repository_model *model)
{
    if (model != NULL) {
        model->config.runtime->unload(model->model);
        model_config_fini(&model->config);
        free(model);
    }
}

/* ---- names of files ----------------------------------------------------------------------------
 */

/* The part of the path that is `back` parts before its last, as [start, start + length). */
static const char *part_back(const char *path, unsigned back, size_t *ret_length)
{
    const char *end = path + strlen(path);
    for (;;) {
        while (end > path && end[-1] == '/') {
            end--;
        }
        const char *start = end;
        while (start > path && start[-1] != '/') {
            start--;
        }
        if (back == 0 || start == path) {
            *ret_length = back == 0 ? (size_t)(end - start) : 0;
            return start;
        }
        end = start;
        back--;
    }
}

void repository_name_of_file(const char *path, char ret_name[MODEL_NAME_MAX + 1])
{
    static const char suffix[] = ".onnx";
    size_t length = 0, version_length = 0;
    uint32_t version;
    const char *name = part_back(path, 0, &length);
    size_t suffix_length = sizeof(suffix) - 1;
    if (length > suffix_length &&
        memcmp(name + length - suffix_length, suffix, suffix_length) == 0) {
        length -= suffix_length;
    }
    if (length == 5 && memcmp(name, "model", 5) == 0) {
        const char *folder = part_back(path, 1, &version_length);
        if (model_version_parse(folder, version_length, &version)) {
            name = part_back(path, 2, &length);
        }
    }
    if (!model_name_valid(name, length)) {
        name = "model";
        length = 5;
    }
    memcpy(ret_name, name, length);
    ret_name[length] = '\0';
}
