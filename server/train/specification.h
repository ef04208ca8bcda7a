/* specification.h: what a training job is, read strictly from JSON by tables.
 * Owner:   the structure owns its texts and lists; specification_fini frees them.
 * Hash:    of all that decides the weights (model, data, batches, optimizer, seed): a checkpoint of
 *          another hash is not this job's. More steps or another export keep the hash. */
#ifndef TIDEPOOL_TRAIN_SPECIFICATION_H
#define TIDEPOOL_TRAIN_SPECIFICATION_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "models/native/mlp.h"
#include "models/native/optimizer.h"
#include "server/base/error.h"
#include "server/train/trainer.h"

#define DATA_PATHS_MAX 1024
#define MICRO_BATCHES_MAX 65536u

struct data_specification {
    char **paths; /* .npy or .csv, one after the other */
    size_t path_count;
    char *labels;       /* .npy of whole numbers; NULL: a column of the .csv */
    char *label_column; /* name or number from 0; NULL with `labels` */
    double held_out;    /* share of the rows that is never trained on */
    double scale;       /* inputs are multiplied by it */
    int64_t seed;       /* of the held-out choice and of the order */
};

struct checkpoint_specification {
    int64_t every_steps; /* 0: not by steps */
    double every_s;      /* 0: not by time */
    int64_t keep;
};

struct export_specification {
    char *repository, *name; /* NULL: no export */
    int64_t version;         /* 0: the next free one */
    bool softmax;
    json_t *config; /* NULL: none is written */
};

struct specification {
    struct train_request request;
    struct mlp model;
    struct optimizer optimizer;
    struct data_specification data;
    struct checkpoint_specification checkpoint;
    struct export_specification export;
    uint32_t batch, micro_batch;
    uint64_t steps; /* 0: `epochs` decides once the rows are known */
    double epochs;
    uint64_t seed;
    bool strict;
    uint64_t hash;
};

int specification_init(struct specification *specification, const json_t *json,
                       struct error *error);
void specification_fini(struct specification *specification);
/* All tables as Markdown, for docs/training.md. */
void specification_print(FILE *out);

#endif
