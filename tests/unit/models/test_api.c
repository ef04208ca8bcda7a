/* Finding the library: what is tried, and what is said when there is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kit.h"

static char folder[] = "/tmp/tidepool-test-XXXXXX";

static void refused(const char *text)
{
    struct error error = {0};
    assert_int_equal(onnx_open(&error), -ERROR_FAILED_PRECONDITION);
    if (strstr(error.text, text) == NULL || strstr(error.text, "make deps") == NULL) {
        fail_msg("'%s' has no '%s'", error.text, text);
    }
}

/* A library that claims a version and has no functions: it must not be looked into. */
static void library_make(const char *version, char *ret_path, size_t size)
{
    char command[1024];
    (void)snprintf(ret_path, size, "%s/fake-%s.so", folder, version);
    (void)snprintf(command, sizeof(command),
                   "printf '%%s' 'static const char *v(void){return \"%s\";}"
                   "static void *a(unsigned n){(void)n;return 0;}"
                   "static const struct{void*(*a)(unsigned);const char*(*v)(void);}b={a,v};"
                   "const void *OrtGetApiBase(void);const void *OrtGetApiBase(void){return &b;}'"
                   " | cc -shared -fPIC -x c -o '%s' -",
                   version, ret_path);
    assert_int_equal(system(command), 0);
}

static void other_versions_are_refused(void **state)
{
    static const char *const rows[][2] = {{"1.15.1", "1.16 or a later 1.x is needed"},
                                          {"2.20.0", "1.16 or a later 1.x is needed"},
                                          {"next", "1.16 or a later 1.x is needed"},
                                          {"1.16.3", "does not offer its interface of 1.16"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char path[512];
        struct error error = {0};
        library_make(rows[i][0], path, sizeof(path));
        onnx_set_library(path);
        assert_int_equal(onnx_open(&error), -ERROR_FAILED_PRECONDITION);
        if (strstr(error.text, rows[i][0]) == NULL || strstr(error.text, rows[i][1]) == NULL) {
            fail_msg("'%s' has no '%s'", error.text, rows[i][1]);
        }
    }
}

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int folder_remove(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

/* In the order they are looked at; the last finds it, so this is one test. */
static void the_library_is_found_in_order(void **state)
{
    struct error error = {0};
    struct model *model = NULL;
    const struct model_source source = {.name = "m", .path = kit_path("add_one")};
    (void)state;
    assert_int_equal(setenv("TIDEPOOL_ONNXRUNTIME", "/nowhere/second.so", 1), 0);
    onnx_set_library("/nowhere/first.so");
    refused("ONNX Runtime of the configuration: /nowhere/first.so");
    assert_int_equal(onnx_runtime.load(&source, &model, &error), -ERROR_FAILED_PRECONDITION);
    assert_string_equal(onnx_runtime.version(), "");
    onnx_set_library(NULL);
    refused("ONNX Runtime of TIDEPOOL_ONNXRUNTIME: /nowhere/second.so");
    assert_int_equal(unsetenv("TIDEPOOL_ONNXRUNTIME"), 0);
    refused("not found beside the server or on the loader's path");
    onnx_set_library("libm.so.6");
    assert_int_equal(onnx_open(&error), -ERROR_FAILED_PRECONDITION);
    assert_string_equal(error.text, "'libm.so.6' is not an ONNX Runtime: it has no OrtGetApiBase");
    assert_int_equal(kit_library_set(NULL), 0);
    assert_int_equal(onnx_open(&error), 0);
    assert_int_equal(onnx_open(&error), 0);
    assert_int_equal(strncmp(onnx_runtime.version(), "1.", 2), 0);
}

static void nothing_is_reported_over_the_network(void **state)
{
    (void)state;
    assert_string_equal(getenv("ORT_DISABLE_TELEMETRY"), "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(other_versions_are_refused, folder_make, folder_remove),
        cmocka_unit_test(the_library_is_found_in_order),
        cmocka_unit_test(nothing_is_reported_over_the_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
