/* Checkpoints: whole or not there, newest good one first, damage anywhere is noticed. */
#include "fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/base/checksum.h"
#include "server/train/checkpoint.h"

#define FLOATS 5

static char directory[64];
static char warnings[2048];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(directory, sizeof(directory), "/tmp/tidepool-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(directory));
    warnings[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", directory);
    return system(command);
}

static void on_warning(void *context, const char *text)
{
    size_t used = strlen(warnings);
    (void)context;
    (void)snprintf(warnings + used, sizeof(warnings) - used, "%s\n", text);
}

static void write_step(uint64_t step, unsigned keep)
{
    const struct checkpoint_head head = {
        .specification_hash = 77, .step = step, .floats = FLOATS, .blas_core = "Zen"};
    const float state[FLOATS] = {(float)step, 1, 2, 3, 4};
    struct error error = {0};
    char path[4096];
    if (checkpoint_write(directory, &head, state, keep, path, &error) < 0) {
        fail_msg("%s", error.text);
    }
}

/* The step that is loaded, or 0, or the error. */
static long long load(void)
{
    struct checkpoint_head head;
    float state[FLOATS];
    char path[4096];
    struct error error = {0};
    int result =
        checkpoint_load(directory, 77, FLOATS, &head, state, path, on_warning, NULL, &error);
    if (result == 1) {
        assert_true(state[0] == (float)head.step && state[4] == 4);
    }
    return result == 1 ? (long long)head.step : result;
}

static unsigned files_count(void)
{
    unsigned count = 0;
    struct dirent *entry;
    DIR *stream = opendir(directory);
    while ((entry = readdir(stream)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(stream);
    return count;
}

static void checksum_is_the_known_one(void **state)
{
    (void)state;
    assert_true(checksum_add(0, "123456789", 9) == UINT64_C(0x995dc9bbdf1939fa));
    assert_true(checksum_add(checksum_add(0, "1234", 4), "56789", 5) ==
                UINT64_C(0x995dc9bbdf1939fa));
}

static void newest_is_loaded_and_old_ones_go(void **state)
{
    (void)state;
    assert_int_equal(load(), 0);
    write_step(9, 2);
    write_step(10, 2);
    write_step(100, 2);
    assert_int_equal(files_count(), 2);
    assert_int_equal(load(), 100);
    assert_string_equal(warnings, "");
}

static void damage_at_every_byte_is_noticed(void **state)
{
    char path[128];
    struct stat status;
    int fd;
    (void)state;
    write_step(1, 2);
    write_step(2, 2);
    (void)snprintf(path, sizeof(path), "%s/checkpoint-%012d", directory, 2);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0 && fstat(fd, &status) == 0);
    for (off_t at = 0; at < status.st_size; at++) {
        unsigned char byte, other;
        warnings[0] = '\0';
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        other = byte ^ 0x10;
        assert_int_equal(pwrite(fd, &other, 1, at), 1);
        assert_int_equal(load(), 1);
        assert_non_null(strstr(warnings, path));
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(load(), 2);
    for (off_t length = 0; length < status.st_size; length += 7) {
        assert_int_equal(ftruncate(fd, length), 0);
        assert_int_equal(load(), 1);
    }
    (void)close(fd);
}

/* Else the damaged one would count as the newest, and with `keep` 1 the good one would go. */
static void damaged_newest_goes_when_a_good_one_is_written(void **state)
{
    char path[128];
    (void)state;
    write_step(50, 1);
    (void)snprintf(path, sizeof(path), "%s/checkpoint-%012d", directory, 100);
    assert_int_equal(fclose(fopen(path, "w")), 0);
    assert_int_equal(load(), 50);
    write_step(75, 1);
    assert_int_equal(files_count(), 1);
    assert_int_equal(load(), 75);
}

/* Crashes at many steps leave one unfinished file at most. */
static void unfinished_file_is_overwritten(void **state)
{
    char path[128];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/checkpoint.tmp", directory);
    assert_int_equal(fclose(fopen(path, "w")), 0);
    write_step(6, 2);
    assert_int_equal(files_count(), 1);
    assert_int_equal(load(), 6);
}

static void unfinished_file_is_not_looked_at(void **state)
{
    char path[128];
    FILE *file;
    (void)state;
    write_step(5, 2);
    (void)snprintf(path, sizeof(path), "%s/checkpoint.tmp", directory);
    file = fopen(path, "w");
    (void)fclose(file);
    assert_int_equal(load(), 5);
    assert_string_equal(warnings, "");
}

static void other_specification_is_refused(void **state)
{
    struct checkpoint_head head;
    float values[FLOATS];
    char path[4096];
    struct error error = {0};
    (void)state;
    write_step(5, 2);
    assert_int_equal(
        checkpoint_load(directory, 78, FLOATS, &head, values, path, NULL, NULL, &error),
        -(int)ERROR_FAILED_PRECONDITION);
    assert_int_equal(
        checkpoint_load(directory, 77, FLOATS + 1, &head, values, path, NULL, NULL, &error),
        -(int)ERROR_FAILED_PRECONDITION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(checksum_is_the_known_one),       TEST(newest_is_loaded_and_old_ones_go),
        TEST(damage_at_every_byte_is_noticed), TEST(unfinished_file_is_not_looked_at),
        TEST(other_specification_is_refused),  TEST(damaged_newest_goes_when_a_good_one_is_written),
        TEST(unfinished_file_is_overwritten),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
