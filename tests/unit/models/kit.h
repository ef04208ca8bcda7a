/* kit.h: what the tests of models share: the library, the made models, a loaded instance. */
#ifndef TIDEPOOL_TESTS_MODELS_KIT_H
#define TIDEPOOL_TESTS_MODELS_KIT_H

#include "models/runtime.h"

/* Group setup: points the runtime at the test environment's library. Fails where there is none. */
int kit_library_set(void **state);
/* "<test models>/<name>/1/model.onnx"; valid until the next call. */
const char *kit_path(const char *name);

struct kit {
    struct model *model;
    struct instance *instance;
    const struct model_signature *signature;
};

/* Loads, with one instance of so many threads on the cores that this test may use. Fails the test
 * when that does not work. */
void kit_open(struct kit *kit, const char *name, uint32_t batch_max, unsigned threads);
void kit_close(struct kit *kit);

struct tensor kit_floats(const float *values, int64_t rows, int64_t width);

#endif
