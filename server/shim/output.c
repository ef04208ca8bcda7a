#include "server/shim/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES 65536

/* A new file: never one that somebody has put there. */
static int log_open_new(const struct output *output)
{
    int fd =
        openat(output->directory, "log", O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0 && output->owner != geteuid()) {
        (void)!fchown(fd, output->owner, (gid_t)-1);
    }
    return fd;
}

int output_init(struct output *output, const char *directory, uid_t owner, uint64_t bytes_max,
                struct error *error)
{
    *output =
        (struct output){.pipe = -1, .copy = -1, .log = -1, .owner = owner, .bytes_max = bytes_max};
    output->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (output->directory >= 0) {
        output->log = log_open_new(output);
    }
    if (output->log < 0) {
        int result = error_set_errno(error, errno, "open log in '%s'", directory);
        output_fini(output);
        return result;
    }
    return 0;
}

static void descriptor_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

void output_fini(struct output *output)
{
    descriptor_close(&output->pipe);
    descriptor_close(&output->directory);
    descriptor_close(&output->log);
    descriptor_close(&output->copy);
}

/* The log becomes log.1, whose bytes go. Where that cannot be, the log's own go. */
static void log_rotate(struct output *output)
{
    int fresh = -1;
    if (renameat(output->directory, "log", output->directory, "log.1") == 0) {
        output->dropped += output->size_before;
        output->size_before = output->size;
        fresh = log_open_new(output);
    }
    if (fresh >= 0) {
        descriptor_close(&output->log);
        output->log = fresh;
    } else if (ftruncate(output->log, 0) == 0) {
        output->dropped += output->size;
    }
    output->size = 0;
}

/* What the disk took: all, less or none of it. */
static size_t write_most(int fd, const char *bytes, size_t length, int *ret_reason)
{
    size_t done = 0;
    while (done < length) {
        ssize_t written = write(fd, bytes + done, length - done);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            *ret_reason = errno;
            break;
        }
        done += (size_t)written;
    }
    return done;
}

static void log_say_lost(struct output *output)
{
    char line[160], reason[64];
    int length =
        snprintf(line, sizeof(line), "\n[tidepool: %llu bytes of output are not here: %s]\n",
                 (unsigned long long)output->lost_unsaid,
                 strerror_r(output->lost_reason, reason, sizeof(reason)));
    int again;
    size_t done = write_most(output->log, line, (size_t)length, &again);
    output->size += done;
    if (done == (size_t)length) {
        output->lost_unsaid = 0;
    }
}

static void log_add(struct output *output, const char *bytes, size_t length)
{
    size_t done = 0;
    if (output->size + length > output->bytes_max / 2) {
        log_rotate(output);
    }
    if (output->lost_unsaid > 0) {
        log_say_lost(output);
    }
    if (output->lost_unsaid == 0) {
        done = write_most(output->log, bytes, length, &output->lost_reason);
    }
    output->size += done;
    output->lost += length - done;
    output->lost_unsaid += length - done;
}

int output_pump(struct output *output, size_t bytes_max)
{
    char block[BLOCK_BYTES];
    int reason;
    for (size_t taken = 0; output->pipe >= 0 && taken < bytes_max;) {
        ssize_t length = read(output->pipe, block, sizeof(block));
        if (length < 0 && errno == EINTR) {
            continue;
        }
        if (length <= 0) {
            return length < 0 && errno == EAGAIN ? 0 : -1;
        }
        taken += (size_t)length;
        output->written += (uint64_t)length;
        log_add(output, block, (size_t)length);
        if (output->copy >= 0) {
            (void)write_most(output->copy, block, (size_t)length, &reason);
        }
    }
    return output->pipe >= 0 ? 1 : -1;
}
