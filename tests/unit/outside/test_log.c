/* Tests server/outside/log.c: what a shim keeps of a job's output, read while it is rotated. */
#include "server/outside/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    char folder[64];
    struct log_reader reader;
    uint64_t dropped; /* as the shim tells it */
};

static const char *path_of(const struct place *place, const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", place->folder, name);
    return path;
}

static int place_setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);
    (void)snprintf(place->folder, sizeof place->folder, "/tmp/tidepool-log-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    log_reader_init(&place->reader, place->folder);
    *state = place;
    return 0;
}

static int place_teardown(void **state)
{
    struct place *place = *state;
    log_reader_fini(&place->reader);
    (void)unlink(path_of(place, "log"));
    (void)unlink(path_of(place, "log.1"));
    (void)rmdir(place->folder);
    free(place);
    return 0;
}

static void add(const struct place *place, const char *text)
{
    int fd = open(path_of(place, "log"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
}

/* As output.c does it: what was in `log.1` goes. */
static void rotate(struct place *place, uint64_t goes)
{
    char from[128];
    (void)snprintf(from, sizeof from, "%s", path_of(place, "log"));
    assert_int_equal(rename(from, path_of(place, "log.1")), 0);
    place->dropped += goes;
    add(place, "");
}

static void assert_reads(struct place *place, uint64_t offset, const char *text)
{
    char bytes[64];
    uint64_t at = UINT64_MAX;
    size_t length = log_reader_read(&place->reader, place->dropped, bytes, sizeof bytes - 1, &at);
    bytes[length] = '\0';
    assert_string_equal(bytes, text);
    assert_int_equal(at, offset);
}

static void assert_reads_nothing(struct place *place)
{
    char bytes[64];
    uint64_t at;
    assert_int_equal(log_reader_read(&place->reader, place->dropped, bytes, sizeof bytes, &at), 0);
}

static void what_is_written_is_read_on(void **state)
{
    assert_reads_nothing(*state); /* the run has not begun */
    add(*state, "one ");
    assert_reads(*state, 0, "one ");
    assert_reads_nothing(*state);
    add(*state, "two");
    assert_reads(*state, 4, "two");
    assert_int_equal(log_size(((struct place *)*state)->folder), 7);
}

static void a_rotation_loses_nothing_that_was_not_read(void **state)
{
    add(*state, "one ");
    assert_reads(*state, 0, "one ");
    add(*state, "two ");
    rotate(*state, 0);
    add(*state, "three");
    assert_reads(*state, 4, "two ");
    assert_reads(*state, 8, "three");
    assert_reads_nothing(*state);
}

static void who_comes_late_begins_with_the_oldest_that_is_kept(void **state)
{
    add(*state, "gone ");
    rotate(*state, 0);
    add(*state, "kept ");
    rotate(*state, 5);
    add(*state, "new");
    assert_reads(*state, 5, "kept ");
    assert_reads(*state, 10, "new");
}

static void who_is_overtaken_goes_on_with_what_is_kept(void **state)
{
    add(*state, "one ");
    assert_reads(*state, 0, "one ");
    rotate(*state, 0);
    add(*state, "missed ");
    rotate(*state, 4);
    add(*state, "three ");
    rotate(*state, 7);
    add(*state, "four");
    assert_reads(*state, 11, "three ");
    assert_reads(*state, 17, "four");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_setup, place_teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read_on),
        TEST(a_rotation_loses_nothing_that_was_not_read),
        TEST(who_comes_late_begins_with_the_oldest_that_is_kept),
        TEST(who_is_overtaken_goes_on_with_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
