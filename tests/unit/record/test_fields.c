/* test_fields.c: server/record/fields.c: nothing that an event or the configuration says is left
 * out, so that a log repeats it whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/record/fields.h"

static void every_kind_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int kind = 0; kind < CORE_EVENT_COUNT; kind++) {
        const char *name = record_event_fields((enum core_event_kind)kind)->name;
        assert_non_null(name);
        for (int other = 0; other < kind; other++) {
            assert_string_not_equal(name, record_event_fields((enum core_event_kind)other)->name);
        }
    }
}

static void values_come_back_as_they_went_in(void **state)
{
    (void)state;
    struct core_event event = {0};
    const struct record_fields *fields = record_event_fields(CORE_EVENT_LEASE_REQUESTED);
    for (size_t i = 0; i < fields->count; i++) {
        const struct record_field *field = &fields->fields[i];
        uint64_t value = field->size == 1                  ? 1
                         : field->meaning == RECORD_SIGNED ? (uint64_t)-7
                                                           : 1000 + i;
        assert_true(record_field_fits(field, value));
        record_field_write(&event, field, 0, value);
        assert_int_equal(record_field_read(&event, field, 0), value);
    }
    assert_int_equal(event.lease_spec.priority, -7);
    assert_int_equal(event.lease_spec.lease, 1000);
}

static void what_is_too_large_for_a_field_does_not_fit(void **state)
{
    (void)state;
    const struct record_fields *fields = record_event_fields(CORE_EVENT_LEASE_REQUESTED);
    for (size_t i = 0; i < fields->count; i++) {
        const struct record_field *field = &fields->fields[i];
        bool wide = field->size == 8;
        assert_int_equal(record_field_fits(field, UINT64_C(1) << 40), wide);
        assert_int_equal(record_field_fits(field, UINT64_MAX << 40), wide);
    }
}

/* gcc 12 is wrong about padding behind an array of structs; but no field has 0 by default, except
 * those named in core.h, and those are wide. */
static void every_default_of_the_configuration_has_a_row(void **state)
{
    (void)state;
    struct core_config config;
    memset(&config, 0, sizeof config);
    core_config_init(&config);
    config.seed[0] = config.seed[1] = config.store_epoch = config.generation = UINT64_MAX;
    const struct record_fields *fields = record_config_fields();
    for (size_t i = 0; i < fields->count; i++) {
        const struct record_field *field = &fields->fields[i];
        for (size_t element = 0; element < field->count; element++) {
            record_field_write(&config, field, element, 0);
        }
    }
    for (size_t at = 0; at < sizeof config; at++) {
        if (((unsigned char *)&config)[at] != 0) {
            fail_msg("byte %zu of the configuration is in no row of server/record/fields.c", at);
        }
    }
}

#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)

/* Bytes of a part of the event that hold something (padding cleared) and that no row covers. */
static void assert_covered(const char *name, const struct record_fields *fields,
                           const unsigned char *whole, size_t size)
{
    unsigned char *left = malloc(size);
    memcpy(left, whole, size);
    for (size_t i = 0; i < fields->count; i++) {
        const struct record_field *field = &fields->fields[i];
        for (size_t at = field->offset; at < field->offset + (size_t)field->size * field->count;
             at++) {
            assert_true(at < size);
            if (left[at] == 0) {
                fail_msg("%s: '%s' lies outside or in two rows", name, field->name);
            }
            left[at] = 0;
        }
    }
    for (size_t at = 0; at < size; at++) {
        if (left[at] != 0) {
            fail_msg("%s: byte %zu is in no row of server/record/fields.c", name, at);
        }
    }
    free(left);
}

#define ASSERT_PART(kind, part)                                                                    \
    do {                                                                                           \
        struct core_event whole;                                                                   \
        __typeof__(whole.part) bytes;                                                              \
        memset(&whole, 0, sizeof whole);                                                           \
        memset(&bytes, 0xff, sizeof bytes);                                                        \
        __builtin_clear_padding(&bytes);                                                           \
        memcpy(&whole.part, &bytes, sizeof bytes);                                                 \
        assert_covered(#kind, record_event_fields(CORE_EVENT_##kind), (unsigned char *)&whole,     \
                       sizeof whole);                                                              \
        seen[CORE_EVENT_##kind] = true;                                                            \
    } while (0)

static void every_byte_of_every_event_has_a_row(void **state)
{
    bool seen[CORE_EVENT_COUNT] = {[CORE_EVENT_TIMER] = true, [CORE_EVENT_RECONCILE_DONE] = true};
    (void)state;
    ASSERT_PART(DEVICE_ADDED, device_added);
    ASSERT_PART(DEVICE_REMOVED, device);
    ASSERT_PART(DEVICE_FAILED, device);
    ASSERT_PART(DEVICE_RECOVERED, device);
    ASSERT_PART(DEVICE_SLOW, device_flag);
    ASSERT_PART(DEVICE_SPEED, device_speed);
    ASSERT_PART(DEVICE_CORDONED, device_flag);
    ASSERT_PART(DEVICE_OCCUPIED, device_flag);
    ASSERT_PART(DEVICE_RECLAIM_BY, device_time);
    ASSERT_PART(DEVICE_SAMPLE, device_sample);
    ASSERT_PART(KIND_MEASURED, kind_measured);
    ASSERT_PART(ENDPOINT_ADDED, endpoint_spec);
    ASSERT_PART(ENDPOINT_CHANGED, endpoint_spec);
    ASSERT_PART(ENDPOINT_REMOVED, endpoint);
    ASSERT_PART(ENDPOINT_SERVICE, endpoint_service);
    ASSERT_PART(ENDPOINT_SAMPLE, endpoint_sample);
    ASSERT_PART(ENDPOINT_DANGER, endpoint_danger);
    ASSERT_PART(INSTANCE_READY, instance);
    ASSERT_PART(INSTANCE_FAILED, instance);
    ASSERT_PART(INSTANCE_STOPPED, instance);
    ASSERT_PART(LEASE_REQUESTED, lease_spec);
    ASSERT_PART(LEASE_RESIZED, lease_resized);
    ASSERT_PART(LEASE_PAUSED, lease);
    ASSERT_PART(LEASE_RESUMED, lease);
    ASSERT_PART(LEASE_CANCELLED, lease);
    ASSERT_PART(LEASE_RELEASED, lease_released);
    ASSERT_PART(LEASE_SPEED, lease_speed);
    ASSERT_PART(LEASE_PROGRESS, lease_progress);
    ASSERT_PART(LEASE_HEARTBEAT, lease_heartbeat);
    ASSERT_PART(JOB_EXITED, job_exited);
    ASSERT_PART(REVOKE_ACKNOWLEDGED, answer);
    ASSERT_PART(RELEASE_VERIFIED, verified);
    ASSERT_PART(ACTION_DONE, answer);
    ASSERT_PART(ACTION_FAILED, answer);
    ASSERT_PART(SUSPENDED, suspended);
    ASSERT_PART(RESUMED, answer);
    ASSERT_PART(EXTENSION_ASKED, extension);
    ASSERT_PART(RUNG_MEASURED, rung_measured);
    ASSERT_PART(TEAM_CHANGED, team_spec);
    ASSERT_PART(TEAM_REMOVED, team);
    ASSERT_PART(MODE_CHANGED, mode);
    ASSERT_PART(HOLD, hold);
    ASSERT_PART(RESTORED_LEASE, lease_spec);
    ASSERT_PART(RESTORED_GRANT, restored_grant);
    ASSERT_PART(RESTORED_INSTANCE, instance);
    for (int kind = 0; kind < CORE_EVENT_COUNT; kind++) {
        if (!seen[kind]) {
            fail_msg("event '%s' is missing in this test",
                     record_event_fields((enum core_event_kind)kind)->name);
        }
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_name_of_its_own),
        cmocka_unit_test(values_come_back_as_they_went_in),
        cmocka_unit_test(what_is_too_large_for_a_field_does_not_fit),
        cmocka_unit_test(every_default_of_the_configuration_has_a_row),
#if defined(__has_builtin) && __has_builtin(__builtin_clear_padding)
        cmocka_unit_test(every_byte_of_every_event_has_a_row),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
