#include "server/store/damage.h"

#include <fcntl.h>
#include <glob.h>
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

#include "server/base/log.h"
#include "tests/unit/store/fixture.h"

#define JOBS 300

static void path_of(const struct place *place, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", place->directory, name);
}

static void fill(const struct place *place)
{
    struct store *store = open_or_fail(place);
    assert_int_equal(store_start(store, NULL), 0);
    for (uint64_t number = 1; number <= JOBS; number++) {
        char id[32];
        struct store_job job = job_of(number, id, false);
        assert_int_equal(store_put_job(store, &job, NULL, NULL), 0);
    }
    store_close(store);
}

/* Opens with the log going into a file, whose text is returned. */
static struct store *open_and_read_log(const struct place *place, char log[4096])
{
    char path[128];
    path_of(place, "test.log", path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    log_open(fd, LOG_INFO, false);
    struct store *store = open_or_fail(place);
    log_open(STDERR_FILENO, LOG_INFO, false);
    ssize_t length = pread(fd, log, 4095, 0);
    assert_true(length >= 0);
    log[length] = '\0';
    close(fd);
    return store;
}

/* The one file that was moved aside; its size. */
static off_t moved_size(const struct place *place, char name[128])
{
    char pattern[128];
    glob_t found;
    struct stat file;
    path_of(place, "tidepool.db.damaged-*Z", pattern);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(name, 128, "%s", found.gl_pathv[0]);
    globfree(&found);
    assert_int_equal(stat(name, &file), 0);
    return file.st_size;
}

static void assert_begun_anew(const struct place *place, uint64_t epoch, const char *why)
{
    char log[4096];
    char moved[128];
    struct store *store = open_and_read_log(place, log);
    assert_int_equal(store_epoch(store), epoch);
    assert_int_equal(load_jobs(store).count, 0);
    moved_size(place, moved);
    if (strstr(log, moved) == NULL || strstr(log, why) == NULL ||
        strstr(log, "error store: damaged, moved aside") == NULL ||
        strstr(log, "lost=\"all jobs") == NULL) {
        fail_msg("the log says: %s", log);
    }
    store_close(store);
    store_close(open_or_fail(place)); /* and it is only said once */
    moved_size(place, moved);
}

static void overwrite(const struct place *place, off_t offset, size_t size)
{
    char path[128];
    char bytes[4096];
    memset(bytes, 0xa5, sizeof bytes);
    path_of(place, "tidepool.db", path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, offset), size);
    close(fd);
}

static void a_file_that_is_no_database_is_moved_aside(void **state)
{
    fill(*state);
    overwrite(*state, 0, 100);
    assert_begun_anew(*state, 2, "not a database");
}

static void a_page_that_the_start_does_not_read_is_found_damaged(void **state)
{
    struct place *place = *state;
    char path[128];
    struct stat file;
    fill(place);
    path_of(place, "tidepool.db", path);
    assert_int_equal(stat(path, &file), 0);
    overwrite(place, file.st_size / 2 / 4096 * 4096, 4096);
    assert_begun_anew(place, 2, "check store");
}

static void a_cut_file_is_moved_aside_as_it_was(void **state)
{
    struct place *place = *state;
    char path[128];
    char moved[128];
    fill(place);
    path_of(place, "tidepool.db", path);
    assert_int_equal(truncate(path, 3 * 4096 + 17), 0);
    assert_begun_anew(place, 2, "tidepool.db");
    assert_int_equal(moved_size(place, moved), 3 * 4096 + 17);
}

static void an_emptied_file_is_no_new_database(void **state)
{
    char path[128];
    fill(*state);
    path_of(*state, "tidepool.db", path);
    assert_int_equal(truncate(path, 0), 0);
    assert_begun_anew(*state, 2, "it is empty, and was not");
}

/* As kill -9 between the two renames leaves it. */
static void a_log_without_its_database_is_moved_aside(void **state)
{
    struct place *place = *state;
    char path[128];
    char pattern[128];
    glob_t found;
    path_of(place, "tidepool.db-wal", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "log", 3), 3);
    close(fd);
    log_open(STDERR_FILENO, LOG_ERROR + 1, false); /* its error is expected here */
    store_close(open_or_fail(place));
    log_open(STDERR_FILENO, LOG_INFO, false);
    path_of(place, "tidepool.db.damaged-*Z-wal", pattern);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    globfree(&found);
}

static void a_second_damage_within_the_second_has_a_name_of_its_own(void **state)
{
    struct place *place = *state;
    char pattern[128];
    glob_t found;
    log_open(STDERR_FILENO, LOG_ERROR + 1, false);
    for (uint64_t start = 1; start <= 3; start++) {
        fill(place);
        overwrite(place, 0, 100);
    }
    store_close(open_or_fail(place));
    log_open(STDERR_FILENO, LOG_INFO, false);
    path_of(place, "tidepool.db.damaged-*Z", pattern);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 3);
    globfree(&found);
}

static void epochs_go_on_when_the_database_was_taken_away(void **state)
{
    char path[128];
    char log[4096];
    fill(*state);
    store_close(open_or_fail(*state));
    path_of(*state, "tidepool.db", path);
    assert_int_equal(unlink(path), 0);
    struct store *store = open_and_read_log(*state, log);
    assert_non_null(strstr(log, "error store: begun anew starts_in_it=0 starts=2"));
    assert_int_equal(store_epoch(store), 3);
    store_close(store);
}

/* Bytes anywhere are overwritten: what opens afterwards is whole, and never silently another. */
static void damage_anywhere_is_found_or_harmless(void **state)
{
    struct place *place = *state;
    unsigned seed = 20261201;
    char path[128];
    struct stat file;
    log_open(STDERR_FILENO, LOG_ERROR + 1, false);
    path_of(place, "tidepool.db", path);
    for (int round = 0; round < 40; round++) {
        unlink(path);
        fill(place);
        assert_int_equal(stat(path, &file), 0);
        off_t page = rand_r(&seed) % (file.st_size / 4096) * 4096;
        overwrite(place, page + rand_r(&seed) % 8, 1 + (size_t)rand_r(&seed) % 64);
        struct store *store = open_or_fail(place);
        unsigned count = load_jobs(store).count;
        if (count != 0 && count != JOBS) {
            fail_msg("seed 20261201 round %d: %u jobs of %d without a word", round, count, JOBS);
        }
        store_close(store);
        assert_database_is_whole(place);
    }
    log_open(STDERR_FILENO, LOG_INFO, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_that_is_no_database_is_moved_aside),
        TEST(a_page_that_the_start_does_not_read_is_found_damaged),
        TEST(a_cut_file_is_moved_aside_as_it_was),
        TEST(an_emptied_file_is_no_new_database),
        TEST(a_log_without_its_database_is_moved_aside),
        TEST(a_second_damage_within_the_second_has_a_name_of_its_own),
        TEST(epochs_go_on_when_the_database_was_taken_away),
        TEST(damage_anywhere_is_found_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
