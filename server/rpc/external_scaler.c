#include "server/rpc/external_scaler.h"

#include <stdlib.h>
#include <string.h>

#include "externalscaler.pb-c.h"
#include "server/base/options.h"
#include "server/control/view.h"
#include "server/rpc/stream.h"

#define METRIC "tidepool-devices"
#define REASONS_STANDARD (1u << CORE_SCALE_SLO | 1u << CORE_SCALE_WAITING)
#define DEVICES_MOST 1000000

struct external_scaler {
    struct control *control;
    struct stream_set streams;
};

/* ---- what a trigger's metadata asks for ---- */

struct wish {
    char kind[16];                /* "": all of them */
    unsigned reasons;             /* bits 1 << enum core_scale_reason */
    uint32_t devices_per_replica; /* at least 1 */
    uint32_t devices_elsewhere;   /* not brought by what is scaled: taken off */
};

static int read_kind(struct wish *wish, const char *value, struct error *error)
{
    if (strlen(value) >= sizeof wish->kind) {
        return error_set(error, ERROR_NOT_FOUND, "kind '%.64s': there is no such kind of device",
                         value);
    }
    strcpy(wish->kind, value);
    return 0;
}

static int read_reason(struct wish *wish, const char *name, size_t length, struct error *error)
{
    for (int i = 0; i < CORE_SCALE_REASONS; i++) {
        const char *reason = core_scale_reason_name((enum core_scale_reason)i);
        if (strlen(reason) == length && strncmp(reason, name, length) == 0) {
            wish->reasons |= 1u << i;
            return 0;
        }
    }
    return error_set(error, ERROR_INVALID_ARGUMENT,
                     "reasons: '%.*s' is none of slo, waiting, backlog", (int)length, name);
}

/* "slo,waiting" */
static int read_reasons(struct wish *wish, const char *value, struct error *error)
{
    int result = 0;
    wish->reasons = 0;
    for (const char *name = value; result == 0; name += strcspn(name, ",") + 1) {
        size_t length = strcspn(name, ",");
        result = read_reason(wish, name, length < 64 ? length : 64, error);
        if (name[length] == '\0') {
            break;
        }
    }
    return result;
}

static int read_count(const char *name, const char *value, uint32_t least, uint32_t *ret_count,
                      struct error *error)
{
    char *end = NULL;
    unsigned long long count = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || count < least || count > DEVICES_MOST) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "%s: '%.64s' is no number from %u to %u",
                         name, value, least, DEVICES_MOST);
    }
    *ret_count = (uint32_t)count;
    return 0;
}

static int read_devices_per_replica(struct wish *wish, const char *value, struct error *error)
{
    return read_count("devicesPerReplica", value, 1, &wish->devices_per_replica, error);
}

static int read_devices_elsewhere(struct wish *wish, const char *value, struct error *error)
{
    return read_count("devicesElsewhere", value, 0, &wish->devices_elsewhere, error);
}

static const struct key {
    const char *name;
    int (*read)(struct wish *wish, const char *value, struct error *error); /* NULL: KEDA's own */
} keys[] = {
    {"kind", read_kind},
    {"reasons", read_reasons},
    {"devicesPerReplica", read_devices_per_replica},
    {"devicesElsewhere", read_devices_elsewhere},
    {"scalerAddress", NULL},
    {"enableTLS", NULL},
    {"unsafeSsl", NULL},
    {"caCert", NULL},
    {"tlsClientCert", NULL},
    {"tlsClientKey", NULL},
};
#define KEYS (sizeof keys / sizeof keys[0])

/* "kindFromEnv" comes with the value of kind. */
static size_t name_length(const char *name)
{
    static const char suffix[] = "FromEnv";
    size_t length = strlen(name);
    size_t cut = sizeof suffix - 1;
    return length > cut && strcmp(name + length - cut, suffix) == 0 ? length - cut : length;
}

static int key_read(struct wish *wish, const char *name, const char *value, struct error *error)
{
    const char *names[KEYS];
    size_t length = name_length(name);
    for (size_t i = 0; i < KEYS; i++) {
        names[i] = keys[i].name;
        if (strlen(keys[i].name) == length && strncmp(keys[i].name, name, length) == 0) {
            return keys[i].read != NULL ? keys[i].read(wish, value, error) : 0;
        }
    }
    const char *nearest = options_nearest(name, names, KEYS);
    return error_set(error, ERROR_INVALID_ARGUMENT, "scalerMetadata: unknown key '%.64s'%s%s%s",
                     name, nearest != NULL ? "; did you mean '" : "",
                     nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
}

static int wish_read(const Externalscaler__ScaledObjectRef *object, struct wish *ret_wish,
                     struct error *error)
{
    struct wish wish = {.reasons = REASONS_STANDARD, .devices_per_replica = 1};
    int result = 0;
    for (size_t i = 0; object != NULL && i < object->n_scalermetadata && result == 0; i++) {
        result = key_read(&wish, object->scalermetadata[i]->key, object->scalermetadata[i]->value,
                          error);
    }
    if (result == 0) {
        *ret_wish = wish;
    }
    return result;
}

/* ---- what there is to say, on the control thread ---- */

static int devices_desired(struct control *control, const struct wish *wish, uint32_t *ret_devices,
                           struct error *error)
{
    struct control_scale scale;
    uint32_t devices = 0;
    bool known = wish->kind[0] == '\0';
    for (size_t i = 0; control_scale_at(control, i, &scale); i++) {
        bool counts = wish->kind[0] == '\0' || strcmp(scale.kind, wish->kind) == 0;
        known = known || counts;
        for (int reason = 0; reason < CORE_SCALE_REASONS && counts; reason++) {
            devices += (wish->reasons & 1u << reason) != 0 ? scale.core.desired[reason] : 0;
        }
    }
    if (!known) {
        return error_set(error, ERROR_NOT_FOUND, "kind '%s': there is no such kind of device here",
                         wish->kind);
    }
    *ret_devices = devices > wish->devices_elsewhere ? devices - wish->devices_elsewhere : 0;
    return 0;
}

struct asking {
    struct control_call letter; /* first */
    struct exchange exchange;
    struct wish wish;
    void (*answer)(const struct asking *asking, uint32_t devices);
};

static void answer_active(const struct asking *asking, uint32_t devices)
{
    Externalscaler__IsActiveResponse answer = EXTERNALSCALER__IS_ACTIVE_RESPONSE__INIT;
    answer.result = devices > 0;
    exchange_reply(&asking->exchange, &answer.base);
}

static char metric[] = METRIC; /* messages want a char * */

static void answer_spec(const struct asking *asking, uint32_t devices)
{
    Externalscaler__MetricSpec spec = EXTERNALSCALER__METRIC_SPEC__INIT;
    Externalscaler__MetricSpec *list[] = {&spec};
    Externalscaler__GetMetricSpecResponse answer = EXTERNALSCALER__GET_METRIC_SPEC_RESPONSE__INIT;
    (void)devices; /* asked for so that an unknown kind is refused here, too */
    spec.metricname = metric;
    spec.targetsize = asking->wish.devices_per_replica;
    spec.targetsizefloat = asking->wish.devices_per_replica;
    answer.metricspecs = list;
    answer.n_metricspecs = 1;
    exchange_reply(&asking->exchange, &answer.base);
}

static void answer_metrics(const struct asking *asking, uint32_t devices)
{
    Externalscaler__MetricValue value = EXTERNALSCALER__METRIC_VALUE__INIT;
    Externalscaler__MetricValue *list[] = {&value};
    Externalscaler__GetMetricsResponse answer = EXTERNALSCALER__GET_METRICS_RESPONSE__INIT;
    value.metricname = metric;
    value.metricvalue = devices;
    value.metricvaluefloat = devices;
    answer.metricvalues = list;
    answer.n_metricvalues = 1;
    exchange_reply(&asking->exchange, &answer.base);
}

static void run_answer(struct control *control, struct control_call *letter)
{
    struct asking *asking = (struct asking *)letter;
    struct error error = {0};
    uint32_t devices = 0;
    if (devices_desired(control, &asking->wish, &devices, &error) < 0) {
        exchange_finish(&asking->exchange, error.code, error.text);
    } else {
        asking->answer(asking, devices);
    }
    free(asking);
}

/* ---- the stream ---- */

struct activity {
    struct stream stream; /* first */
    struct wish wish;
    bool told, active;
};

static void activity_pass(struct control *control, struct stream *stream)
{
    struct activity *activity = (struct activity *)stream;
    Externalscaler__IsActiveResponse answer = EXTERNALSCALER__IS_ACTIVE_RESPONSE__INIT;
    struct error error = {0};
    uint32_t devices = 0;
    if (devices_desired(control, &activity->wish, &devices, &error) < 0) {
        stream_end(stream, error.code, error.text);
        return;
    }
    if (activity->told && activity->active == (devices > 0)) {
        return;
    }
    activity->told = true;
    answer.result = activity->active = devices > 0;
    if (exchange_send(&stream->exchange, &answer.base) < 0) {
        stream_end(stream, ERROR_CANCELLED, NULL); /* it reads nothing any more */
    }
}

/* ---- handlers, on network threads ---- */

static void begin(struct grpc_call *call, struct external_scaler *scaler,
                  const Externalscaler__ScaledObjectRef *object,
                  void (*answer)(const struct asking *asking, uint32_t devices))
{
    struct error error = {0};
    struct wish wish;
    if (wish_read(object, &wish, &error) < 0) {
        grpc_call_finish(call, error.code, error.text);
        return;
    }
    struct asking *asking = calloc(1, sizeof *asking);
    if (asking == NULL) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    *asking = (struct asking){.letter = {.run = run_answer},
                              .exchange = exchange_of_grpc(call),
                              .wish = wish,
                              .answer = answer};
    control_post(scaler->control, &asking->letter);
}

static void handle_is_active(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    begin(call, context, (const void *)message, answer_active);
}

static void handle_get_metric_spec(struct grpc_call *call, const ProtobufCMessage *message,
                                   void *context)
{
    begin(call, context, (const void *)message, answer_spec);
}

static void handle_get_metrics(struct grpc_call *call, const ProtobufCMessage *message,
                               void *context)
{
    const Externalscaler__GetMetricsRequest *request = (const void *)message;
    if (request->metricname[0] != '\0' && strcmp(request->metricname, METRIC) != 0) {
        char text[160];
        snprintf(text, sizeof text, "metricName: no metric '%.64s'; there is '%s'",
                 request->metricname, METRIC);
        grpc_call_finish(call, ERROR_NOT_FOUND, text);
        return;
    }
    begin(call, context, request->scaledobjectref, answer_metrics);
}

static void handle_stream_is_active(struct grpc_call *call, const ProtobufCMessage *message,
                                    void *context)
{
    struct external_scaler *scaler = context;
    struct error error = {0};
    struct wish wish;
    if (wish_read((const void *)message, &wish, &error) < 0) {
        grpc_call_finish(call, error.code, error.text);
        return;
    }
    struct activity *activity = calloc(1, sizeof *activity);
    if (activity == NULL) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    activity->wish = wish;
    stream_open(&activity->stream, &scaler->streams, exchange_of_grpc(call));
}

struct grpc_service external_scaler_service(struct external_scaler *scaler)
{
    static const struct grpc_method methods[] = {
        {"IsActive", GRPC_UNARY, &externalscaler__scaled_object_ref__descriptor, handle_is_active},
        {"StreamIsActive", GRPC_SERVER_STREAM, &externalscaler__scaled_object_ref__descriptor,
         handle_stream_is_active},
        {"GetMetricSpec", GRPC_UNARY, &externalscaler__scaled_object_ref__descriptor,
         handle_get_metric_spec},
        {"GetMetrics", GRPC_UNARY, &externalscaler__get_metrics_request__descriptor,
         handle_get_metrics},
    };
    return (struct grpc_service){.name = "externalscaler.ExternalScaler",
                                 .methods = methods,
                                 .method_count = sizeof methods / sizeof methods[0],
                                 .context = scaler};
}

/* ---- life ---- */

struct external_scaler *external_scaler_create(struct control *control, struct error *error)
{
    struct external_scaler *scaler = calloc(1, sizeof *scaler);
    if (scaler == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the external scaler: no memory");
        return NULL;
    }
    scaler->control = control;
    scaler->streams =
        (struct stream_set){.control = control, .begin = activity_pass, .pass = activity_pass};
    return scaler;
}

void external_scaler_destroy(struct external_scaler *scaler)
{
    free(scaler);
}

void external_scaler_close(struct external_scaler *scaler)
{
    stream_set_close(&scaler->streams);
}
