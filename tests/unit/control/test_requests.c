#include "server/control/requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HOURS(n) ((uint64_t)(n)*3600 * 1000000000)

static int setup(void **state)
{
    *state = requests_create();
    return *state != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    requests_destroy(*state);
    return 0;
}

static int add(struct requests *requests, const char *id, uint64_t job, uint64_t made_wall_ns)
{
    char text[32];
    char job_id[32];
    snprintf(text, sizeof text, "%s", id);
    snprintf(job_id, sizeof job_id, "digits-%llu", (unsigned long long)job);
    struct store_request request = {text, job, job_id, made_wall_ns};
    return requests_add(requests, &request, NULL);
}

static uint64_t job_of(struct requests *requests, const char *id, uint64_t now_wall_ns)
{
    const struct store_request *request = requests_find(requests, id, now_wall_ns);
    return request != NULL ? request->job : 0;
}

static void an_id_is_known_for_24_hours(void **state)
{
    assert_int_equal(add(*state, "one", 7, HOURS(100)), 0);
    assert_int_equal(job_of(*state, "one", HOURS(100)), 7);
    assert_int_equal(job_of(*state, "one", HOURS(124) - 1), 7);
    assert_string_equal(requests_find(*state, "one", HOURS(101))->job_id, "digits-7");
    assert_int_equal(job_of(*state, "one", HOURS(124)), 0);
    assert_int_equal(job_of(*state, "two", HOURS(100)), 0);
    assert_int_equal(job_of(*state, "one", HOURS(99)), 7); /* a clock set back remembers more */
}

static void no_id_is_nothing_to_remember(void **state)
{
    assert_int_equal(add(*state, "", 7, HOURS(100)), 0);
    assert_int_equal(job_of(*state, "", HOURS(100)), 0);
}

static void an_id_used_again_after_its_day_stands_for_the_new_job(void **state)
{
    assert_int_equal(add(*state, "one", 7, HOURS(100)), 0);
    assert_int_equal(add(*state, "one", 8, HOURS(125)), 0);
    assert_int_equal(job_of(*state, "one", HOURS(126)), 8);
}

static void a_removed_id_is_unknown(void **state)
{
    assert_int_equal(add(*state, "one", 7, HOURS(100)), 0);
    requests_remove(*state, "one");
    requests_remove(*state, "one");
    requests_remove(*state, "never seen");
    assert_int_equal(job_of(*state, "one", HOURS(100)), 0);
}

static void too_many_are_refused_until_the_oldest_has_its_day(void **state)
{
    char id[32];
    for (uint64_t i = 1; i <= REQUESTS_MAX; i++) {
        snprintf(id, sizeof id, "id-%llu", (unsigned long long)i);
        assert_int_equal(add(*state, id, i, HOURS(100) + i), 0);
    }
    assert_int_equal(add(*state, "more", 1, HOURS(101)), -ERROR_RESOURCE_EXHAUSTED);
    assert_int_equal(add(*state, "", 1, HOURS(101)), 0);
    assert_int_equal(job_of(*state, "id-1", HOURS(101)), 1); /* none is forgotten for it */
    assert_int_equal(add(*state, "id-5", 9, HOURS(101)), 0); /* not one more */
    assert_int_equal(add(*state, "more", 9, HOURS(124) + 1), 0);
    assert_int_equal(job_of(*state, "more", HOURS(125)), 9);
    assert_int_equal(job_of(*state, "id-5", HOURS(124) + 1), 9);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_id_is_known_for_24_hours),
        TEST(no_id_is_nothing_to_remember),
        TEST(an_id_used_again_after_its_day_stands_for_the_new_job),
        TEST(a_removed_id_is_unknown),
        TEST(too_many_are_refused_until_the_oldest_has_its_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
