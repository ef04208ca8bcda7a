/* blas.h: OpenBLAS, opened at run time, one thread per product.
 * Why:     its kernels give other bits with another core type, thread count or tile shape, and old
 *          versions pick a slow kernel on new chips. So the core type is chosen here from CPUID,
 *          the thread count is 1, and both are recorded with every checkpoint.
 * Thread:  blas_choose before other threads start (it sets environment variables); blas_open from
 *          any thread, as often as wanted; blas_sgemm and the texts after a blas_open that gave 0.
 */
#ifndef TIDEPOOL_MODELS_NATIVE_BLAS_H
#define TIDEPOOL_MODELS_NATIVE_BLAS_H

#include <stdbool.h>

#include "server/base/error.h"

/* Sets OPENBLAS_CORETYPE from CPUID and OPENBLAS_NUM_THREADS=1; what the environment already has
 * for the core type stays. */
void blas_choose(void);
int blas_open(struct error *error);

const char *blas_version(void); /* "OpenBLAS 0.3.21"; "" before blas_open */
const char *blas_core(void);    /* "Zen", "Haswell", "SkylakeX" … */

/* c = a · b + beta · c, row major; a is m × k (or k × m when transposed), b k × n. */
void blas_sgemm(bool transpose_a, bool transpose_b, int m, int n, int k, const float *a, int lda,
                const float *b, int ldb, float beta, float *c, int ldc);

#endif
