#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/net/arena.h"

static void pieces_are_aligned_and_do_not_overlap(void **state)
{
    struct arena arena;
    char first[256];
    unsigned char *pieces[500];
    (void)state;
    arena_init(&arena, first + 3, sizeof first - 3, 1 << 20);
    for (size_t i = 0; i < 500; i++) {
        pieces[i] = arena_allocate(&arena, i);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)i, i);
    }
    for (size_t i = 0; i < 500; i++) {
        for (size_t j = 0; j < i; j++) {
            assert_int_equal(pieces[i][j], (unsigned char)i);
        }
    }
    arena_fini(&arena);
}

static void limit_holds_for_one_large_and_many_small_pieces(void **state)
{
    struct arena arena;
    char first[64];
    size_t total = 0;
    (void)state;
    arena_init(&arena, first, sizeof first, 100000);
    assert_null(arena_allocate(&arena, 100001));
    assert_true(arena.exhausted);
    assert_null(arena_allocate(&arena, SIZE_MAX));
    assert_null(arena_allocate(&arena, SIZE_MAX - 8));
    while (arena_allocate(&arena, 100) != NULL) {
        total += 100;
    }
    assert_in_range(total, 50000, 100000);
    arena_fini(&arena);
}

static void reset_gives_back_what_came_after_the_mark(void **state)
{
    struct arena arena;
    char first[64];
    (void)state;
    arena_init(&arena, first, sizeof first, 1 << 20);
    char *kept = arena_copy(&arena, "kept", 4);
    struct arena_mark mark = arena_mark(&arena);
    for (int round = 0; round < 1000; round++) { /* far more than the limit in all */
        assert_non_null(arena_allocate(&arena, 50000));
        arena_reset(&arena, &mark);
    }
    assert_string_equal(kept, "kept");
    assert_int_equal(arena.used, 0);
    arena_fini(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_do_not_overlap),
        cmocka_unit_test(limit_holds_for_one_large_and_many_small_pieces),
        cmocka_unit_test(reset_gives_back_what_came_after_the_mark),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
