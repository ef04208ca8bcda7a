#include "server/shim/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/checksum.h"

#define RECORD_BYTES_MAX 16384
#define CHECKSUM_SIZE 8

#define NUMBER(field, member)                                                                      \
    {                                                                                              \
        field, offsetof(struct shim_record, member), 0                                             \
    }
#define TEXT(field, member)                                                                        \
    {                                                                                              \
        field, offsetof(struct shim_record, member), sizeof(((struct shim_record *)0)->member)     \
    }

static const struct entry {
    enum message_field field;
    size_t offset;
    size_t size; /* of a string; 0: a number */
} entries[] = {
    TEXT(FIELD_JOB, job),
    TEXT(FIELD_LEASE, lease),
    TEXT(FIELD_DEVICES, devices),
    NUMBER(FIELD_EPOCH, epoch),
    NUMBER(FIELD_GENERATION, generation),
    NUMBER(FIELD_NOTICE_DEADLINE, notice_deadline_ns),
    NUMBER(FIELD_KILL_DEADLINE, kill_deadline_ns),
    NUMBER(FIELD_UID, uid),
    NUMBER(FIELD_OWNER, owner),
    TEXT(FIELD_BOOT, boot),
    NUMBER(FIELD_SHIM_PID, shim_pid),
    NUMBER(FIELD_SHIM_START, shim_start),
    TEXT(FIELD_TAG, tag),
    NUMBER(FIELD_LEADER_PID, leader_pid),
    NUMBER(FIELD_LEADER_START, leader_start),
    NUMBER(FIELD_CGROUP_KIND, cgroup_kind),
    TEXT(FIELD_CGROUP_PATH, cgroup_path),
    NUMBER(FIELD_STATE, state),
    NUMBER(FIELD_EXIT_CODE, exit_code),
    NUMBER(FIELD_EXIT_SIGNAL, exit_signal),
    NUMBER(FIELD_STEP, step),
    NUMBER(FIELD_ERRNO, error_number),
    TEXT(FIELD_TEXT, text),
    NUMBER(FIELD_USER_NS, user_ns),
    NUMBER(FIELD_SYSTEM_NS, system_ns),
    NUMBER(FIELD_RSS_BYTES, rss_bytes),
    NUMBER(FIELD_LOG_WRITTEN, log_written),
    NUMBER(FIELD_LOG_DROPPED, log_dropped),
    NUMBER(FIELD_LOG_LOST, log_lost),
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

void record_put(const struct shim_record *record, struct message *message)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        const char *member = (const char *)record + entries[i].offset;
        if (entries[i].size == 0) {
            message_put(message, entries[i].field, *(const uint64_t *)(const void *)member);
        } else {
            message_put_string(message, entries[i].field, member);
        }
    }
    message_put_bytes(message, FIELD_TOKEN, record->token, record->token_size);
    message_put_bytes(message, FIELD_SECRET, record->secret, sizeof(record->secret));
}

static int entry_take(struct shim_record *record, const struct entry *entry,
                      const struct message *message, struct error *error)
{
    char *member = (char *)record + entry->offset;
    if (!message_has(message, entry->field)) {
        return 0;
    }
    if (entry->size == 0) {
        *(uint64_t *)(void *)member = message_number(message, entry->field, 0);
        return 0;
    }
    if ((size_t)snprintf(member, entry->size, "%s", message_string(message, entry->field)) >=
        entry->size) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "shim record: field %d is over %zu bytes",
                         (int)entry->field, entry->size - 1);
    }
    return 0;
}

int record_take(struct shim_record *record, const struct message *message, struct error *error)
{
    struct wire_text token = message_bytes(message, FIELD_TOKEN);
    struct wire_text secret = message_bytes(message, FIELD_SECRET);
    struct shim_record taken = *record;
    int result = 0;
    for (size_t i = 0; result == 0 && i < ENTRIES; i++) {
        result = entry_take(&taken, &entries[i], message, error);
    }
    if (result == 0 && (token.length > sizeof(taken.token) ||
                        (secret.data != NULL && secret.length != sizeof(taken.secret)))) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "shim record: the token has %zu bytes (at most %d), the secret %zu (%d)",
                           token.length, SHIM_TOKEN_MAX, secret.length, SHIM_SECRET_SIZE);
    }
    if (result < 0) {
        return result;
    }
    if (token.data != NULL) {
        memcpy(taken.token, token.data, token.length);
        taken.token_size = token.length;
    }
    if (secret.data != NULL) {
        memcpy(taken.secret, secret.data, secret.length);
    }
    *record = taken;
    return 0;
}

static int write_whole(int fd, const unsigned char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);
        if (written < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -1;
        }
        bytes += written;
        length -= (size_t)written;
    }
    return 0;
}

static int paths_make(const char *directory, char path[PATH_MAX], char fresh[PATH_MAX],
                      struct error *error)
{
    if (snprintf(path, PATH_MAX, "%s/record", directory) >= PATH_MAX ||
        snprintf(fresh, PATH_MAX, "%s/record.new", directory) >= PATH_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "shim record: too long a path below '%s'",
                         directory);
    }
    return 0;
}

/* A shim with privileges writes for a server that has none: that may read, by its group, but not
 * forge, since its spawner acts by records. */
static int reading_allow(int fd, int above, uid_t owner)
{
    struct stat status;
    if (owner == geteuid()) {
        return 0;
    }
    return fstat(above, &status) < 0 || fchown(fd, (uid_t)-1, status.st_gid) < 0 ||
                   fchmod(fd, 0640) < 0
               ? -1
               : 0;
}

static int file_replace(const char *directory, uid_t owner, const unsigned char *bytes,
                        size_t length, struct error *error)
{
    char path[PATH_MAX], fresh[PATH_MAX];
    int result = paths_make(directory, path, fresh, error);
    int fd = -1, above = -1;
    if (result < 0) {
        return result;
    }
    (void)unlink(fresh); /* and never into what somebody has put there */
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    above = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || above < 0 || reading_allow(fd, above, owner) < 0 ||
        write_whole(fd, bytes, length) < 0 || fsync(fd) < 0 || rename(fresh, path) < 0 ||
        fsync(above) < 0) {
        result = error_set_errno(error, errno, "write shim record '%s'", path);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (above >= 0) {
        (void)close(above);
    }
    return result;
}

int record_write(const char *directory, const struct shim_record *record, struct error *error)
{
    unsigned char bytes[RECORD_BYTES_MAX];
    struct message message;
    size_t length;
    uint64_t checksum;
    message_init(&message, MESSAGE_RECORD, 0);
    record_put(record, &message);
    length = message_size(&message);
    if (length + CHECKSUM_SIZE > sizeof(bytes)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "shim record: %zu bytes are over %zu",
                         length, sizeof(bytes) - CHECKSUM_SIZE);
    }
    message_encode(&message, bytes);
    checksum = checksum_add(0, bytes, length);
    memcpy(bytes + length, &checksum, CHECKSUM_SIZE); /* little-endian, as all the formats here */
    return file_replace(directory, (uid_t)record->owner, bytes, length + CHECKSUM_SIZE, error);
}

static int bytes_check(const unsigned char *bytes, size_t length, const char *path,
                       struct shim_record *ret_record, struct error *error)
{
    struct message message;
    struct shim_record record = {0};
    uint64_t checksum;
    size_t size = length - CHECKSUM_SIZE;
    if (length < MESSAGE_HEAD + CHECKSUM_SIZE) {
        return error_set(error, ERROR_DATA_LOSS, "shim record '%s': %zu bytes are too few", path,
                         length);
    }
    memcpy(&checksum, bytes + size, CHECKSUM_SIZE);
    if (checksum != checksum_add(0, bytes, size)) {
        return error_set(error, ERROR_DATA_LOSS, "shim record '%s': its checksum is wrong", path);
    }
    if (message_decode(bytes, size, &message, error) < 0 ||
        record_take(&record, &message, error) < 0) {
        return error_prefix(error, "shim record '%s'", path);
    }
    record.version = message.version;
    *ret_record = record;
    return 0;
}

int record_read(const char *directory, struct shim_record *ret_record, struct error *error)
{
    unsigned char bytes[RECORD_BYTES_MAX];
    char path[PATH_MAX], fresh[PATH_MAX];
    struct stat status;
    ssize_t length;
    int result = paths_make(directory, path, fresh, error);
    int fd = result < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (result < 0) {
        return result;
    }
    if (fd < 0) {
        return error_set_errno(error, errno, "open shim record '%s'", path);
    }
    if (fstat(fd, &status) < 0 || (status.st_uid != 0 && status.st_uid != geteuid())) {
        (void)close(fd);
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "shim record '%s' is neither root's nor our own: not trusted", path);
    }
    length = read(fd, bytes, sizeof(bytes)); /* written in one piece: read in one */
    result = length < 0 ? error_set_errno(error, errno, "read shim record '%s'", path)
                        : bytes_check(bytes, (size_t)length, path, ret_record, error);
    (void)close(fd);
    return result;
}
