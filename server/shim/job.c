#include "server/shim/job.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/shim/message.h"

#define NICE_BASE 20

static size_t strings_size(const char *const *strings)
{
    size_t size = 0;
    for (; *strings != NULL; strings++) {
        size += strlen(*strings) + 1;
    }
    return size;
}

/* One string after the other, each with its NUL; free it. */
static char *strings_join(const char *const *strings, size_t *ret_size)
{
    size_t size = strings_size(strings);
    char *joined = malloc(size + 1);
    char *at = joined;
    for (; joined != NULL && *strings != NULL; strings++) {
        at = stpcpy(at, *strings) + 1;
    }
    *ret_size = size;
    return joined;
}

static void text_put(struct message *message, enum message_field field, const char *text)
{
    if (text != NULL) {
        message_put_string(message, field, text);
    }
}

static void job_put(const struct shim_job *job, struct message *message)
{
    text_put(message, FIELD_DIRECTORY, job->directory);
    text_put(message, FIELD_JOB, job->job);
    text_put(message, FIELD_LEASE, job->lease);
    text_put(message, FIELD_DEVICES, job->devices);
    message_put(message, FIELD_EPOCH, job->epoch);
    message_put(message, FIELD_GENERATION, job->generation);
    message_put_bytes(message, FIELD_TOKEN, job->token, job->token_size);
    text_put(message, FIELD_WORKING_DIRECTORY, job->working_directory);
    text_put(message, FIELD_OUTPUT, job->output);
    message_put(message, FIELD_HAS_STDIN, job->stdin_fd >= 0);
    message_put(message, FIELD_OWNER, job->owner);
    message_put(message, FIELD_UID, job->uid);
    message_put(message, FIELD_GID, job->gid);
    message_put_bytes(message, FIELD_GROUPS, job->groups,
                      job->group_count * sizeof(job->groups[0]));
    message_put(message, FIELD_UMASK, job->umask);
    message_put_bytes(message, FIELD_LIMITS, job->limits,
                      job->limit_count * sizeof(job->limits[0]));
    message_put(message, FIELD_NICE, (uint64_t)(job->nice + NICE_BASE));
    text_put(message, FIELD_CPUS, job->cpus);
    message_put(message, FIELD_OOM_SCORE, (uint64_t)job->oom_score);
    message_put(message, FIELD_LOG_BYTES, job->log_bytes);
    message_put(message, FIELD_CGROUP_MODE, job->cgroup);
    message_put(message, FIELD_GRACE_MS, job->grace_ms);
    message_put(message, FIELD_LINGER_MS, job->linger_ms);
}

static int memory_file(const struct message *message, struct error *error)
{
    size_t size = message_size(message);
    unsigned char *bytes = MAP_FAILED;
    int fd = -1;
    if (size > JOB_BYTES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "start job: %zu bytes of arguments and environment are over %d", size,
                         JOB_BYTES_MAX);
    }
    fd = memfd_create("tidepool-job", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0) {
        bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (bytes == MAP_FAILED) {
        int result = error_set_errno(error, errno, "start job: memory file of %zu bytes", size);
        if (fd >= 0) {
            (void)close(fd);
        }
        return result;
    }
    message_encode(message, bytes);
    (void)munmap(bytes, size);
    return fd;
}

int job_write(const struct shim_job *job, struct error *error)
{
    struct message message;
    size_t arguments_size, environment_size;
    char *arguments = strings_join(job->arguments, &arguments_size);
    char *environment = strings_join(job->environment, &environment_size);
    int result;
    message_init(&message, MESSAGE_JOB, 0);
    job_put(job, &message);
    if (arguments == NULL || environment == NULL) {
        result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "start job: no memory");
    } else {
        message_put_bytes(&message, FIELD_ARGUMENTS, arguments, arguments_size);
        message_put_bytes(&message, FIELD_ENVIRONMENT, environment, environment_size);
        result = memory_file(&message, error);
    }
    free(arguments);
    free(environment);
    return result;
}

/* NULL: no memory, or the last string has no end. */
static const char **strings_split(struct wire_text joined)
{
    const char *at = (const char *)joined.data, *end = at + joined.length;
    const char **strings;
    size_t count = 0;
    if (joined.length > 0 && end[-1] != '\0') {
        return NULL;
    }
    for (size_t i = 0; i < joined.length; i++) {
        count += joined.data[i] == '\0';
    }
    strings = calloc(count + 1, sizeof(*strings));
    for (size_t i = 0; strings != NULL && i < count; i++) {
        strings[i] = at;
        at += strlen(at) + 1;
    }
    return strings;
}

static const char *text_take(const struct message *message, enum message_field field)
{
    return message_has(message, field) ? message_string(message, field) : NULL;
}

/* Copies an array out of the bytes, where it may lie unaligned. NULL: damaged or no memory. */
static void *array_take(struct wire_text bytes, size_t size, size_t *ret_count)
{
    void *array = bytes.length % size == 0 ? malloc(bytes.length + 1) : NULL;
    if (array != NULL && bytes.length > 0) {
        memcpy(array, bytes.data, bytes.length);
    }
    *ret_count = bytes.length / size;
    return array;
}

static void job_take(struct shim_job *job, const struct message *message)
{
    struct wire_text token = message_bytes(message, FIELD_TOKEN);
    job->directory = text_take(message, FIELD_DIRECTORY);
    job->job = message_string(message, FIELD_JOB);
    job->lease = message_string(message, FIELD_LEASE);
    job->devices = message_string(message, FIELD_DEVICES);
    job->epoch = message_number(message, FIELD_EPOCH, 0);
    job->generation = message_number(message, FIELD_GENERATION, 0);
    job->token = token.data;
    job->token_size = token.length;
    job->working_directory = text_take(message, FIELD_WORKING_DIRECTORY);
    job->output = text_take(message, FIELD_OUTPUT);
    job->stdin_fd = message_number(message, FIELD_HAS_STDIN, 0) ? 0 : -1;
    job->owner = (uid_t)message_number(message, FIELD_OWNER, UINT32_MAX);
    job->uid = (uid_t)message_number(message, FIELD_UID, UINT32_MAX);
    job->gid = (gid_t)message_number(message, FIELD_GID, UINT32_MAX);
    job->umask = (mode_t)message_number(message, FIELD_UMASK, 077);
    job->nice = (int)message_number(message, FIELD_NICE, NICE_BASE) - NICE_BASE;
    job->cpus = text_take(message, FIELD_CPUS);
    job->oom_score = (int)message_number(message, FIELD_OOM_SCORE, 0);
    job->log_bytes = message_number(message, FIELD_LOG_BYTES, 0);
    job->cgroup = (enum cgroup_mode)message_number(message, FIELD_CGROUP_MODE, CGROUP_AUTO);
    job->grace_ms = (uint32_t)message_number(message, FIELD_GRACE_MS, 0);
    job->linger_ms = (uint32_t)message_number(message, FIELD_LINGER_MS, 0);
}

static int bytes_read(int fd, unsigned char **ret_bytes, size_t *ret_size, struct error *error)
{
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_size > JOB_BYTES_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "start job: descriptor %d is no job", fd);
    }
    *ret_size = (size_t)status.st_size;
    *ret_bytes = malloc(*ret_size + 1);
    if (*ret_bytes == NULL || pread(fd, *ret_bytes, *ret_size, 0) != status.st_size) {
        return error_set_errno(error, errno, "start job: read %zu bytes", *ret_size);
    }
    return 0;
}

int job_read(int fd, struct job_copy *ret_copy, struct error *error)
{
    struct job_copy copy = {0};
    struct message message;
    size_t size = 0;
    int result = bytes_read(fd, &copy.bytes, &size, error);
    if (result == 0) {
        result = message_decode(copy.bytes, size, &message, error);
    }
    if (result < 0) {
        job_copy_fini(&copy);
        return result;
    }
    job_take(&copy.job, &message);
    copy.job.groups = array_take(message_bytes(&message, FIELD_GROUPS), sizeof(copy.job.groups[0]),
                                 &copy.job.group_count);
    copy.job.limits = array_take(message_bytes(&message, FIELD_LIMITS), sizeof(copy.job.limits[0]),
                                 &copy.job.limit_count);
    copy.job.arguments = copy.arguments = strings_split(message_bytes(&message, FIELD_ARGUMENTS));
    copy.job.environment = copy.environment =
        strings_split(message_bytes(&message, FIELD_ENVIRONMENT));
    if (copy.job.groups == NULL || copy.job.limits == NULL || copy.arguments == NULL ||
        copy.environment == NULL || copy.arguments[0] == NULL || copy.job.directory == NULL) {
        job_copy_fini(&copy);
        return error_set(error, ERROR_INVALID_ARGUMENT, "start job: damaged or without a command");
    }
    *ret_copy = copy;
    return 0;
}

void job_copy_fini(struct job_copy *copy)
{
    free((void *)copy->job.groups);
    free((void *)copy->job.limits);
    free(copy->arguments);
    free(copy->environment);
    free(copy->bytes);
    *copy = (struct job_copy){0};
}
