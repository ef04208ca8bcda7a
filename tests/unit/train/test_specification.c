/* Specifications: what is read, what keeps the hash, and that the manual prints the same tables. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/options.h"
#include "server/train/specification.h"

static struct specification read_text(const char *text)
{
    struct specification specification = {0};
    struct error error = {0};
    json_t *json = options_parse_text(text, strlen(text), "test", &error);
    if (json == NULL || specification_init(&specification, json, &error) < 0) {
        fail_msg("%s", error.text);
    }
    json_decref(json);
    return specification;
}

#define JOB(rest)                                                                                  \
    "{\"model\": {\"layers\": [4, 8, 3]}, \"data\": {\"path\": \"a.csv\", \"label_column\": "      \
    "\"y\"}, \"batch\": 96, " rest "}"

static void defaults_fill_what_is_left_out(void **state)
{
    struct specification s = read_text(JOB("\"steps\": 10"));
    (void)state;
    assert_string_equal(s.request.name, "job");
    assert_int_equal(s.request.devices_min, 1);
    assert_int_equal(s.request.devices_max, 1);
    assert_int_equal(s.micro_batch, 48); /* the largest divisor of 96 up to 64 */
    assert_int_equal(s.optimizer.kind, OPTIMIZER_ADAMW);
    assert_true(s.optimizer.learning_rate == 0.001 && s.data.held_out == 0.1);
    assert_true(s.checkpoint.every_s == 30 && s.checkpoint.keep == 2 && s.strict);
    assert_null(s.export.name);
    specification_fini(&s);
}

static void counts_of_devices_are_read(void **state)
{
    struct specification s = read_text(JOB("\"steps\": 10, \"devices\": \"2:5\""));
    (void)state;
    assert_int_equal(s.request.devices_min, 2);
    assert_int_equal(s.request.devices_max, 5);
    specification_fini(&s);
    s = read_text(JOB("\"steps\": 10, \"devices\": \"3\""));
    assert_int_equal(s.request.devices_min, 3);
    assert_int_equal(s.request.devices_max, 3);
    specification_fini(&s);
}

static uint64_t hash_of(const char *text)
{
    struct specification s = read_text(text);
    uint64_t hash = s.hash;
    specification_fini(&s);
    return hash;
}

static void hash_follows_what_decides_the_weights(void **state)
{
    uint64_t hash = hash_of(JOB("\"steps\": 10"));
    (void)state;
    assert_true(hash_of(JOB("\"steps\": 99")) == hash); /* goes on for longer */
    assert_true(hash_of(JOB("\"epochs\": 2, \"devices\": \"1:4\", \"priority\": 9")) == hash);
    assert_true(hash_of(JOB("\"steps\": 10, \"seed\": 1")) != hash);
    assert_true(hash_of(JOB("\"steps\": 10, \"micro_batch\": 32")) != hash);
    assert_true(hash_of(JOB("\"steps\": 10, \"optimizer\": {\"learning_rate\": 0.1}")) != hash);
}

static void specification_of_any_shape_ends_in_an_error(void **state)
{
    static const char *const texts[] = {
        "[]",
        "{}",
        "{\"model\": 3}",
        JOB("\"steps\": \"x\""),
        JOB("\"steps\": 1.5"),
        "{\"model\": {\"layers\": []}, \"data\": {}, \"batch\": 1, \"steps\": 1}",
        "{\"model\": {\"layers\": [4, 1]}, \"data\": {\"path\": \"a.csv\"}, \"batch\": 1}",
        "{\"model\": {\"layers\": [4, -2, 3]}, \"data\": {\"path\": \"a.csv\"}, \"batch\": 1}",
        "{\"model\": {\"layers\": [1000000, 1000000, 3]}, \"data\": {\"path\": \"a.csv\"}, "
        "\"batch\": 1, \"steps\": 1}",
        "{\"model\": {\"layers\": [4, 3]}, \"data\": {\"path\": []}, \"batch\": 1, \"steps\": 1}",
        "{\"model\": {\"layers\": [4, 3]}, \"data\": {\"path\": [\"a.npy\", 3]}, \"batch\": 1, "
        "\"steps\": 1}",
        "{\"model\": {\"layers\": [4, 3]}, \"data\": {\"path\": \"a.txt\"}, \"batch\": 1, "
        "\"steps\": 1}",
        JOB("\"steps\": 1, \"devices\": \"\""),
        JOB("\"steps\": 1, \"devices\": \"0\""),
        JOB("\"steps\": 1, \"devices\": \"1:\""),
        JOB("\"steps\": 1, \"devices\": \"1:65\""),
        JOB("\"steps\": 1, \"name\": \"../x\""),
        JOB("\"steps\": 1, \"export\": {}"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct specification s;
        struct error error = {0};
        json_t *json = options_parse_text(texts[i], strlen(texts[i]), "test", &error);
        assert_non_null(json);
        if (specification_init(&s, json, &error) >= 0 || error.text[0] == '\0') {
            fail_msg("accepted: %s", texts[i]);
        }
        json_decref(json);
    }
}

static void request_is_read_from_the_text_alone(void **state)
{
    struct train_request request;
    struct error error = {0};
    const char *text = JOB("\"steps\": 1, \"name\": \"n\", \"devices\": \"1:2\", \"priority\": 7");
    json_t *json = options_parse_text(text, strlen(text), "test", &error);
    (void)state;
    assert_int_equal(train_request_read(json, &request, &error), 0);
    assert_string_equal(request.name, "n");
    assert_int_equal(request.devices_max, 2);
    assert_int_equal(request.priority, 7);
    json_decref(json);
}

static char *file_text(const char *path)
{
    char *text = calloc(1, 1 << 20);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("%s is missing", path);
    }
    (void)!fread(text, 1, (1 << 20) - 1, file);
    (void)fclose(file);
    return text;
}

static void demo_specifications_are_valid(void **state)
{
    static const char *const paths[] = {"config/demo/digits.json", "config/demo/wide.json",
                                        "config/demo/second.json"};
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char *text = file_text(paths[i]);
        struct specification s = read_text(text);
        specification_fini(&s);
        free(text);
    }
}

static void manual_has_the_tables_of_the_code(void **state)
{
    char *manual = file_text("docs/training.md");
    char *tables = NULL;
    size_t length;
    FILE *stream = open_memstream(&tables, &length);
    (void)state;
    specification_print(stream);
    (void)fclose(stream);
    if (strstr(manual, tables) == NULL) {
        fail_msg("docs/training.md must have these tables:\n%s", tables);
    }
    free(tables);
    free(manual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_fill_what_is_left_out),
        cmocka_unit_test(counts_of_devices_are_read),
        cmocka_unit_test(hash_follows_what_decides_the_weights),
        cmocka_unit_test(specification_of_any_shape_ends_in_an_error),
        cmocka_unit_test(request_is_read_from_the_text_alone),
        cmocka_unit_test(demo_specifications_are_valid),
        cmocka_unit_test(manual_has_the_tables_of_the_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
