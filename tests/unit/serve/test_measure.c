#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit_onnx.h"
#include "server/base/clock.h"
#include "server/serve/measure.h"

/* A runtime that computes for a set time: `base_ns` and `row_ns` per row, fails from `fail_rows`
 * on. */
static struct {
    uint64_t base_ns, row_ns;
    uint32_t fail_rows;
    enum error_code fail_code;
    unsigned runs;
    const char *version;
} fake;

static const char *fake_version(void)
{
    return fake.version;
}

static int fake_run(struct instance *instance, const struct run_request *requests, size_t count,
                    struct tensor *ret_outputs, struct error *error)
{
    uint64_t until = clock_thread_cpu_ns() + fake.base_ns + fake.row_ns * requests[0].rows;
    (void)instance;
    (void)ret_outputs;
    assert_int_equal(count, 1);
    fake.runs++;
    if (fake.fail_rows > 0 && requests[0].rows >= fake.fail_rows) {
        return error_set(error, fake.fail_code, "no more rows than that");
    }
    while (clock_thread_cpu_ns() < until) {
    }
    return 0;
}

static const struct model_runtime fake_runtime = {
    .name = "fake", .version = fake_version, .run = fake_run};

static char folder[256];

static int setup(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.base_ns = 20000;
    fake.row_ns = 10000;
    fake.version = "1";
    kit_folder_make(folder, sizeof(folder));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    kit_folder_remove(folder);
    return 0;
}

static int measured(uint32_t batch_max, const char *digest, const char *state_dir,
                    struct service_table *ret_table, struct error *error)
{
    struct tensor_spec input = {
        .name = (char[]){"X"}, .datatype = DATATYPE_FP32, .rank = 1, .dims = {-1}};
    const struct model_signature signature = {
        .batch_max = batch_max, .input_count = 1, .inputs = &input};
    const struct measure_subject subject = {.runtime = &fake_runtime,
                                            .signature = &signature,
                                            .name = "m",
                                            .digest = digest,
                                            .device_kind = "cpu",
                                            .core_count = 2};
    return measure_instance(&subject, NULL, state_dir, ret_table, error);
}

static void sizes_double_up_to_the_largest(void **state)
{
    struct service_table table = {0};
    struct error error = {0};
    (void)state;
    assert_int_equal(measured(6, "d", NULL, &table, &error), 0);
    assert_int_equal(table.count, 4);
    assert_int_equal(table.batch[0], 1);
    assert_int_equal(table.batch[1], 2);
    assert_int_equal(table.batch[2], 4);
    assert_int_equal(table.batch[3], 6);
    for (uint32_t i = 0; i < table.count; i++) {
        assert_true(table.ns[i] >= fake.base_ns + fake.row_ns * table.batch[i]);
        assert_true(i == 0 || table.ns[i] >= table.ns[i - 1]);
    }
    assert_int_equal(measured(4096, "d", NULL, &table, &error), 0);
    assert_int_equal(table.count, 13);
    assert_int_equal(table.batch[12], 4096);
    assert_int_equal(measured(0, "d", NULL, &table, &error), 0);
    assert_int_equal(table.count, 1);
}

static void slow_models_are_measured_within_the_time(void **state)
{
    struct service_table table = {0};
    struct error error = {0};
    (void)state;
    fake.base_ns = 0;
    fake.row_ns = 200 * NS_PER_MS;
    uint64_t start = clock_now_ns();
    assert_int_equal(measured(64, "d", NULL, &table, &error), 0);
    assert_true(clock_now_ns() - start < 2 * MEASURE_TIME_MAX_NS);
    assert_true(table.count >= 1 && table.count <= 4);
    assert_true(service_table_ns(&table, 64) >= 64 * fake.row_ns * 9 / 10);
}

static atomic_bool busy;

static void *keep_busy(void *arg)
{
    (void)arg;
    while (atomic_load(&busy)) {
    }
    return NULL;
}

static void what_a_busy_machine_adds_is_not_counted(void **state)
{
    struct service_table table = {0};
    struct error error = {0};
    cpu_set_t all, one;
    pthread_t others[3];
    (void)state;
    fake.row_ns = 20 * NS_PER_MS;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one); /* the others inherit it: a quarter is ours */
    atomic_store(&busy, true);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&others[i], NULL, keep_busy, NULL), 0);
    }
    assert_int_equal(measured(1, "d", NULL, &table, &error), 0);
    atomic_store(&busy, false);
    for (size_t i = 0; i < 3; i++) {
        pthread_join(others[i], NULL);
    }
    sched_setaffinity(0, sizeof all, &all);
    assert_true(table.ns[0] >= fake.row_ns);
    assert_true(table.ns[0] < fake.row_ns * 2);
}

static void measurements_are_kept_and_found_again(void **state)
{
    struct service_table first = {0}, second = {0};
    struct error error = {0};
    (void)state;
    assert_int_equal(measured(8, "d", folder, &first, &error), 0);
    unsigned runs = fake.runs;
    assert_int_equal(measured(8, "d", folder, &second, &error), 0);
    assert_int_equal(fake.runs - runs, 1); /* warm-up alone */
    assert_memory_equal(&first, &second, sizeof(first));
    runs = fake.runs;
    assert_int_equal(measured(8, "other", folder, &second, &error), 0);
    assert_true(fake.runs - runs > 4); /* another model is measured */
    runs = fake.runs;
    fake.version = "2";
    assert_int_equal(measured(8, "d", folder, &second, &error), 0);
    assert_true(fake.runs - runs > 4); /* so is another version of the runtime */
}

static void damaged_measurements_are_made_anew(void **state)
{
    static const char *const texts[] = {"",
                                        "{",
                                        "[]",
                                        "{\"batch\": [1], \"ns\": []}",
                                        "{\"batch\": [2, 1], \"ns\": [1, 1]}",
                                        "{\"batch\": [1, 2], \"ns\": [5, 3]}",
                                        "{\"batch\": [1], \"ns\": [-4]}"};
    struct service_table table = {0};
    struct error error = {0};
    char pattern[400];
    glob_t found;
    (void)state;
    assert_int_equal(measured(4, "d", folder, &table, &error), 0);
    (void)snprintf(pattern, sizeof(pattern), "%s/measurements/*", folder);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(glob(pattern, 0, NULL, &found), 0);
        assert_int_equal(found.gl_pathc, 1); /* no temporary file stays */
        kit_file_write(folder, found.gl_pathv[0] + strlen(folder) + 1, texts[i]);
        globfree(&found);
        unsigned runs = fake.runs;
        assert_int_equal(measured(4, "d", folder, &table, &error), 0);
        assert_true(fake.runs - runs > 3);
        assert_int_equal(table.count, 3);
    }
}

static void a_state_folder_that_cannot_be_written_is_no_error(void **state)
{
    struct service_table table = {0};
    struct error error = {0};
    (void)state;
    kit_file_write(folder, "measurements", "a file, not a folder");
    assert_int_equal(measured(2, "d", folder, &table, &error), 0);
    assert_int_equal(table.count, 2);
}

static void runs_that_fail_leave_the_time_unknown(void **state)
{
    struct service_table table = {.count = 7};
    struct error error = {0};
    (void)state;
    fake.fail_rows = 1;
    fake.fail_code = ERROR_INVALID_ARGUMENT;
    assert_int_equal(measured(8, "d", folder, &table, &error), 0);
    assert_int_equal(table.count, 0);
    fake.fail_rows = 4;
    assert_int_equal(measured(8, "d", folder, &table, &error), 0);
    assert_int_equal(table.count, 2); /* what ran is known */
    fake.fail_code = ERROR_UNAVAILABLE;
    assert_int_equal(measured(8, "d", folder, &table, &error), -ERROR_UNAVAILABLE);
    assert_string_equal(error.text, "no more rows than that");
}

static void times_between_and_beyond_are_projected(void **state)
{
    const struct service_table table = {.count = 3, .batch = {1, 2, 8}, .ns = {1000, 1400, 4400}};
    const struct service_table lone = {.count = 1, .batch = {4}, .ns = {4000}};
    const struct service_table level = {.count = 2, .batch = {1, 2}, .ns = {500, 500}};
    const struct service_table none = {0};
    (void)state;
    assert_int_equal(service_table_ns(&table, 0), 1000);
    assert_int_equal(service_table_ns(&table, 1), 1000);
    assert_int_equal(service_table_ns(&table, 5), 2900);
    assert_int_equal(service_table_ns(&table, 8), 4400);
    assert_int_equal(service_table_ns(&table, 16), 8400);
    assert_int_equal(service_table_ns(&lone, 1), 4000);
    assert_int_equal(service_table_ns(&lone, 8), 8000);
    assert_int_equal(service_table_ns(&level, 4000), 500);
    assert_int_equal(service_table_ns(&none, 4), 0);
}

static void rows_within_a_budget_are_found(void **state)
{
    const struct service_table table = {.count = 3, .batch = {1, 2, 8}, .ns = {1000, 1400, 4400}};
    const struct service_table none = {0};
    (void)state;
    assert_int_equal(service_table_rows(&table, 0, 8), 1);
    assert_int_equal(service_table_rows(&table, 1399, 8), 1);
    assert_int_equal(service_table_rows(&table, 1400, 8), 2);
    assert_int_equal(service_table_rows(&table, 2900, 8), 5);
    assert_int_equal(service_table_rows(&table, 1000000, 8), 8);
    assert_int_equal(service_table_rows(&table, 8400, 4096), 16);
    assert_int_equal(service_table_rows(&table, 1000000, 0), 1);
    assert_int_equal(service_table_rows(&none, 1000000, 8), 1);
}

int main(void)
{
#define FRESH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        FRESH(sizes_double_up_to_the_largest),
        FRESH(slow_models_are_measured_within_the_time),
        FRESH(what_a_busy_machine_adds_is_not_counted),
        FRESH(measurements_are_kept_and_found_again),
        FRESH(damaged_measurements_are_made_anew),
        FRESH(a_state_folder_that_cannot_be_written_is_no_error),
        FRESH(runs_that_fail_leave_the_time_unknown),
        cmocka_unit_test(times_between_and_beyond_are_projected),
        cmocka_unit_test(rows_within_a_budget_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
