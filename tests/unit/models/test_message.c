#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "models/onnx/message.h"

static void messages_lose_what_clients_need_not_see(void **state)
{
    static const char *const rows[][2] = {
        {"plain text", "plain text"},
        {"Non-zero status code returned while running Gather node. Name:'' Status Message: indices "
         "element out of data bounds, idx=9",
         "indices element out of data bounds, idx=9"},
        {"Non-zero status code returned while running Reshape node. Name:'r' Status Message: "
         "/src/core/providers/reshape_helper.h:45 "
         "onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::TensorShape&, "
         "onnxruntime::TensorShapeVector&, bool) The dimension cannot be 0",
         "The dimension cannot be 0"},
        {"/a/b.cc:12 void x::y(int (*)(char)) const [with T = float] it was not so",
         "it was not so"},
        {"/a/b.cc:12", "an unnamed error"},
        {"/a/b.cc:12 no signature here", "no signature here"},
        {"/a/b.cc:12 f(int never closed", "f(int never closed"},
        {"two\nlines\n\n  and space ", "two lines and space"},
        {"", "an unnamed error"},
        {"caf\xc3\xa9 \xff\xfe bad", "caf\xc3\xa9 bad"},
        {"cut \xc3", "cut"},
        {"http://a.b:80 is no place", "http://a.b:80 is no place"},
    };
    char text[200];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        onnx_message_clean(rows[i][0], text, sizeof(text));
        assert_string_equal(text, rows[i][1]);
    }
}

static void messages_are_cut_at_whole_characters(void **state)
{
    char text[8];
    (void)state;
    onnx_message_clean("abcdef\xc3\xa9g", text, sizeof(text));
    assert_string_equal(text, "abcdef");
    onnx_message_clean("abcde\xc3\xa9g", text, sizeof(text));
    assert_string_equal(text, "abcde\xc3\xa9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_lose_what_clients_need_not_see),
        cmocka_unit_test(messages_are_cut_at_whole_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
