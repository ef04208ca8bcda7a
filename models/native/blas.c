#include "models/native/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW_MAJOR 101
#define NO_TRANSPOSE 111
#define TRANSPOSE 112

typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k,
                            float alpha, const float *a, int lda, const float *b, int ldb,
                            float beta, float *c, int ldc);

static struct {
    pthread_mutex_t lock;
    void *library;
    sgemm_function *sgemm;
    char version[64];
    char core[32];
} blas = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The best kernel that OpenBLAS has had since 0.3.0 for what this chip can do. */
static const char *core_from_cpuid(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return "SkylakeX";
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return __builtin_cpu_is("amd") ? "Zen" : "Haswell";
    }
#endif
    return NULL; /* OpenBLAS's own choice */
}

void blas_choose(void)
{
    const char *core = core_from_cpuid();
    if (core != NULL) {
        (void)setenv("OPENBLAS_CORETYPE", core, 0);
    }
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

/* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH …": the first two words. */
static void version_read(void *library)
{
    char *(*config)(void) = (char *(*)(void))dlsym(library, "openblas_get_config");
    const char *text = config != NULL ? config() : "OpenBLAS unknown";
    const char *space = strchr(text, ' ');
    size_t length =
        space != NULL ? (size_t)(space - text) + 1 + strcspn(space + 1, " ") : strlen(text);
    (void)snprintf(blas.version, sizeof(blas.version), "%.*s", (int)length, text);
}

static int library_open(struct error *error)
{
    void (*threads_set)(int);
    char *(*core_name)(void);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "training needs OpenBLAS, and libopenblas.so.0 cannot be opened (%s); "
                         "install it: `apt-get install libopenblas0-pthread`, or set "
                         "LD_LIBRARY_PATH to where it is",
                         dlerror());
    }
    blas.sgemm = (sgemm_function *)dlsym(library, "cblas_sgemm");
    threads_set = (void (*)(int))dlsym(library, "openblas_set_num_threads");
    core_name = (char *(*)(void))dlsym(library, "openblas_get_corename");
    if (blas.sgemm == NULL || threads_set == NULL || core_name == NULL) {
        (void)dlclose(library);
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "libopenblas.so.0 lacks cblas_sgemm, openblas_set_num_threads or "
                         "openblas_get_corename; install Debian's libopenblas0-pthread");
    }
    threads_set(1);
    version_read(library);
    (void)snprintf(blas.core, sizeof(blas.core), "%s", core_name());
    blas.library = library;
    return 0;
}

int blas_open(struct error *error)
{
    int result = 0;
    (void)pthread_mutex_lock(&blas.lock);
    if (blas.library == NULL) {
        result = library_open(error);
    }
    (void)pthread_mutex_unlock(&blas.lock);
    return result;
}

const char *blas_version(void)
{
    return blas.version;
}

const char *blas_core(void)
{
    return blas.core;
}

void blas_sgemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, int lda,
                const float *b, int ldb, float beta, float *c, int ldc)
{
    blas.sgemm(ROW_MAJOR, transpose_a ? TRANSPOSE : NO_TRANSPOSE,
               transpose_b ? TRANSPOSE : NO_TRANSPOSE, m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
}
