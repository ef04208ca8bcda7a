/* Tests server/shim/output.c: a job's output is taken whatever the disk does. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/shim/output.h"

#define LOG_BYTES 8192
#define ALL SIZE_MAX

struct place {
    char directory[64];
    int writer;
    struct output output;
};

static int place_setup(void **state)
{
    struct place *place = calloc(1, sizeof(*place));
    int pipes[2];
    (void)snprintf(place->directory, sizeof(place->directory), "/tmp/tidepool-output-XXXXXX");
    if (mkdtemp(place->directory) == NULL || pipe2(pipes, O_CLOEXEC | O_NONBLOCK) < 0 ||
        output_init(&place->output, place->directory, geteuid(), LOG_BYTES, NULL) < 0) {
        free(place);
        return -1;
    }
    place->output.pipe = pipes[0];
    place->writer = pipes[1];
    *state = place;
    return 0;
}

static const char *path_of(const struct place *place, const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", place->directory, name);
    return path;
}

static int place_teardown(void **state)
{
    struct place *place = *state;
    output_fini(&place->output);
    if (place->writer >= 0) {
        (void)close(place->writer);
    }
    (void)unlink(path_of(place, "log"));
    (void)unlink(path_of(place, "log.1"));
    (void)unlink(path_of(place, "copy"));
    (void)rmdir(place->directory);
    free(place);
    return 0;
}

static off_t size_of(const struct place *place, const char *name)
{
    struct stat status;
    return stat(path_of(place, name), &status) == 0 ? status.st_size : 0;
}

static void job_writes(struct place *place, char byte, size_t length)
{
    char bytes[4096];
    memset(bytes, byte, sizeof(bytes));
    assert_true(length <= sizeof(bytes));
    assert_int_equal(write(place->writer, bytes, length), (ssize_t)length);
    assert_int_equal(output_pump(&place->output, ALL), 0);
}

static char last_byte(const struct place *place)
{
    char byte = 0;
    int fd = open(path_of(place, "log"), O_RDONLY | O_CLOEXEC);
    (void)lseek(fd, -1, SEEK_END);
    (void)!read(fd, &byte, 1);
    (void)close(fd);
    return byte;
}

static void the_log_is_bounded_and_every_byte_is_accounted_for(void **state)
{
    struct place *place = *state;
    struct output *output = &place->output;
    for (int i = 0; i < 100; i++) {
        job_writes(place, (char)('a' + i % 26), 1000);
        assert_true(size_of(place, "log") + size_of(place, "log.1") <= LOG_BYTES);
        assert_int_equal(output->written, output->dropped + output->lost +
                                              (uint64_t)size_of(place, "log") +
                                              (uint64_t)size_of(place, "log.1"));
        assert_int_equal(last_byte(place), 'a' + i % 26);
    }
    assert_int_equal(output->written, 100000);
    assert_int_equal(output->lost, 0);
    assert_true(output->dropped >= 100000 - LOG_BYTES);
}

static void the_users_file_has_no_bound(void **state)
{
    struct place *place = *state;
    place->output.copy =
        open(path_of(place, "copy"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    for (int i = 0; i < 100; i++) {
        job_writes(place, 'x', 1000);
    }
    assert_int_equal(size_of(place, "copy"), 100000);
}

static void a_full_disk_drops_output_and_says_so_when_there_is_room(void **state)
{
    struct place *place = *state;
    struct rlimit before, full = {1500, RLIM_INFINITY};
    char text[LOG_BYTES + 1] = "";
    int fd;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full.rlim_max = before.rlim_max;
    job_writes(place, 'a', 1000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0); /* a file of 1,500 bytes is full */
    job_writes(place, 'b', 1000);
    job_writes(place, 'c', 1000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(place->output.lost, 1500);
    job_writes(place, 'd', 10);
    fd = open(path_of(place, "log"), O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, text, LOG_BYTES) > 0);
    (void)close(fd);
    assert_non_null(
        strstr(text, "[tidepool: 1500 bytes of output are not here: File too large]\nd"));
    assert_int_equal(place->output.written, 3010);
}

static void one_turn_takes_no_more_than_it_may(void **state)
{
    struct place *place = *state;
    char bytes[4096] = "";
    for (int i = 0; i < 16; i++) { /* as much as a pipe holds */
        assert_int_equal(write(place->writer, bytes, sizeof(bytes)), sizeof(bytes));
    }
    assert_int_equal(output_pump(&place->output, 1), 1);
    assert_int_equal(output_pump(&place->output, ALL), 0);
    assert_int_equal(place->output.written, 65536);
}

static void the_end_is_when_nobody_writes_any_more(void **state)
{
    struct place *place = *state;
    int other = dup(place->writer);
    (void)close(place->writer);
    place->writer = -1;
    assert_int_equal(output_pump(&place->output, ALL), 0); /* somebody has it open */
    (void)close(other);
    assert_int_equal(output_pump(&place->output, ALL), -1);
}

static void a_file_that_is_there_already_is_not_written_to(void **state)
{
    struct place *place = *state;
    struct output second;
    assert_int_equal(output_init(&second, place->directory, geteuid(), LOG_BYTES, NULL),
                     -(int)ERROR_ALREADY_EXISTS);
}

int main(void)
{
#define OUTPUT_TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        OUTPUT_TEST(the_log_is_bounded_and_every_byte_is_accounted_for),
        OUTPUT_TEST(the_users_file_has_no_bound),
        OUTPUT_TEST(a_full_disk_drops_output_and_says_so_when_there_is_room),
        OUTPUT_TEST(one_turn_takes_no_more_than_it_may),
        OUTPUT_TEST(the_end_is_when_nobody_writes_any_more),
        OUTPUT_TEST(a_file_that_is_there_already_is_not_written_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
