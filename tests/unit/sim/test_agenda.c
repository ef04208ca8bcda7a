/* test_agenda.c: clients/sim/agenda.c and bits.c against the simplest thing that could do. */
#include "clients/sim/agenda.h"
#include "clients/sim/bits.h"
#include "tests/unit/sim/script.h"

#define COUNT 5000
#define SIZE 1000

static uint64_t draw(uint64_t *z)
{
    *z = *z * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *z >> 33;
}

static void moments_come_by_time_and_of_one_time_in_the_order_they_were_added(void **state)
{
    struct agenda agenda = {0};
    struct moment moment, before = {0};
    uint64_t z = 7;
    size_t seen = 0;
    (void)state;
    assert_false(agenda_first(&agenda, &moment));
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(agenda_add(&agenda, (struct moment){.time_ns = draw(&z) % 200}), 0);
        if (draw(&z) % 4 == 0) { /* never before what comes next */
            assert_true(agenda_first(&agenda, &moment));
            agenda_pop(&agenda);
            seen++;
        }
    }
    before.time_ns = 0;
    while (agenda_first(&agenda, &moment)) {
        assert_true(before.time_ns < moment.time_ns ||
                    (before.time_ns == moment.time_ns &&
                     (seen == 0 || before.sequence <= moment.sequence)));
        before = moment;
        agenda_pop(&agenda);
        seen++;
    }
    assert_int_equal(seen, COUNT);
    agenda_fini(&agenda);
}

static uint32_t first_of(const bool *a, const bool *b)
{
    for (uint32_t i = 0; i < SIZE; i++) {
        if (a[i] && b[i]) {
            return i;
        }
    }
    return BITS_NONE;
}

static void the_lowest_member_of_a_set_and_of_two_is_found(void **state)
{
    struct bits a, b;
    bool in_a[SIZE] = {false}, in_b[SIZE] = {false};
    uint64_t z = 11;
    (void)state;
    assert_int_equal(bits_init(&a, SIZE), 0);
    assert_int_equal(bits_init(&b, SIZE), 0);
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t member = (uint32_t)(draw(&z) % SIZE);
        bool in = draw(&z) % 5 == 0;
        bits_set(draw(&z) % 2 ? &a : &b, member, in);
        in_a[member] = bits_has(&a, member);
        in_b[member] = bits_has(&b, member);
        assert_int_equal(bits_first(&a), first_of(in_a, in_a));
        assert_int_equal(bits_first_of_both(&a, &b), first_of(in_a, in_b));
    }
    bits_fini(&a);
    bits_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_come_by_time_and_of_one_time_in_the_order_they_were_added),
        cmocka_unit_test(the_lowest_member_of_a_set_and_of_two_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
