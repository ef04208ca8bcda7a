#include "server/rpc/control_command.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "server/rpc/control_encode.h"

/* ---- to a specification -----------------------------------------------------------------------
 */

/* What is absent on the wire is absent here: then it has its default. */
static void put_text(json_t *object, const char *name, const char *text, bool *failed)
{
    if (text[0] != '\0') {
        *failed = json_object_set_new(object, name, json_string(text)) < 0 || *failed;
    }
}

static void put_whole(json_t *object, const char *name, uint64_t number)
{
    if (number != 0) {
        json_object_set_new(object, name,
                            json_integer(number > INT64_MAX ? INT64_MAX : (json_int_t)number));
    }
}

static void put_texts(json_t *object, const char *name, size_t count, char *const *texts,
                      bool *failed)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        *failed = json_array_append_new(list, json_string(texts[i])) < 0 || *failed;
    }
    json_object_set_new(object, name, list);
}

static json_t *limit_value(uint64_t value)
{
    return value > INT64_MAX ? json_string("unlimited") : json_integer((json_int_t)value);
}

static void put_limits(json_t *object, const Tidepool__V1__Command *command, bool *failed)
{
    json_t *list = json_array();
    for (size_t i = 0; i < command->n_limits; i++) {
        const Tidepool__V1__ResourceLimit *limit = command->limits[i];
        json_t *item = json_object();
        *failed =
            json_object_set_new(item, "resource", json_string(limit->resource)) < 0 || *failed;
        json_object_set_new(item, "soft", limit_value(limit->soft));
        json_object_set_new(item, "hard", limit_value(limit->hard));
        json_array_append_new(list, item);
    }
    json_object_set_new(object, "limits", list);
}

static void put_devices(json_t *object, const Tidepool__V1__Command *command)
{
    uint32_t least = command->devices_min == 0 ? 1 : command->devices_min;
    uint32_t most = command->devices_max == 0 ? least : command->devices_max;
    char text[32];
    snprintf(text, sizeof text, "%" PRIu32 ":%" PRIu32, least, most);
    json_object_set_new(object, "devices", json_string(text));
}

static void put_numbers(json_t *object, const Tidepool__V1__Command *command)
{
    put_whole(object, "nice", command->nice);
    put_whole(object, "priority", command->priority);
    put_whole(object, "memory_bytes", command->memory_bytes);
    put_whole(object, "log_bytes", command->log_bytes);
    json_object_set_new(object, "no_freeze", json_boolean(command->no_freeze));
    json_object_set_new(object, "time_s", json_real(command->time_s));
    json_object_set_new(object, "notice_signal_before_s",
                        json_real(command->notice_signal_before_s));
    if (command->umask_or_default_case != TIDEPOOL__V1__COMMAND__UMASK_OR_DEFAULT__NOT_SET) {
        json_object_set_new(object, "umask", json_integer(command->umask));
    }
    if (command->notice_or_default_case != TIDEPOOL__V1__COMMAND__NOTICE_OR_DEFAULT__NOT_SET) {
        json_object_set_new(object, "notice_s", json_real(command->notice_s));
    }
    if (command->retries_or_default_case != TIDEPOOL__V1__COMMAND__RETRIES_OR_DEFAULT__NOT_SET) {
        json_object_set_new(object, "retries", json_integer(command->retries));
    }
}

char *command_specification(const Tidepool__V1__Command *command, struct error *error)
{
    json_t *object = json_object();
    bool failed = object == NULL;
    char *text = NULL;
    put_text(object, "name", command->name, &failed);
    put_texts(object, "command", command->n_arguments, command->arguments, &failed);
    put_texts(object, "environment", command->n_environment, command->environment, &failed);
    put_text(object, "working_directory", command->working_directory, &failed);
    put_text(object, "output", command->output, &failed);
    put_text(object, "kind", command->kind, &failed);
    put_text(object, "team", command->team, &failed);
    put_text(object, "notice_signal", command->notice_signal, &failed);
    put_limits(object, command, &failed);
    put_devices(object, command);
    put_numbers(object, command);
    if (!failed) {
        text = json_dumps(object, JSON_COMPACT);
    }
    json_decref(object);
    if (text == NULL) {
        error_set(error, ERROR_INVALID_ARGUMENT,
                  "submit: the command has a text that is not UTF-8");
    }
    return text;
}

/* ---- and back ---------------------------------------------------------------------------------
 */

static void encode_limits(struct scratch *scratch, const struct command *command,
                          Tidepool__V1__Command *message)
{
    message->limits = scratch_take(scratch, command->limit_count + 1, sizeof *message->limits);
    for (size_t i = 0; message->limits != NULL && i < command->limit_count; i++) {
        Tidepool__V1__ResourceLimit *limit =
            message_new(scratch, &tidepool__v1__resource_limit__descriptor);
        if (limit != NULL) {
            limit->resource =
                scratch_text(scratch, command_resource_name(command->limits[i].resource));
            limit->soft = command->limits[i].soft;
            limit->hard = command->limits[i].hard;
            message->limits[message->n_limits++] = limit;
        }
    }
}

static void encode_choices(const struct command *command, Tidepool__V1__Command *message)
{
    message->umask_or_default_case = TIDEPOOL__V1__COMMAND__UMASK_OR_DEFAULT_UMASK;
    message->umask = (uint32_t)command->umask;
    message->retries_or_default_case = TIDEPOOL__V1__COMMAND__RETRIES_OR_DEFAULT_RETRIES;
    message->retries = (uint32_t)command->retries;
    if (command->notice_s >= 0) {
        message->notice_or_default_case = TIDEPOOL__V1__COMMAND__NOTICE_OR_DEFAULT_NOTICE_S;
        message->notice_s = command->notice_s;
    }
}

Tidepool__V1__Command *encode_command(struct scratch *scratch, const struct command *command)
{
    Tidepool__V1__Command *message = message_new(scratch, &tidepool__v1__command__descriptor);
    if (message == NULL) {
        return NULL;
    }
    message->name = scratch_text(scratch, command->name);
    message->arguments = scratch_take(scratch, command->argument_count + 1, sizeof(char *));
    for (size_t i = 0; message->arguments != NULL && i < command->argument_count; i++) {
        message->arguments[message->n_arguments++] = scratch_text(scratch, command->arguments[i]);
    }
    message->working_directory = scratch_text(scratch, command->working_directory);
    message->output = scratch_text(scratch, command->output != NULL ? command->output : "");
    message->kind = scratch_text(scratch, command->kind);
    message->team = scratch_text(scratch, command->team);
    if (command->notice_signal != 0) {
        message->notice_signal = scratch_text(scratch, sigabbrev_np(command->notice_signal));
    }
    message->nice = (uint32_t)command->nice;
    message->devices_min = command->devices_min;
    message->devices_max = command->devices_max;
    message->priority = (uint32_t)command->priority;
    message->notice_signal_before_s = command->notice_signal_before_s;
    message->no_freeze = command->no_freeze;
    message->time_s = command->time_s;
    message->memory_bytes = (uint64_t)command->memory_bytes;
    message->log_bytes = (uint64_t)command->log_bytes;
    encode_limits(scratch, command, message);
    encode_choices(command, message);
    return message;
}
