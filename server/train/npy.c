#include "server/train/npy.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/train/file.h"

#define HEADER_BYTES_MAX 65536u
#define DIMENSIONS_MAX 8

static const struct {
    const char *names[2];
    uint32_t bytes;
} npy_types[] = {
    [NPY_F4] = {{"<f4", "=f4"}, 4}, [NPY_F8] = {{"<f8", "=f8"}, 8}, [NPY_U1] = {{"|u1", "<u1"}, 1},
    [NPY_I4] = {{"<i4", "=i4"}, 4}, [NPY_I8] = {{"<i8", "=i8"}, 8},
};

static int read_exact(int fd, void *data, size_t length, uint64_t offset)
{
    char *at = data;
    while (length > 0) {
        ssize_t got = pread(fd, at, length, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            errno = got < 0 ? errno : 0;
            return -1;
        }
        at += got;
        offset += (uint64_t)got;
        length -= (size_t)got;
    }
    return 0;
}

/* ---- the header: a Python dictionary in a fixed form ---- */

struct header {
    char type[16];
    bool fortran_order;
    uint64_t dims[DIMENSIONS_MAX];
    unsigned rank;
    unsigned seen; /* bit per key */
};

static void space_skip(const char **at)
{
    while (isspace((unsigned char)**at)) {
        (*at)++;
    }
}

static bool character_take(const char **at, char character)
{
    space_skip(at);
    if (**at != character) {
        return false;
    }
    (*at)++;
    return true;
}

static bool text_take(const char **at, char *text, size_t size)
{
    size_t length = 0;
    char quote;
    space_skip(at);
    quote = **at;
    if (quote != '\'' && quote != '"') {
        return false;
    }
    for ((*at)++; **at != quote; (*at)++) {
        if (**at == '\0' || length + 1 == size) {
            return false;
        }
        text[length++] = **at;
    }
    (*at)++;
    text[length] = '\0';
    return true;
}

static bool shape_take(const char **at, struct header *header)
{
    if (!character_take(at, '(')) {
        return false;
    }
    while (!character_take(at, ')')) {
        char *end;
        space_skip(at);
        if (!isdigit((unsigned char)**at) || header->rank == DIMENSIONS_MAX) {
            return false;
        }
        errno = 0;
        header->dims[header->rank++] = strtoull(*at, &end, 10);
        *at = end;
        if (errno != 0) {
            return false;
        }
        if (!character_take(at, ',')) {
            return character_take(at, ')');
        }
    }
    return true;
}

static bool value_take(const char **at, const char *key, struct header *header)
{
    if (strcmp(key, "descr") == 0) {
        header->seen |= 1;
        return text_take(at, header->type, sizeof(header->type));
    }
    if (strcmp(key, "shape") == 0) {
        header->seen |= 2;
        header->rank = 0;
        return shape_take(at, header);
    }
    if (strcmp(key, "fortran_order") == 0) {
        header->seen |= 4;
        space_skip(at);
        header->fortran_order = strncmp(*at, "True", 4) == 0;
        if (!header->fortran_order && strncmp(*at, "False", 5) != 0) {
            return false;
        }
        *at += header->fortran_order ? 4 : 5;
        return true;
    }
    return false;
}

static bool header_parse(const char *text, struct header *header)
{
    if (!character_take(&text, '{')) {
        return false;
    }
    while (!character_take(&text, '}')) {
        char key[32];
        if (!text_take(&text, key, sizeof(key)) || !character_take(&text, ':') ||
            !value_take(&text, key, header)) {
            return false;
        }
        (void)character_take(&text, ',');
    }
    return header->seen == 7;
}

/* Fills type and shape; false: does not fit this reader, `error` says why. */
static int header_accept(const char *path, const struct header *header, struct npy *npy,
                         struct error *error)
{
    bool known = false;
    npy->rows = header->rank > 0 ? header->dims[0] : 1;
    npy->columns = 1;
    for (size_t i = 0; !known && i < sizeof(npy_types) / sizeof(npy_types[0]); i++) {
        known = strcmp(header->type, npy_types[i].names[0]) == 0 ||
                strcmp(header->type, npy_types[i].names[1]) == 0;
        npy->type = (enum npy_type)i;
        npy->item_bytes = npy_types[i].bytes;
    }
    if (!known) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': items of type '%s' are not read; save them as float32, float64, "
                         "uint8, int32 or int64, little-endian",
                         path, header->type);
    }
    if (header->fortran_order && header->rank > 1) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': is in Fortran order; save numpy.ascontiguousarray(…)", path);
    }
    for (unsigned i = 1; i < header->rank; i++) {
        if (__builtin_mul_overflow(npy->columns, header->dims[i], &npy->columns)) {
            return error_set(error, ERROR_INVALID_ARGUMENT, "'%s': its shape is too large", path);
        }
    }
    return 0;
}

static int size_check(const struct npy *npy, struct error *error)
{
    struct stat status;
    uint64_t bytes;
    if (fstat(npy->fd, &status) < 0) {
        return error_set_errno(error, errno, "read the size of '%s'", npy->path);
    }
    if (__builtin_mul_overflow(npy->rows, npy->columns, &bytes) ||
        __builtin_mul_overflow(bytes, npy->item_bytes, &bytes) ||
        __builtin_add_overflow(bytes, npy->data_offset, &bytes)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "'%s': its shape is too large", npy->path);
    }
    if ((uint64_t)status.st_size != bytes) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "'%s': has %lld bytes, its header promises %llu; it is cut short or "
                         "damaged",
                         npy->path, (long long)status.st_size, (unsigned long long)bytes);
    }
    return 0;
}

/* Where the header's text begins and how long it is; 0: not such a file. */
static uint32_t prefix_parse(const unsigned char *prefix, uint32_t *ret_begin)
{
    if (memcmp(prefix, "\x93NUMPY", 6) != 0 || prefix[6] < 1 || prefix[6] > 3) {
        return 0;
    }
    *ret_begin = prefix[6] == 1 ? 10 : 12;
    return prefix[6] == 1 ? (uint32_t)prefix[8] | (uint32_t)prefix[9] << 8
                          : (uint32_t)prefix[8] | (uint32_t)prefix[9] << 8 |
                                (uint32_t)prefix[10] << 16 | (uint32_t)prefix[11] << 24;
}

static int header_read(struct npy *npy, struct error *error)
{
    unsigned char prefix[12];
    uint32_t begin = 0, length = 0;
    struct header header = {0};
    char *text = NULL;
    int result;
    if (read_exact(npy->fd, prefix, sizeof(prefix), 0) == 0) {
        length = prefix_parse(prefix, &begin);
    }
    if (length == 0 || length > HEADER_BYTES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "'%s': is not a .npy file", npy->path);
    }
    text = calloc(1, (size_t)length + 1);
    if (text == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "'%s': no memory", npy->path);
    }
    if (read_exact(npy->fd, text, length, begin) < 0 || !header_parse(text, &header)) {
        result =
            error_set(error, ERROR_INVALID_ARGUMENT, "'%s': its .npy header is damaged", npy->path);
    } else {
        npy->data_offset = (uint64_t)begin + length;
        result = header_accept(npy->path, &header, npy, error);
    }
    free(text);
    return result;
}

int npy_open(const char *path, struct npy *ret_npy, struct error *error)
{
    struct npy npy = {.fd = file_open(path, error), .path = strdup(path)};
    int result = npy.fd < 0 ? npy.fd : 0;
    if (result == 0 && npy.path == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "'%s': no memory", path);
    }
    if (result == 0) {
        result = header_read(&npy, error);
    }
    if (result == 0) {
        result = size_check(&npy, error);
    }
    if (result < 0) {
        npy_close(&npy);
        return result;
    }
    *ret_npy = npy;
    return 0;
}

void npy_close(struct npy *npy)
{
    if (npy->fd >= 0) {
        (void)close(npy->fd);
    }
    free(npy->path);
    *npy = (struct npy){.fd = -1};
}

int npy_read(const struct npy *npy, uint64_t row, uint64_t count, void *items, struct error *error)
{
    uint64_t row_bytes = npy->columns * npy->item_bytes;
    if (read_exact(npy->fd, items, count * row_bytes, npy->data_offset + row * row_bytes) == 0) {
        return 0;
    }
    if (errno == 0) {
        return error_set(error, ERROR_DATA_LOSS, "'%s': ends before row %llu; it was cut short",
                         npy->path, (unsigned long long)(row + count - 1));
    }
    return error_set_errno(error, errno, "read row %llu of '%s'", (unsigned long long)row,
                           npy->path);
}

static double item_value(enum npy_type type, const void *items, uint64_t index)
{
    const char *at = (const char *)items + index * npy_types[type].bytes;
    union {
        float f4;
        double f8;
        int32_t i4;
        int64_t i8;
    } value = {.i8 = 0};
    memcpy(&value, at, npy_types[type].bytes);
    switch (type) {
    case NPY_F4:
        return (double)value.f4;
    case NPY_F8:
        return value.f8;
    case NPY_U1:
        return *(const unsigned char *)at;
    case NPY_I4:
        return value.i4;
    case NPY_I8:
        return (double)value.i8;
    }
    return NAN;
}

void npy_to_float(enum npy_type type, const void *items, uint64_t count, float *ret_values)
{
    if (type == NPY_F4) {
        memcpy(ret_values, items, count * sizeof(float));
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        ret_values[i] = (float)item_value(type, items, i);
    }
}

int64_t npy_to_label(enum npy_type type, const void *items, uint64_t index)
{
    double value = item_value(type, items, index);
    return value >= 0 && value < 9007199254740992.0 && value == floor(value) ? (int64_t)value : -1;
}
