#include "server/train/export.h"
#include "server/base/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/native/mlp_onnx.h"

/* One more than the highest version that is there. */
static long long version_next(const char *directory)
{
    long long highest = 0;
    struct dirent *entry;
    DIR *stream = opendir(directory);
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        char *end;
        long long version = strtoll(entry->d_name, &end, 10);
        if (isdigit((unsigned char)entry->d_name[0]) && *end == '\0' && version > highest &&
            version < LLONG_MAX) {
            highest = version;
        }
    }
    if (stream != NULL) {
        (void)closedir(stream);
    }
    return highest + 1;
}

static int config_write(const json_t *config, const char *model, struct error *error)
{
    char path[PATH_MAX + 32], temporary[PATH_MAX + 40];
    (void)snprintf(path, sizeof(path), "%s/config.json", model);
    (void)snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    if (json_dump_file(config, temporary, JSON_INDENT(2)) < 0) {
        return error_set_errno(error, errno, "write '%s'", temporary);
    }
    if (rename(temporary, path) < 0) {
        int number = errno;
        (void)unlink(temporary);
        return error_set_errno(error, number, "put '%s' in its place", path);
    }
    return 0;
}

static int model_write(const struct specification *specification, const float *parameters,
                       const char *directory, char *ret_path, size_t size, struct error *error)
{
    struct mlp_onnx_options options = {.input_scale = (float)specification->data.scale,
                                       .softmax = specification->export.softmax};
    int result = folder_make(directory, 0755, error);
    if (result == 0 && snprintf(ret_path, size, "%s/model.onnx", directory) >= (int)size) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "'%.200s…': path is too long", directory);
    }
    if (result == 0) {
        result = mlp_onnx_write(&specification->model, parameters, &options, ret_path, error);
    }
    return result == 0 ? folder_sync(directory, error) : result;
}

int export_write(const struct specification *specification, const float *parameters, char *ret_path,
                 size_t size, struct error *error)
{
    const struct export_specification *export = &specification->export;
    char model[PATH_MAX], directory[PATH_MAX + 32];
    long long version = export->version;
    int result;
    if (snprintf(model, sizeof(model), "%s/%s", export->repository, export->name) >=
        (int)sizeof(model)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "job.export.repository: path is too long");
    }
    result = folder_make(export->repository, 0755, error);
    if (result == 0) {
        result = folder_make(model, 0755, error);
    }
    if (result == 0 && export->config != NULL) {
        result = config_write(export->config, model, error);
    }
    if (result < 0) {
        return result;
    }
    version = version > 0 ? version : version_next(model);
    (void)snprintf(directory, sizeof(directory), "%s/%lld", model, version);
    result = model_write(specification, parameters, directory, ret_path, size, error);
    return result == 0 ? folder_sync(model, error) : result;
}
