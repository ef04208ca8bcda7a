/* checkpoint.h: a job's state on disk.
 * File:    <directory>/checkpoint-<step>: a head, the state's floats, a CRC-64 of all before it.
 *          Written beside its place, synced, renamed, directory synced: it is whole or not there.
 * Reading: newest first; a damaged one is named in a warning and the one before it is tried.
 * Thread:  one at a time per directory. */
#ifndef TIDEPOOL_TRAIN_CHECKPOINT_H
#define TIDEPOOL_TRAIN_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

struct checkpoint_head {
    char magic[8];
    uint32_t version;
    uint32_t head_bytes;
    uint64_t specification_hash;
    uint64_t data_hash;
    uint64_t step;
    uint64_t position; /* samples of the training order that are used up */
    uint64_t floats;   /* of the state: parameters and the optimizer's slots */
    uint32_t slots;
    uint32_t tiling_version;
    double loss_first, loss_last;
    char blas_version[64];
    char blas_core[32];
    uint64_t head_checksum; /* of all before it */
};

/* `magic`, `version`, `head_bytes` and `head_checksum` are filled in. Afterwards only it
 * and the `keep` - 1 before it stay; ret_path has PATH_MAX bytes. An error leaves the older files
 * untouched. */
int checkpoint_write(const char *directory, const struct checkpoint_head *head, const float *state,
                     unsigned keep, char *ret_path, struct error *error);

/* Loads the newest good one that has `floats` floats. Returns 1, or 0 when there is none, or an
 * error (FAILED_PRECONDITION: of another specification). `warn` may be NULL. */
int checkpoint_load(const char *directory, uint64_t specification_hash, uint64_t floats,
                    struct checkpoint_head *ret_head, float *ret_state, char *ret_path,
                    void (*warn)(void *context, const char *text), void *context,
                    struct error *error);

#endif
