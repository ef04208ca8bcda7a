#include "server/control/twin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
#define SETTLE (2000 * MS)

/* Two devices, 10 ms a request, SLO 20 ms. */
static const struct service_table service = {.count = 1, .batch = {1}, .ns = {10 * MS}};
static const struct twin_subject subject = {
    .devices = 2, .slo_ns = 20 * MS, .batch_max = 1, .service = &service};

static void add(struct twin *twin, uint64_t arrival_ms, uint64_t latency_ms)
{
    struct recorded_request request = {arrival_ms * MS, latency_ms * MS};
    assert_int_equal(twin_add(twin, &request, 1), 0);
}

static void late_requests_are_split_by_their_cause(void **state)
{
    (void)state;
    struct twin *twin = twin_create();
    add(twin, 1000, 50); /* alone, late: with all devices it had been answered after 10 ms */
    add(twin, 1100, 10);
    for (int i = 0; i < 8; i++) { /* 8 at once on 2 devices: the last ones are late in any case */
        add(twin, 1200, 10 + 10 * (uint64_t)(i / 2));
    }
    twin_advance(twin, &subject, 10000 * MS, SETTLE);
    struct twin_totals totals = twin_totals(twin);
    assert_int_equal(totals.requests, 10);
    assert_int_equal(totals.late, 1 + 4);
    assert_int_equal(totals.late_by_handover, 1);
    twin_destroy(twin);
}

static void what_may_still_be_answered_is_not_judged(void **state)
{
    (void)state;
    struct twin *twin = twin_create();
    add(twin, 1000, 10);
    add(twin, 5000, 10);
    add(twin, 5005, 10);
    twin_advance(twin, &subject, 5100 * MS, SETTLE);
    assert_int_equal(twin_totals(twin).requests, 0); /* nothing but one moment, which may go on */
    add(twin, 3000, 10);                             /* answered late by a slow thread */
    twin_advance(twin, &subject, 5200 * MS, SETTLE);
    assert_int_equal(twin_totals(twin).requests, 1); /* cut before 3000: nothing ran there */
    twin_advance(twin, &subject, 8000 * MS, SETTLE);
    assert_int_equal(twin_totals(twin).requests, 4);
    twin_destroy(twin);
}

static void order_of_answers_does_not_matter(void **state)
{
    (void)state;
    struct twin *twin = twin_create();
    for (int i = 99; i >= 0; i--) {
        add(twin, 1000 + (uint64_t)i * 50, i % 10 == 0 ? 25 : 10);
    }
    twin_advance(twin, &subject, 60000 * MS, SETTLE);
    struct twin_totals totals = twin_totals(twin);
    assert_int_equal(totals.requests, 100);
    assert_int_equal(totals.late, 10);
    assert_int_equal(totals.late_by_handover, 10);
    twin_destroy(twin);
}

static void a_piece_without_a_pause_is_cut_at_its_bound(void **state)
{
    (void)state;
    struct twin *twin = twin_create();
    for (uint64_t i = 0; i < TWIN_PIECE_MAX + 100; i++) {
        add(twin, 1000 + i, 10); /* always something running */
    }
    twin_advance(twin, &subject, (1000 + TWIN_PIECE_MAX + 99) * MS, 90 * MS);
    struct twin_totals totals = twin_totals(twin);
    assert_true(totals.requests >= TWIN_PIECE_MAX);
    assert_true(totals.requests < TWIN_PIECE_MAX + 100);
    twin_destroy(twin);
}

static void without_measured_times_nothing_is_judged(void **state)
{
    (void)state;
    static const struct service_table unknown;
    struct twin_subject blind = subject;
    struct twin *twin = twin_create();
    blind.service = &unknown;
    add(twin, 1000, 50);
    twin_advance(twin, &blind, 10000 * MS, SETTLE);
    assert_int_equal(twin_totals(twin).requests, 0);
    twin_destroy(twin);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_requests_are_split_by_their_cause),
        cmocka_unit_test(what_may_still_be_answered_is_not_judged),
        cmocka_unit_test(order_of_answers_does_not_matter),
        cmocka_unit_test(a_piece_without_a_pause_is_cut_at_its_bound),
        cmocka_unit_test(without_measured_times_nothing_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
