#include "server/rpc/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "server/base/clock.h"
#include "server/control/view.h"
#include "server/observe/metrics.h"
#include "server/serve/statistics.h"

/* All endpoints with their figures, taken once for the whole page. */
struct snapshot {
    size_t count;
    struct endpoint **endpoints;
    struct endpoint_statistics *statistics;
};

static void snapshot_free(struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count; i++) {
        endpoint_release(snapshot->endpoints[i]);
    }
    free(snapshot->endpoints);
    free(snapshot->statistics);
}

static bool snapshot_take(struct serve *serve, struct snapshot *snapshot)
{
    size_t capacity = serve_endpoints(serve, NULL, 0) + 16; /* some may come meanwhile */
    *snapshot = (struct snapshot){0};
    snapshot->endpoints = calloc(capacity, sizeof *snapshot->endpoints);
    snapshot->statistics = calloc(capacity, sizeof *snapshot->statistics);
    if (snapshot->endpoints == NULL || snapshot->statistics == NULL) {
        snapshot_free(snapshot);
        return false;
    }
    size_t count = serve_endpoints(serve, snapshot->endpoints, capacity);
    snapshot->count = count < capacity ? count : capacity;
    for (size_t i = 0; i < snapshot->count; i++) {
        endpoint_statistics(snapshot->endpoints[i], &snapshot->statistics[i]);
    }
    return true;
}

/* ---- endpoints
 * ------------------------------------------------------------------------------------ */

static uint64_t us(uint64_t ns)
{
    return ns / NS_PER_US;
}

static uint64_t get_success(const struct endpoint_statistics *s)
{
    return s->success;
}
static uint64_t get_inference(const struct endpoint_statistics *s)
{
    return s->inference;
}
static uint64_t get_executions(const struct endpoint_statistics *s)
{
    return s->executions;
}
static uint64_t get_request_us(const struct endpoint_statistics *s)
{
    return us(s->success_ns);
}
static uint64_t get_queue_us(const struct endpoint_statistics *s)
{
    return us(s->queue_ns);
}
static uint64_t get_input_us(const struct endpoint_statistics *s)
{
    return us(s->input_ns);
}
static uint64_t get_infer_us(const struct endpoint_statistics *s)
{
    return us(s->infer_ns);
}
static uint64_t get_output_us(const struct endpoint_statistics *s)
{
    return us(s->output_ns);
}
static uint64_t get_pending(const struct endpoint_statistics *s)
{
    return s->pending;
}
static uint64_t get_late(const struct endpoint_statistics *s)
{
    return s->late;
}
static uint64_t get_inline(const struct endpoint_statistics *s)
{
    return s->inline_executions;
}
static uint64_t get_requeued(const struct endpoint_statistics *s)
{
    return s->requeued;
}

static const struct {
    const char *name, *help;
    enum metrics_type type;
    uint64_t (*get)(const struct endpoint_statistics *statistics);
} families[] = {
    {"nv_inference_request_success", "Number of successful inference requests, all batch sizes",
     METRICS_COUNTER, get_success},
    {"nv_inference_count", "Number of inferences performed (does not include cached requests)",
     METRICS_COUNTER, get_inference},
    {"nv_inference_exec_count", "Number of model executions performed", METRICS_COUNTER,
     get_executions},
    {"nv_inference_request_duration_us", "Cumulative inference request duration in microseconds",
     METRICS_COUNTER, get_request_us},
    {"nv_inference_queue_duration_us", "Cumulative inference queuing duration in microseconds",
     METRICS_COUNTER, get_queue_us},
    {"nv_inference_compute_input_duration_us", "Cumulative compute input duration in microseconds",
     METRICS_COUNTER, get_input_us},
    {"nv_inference_compute_infer_duration_us",
     "Cumulative compute inference duration in microseconds", METRICS_COUNTER, get_infer_us},
    {"nv_inference_compute_output_duration_us",
     "Cumulative inference compute output duration in microseconds", METRICS_COUNTER,
     get_output_us},
    {"nv_inference_pending_request_count", "Instantaneous number of pending requests per model",
     METRICS_GAUGE, get_pending},
    {"tidepool_requests_late", "Requests answered later than the endpoint's SLO", METRICS_COUNTER,
     get_late},
    {"tidepool_inline_executions", "Model executions on the network thread that read their request",
     METRICS_COUNTER, get_inline},
    {"tidepool_requests_requeued", "Requests put back because their device failed", METRICS_COUNTER,
     get_requeued},
};

static void label_endpoint(struct metrics_label labels[2], struct endpoint *endpoint)
{
    labels[0] = (struct metrics_label){"model", endpoint_name(endpoint)};
    labels[1] = (struct metrics_label){"version", endpoint_version(endpoint)};
}

static void write_counters(struct metrics_page *page, const struct snapshot *snapshot)
{
    struct metrics_label labels[2];
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        metrics_family(page, families[i].name, families[i].type, families[i].help);
        for (size_t j = 0; j < snapshot->count; j++) {
            label_endpoint(labels, snapshot->endpoints[j]);
            metrics_series(page, labels, 2, families[i].get(&snapshot->statistics[j]));
        }
    }
}

static void write_failures(struct metrics_page *page, const struct snapshot *snapshot)
{
    struct metrics_label labels[3];
    metrics_family(page, "nv_inference_request_failure", METRICS_COUNTER,
                   "Number of failed inference requests, all batch sizes");
    for (size_t i = 0; i < snapshot->count; i++) {
        label_endpoint(labels, snapshot->endpoints[i]);
        for (int reason = 0; reason < FAILURE_COUNT; reason++) {
            labels[2] =
                (struct metrics_label){"reason", failure_reason_name((enum failure_reason)reason)};
            metrics_series(page, labels, 3, snapshot->statistics[i].failed[reason]);
        }
    }
    metrics_family(page, "tidepool_requests_refused", METRICS_COUNTER,
                   "Requests refused before they were queued, by reason");
    for (size_t i = 0; i < snapshot->count; i++) {
        label_endpoint(labels, snapshot->endpoints[i]);
        for (int reason = 0; reason < REFUSAL_COUNT; reason++) {
            labels[2] =
                (struct metrics_label){"reason", refusal_reason_name((enum refusal_reason)reason)};
            metrics_series(page, labels, 3, snapshot->statistics[i].refused[reason]);
        }
    }
}

/* Every doubling of the endpoint's buckets becomes one of the page's. */
static void write_latency(struct metrics_page *page, const struct snapshot *snapshot)
{
    double bounds[LATENCY_OCTAVES];
    struct metrics_label labels[2];
    for (int octave = 0; octave < LATENCY_OCTAVES; octave++) {
        bounds[octave] = ldexp(1, LATENCY_SHIFT + octave) / 1e9;
    }
    metrics_family(page, "tidepool_request_latency_seconds", METRICS_HISTOGRAM,
                   "From the arrival of a request to its answer");
    for (size_t i = 0; i < snapshot->count; i++) {
        uint64_t counts[LATENCY_OCTAVES + 1] = {0};
        const struct endpoint_statistics *statistics = &snapshot->statistics[i];
        for (uint32_t bucket = 0; bucket < LATENCY_BUCKETS; bucket++) {
            double bound = (double)latency_bound_ns(bucket) / 1e9;
            int place = 0;
            while (place < LATENCY_OCTAVES && bounds[place] < bound) {
                place++;
            }
            counts[place] += statistics->latency[bucket];
        }
        label_endpoint(labels, snapshot->endpoints[i]);
        metrics_histogram(page, labels, 2, bounds, counts, LATENCY_OCTAVES,
                          (double)statistics->success_ns / 1e9);
    }
}

/* ---- devices, hand-overs, ledger
 * ---------------------------------------------------------------------- */

static void write_by_state(struct metrics_page *page, const struct control_figures *figures)
{
    struct metrics_label label = {.name = "state"};
    metrics_family(page, "tidepool_devices", METRICS_GAUGE, "Devices by state");
    for (int state = CONTROL_DEVICE_FREE; state < CONTROL_DEVICE_STATES; state++) {
        label.value = control_device_state_name((enum control_device_state)state);
        metrics_series(page, &label, 1, figures->devices_by_state[state]);
    }
    metrics_family(page, "tidepool_jobs", METRICS_GAUGE,
                   "Jobs by state; ended ones as long as they are remembered");
    for (int state = CONTROL_JOB_LOADING; state < CONTROL_JOB_STATES; state++) {
        label.value = control_job_state_name((enum control_job_state)state);
        metrics_series(page, &label, 1, figures->jobs_by_state[state]);
    }
}

static void write_ledger(struct metrics_page *page, const struct core_ledger *ledger)
{
    struct metrics_label label = {.name = "rung"};
    metrics_family(page, "tidepool_handovers", METRICS_COUNTER,
                   "Devices that changed hands, by the way they were taken back");
    for (int rung = CORE_RUNG_FREE; rung < CORE_RUNG_COUNT; rung++) {
        label.value = core_rung_name((enum core_rung)rung);
        metrics_series(page, &label, 1, ledger->handovers[rung]);
    }
    metrics_family(page, "tidepool_slices", METRICS_COUNTER,
                   "Times a batch ran on a device whose training went on afterwards");
    metrics_series(page, NULL, 0, ledger->slices);
    metrics_family(page, "tidepool_ledger_seconds", METRICS_COUNTER,
                   "Device-seconds since the start, by account; lost is moved out of training");
    label.name = "account";
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        label.value = core_account_name((enum core_account)account);
        metrics_series_double(page, &label, 1, (double)ledger->account_ns[account] / 1e9);
    }
    metrics_family(page, "tidepool_device_seconds", METRICS_COUNTER,
                   "Devices x time since the start: what the accounts add up to");
    metrics_series_double(page, NULL, 0, (double)ledger->elapsed_ns / 1e9);
}

static uint64_t get_ready(const struct core_scale_view *view)
{
    return view->ready;
}
static uint64_t get_pending_devices(const struct core_scale_view *view)
{
    return view->pending;
}
static uint64_t get_surplus(const struct core_scale_view *view)
{
    return view->surplus;
}

static const struct {
    const char *name, *help;
    uint64_t (*get)(const struct core_scale_view *view);
} scale_families[] = {
    {"tidepool_scale_ready", "Usable devices that do not go before the horizon", get_ready},
    {"tidepool_scale_pending", "Announced devices that have not come", get_pending_devices},
    {"tidepool_scale_surplus", "Ready or pending devices that nobody could use", get_surplus},
};

static void write_scale(struct metrics_page *page, const struct control_figures *figures)
{
    struct metrics_label labels[2] = {{.name = "kind"}, {.name = "reason"}};
    metrics_family(page, "tidepool_scale_desired", METRICS_GAUGE,
                   "Devices that will be needed when one asked for now would be there");
    for (size_t i = 0; i < figures->scale_count; i++) {
        labels[0].value = figures->scale[i].kind;
        for (int reason = 0; reason < CORE_SCALE_REASONS; reason++) {
            labels[1].value = core_scale_reason_name((enum core_scale_reason)reason);
            metrics_series(page, labels, 2, figures->scale[i].core.desired[reason]);
        }
    }
    for (size_t j = 0; j < sizeof scale_families / sizeof scale_families[0]; j++) {
        metrics_family(page, scale_families[j].name, METRICS_GAUGE, scale_families[j].help);
        for (size_t i = 0; i < figures->scale_count; i++) {
            labels[0].value = figures->scale[i].kind;
            metrics_series(page, labels, 1, scale_families[j].get(&figures->scale[i].core));
        }
    }
    metrics_family(page, "tidepool_scale_horizon_seconds", METRICS_GAUGE,
                   "What a device takes to come: the scale signal is for then");
    for (size_t i = 0; i < figures->scale_count; i++) {
        labels[0].value = figures->scale[i].kind;
        metrics_series_double(page, labels, 1, (double)figures->scale[i].core.lead_ns / 1e9);
    }
}

static void write_control(struct metrics_page *page, const struct control_figures *figures)
{
    write_by_state(page, figures);
    write_ledger(page, &figures->ledger);
    metrics_family(page, "tidepool_requests_judged", METRICS_COUNTER,
                   "Requests replayed with all devices serving");
    metrics_series(page, NULL, 0, figures->twin_requests);
    metrics_family(page, "tidepool_requests_late_by_handover", METRICS_COUNTER,
                   "Judged requests that were late and would not have been with all devices");
    metrics_series(page, NULL, 0, figures->late_by_handover);
    metrics_family(page, "tidepool_devices_wanted", METRICS_GAUGE,
                   "Devices that all demand and all waiting jobs would need");
    metrics_series(page, NULL, 0, figures->devices_wanted);
    metrics_family(page, "tidepool_devices_slow", METRICS_GAUGE,
                   "Devices slower than their kind: chosen last");
    metrics_series(page, NULL, 0, figures->health.slow);
    metrics_family(page, "tidepool_devices_drained", METRICS_GAUGE,
                   "Devices that get nothing more for slowness, within the health budget");
    metrics_series(page, NULL, 0, figures->health.drained);
    metrics_family(page, "tidepool_devices_beyond_health_budget", METRICS_GAUGE,
                   "Devices that would be drained for slowness if the budget allowed it");
    metrics_series(page, NULL, 0, figures->health.beyond);
    write_scale(page, figures);
    metrics_family(page, "tidepool_hold", METRICS_GAUGE, "1 while nothing moves by order");
    metrics_series(page, NULL, 0, figures->hold ? 1 : 0);
    metrics_family(page, "tidepool_store_errors", METRICS_COUNTER,
                   "Writes to the store that were not done");
    metrics_series(page, NULL, 0, figures->store_errors);
}

/* ---- the wire, the process
 * ------------------------------------------------------------------------------ */

static void write_one(struct metrics_page *page, const char *name, enum metrics_type type,
                      const char *help, uint64_t value)
{
    metrics_family(page, name, type, help);
    metrics_series(page, NULL, 0, value);
}

static void write_limits(struct metrics_page *page, const struct grpc_counters *counters)
{
    const struct {
        const char *limit;
        uint64_t value;
    } limits[] = {
        {"message_bytes", counters->messages_too_large},
        {"header_bytes", counters->headers_too_large},
        {"pings", counters->pings_too_many},
        {"resets", counters->resets_too_many},
        {"glitches", counters->glitches_too_many},
        {"connections", counters->connections_refused},
        {"timeouts", counters->connections_timed_out},
        {"decoding", counters->decode_errors},
    };
    metrics_family(page, "tidepool_grpc_limit_hits", METRICS_COUNTER,
                   "Times a client met a limit of the gRPC server");
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct metrics_label label = {"limit", limits[i].limit};
        metrics_series(page, &label, 1, limits[i].value);
    }
}

static void write_calls(struct metrics_page *page, const struct grpc_counters *counters)
{
    const struct {
        const char *result;
        uint64_t value;
    } results[] = {
        {"ok", counters->calls_finished_ok},
        {"failed", counters->calls_failed},
        {"cancelled", counters->calls_cancelled},
        {"deadline_exceeded", counters->calls_deadline_exceeded},
    };
    metrics_family(page, "tidepool_grpc_calls", METRICS_COUNTER, "gRPC calls that ended");
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        struct metrics_label label = {"result", results[i].result};
        metrics_series(page, &label, 1, results[i].value);
    }
}

static void write_grpc(struct metrics_page *page, const struct pages *pages)
{
    struct grpc_counters counters;
    struct inference_counters inference = {0};
    grpc_server_counters(pages->grpc, &counters);
    inference_counters(pages->inference, &inference);
    write_one(page, "tidepool_grpc_connections", METRICS_GAUGE, "Open gRPC connections",
              counters.connections_open);
    write_one(page, "tidepool_grpc_connections_accepted", METRICS_COUNTER,
              "gRPC connections since the start", counters.connections_accepted);
    write_one(page, "tidepool_grpc_calls_open", METRICS_GAUGE, "gRPC calls being worked on",
              counters.calls_open);
    write_calls(page, &counters);
    write_limits(page, &counters);
    write_one(page, "tidepool_grpc_received_bytes", METRICS_COUNTER, "Bytes read",
              counters.bytes_received);
    write_one(page, "tidepool_grpc_sent_bytes", METRICS_COUNTER, "Bytes written",
              counters.bytes_sent);
    write_one(page, "tidepool_requests_unknown_model", METRICS_COUNTER,
              "Requests for a model that is not served", inference.unknown_model);
    write_one(page, "tidepool_requests_unreadable", METRICS_COUNTER,
              "Requests that were no valid message", inference.unreadable);
}

static void write_process(struct metrics_page *page, const struct pages *pages)
{
    struct rusage usage;
    struct metrics_label label = {"version", pages->version};
    getrusage(RUSAGE_SELF, &usage);
    metrics_family(page, "tidepool_info", METRICS_GAUGE, "The server's version");
    metrics_series(page, &label, 1, 1);
    metrics_family(page, "process_cpu_seconds_total", METRICS_COUNTER, "CPU time of the server");
    metrics_series_double(page, NULL, 0,
                          (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                              (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
}

char *metrics_write(const struct pages *pages, size_t *ret_length)
{
    struct snapshot snapshot;
    struct control_figures figures;
    struct metrics_page *page = metrics_create();
    if (page == NULL || !snapshot_take(pages->serve, &snapshot)) {
        metrics_destroy(page);
        return NULL;
    }
    control_figures_read(pages->control, &figures);
    write_counters(page, &snapshot);
    write_failures(page, &snapshot);
    write_latency(page, &snapshot);
    write_control(page, &figures);
    write_grpc(page, pages);
    write_process(page, pages);
    snapshot_free(&snapshot);
    return metrics_finish(page, ret_length);
}
