#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/net/compression.h"

#define MIB (1024 * 1024)

static void round_trip(enum compression compression, size_t size)
{
    unsigned char *plain = malloc(size + 1);
    struct buffer *packed = NULL, *again = NULL;
    assert_non_null(plain);
    for (size_t i = 0; i < size; i++) {
        plain[i] = (unsigned char)(i * i >> 7);
    }
    assert_int_equal(compression_deflate(compression, plain, size, 5, &packed), 0);
    assert_int_equal(compression_inflate(compression, packed->data + 5, packed->length - 5,
                                         (uint32_t)size, &again, NULL),
                     0);
    assert_int_equal(again->length, size);
    assert_memory_equal(again->data, plain, size);
    buffer_release(again);
    if (size > 0) { /* one byte less than the message is too little */
        again = NULL;
        assert_int_equal(compression_inflate(compression, packed->data + 5, packed->length - 5,
                                             (uint32_t)size - 1, &again, NULL),
                         -ERROR_RESOURCE_EXHAUSTED);
        assert_null(again);
    }
    for (size_t cut = 0; cut < packed->length - 5; cut += 1 + packed->length / 50) {
        struct error error = {0};
        assert_int_equal(
            compression_inflate(compression, packed->data + 5, cut, (uint32_t)size, &again, &error),
            -ERROR_INTERNAL);
    }
    buffer_release(packed);
    free(plain);
}

static void messages_survive_both_codings_and_cut_ones_do_not(void **state)
{
    static const size_t sizes[] = {0, 1, 255, 256, 257, 5000, 300000};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        round_trip(COMPRESSION_GZIP, sizes[i]);
        round_trip(COMPRESSION_DEFLATE, sizes[i]);
    }
}

static void bytes_after_the_end_are_an_error(void **state)
{
    struct buffer *packed = NULL, *again = NULL;
    (void)state;
    assert_int_equal(
        compression_deflate(COMPRESSION_GZIP, (const unsigned char *)"x", 1, 0, &packed), 0);
    packed->data[packed->length] = 'y';
    assert_int_equal(
        compression_inflate(COMPRESSION_GZIP, packed->data, packed->length + 1, 100, &again, NULL),
        -ERROR_INTERNAL);
    buffer_release(packed);
}

static void bomb_is_stopped_at_the_limit(void **state)
{
    struct buffer *packed = NULL, *again = NULL;
    struct error error = {0};
    unsigned char *zeros = calloc(1, 64 * MIB);
    (void)state;
    assert_non_null(zeros);
    assert_int_equal(compression_deflate(COMPRESSION_GZIP, zeros, 64 * MIB, 0, &packed), 0);
    free(zeros);
    assert_int_equal(compression_inflate(COMPRESSION_GZIP, packed->data, packed->length, 4 * MIB,
                                         &again, &error),
                     -ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "4194304"));
    buffer_release(packed);
}

static void coding_is_chosen_from_a_list(void **state)
{
    static const struct {
        const char *list;
        enum compression best;
    } cases[] = {
        {"", COMPRESSION_IDENTITY},
        {"identity", COMPRESSION_IDENTITY},
        {"identity,deflate,gzip", COMPRESSION_GZIP},
        {"gzip , deflate", COMPRESSION_GZIP},
        {"identity, deflate", COMPRESSION_DEFLATE},
        {"snappy,,br,GZIP", COMPRESSION_IDENTITY},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(compression_choose(cases[i].list, strlen(cases[i].list)), cases[i].best);
    }
    assert_int_equal(compression_parse("snappy", 6), COMPRESSION_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_survive_both_codings_and_cut_ones_do_not),
        cmocka_unit_test(bytes_after_the_end_are_an_error),
        cmocka_unit_test(bomb_is_stopped_at_the_limit),
        cmocka_unit_test(coding_is_chosen_from_a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
