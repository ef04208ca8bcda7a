#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clients/common/infer_message.h"
#include "clients/common/tensor_value.h"
#include "server/base/json_message.h"

/* Sends the JSON inputs through an identity model: request → answer → JSON. */
static json_t *round_trip(const char *text, struct error *error)
{
    json_error_t where;
    json_t *object = json_loads(text, 0, &where);
    assert_non_null(object);
    unsigned char *body = NULL;
    size_t length = 0;
    json_t *result = NULL;
    if (infer_request_from_json(object, "m", &body, &length, error) == 0) {
        Inference__ModelInferRequest *request =
            inference__model_infer_request__unpack(NULL, length, body);
        assert_non_null(request);
        assert_string_equal(request->model_name, "m");
        Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
        Inference__ModelInferResponse__InferOutputTensor output =
            INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
        Inference__ModelInferResponse__InferOutputTensor *outputs[] = {&output};
        output.name = request->inputs[0]->name;
        output.datatype = request->inputs[0]->datatype;
        output.shape = request->inputs[0]->shape;
        output.n_shape = request->inputs[0]->n_shape;
        response.n_outputs = 1;
        response.outputs = outputs;
        response.n_raw_output_contents = 1;
        response.raw_output_contents = request->raw_input_contents;
        result = infer_response_to_json(&response, error);
        inference__model_infer_request__free_unpacked(request, NULL);
    }
    free(body);
    json_decref(object);
    return result;
}

static void every_datatype_comes_back_as_it_went(void **state)
{
    (void)state;
    static const struct {
        const char *datatype, *data;
    } cases[] = {
        {"BOOL", "[true,false]"},
        {"INT8", "[-128,127]"},
        {"INT16", "[-32768,32767]"},
        {"INT32", "[-2147483648,2147483647]"},
        {"INT64", "[-9223372036854775808,9223372036854775807]"},
        {"UINT8", "[0,255]"},
        {"UINT16", "[0,65535]"},
        {"UINT32", "[0,4294967295]"},
        {"UINT64", "[0,9223372036854775807]"},
        {"FP16", "[-65504.0,0.333251953125]"},
        {"BF16", "[-1.5,0.333984375]"},
        {"FP32", "[-1.5,16777216.0]"},
        {"FP64", "[0.1,1e300]"},
        {"BYTES", "[\"\",\"é\"]"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        struct error error = {0};
        snprintf(
            text, sizeof(text),
            "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,2],\"datatype\":\"%s\",\"data\":[%s]}]}",
            cases[i].datatype, cases[i].data);
        json_t *result = round_trip(text, &error);
        if (result == NULL) {
            fail_msg("%s: %s", cases[i].datatype, error.text);
        }
        const json_t *output = json_array_get(json_object_get(result, "outputs"), 0);
        json_t *data = json_loads(cases[i].data, 0, NULL);
        assert_true(json_equal(json_object_get(output, "data"), data));
        assert_string_equal(json_string_value(json_object_get(output, "datatype")),
                            cases[i].datatype);
        json_decref(data);
        json_decref(result);
    }
}

static void every_half_survives_the_way_through_a_double(void **state)
{
    (void)state;
    const struct tensor_datatype *half = tensor_datatype_find("FP16");
    for (unsigned bits = 0; bits < 65536; bits++) {
        unsigned char raw[2] = {(unsigned char)bits, (unsigned char)(bits >> 8)}, again[2];
        json_t *value = tensor_value_to_json(half, raw);
        if (json_is_number(value)) {
            assert_int_equal(tensor_value_from_json(half, value, again), 0);
            assert_memory_equal(raw, again, 2);
        } else {
            assert_int_equal(bits >> 10 & 31, 31); /* infinities and NaN are text in JSON */
        }
        json_decref(value);
    }
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{}", "inputs"},
        {"{\"inputs\":[]}", "1 to 1024"},
        {"{\"inputs\":[{\"name\":\"x\"}]}", "inputs[0]"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP33\",\"data\":[1]}]}",
         "FP33"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"FP32\",\"data\":[1]}]}",
         "1 elements"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1,2]}]}",
         "more elements"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[-1],\"datatype\":\"FP32\",\"data\":[1]}]}",
         "below 0"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1.5],\"datatype\":\"FP32\",\"data\":[1]}]}",
         "no whole number"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[128]}]}",
         "no INT8"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[-1]}]}",
         "no UINT8"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BYTES\",\"data\":[1]}]}",
         "not text"},
        {"{\"inputs\":[{\"name\":\"x\",\"shape\":[9000000000,9000000000],\"datatype\":\"FP32\","
         "\"data\":[1]}]}",
         "64 MiB"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error error = {0};
        assert_null(round_trip(cases[i].text, &error));
        if (strstr(error.text, cases[i].says) == NULL) {
            fail_msg("'%s' does not say '%s'", error.text, cases[i].says);
        }
    }
}

static void a_request_from_metadata_fits_the_model(void **state)
{
    (void)state;
    Inference__ModelMetadataResponse metadata = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    Inference__ModelMetadataResponse__TensorMetadata tensor =
        INFERENCE__MODEL_METADATA_RESPONSE__TENSOR_METADATA__INIT;
    Inference__ModelMetadataResponse__TensorMetadata *inputs[] = {&tensor};
    int64_t shape[] = {-1, 64};
    char name[] = "x", datatype[] = "FP32", model[] = "digits";
    tensor.name = name;
    tensor.datatype = datatype;
    tensor.shape = shape;
    tensor.n_shape = 2;
    metadata.name = model;
    metadata.inputs = inputs;
    metadata.n_inputs = 1;
    unsigned char *body = NULL;
    size_t length = 0;
    struct error error = {0};
    assert_int_equal(infer_request_from_metadata(&metadata, 3, 1, &body, &length, &error), 0);
    Inference__ModelInferRequest *request =
        inference__model_infer_request__unpack(NULL, length, body);
    assert_non_null(request);
    assert_int_equal(request->inputs[0]->shape[0], 3);
    assert_int_equal(request->inputs[0]->shape[1], 64);
    assert_int_equal(request->raw_input_contents[0].len, 3 * 64 * 4);
    float values[3 * 64];
    memcpy(values, request->raw_input_contents[0].data, sizeof(values));
    for (size_t i = 0; i < 3 * 64; i++) {
        assert_true(values[i] >= 0 && values[i] <= 1);
    }
    assert_true(values[0] != values[1]);
    inference__model_infer_request__free_unpacked(request, NULL);
    free(body);
    shape[1] = INT64_MAX;
    assert_true(infer_request_from_metadata(&metadata, 3, 1, &body, &length, &error) < 0);
    assert_non_null(strstr(error.text, "64 MiB"));
}

static void an_answer_that_lies_about_its_size_is_an_error(void **state)
{
    (void)state;
    Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    Inference__ModelInferResponse__InferOutputTensor output =
        INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
    Inference__ModelInferResponse__InferOutputTensor *outputs[] = {&output};
    int64_t shape[] = {2};
    char name[] = "y", fp32[] = "FP32", bytes[] = "BYTES";
    uint8_t data[8] = {255, 255, 255, 255};
    ProtobufCBinaryData raw = {4, data};
    struct error error = {0};
    output.name = name;
    output.datatype = fp32;
    output.shape = shape;
    output.n_shape = 1;
    response.outputs = outputs;
    response.n_outputs = 1;
    assert_null(infer_response_to_json(&response, &error)); /* no data at all */
    response.raw_output_contents = &raw;
    response.n_raw_output_contents = 1;
    assert_null(infer_response_to_json(&response, &error)); /* too short */
    output.datatype = bytes;
    assert_null(infer_response_to_json(&response, &error)); /* an element of 4 GiB */
    shape[0] = INT64_MAX;
    assert_null(infer_response_to_json(&response, &error));
}

static void messages_follow_the_json_mapping(void **state)
{
    (void)state;
    Inference__ModelMetadataRequest request = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    char name[] = "m\"x";
    request.name = name;
    json_t *value = json_from_message(&request.base);
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"name\":\"m\\\"x\",\"version\":\"\"}");
    free(text);
    json_decref(value);
    value = json_from_double(NAN);
    assert_string_equal(json_string_value(value), "NaN");
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_datatype_comes_back_as_it_went),
        cmocka_unit_test(every_half_survives_the_way_through_a_double),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(a_request_from_metadata_fits_the_model),
        cmocka_unit_test(an_answer_that_lies_about_its_size_is_an_error),
        cmocka_unit_test(messages_follow_the_json_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
