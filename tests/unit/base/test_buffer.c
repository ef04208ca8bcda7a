#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/buffer.h"

static void a_buffer_is_aligned_and_holds_what_was_asked(void **state)
{
    static const size_t sizes[] = {0, 1, 1023, 1024, 65535, 65536, 600000, (size_t)200 << 20};
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct buffer *buffer = buffer_create(sizes[i]);
        assert_non_null(buffer);
        assert_true(buffer->capacity >= sizes[i]);
        assert_int_equal((uintptr_t)buffer->data % 64, 0);
        assert_int_equal(buffer->length, 0);
        memset(buffer->data, 0x5A, sizes[i]);
        buffer_release(buffer);
    }
    buffer_pool_trim();
}

static void the_last_holder_gives_the_block_back_for_the_next(void **state)
{
    struct buffer *first = buffer_create(600000);
    unsigned char *data = first->data;
    struct buffer *other;
    (void)state;
    assert_ptr_equal(buffer_hold(first), first);
    buffer_release(first);
    other = buffer_create(600000); /* the first is still held: another block */
    assert_ptr_not_equal(other->data, data);
    buffer_release(first);
    first = buffer_create(599999);
    assert_ptr_equal(first->data, data);
    buffer_release(first);
    buffer_release(other);
    buffer_release(NULL);
    buffer_pool_trim();
}

static void a_size_that_cannot_be_is_refused(void **state)
{
    (void)state;
    assert_null(buffer_create(SIZE_MAX));
    assert_null(buffer_create(SIZE_MAX / 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_is_aligned_and_holds_what_was_asked),
        cmocka_unit_test(the_last_holder_gives_the_block_back_for_the_next),
        cmocka_unit_test(a_size_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests_name("base/buffer", tests, NULL, NULL);
}
