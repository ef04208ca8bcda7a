#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/options.h"
#include "server/serve/model_config.h"

static int json_read(struct model_config *config, const char *text, struct error *error)
{
    json_t *object = options_parse_text(text, strlen(text), "config.json", error);
    assert_non_null(object);
    model_config_init(config, "m");
    int result = model_config_read_json(config, object, "m/config.json", error);
    json_decref(object);
    return result;
}

static int pbtxt_read(struct model_config *config, const char *text, char *ignored, size_t size,
                      struct error *error)
{
    model_config_init(config, "m");
    return model_config_read_pbtxt(config, text, strlen(text), "m/config.pbtxt", ignored, size,
                                   error);
}

static void names_follow_one_rule(void **state)
{
    static const char *const good[] = {"a", "resnet50-v1.7", "_x", "0", "A.b"};
    static const char *const bad[] = {"",   ".",       "..",   "../x", "/etc", "a/b", "a b",
                                      "-a", ".hidden", "a\nb", "é",    "a%2f", "a\\b"};
    char longest[200];
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(model_name_valid(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(model_name_valid(bad[i], strlen(bad[i])));
    }
    memset(longest, 'a', sizeof(longest));
    assert_true(model_name_valid(longest, 127));
    assert_false(model_name_valid(longest, 128));
    assert_false(model_name_valid("a\0b", 3));
}

static void versions_are_plain_numbers(void **state)
{
    uint32_t version = 77;
    (void)state;
    assert_true(model_version_parse("12", 2, &version));
    assert_int_equal(version, 12);
    assert_true(model_version_parse("0", 1, &version));
    assert_false(model_version_parse("", 0, &version));
    assert_false(model_version_parse("012", 3, &version));
    assert_false(model_version_parse("-1", 2, &version));
    assert_false(model_version_parse("1a", 2, &version));
    assert_false(model_version_parse("../1", 4, &version));
    assert_false(model_version_parse("9999999999", 10, &version));
}

static void device_counts_are_read(void **state)
{
    uint32_t low = 0, high = 0;
    struct error error = {0};
    (void)state;
    assert_int_equal(model_devices_parse("2", &low, &high, &error), 0);
    assert_int_equal(low, 2);
    assert_int_equal(high, 2);
    assert_int_equal(model_devices_parse("0:4", &low, &high, &error), 0);
    assert_int_equal(low, 0);
    assert_int_equal(high, 4);
    assert_int_equal(model_devices_parse("1:", &low, &high, &error), 0);
    assert_int_equal(high, UINT32_MAX);
    assert_true(model_devices_parse("", &low, &high, &error) < 0);
    assert_true(model_devices_parse("0", &low, &high, &error) < 0);
    assert_true(model_devices_parse("4:1", &low, &high, &error) < 0);
    assert_true(model_devices_parse(":4", &low, &high, &error) < 0);
    assert_true(model_devices_parse("1:2:3", &low, &high, &error) < 0);
}

static void json_sets_every_key(void **state)
{
    struct model_config config;
    struct error error = {0};
    (void)state;
    assert_int_equal(
        json_read(&config,
                  "{\"runtime\": \"identity\", \"max_batch\": 8, \"queue_delay_us\": 500,"
                  " \"slo\": {\"latency_ms\": 20, \"target\": 0.95}, \"priority\": 5,"
                  " \"devices\": \"1:2\", \"queue\": {\"requests\": 16, \"bytes\": 1000},"
                  " \"inputs\": [{\"name\": \"X\", \"datatype\": \"BYTES\", \"dims\": [-1, 3]}],"
                  " \"outputs\": [{\"name\": \"Y\", \"datatype\": \"BYTES\", \"dims\": []}]}",
                  &error),
        0);
    assert_ptr_equal(config.runtime, &identity_runtime);
    assert_int_equal(config.batch_max, 8);
    assert_int_equal(config.queue_delay_ns, 500000);
    assert_int_equal(config.slo_latency_ns, 20000000);
    assert_true(config.slo_target > 0.949 && config.slo_target < 0.951);
    assert_int_equal(config.priority, 5);
    assert_int_equal(config.devices_min, 1);
    assert_int_equal(config.devices_max, 2);
    assert_int_equal(config.queue_requests_max, 16);
    assert_int_equal(config.queue_bytes_max, 1000);
    assert_int_equal(config.configured.input_count, 1);
    assert_string_equal(config.configured.inputs[0].name, "X");
    assert_int_equal(config.configured.inputs[0].datatype, DATATYPE_BYTES);
    assert_int_equal(config.configured.inputs[0].dims[0], -1);
    assert_int_equal(config.configured.inputs[0].dims[1], 3);
    assert_int_equal(config.configured.outputs[0].rank, 0);
    model_config_fini(&config);
}

static void defaults_are_those_documented(void **state)
{
    struct model_config config;
    struct error error = {0};
    (void)state;
    assert_int_equal(json_read(&config, "{}", &error), 0);
    assert_ptr_equal(config.runtime, &onnx_runtime);
    assert_int_equal(config.batch_max, MODEL_BATCH_AUTO);
    assert_int_equal(config.slo_latency_ns, 100000000);
    assert_int_equal(config.queue_requests_max, 1000);
    assert_int_equal(config.queue_bytes_max, 256 << 20);
    assert_int_equal(config.devices_min, 1);
    assert_int_equal(config.devices_max, UINT32_MAX);
    model_config_fini(&config);
}

static void json_mistakes_are_named(void **state)
{
    static const char *const rows[][2] = {
        {"{\"max_bach\": 1}", "max_batch"},
        {"{\"max_batch\": 5000}", "m/config.json.max_batch"},
        {"{\"max_batch\": \"8\"}", "max_batch"},
        {"{\"slo\": {\"latency\": 1}}", "m/config.json.slo"},
        {"{\"slo\": 3}", "m/config.json.slo"},
        {"{\"file\": \"../x.onnx\"}", "file"},
        {"{\"file\": \"/etc/passwd\"}", "file"},
        {"{\"devices\": \"x\"}", "devices 'x'"},
        {"{\"inputs\": [{\"name\": \"X\", \"datatype\": \"FP31\", \"dims\": []}]}",
         "inputs[0].datatype"},
        {"{\"inputs\": [{\"name\": \"X\", \"datatype\": \"FP32\", \"dims\": [-2]}]}",
         "inputs[0].dims"},
        {"{\"inputs\": [{\"datatype\": \"FP32\", \"dims\": [1]}]}", "'name' is missing"},
        {"{\"runtime\": \"torch\"}", "onnxruntime"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct model_config config;
        struct error error = {0};
        int result = json_read(&config, rows[i][0], &error);
        if (result != -ERROR_INVALID_ARGUMENT || strstr(error.text, rows[i][1]) == NULL) {
            fail_msg("%s gave %d '%s' without '%s'", rows[i][0], result, error.text, rows[i][1]);
        }
        model_config_fini(&config);
    }
}

static void pbtxt_is_read_and_the_rest_named(void **state)
{
    struct model_config config;
    struct error error = {0};
    char ignored[200];
    (void)state;
    assert_int_equal(
        pbtxt_read(
            &config,
            "name: \"m\" platform: \"onnxruntime_onnx\" max_batch_size: 8\n"
            "input [ { name: \"X\" data_type: TYPE_FP32 dims: [ -1, 4 ] format: FORMAT_NONE } ]\n"
            "input { name: \"S\" data_type: TYPE_STRING dims: 1 format: FORMAT_NONE }\n"
            "output { name: \"Y\" data_type: TYPE_BF16 dims: [ 2 ] label_filename: \"l\" }\n"
            "dynamic_batching { preferred_batch_size: [ 8, 4 ]\n"
            "  max_queue_delay_microseconds: 1000 preserve_ordering: true }\n"
            "instance_group [ { kind: KIND_CPU count: 2 } ]\n"
            "version_policy: { latest { num_versions: 1 } }\n"
            "default_model_filename: \"net.onnx\"\n",
            ignored, sizeof(ignored), &error),
        0);
    assert_int_equal(config.batch_max, 8);
    assert_int_equal(config.queue_delay_ns, 1000000);
    assert_int_equal(config.preferred_count, 2);
    assert_int_equal(config.preferred[0], 4);
    assert_int_equal(config.preferred[1], 8);
    assert_string_equal(config.device_kind, "cpu");
    assert_string_equal(config.filename, "net.onnx");
    assert_int_equal(config.configured.input_count, 2);
    assert_int_equal(config.configured.inputs[0].rank, 2);
    assert_int_equal(config.configured.inputs[1].datatype, DATATYPE_BYTES);
    assert_int_equal(config.configured.outputs[0].datatype, DATATYPE_BF16);
    assert_string_equal(ignored, "input.format, output.label_filename, "
                                 "dynamic_batching.preserve_ordering, instance_group.count, "
                                 "version_policy");
    model_config_fini(&config);
}

static void a_long_list_of_ignored_fields_is_cut(void **state)
{
    struct model_config config;
    struct error error = {0};
    char ignored[24];
    (void)state;
    assert_int_equal(pbtxt_read(&config, "aaaaaaaa: 1 bbbbbbbb: 2 cccccccc: 3 d: 4", ignored,
                                sizeof(ignored), &error),
                     0);
    assert_string_equal(ignored, "aaaaaaaa, bbbbbbbb, …");
    model_config_fini(&config);
}

static void missing_batch_size_means_what_triton_means(void **state)
{
    struct model_config config;
    struct error error = {0};
    char ignored[64];
    (void)state;
    assert_int_equal(pbtxt_read(&config, "backend: \"onnxruntime\"", ignored, 64, &error), 0);
    assert_int_equal(config.batch_max, MODEL_BATCH_AUTO);
    model_config_fini(&config);
    assert_int_equal(pbtxt_read(&config, "input { name: \"X\" data_type: TYPE_FP32 dims: 4 }",
                                ignored, 64, &error),
                     0);
    assert_int_equal(config.batch_max, 0);
    model_config_fini(&config);
}

static void pbtxt_mistakes_are_named(void **state)
{
    static const struct {
        const char *text, *fragment;
        enum error_code code;
    } rows[] = {
        {"name: \"other\"", "named 'other' here, but its folder 'm'", ERROR_INVALID_ARGUMENT},
        {"name: \"../m\"", "plain name", ERROR_INVALID_ARGUMENT},
        {"default_model_filename: \"../x\"", "plain name", ERROR_INVALID_ARGUMENT},
        {"platform: \"tensorrt_plan\"", "'tensorrt_plan' is not served", ERROR_UNIMPLEMENTED},
        {"max_batch_size: -1", "line 1: max_batch_size: -1 wants", ERROR_INVALID_ARGUMENT},
        {"\n\nmax_batch_size: many", "line 3", ERROR_INVALID_ARGUMENT},
        {"input { name: \"X\" }", "a name and a data_type", ERROR_INVALID_ARGUMENT},
        {"input { name: \"X\" data_type: TYPE_FP31 }", "TYPE_FP31 wants", ERROR_INVALID_ARGUMENT},
        {"input { name: \"X\" data_type: TYPE_INT8 dims: [1,1,1,1,1,1,1,1] }", "fewer dimensions",
         ERROR_INVALID_ARGUMENT},
        {"input: 3", "{ name, data_type, dims }", ERROR_INVALID_ARGUMENT},
        {"max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }", "8 is above", 3},
        {"instance_group { kind: KIND_TPU }", "KIND_CPU", ERROR_INVALID_ARGUMENT},
        {"dynamic_batching { max_queue_delay_microseconds: 99999999999 }", "microseconds", 3},
        {"name: ", "line 1", ERROR_INVALID_ARGUMENT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct model_config config;
        struct error error = {0};
        char ignored[64];
        int result = pbtxt_read(&config, rows[i].text, ignored, sizeof(ignored), &error);
        if (result != -(int)rows[i].code || strstr(error.text, rows[i].fragment) == NULL) {
            fail_msg("%s gave %d '%s' without '%s'", rows[i].text, result, error.text,
                     rows[i].fragment);
        }
        model_config_fini(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_follow_one_rule),
        cmocka_unit_test(versions_are_plain_numbers),
        cmocka_unit_test(device_counts_are_read),
        cmocka_unit_test(json_sets_every_key),
        cmocka_unit_test(defaults_are_those_documented),
        cmocka_unit_test(json_mistakes_are_named),
        cmocka_unit_test(pbtxt_is_read_and_the_rest_named),
        cmocka_unit_test(a_long_list_of_ignored_fields_is_cut),
        cmocka_unit_test(missing_batch_size_means_what_triton_means),
        cmocka_unit_test(pbtxt_mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
