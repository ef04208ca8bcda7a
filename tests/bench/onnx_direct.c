/* onnx_direct.c: ONNX Runtime called in a loop, the baseline of the endpoint's throughput.
 *     onnx_direct MODEL INPUT OUTPUT WIDTH BATCH [CORE]
 * Reads lines "<seconds>" from standard input; for each one runs batches of BATCH × WIDTH FP32 for
 * that long and answers "<batches> <wall ns> <thread CPU ns>". Session options are the server's. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/onnx/api.h"
#include "models/runtime.h"
#include "server/base/clock.h"
#include "server/base/log.h"

struct direct {
    const struct onnx_api *api;
    struct ort_options *options;
    struct ort_session *session;
    struct ort_value *input;
    const char *input_name, *output_name;
    float *data;
    int64_t dims[2];
};

static void check(struct ort_status *status, const char *what)
{
    struct error error;
    if (onnx_check(status, ERROR_INTERNAL, what, &error) < 0) {
        fprintf(stderr, "onnx_direct: %s\n", error.text);
        exit(1);
    }
}

static void open_session(struct direct *direct, const char *path)
{
    const struct onnx_api *api = direct->api;
    check(api->options_create(&direct->options), "options");
    check(api->options_threads(direct->options, 1), "threads");
    check(api->options_inter_threads(direct->options, 1), "threads");
    check(api->options_mode(direct->options, ORT_SEQUENTIAL), "mode");
    check(api->session_from_file(api->env, path, direct->options, NULL, &direct->session), path);
}

static void make_input(struct direct *direct)
{
    size_t count = (size_t)(direct->dims[0] * direct->dims[1]);
    direct->data = calloc(count, sizeof(float));
    if (direct->data == NULL) {
        fprintf(stderr, "onnx_direct: no memory\n");
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        direct->data[i] = (float)(i % 17) / 17.0f;
    }
    check(direct->api->value_over(direct->api->memory, direct->data, count * sizeof(float),
                                  direct->dims, 2, ORT_FLOAT, &direct->input),
          "input");
}

static void run_once(struct direct *direct)
{
    struct ort_value *output = NULL;
    const struct ort_value *input = direct->input;
    check(direct->api->run(direct->session, NULL, &direct->input_name, &input, 1,
                           &direct->output_name, 1, &output),
          "run");
    direct->api->value_release(output);
}

static void run_for(struct direct *direct, uint64_t duration_ns)
{
    uint64_t batches = 0, cpu_ns = clock_thread_cpu_ns(), begin_ns = clock_now_ns(), now_ns;
    do {
        run_once(direct);
        batches++;
        now_ns = clock_now_ns();
    } while (now_ns - begin_ns < duration_ns);
    printf("%llu %llu %llu\n", (unsigned long long)batches, (unsigned long long)(now_ns - begin_ns),
           (unsigned long long)(clock_thread_cpu_ns() - cpu_ns));
    fflush(stdout);
}

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set) < 0) {
        fprintf(stderr, "onnx_direct: core %d: %s\n", core, strerror(errno));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct direct direct = {0};
    struct error error;
    char line[64];
    if (argc < 6 || argc > 7) {
        fprintf(stderr, "usage: onnx_direct MODEL INPUT OUTPUT WIDTH BATCH [CORE]\n");
        return 2;
    }
    if (argc == 7) {
        pin(atoi(argv[6]));
    }
    log_open(2, LOG_WARN, false);
    if (onnx_open(&error) < 0) {
        fprintf(stderr, "onnx_direct: %s\n", error.text);
        return 1;
    }
    direct.api = onnx_api();
    direct.input_name = argv[2];
    direct.output_name = argv[3];
    direct.dims[0] = atoll(argv[5]);
    direct.dims[1] = atoll(argv[4]);
    open_session(&direct, argv[1]);
    make_input(&direct);
    run_once(&direct); /* memory arenas and packed weights are there after the first run */
    while (fgets(line, sizeof(line), stdin) != NULL) {
        run_for(&direct, (uint64_t)(atof(line) * (double)NS_PER_S));
    }
    direct.api->value_release(direct.input);
    direct.api->session_release(direct.session);
    direct.api->options_release(direct.options);
    free(direct.data);
    return 0;
}
