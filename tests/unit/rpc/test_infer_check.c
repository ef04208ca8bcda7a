/* ModelInfer from message bytes to checked tensors and back to an answer, without a network: every
 * row of the protocol's table of refusals, with what its text has to name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "inference/inference.pb-c.h"
#include "server/base/clock.h"
#include "server/rpc/infer_call.h"
#include "server/serve/serve.h"

typedef Inference__ModelInferRequest Request;
typedef Inference__ModelInferRequest__InferInputTensor Input;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor Output;
typedef Inference__InferTensorContents Contents;
typedef Inference__InferParameter Parameter;

/* ---- an endpoint: A FP32 [-1,4] and B BYTES [-1,1] come out as X and Y ------------------------
 */

static struct {
    struct device_set devices;
    struct serve *serve;
    struct endpoint *endpoint;
} bench;

static int bench_setup(void **state)
{
    static char a[] = "A", b[] = "B", x[] = "X", y[] = "Y";
    static struct tensor_spec inputs[] = {{a, DATATYPE_FP32, 1, {4}}, {b, DATATYPE_BYTES, 1, {1}}};
    static struct tensor_spec outputs[] = {{x, DATATYPE_FP32, 1, {4}}, {y, DATATYPE_BYTES, 1, {1}}};
    struct model_signature configured = {8, 2, 2, inputs, outputs};
    struct model_source source = {.batch_max = 8, .configured = &configured};
    struct device_config config = {.cpu_devices = 1, .cores_per_device = 1};
    struct serve_options options = {0};
    struct repository_model *model = calloc(1, sizeof(*model));
    struct error error;
    (void)state;
    assert_int_equal(device_set_discover(&config, &bench.devices, &error), 0);
    bench.serve = serve_create(&bench.devices, &options, &error);
    assert_non_null(bench.serve);
    model_config_init(&model->config, "pair");
    model->config.runtime = &identity_runtime;
    assert_int_equal(identity_runtime.load(&source, &model->model, &error), 0);
    model->signature = identity_runtime.signature(model->model);
    model->version = 3;
    assert_int_equal(serve_endpoint_add(bench.serve, 1, model, &error), 0);
    serve_set_open(bench.serve, true);
    bench.endpoint = endpoint_find(bench.serve, "pair", 4);
    assert_non_null(bench.endpoint);
    return 0;
}

static int bench_teardown(void **state)
{
    (void)state;
    endpoint_release(bench.endpoint);
    serve_destroy(bench.serve);
    device_set_destroy(&bench.devices);
    return 0;
}

/* ---- a good request, which each test spoils ---------------------------------------------------
 */

static char name_a[] = "A", name_b[] = "B", type_fp32[] = "FP32", type_bytes[] = "BYTES",
            text_pair[] = "pair", text_id[] = "r-1";

struct good {
    Request request;
    Input a, b, c;
    Input *inputs[3];
    int64_t shape_a[10], shape_b[2];
    ProtobufCBinaryData raw[3];
    unsigned char data_a[64], data_b[16];
    Output outputs[2];
    Output *output_list[2];
    Contents contents_a, contents_b;
    float floats[8];
    ProtobufCBinaryData strings[2];
    Parameter value;
    Inference__ModelInferRequest__ParametersEntry entry;
    Inference__ModelInferRequest__ParametersEntry *entries[1];
    Inference__ModelInferRequest__InferInputTensor__ParametersEntry input_entry;
    Inference__ModelInferRequest__InferInputTensor__ParametersEntry *input_entries[1];
    Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry output_entry;
    Inference__ModelInferRequest__InferRequestedOutputTensor__ParametersEntry *output_entries[1];
};

static void good_init(struct good *good)
{
    memset(good, 0, sizeof(*good));
    inference__model_infer_request__init(&good->request);
    inference__model_infer_request__infer_input_tensor__init(&good->a);
    good->b = good->a;
    good->c = good->a;
    inference__infer_tensor_contents__init(&good->contents_a);
    inference__infer_tensor_contents__init(&good->contents_b);
    inference__infer_parameter__init(&good->value);
    inference__model_infer_request__parameters_entry__init(&good->entry);
    inference__model_infer_request__infer_input_tensor__parameters_entry__init(&good->input_entry);
    inference__model_infer_request__infer_requested_output_tensor__parameters_entry__init(
        &good->output_entry);
    memcpy(good->shape_a, (int64_t[]){2, 4}, 16);
    memcpy(good->shape_b, (int64_t[]){2, 1}, 16);
    memcpy(good->data_b, "\x01\0\0\0z\x03\0\0\0a\0b", 12);
    good->a.name = name_a;
    good->a.datatype = type_fp32;
    good->a.n_shape = 2;
    good->a.shape = good->shape_a;
    good->b.name = name_b;
    good->b.datatype = type_bytes;
    good->b.n_shape = 2;
    good->b.shape = good->shape_b;
    good->inputs[0] = &good->a;
    good->inputs[1] = &good->b;
    good->inputs[2] = &good->c;
    good->raw[0] = (ProtobufCBinaryData){32, good->data_a};
    good->raw[1] = (ProtobufCBinaryData){12, good->data_b};
    good->raw[2] = (ProtobufCBinaryData){0, NULL};
    for (int i = 0; i < 2; i++) {
        inference__model_infer_request__infer_requested_output_tensor__init(&good->outputs[i]);
        good->output_list[i] = &good->outputs[i];
    }
    good->request.model_name = text_pair;
    good->request.id = text_id;
    good->request.n_inputs = 2;
    good->request.inputs = good->inputs;
    good->request.n_raw_input_contents = 2;
    good->request.raw_input_contents = good->raw;
    good->request.outputs = good->output_list;
    good->strings[0] = good->raw[2];
    good->strings[1] = (ProtobufCBinaryData){3, good->data_b};
}

static void make_typed(struct good *good)
{
    good->request.n_raw_input_contents = 0;
    good->a.contents = &good->contents_a;
    good->contents_a.n_fp32_contents = 8;
    good->contents_a.fp32_contents = good->floats;
    good->b.contents = &good->contents_b;
    good->contents_b.n_bytes_contents = 2;
    good->contents_b.bytes_contents = good->strings;
}

static void with_parameter(struct good *good, char *key,
                           Inference__InferParameter__ParameterChoiceCase kind)
{
    good->value.parameter_choice_case = kind;
    good->entry.key = key;
    good->entry.value = &good->value;
    good->entries[0] = &good->entry;
    good->request.n_parameters = 1;
    good->request.parameters = good->entries;
}

struct answer {
    struct infer_call *infer;
    unsigned char *bytes;
    size_t length;
    struct infer_message message;
    struct error error;
    int result;
};

static void answer_free(struct answer *answer)
{
    buffer_release(answer->infer->typed);
    free(answer->infer);
    free(answer->bytes);
}

/* As the handler does it, with an arrival at 1 s and a deadline at 2 s. */
static struct answer check(const struct good *good)
{
    struct answer answer = {0};
    answer.length = inference__model_infer_request__get_packed_size(&good->request);
    answer.bytes = malloc(answer.length);
    answer.infer = calloc(1, sizeof(struct infer_call) + 2 * sizeof(struct tensor));
    (void)inference__model_infer_request__pack(&good->request, answer.bytes);
    assert_int_equal(
        infer_message_decode(answer.bytes, answer.length, &answer.message, &answer.error), 0);
    answer.infer->endpoint = bench.endpoint;
    answer.infer->request = (struct serve_request){.inputs = answer.infer->inputs,
                                                   .bytes = answer.length,
                                                   .arrival_ns = NS_PER_S,
                                                   .deadline_ns = 2 * NS_PER_S,
                                                   .deadline_watched = true};
    answer.infer->model_name = answer.message.model_name;
    answer.infer->id = answer.message.id;
    answer.result = infer_call_fill(answer.infer, &answer.message, &answer.error);
    return answer;
}

static void refused(const struct good *good, enum error_code code, const char *first,
                    const char *second)
{
    struct answer answer = check(good);
    assert_int_equal(answer.result, -(int)code);
    assert_non_null(strstr(answer.error.text, "model 'pair'"));
    if (strstr(answer.error.text, first) == NULL || strstr(answer.error.text, second) == NULL) {
        fail_msg("'%s' names neither '%s' nor '%s'", answer.error.text, first, second);
    }
    answer_free(&answer);
}
#define REFUSED(good, first, second) refused(good, ERROR_INVALID_ARGUMENT, first, second)

/* ---- tests ------------------------------------------------------------------------------------
 */

static void raw_inputs_stay_where_they_are_in_the_message(void **state)
{
    struct good good;
    (void)state;
    good_init(&good);
    struct answer answer = check(&good);
    assert_int_equal(answer.result, 0);
    assert_int_equal(answer.infer->request.rows, 2);
    assert_int_equal(answer.infer->output_count, 2);
    const unsigned char *data = answer.infer->inputs[0].data;
    assert_true(data > answer.bytes && data + 32 <= answer.bytes + answer.length);
    assert_null(answer.infer->typed);
    answer_free(&answer);
}

static void typed_inputs_become_raw_ones(void **state)
{
    struct good good;
    (void)state;
    good_init(&good);
    make_typed(&good);
    good.floats[7] = 2.5f;
    struct answer answer = check(&good);
    assert_int_equal(answer.result, 0);
    assert_memory_equal(answer.infer->inputs[0].data, good.floats, 32);
    assert_int_equal(answer.infer->inputs[1].bytes, 11);
    assert_memory_equal(answer.infer->inputs[1].data, "\0\0\0\0\x03\0\0\0\x01\0\0", 11);
    assert_true(answer.infer->request.bytes > answer.length);
    answer_free(&answer);
}

static void inputs_come_in_any_order(void **state)
{
    struct good good;
    (void)state;
    good_init(&good);
    good.inputs[0] = &good.b;
    good.inputs[1] = &good.a;
    ProtobufCBinaryData first = good.raw[0];
    good.raw[0] = good.raw[1];
    good.raw[1] = first;
    struct answer answer = check(&good);
    assert_int_equal(answer.result, 0);
    assert_int_equal(answer.infer->inputs[1].bytes, 12);
    answer_free(&answer);
}

static void names_that_do_not_match_are_refused(void **state)
{
    static char name_c[] = "C", name_x[] = "X", name_none[] = "NONE";
    struct good good;
    (void)state;
    good_init(&good);
    good.b.name = name_a;
    REFUSED(&good, "'A'", "twice");
    good_init(&good);
    good.b.name = name_c;
    REFUSED(&good, "'C'", "2");
    good_init(&good);
    good.request.n_inputs = good.request.n_raw_input_contents = 1;
    REFUSED(&good, "missing", "'B'");
    good_init(&good);
    good.request.n_inputs = good.request.n_raw_input_contents = 0;
    REFUSED(&good, "'A'", "'B'");
    good_init(&good);
    good.request.n_inputs = good.request.n_raw_input_contents = 3;
    good.c.name = name_c;
    REFUSED(&good, "'C'", "3 inputs");
    good_init(&good);
    good.request.n_outputs = 1;
    good.outputs[0].name = name_none;
    REFUSED(&good, "output", "'NONE'");
    good.request.n_outputs = 2;
    good.outputs[0].name = good.outputs[1].name = name_x;
    REFUSED(&good, "'X'", "twice");
}

static void data_in_the_wrong_place_is_refused(void **state)
{
    static int32_t whole[1];
    static char type_fp16[] = "FP16";
    struct good good;
    (void)state;
    good_init(&good);
    good.b.contents = &good.contents_b; /* empty, but there */
    REFUSED(&good, "'B'", "raw_input_contents");
    good_init(&good);
    good.request.n_raw_input_contents = 1;
    REFUSED(&good, "1 raw", "2 inputs");
    good_init(&good);
    good.request.n_raw_input_contents = 0;
    REFUSED(&good, "'A'", "no data");
    good_init(&good);
    make_typed(&good);
    good.contents_a.n_int_contents = 1;
    good.contents_a.int_contents = whole;
    REFUSED(&good, "fp32_contents", "int_contents");
    good_init(&good);
    make_typed(&good);
    good.a.datatype = type_fp16;
    REFUSED(&good, "FP16", "raw");
    good_init(&good);
    make_typed(&good);
    good.contents_a.n_fp32_contents = 7;
    REFUSED(&good, "'A'", "28");
}

static void shapes_types_and_sizes_that_do_not_match_are_refused(void **state)
{
    static char type_int64[] = "INT64";
    struct good good;
    (void)state;
    good_init(&good);
    good.a.datatype = type_int64;
    REFUSED(&good, "FP32", "INT64");
    good_init(&good);
    good.shape_a[1] = 5;
    REFUSED(&good, "[-1,4]", "[2,5]");
    good_init(&good);
    good.a.n_shape = 10; /* more than there is room for */
    REFUSED(&good, "'A'", "10 dimensions");
    good_init(&good);
    good.a.n_shape = 0;
    REFUSED(&good, "'A'", "batch");
    good_init(&good);
    good.shape_a[0] = -1;
    REFUSED(&good, "'A'", "-1");
    good_init(&good);
    good.shape_a[0] = 9;
    REFUSED(&good, "9", "8");
    good_init(&good);
    good.shape_a[0] = 1;
    REFUSED(&good, "'A'", "'B'");
    good_init(&good);
    good.raw[0].len = 31;
    REFUSED(&good, "31 bytes", "32");
    good_init(&good);
    good.data_b[5] = 200;
    REFUSED(&good, "'B'", "200");
}

static void parameters_are_taken_or_refused_by_name_and_kind(void **state)
{
    static char timeout[] = "timeout", priority[] = "priority", triton[] = "triton_x",
                sequence[] = "sequence_id", other[] = "mine", shared[] = "shared_memory_region",
                classes[] = "classification", name_x[] = "X";
    struct good good;
    struct answer answer;
    (void)state;
    good_init(&good);
    with_parameter(&good, timeout, INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
    good.value.int64_param = 500000; /* earlier than the call's own */
    answer = check(&good);
    assert_int_equal(answer.result, 0);
    assert_int_equal(answer.infer->request.deadline_ns, 1500 * NS_PER_MS);
    assert_false(answer.infer->request.deadline_watched);
    answer_free(&answer);
    good.value.int64_param = INT64_MAX; /* later than the call's own */
    answer = check(&good);
    assert_int_equal(answer.infer->request.deadline_ns, 2 * NS_PER_S);
    assert_true(answer.infer->request.deadline_watched);
    answer_free(&answer);
    good.value.int64_param = -1;
    REFUSED(&good, "timeout", "0 or more");
    with_parameter(&good, timeout, INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM);
    REFUSED(&good, "int64_param", "double_param");
    with_parameter(&good, priority, INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM);
    good.value.uint64_param = 1;
    answer = check(&good);
    assert_int_equal(answer.infer->request.priority, 1);
    answer_free(&answer);
    with_parameter(&good, triton, INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM);
    REFUSED(&good, "triton_x", "reserved");
    with_parameter(&good, sequence, INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM);
    REFUSED(&good, "sequence_id", "not served");
    with_parameter(&good, other, INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET);
    REFUSED(&good, "'mine'", "nothing");
    good_init(&good);
    good.input_entry.key = shared;
    good.input_entries[0] = &good.input_entry;
    good.a.n_parameters = 1;
    good.a.parameters = good.input_entries;
    REFUSED(&good, "'A'", "shared memory");
    good_init(&good);
    good.output_entry.key = classes;
    good.output_entries[0] = &good.output_entry;
    good.request.n_outputs = 1;
    good.outputs[0].name = name_x;
    good.outputs[0].n_parameters = 1;
    good.outputs[0].parameters = good.output_entries;
    REFUSED(&good, "'X'", "classification");
}

static struct wire_text text_of(const char *text)
{
    return (struct wire_text){(const unsigned char *)text, strlen(text)};
}

static void endpoints_are_found_by_name_and_version(void **state)
{
    struct endpoint *endpoint;
    struct error error;
    (void)state;
    static const struct {
        const char *name, *version;
        enum error_code code;
    } rows[] = {{"pair", "", ERROR_NONE},
                {"pair", "3", ERROR_NONE},
                {"pair", "4", ERROR_NOT_FOUND},
                {"pair", "99999999999999999999", ERROR_NOT_FOUND},
                {"pair", "abc", ERROR_INVALID_ARGUMENT},
                {"pair", "-1", ERROR_INVALID_ARGUMENT},
                {"pai", "", ERROR_NOT_FOUND},
                {"pair2", "", ERROR_NOT_FOUND},
                {"../pair", "", ERROR_NOT_FOUND},
                {"absent", "x", ERROR_INVALID_ARGUMENT},
                {"", "", ERROR_NOT_FOUND}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int result = infer_endpoint_known(bench.serve, text_of(rows[i].name),
                                          text_of(rows[i].version), &endpoint, &error);
        assert_int_equal(result, -(int)rows[i].code);
        if (result == 0) {
            endpoint_release(endpoint);
        }
    }
    serve_set_open(bench.serve, false); /* until the repository has been read nobody knows */
    assert_int_equal(
        infer_endpoint_known(bench.serve, text_of("absent"), text_of(""), &endpoint, &error),
        -ERROR_UNAVAILABLE);
}

static void the_answer_reads_as_the_message_it_is(void **state)
{
    static char name_y[] = "Y", name_x[] = "X";
    struct good good;
    (void)state;
    good_init(&good);
    good.request.n_outputs = 2;
    good.outputs[0].name = name_y;
    good.outputs[1].name = name_x;
    struct answer answer = check(&good);
    assert_int_equal(answer.result, 0);
    struct buffer *buffer = infer_encode(answer.infer, answer.infer->inputs);
    Inference__ModelInferResponse *response = inference__model_infer_response__unpack(
        NULL, buffer->length - GRPC_PREFIX_BYTES, buffer->data + GRPC_PREFIX_BYTES);
    assert_non_null(response);
    assert_string_equal(response->model_name, "pair");
    assert_string_equal(response->model_version, "3");
    assert_string_equal(response->id, "r-1");
    assert_int_equal(response->n_outputs, 2);
    assert_string_equal(response->outputs[0]->name, "Y");
    assert_string_equal(response->outputs[0]->datatype, "BYTES");
    assert_string_equal(response->outputs[1]->name, "X");
    assert_int_equal(response->outputs[1]->n_shape, 2);
    assert_int_equal(response->outputs[1]->shape[0], 2);
    assert_int_equal(response->n_raw_output_contents, 2);
    assert_int_equal(response->raw_output_contents[0].len, 12);
    assert_memory_equal(response->raw_output_contents[0].data, good.data_b, 12);
    assert_int_equal(response->raw_output_contents[1].len, 32);
    inference__model_infer_response__free_unpacked(response, NULL);
    buffer_release(buffer);
    answer_free(&answer);
}

static void shown_text_is_cut_at_a_whole_character(void **state)
{
    struct shown_text text;
    char name[200];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof(name); i += 2) {
        memcpy(name + i, "\xC3\xA9", 2);
    }
    const char *result = shown(&text, (struct wire_text){(unsigned char *)name, sizeof(name)});
    assert_true(utf8_is_valid(text_of(result)));
    assert_true(strlen(result) < sizeof(text.text));
    assert_string_equal(shown(&text, text_of("a\xFF")), "a?");
}

static void only_whole_utf8_is_taken(void **state)
{
    static const char *const bad[] = {"\xC0\x80",         "\xE0\x9F\xBF", "\xED\xA0\x80",
                                      "\xF4\x90\x80\x80", "\x80",         "abcdefg\xC3",
                                      "\xF5\x80\x80\x80"};
    (void)state;
    assert_true(utf8_is_valid(text_of("plain text and more")));
    assert_true(utf8_is_valid(text_of("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 in a row")));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(utf8_is_valid(text_of(bad[i])));
    }
}

static void too_many_of_anything_is_refused_before_it_is_stored(void **state)
{
    static struct infer_message message;
    unsigned char bytes[4 * (INFER_TENSORS_MAX + 1)];
    struct error error;
    (void)state;
    for (unsigned number = 4; number <= 7; number++) {
        for (size_t i = 0; i <= INFER_TENSORS_MAX; i++) {
            /* Parameters need keys of their own to be different ones. */
            unsigned char entry[] = {(unsigned char)(number << 3 | 2), 2, 0x52, 0};
            memcpy(bytes + 4 * i, entry, 4);
        }
        int result = infer_message_decode(bytes, sizeof(bytes), &message, &error);
        assert_int_equal(result, number == 4 ? 0 : -ERROR_INVALID_ARGUMENT);
    }
    /* A tag, a group, a varint of 11 bytes, a length past the end. */
    assert_int_equal(infer_message_decode((const unsigned char *)"\x0A", 1, &message, &error),
                     -ERROR_INTERNAL);
    assert_int_equal(infer_message_decode((const unsigned char *)"\x0B\x0C", 2, &message, &error),
                     -ERROR_INTERNAL);
    assert_int_equal(infer_message_decode((const unsigned char *)"\x40\xFF\xFF\xFF\xFF\xFF\xFF\xFF"
                                                                 "\xFF\xFF\xFF\x01",
                                          12, &message, &error),
                     -ERROR_INTERNAL);
    assert_int_equal(infer_message_decode((const unsigned char *)"\x0A\x7Fx", 3, &message, &error),
                     -ERROR_INTERNAL);
    assert_int_equal(
        infer_message_decode((const unsigned char *)"\x1A\x01\xFF", 3, &message, &error),
        -ERROR_INVALID_ARGUMENT);
}

static void text_from_outside_is_shown_as_far_as_it_can_be_read(void **state)
{
    static const unsigned char broken[] = "\xC3\xA9\xFF", hidden[] = "a\0b";
    unsigned char late[128];
    struct shown_text buffer;
    (void)state;
    assert_string_equal(shown(&buffer, (struct wire_text){broken, 3}), "???");
    assert_string_equal(shown(&buffer, (struct wire_text){hidden, 3}), "a?b");
    memset(late, 'x', sizeof(late));
    memcpy(late, broken, 2);
    late[sizeof(late) - 1] = 0xFF; /* beyond what is shown: not looked at */
    assert_memory_equal(shown(&buffer, (struct wire_text){late, sizeof(late)}), "\xC3\xA9xx", 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_from_outside_is_shown_as_far_as_it_can_be_read),
        cmocka_unit_test(raw_inputs_stay_where_they_are_in_the_message),
        cmocka_unit_test(typed_inputs_become_raw_ones),
        cmocka_unit_test(inputs_come_in_any_order),
        cmocka_unit_test(names_that_do_not_match_are_refused),
        cmocka_unit_test(data_in_the_wrong_place_is_refused),
        cmocka_unit_test(shapes_types_and_sizes_that_do_not_match_are_refused),
        cmocka_unit_test(parameters_are_taken_or_refused_by_name_and_kind),
        cmocka_unit_test(endpoints_are_found_by_name_and_version),
        cmocka_unit_test(the_answer_reads_as_the_message_it_is),
        cmocka_unit_test(shown_text_is_cut_at_a_whole_character),
        cmocka_unit_test(only_whole_utf8_is_taken),
        cmocka_unit_test(too_many_of_anything_is_refused_before_it_is_stored),
    };
    return cmocka_run_group_tests(tests, bench_setup, bench_teardown);
}
