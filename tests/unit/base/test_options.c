#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/options.h"

struct settings {
    bool fast;
    int64_t count;
    double ratio;
    char *name;
    int mode;
    json_t *extra;
};

static const char *const modes[] = {"observe", "advise", "act", NULL};
static const struct option table[] = {
    {"fast", OPTION_BOOL, offsetof(struct settings, fast), .standard = "true", .help = "speed"},
    {"count", OPTION_INT, offsetof(struct settings, count), "devices", 1, 64, .required = true,
     .help = "how many"},
    {"ratio", OPTION_NUMBER, offsetof(struct settings, ratio), NULL, 0, 1, "0.5", .help = "part"},
    {"name", OPTION_TEXT, offsetof(struct settings, name), .help = "name"},
    {"mode", OPTION_CHOICE, offsetof(struct settings, mode), .standard = "\"act\"",
     .choices = modes, .help = "what to do"},
    {"extra", OPTION_JSON, offsetof(struct settings, extra), .help = "anything"},
};
#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

static int read_text(const char *text, struct settings *settings, struct error *error)
{
    json_t *object = options_parse_text(text, strlen(text), "config", error);
    int result;
    if (object == NULL) {
        return -(int)error->code;
    }
    result = options_read(table, TABLE_COUNT, object, "config", settings, error);
    json_decref(object);
    return result;
}

static void values_and_defaults_fill_the_struct(void **state)
{
    struct settings settings = {0};
    struct error error = {0};
    (void)state;
    assert_int_equal(
        read_text("{\"count\": 4, \"name\": \"tide\", \"extra\": [1]}", &settings, &error), 0);
    assert_true(settings.fast);
    assert_int_equal(settings.count, 4);
    assert_true(settings.ratio == 0.5);
    assert_string_equal(settings.name, "tide");
    assert_int_equal(settings.mode, 2);
    assert_int_equal(json_array_size(settings.extra), 1);
    options_free(table, TABLE_COUNT, &settings);
    assert_null(settings.name);
    assert_null(settings.extra);
}

static void every_fault_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *fragment;
    } rows[] = {
        {"{\"count\": 4, \"ration\": 1}", "unknown key 'ration'; did you mean 'ratio'?"},
        {"{\"count\": 4, \"zzzzzzzzzzzz\": 1}", "unknown key 'zzzzzzzzzzzz'"},
        {"{}", "'count' is missing (how many)"},
        {"{\"count\": 65}", "config.count: 65 is out of range; 1 to 64 devices"},
        {"{\"count\": 4, \"ratio\": 2}", "config.ratio: 2 is out of range; 0 to 1"},
        {"{\"count\": \"4\"}", "config.count: must be a whole number"},
        {"{\"count\": 1.5}", "config.count: must be a whole number"},
        {"{\"count\": 1, \"fast\": 1}", "config.fast: must be true or false"},
        {"{\"count\": 1, \"mode\": \"ect\"}", "config.mode: 'ect' is none of observe, advise, act"},
        {"{\"count\": 1, \"name\": \"a\\u0000b\"}", "u0000 is not allowed"},
        {"{\"count\": 1, \"count\": 2}", "duplicate"},
        {"[]", "config: must be an object"},
        {"{\"count\": 1,}", "line 1 column"},
        {"", "line 1 column"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct settings settings = {0};
        struct error error = {0};
        assert_int_equal(read_text(rows[i].text, &settings, &error), -ERROR_INVALID_ARGUMENT);
        if (strstr(error.text, rows[i].fragment) == NULL) {
            fail_msg("%s gives '%s', not '%s'", rows[i].text, error.text, rows[i].fragment);
        }
        assert_int_not_equal(error.text[strlen(error.text) - 1], ' ');
        options_free(table, TABLE_COUNT, &settings);
    }
}

static void deep_nesting_is_refused_not_followed(void **state)
{
    size_t depth = 1000;
    char *text = calloc(1, 2 * depth + 1);
    struct error error = {0};
    (void)state;
    memset(text, '[', depth);
    memset(text + depth, ']', depth);
    assert_null(options_parse_text(text, 2 * depth, "body", &error));
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "deeper"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_defaults_fill_the_struct),
        cmocka_unit_test(every_fault_is_refused_by_name),
        cmocka_unit_test(deep_nesting_is_refused_not_followed),
    };
    return cmocka_run_group_tests_name("base/options", tests, NULL, NULL);
}
