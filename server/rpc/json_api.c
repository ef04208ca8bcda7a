#include "server/rpc/json_api.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/base/json_message.h"
#include "server/base/options.h"
#include "server/rpc/control_service.h"

#define PATH "/tidepool/v1/"
#define TYPE_JSON "application/json"
#define TYPE_LINES "application/x-ndjson"

struct json_api {
    struct control_service *service;
    const char *const *hosts;
    size_t host_count;
};

/* A call on its way: the exchange's, until the HTTP thread has printed its last answer. */
struct json_call {
    struct http_call *http;
    ProtobufCMessage *request;
    const ProtobufCMessageDescriptor *type; /* of the answers; set with the first one */
    bool lines;                             /* a stream: one object a line */
    bool begun;                             /* of a stream: by whoever answers */
};

/* ---- errors ---- */

static int http_status_of(enum error_code code)
{
    switch (code) {
    case ERROR_NONE:
        return 200;
    case ERROR_INVALID_ARGUMENT:
    case ERROR_FAILED_PRECONDITION:
    case ERROR_OUT_OF_RANGE:
        return 400;
    case ERROR_UNAUTHENTICATED:
        return 401;
    case ERROR_PERMISSION_DENIED:
        return 403;
    case ERROR_NOT_FOUND:
        return 404;
    case ERROR_ALREADY_EXISTS:
    case ERROR_ABORTED:
        return 409;
    case ERROR_RESOURCE_EXHAUSTED:
        return 429;
    case ERROR_CANCELLED:
        return 499;
    case ERROR_UNIMPLEMENTED:
        return 501;
    case ERROR_UNAVAILABLE:
        return 503;
    case ERROR_DEADLINE_EXCEEDED:
        return 504;
    case ERROR_UNKNOWN:
    case ERROR_INTERNAL:
    case ERROR_DATA_LOSS:
        break;
    }
    return 500;
}

/* Malloc'ed; NULL: no memory. */
static char *error_print(enum error_code code, const char *text, const struct error_bound *bound)
{
    json_t *error = json_object();
    json_object_set_new(error, "code", json_string(error_code_name(code)));
    json_object_set_new(error, "message", json_from_text(text));
    if (bound != NULL) {
        json_object_set_new(error, "details",
                            json_pack("{s:s, s:I, s:I}", "limit", bound->name, "value",
                                      (json_int_t)bound->value, "maximum",
                                      (json_int_t)bound->most));
    }
    json_t *object = json_pack("{s:o}", "error", error);
    char *printed = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return printed;
}

static void refuse_with(struct http_call *http, int status, enum error_code code, const char *text,
                        const struct error_bound *bound)
{
    char *body = error_print(code, text, bound);
    struct http_reply reply = {status, TYPE_JSON, body, body != NULL ? strlen(body) : 0};
    http_call_reply(http, &reply);
}

static void refuse(struct http_call *http, const struct error *error)
{
    refuse_with(http, http_status_of(error->code), error->code, error->text, NULL);
}

/* ---- answers: packed by the control thread, printed by the HTTP thread ---- */

static char *message_pack(const ProtobufCMessage *message, size_t *ret_length)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    char *bytes = malloc(size > 0 ? size : 1);
    *ret_length = size;
    if (bytes != NULL) {
        protobuf_c_message_pack(message, (uint8_t *)bytes);
    }
    return bytes;
}

static char *message_print(void *arg, const char *bytes, size_t length, size_t *ret_length)
{
    const struct json_call *call = arg;
    ProtobufCMessage *message =
        protobuf_c_message_unpack(call->type, NULL, length, (const uint8_t *)bytes);
    json_t *object = message != NULL ? json_from_message(message) : NULL;
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    protobuf_c_message_free_unpacked(message, NULL);
    json_decref(object);
    *ret_length = text != NULL ? strlen(text) : 0;
    if (text != NULL && call->lines) {
        text[(*ret_length)++] = '\n'; /* in the place of the end: it has a length */
    }
    return text;
}

static void call_destroy(void *arg)
{
    struct json_call *call = arg;
    protobuf_c_message_free_unpacked(call->request, NULL);
    free(call);
}

static void reply(const struct exchange *exchange, const ProtobufCMessage *message)
{
    struct json_call *call = exchange->call;
    struct http_reply answer = {200, TYPE_JSON, NULL, 0};
    call->type = message->descriptor;
    answer.body = message_pack(message, &answer.body_length);
    if (answer.body == NULL) {
        refuse_with(call->http, 500, ERROR_RESOURCE_EXHAUSTED, "no memory for the answer", NULL);
    } else {
        http_call_reply(call->http, &answer);
    }
}

static int send_message(const struct exchange *exchange, const ProtobufCMessage *message)
{
    struct json_call *call = exchange->call;
    size_t length = 0;
    char *bytes = message_pack(message, &length);
    if (bytes == NULL) {
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    if (!call->begun) {
        call->begun = true;
        call->type = message->descriptor;
    }
    return http_call_send(call->http, TYPE_LINES, bytes, length);
}

/* A stream that has begun has its status out: its last line is the error. */
static void end(const struct exchange *exchange, enum error_code status, const char *text,
                const struct error_bound *bound)
{
    struct json_call *call = exchange->call;
    if (!call->begun) {
        refuse_with(call->http, http_status_of(status), status, text != NULL ? text : "", bound);
        return;
    }
    http_call_finish(call->http, status != ERROR_NONE
                                     ? error_print(status, text != NULL ? text : "", bound)
                                     : NULL);
}

static void on_cancel(const struct exchange *exchange, void (*callback)(void *arg), void *arg)
{
    const struct json_call *call = exchange->call;
    http_call_on_gone(call->http, callback, arg);
}

static const char *metadata(const struct exchange *exchange, const char *name)
{
    const struct json_call *call = exchange->call;
    return http_call_header(call->http, name);
}

static bool peer(const struct exchange *exchange, uint32_t *ret_uid, uint32_t *ret_pid)
{
    (void)exchange;
    (void)ret_uid;
    (void)ret_pid;
    return false; /* HTTP is served over TCP only */
}

/* http_call_send refuses what is not read. */
static uint64_t waiting_bytes(const struct exchange *exchange)
{
    (void)exchange;
    return 0;
}

static const struct exchange_kind exchange_kind = {.reply = reply,
                                                   .send = send_message,
                                                   .finish = end,
                                                   .on_cancel = on_cancel,
                                                   .metadata = metadata,
                                                   .peer = peer,
                                                   .waiting_bytes = waiting_bytes};

/* ---- who may ask ---- */

static bool name_is(const char *name, size_t length, const char *other)
{
    return strlen(other) == length && strncasecmp(name, other, length) == 0;
}

static bool is_loopback(const char *name, size_t length)
{
    return name_is(name, length, "localhost") || name_is(name, length, "[::1]") ||
           (length > 4 && strncmp(name, "127.", 4) == 0 && strspn(name, "0123456789.") == length);
}

bool json_api_host_allowed(const struct json_api *api, const char *host)
{
    const char *colon = strrchr(host, ':');
    bool has_port = colon != NULL && colon[1 + strspn(colon + 1, "0123456789")] == '\0';
    size_t length = has_port ? (size_t)(colon - host) : strlen(host);
    bool allowed = is_loopback(host, length);
    for (size_t i = 0; i < api->host_count && !allowed; i++) {
        allowed = name_is(host, length, api->hosts[i]);
    }
    return allowed;
}

/* A page of this very address may ask; one from anywhere else may not. */
static bool origin_is_own(const char *origin, const char *host)
{
    const char *name = strstr(origin, "://");
    return name != NULL && strcasecmp(name + 3, host) == 0;
}

static int check_stranger(const struct json_api *api, struct http_call *http, struct error *error)
{
    const char *host = http_call_header(http, "Host");
    const char *origin = http_call_header(http, "Origin");
    if (host == NULL || !json_api_host_allowed(api, host)) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "Host '%.128s' is not served here: ask for localhost, or add the name to "
                         "\"http_hosts\" in the configuration",
                         host != NULL ? host : "");
    }
    if (origin != NULL && !origin_is_own(origin, host)) {
        return error_set(error, ERROR_PERMISSION_DENIED, "a page of '%.128s' may not ask here",
                         origin);
    }
    return 0;
}

static bool type_is_json(const char *type)
{
    size_t length = type != NULL ? strcspn(type, "; \t") : 0;
    return name_is(type != NULL ? type : "", length, TYPE_JSON);
}

/* ---- requests ---- */

static int query_add(void *context, const char *name, const char *value)
{
    json_t *object = context;
    if (json_object_get(object, name) != NULL) {
        return -ERROR_ALREADY_EXISTS;
    }
    return json_object_set_new(object, name, json_string(value)) < 0 ? -ERROR_INVALID_ARGUMENT : 0;
}

/* NULL: the error says why. */
static json_t *fields_of_query(struct http_call *http, struct error *error)
{
    json_t *object = json_object();
    int result = object != NULL ? http_call_query(http, query_add, object) : 0;
    if (object == NULL || result < 0) {
        json_decref(object);
        error_set(error, ERROR_INVALID_ARGUMENT,
                  result == -ERROR_ALREADY_EXISTS ? "query: a name comes twice"
                                                  : "query: not NAME=VALUE, or not UTF-8");
        return NULL;
    }
    return object;
}

static json_t *fields_of_body(struct http_call *http, struct error *error)
{
    size_t length = 0;
    const char *body = http_call_body(http, &length);
    return length == 0 ? json_object() : options_parse_text(body, length, "request", error);
}

static int request_read(struct http_call *http, const ProtobufCMessageDescriptor *type,
                        ProtobufCMessage **ret_request, struct error *error)
{
    bool posted = strcmp(http_call_method(http), "POST") == 0;
    json_t *fields = posted ? fields_of_body(http, error) : fields_of_query(http, error);
    if (fields == NULL) {
        return error->code != ERROR_NONE
                   ? -(int)error->code
                   : error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
    }
    int result = json_to_message(fields, type, ret_request, error);
    json_decref(fields);
    return result;
}

/* The status to refuse with; 0: the method and the type are right. */
static int check_method(struct http_call *http, bool changes, const char **ret_text)
{
    const char *method = http_call_method(http);
    if (strcmp(method, "GET") == 0 && !changes) {
        return 0;
    }
    if (strcmp(method, "POST") != 0) {
        *ret_text = changes ? "POST the fields of the request as JSON"
                            : "GET, or POST the fields of the request as JSON";
        return 405;
    }
    if (!type_is_json(http_call_header(http, "Content-Type"))) {
        *ret_text = "the Content-Type must be application/json";
        return 415;
    }
    return 0;
}

/* ---- calls ---- */

static struct exchange exchange_begin(struct http_call *http, ProtobufCMessage *request, bool lines)
{
    struct json_call *call = calloc(1, sizeof *call);
    if (call != NULL) {
        *call = (struct json_call){.http = http, .request = request, .lines = lines};
        http_call_print_with(http, message_print, call_destroy, call);
    }
    return (struct exchange){&exchange_kind, call};
}

static void call_run(struct json_api *api, struct http_call *http,
                     const struct control_method *method)
{
    const ProtobufCMessageDescriptor *type =
        method != NULL ? method->request : &tidepool__v1__watch_request__descriptor;
    ProtobufCMessage *request = NULL;
    struct error error = {0};
    const char *text = NULL;
    int status = check_method(http, method != NULL && method->changes, &text);
    if (status != 0) {
        refuse_with(http, status, ERROR_INVALID_ARGUMENT, text, NULL);
        return;
    }
    if (request_read(http, type, &request, &error) < 0) {
        refuse(http, &error);
        return;
    }
    struct exchange exchange = exchange_begin(http, request, method == NULL || method->stream);
    if (exchange.call == NULL) {
        protobuf_c_message_free_unpacked(request, NULL);
        refuse_with(http, 503, ERROR_RESOURCE_EXHAUSTED, "no memory for the call", NULL);
    } else if (method != NULL) {
        task_begin(api->service, exchange, request, method);
    } else {
        watch_open(api->service, exchange, (const void *)request);
    }
}

static void take(void *context, struct http_call *http)
{
    struct json_api *api = context;
    const char *name = http_call_rest(http);
    const struct control_method *method = control_method_find(name);
    struct error error = {0};
    if (check_stranger(api, http, &error) < 0) {
        refuse(http, &error);
    } else if (method == NULL && strcmp(name, "Watch") != 0) {
        error_set(&error, ERROR_NOT_FOUND, "no call '%.64s'; docs/control-api.md lists them", name);
        refuse(http, &error);
    } else {
        call_run(api, http, method);
    }
}

/* ---- life ---- */

struct json_api *json_api_create(const struct json_api_options *options, struct error *error)
{
    struct json_api *api = calloc(1, sizeof *api);
    if (api == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the JSON API: no memory");
        return NULL;
    }
    *api = (struct json_api){options->service, options->hosts, options->host_count};
    return api;
}

void json_api_destroy(struct json_api *api)
{
    free(api);
}

struct http_route json_api_route(struct json_api *api)
{
    return (struct http_route){.path = PATH, .context = api, .take = take};
}
