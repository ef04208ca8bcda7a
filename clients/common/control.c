#include "clients/common/control.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "server/base/clock.h"

#define SERVICE "/tidepool.v1.Control/"

int control_call(struct grpc_client *client, const char *method, const ProtobufCMessage *request,
                 uint64_t timeout_ns, void *ret_message, struct error *error)
{
    const ProtobufCMethodDescriptor *descriptor = protobuf_c_service_descriptor_get_method_by_name(
        &tidepool__v1__control__descriptor, method);
    assert(descriptor != NULL && descriptor->input == request->descriptor);
    char path[96];
    snprintf(path, sizeof(path), SERVICE "%s", method);
    ProtobufCMessage *message = NULL;
    int result =
        grpc_client_call(client, path, request, descriptor->output, timeout_ns, &message, error);
    if (result == 0) {
        memcpy(ret_message, &message, sizeof(message));
    }
    return result;
}

void control_free(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

struct watch {
    bool (*on_change)(void *context, const Tidepool__V1__Change *change);
    void *context;
    uint64_t revision;
};

static bool on_watch_message(void *context, const ProtobufCMessage *message)
{
    struct watch *watch = context;
    const Tidepool__V1__Change *change = (const Tidepool__V1__Change *)message;
    watch->revision = change->revision;
    return watch->on_change(watch->context, change);
}

int control_watch(struct grpc_client *client, uint32_t interval_ms, uint64_t timeout_ns,
                  bool (*on_change)(void *context, const Tidepool__V1__Change *change),
                  void *context, struct error *error)
{
    struct watch watch = {.on_change = on_change, .context = context};
    uint64_t deadline = timeout_ns == 0 ? UINT64_MAX : clock_add_ns(clock_now_ns(), timeout_ns);
    for (;;) {
        Tidepool__V1__WatchRequest request = TIDEPOOL__V1__WATCH_REQUEST__INIT;
        request.after_revision = watch.revision;
        request.interval_ms = interval_ms;
        uint64_t now = clock_now_ns();
        if (now >= deadline) {
            return error_set(error, ERROR_DEADLINE_EXCEEDED, "time is up");
        }
        int result = grpc_client_stream(
            client, SERVICE "Watch", &request.base, &tidepool__v1__change__descriptor,
            deadline == UINT64_MAX ? 0 : deadline - now, on_watch_message, &watch, error);
        if (result == -(int)ERROR_OUT_OF_RANGE && watch.revision != 0) {
            watch.revision = 0; /* forgotten: begin with all objects again */
        } else if (result != -(int)ERROR_RESOURCE_EXHAUSTED || watch.revision == 0) {
            return result;
        }
    }
}

/* "JOB_STATE_RUNNING" → "running": the text after the common prefix, in lower case. */
static const char *enum_name(const ProtobufCEnumDescriptor *type, int number, size_t prefix,
                             char *text, size_t size)
{
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(type, number);
    if (value == NULL || number == 0 || strlen(value->name) <= prefix) {
        return "unknown";
    }
    size_t length = 0;
    for (const char *p = value->name + prefix; *p != '\0' && length + 1 < size; p++) {
        text[length++] = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
    }
    text[length] = '\0';
    return text;
}

const char *control_device_state(const Tidepool__V1__Device *device)
{
    static _Thread_local char text[32];
    return enum_name(&tidepool__v1__device_state__descriptor, (int)device->state,
                     strlen("DEVICE_STATE_"), text, sizeof(text));
}

const char *control_endpoint_state(const Tidepool__V1__Endpoint *endpoint)
{
    static _Thread_local char text[32];
    return enum_name(&tidepool__v1__endpoint_state__descriptor, (int)endpoint->state,
                     strlen("ENDPOINT_STATE_"), text, sizeof(text));
}

const char *control_job_state(const Tidepool__V1__Job *job)
{
    static _Thread_local char text[32];
    return enum_name(&tidepool__v1__job_state__descriptor, (int)job->state, strlen("JOB_STATE_"),
                     text, sizeof(text));
}

static const char *const mode_names[] = {
    [TIDEPOOL__V1__MODE__MODE_UNSPECIFIED] = "unknown",
    [TIDEPOOL__V1__MODE__MODE_OBSERVE] = "observe",
    [TIDEPOOL__V1__MODE__MODE_ADVISE] = "advise",
    [TIDEPOOL__V1__MODE__MODE_ACT] = "act",
};

const char *control_mode(Tidepool__V1__Mode mode)
{
    return mode <= TIDEPOOL__V1__MODE__MODE_ACT ? mode_names[mode] : "unknown";
}

int control_mode_find(const char *name, Tidepool__V1__Mode *ret_mode)
{
    for (unsigned i = 1; i <= TIDEPOOL__V1__MODE__MODE_ACT; i++) {
        if (strcmp(name, mode_names[i]) == 0) {
            *ret_mode = (Tidepool__V1__Mode)i;
            return 0;
        }
    }
    return -(int)ERROR_INVALID_ARGUMENT;
}

bool control_job_over(const Tidepool__V1__Job *job)
{
    return job->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_FINISHED ||
           job->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_FAILED ||
           job->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_CANCELLED;
}
