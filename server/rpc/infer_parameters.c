/* The parameters of a ModelInfer: those that mean something here, and those that are refused. */
#include <inttypes.h>

#include "server/base/clock.h"
#include "server/rpc/infer_call.h"

#define KINDS(kind) (1u << PARAMETER_##kind)

static const char *const kind_names[] = {"nothing",      "bool_param",   "int64_param",
                                         "string_param", "double_param", "uint64_param"};

static int wrong_kind(const struct infer_parameter *parameter, const char *wanted,
                      struct error *error)
{
    struct shown_text key;
    return error_set(error, ERROR_INVALID_ARGUMENT, "parameter '%s' takes %s and got %s",
                     shown(&key, parameter->key), wanted, kind_names[parameter->kind]);
}

static int refused(const struct infer_parameter *parameter, const char *why, struct error *error)
{
    struct shown_text key;
    return error_set(error, ERROR_INVALID_ARGUMENT, "parameter '%s': %s",
                     shown(&key, parameter->key), why);
}

static int sequence_id_check(struct infer_call *infer, const struct infer_parameter *parameter,
                             struct error *error)
{
    (void)infer;
    if (parameter->kind == PARAMETER_TEXT ? parameter->text.length > 0 : parameter->bits != 0) {
        return refused(parameter, "sequences are not served", error);
    }
    return 0;
}

static int sequence_flag_check(struct infer_call *infer, const struct infer_parameter *parameter,
                               struct error *error)
{
    (void)infer;
    return parameter->bits != 0 ? refused(parameter, "sequences are not served", error) : 0;
}

static int priority_take(struct infer_call *infer, const struct infer_parameter *parameter,
                         struct error *error)
{
    if (parameter->kind == PARAMETER_INT64 && (int64_t)parameter->bits < 0) {
        return refused(parameter, "a priority is 0 or more", error);
    }
    infer->request.priority = parameter->bits <= UINT32_MAX ? (uint32_t)parameter->bits : 0;
    return 0;
}

/* The time that the client grants in the queue, and the call's deadline: the earlier counts. */
static int timeout_take(struct infer_call *infer, const struct infer_parameter *parameter,
                        struct error *error)
{
    struct serve_request *request = &infer->request;
    uint64_t limit_us = UINT64_MAX / NS_PER_US, deadline_ns;
    if ((int64_t)parameter->bits < 0) {
        return refused(parameter, "a timeout is 0 or more microseconds", error);
    }
    if (parameter->bits == 0) {
        return 0;
    }
    deadline_ns = parameter->bits > limit_us
                      ? UINT64_MAX
                      : clock_add_ns(request->arrival_ns, parameter->bits * NS_PER_US);
    if (deadline_ns < request->deadline_ns) {
        request->deadline_ns = deadline_ns;
        request->deadline_watched = false;
    }
    return 0;
}

static int nothing_take(struct infer_call *infer, const struct infer_parameter *parameter,
                        struct error *error)
{
    (void)infer;
    (void)parameter;
    (void)error;
    return 0;
}

static const struct parameter_rule {
    const char *key;
    uint32_t kinds;
    const char *kinds_text;
    int (*take)(struct infer_call *infer, const struct infer_parameter *parameter,
                struct error *error);
} rules[] = {
    {"sequence_id", KINDS(INT64) | KINDS(TEXT), "int64_param or string_param", sequence_id_check},
    {"sequence_start", KINDS(BOOL), "bool_param", sequence_flag_check},
    {"sequence_end", KINDS(BOOL), "bool_param", sequence_flag_check},
    {"priority", KINDS(INT64) | KINDS(UINT64), "int64_param or uint64_param", priority_take},
    {"timeout", KINDS(INT64), "int64_param", timeout_take},
    {"triton_enable_empty_final_response", KINDS(BOOL), "bool_param", nothing_take},
};

static bool starts_with(struct wire_text text, const char *start)
{
    size_t length = strlen(start);
    return text.length >= length && memcmp(text.data, start, length) == 0;
}

static int of_request(struct infer_call *infer, const struct infer_parameter *parameter,
                      struct error *error)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (wire_text_is(parameter->key, rules[i].key, strlen(rules[i].key))) {
            return (rules[i].kinds & (1u << parameter->kind)) != 0
                       ? rules[i].take(infer, parameter, error)
                       : wrong_kind(parameter, rules[i].kinds_text, error);
        }
    }
    if (starts_with(parameter->key, "triton_")) {
        return refused(parameter,
                       "names that begin with triton_ are reserved and this one is not "
                       "known",
                       error);
    }
    /* For the model, and no model here takes any: only their kinds are checked. */
    if (parameter->kind == PARAMETER_UNSET || parameter->kind == PARAMETER_UINT64) {
        return wrong_kind(parameter, "bool_param, int64_param, string_param or double_param",
                          error);
    }
    return 0;
}

static int of_tensor(const struct infer_message *message, const struct infer_parameter *parameter,
                     struct error *error)
{
    struct shown_text tensor, key;
    bool output = parameter->owner >= INFER_TENSORS_MAX;
    struct wire_text name = output ? message->outputs[parameter->owner - INFER_TENSORS_MAX].name
                                   : message->inputs[parameter->owner].name;
    const char *kind = output ? "output" : "input";
    if (starts_with(parameter->key, "shared_memory_")) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "%s '%s': parameter '%s': shared memory regions are not served; send the "
                         "data in the message",
                         kind, shown(&tensor, name), shown(&key, parameter->key));
    }
    if (output && wire_text_is(parameter->key, "classification", strlen("classification"))) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "output '%s': parameter 'classification' is not served; ask for the "
                         "whole output and take its largest values",
                         shown(&tensor, name));
    }
    return 0;
}

int infer_parameters_check(struct infer_call *infer, const struct infer_message *message,
                           struct error *error)
{
    for (uint32_t i = 0; i < message->parameter_count; i++) {
        const struct infer_parameter *parameter = &message->parameters[i];
        int result = parameter->owner == PARAMETER_OF_REQUEST
                         ? of_request(infer, parameter, error)
                         : of_tensor(message, parameter, error);
        if (result < 0) {
            return result;
        }
    }
    return 0;
}
