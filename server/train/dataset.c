#include "server/train/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/native/random.h"
#include "server/train/csv.h"
#include "server/train/file.h"
#include "server/train/npy.h"
#include "server/train/order.h"

#define HASHED_ROWS 256u
#define LABEL_CHUNK 4096u
#define HELD_OUT_EPOCH UINT64_MAX /* the cut's permutation; training counts its epochs from 0 */

/* Rows of one file: a table in memory (.csv) or a file read row by row (.npy). */
struct part {
    struct npy npy;
    struct csv_table table;
    uint64_t first; /* row number in the whole */
    uint64_t rows;
};

struct dataset {
    uint32_t inputs, classes;
    float scale;
    uint64_t seed, rows, train_rows, hash;
    size_t part_count;
    struct part *parts;
    uint32_t *labels; /* of all rows */
};

static bool is_npy(const char *path)
{
    return strcmp(path + strlen(path) - 4, ".npy") == 0;
}

static int features_open(const char *path, uint32_t inputs, struct npy *npy, struct error *error)
{
    int result = npy_open(path, npy, error);
    if (result == 0 && npy->columns != inputs) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "'%s': has %llu columns, the model's first layer takes %u", path,
                           (unsigned long long)npy->columns, inputs);
        npy_close(npy);
    }
    return result;
}

static int labels_open(const char *path, struct npy *npy, struct error *error)
{
    int result = npy_open(path, npy, error);
    if (result == 0 && npy->columns != 1) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "'%s': labels are one number per row, not %llu", path,
                           (unsigned long long)npy->columns);
        npy_close(npy);
    }
    return result;
}

static int count_check(uint64_t rows, const struct npy *labels, struct error *error)
{
    if (labels->rows != rows) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': has %llu labels for %llu rows of data", labels->path,
                         (unsigned long long)labels->rows, (unsigned long long)rows);
    }
    return 0;
}

int dataset_check(const struct data_specification *data, uint32_t inputs, struct error *error)
{
    struct npy npy = {.fd = -1};
    uint64_t rows = 0;
    int result = 0;
    for (size_t i = 0; result == 0 && i < data->path_count; i++) {
        if (!is_npy(data->paths[i])) { /* .csv: the reader checks line by line while it loads */
            int fd = file_open(data->paths[i], error);
            if (fd < 0) {
                return fd;
            }
            (void)close(fd);
            continue;
        }
        result = features_open(data->paths[i], inputs, &npy, error);
        rows += result == 0 ? npy.rows : 0;
        npy_close(&npy);
    }
    if (result == 0 && data->labels != NULL) {
        result = labels_open(data->labels, &npy, error);
        if (result == 0) {
            result = count_check(rows, &npy, error);
        }
        npy_close(&npy);
    }
    return result;
}

/* ---- opening ---- */

static int part_open(struct dataset *dataset, struct part *part, const char *path,
                     const char *label_column, struct error *error)
{
    int result;
    part->npy.fd = -1;
    part->first = dataset->rows;
    if (is_npy(path)) {
        result = features_open(path, dataset->inputs, &part->npy, error);
        part->rows = part->npy.rows;
    } else {
        result =
            csv_read(path, label_column, dataset->inputs, dataset->classes, &part->table, error);
        part->rows = part->table.rows;
    }
    dataset->rows += result == 0 ? part->rows : 0;
    return result;
}

static int labels_chunk(struct dataset *dataset, const struct npy *npy, uint64_t first,
                        uint64_t count, const void *items, struct error *error)
{
    for (uint64_t i = 0; i < count; i++) {
        int64_t label = npy_to_label(npy->type, items, i);
        if (label < 0 || label >= dataset->classes) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "'%s': the label of row %llu is not a whole number from 0 to %u",
                             npy->path, (unsigned long long)(first + i), dataset->classes - 1);
        }
        dataset->labels[first + i] = (uint32_t)label;
    }
    return 0;
}

static int labels_read(struct dataset *dataset, const char *path, struct error *error)
{
    unsigned char items[LABEL_CHUNK * 8];
    struct npy npy = {.fd = -1};
    int result = labels_open(path, &npy, error);
    if (result == 0) {
        result = count_check(dataset->rows, &npy, error);
    }
    for (uint64_t at = 0; result == 0 && at < npy.rows; at += LABEL_CHUNK) {
        uint64_t count = npy.rows - at < LABEL_CHUNK ? npy.rows - at : LABEL_CHUNK;
        result = npy_read(&npy, at, count, items, error);
        if (result == 0) {
            result = labels_chunk(dataset, &npy, at, count, items, error);
        }
    }
    npy_close(&npy);
    return result;
}

static int labels_collect(struct dataset *dataset, const char *path, struct error *error)
{
    dataset->labels = reallocarray(NULL, dataset->rows, sizeof(*dataset->labels));
    if (dataset->labels == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for %llu labels",
                         (unsigned long long)dataset->rows);
    }
    if (path != NULL) {
        return labels_read(dataset, path, error);
    }
    for (size_t i = 0; i < dataset->part_count; i++) {
        struct part *part = &dataset->parts[i];
        if (part->rows > 0) {
            memcpy(dataset->labels + part->first, part->table.labels,
                   part->rows * sizeof(*dataset->labels));
        }
    }
    return 0;
}

static int row_read(const struct dataset *dataset, uint64_t row, float *ret_inputs,
                    struct error *error)
{
    size_t index = 0;
    const struct part *part;
    int result = 0;
    while (row >= dataset->parts[index].first + dataset->parts[index].rows) {
        index++;
    }
    part = &dataset->parts[index];
    if (part->npy.fd < 0) {
        memcpy(ret_inputs, part->table.inputs + (row - part->first) * dataset->inputs,
               dataset->inputs * sizeof(float));
    } else if (part->npy.type == NPY_F4) {
        result = npy_read(&part->npy, row - part->first, 1, ret_inputs, error);
    } else {
        void *items = malloc((size_t)dataset->inputs * part->npy.item_bytes);
        result = items != NULL ? npy_read(&part->npy, row - part->first, 1, items, error)
                               : error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a row");
        if (result == 0) {
            npy_to_float(part->npy.type, items, dataset->inputs, ret_inputs);
        }
        free(items);
    }
    for (uint32_t i = 0; i < dataset->inputs && dataset->scale != 1.0f; i++) {
        ret_inputs[i] *= dataset->scale;
    }
    return result;
}

static uint64_t words_hash(uint64_t hash, const uint32_t *words, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        hash = random_scramble(hash ^ words[i]);
    }
    return hash;
}

static int hash_compute(struct dataset *dataset, struct error *error)
{
    uint64_t hash = random_at(dataset->rows, dataset->inputs);
    uint64_t stride = dataset->rows / HASHED_ROWS + 1;
    int result = 0;
    float *row = reallocarray(NULL, dataset->inputs, sizeof(*row));
    if (row == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for a row");
    }
    hash = words_hash(hash, dataset->labels, dataset->rows);
    for (uint64_t i = 0; result == 0 && i < dataset->rows; i += stride) {
        result = row_read(dataset, i, row, error);
        hash = result == 0 ? words_hash(hash, (const uint32_t *)row, dataset->inputs) : hash;
    }
    free(row);
    dataset->hash = hash;
    return result;
}

static int parts_open(struct dataset *dataset, const struct data_specification *data,
                      struct error *error)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < data->path_count; i++) {
        dataset->part_count++;
        result = part_open(dataset, &dataset->parts[i], data->paths[i], data->label_column, error);
    }
    if (result < 0) {
        return result;
    }
    dataset->train_rows = dataset->rows - (uint64_t)((double)dataset->rows * data->held_out + 0.5);
    if (dataset->train_rows == 0) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "'%s': %llu rows leave none to train on",
                         data->paths[0], (unsigned long long)dataset->rows);
    }
    return labels_collect(dataset, data->labels, error);
}

int dataset_open(const struct data_specification *data, uint32_t inputs, uint32_t classes,
                 struct dataset **ret_dataset, struct error *error)
{
    struct dataset *dataset = calloc(1, sizeof(*dataset));
    int result;
    if (dataset == NULL ||
        (dataset->parts = calloc(data->path_count, sizeof(struct part))) == NULL) {
        free(dataset);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the data's table");
    }
    dataset->inputs = inputs;
    dataset->classes = classes;
    dataset->scale = (float)data->scale;
    dataset->seed = (uint64_t)data->seed;
    result = parts_open(dataset, data, error);
    if (result == 0) {
        result = hash_compute(dataset, error);
    }
    if (result < 0) {
        dataset_close(dataset);
        return result;
    }
    *ret_dataset = dataset;
    return 0;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset == NULL) {
        return;
    }
    for (size_t i = 0; i < dataset->part_count; i++) {
        npy_close(&dataset->parts[i].npy);
        csv_free(&dataset->parts[i].table);
    }
    free(dataset->parts);
    free(dataset->labels);
    free(dataset);
}

/* ---- reading ---- */

uint64_t dataset_train_rows(const struct dataset *dataset)
{
    return dataset->train_rows;
}

uint64_t dataset_held_out_rows(const struct dataset *dataset)
{
    return dataset->rows - dataset->train_rows;
}

uint64_t dataset_hash(const struct dataset *dataset)
{
    return dataset->hash;
}

/* The `index`-th row of the cut into trained and held-out rows. */
static int cut_read(const struct dataset *dataset, uint64_t index, float *ret_inputs,
                    uint32_t *ret_label, struct error *error)
{
    uint64_t row = order_row(dataset->seed, HELD_OUT_EPOCH, index, dataset->rows);
    *ret_label = dataset->labels[row];
    return row_read(dataset, row, ret_inputs, error);
}

int dataset_train_read(const struct dataset *dataset, uint64_t position, uint32_t count,
                       float *ret_inputs, uint32_t *ret_labels, struct error *error)
{
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        uint64_t epoch = (position + i) / dataset->train_rows;
        uint64_t index = order_row(dataset->seed, epoch, (position + i) % dataset->train_rows,
                                   dataset->train_rows);
        result = cut_read(dataset, index, ret_inputs + (size_t)i * dataset->inputs, ret_labels + i,
                          error);
    }
    return result;
}

int dataset_held_out_read(const struct dataset *dataset, uint64_t first, uint32_t count,
                          float *ret_inputs, uint32_t *ret_labels, struct error *error)
{
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        result = cut_read(dataset, dataset->train_rows + first + i,
                          ret_inputs + (size_t)i * dataset->inputs, ret_labels + i, error);
    }
    return result;
}
