/* Messages from JSON and back, by messages of the control API. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/base/json_message.h"
#include "server/base/options.h"
#include "tidepool/v1/control.pb-c.h"

static int read_text(const char *text, const ProtobufCMessageDescriptor *type, void *ret_message,
                     struct error *error)
{
    json_t *value = options_parse_text(text, strlen(text), "test", error);
    assert_non_null(value);
    int result = json_to_message(value, type, ret_message, error);
    json_decref(value);
    return result;
}

static void *read_good(const char *text, const ProtobufCMessageDescriptor *type)
{
    struct error error = {0};
    void *message = NULL;
    if (read_text(text, type, &message, &error) < 0) {
        fail_msg("%s: %s", text, error.text);
    }
    return message;
}

static void assert_refused(const char *text, const ProtobufCMessageDescriptor *type,
                           const char *words)
{
    struct error error = {0};
    ProtobufCMessage *message = NULL;
    if (read_text(text, type, &message, &error) != -ERROR_INVALID_ARGUMENT ||
        strstr(error.text, words) == NULL) {
        fail_msg("%s: '%s' does not tell of '%s'", text, error.text, words);
    }
    assert_null(message);
}

static void both_names_and_texts_of_numbers_are_read(void **state)
{
    (void)state;
    Tidepool__V1__AnnounceDevicesRequest *message =
        read_good("{\"provider\":\"p\",\"devices\":\"3\",\"arrivesInNs\":18e9,\"lead_ns\":"
                  "\"18446744073709551615\",\"kind\":null}",
                  &tidepool__v1__announce_devices_request__descriptor);
    assert_string_equal(message->provider, "p");
    assert_string_equal(message->kind, "");
    assert_int_equal(message->devices, 3);
    assert_true(message->arrives_in_ns == UINT64_C(18000000000));
    assert_true(message->lead_ns == UINT64_MAX);
    protobuf_c_message_free_unpacked(&message->base, NULL);
}

static void a_choice_takes_one_of_its_members(void **state)
{
    (void)state;
    Tidepool__V1__DryRunRequest *message = read_good(
        "{\"setMode\":{\"mode\":\"MODE_ADVISE\"},\"setHold\":null,\"horizonS\":\"Infinity\"}",
        &tidepool__v1__dry_run_request__descriptor);
    assert_int_equal(message->change_case, TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SET_MODE);
    assert_int_equal(message->set_mode->mode, TIDEPOOL__V1__MODE__MODE_ADVISE);
    assert_true(message->horizon_s > 1e308);
    protobuf_c_message_free_unpacked(&message->base, NULL);
    assert_refused("{\"setMode\":{},\"setHold\":{}}", &tidepool__v1__dry_run_request__descriptor,
                   "setHold: must be left out");
}

static void lists_bytes_and_enums_come_back_as_they_went(void **state)
{
    static const char text[] =
        "{\"devices\":[{\"device\":\"a\",\"serving\":\"AP8B\",\"training\":\"_-8=\"},{}]}";
    (void)state;
    Tidepool__V1__Timeline *message = read_good(text, &tidepool__v1__timeline__descriptor);
    assert_int_equal(message->n_devices, 2);
    assert_int_equal(message->devices[0]->serving.len, 3);
    assert_memory_equal(message->devices[0]->serving.data, "\0\xff\x01", 3);
    assert_int_equal(message->devices[0]->training.len, 2);
    assert_memory_equal(message->devices[0]->training.data, "\xff\xef", 2);
    json_t *back = json_from_message(&message->base);
    const json_t *first = json_array_get(json_object_get(back, "devices"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "serving")), "AP8B");
    json_decref(back);
    protobuf_c_message_free_unpacked(&message->base, NULL);
}

static void what_is_wrong_is_named_with_its_place(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *dry = &tidepool__v1__dry_run_request__descriptor;
    assert_refused("{\"setMode\":{\"mod\":1}}", dry,
                   "setMode: unknown key 'mod'; did you mean 'mode'?");
    assert_refused("{\"setMode\":{\"mode\":\"ACT\"}}", dry, "setMode.mode: must be one of");
    assert_refused("{\"setMode\":[]}", dry, "setMode: must be an object");
    assert_refused("{\"addDevices\":{\"devices\":-1}}", dry, "addDevices.devices: must be a whole");
    assert_refused("{\"addDevices\":{\"devices\":4294967296}}", dry, "from 0 to 4294967295");
    assert_refused("{\"addDevices\":{\"devices\":1.5}}", dry, "must be a whole number");
    assert_refused("{\"changeEndpoint\":{\"priority\":2147483648}}", dry, "32 bits");
    assert_refused("{\"setHold\":{\"hold\":1}}", dry, "must be true or false");
    assert_refused("{\"horizonS\":\"nan\"}", dry, "horizonS: must be a number");
    assert_refused("{\"horizonS\":1,\"horizon_s\":1}", dry, "by its other name");
    assert_refused("{\"submitJob\":{\"specJson\":7}}", dry, "must be a text");
    assert_refused("[]", dry, "the message: must be an object");
    const ProtobufCMessageDescriptor *timeline = &tidepool__v1__timeline__descriptor;
    assert_refused("{\"devices\":[{},{\"serving\":\"A\"}]}", timeline,
                   "devices[1].serving: must be bytes");
    assert_refused("{\"devices\":[{\"device\":\"x\"},7]}", timeline, "devices[1]: must be an obj");
    assert_refused("{\"devices\":{}}", timeline, "devices: must be a list");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_names_and_texts_of_numbers_are_read),
        cmocka_unit_test(a_choice_takes_one_of_its_members),
        cmocka_unit_test(lists_bytes_and_enums_come_back_as_they_went),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
