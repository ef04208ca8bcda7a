#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "kit_onnx.h"
#include "server/serve/repository.h"

static char folder[256];

static int folder_setup(void **state)
{
    (void)state;
    kit_folder_make(folder, sizeof(folder));
    return 0;
}

static int folder_teardown(void **state)
{
    (void)state;
    kit_folder_remove(folder);
    return 0;
}

static struct repository_model *loaded(const char *root, const char *name)
{
    struct repository_model *model = NULL;
    struct error error = {0};
    if (repository_load(root, name, &model, &error) < 0) {
        fail_msg("%s: %s", name, error.text);
    }
    return model;
}

static void refused(const char *root, const char *name, enum error_code code, const char *text)
{
    struct repository_model *model = NULL;
    struct error error = {0};
    int result = repository_load(root, name, &model, &error);
    if (result != -(int)code || strstr(error.text, text) == NULL) {
        fail_msg("%s gave %d '%s' without '%s'", name, result, error.text, text);
    }
}

static void link_to(const char *target, const char *relative)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, relative);
    assert_int_equal(symlink(target, path), 0);
}

static void models_are_listed_in_order(void **state)
{
    struct repository_names names = {0};
    struct error error = {0};
    (void)state;
    kit_file_write(folder, "b/1/model.onnx", "");
    kit_file_write(folder, "a.2/1/model.onnx", "");
    kit_file_write(folder, "bad name/1/model.onnx", "");
    kit_file_write(folder, ".hidden/1/model.onnx", "");
    kit_file_write(folder, "notes.txt", "");
    assert_int_equal(repository_list(folder, &names, &error), 0);
    assert_int_equal(names.count, 2);
    assert_string_equal(names.names[0], "a.2");
    assert_string_equal(names.names[1], "b");
    repository_names_fini(&names);
    assert_int_equal(repository_list("/nowhere/at/all", &names, &error), -ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
}

static void triton_layout_is_loaded(void **state)
{
    struct repository_model *model = loaded(kit_models(), "add_one");
    (void)state;
    assert_int_equal(model->version, 1);
    assert_string_equal(model->config.name, "add_one");
    assert_int_equal(model->config.batch_max, 16);
    assert_int_equal(model->config.queue_delay_ns, 500000);
    assert_int_equal(model->signature->input_count, 1);
    assert_int_equal(strlen(model->digest), 64);
    repository_model_destroy(model);
}

static void without_configuration_the_model_speaks(void **state)
{
    struct repository_model *model = loaded(kit_models(), "row_sums");
    (void)state;
    assert_int_equal(model->config.batch_max, MODEL_BATCH_AUTO_MAX);
    assert_string_equal(model->signature->inputs[0].name, "INPUT");
    assert_int_equal(model->signature->inputs[0].dims[0], -1);
    repository_model_destroy(model);
}

static void newest_version_is_served(void **state)
{
    char source[1100];
    (void)state;
    kit_file_write(folder, "m/2/other.txt", "");
    kit_file_write(folder, "m/10/other.txt", "");
    kit_file_write(folder, "m/9x/other.txt", "");
    kit_file_write(folder, "m/011/other.txt", "");
    char real[1024];
    assert_non_null(realpath(kit_models(), real));
    (void)snprintf(source, sizeof(source), "%s/row_sums/1/model.onnx", real);
    char copy[1500];
    (void)snprintf(copy, sizeof(copy), "cp '%s' '%s/m/10/model.onnx'", source, folder);
    assert_int_equal(system(copy), 0);
    struct repository_model *model = loaded(folder, "m");
    assert_int_equal(model->version, 10);
    repository_model_destroy(model);
}

static void identity_needs_no_file(void **state)
{
    struct repository_model *model;
    (void)state;
    kit_file_write(folder, "echo/config.json",
                   "{\"runtime\": \"identity\", \"max_batch\": 32, \"inputs\": [{\"name\": \"IN\","
                   " \"datatype\": \"FP32\", \"dims\": [16]}], \"outputs\": [{\"name\": \"OUT\","
                   " \"datatype\": \"FP32\", \"dims\": [16]}]}");
    model = loaded(folder, "echo");
    assert_ptr_equal(model->config.runtime, &identity_runtime);
    assert_int_equal(model->signature->batch_max, 32);
    assert_string_equal(model->signature->outputs[0].name, "OUT");
    repository_model_destroy(model);
}

static void models_without_a_batch_are_caught(void **state)
{
    (void)state;
    refused(kit_models(), "fixed_input", ERROR_FAILED_PRECONDITION,
            "model 'fixed_input': input 'INPUT' has shape [1,4]");
    refused(kit_models(), "fixed_output", ERROR_FAILED_PRECONDITION, "output 'OUTPUT'");
    refused(kit_models(), "mixed_batch", ERROR_FAILED_PRECONDITION, "input 'B' has shape [4]");
}

static void bad_models_say_what_is_wrong(void **state)
{
    (void)state;
    refused(kit_models(), "corrupt", ERROR_INVALID_ARGUMENT, "model 'corrupt': ");
    refused(kit_models(), "nothing-of-that-name", ERROR_NOT_FOUND, "not in the repository");
    kit_file_write(folder, "empty/readme", "");
    refused(folder, "empty", ERROR_NOT_FOUND, "empty/1/model.onnx");
    kit_file_write(folder, "no_file/3/readme", "");
    refused(folder, "no_file", ERROR_NOT_FOUND, "'no_file/3/model.onnx' is not there");
    kit_file_write(folder, "bad_json/config.json", "{\"max_batch\": 1,}");
    refused(folder, "bad_json", ERROR_INVALID_ARGUMENT, "bad_json/config.json: line 1");
    kit_file_write(folder, "bad_text/config.pbtxt", "max_batch_size: [");
    refused(folder, "bad_text", ERROR_INVALID_ARGUMENT, "bad_text/config.pbtxt: line 1");
}

static void names_cannot_leave_the_repository(void **state)
{
    static const char *const names[] = {"../x",      "..",         ".",    "",
                                        "a/../../x", "%2e%2e%2fx", "/etc", "a\nb"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        refused(folder, names[i], ERROR_INVALID_ARGUMENT, "a model's name is");
    }
}

static void links_out_are_refused_like_missing_files(void **state)
{
    char real[1024], outside[1100];
    (void)state;
    assert_non_null(realpath(kit_models(), real));
    (void)snprintf(outside, sizeof(outside), "%s/row_sums", real);
    link_to(outside, "linked");
    link_to("/nowhere/at/all", "dangling");
    refused(folder, "linked", ERROR_NOT_FOUND, "model 'linked' is not in the repository, or is a");
    refused(folder, "dangling", ERROR_NOT_FOUND,
            "model 'dangling' is not in the repository, or is a");
    kit_file_write(folder, "m/1/readme", "");
    (void)snprintf(outside, sizeof(outside), "%s/row_sums/1/model.onnx", real);
    link_to(outside, "m/1/model.onnx");
    refused(folder, "m", ERROR_NOT_FOUND, "'m/1/model.onnx' is not there, or is a link");
    kit_file_write(folder, "n/1/readme", "");
    (void)snprintf(outside, sizeof(outside), "%s/add_one/config.pbtxt", real);
    link_to(outside, "n/config.pbtxt");
    refused(folder, "n", ERROR_NOT_FOUND, "'n/config.pbtxt' is not there, or is a link");
}

static void a_single_file_is_served_by_the_callers_configuration(void **state)
{
    struct model_config config;
    struct repository_model *model = NULL;
    struct error error = {0};
    char path[1024];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/row_sums/1/model.onnx", kit_models());
    model_config_init(&config, "sums");
    config.slo_latency_ns = 50000000;
    assert_int_equal(repository_load_file(path, &config, &model, &error), 0);
    assert_string_equal(model->config.name, "sums");
    assert_int_equal(model->config.slo_latency_ns, 50000000);
    repository_model_destroy(model);
    model_config_init(&config, "sums");
    assert_int_equal(repository_load_file("/nowhere/x.onnx", &config, &model, &error),
                     -ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "model 'sums': open '/nowhere/x.onnx'"));
}

static void files_give_names(void **state)
{
    static const char *const rows[][2] = {
        {"net.onnx", "net"},
        {"/a/b/net-2.onnx", "net-2"},
        {"/a/digits/3/model.onnx", "digits"},
        {"model.onnx", "model"},
        {"3/model.onnx", "model"},
        {"/a/x/model.onnx", "model"},
        {"bad name.onnx", "model"},
        {"", "model"},
    };
    char name[MODEL_NAME_MAX + 1];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        repository_name_of_file(rows[i][0], name);
        assert_string_equal(name, rows[i][1]);
    }
}

int main(void)
{
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_setup, folder_teardown)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(models_are_listed_in_order),
        cmocka_unit_test(triton_layout_is_loaded),
        cmocka_unit_test(without_configuration_the_model_speaks),
        IN_FOLDER(newest_version_is_served),
        IN_FOLDER(identity_needs_no_file),
        cmocka_unit_test(models_without_a_batch_are_caught),
        IN_FOLDER(bad_models_say_what_is_wrong),
        IN_FOLDER(names_cannot_leave_the_repository),
        IN_FOLDER(links_out_are_refused_like_missing_files),
        cmocka_unit_test(a_single_file_is_served_by_the_callers_configuration),
        cmocka_unit_test(files_give_names),
    };
    return cmocka_run_group_tests(tests, kit_onnx_set, NULL);
}
