#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit.h"

int kit_library_set(void **state)
{
    const char *venv = getenv("TEST_VENV");
    char pattern[4096];
    glob_t found;
    (void)state;
    (void)snprintf(pattern, sizeof(pattern),
                   "%s/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*",
                   venv == NULL ? "build/venv" : venv);
    if (glob(pattern, 0, NULL, &found) != 0) {
        (void)fprintf(stderr, "no ONNX Runtime at %s: run `make deps`\n", pattern);
        return -1;
    }
    onnx_set_library(found.gl_pathv[0]);
    globfree(&found);
    return 0;
}

const char *kit_path(const char *name)
{
    static char path[4096];
    const char *models = getenv("TEST_MODELS");
    (void)snprintf(path, sizeof(path), "%s/%s/1/model.onnx",
                   models == NULL ? "build/test-models" : models, name);
    return path;
}

void kit_open(struct kit *kit, const char *name, uint32_t batch_max, unsigned threads)
{
    const struct model_source source = {
        .name = name, .path = kit_path(name), .batch_max = batch_max};
    struct instance_place place = {.device_kind = "cpu", .thread_count = threads};
    struct error error = {0};
    *kit = (struct kit){0};
    assert_int_equal(sched_getaffinity(0, sizeof(place.cores), &place.cores), 0);
    if (onnx_runtime.load(&source, &kit->model, &error) < 0 ||
        onnx_runtime.instance_create(kit->model, &place, &kit->instance, &error) < 0) {
        fail_msg("%s: %s", name, error.text);
    }
    kit->signature = onnx_runtime.signature(kit->model);
}

void kit_close(struct kit *kit)
{
    onnx_runtime.instance_destroy(kit->instance);
    onnx_runtime.unload(kit->model);
    *kit = (struct kit){0};
}

struct tensor kit_floats(const float *values, int64_t rows, int64_t width)
{
    return (struct tensor){.datatype = DATATYPE_FP32,
                           .rank = 2,
                           .dims = {rows, width},
                           .data = values,
                           .bytes = (size_t)(rows * width) * sizeof(float)};
}
