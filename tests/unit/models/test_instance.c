/* Running batches: bytes in, bytes out, and what goes wrong between. */
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kit.h"
#include "models/onnx/model.h"
#include "server/base/clock.h"

static int run(struct kit *kit, const struct tensor *inputs, uint32_t rows, struct tensor *outputs,
               struct error *error)
{
    const struct run_request request = {.inputs = inputs, .rows = rows};
    return onnx_runtime.run(kit->instance, &request, 1, outputs, error);
}

static void every_datatype_comes_back_unchanged(void **state)
{
    static const char *const names[] = {"fp32", "fp64",   "int64",  "int32",  "int16",
                                        "int8", "uint64", "uint32", "uint16", "uint8",
                                        "bool", "fp16",   "bf16"};
    unsigned char data[64];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char model[64];
        struct kit kit;
        struct tensor output;
        struct error error = {0};
        (void)snprintf(model, sizeof(model), "identity_%s", names[i]);
        kit_open(&kit, model, 8, 1);
        enum datatype datatype = kit.signature->inputs[0].datatype;
        size_t bytes = 6 * datatype_bytes(datatype);
        for (size_t k = 0; k < bytes; k++) {
            data[k] = (unsigned char)(datatype == DATATYPE_BOOL ? k & 1 : k * 37 + 1);
        }
        const struct tensor input = {
            .datatype = datatype, .rank = 2, .dims = {2, 3}, .data = data, .bytes = bytes};
        assert_int_equal(run(&kit, &input, 2, &output, &error), 0);
        assert_int_equal(output.datatype, datatype);
        assert_int_equal(output.dims[0], 2);
        assert_int_equal(output.dims[1], 3);
        assert_int_equal(output.bytes, bytes);
        assert_memory_equal(output.data, data, bytes);
        kit_close(&kit);
    }
}

static void bytes_that_are_not_aligned_are_taken(void **state)
{
    struct kit kit;
    struct tensor output;
    struct error error = {0};
    const float values[] = {1, 2, 3, 4};
    unsigned char space[sizeof(values) + 1];
    (void)state;
    kit_open(&kit, "add_one", 16, 1);
    memcpy(space + 1, values, sizeof(values));
    struct tensor input = kit_floats(values, 1, 4);
    input.data = space + 1;
    assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
    assert_true(((const float *)output.data)[3] == 5);
    kit_close(&kit);
}

/* Batches of changing sizes: each answer has its own rows and nothing of an earlier run. */
static void each_request_gets_its_own_rows(void **state)
{
    static const uint32_t sizes[][4] = {{10, 2, 1, 3}, {1, 1, 0, 0}, {3, 10, 2, 1}, {16, 0, 0, 0}};
    struct kit kit;
    float next = 0;
    (void)state;
    kit_open(&kit, "add_one", 16, 1);
    for (int round = 0; round < 40; round++) {
        float values[4][64];
        struct tensor inputs[4], outputs[4];
        struct run_request requests[4];
        struct error error = {0};
        size_t count = 0;
        for (; count < 4 && sizes[round % 4][count] > 0; count++) {
            uint32_t rows = sizes[round % 4][count];
            for (size_t k = 0; k < 4 * rows; k++) {
                values[count][k] = next++;
            }
            inputs[count] = kit_floats(values[count], rows, 4);
            requests[count] = (struct run_request){&inputs[count], rows};
        }
        assert_int_equal(onnx_runtime.run(kit.instance, requests, count, outputs, &error), 0);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(outputs[i].dims[0], requests[i].rows);
            assert_int_equal(outputs[i].bytes, requests[i].rows * 16);
            for (size_t k = 0; k < 4 * requests[i].rows; k++) {
                assert_true(((const float *)outputs[i].data)[k] == values[i][k] + 1);
            }
        }
    }
    kit_close(&kit);
}

static void two_inputs_and_outputs_keep_their_order(void **state)
{
    struct kit kit;
    const float floats[] = {1, 2, 3, 4};
    const int32_t numbers[] = {10, 20, 30, 40};
    const struct tensor inputs[] = {kit_floats(floats, 1, 4),
                                    {.datatype = DATATYPE_INT32,
                                     .rank = 2,
                                     .dims = {1, 4},
                                     .data = numbers,
                                     .bytes = sizeof(numbers)}};
    const struct run_request requests[] = {{inputs, 1}, {inputs, 1}};
    struct tensor outputs[4];
    struct error error = {0};
    (void)state;
    kit_open(&kit, "two_inputs", 8, 1);
    assert_int_equal(onnx_runtime.run(kit.instance, requests, 2, outputs, &error), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_true(((const float *)outputs[2 * i].data)[3] == 44);
        assert_memory_equal(outputs[2 * i + 1].data, numbers, sizeof(numbers));
    }
    kit_close(&kit);
}

static size_t element_add(unsigned char *at, const void *text, uint32_t length)
{
    memcpy(at, &length, 4); /* the tests run on little-endian machines */
    memcpy(at + 4, text, length);
    return 4 + (size_t)length;
}

static void byte_strings_come_back_unchanged(void **state)
{
    enum { LONG = 1 << 20 };
    unsigned char *wire = malloc(LONG + 128);
    char *longest = malloc(LONG);
    size_t length = 0;
    struct kit kit;
    struct tensor output;
    struct error error = {0};
    (void)state;
    assert_non_null(wire);
    assert_non_null(longest);
    memset(longest, 'x', LONG);
    length += element_add(wire + length, "", 0);
    length += element_add(wire + length, "a", 1);
    length += element_add(wire + length, "a\0b", 3);
    length += element_add(wire + length, "c\0\0", 3);
    length += element_add(wire + length, "\xff\xfe\x80", 3);
    length += element_add(wire + length, longest, LONG);
    kit_open(&kit, "identity_bytes", 0, 1);
    struct tensor input = {
        .datatype = DATATYPE_BYTES, .rank = 1, .dims = {6}, .data = wire, .bytes = length};
    assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
    assert_int_equal(output.dims[0], 6);
    assert_int_equal(output.bytes, length);
    assert_memory_equal(output.data, wire, length);
    input.dims[0] = 0;
    input.bytes = 0;
    assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
    assert_int_equal(output.bytes, 0);
    kit_close(&kit);
    free(longest);
    free(wire);
}

static void byte_strings_are_cut_by_request(void **state)
{
    unsigned char first[64], second[64];
    size_t first_length = 0, second_length = 0;
    struct kit kit;
    struct error error = {0};
    struct tensor outputs[2];
    (void)state;
    first_length += element_add(first, "one", 3);
    first_length += element_add(first + first_length, "", 0);
    for (int i = 0; i < 4; i++) {
        second_length += element_add(second + second_length, "second", (uint32_t)i + 1);
    }
    const struct tensor inputs[] = {{.datatype = DATATYPE_BYTES,
                                     .rank = 2,
                                     .dims = {1, 2},
                                     .data = first,
                                     .bytes = first_length},
                                    {.datatype = DATATYPE_BYTES,
                                     .rank = 2,
                                     .dims = {2, 2},
                                     .data = second,
                                     .bytes = second_length}};
    const struct run_request requests[] = {{&inputs[0], 1}, {&inputs[1], 2}};
    kit_open(&kit, "strings_batch", 8, 1);
    assert_int_equal(onnx_runtime.run(kit.instance, requests, 2, outputs, &error), 0);
    assert_int_equal(outputs[0].bytes, first_length);
    assert_memory_equal(outputs[0].data, first, first_length);
    assert_int_equal(outputs[1].dims[0], 2);
    assert_int_equal(outputs[1].bytes, second_length);
    assert_memory_equal(outputs[1].data, second, second_length);
    kit_close(&kit);
}

static void bad_values_are_the_requests_fault(void **state)
{
    struct kit kit;
    const int64_t bad = 99, good = 1;
    struct tensor input = {
        .datatype = DATATYPE_INT64, .rank = 2, .dims = {1, 1}, .data = &bad, .bytes = 8};
    struct tensor output;
    struct error error = {0};
    (void)state;
    kit_open(&kit, "gather_fails", 8, 1);
    assert_int_equal(run(&kit, &input, 1, &output, &error), -ERROR_INVALID_ARGUMENT);
    assert_string_equal(error.text, "model 'gather_fails': indices element out of data bounds, "
                                    "idx=99 must be within the inclusive range [-4,3]");
    input.data = &good;
    assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
    assert_true(((const float *)output.data)[0] == 11);
    kit_close(&kit);
}

static void missing_rows_are_the_models_fault(void **state)
{
    struct kit kit;
    const float values[] = {2e6F, 0, 0, 0, 1, 1, 1, 1};
    const struct tensor input = kit_floats(values, 2, 4);
    struct tensor output;
    struct error error = {0};
    (void)state;
    kit_open(&kit, "shrinking_rows", 8, 1);
    assert_int_equal(run(&kit, &input, 2, &output, &error), -ERROR_INTERNAL);
    assert_non_null(strstr(error.text, "model 'shrinking_rows' gave 1 rows in output 'OUTPUT' "
                                       "(shape [1,4]) for a batch of 2"));
    kit_close(&kit);
}

struct abort_plan {
    struct instance *instance;
    _Atomic bool running, done;
};

/* Aborts again and again: a run that has only just begun takes the first one back. */
static void *abort_main(void *arg)
{
    struct abort_plan *plan = arg;
    while (!atomic_load(&plan->running)) {
    }
    while (!atomic_load(&plan->done)) {
        onnx_runtime.instance_abort(plan->instance);
    }
    return NULL;
}

static void an_aborted_run_ends_and_the_next_is_fresh(void **state)
{
    struct kit kit;
    int64_t rounds = 50000000; /* minutes */
    const struct tensor input = {
        .datatype = DATATYPE_INT64, .rank = 2, .dims = {1, 1}, .data = &rounds, .bytes = 8};
    struct tensor output;
    struct error error = {0};
    struct abort_plan plan = {0};
    pthread_t thread;
    (void)state;
    kit_open(&kit, "loop", 4, 1);
    plan.instance = kit.instance;
    assert_int_equal(pthread_create(&thread, NULL, abort_main, &plan), 0);
    atomic_store(&plan.running, true);
    assert_int_equal(run(&kit, &input, 1, &output, &error), -ERROR_CANCELLED);
    atomic_store(&plan.done, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rounds = 3;
    assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
    assert_int_equal(*(const int64_t *)output.data, 3);
    kit_close(&kit);
}

/* Runs are shorter than a time slice: the abort of one is often just being made when the next
 * begins. */
static void no_abort_outlives_the_run_after_it(void **state)
{
    struct kit kit;
    int64_t rounds = 1;
    const struct tensor input = {
        .datatype = DATATYPE_INT64, .rank = 2, .dims = {1, 1}, .data = &rounds, .bytes = 8};
    struct tensor output;
    struct error error = {0};
    (void)state;
    kit_open(&kit, "loop", 4, 1);
    for (int i = 0; i < 20; i++) {
        struct abort_plan plan = {.instance = kit.instance, .running = true};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, abort_main, &plan), 0);
        for (int k = 0; k < 1000; k++) {
            (void)run(&kit, &input, 1, &output, &error); /* ended or not */
        }
        atomic_store(&plan.done, true);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
    }
    kit_close(&kit);
}

/* Before the library is opened: this thread, and a sanitizer's own, which comes with the first. */
static unsigned threads_at_start;

static void *nothing_main(void *arg)
{
    return arg;
}

static int setup(void **state)
{
    pthread_t thread;
    DIR *tasks;
    if (pthread_create(&thread, NULL, nothing_main, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        return -1;
    }
    tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL) {
        threads_at_start++;
    }
    (void)closedir(tasks);
    threads_at_start -= 2; /* . and .. */
    return kit_library_set(state);
}

/* Counts this process's threads and those that keep exactly to the cores. */
static unsigned threads_count(const cpu_set_t *device, unsigned *ret_on_device)
{
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    unsigned threads = 0;
    *ret_on_device = 0;
    assert_non_null(tasks);
    while ((entry = readdir(tasks)) != NULL) {
        cpu_set_t found;
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread > 0 && sched_getaffinity(thread, sizeof(found), &found) == 0) {
            threads++;
            *ret_on_device += CPU_EQUAL(&found, device);
        }
    }
    (void)closedir(tasks);
    return threads;
}

/* Every thread of this process, the library's included, keeps to the cores that were given. The
 * library's threads pin themselves when they first run, so that is waited for. */
static void all_threads_keep_to_the_devices_cores(void **state)
{
    cpu_set_t all, device;
    struct kit kit = {0};
    unsigned threads, on_device;
    int cpu = 0; /* the first that this process may use */
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    while (!CPU_ISSET(cpu, &all)) {
        cpu++;
    }
    CPU_ZERO(&device);
    CPU_SET(cpu, &device);
    const struct model_source source = {
        .name = "m", .path = kit_path("dense_small"), .batch_max = 8};
    const struct instance_place place = {.device_kind = "cpu", .cores = device, .thread_count = 3};
    struct error error = {0};
    assert_int_equal(onnx_runtime.load(&source, &kit.model, &error), 0);
    assert_int_equal(onnx_runtime.instance_create(kit.model, &place, &kit.instance, &error), 0);
    uint64_t until = clock_now_ns() + 10 * NS_PER_S;
    do {
        threads = threads_count(&device, &on_device);
    } while (on_device < 2 && clock_now_ns() < until);
    assert_int_equal(on_device, CPU_EQUAL(&all, &device) ? 3 : 2);
    assert_int_equal(threads, threads_at_start + 2); /* the library has no others */
    kit_close(&kit);
}

static void affinities_are_written_in_the_librarys_grammar(void **state)
{
    cpu_set_t cores;
    char text[2048];
    (void)state;
    CPU_ZERO(&cores);
    CPU_SET(0, &cores);
    CPU_SET(1, &cores);
    CPU_SET(2, &cores);
    CPU_SET(5, &cores);
    assert_int_equal(onnx_affinities_print(&cores, 2, text, sizeof(text)), 0);
    assert_string_equal(text, "1-3,6;1-3,6");
    assert_int_equal(onnx_affinities_print(&cores, 0, text, sizeof(text)), 0);
    assert_string_equal(text, "");
    assert_int_equal(onnx_affinities_print(&cores, 400, text, sizeof(text)), -1);
    CPU_ZERO(&cores);
    assert_int_equal(onnx_affinities_print(&cores, 1, text, sizeof(text)), -1);
}

static uint64_t resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    (void)fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* 32 MiB of weights: three more instances, and still only one copy of them, packed or not. */
static void instances_of_a_model_share_its_weights(void **state)
{
    struct kit kit;
    struct instance *more[3];
    struct tensor output;
    struct error error = {0};
    float *values = calloc(2048, sizeof(float));
    (void)state;
    assert_non_null(values);
    kit_open(&kit, "heavy", 8, 1);
    const struct tensor input = kit_floats(values, 1, 2048);
    assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
    struct instance_place place = {.device_kind = "cpu", .thread_count = 1};
    uint64_t before = resident_bytes();
    for (size_t i = 0; i < 3; i++) {
        const struct run_request request = {&input, 1};
        assert_int_equal(onnx_runtime.instance_create(kit.model, &place, &more[i], &error), 0);
        assert_int_equal(onnx_runtime.run(more[i], &request, 1, &output, &error), 0);
    }
    uint64_t after = resident_bytes();
    print_message("three more instances took %" PRIu64 " KiB\n", (after - before) / 1024);
    for (size_t i = 0; i < 3; i++) {
        onnx_runtime.instance_destroy(more[i]);
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(after < before + (8 << 20)); /* one copy more would be 32 MiB, packed 64 */
#endif
    kit_close(&kit);
    free(values);
}

/* 64 requests of 512 KiB at once, then small ones: the memory comes back, and results stay right.
 */
static void memory_of_a_large_batch_is_given_back(void **state)
{
    enum { WIDTH = 131072, REQUESTS = 64 };
    static struct tensor outputs[REQUESTS];
    struct run_request requests[REQUESTS];
    struct kit kit;
    struct error error = {0};
    float *values = malloc(WIDTH * sizeof(float));
    (void)state;
    assert_non_null(values);
    for (size_t i = 0; i < WIDTH; i++) {
        values[i] = (float)i;
    }
    const struct tensor large = kit_floats(values, 1, WIDTH), small = kit_floats(values, 1, 8);
    const struct run_request one = {&small, 1};
    for (size_t i = 0; i < REQUESTS; i++) {
        requests[i] = (struct run_request){&large, 1};
    }
    kit_open(&kit, "identity_fp32", 64, 1);
    assert_int_equal(onnx_runtime.run(kit.instance, &one, 1, outputs, &error), 0);
    uint64_t before = resident_bytes();
    assert_int_equal(onnx_runtime.run(kit.instance, requests, REQUESTS, outputs, &error), 0);
    assert_memory_equal(outputs[REQUESTS - 1].data, values, WIDTH * sizeof(float));
    uint64_t grown = resident_bytes();
    for (int i = 0; i < 200; i++) {
        assert_int_equal(onnx_runtime.run(kit.instance, &one, 1, outputs, &error), 0);
        assert_memory_equal(outputs[0].data, values, 8 * sizeof(float));
    }
    uint64_t after = resident_bytes();
    print_message("before %" PRIu64 ", grown %" PRIu64 ", after %" PRIu64 " MiB\n", before >> 20,
                  grown >> 20, after >> 20);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(grown > before + (40 << 20));
    assert_true(after < before + (4 << 20));
#endif
    kit_close(&kit);
    free(values);
}

static void declared_memory_counts_weights_beside_the_file(void **state)
{
    struct kit kit;
    (void)state;
    kit_open(&kit, "external", 8, 1);
    assert_true(onnx_runtime.instance_bytes(kit.instance) > 1024 * 4 * sizeof(float));
    kit_close(&kit);
}

static void *instances_main(void *arg)
{
    struct model *model = arg;
    const struct instance_place place = {.device_kind = "cpu", .thread_count = 1};
    const float values[384] = {1};
    const struct tensor input = kit_floats(values, 1, 384);
    const struct run_request request = {&input, 1};
    intptr_t bad = 0;
    for (int i = 0; i < 5; i++) {
        struct instance *instance = NULL;
        struct tensor output;
        struct error error = {0};
        bad += onnx_runtime.instance_create(model, &place, &instance, &error) != 0 ||
               onnx_runtime.run(instance, &request, 1, &output, &error) != 0;
        onnx_runtime.instance_destroy(instance);
    }
    return (void *)bad;
}

static void instances_are_made_on_many_threads_at_once(void **state)
{
    pthread_t threads[4];
    struct kit kit;
    (void)state;
    kit_open(&kit, "dense_small", 8, 1);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, instances_main, kit.model), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *bad = NULL;
        assert_int_equal(pthread_join(threads[i], &bad), 0);
        assert_null(bad);
    }
    kit_close(&kit);
}

static void loading_and_unloading_does_not_leak(void **state)
{
    uint64_t before = 0;
    (void)state;
    for (int i = 0; i < 120; i++) {
        struct kit kit;
        struct tensor output;
        struct error error = {0};
        const float values[] = {1, 2, 3, 4};
        const struct tensor input = kit_floats(values, 1, 4);
        kit_open(&kit, "add_one", 16, 1);
        assert_int_equal(run(&kit, &input, 1, &output, &error), 0);
        kit_close(&kit);
        before = i == 40 ? resident_bytes() : before;
    }
    uint64_t after = resident_bytes();
    print_message("80 loads more took %" PRId64 " KiB\n", ((int64_t)(after - before)) / 1024);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(after < before + (1 << 20));
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_datatype_comes_back_unchanged),
        cmocka_unit_test(bytes_that_are_not_aligned_are_taken),
        cmocka_unit_test(each_request_gets_its_own_rows),
        cmocka_unit_test(two_inputs_and_outputs_keep_their_order),
        cmocka_unit_test(byte_strings_come_back_unchanged),
        cmocka_unit_test(byte_strings_are_cut_by_request),
        cmocka_unit_test(bad_values_are_the_requests_fault),
        cmocka_unit_test(missing_rows_are_the_models_fault),
        cmocka_unit_test(an_aborted_run_ends_and_the_next_is_fresh),
        cmocka_unit_test(no_abort_outlives_the_run_after_it),
        cmocka_unit_test(all_threads_keep_to_the_devices_cores),
        cmocka_unit_test(affinities_are_written_in_the_librarys_grammar),
        cmocka_unit_test(instances_of_a_model_share_its_weights),
        cmocka_unit_test(memory_of_a_large_batch_is_given_back),
        cmocka_unit_test(declared_memory_counts_weights_beside_the_file),
        cmocka_unit_test(instances_are_made_on_many_threads_at_once),
        cmocka_unit_test(loading_and_unloading_does_not_leak),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
