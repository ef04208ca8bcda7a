#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "clients/common/arguments.h"

struct target {
    bool flag;
    const char *text, *second;
    int64_t integer;
    double number;
    struct argument_range range;
    struct argument_list list;
};

#define FIELD(member) offsetof(struct target, member)
static const struct argument table[] = {
    {"text", ARGUMENT_TEXT, FIELD(second), 2, 0, 0, "TEXT", "another command's of this name"},
    {"flag", ARGUMENT_FLAG, FIELD(flag), 1, 0, 0, NULL, "a flag", 'q'},
    {"hidden", ARGUMENT_FLAG, FIELD(flag), 1, 0, 0, NULL, NULL},
    {"text", ARGUMENT_TEXT, FIELD(text), 1, 0, 0, "TEXT", "a text"},
    {"integer", ARGUMENT_INT, FIELD(integer), 1, -5, 10, "N", "an integer"},
    {"number", ARGUMENT_NUMBER, FIELD(number), 1, 0, 1, "X", "a number"},
    {"range", ARGUMENT_RANGE, FIELD(range), 1, 0, 64, "MIN:MAX", "a range"},
    {"other", ARGUMENT_FLAG, FIELD(flag), 2, 0, 0, NULL, "another command's"},
    {"list", ARGUMENT_LIST, FIELD(list), 1, 0, 0, "TEXT...", "texts"},
};
static struct arguments arguments = {table, sizeof table / sizeof table[0], 1, "test", false};

static int parse(struct target *target, const char **positional, size_t *ret_count,
                 struct error *error, int argc, const char *const *argv)
{
    char *copy[16];
    for (int i = 0; i < argc; i++) {
        copy[i] = (char *)(uintptr_t)argv[i];
    }
    memset(target, 0, sizeof(*target));
    return arguments_parse(&arguments, argc, copy, target, positional, ret_count, error);
}

#define PARSE(...)                                                                                 \
    parse(&target, positional, &count, &error,                                                     \
          (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                           \
          (const char *[]){__VA_ARGS__})

static void options_and_positional_arguments_mix(void **state)
{
    (void)state;
    struct target target;
    struct error error = {0};
    const char *positional[16];
    size_t count = 0;
    assert_int_equal(PARSE("a", "--flag", "--text", "--x", "-", "--integer=-5", "--number", "0.5",
                           "--range", "1:4", "--", "--flag"),
                     0);
    assert_true(target.flag);
    assert_string_equal(target.text, "--x");
    assert_int_equal(target.integer, -5);
    assert_true(target.number == 0.5);
    assert_int_equal(target.range.minimum, 1);
    assert_int_equal(target.range.maximum, 4);
    assert_int_equal(count, 3);
    assert_string_equal(positional[0], "a");
    assert_string_equal(positional[1], "-");
    assert_string_equal(positional[2], "--flag");
    assert_int_equal(PARSE("--range=2"), 0);
    assert_int_equal(target.range.minimum, 2);
    assert_int_equal(target.range.maximum, 2);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *argument, *says;
    } cases[] = {
        {"--flg", "do you mean --flag?"},
        {"--zzzzzzzz", "no option --zzzzzzzz"},
        {"--flag=1", "takes no value"},
        {"--text", "wants a value"},
        {"--integer=11", "from -5 to 10"},
        {"--integer=1.5", "whole number"},
        {"--integer=1x", "whole number"},
        {"--integer=", "whole number"},
        {"--number=nan", "a number from 0 to 1"},
        {"--number=2", "a number from 0 to 1"},
        {"--range=4:1", "MIN:MAX"},
        {"--range=1:65", "MIN:MAX"},
        {"--range=-1:2", "MIN:MAX"},
        {"--range=1:", "MIN:MAX"},
        {"--other", "takes no option --other"},
        {"-f", "two dashes"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct target target;
        struct error error = {0};
        const char *positional[16];
        size_t count = 0;
        assert_true(PARSE(cases[i].argument) < 0);
        assert_non_null(strstr(error.text, cases[i].says));
    }
}

static void a_list_takes_values_up_to_the_next_option_and_again(void **state)
{
    (void)state;
    struct target target;
    struct error error = {0};
    const char *positional[16];
    size_t count = 0;
    assert_int_equal(PARSE("--list", "a", "-", "-5", "--flag", "--list=b", "c", "--", "d"), 0);
    assert_int_equal(target.list.count, 5);
    assert_string_equal(target.list.values[1], "-");
    assert_string_equal(target.list.values[2], "-5");
    assert_string_equal(target.list.values[4], "c");
    assert_int_equal(count, 1);
    assert_true(PARSE("--list") < 0);
    assert_non_null(strstr(error.text, "--list wants a value"));
}

static void the_first_positional_may_begin_another_command(void **state)
{
    (void)state;
    struct target target;
    struct error error = {0};
    const char *positional[16];
    size_t count = 0;
    arguments.first_ends = true;
    assert_int_equal(PARSE("--text", "a", "python", "--flag", "-x", "--", "b"), 0);
    arguments.first_ends = false;
    assert_string_equal(target.text, "a");
    assert_null(target.second); /* the other command's of that name */
    assert_false(target.flag);
    assert_int_equal(count, 5);
    assert_string_equal(positional[3], "--");
}

static void a_flag_may_have_a_letter(void **state)
{
    (void)state;
    struct target target;
    struct error error = {0};
    const char *positional[16];
    size_t count = 0;
    assert_int_equal(PARSE("a", "-q"), 0);
    assert_true(target.flag);
    assert_int_equal(count, 1);
    assert_true(PARSE("-g") < 0);
    assert_non_null(strstr(error.text, "'-g' does not"));
    assert_true(PARSE("-qq") < 0);
}

static void what_is_hidden_is_read_and_not_proposed(void **state)
{
    (void)state;
    struct target target;
    struct error error = {0};
    const char *positional[16];
    size_t count = 0;
    assert_int_equal(PARSE("--hidden"), 0);
    assert_true(target.flag);
    assert_true(PARSE("--hiden") < 0);
    assert_null(strstr(error.text, "--hidden"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_positional_may_begin_another_command),
        cmocka_unit_test(a_flag_may_have_a_letter),
        cmocka_unit_test(what_is_hidden_is_read_and_not_proposed),
        cmocka_unit_test(options_and_positional_arguments_mix),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(a_list_takes_values_up_to_the_next_option_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
