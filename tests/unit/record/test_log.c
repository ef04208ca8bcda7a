/* test_log.c: server/record/log.c, reader.c: a log of another version of the server: what it names
 * is matched by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/record/log.h"

static const char *path;

static void block_append(enum record_block kind, struct record_bytes *contents)
{
    struct record_bytes block;
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_true(record_block_pack(kind, contents, &block));
    assert_int_equal(fwrite(block.data, 1, block.length, file), block.length);
    fclose(file);
    record_bytes_fini(&block);
    record_bytes_fini(contents);
}

/* A log with one setting and one kind of event, of these names. */
static void head_write(uint64_t version, const char *setting, const char *kind, const char *field)
{
    struct record_bytes bytes = {0};
    unlink(path);
    record_put_number(&bytes, version);
    record_put_number(&bytes, 5); /* wall clock */
    record_put_number(&bytes, 0); /* part */
    record_put_number(&bytes, 0); /* events before it */
    record_put_text(&bytes, "config");
    record_put_number(&bytes, 1);
    record_put_text(&bytes, setting);
    record_put_number(&bytes, 1);
    record_put_number(&bytes, 0);
    record_put_number(&bytes, 42); /* its value */
    record_put_number(&bytes, 1);
    record_put_text(&bytes, kind);
    record_put_number(&bytes, 2);
    record_put_text(&bytes, "device");
    record_put_number(&bytes, 1);
    record_put_number(&bytes, 0);
    record_put_text(&bytes, field);
    record_put_number(&bytes, 1);
    record_put_number(&bytes, 0);
    block_append(RECORD_BLOCK_HEADER, &bytes);
}

static void event_write(uint64_t device, uint64_t second)
{
    struct record_bytes bytes = {0};
    record_put_number(&bytes, 1);
    record_put_signed(&bytes, 1000);
    record_put_number(&bytes, device);
    record_put_number(&bytes, second);
    record_hash_write(&bytes, 99);
    block_append(RECORD_BLOCK_EVENTS, &bytes);
}

/* The error of the first event; 0: it is read, into `item`. */
static int first(struct record_item *item, struct error *error)
{
    struct record_reader *reader = record_open(path, error);
    if (reader == NULL) {
        return -(int)error->code;
    }
    int result = record_next(reader, item, error);
    record_close(reader);
    return result;
}

static void fields_are_found_by_name(void **state)
{
    (void)state;
    struct record_item item;
    struct error error;
    head_write(RECORD_VERSION, "moves_per_hour", "device_slow", "on");
    event_write(7, 1);
    assert_int_equal(first(&item, &error), 0);
    assert_int_equal(item.kind, RECORD_EVENT);
    assert_int_equal(item.event.kind, CORE_EVENT_DEVICE_SLOW);
    assert_int_equal(item.event.time_ns, 1000);
    assert_int_equal(item.event.device_flag.device, 7);
    assert_true(item.event.device_flag.on);
    struct record_reader *reader = record_open(path, &error);
    assert_int_equal(record_reader_head(reader)->config.moves_per_hour, 42);
    assert_int_equal(record_reader_head(reader)->config.moves_extra, 4); /* not told: as usual */
    assert_int_equal(record_next(reader, &item, &error), 0);
    assert_int_equal(record_next(reader, &item, &error), 0);
    assert_true(item.kind == RECORD_HASH && item.hash == 99);
    assert_int_equal(record_next(reader, &item, &error), 0);
    assert_int_equal(item.kind, RECORD_END);
    assert_int_equal(record_torn(reader), 0);
    record_close(reader);
}

static void field_that_is_not_known_may_say_nothing(void **state)
{
    (void)state;
    struct record_item item;
    struct error error;
    head_write(RECORD_VERSION, "moves_per_hour", "device_slow", "colour");
    event_write(7, 0);
    assert_int_equal(first(&item, &error), 0);
    head_write(RECORD_VERSION, "moves_per_hour", "device_slow", "colour");
    event_write(7, 3);
    assert_int_equal(first(&item, &error), -ERROR_UNIMPLEMENTED);
    assert_non_null(strstr(error.text, "device_slow"));
}

static void what_is_not_known_is_named(void **state)
{
    (void)state;
    struct record_item item;
    struct error error;
    head_write(RECORD_VERSION, "moves_per_hour", "device_painted", "on");
    event_write(7, 1);
    assert_int_equal(first(&item, &error), -ERROR_UNIMPLEMENTED);
    assert_non_null(strstr(error.text, "device_painted"));
    head_write(RECORD_VERSION, "moves_per_fortnight", "device_slow", "on");
    assert_int_equal(first(&item, &error), -ERROR_UNIMPLEMENTED);
    head_write(RECORD_VERSION + 1, "moves_per_hour", "device_slow", "on");
    assert_int_equal(first(&item, &error), -ERROR_UNIMPLEMENTED);
}

static void value_too_large_for_its_field_is_refused(void **state)
{
    (void)state;
    struct record_item item;
    struct error error;
    head_write(RECORD_VERSION, "moves_per_hour", "device_speed", "speed_permille");
    event_write(7, UINT64_C(1) << 40);
    assert_int_equal(first(&item, &error), -ERROR_UNIMPLEMENTED);
}

/* Every byte of the head, and every length: an error or the right contents, nothing worse. */
static void damaged_bytes_are_noticed(void **state)
{
    (void)state;
    struct record_item item;
    struct error error;
    head_write(RECORD_VERSION, "moves_per_hour", "device_slow", "on");
    event_write(7, 1);
    unsigned char whole[1024], bytes[1024];
    FILE *file = fopen(path, "rb");
    size_t length = fread(whole, 1, sizeof whole, file);
    fclose(file);
    for (size_t at = 0; at < 2 * length; at++) {
        memcpy(bytes, whole, length);
        bytes[at % length] ^= 0x41;
        file = fopen(path, "wb");
        fwrite(bytes, 1, at < length ? length : at - length, file);
        fclose(file);
        int result = first(&item, &error);
        assert_true(result == -ERROR_DATA_LOSS || (result == 0 && item.kind == RECORD_END));
    }
}

static int path_make(void **state)
{
    static char text[] = "/tmp/tidepool-log-XXXXXX";
    (void)state;
    int file = mkstemp(text);
    path = text;
    return file < 0 || close(file) < 0 ? -1 : 0;
}

static int path_remove(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_found_by_name),
        cmocka_unit_test(field_that_is_not_known_may_say_nothing),
        cmocka_unit_test(what_is_not_known_is_named),
        cmocka_unit_test(value_too_large_for_its_field_is_refused),
        cmocka_unit_test(damaged_bytes_are_noticed),
    };
    return cmocka_run_group_tests(tests, path_make, path_remove);
}
