#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/common/infer_message.h"
#include "clients/common/view.h"
#include "server/base/json_message.h"
#include "server/base/options.h"

#define INFERENCE_SERVICE "inference.GRPCInferenceService"
#define INFERENCE_ADDRESS "127.0.0.1:8001"
#define INPUT_BYTES_MAX (256u << 20) /* JSON text of INFER_BYTES_MAX of tensors, roughly */

static int endpoints_run(struct cli *cli)
{
    if (cli->argument_count > 0) {
        return cli_set_endpoint(cli);
    }
    struct error error = {0};
    struct view view = {0};
    Tidepool__V1__ListEndpointsRequest request = TIDEPOOL__V1__LIST_ENDPOINTS_REQUEST__INIT;
    if (cli_call(cli, "ListEndpoints", &request.base, &view.endpoints, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &view.endpoints->base);
    } else {
        struct view_style style = {.columns = 512, .colour = terminal_has_colour(STDOUT_FILENO)};
        view_draw_endpoints(stdout, &view, &style);
    }
    view_release(&view);
    return exit_code;
}

/* ---- serve
 * ------------------------------------------------------------------------------------------- */

struct endpoint_wait {
    const char *name;
    bool over, ready;
    char reason[512];
    json_t *last;
};

static bool on_endpoint_change(void *context, const Tidepool__V1__Change *change)
{
    struct endpoint_wait *wait = context;
    if (change->object_case != TIDEPOOL__V1__CHANGE__OBJECT_ENDPOINT ||
        strcmp(change->endpoint->name, wait->name) != 0 ||
        change->endpoint->state == TIDEPOOL__V1__ENDPOINT_STATE__ENDPOINT_STATE_LOADING) {
        return true;
    }
    wait->over = true;
    wait->ready = change->endpoint->state == TIDEPOOL__V1__ENDPOINT_STATE__ENDPOINT_STATE_READY ||
                  change->endpoint->state == TIDEPOOL__V1__ENDPOINT_STATE__ENDPOINT_STATE_COLD;
    snprintf(wait->reason, sizeof(wait->reason), "%s", change->endpoint->reason);
    wait->last = json_from_message(&change->endpoint->base);
    return false;
}

static int serve_wait(struct cli *cli, const char *name)
{
    struct error error = {0};
    struct endpoint_wait wait = {.name = name};
    int exit_code = EXIT_OK;
    int result = control_watch(cli->client, 100, (uint64_t)(cli->options.timeout_s * 1e9),
                               on_endpoint_change, &wait, &error);
    if (result == 0 && !wait.over) {
        result = error_set(&error, ERROR_UNAVAILABLE, "the server ended the watch");
    }
    if (result == 0 && !wait.ready) {
        result = error_set(&error, ERROR_FAILED_PRECONDITION, "endpoint %s: %s", name,
                           wait.reason[0] != '\0' ? wait.reason : "did not become ready");
    }
    if (result < 0) {
        exit_code = cli_fail(cli, &error);
    } else if (cli->options.json) {
        exit_code = cli_write_json(cli, json_incref(wait.last));
    } else {
        printf("%s is ready\n", name);
    }
    json_decref(wait.last);
    return exit_code;
}

/* The path as the server, which has another working directory, can use it. A name without a file
 * is one of the server's repository. */
static int serve_source(struct cli *cli, Tidepool__V1__ServeModelRequest *request, char **ret_path,
                        struct error *error)
{
    const char *model = cli->arguments[0];
    char *path = realpath(model, NULL);
    if (path == NULL && strchr(model, '/') == NULL && strstr(model, ".onnx") == NULL) {
        request->model = (char *)(uintptr_t)model;
        return 0;
    }
    if (path == NULL) {
        return error_set_errno(error, errno, "model '%s'", model);
    }
    *ret_path = request->path = path;
    return 0;
}

static int serve_run(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__ServeModelRequest request = TIDEPOOL__V1__SERVE_MODEL_REQUEST__INIT;
    Tidepool__V1__Endpoint *endpoint = NULL;
    char *path = NULL;
    int exit_code;
    if (serve_source(cli, &request, &path, &error) < 0) {
        return cli_fail_usage(cli, "%s", error.text);
    }
    if (cli->options.name != NULL) {
        request.name = (char *)(uintptr_t)cli->options.name;
    }
    request.slo_ms = cli->options.slo_ms;
    request.devices_min = cli->options.devices.minimum;
    request.devices_max = cli->options.devices.maximum;
    if (cli_call(cli, "ServeModel", &request.base, &endpoint, &error) < 0) {
        exit_code = cli_fail(cli, &error);
    } else if (!cli->options.no_wait) {
        exit_code = serve_wait(cli, endpoint->name);
    } else if (cli->options.json) {
        exit_code = cli_write_message(cli, &endpoint->base);
    } else {
        printf("%s\n", endpoint->name);
        exit_code = EXIT_OK;
    }
    control_free(endpoint);
    free(path);
    return exit_code;
}

static int unserve_run(struct cli *cli)
{
    struct error error = {0};
    Tidepool__V1__StopServingRequest request = TIDEPOOL__V1__STOP_SERVING_REQUEST__INIT;
    Tidepool__V1__Endpoint *endpoint = NULL;
    request.name = (char *)(uintptr_t)cli->arguments[0];
    if (cli_call(cli, "StopServing", &request.base, &endpoint, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &endpoint->base);
    } else {
        printf("%s %s\n", endpoint->name, control_endpoint_state(endpoint));
    }
    control_free(endpoint);
    return exit_code;
}

/* ---- infer
 * --------------------------------------------------------------------------------------------- */

/* The whole of a file, or of stdin for "-". */
static char *input_read(const char *path, size_t *ret_length, struct error *error)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "re");
    char *text = NULL;
    size_t length = 0, capacity = 0, count;
    if (file == NULL) {
        error_set_errno(error, errno, "open '%s'", path);
        return NULL;
    }
    do {
        if (length == capacity) {
            capacity = capacity == 0 ? 65536 : capacity * 2;
            char *larger = capacity > INPUT_BYTES_MAX ? NULL : realloc(text, capacity);
            if (larger == NULL) {
                error_set(error, ERROR_RESOURCE_EXHAUSTED, "'%s': over the limit of %u MiB", path,
                          INPUT_BYTES_MAX >> 20);
                goto fail;
            }
            text = larger;
        }
        count = fread(text + length, 1, capacity - length, file);
        length += count;
    } while (count > 0);
    if (ferror(file)) {
        error_set_errno(error, errno, "read '%s'", path);
        goto fail;
    }
    if (!standard) {
        fclose(file);
    }
    *ret_length = length;
    return text;
fail:
    if (!standard) {
        fclose(file);
    }
    free(text);
    return NULL;
}

static int infer_call(struct cli *cli, const Inference__ModelInferRequest *request,
                      Inference__ModelInferResponse **ret_response, struct error *error)
{
    ProtobufCMessage *message = NULL;
    int result = grpc_client_call(cli->client, INFER_PATH, &request->base,
                                  &inference__model_infer_response__descriptor, cli_timeout_ns(cli),
                                  &message, error);
    *ret_response = (Inference__ModelInferResponse *)message;
    return result;
}

/* Connects to the address where the server that is connected offers inference. */
static int infer_connect_other(struct cli *cli, struct error *error)
{
    Tidepool__V1__GetStatusRequest request = TIDEPOOL__V1__GET_STATUS_REQUEST__INIT;
    Tidepool__V1__Status *status = NULL;
    int result = cli_call(cli, "GetStatus", &request.base, &status, error);
    const char *address = NULL;
    for (size_t i = 0; result == 0 && i < status->n_listeners && address == NULL; i++) {
        for (size_t j = 0; j < status->listeners[i]->n_services; j++) {
            if (strstr(status->listeners[i]->services[j], "inference") != NULL) {
                address = status->listeners[i]->address;
            }
        }
    }
    if (result == 0 && address == NULL) {
        result = error_set(error, ERROR_UNIMPLEMENTED, "the server at %s offers no inference",
                           cli->address);
    }
    if (result == 0) {
        snprintf(cli->address, sizeof(cli->address), "%s", address);
        cli->options.server = cli->address;
        grpc_client_destroy(cli->client);
        cli->client = NULL;
        char text[sizeof(cli->address)];
        memcpy(text, cli->address, sizeof(text));
        struct grpc_client_options options = {.address = text, .token = cli->options.token};
        result = grpc_client_create(&options, &cli->client, error);
    }
    control_free(status);
    return result;
}

/* Asks where the command line says; a control address leads on to the inference address, and where
 * there is no local socket the usual port is tried. */
static int infer_ask(struct cli *cli, const Inference__ModelInferRequest *request,
                     Inference__ModelInferResponse **ret_response, struct error *error)
{
    int result = cli_connect(cli, error);
    if (result == 0) {
        result = infer_call(cli, request, ret_response, error);
    }
    if (result == -(int)ERROR_UNIMPLEMENTED) {
        result = infer_connect_other(cli, error);
        return result < 0 ? result : infer_call(cli, request, ret_response, error);
    }
    bool chosen = cli->options.server != NULL || getenv("TIDEPOOL_SERVER") != NULL;
    if (result == -(int)ERROR_UNAVAILABLE && !chosen &&
        (cli->client == NULL || !grpc_client_connected(cli->client))) {
        grpc_client_destroy(cli->client);
        cli->client = NULL;
        cli->options.server = INFERENCE_ADDRESS;
        result = cli_connect(cli, error);
        return result < 0 ? result : infer_call(cli, request, ret_response, error);
    }
    return result;
}

static int infer_write(struct cli *cli, const Inference__ModelInferResponse *response)
{
    struct error error = {0};
    json_t *value = infer_response_to_json(response, &error);
    if (value == NULL) {
        return cli_fail(cli, &error);
    }
    if (cli->options.output == NULL) {
        return cli_write_json(cli, value);
    }
    int result = json_dump_file(value, cli->options.output, JSON_COMPACT);
    json_decref(value);
    if (result < 0) {
        error_set_errno(&error, errno, "write '%s'", cli->options.output);
        error.code = ERROR_INTERNAL; /* not refused by the server: a failure here */
        return cli_fail(cli, &error);
    }
    return cli->options.json
               ? cli_write_json(cli, json_pack("{s:s}", "output", cli->options.output))
               : EXIT_OK;
}

static int infer_run(struct cli *cli)
{
    struct error error = {0};
    int exit_code = EXIT_USAGE;
    const char *path = cli->argument_count > 1 ? cli->arguments[1] : "-";
    unsigned char *body = NULL;
    size_t length = 0, body_length = 0;
    json_t *object = NULL;
    Inference__ModelInferRequest *request = NULL;
    Inference__ModelInferResponse *response = NULL;
    char *text = input_read(path, &length, &error);
    if (text != NULL) {
        object = options_parse_text(text, length, path, &error);
    }
    if (object == NULL ||
        infer_request_from_json(object, cli->arguments[0], &body, &body_length, &error) < 0) {
        exit_code = cli_fail_usage(cli, "%s", error.text);
        goto out;
    }
    request = inference__model_infer_request__unpack(NULL, body_length, body);
    if (request == NULL) {
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory for the request");
        exit_code = cli_fail(cli, &error);
        goto out;
    }
    exit_code = infer_ask(cli, request, &response, &error) < 0 ? cli_fail(cli, &error)
                                                               : infer_write(cli, response);
out:
    if (response != NULL) {
        inference__model_infer_response__free_unpacked(response, NULL);
    }
    if (request != NULL) {
        inference__model_infer_request__free_unpacked(request, NULL);
    }
    json_decref(object);
    free(body);
    free(text);
    return exit_code;
}

static const struct command commands[] = {
    {"endpoints", "[set ENDPOINT]", "models that clients can call; change a running one", 0, 2,
     OPTION_TERMS | OPTION_REASON | OPTION_SETTINGS | OPTION_DRY_RUN, endpoints_run},
    {"serve", "MODEL", "serve an .onnx file, or a model of the repository by its name", 1, 1,
     OPTION_SERVE | OPTION_NO_WAIT, serve_run},
    {"unserve", "ENDPOINT", "finish its requests, then stop serving it", 1, 1, 0, unserve_run},
    {"infer", "ENDPOINT [FILE]", "one request: KServe v2 JSON in (or stdin), JSON out", 1, 2,
     OPTION_INFER, infer_run},
};
const struct command_group commands_endpoints = {"Serving", commands,
                                                 sizeof(commands) / sizeof(commands[0])};
