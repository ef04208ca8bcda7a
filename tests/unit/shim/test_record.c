/* Tests server/shim/record.c: what a shim keeps on disk, whole or not at all. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/shim/record.h"

struct place {
    char directory[64], path[96];
    struct shim_record record;
};

static int place_setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    struct shim_record *record = &place->record;
    (void)snprintf(place->directory, sizeof(place->directory), "/tmp/tidepool-record-XXXXXX");
    if (mkdtemp(place->directory) == NULL) {
        free(place);
        return -1;
    }
    (void)snprintf(place->path, sizeof(place->path), "%s/record", place->directory);
    (void)stpcpy(record->job, "train");
    (void)stpcpy(record->lease, "lease-7");
    (void)stpcpy(record->devices, "GPU-1,GPU-2");
    (void)stpcpy(record->boot, "boot");
    (void)stpcpy(record->cgroup_path, "/sys/fs/cgroup/x");
    record->generation = UINT64_MAX;
    record->kill_deadline_ns = 5;
    record->owner = geteuid();
    record->token_size = SHIM_TOKEN_MAX;
    memset(record->token, 0xab, sizeof(record->token));
    memset(record->secret, 0xcd, sizeof(record->secret));
    record->state = SHIM_RUNNING;
    *state = place;
    return record_write(place->directory, record, NULL);
}

static int place_teardown(void **state)
{
    struct place *place = *state;
    (void)unlink(place->path);
    (void)rmdir(place->directory);
    free(place);
    return 0;
}

static void a_record_comes_back_as_it_was_written(void **state)
{
    struct place *place = *state;
    struct shim_record back;
    struct stat status;
    assert_int_equal(record_read(place->directory, &back, NULL), 0);
    assert_int_equal(back.version, MESSAGE_VERSION);
    place->record.version = back.version;
    assert_memory_equal(&back, &place->record, sizeof(back));
    assert_int_equal(stat(place->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600); /* it has secrets */
}

static void a_new_record_replaces_the_old_one_as_a_whole(void **state)
{
    struct place *place = *state;
    struct shim_record back;
    int old = open(place->path, O_RDONLY | O_CLOEXEC);
    struct stat before, after;
    place->record.state = SHIM_ENDED;
    assert_int_equal(record_write(place->directory, &place->record, NULL), 0);
    assert_int_equal(fstat(old, &before), 0);
    assert_int_equal(stat(place->path, &after), 0);
    assert_int_equal(before.st_nlink, 0); /* never written over: another file took its name */
    assert_int_equal(record_read(place->directory, &back, NULL), 0);
    assert_int_equal(back.state, SHIM_ENDED);
    (void)close(old);
}

static void damage_at_any_byte_is_seen(void **state)
{
    struct place *place = *state;
    unsigned char bytes[4096];
    struct shim_record back;
    int fd = open(place->path, O_RDWR | O_CLOEXEC);
    ssize_t length = read(fd, bytes, sizeof(bytes));
    assert_true(length > 100);
    for (ssize_t at = 0; at < length; at++) {
        unsigned char wrong = bytes[at] ^ 0x10;
        assert_int_equal(pwrite(fd, &wrong, 1, at), 1);
        assert_int_equal(record_read(place->directory, &back, NULL), -(int)ERROR_DATA_LOSS);
        assert_int_equal(pwrite(fd, &bytes[at], 1, at), 1);
    }
    for (ssize_t cut = length - 1; cut >= 0; cut--) {
        assert_int_equal(ftruncate(fd, cut), 0);
        assert_int_equal(record_read(place->directory, &back, NULL), -(int)ERROR_DATA_LOSS);
    }
    (void)close(fd);
}

static void no_record_is_told_apart_from_a_damaged_one(void **state)
{
    struct place *place = *state;
    struct shim_record back;
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(record_read(place->directory, &back, NULL), -(int)ERROR_NOT_FOUND);
    assert_int_equal(symlink("/etc/passwd", place->path), 0);
    assert_true(record_read(place->directory, &back, NULL) < 0); /* never through a link */
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(mkfifo(place->path, 0600), 0);
    assert_true(record_read(place->directory, &back, NULL) < 0); /* and never waits */
}

static void what_does_not_fit_changes_nothing(void **state)
{
    struct place *place = *state;
    struct shim_record before = place->record;
    struct message message;
    char text[SHIM_NAME_MAX + 1];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    message_init(&message, MESSAGE_UPDATE, 1);
    message_put(&message, FIELD_GENERATION, 1);
    message_put_string(&message, FIELD_LEASE, text);
    assert_int_equal(record_take(&place->record, &message, NULL), -(int)ERROR_INVALID_ARGUMENT);
    message_init(&message, MESSAGE_UPDATE, 1);
    message_put(&message, FIELD_GENERATION, 1);
    message_put_bytes(&message, FIELD_TOKEN, text, SHIM_TOKEN_MAX + 1);
    assert_int_equal(record_take(&place->record, &message, NULL), -(int)ERROR_INVALID_ARGUMENT);
    assert_memory_equal(&before, &place->record, sizeof(before));
}

int main(void)
{
#define RECORD_TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        RECORD_TEST(a_record_comes_back_as_it_was_written),
        RECORD_TEST(a_new_record_replaces_the_old_one_as_a_whole),
        RECORD_TEST(damage_at_any_byte_is_seen),
        RECORD_TEST(no_record_is_told_apart_from_a_damaged_one),
        RECORD_TEST(what_does_not_fit_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
