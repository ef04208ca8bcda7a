#include "server/train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/checksum.h"
#include "server/base/folder.h"

#define MAGIC "TIDEPOOL"
#define VERSION 1u
#define PREFIX "checkpoint-"
#define TEMPORARY "checkpoint.tmp" /* shorter than any other name there */
#define CHUNK_BYTES ((size_t)1 << 20)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold little-endian numbers");
_Static_assert(sizeof(struct checkpoint_head) == 184, "the head has no padding");

/* ---- the list of files ---- */

struct steps {
    uint64_t *steps; /* newest first */
    size_t count;
};

static bool step_parse(const char *name, uint64_t *ret_step)
{
    char *end;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0) {
        return false;
    }
    *ret_step = strtoull(name + strlen(PREFIX), &end, 10);
    return end > name + strlen(PREFIX) && *end == '\0';
}

static int newest_first(const void *a, const void *b)
{
    uint64_t step_a = *(const uint64_t *)a, step_b = *(const uint64_t *)b;
    return (step_a < step_b) - (step_a > step_b);
}

static int steps_list(const char *directory, struct steps *ret_steps, struct error *error)
{
    struct steps list = {0};
    struct dirent *entry;
    DIR *stream = opendir(directory);
    *ret_steps = list;
    if (stream == NULL) {
        return errno == ENOENT ? 0 : error_set_errno(error, errno, "open '%s'", directory);
    }
    while ((entry = readdir(stream)) != NULL) {
        uint64_t step;
        uint64_t *grown;
        if (!step_parse(entry->d_name, &step)) {
            continue;
        }
        grown = reallocarray(list.steps, list.count + 1, sizeof(*grown));
        if (grown == NULL) {
            free(list.steps);
            (void)closedir(stream);
            return error_set(error, ERROR_RESOURCE_EXHAUSTED, "'%s': no memory", directory);
        }
        list.steps = grown;
        list.steps[list.count++] = step;
    }
    (void)closedir(stream);
    if (list.count > 1) {
        qsort(list.steps, list.count, sizeof(*list.steps), newest_first);
    }
    *ret_steps = list;
    return 0;
}

static int path_make(char *path, const char *directory, uint64_t step, struct error *error)
{
    if (snprintf(path, PATH_MAX, "%s/" PREFIX "%012llu", directory, (unsigned long long)step) >=
        PATH_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "'%.100s…': path is too long", directory);
    }
    return 0;
}

/* ---- writing ---- */

struct stream {
    int fd;
    uint64_t checksum;
};

static int stream_write(struct stream *stream, const void *data, size_t length)
{
    const char *at = data;
    while (length > 0) {
        size_t chunk = length < CHUNK_BYTES ? length : CHUNK_BYTES;
        ssize_t written = write(stream->fd, at, chunk);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return -1;
        }
        stream->checksum = checksum_add(stream->checksum, at, (size_t)written);
        at += written;
        length -= (size_t)written;
    }
    return 0;
}

static int file_write(const char *path, const struct checkpoint_head *head, const float *state,
                      struct error *error)
{
    struct stream stream = {.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
    uint64_t checksum;
    int result = 0;
    if (stream.fd < 0) {
        return error_set_errno(error, errno, "create '%s'", path);
    }
    if (stream_write(&stream, head, sizeof(*head)) < 0 ||
        stream_write(&stream, state, head->floats * sizeof(float)) < 0) {
        result = error_set_errno(error, errno, "write '%s'", path);
    } else {
        checksum = stream.checksum;
        if (stream_write(&stream, &checksum, sizeof(checksum)) < 0 || fsync(stream.fd) < 0) {
            result = error_set_errno(error, errno, "write '%s'", path);
        }
    }
    if (close(stream.fd) < 0 && result == 0) {
        result = error_set_errno(error, errno, "close '%s'", path);
    }
    return result;
}

/* Older files than that of `step` go, beyond `keep` with it, and newer ones: those could not be
 * read when the job went on. One that cannot be removed is tried again next time. */
static void others_remove(const char *directory, uint64_t step, unsigned keep)
{
    struct steps list;
    char path[PATH_MAX];
    unsigned kept = 0;
    if (steps_list(directory, &list, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < list.count; i++) {
        bool stays = list.steps[i] <= step && kept++ < keep;
        if (!stays && path_make(path, directory, list.steps[i], NULL) == 0) {
            (void)unlink(path);
        }
    }
    free(list.steps);
}

int checkpoint_write(const char *directory, const struct checkpoint_head *head, const float *state,
                     unsigned keep, char *ret_path, struct error *error)
{
    struct checkpoint_head full = *head;
    char temporary[PATH_MAX], path[PATH_MAX];
    int result = path_make(path, directory, head->step, error);
    if (result < 0) {
        return result;
    }
    /* One name for all steps: what a crash leaves is overwritten. */
    (void)snprintf(temporary, sizeof(temporary), "%s/" TEMPORARY, directory);
    memcpy(full.magic, MAGIC, sizeof(full.magic));
    full.version = VERSION;
    full.head_bytes = sizeof(full);
    full.head_checksum = checksum_add(0, &full, offsetof(struct checkpoint_head, head_checksum));
    result = folder_make(directory, 0700, error);
    if (result == 0) {
        result = file_write(temporary, &full, state, error);
    }
    if (result == 0 && rename(temporary, path) < 0) {
        result = error_set_errno(error, errno, "put '%s' in its place", path);
    }
    if (result == 0) {
        result = folder_sync(directory, error);
    }
    if (result < 0) {
        (void)unlink(temporary);
        return result;
    }
    others_remove(directory, head->step, keep);
    (void)snprintf(ret_path, PATH_MAX, "%s", path);
    return 0;
}

/* ---- reading ---- */

static int stream_read(struct stream *stream, void *data, size_t length)
{
    char *at = data;
    while (length > 0) {
        ssize_t got = read(stream->fd, at, length < CHUNK_BYTES ? length : CHUNK_BYTES);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return -1;
        }
        stream->checksum = checksum_add(stream->checksum, at, (size_t)got);
        at += got;
        length -= (size_t)got;
    }
    return 0;
}

static int damaged(struct error *error, const char *path, const char *why)
{
    return error_set(error, ERROR_DATA_LOSS, "checkpoint '%s' is damaged: %s", path, why);
}

/* Head and size first, so that nothing is read into a state that it does not fit. */
static int head_read(struct stream *stream, const char *path, uint64_t specification_hash,
                     uint64_t floats, struct checkpoint_head *head, struct error *error)
{
    struct stat status;
    if (stream_read(stream, head, sizeof(*head)) < 0) {
        return damaged(error, path, "it ends inside its head");
    }
    if (memcmp(head->magic, MAGIC, sizeof(head->magic)) != 0 || head->version != VERSION ||
        head->head_bytes != sizeof(*head)) {
        return damaged(error, path, "its head is none that this version writes");
    }
    if (checksum_add(0, head, offsetof(struct checkpoint_head, head_checksum)) !=
        head->head_checksum) {
        return damaged(error, path, "its head's checksum does not match");
    }
    if (fstat(stream->fd, &status) < 0 || head->floats > (UINT64_C(1) << 40) ||
        (uint64_t)status.st_size !=
            sizeof(*head) + head->floats * sizeof(float) + sizeof(uint64_t)) {
        return damaged(error, path, "its size is not what its head says");
    }
    if (head->specification_hash != specification_hash || head->floats != floats) {
        return error_set(error, ERROR_FAILED_PRECONDITION,
                         "checkpoint '%s' belongs to another specification of model, data, batch, "
                         "optimizer or seed; give the job another id, or remove the file",
                         path);
    }
    head->blas_version[sizeof(head->blas_version) - 1] = '\0';
    head->blas_core[sizeof(head->blas_core) - 1] = '\0';
    return 0;
}

static int file_read(const char *path, uint64_t specification_hash, uint64_t floats,
                     struct checkpoint_head *head, float *state, struct error *error)
{
    struct stream stream = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    uint64_t expected, checksum;
    int result;
    if (stream.fd < 0) {
        return error_set_errno(error, errno, "open '%s'", path);
    }
    result = head_read(&stream, path, specification_hash, floats, head, error);
    if (result == 0) {
        if (stream_read(&stream, state, floats * sizeof(float)) < 0) {
            result = damaged(error, path, "it ends inside its state");
        } else {
            expected = stream.checksum;
            if (stream_read(&stream, &checksum, sizeof(checksum)) < 0 || checksum != expected) {
                result = damaged(error, path, "its checksum does not match");
            }
        }
    }
    (void)close(stream.fd);
    return result;
}

int checkpoint_load(const char *directory, uint64_t specification_hash, uint64_t floats,
                    struct checkpoint_head *ret_head, float *ret_state, char *ret_path,
                    void (*warn)(void *context, const char *text), void *context,
                    struct error *error)
{
    struct steps list;
    int result = steps_list(directory, &list, error);
    for (size_t i = 0; result == 0 && i < list.count; i++) {
        struct error why = {0};
        char text[sizeof(why.text) + 64];
        result = path_make(ret_path, directory, list.steps[i], error);
        if (result < 0) {
            break;
        }
        result = file_read(ret_path, specification_hash, floats, ret_head, ret_state, &why);
        if (result == -(int)ERROR_FAILED_PRECONDITION) {
            result = error_set(error, why.code, "%s", why.text);
        } else if (result < 0) {
            (void)snprintf(text, sizeof(text), "%s; the one before it is used", why.text);
            if (warn != NULL) {
                warn(context, text);
            }
            result = 0;
        } else {
            result = 1;
        }
    }
    free(list.steps);
    return result;
}
