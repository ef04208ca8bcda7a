#include "clients/common/tensor_value.h"

#include <math.h>
#include <string.h>

#include "server/base/json_message.h"

static const struct tensor_datatype datatypes[] = {
    {"BOOL", TENSOR_BOOL, 1},       {"INT8", TENSOR_SIGNED, 1},     {"INT16", TENSOR_SIGNED, 2},
    {"INT32", TENSOR_SIGNED, 4},    {"INT64", TENSOR_SIGNED, 8},    {"UINT8", TENSOR_UNSIGNED, 1},
    {"UINT16", TENSOR_UNSIGNED, 2}, {"UINT32", TENSOR_UNSIGNED, 4}, {"UINT64", TENSOR_UNSIGNED, 8},
    {"FP16", TENSOR_FLOAT, 2},      {"FP32", TENSOR_FLOAT, 4},      {"FP64", TENSOR_FLOAT, 8},
    {"BF16", TENSOR_BFLOAT, 2},     {"BYTES", TENSOR_BYTES, 0},
};

const struct tensor_datatype *tensor_datatype_find(const char *name)
{
    for (size_t i = 0; i < sizeof(datatypes) / sizeof(datatypes[0]); i++) {
        if (strcmp(datatypes[i].name, name) == 0) {
            return &datatypes[i];
        }
    }
    return NULL;
}

static void bits_store(unsigned char *raw, uint64_t bits, unsigned size)
{
    for (unsigned i = 0; i < size; i++) {
        raw[i] = (unsigned char)(bits >> 8 * i);
    }
}

static uint64_t bits_load(const unsigned char *raw, unsigned size)
{
    uint64_t bits = 0;
    for (unsigned i = 0; i < size; i++) {
        bits |= (uint64_t)raw[i] << 8 * i;
    }
    return bits;
}

/* Rounds to the nearest half, ties to even, over doubles: exact for every double. */
static uint16_t half_from_double(double number)
{
    uint16_t sign = signbit(number) ? 0x8000 : 0;
    double size = fabs(number);
    if (isnan(number)) {
        return 0x7e00;
    }
    if (size >= 65520.0) { /* halfway between the largest half and the next power of two */
        return sign | 0x7c00;
    }
    int exponent = 0;
    frexp(size, &exponent); /* size = f × 2^exponent, f in [0.5, 1) */
    if (size == 0 || exponent < -13) {
        return sign | (uint16_t)nearbyint(ldexp(size, 24)); /* below 2^-14: steps of 2^-24 */
    }
    /* A mantissa that rounds up to 2048 carries into the exponent by itself. */
    unsigned mantissa = (unsigned)nearbyint(ldexp(size, 11 - exponent));
    return (uint16_t)(sign + ((unsigned)(exponent + 14) << 10) + (mantissa - 1024));
}

static double half_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    int mantissa = bits & 1023;
    double size = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(mantissa + 1024, exponent - 25);
    return (bits & 0x8000) != 0 ? -size : size;
}

static uint16_t bfloat_from_double(double number)
{
    float single = (float)number;
    uint32_t bits;
    memcpy(&bits, &single, sizeof(bits));
    if (isnan(number)) {
        return 0x7fc0;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void float_store(const struct tensor_datatype *datatype, double number, unsigned char *raw)
{
    float single = (float)number;
    uint64_t bits = 0;
    uint32_t bits32 = 0;
    if (datatype->kind == TENSOR_BFLOAT) {
        bits = bfloat_from_double(number);
    } else if (datatype->size == 2) {
        bits = half_from_double(number);
    } else if (datatype->size == 4) {
        memcpy(&bits32, &single, sizeof(bits32));
        bits = bits32;
    } else {
        memcpy(&bits, &number, sizeof(bits));
    }
    bits_store(raw, bits, datatype->size);
}

static double float_load(const struct tensor_datatype *datatype, const unsigned char *raw)
{
    uint64_t bits = bits_load(raw, datatype->size);
    if (datatype->kind == TENSOR_BFLOAT || datatype->size == 4) {
        uint32_t bits32 = datatype->kind == TENSOR_BFLOAT ? (uint32_t)bits << 16 : (uint32_t)bits;
        float single;
        memcpy(&single, &bits32, sizeof(single));
        return (double)single;
    }
    if (datatype->size == 2) {
        return half_to_double((uint16_t)bits);
    }
    double number;
    memcpy(&number, &bits, sizeof(number));
    return number;
}

static int integer_from_json(const struct tensor_datatype *datatype, const json_t *value,
                             unsigned char *raw)
{
    unsigned width = datatype->size * 8;
    if (!json_is_integer(value)) {
        return -1;
    }
    long long number = json_integer_value(value);
    if (datatype->kind == TENSOR_UNSIGNED) {
        if (number < 0 || (width < 64 && number >> width != 0)) {
            return -1;
        }
    } else if (width < 64 && (number < -(1LL << (width - 1)) || number >= 1LL << (width - 1))) {
        return -1;
    }
    bits_store(raw, (uint64_t)number, datatype->size);
    return 0;
}

int tensor_value_from_json(const struct tensor_datatype *datatype, const json_t *value,
                           unsigned char *raw)
{
    switch (datatype->kind) {
    case TENSOR_BOOL:
        if (!json_is_boolean(value) &&
            !(json_is_integer(value) && json_integer_value(value) >> 1 == 0)) {
            return -1;
        }
        raw[0] = json_is_true(value) || (json_is_integer(value) && json_integer_value(value) == 1);
        return 0;
    case TENSOR_SIGNED:
    case TENSOR_UNSIGNED:
        return integer_from_json(datatype, value, raw);
    case TENSOR_FLOAT:
    case TENSOR_BFLOAT:
        if (!json_is_number(value)) {
            return -1;
        }
        float_store(datatype, json_number_value(value), raw);
        return 0;
    case TENSOR_BYTES:
        break;
    }
    return -1;
}

json_t *tensor_value_to_json(const struct tensor_datatype *datatype, const unsigned char *raw)
{
    uint64_t bits = bits_load(raw, datatype->size);
    unsigned unused = 64 - datatype->size * 8;
    switch (datatype->kind) {
    case TENSOR_BOOL:
        return json_boolean(raw[0] != 0);
    case TENSOR_SIGNED:
        return json_integer((int64_t)(bits << unused) >> unused);
    case TENSOR_UNSIGNED:
        /* jansson has no unsigned integers: above INT64_MAX the nearest double. */
        return bits > INT64_MAX ? json_real((double)bits) : json_integer((json_int_t)bits);
    case TENSOR_FLOAT:
    case TENSOR_BFLOAT:
        return json_from_double(float_load(datatype, raw));
    case TENSOR_BYTES:
        break;
    }
    return NULL;
}

void tensor_value_from_unit(const struct tensor_datatype *datatype, double unit, unsigned char *raw)
{
    if (datatype->kind == TENSOR_FLOAT || datatype->kind == TENSOR_BFLOAT) {
        float_store(datatype, unit, raw);
    } else {
        bits_store(raw, unit >= 0.5 ? 1 : 0, datatype->size);
    }
}
