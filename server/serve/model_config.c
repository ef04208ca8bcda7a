#include "server/serve/model_config.h"

#include <stdlib.h>
#include <string.h>

#define SLO_LATENCY_NS UINT64_C(100000000)
#define SLO_TARGET 0.99
#define QUEUE_REQUESTS_MAX 1000
#define QUEUE_BYTES_MAX (UINT64_C(256) << 20)

static bool letter_or_digit(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool model_name_valid(const char *name, size_t length)
{
    if (length == 0 || length > MODEL_NAME_MAX || (!letter_or_digit(name[0]) && name[0] != '_')) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (!letter_or_digit(name[i]) && name[i] != '.' && name[i] != '_' && name[i] != '-') {
            return false;
        }
    }
    return true;
}

bool model_version_parse(const char *text, size_t length, uint32_t *ret_version)
{
    uint32_t version = 0;
    if (length == 0 || length > 9 || (text[0] == '0' && length > 1)) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        version = version * 10 + (uint32_t)(text[i] - '0');
    }
    *ret_version = version;
    return true;
}

void model_config_init(struct model_config *config, const char *name)
{
    *config = (struct model_config){
        .runtime = &onnx_runtime,
        .filename = "model.onnx",
        .batch_max = MODEL_BATCH_AUTO,
        .slo_latency_ns = SLO_LATENCY_NS,
        .slo_target = SLO_TARGET,
        .devices_min = 1,
        .devices_max = UINT32_MAX,
        .queue_requests_max = QUEUE_REQUESTS_MAX,
        .queue_bytes_max = QUEUE_BYTES_MAX,
    };
    size_t length = strnlen(name, MODEL_NAME_MAX);
    memcpy(config->name, name, length);
    config->name[length] = '\0';
}

void model_config_fini(struct model_config *config)
{
    model_signature_fini(&config->configured);
}

/* Digits up to `end` as a number; "" is `none`. */
static int count_parse(const char *text, size_t length, uint32_t none, uint32_t *ret_count)
{
    if (length == 0) {
        *ret_count = none;
        return none == 0 ? -1 : 0;
    }
    return model_version_parse(text, length, ret_count) ? 0 : -1;
}

int model_devices_parse(const char *text, uint32_t *ret_minimum, uint32_t *ret_maximum,
                        struct error *error)
{
    const char *colon = strchr(text, ':');
    size_t length = colon == NULL ? strlen(text) : (size_t)(colon - text);
    uint32_t minimum = 0, maximum = 0;
    int result = count_parse(text, length, 0, &minimum);
    if (result == 0) {
        maximum = minimum;
        result =
            colon == NULL ? 0 : count_parse(colon + 1, strlen(colon + 1), UINT32_MAX, &maximum);
    }
    if (result < 0 || maximum == 0 || minimum > maximum) {
        return error_set(
            error, ERROR_INVALID_ARGUMENT,
            "devices '%.40s': written as 2, as 1:4 or, for all there are, as 1:", text);
    }
    *ret_minimum = minimum;
    *ret_maximum = maximum;
    return 0;
}
