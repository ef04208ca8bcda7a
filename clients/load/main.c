/* `tidepool-load`: an open-loop load generator for any KServe v2 gRPC endpoint. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "clients/common/arguments.h"
#include "clients/common/exit_code.h"
#include "clients/common/grpc_client.h"
#include "clients/common/infer_message.h"
#include "clients/common/schedule.h"
#include "clients/load/report.h"
#include "server/base/clock.h"
#include "server/base/json_message.h"
#include "server/base/options.h"

#define METADATA_TIMEOUT_NS (10 * NS_PER_S)

struct options {
    const char *server, *token, *endpoint, *input, *steps, *replay, *trace_endpoint, *csv,
        *histogram;
    double rate, seconds, speed, deadline_ms, slo_ms;
    int64_t rows, connections, seed, in_flight;
    bool poisson, json, help;
};

#define FIELD(member) offsetof(struct options, member)
static const struct argument table[] = {
    {"server", ARGUMENT_TEXT, FIELD(server), 1, 0, 0, "ADDRESS",
     "HOST:PORT or unix:PATH of the inference service (default 127.0.0.1:8001)"},
    {"token", ARGUMENT_TEXT, FIELD(token), 1, 0, 0, "TOKEN", "bearer token"},
    {"endpoint", ARGUMENT_TEXT, FIELD(endpoint), 1, 0, 0, "NAME", "which model is called"},
    {"input", ARGUMENT_TEXT, FIELD(input), 1, 0, 0, "FILE.json",
     "the request in KServe v2 JSON (default: random inputs that fit the model's metadata)"},
    {"rows", ARGUMENT_INT, FIELD(rows), 1, 1, 65536, "N",
     "rows of the random inputs' first variable dimension (default 1)"},
    {"rate", ARGUMENT_NUMBER, FIELD(rate), 1, 0.001, SCHEDULE_RATE_MAX, "R", "requests per second"},
    {"seconds", ARGUMENT_NUMBER, FIELD(seconds), 1, 0.001, 1e8, "S",
     "how long, with --rate (default 10); cuts --replay"},
    {"steps", ARGUMENT_TEXT, FIELD(steps), 1, 0, 0, "R:S,…",
     "rates and how many seconds each, for example 0:5,300:10"},
    {"poisson", ARGUMENT_FLAG, FIELD(poisson), 1, 0, 0, NULL,
     "random arrivals instead of evenly spaced ones"},
    {"seed", ARGUMENT_INT, FIELD(seed), 1, 0, 9e15, "N",
     "of random arrivals and inputs (default 1)"},
    {"replay", ARGUMENT_TEXT, FIELD(replay), 1, 0, 0, "FILE.csv[.gz]",
     "recorded arrivals: a CSV with the column arrival_s"},
    {"speed", ARGUMENT_NUMBER, FIELD(speed), 1, 1e-6, 1e6, "F",
     "replay so many times as fast (default 1)"},
    {"trace-endpoint", ARGUMENT_TEXT, FIELD(trace_endpoint), 1, 0, 0, "NAME",
     "replay only the rows of this endpoint"},
    {"connections", ARGUMENT_INT, FIELD(connections), 1, 1, LOAD_CONNECTIONS_MAX, "N",
     "used in turn (default 1)"},
    {"deadline-ms", ARGUMENT_NUMBER, FIELD(deadline_ms), 1, 0.001, 3.6e6, "MS",
     "of each request (default none)"},
    {"slo-ms", ARGUMENT_NUMBER, FIELD(slo_ms), 1, 0.001, 3.6e6, "MS",
     "answers slower than this are counted late (default 100)"},
    {"in-flight", ARGUMENT_INT, FIELD(in_flight), 1, 1, 10e6, "N",
     "requests beyond so many without an answer are not sent and fail (default 100000)"},
    {"json", ARGUMENT_FLAG, FIELD(json), 1, 0, 0, NULL, "the figures as one JSON document"},
    {"csv", ARGUMENT_TEXT, FIELD(csv), 1, 0, 0, "FILE", "one row per second"},
    {"histogram", ARGUMENT_TEXT, FIELD(histogram), 1, 0, 0, "FILE",
     "CSV of all latencies, within 0.2 %"},
    {"help", ARGUMENT_FLAG, FIELD(help), 1, 0, 0, NULL, "this text"},
};
static const struct arguments arguments = {table, sizeof(table) / sizeof(table[0]), 1,
                                           "tidepool-load"};

static int fail(const struct options *options, const struct error *error, int exit_code)
{
    fprintf(stderr, "tidepool-load: %s\n", error->text);
    if (options->json) {
        json_t *value =
            json_pack("{s:{s:s,s:o,s:i}}", "error", "code", error_code_name(error->code), "message",
                      json_from_text(error->text), "exitCode", exit_code);
        json_dumpf(value, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(value);
    }
    return exit_code;
}

/* ---- what is sent, and when
 * --------------------------------------------------------------------------- */

static int body_from_file(const struct options *options, unsigned char **ret_body,
                          size_t *ret_length, struct error *error)
{
    json_t *object = options_parse_file(options->input, error);
    if (object == NULL) {
        return -(int)ERROR_INVALID_ARGUMENT;
    }
    int result = infer_request_from_json(object, options->endpoint, ret_body, ret_length, error);
    json_decref(object);
    return result;
}

static int body_from_metadata(const struct options *options, unsigned char **ret_body,
                              size_t *ret_length, struct error *error)
{
    struct grpc_client_options where = {.address = options->server, .token = options->token};
    struct grpc_client *client = NULL;
    ProtobufCMessage *message = NULL;
    Inference__ModelMetadataRequest request = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    request.name = (char *)(uintptr_t)options->endpoint;
    int result = grpc_client_create(&where, &client, error);
    if (result == 0) {
        result = grpc_client_call(client, INFER_METADATA_PATH, &request.base,
                                  &inference__model_metadata_response__descriptor,
                                  METADATA_TIMEOUT_NS, &message, error);
    }
    if (result == 0) {
        Inference__ModelMetadataResponse *metadata = (Inference__ModelMetadataResponse *)message;
        /* The server may call the model by another name than it was asked for. */
        char *name = metadata->name;
        metadata->name = request.name;
        result = infer_request_from_metadata(metadata, (uint32_t)options->rows,
                                             (uint64_t)options->seed, ret_body, ret_length, error);
        metadata->name = name;
        protobuf_c_message_free_unpacked(message, NULL);
    }
    grpc_client_destroy(client);
    return result;
}

static int schedule_from_options(const struct options *options, struct schedule **ret_schedule,
                                 char *text, size_t size, struct error *error)
{
    enum schedule_kind kind = options->poisson ? SCHEDULE_POISSON : SCHEDULE_EVEN;
    const char *arrivals = options->poisson ? "Poisson" : "even";
    unsigned kinds = (options->rate > 0) + (options->steps != NULL) + (options->replay != NULL);
    if (kinds != 1) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "give one of --rate, --steps and --replay");
    }
    if (options->steps != NULL) {
        snprintf(text, size, "steps %s, %s arrivals", options->steps, arrivals);
        return schedule_create_steps(kind, options->steps, (uint64_t)options->seed, ret_schedule,
                                     error);
    }
    if (options->replay != NULL) {
        snprintf(text, size, "replay of %s at %g times its speed", options->replay, options->speed);
        return schedule_create_replay(options->replay, options->speed, options->trace_endpoint,
                                      ret_schedule, error);
    }
    struct schedule_segment segment = {options->rate, options->seconds > 0 ? options->seconds : 10};
    snprintf(text, size, "%g requests/s, %s arrivals", options->rate, arrivals);
    return schedule_create(kind, &segment, 1, (uint64_t)options->seed, ret_schedule, error);
}

struct source {
    struct schedule *schedule;
    uint64_t end_ns;
};

static bool source_next(void *context, uint64_t *ret_offset_ns)
{
    struct source *source = context;
    uint64_t offset_ns = 0;
    if (!schedule_next(source->schedule, &offset_ns) || offset_ns >= source->end_ns) {
        return false;
    }
    *ret_offset_ns = offset_ns;
    return true;
}

/* ---- the run
 * -------------------------------------------------------------------------------------------- */

static struct load *load_running; /* for the signal handler alone */

static void on_signal(int number)
{
    (void)number;
    load_stop(load_running); /* one write(2) */
}

static void on_slot(void *context, const struct load_slot *slot)
{
    report_csv_row(slot, context);
}

static int file_open(const char *path, FILE **ret_file, struct error *error)
{
    *ret_file = path == NULL ? NULL : fopen(path, "we");
    return path != NULL && *ret_file == NULL ? error_set_errno(error, errno, "open '%s'", path) : 0;
}

static int file_close(FILE *file, const char *path, struct error *error)
{
    bool bad = file != NULL && ferror(file) != 0;
    if (file != NULL && (fclose(file) != 0 || bad)) {
        return error_set_errno(error, errno, "write '%s'", path);
    }
    return 0;
}

/* *ret_usage: the failure lies in what was given on the command line, not in the server. */
static int run(const struct options *options, struct load_result *result, char *text, size_t size,
               bool *ret_usage, struct error *error)
{
    struct source source = {.end_ns = options->seconds > 0 ? (uint64_t)(options->seconds * 1e9)
                                                           : UINT64_MAX};
    struct load *load = NULL;
    FILE *csv = NULL, *histogram = NULL;
    unsigned char *body = NULL;
    size_t length = 0;
    int code = schedule_from_options(options, &source.schedule, text, size, error);
    if (code == 0 && options->input != NULL) {
        code = body_from_file(options, &body, &length, error);
    }
    code = code < 0 ? code : file_open(options->csv, &csv, error);
    code = code < 0 ? code : file_open(options->histogram, &histogram, error);
    *ret_usage = code < 0;
    if (code == 0 && options->input == NULL) {
        code = body_from_metadata(options, &body, &length, error);
    }
    struct load_options settings = {
        .address = options->server,
        .token = options->token,
        .connections = (unsigned)options->connections,
        .body = body,
        .body_length = length,
        .deadline_ns = (uint64_t)(options->deadline_ms * 1e6),
        .slo_ns = (uint64_t)(options->slo_ms * 1e6),
        .in_flight_max = (uint64_t)options->in_flight,
        .next = source_next,
        .next_context = &source,
        .on_slot = csv != NULL ? on_slot : NULL,
        .slot_context = csv,
    };
    code = code < 0 ? code : load_create(&settings, &load, error);
    if (code == 0) {
        load_running = load;
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        if (csv != NULL) {
            report_csv_head(csv);
        }
        load_run(load, result);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
    }
    if (code == 0 && histogram != NULL) {
        report_csv_histogram(&result->latency, histogram);
    }
    int written = file_close(csv, options->csv, error);
    code = code < 0 ? code : written;
    written = file_close(histogram, options->histogram, error);
    code = code < 0 ? code : written;
    load_destroy(load);
    schedule_destroy(source.schedule);
    free(body);
    return code;
}

static int usage(FILE *out, int exit_code)
{
    fputs("usage: tidepool-load --endpoint NAME (--rate R | --steps R:S,… | --replay FILE) "
          "[OPTIONS]\n"
          "Sends requests when the schedule says so, however slow the answers are; latency counts "
          "from\n"
          "the time a request was meant to leave. Exit codes: 0 all answered, 1 some failed, else "
          "as\n"
          "'tidepool help' tells.\n\n",
          out);
    arguments_print(&arguments, out);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct options options = {.server = "127.0.0.1:8001",
                              .speed = 1,
                              .slo_ms = 100,
                              .rows = 1,
                              .connections = 1,
                              .seed = 1,
                              .token = getenv("TIDEPOOL_TOKEN")};
    struct error error = {0};
    size_t positional_count = 0;
    char schedule[512] = "";
    int exit_code = EXIT_OTHER;
    const char **positional = calloc((size_t)argc, sizeof(*positional));
    struct load_result *result = calloc(1, sizeof(*result));
    if (positional == NULL || result == NULL) {
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory");
        exit_code = fail(&options, &error, EXIT_OTHER);
        goto out;
    }
    if (arguments_parse(&arguments, argc - 1, argv + 1, &options, positional, &positional_count,
                        &error) < 0) {
        exit_code = fail(&options, &error, EXIT_USAGE);
        goto out;
    }
    if (options.help || argc == 1) {
        exit_code = options.help ? usage(stdout, EXIT_OK) : usage(stderr, EXIT_USAGE);
        goto out;
    }
    if (positional_count > 0 || options.endpoint == NULL) {
        error_set(&error, ERROR_INVALID_ARGUMENT,
                  positional_count > 0 ? "takes options only, not '%s'" : "wants --endpoint NAME%s",
                  positional_count > 0 ? positional[0] : "");
        exit_code = fail(&options, &error, EXIT_USAGE);
        goto out;
    }
    bool bad_usage = false;
    int code = run(&options, result, schedule, sizeof(schedule), &bad_usage, &error);
    if (code < 0) {
        exit_code = fail(&options, &error, bad_usage ? EXIT_USAGE : (int)exit_code_of(&error));
        goto out;
    }
    struct report report = {options.endpoint, schedule, options.slo_ms, result};
    if (options.json) {
        json_t *value = report_json(&report);
        json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
        json_decref(value);
    } else {
        report_text(&report, stdout);
    }
    exit_code = result->total.failed == 0 ? EXIT_OK : EXIT_FAILED;
out:
    free(positional);
    free(result);
    return exit_code;
}
