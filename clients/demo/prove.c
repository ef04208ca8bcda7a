#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/demo/beside.h"
#include "clients/demo/demo.h"
#include "server/base/clock.h"

#define CALL_NS (10 * NS_PER_S)
#define TWIN_NS (10 * NS_PER_S)
#define TWIN_TRY_NS (200 * NS_PER_MS)

struct proof {
    uint64_t requests_ok, requests_failed, late, late_by_handover, handovers, slices;
    double p50_ms, p99_ms;
    uint64_t train_steps;
    double loss_first, loss_last;
    bool ledger_balanced, weights_equal;
    bool compared; /* with what others would have made of the same arrivals */
    struct beside split, keda;
};

/* Byte by byte: the exported models hold the weights and nothing that changes with time. */
static int files_equal(const char *first, const char *second, bool *ret_equal, struct error *error)
{
    FILE *files[2] = {fopen(first, "re"), fopen(second, "re")};
    int result = 0;
    bool equal = true;
    char buffers[2][65536];
    size_t counts[2] = {0, 0};
    if (files[0] == NULL || files[1] == NULL) {
        result = error_set_errno(error, errno, "open '%s'", files[0] == NULL ? first : second);
        goto out;
    }
    uint64_t total = 0;
    do {
        for (int i = 0; i < 2; i++) {
            counts[i] = fread(buffers[i], 1, sizeof(buffers[i]), files[i]);
        }
        equal = equal && counts[0] == counts[1] && memcmp(buffers[0], buffers[1], counts[0]) == 0;
        total += counts[0];
    } while (equal && counts[0] > 0);
    if (ferror(files[0]) || ferror(files[1]) || total == 0) {
        result =
            error_set(error, ERROR_DATA_LOSS, "'%s' or '%s' cannot be read whole", first, second);
        goto out;
    }
    *ret_equal = equal;
out:
    for (int i = 0; i < 2; i++) {
        if (files[i] != NULL) {
            fclose(files[i]);
        }
    }
    return result;
}

/* The twin run looks at answered requests some seconds after they were. */
static int status_settled(struct demo *demo, Tidepool__V1__Status **ret_status, struct error *error)
{
    uint64_t end = clock_now_ns() + TWIN_NS;
    for (;;) {
        Tidepool__V1__GetStatusRequest request = TIDEPOOL__V1__GET_STATUS_REQUEST__INIT;
        int result = control_call(demo->server.client, "GetStatus", &request.base, CALL_NS,
                                  ret_status, error);
        if (result < 0 || (*ret_status)->twin_requests >= (*ret_status)->requests_ok ||
            clock_now_ns() >= end) {
            return result;
        }
        control_free(*ret_status);
        *ret_status = NULL;
        struct timespec time = {.tv_nsec = (long)TWIN_TRY_NS};
        nanosleep(&time, NULL);
    }
}

static int training_prove(struct demo *demo, struct proof *proof, struct error *error)
{
    Tidepool__V1__Job *again = NULL, *more = NULL;
    char first[700], second[700];
    snprintf(first, sizeof(first), "%s/models/digits-wide/1/model.onnx", demo->server.folder);
    snprintf(second, sizeof(second), "%s/again/digits-wide/1/model.onnx", demo->server.folder);
    int result = demo_job_wait(&demo->server, demo->again_id, &again, error);
    if (result == 0 && demo->long_id[0] != '\0') {
        result = demo_job_get(&demo->server, demo->long_id, &more, error);
        result = result < 0 ? result : demo_job_cancel(&demo->server, demo->long_id, error);
    }
    if (result == 0) {
        result = files_equal(first, second, &proof->weights_equal, error);
    }
    if (result == 0) {
        proof->train_steps = again->step + (more == NULL ? 0 : more->step);
        proof->loss_first = again->loss_first;
        proof->loss_last = again->loss_last;
    }
    control_free(again);
    control_free(more);
    return result;
}

static int serving_prove(struct demo *demo, struct proof *proof, struct error *error)
{
    const struct load_result *load = demo->result;
    Tidepool__V1__Status *status = NULL;
    int result = status_settled(demo, &status, error);
    if (result == 0) {
        proof->requests_ok = load->total.ok;
        proof->requests_failed = load->total.failed;
        proof->late = load->total.late;
        proof->late_by_handover = status->late_by_handover;
        proof->p50_ms = (double)histogram_quantile(&load->latency, 0.5) / 1e6;
        proof->p99_ms = (double)histogram_quantile(&load->latency, 0.99) / 1e6;
        proof->handovers = status->handovers_total - demo->handovers_before;
        proof->slices = status->slices - demo->slices_before;
        proof->ledger_balanced = status->ledger_balanced;
    }
    control_free(status);
    return result;
}

static int others_prove(struct demo *demo, struct proof *proof, struct error *error)
{
    struct beside_run run = {
        .arrivals = &demo->waves.arrivals,
        .elapsed_ns = demo->result->elapsed_ns,
        .cost_ns = (uint64_t)(demo->cost_ms * 1e6),
        .slo_ns = (uint64_t)(DEMO_SLO_MS * 1e6),
        .devices = demo->devices,
        .steps_per_s = demo->alone_steps_per_s,
    };
    proof->compared = run.arrivals->whole && run.devices > 1 && run.cost_ns < run.slo_ns;
    if (!proof->compared) {
        return 0;
    }
    int result = beside_static(&run, &proof->split, error);
    return result < 0 ? result : beside_keda(&run, &proof->keda, error);
}

static json_t *beside_json(const struct beside *beside)
{
    return json_pack("{s:I,s:f}", "late", (json_int_t)beside->late, "train_steps", beside->steps);
}

static int proof_write(const struct demo *demo, const struct proof *proof, struct error *error)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/run.json", demo->build);
    json_t *value = json_pack(
        "{s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:I,s:I,s:I,s:f,s:f,s:b,s:b}", "requests_ok",
        (json_int_t)proof->requests_ok, "requests_failed", (json_int_t)proof->requests_failed,
        "late", (json_int_t)proof->late, "late_by_handover", (json_int_t)proof->late_by_handover,
        "p50_ms", proof->p50_ms, "p99_ms", proof->p99_ms, "slo_ms", DEMO_SLO_MS, "handovers",
        (json_int_t)proof->handovers, "slices", (json_int_t)proof->slices, "train_steps",
        (json_int_t)proof->train_steps, "train_loss_first", proof->loss_first, "train_loss_last",
        proof->loss_last, "ledger_balanced", proof->ledger_balanced, "weights_equal",
        proof->weights_equal);
    if (value != NULL && proof->compared) {
        (void)json_object_set_new(value, "static_split", beside_json(&proof->split));
        (void)json_object_set_new(value, "keda_timing", beside_json(&proof->keda));
    }
    int written =
        value == NULL ? -1 : json_dump_file(value, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(value);
    return written == 0 ? 0 : error_set_errno(error, errno, "write '%s'", path);
}

static void beside_print(const char *name, const struct beside *beside, const char *how)
{
    printf("  %-11s %" PRIu64 " late, %.0f steps: %s\n", name, beside->late, beside->steps, how);
}

static void others_print(const struct proof *proof)
{
    if (!proof->compared) {
        return;
    }
    printf("  the same arrivals in virtual time, where devices change hands at no cost:\n");
    beside_print("split", &proof->split, "half of the devices serve, the others train");
    beside_print("KEDA", &proof->keda, "a look each 30 s, up after 15 s, down after 300 s");
}

static void proof_print(const struct demo *demo, const struct proof *proof)
{
    const struct load_result *load = demo->result;
    double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    printf("\nWhat this run proved\n"
           "  requests    sent %" PRIu64 ", answered %" PRIu64 ", failed %" PRIu64 "\n",
           load->total.sent, proof->requests_ok, proof->requests_failed);
    printf("  latency     p50 %.1f ms, p99 %.1f ms, promised %.0f ms; late %" PRIu64
           ", of these because a device changed hands %" PRIu64 "\n",
           proof->p50_ms, proof->p99_ms, DEMO_SLO_MS, proof->late, proof->late_by_handover);
    printf("  devices     %" PRIu64 " hand-overs, %" PRIu64
           " slices (a batch took the device from training, which went on where it stood)\n",
           proof->handovers, proof->slices);
    printf("  training    %" PRIu64 " steps kept under load, loss %.4f to %.4f\n",
           proof->train_steps, proof->loss_first, proof->loss_last);
    printf("  weights     %s to those of the undisturbed run, byte by byte\n",
           proof->weights_equal ? "equal" : "NOT EQUAL");
    printf("  ledger      every device-second %s\n",
           proof->ledger_balanced ? "is in exactly one account" : "DOES NOT ADD UP");
    others_print(proof);
    printf("  generator   %.1f %% of the machine\n\n",
           load->elapsed_ns == 0 ? 0
                                 : 100.0 * (double)load->cpu_ns / (double)load->elapsed_ns / cores);
}

int demo_prove(struct demo *demo, bool *ret_good, struct error *error)
{
    struct proof proof = {0};
    int result = training_prove(demo, &proof, error);
    result = result < 0 ? result : serving_prove(demo, &proof, error);
    result = result < 0 ? result : others_prove(demo, &proof, error);
    result = result < 0 ? result : proof_write(demo, &proof, error);
    if (result == 0) {
        proof_print(demo, &proof);
        *ret_good = proof.requests_ok > 0 && proof.requests_failed == 0 && proof.weights_equal &&
                    proof.ledger_balanced;
    }
    return result;
}
