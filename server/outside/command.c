#include "server/outside/command.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "server/base/options.h"

#define FIELD(field) offsetof(struct command, field)
#define LOG_BYTES_STANDARD "67108864"

/* clang-format off */
#define OPTION_DEVICES \
    {.name = "devices", .kind = OPTION_TEXT, .offset = FIELD(parts.devices), .standard = "\"1\"", \
    .unit = "devices", \
    .help = "how many: `\"2\"`, or at least and at most: `\"1:4\"`; their number changes only " \
    "from one run to the next"}
#define OPTION_KIND \
    {.name = "kind", .kind = OPTION_TEXT, .offset = FIELD(kind), .standard = "\"cpu\"", \
    .help = "of device"}
#define OPTION_TEAM \
    {.name = "team", .kind = OPTION_TEXT, .offset = FIELD(team), .standard = "\"\"", \
    .help = "whose share and quota of the devices it uses; at most 63 bytes"}
#define OPTION_PRIORITY \
    {.name = "priority", .kind = OPTION_INT, .offset = FIELD(priority), .minimum = 0, \
    .maximum = 100, .standard = "0", .help = "higher goes first"}
#define OPTION_NOTICE \
    {.name = "notice_s", .kind = OPTION_NUMBER, .offset = FIELD(notice_s), .unit = "s", \
    .minimum = 0, .maximum = 3600, \
    .help = "how long it is told before its devices are taken; default: `planner.notice_s`"}
#define OPTION_TIME \
    {.name = "time_s", .kind = OPTION_NUMBER, .offset = FIELD(time_s), .unit = "s", .minimum = 0, \
    .maximum = 1e9, .standard = "0", \
    .help = "of running, over all its runs; then notice and the end; 0: no bound"}
#define OPTION_MEMORY \
    {.name = "memory_bytes", .kind = OPTION_INT, .offset = FIELD(memory_bytes), .unit = "bytes", \
    .minimum = 0, .maximum = 1125899906842624, .standard = "0", \
    .help = "on each device, for the planner; 0: not counted"}

static const struct option table[] = {
    {.name = "name", .kind = OPTION_TEXT, .offset = FIELD(name),
     .help = "letters, digits, `.`, `_` and `-`; at most 63; default: from the program's name"},
    {.name = "command", .kind = OPTION_JSON, .offset = FIELD(parts.command), .required = true,
     .help = "the program and its arguments: a list of texts, at most 4096"},
    {.name = "environment", .kind = OPTION_JSON, .offset = FIELD(parts.environment),
     .standard = "[]",
     .help = "`\"NAME=value\"`, all that is passed on beside what the server sets; at most 4096"},
    {.name = "working_directory", .kind = OPTION_TEXT, .offset = FIELD(working_directory),
     .required = true, .help = "absolute"},
    {.name = "output", .kind = OPTION_TEXT, .offset = FIELD(output),
     .help = "absolute; what the job writes is also appended here, without a bound"},
    OPTION_DEVICES,
    OPTION_KIND,
    OPTION_TEAM,
    OPTION_PRIORITY,
    OPTION_NOTICE,
    {.name = "notice_signal", .kind = OPTION_TEXT, .offset = FIELD(parts.notice_signal),
     .help = "sent to the first process with a notice, if it has a handler; absent: none"},
    {.name = "notice_signal_before_s", .kind = OPTION_NUMBER,
     .offset = FIELD(notice_signal_before_s), .unit = "s", .minimum = 0, .maximum = 3600,
     .standard = "0", .help = "so long before the deadline; 0: with the notice"},
    {.name = "no_freeze", .kind = OPTION_BOOL, .offset = FIELD(no_freeze), .standard = "false",
     .help = "it must not be stopped in place"},
    OPTION_TIME,
    {.name = "retries", .kind = OPTION_INT, .offset = FIELD(retries), .minimum = 0,
     .maximum = 100, .standard = "3", .help = "runs again so often after a failure of its own"},
    OPTION_MEMORY,
    {.name = "log_bytes", .kind = OPTION_INT, .offset = FIELD(log_bytes), .unit = "bytes",
     .minimum = 65536, .maximum = 4294967296, .standard = LOG_BYTES_STANDARD,
     .help = "of the server's copy of one run's output; what is older goes"},
    {.name = "umask", .kind = OPTION_INT, .offset = FIELD(umask), .minimum = 0, .maximum = 511,
     .standard = "18", .help = "of the files it makes; 18 is 0022"},
    {.name = "nice", .kind = OPTION_INT, .offset = FIELD(nice), .minimum = 0, .maximum = 19,
     .standard = "0", .help = "19 is the nicest"},
    {.name = "limits", .kind = OPTION_JSON, .offset = FIELD(parts.limits), .standard = "[]",
     .help = "resource limits, at most 16: `{\"resource\": \"NOFILE\", \"soft\": 1024, \"hard\": "
             "\"unlimited\"}`"},
};

/* A lease held by a process that the server did not start. */
static const struct option held_table[] = {
    {.name = "held", .kind = OPTION_BOOL, .offset = FIELD(held), .required = true,
     .help = "true"},
    {.name = "name", .kind = OPTION_TEXT, .offset = FIELD(name), .required = true,
     .help = "letters, digits, `.`, `_` and `-`; at most 63"},
    OPTION_DEVICES, OPTION_KIND, OPTION_TEAM, OPTION_PRIORITY, OPTION_NOTICE, OPTION_TIME,
    OPTION_MEMORY,
};
/* clang-format on */
#define OPTIONS (sizeof table / sizeof table[0])
#define HELD_OPTIONS (sizeof held_table / sizeof held_table[0])

static const struct {
    const char *name;
    int resource;
} resources[] = {
    {"AS", RLIMIT_AS},           {"CORE", RLIMIT_CORE},         {"CPU", RLIMIT_CPU},
    {"DATA", RLIMIT_DATA},       {"FSIZE", RLIMIT_FSIZE},       {"LOCKS", RLIMIT_LOCKS},
    {"MEMLOCK", RLIMIT_MEMLOCK}, {"MSGQUEUE", RLIMIT_MSGQUEUE}, {"NICE", RLIMIT_NICE},
    {"NOFILE", RLIMIT_NOFILE},   {"NPROC", RLIMIT_NPROC},       {"RSS", RLIMIT_RSS},
    {"RTPRIO", RLIMIT_RTPRIO},   {"RTTIME", RLIMIT_RTTIME},     {"SIGPENDING", RLIMIT_SIGPENDING},
    {"STACK", RLIMIT_STACK},
};
#define RESOURCES (sizeof resources / sizeof resources[0])

const char *command_resource_name(uint64_t resource)
{
    for (size_t i = 0; i < RESOURCES; i++) {
        if (resources[i].resource == (int)resource) {
            return resources[i].name;
        }
    }
    return "";
}

bool command_is(const json_t *specification)
{
    return json_object_get(specification, "command") != NULL ||
           json_object_get(specification, "held") != NULL;
}

void command_print_help(FILE *out)
{
    options_print(table, OPTIONS, out);
}

int command_signal_number(const char *text)
{
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9') {
        return *end == '\0' && number > 0 && number < NSIG ? (int)number : 0;
    }
    const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;
    for (int i = 1; i < NSIG; i++) {
        const char *known = sigabbrev_np(i);
        if (known != NULL && strcmp(known, name) == 0) {
            return i;
        }
    }
    return 0;
}

/* ---- lists -------------------------------------------------------------------------------------
 */

static void words_free(char **words)
{
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        free(words[i]);
    }
    free(words);
}

static int words_read(const json_t *list, const char *key, char ***ret_words, size_t *ret_count,
                      struct error *error)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > COMMAND_WORDS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "job.%s: is not a list of at most %d texts",
                         key, COMMAND_WORDS_MAX);
    }
    char **words = calloc(count + 1, sizeof *words);
    for (size_t i = 0; words != NULL && i < count; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        if (word == NULL) {
            words_free(words);
            return error_set(error, ERROR_INVALID_ARGUMENT, "job.%s: item %zu is no text", key, i);
        }
        words[i] = strdup(word);
        if (words[i] == NULL) {
            words_free(words);
            words = NULL;
        }
    }
    if (words == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "job.%s: no memory", key);
    }
    *ret_words = words;
    *ret_count = count;
    return 0;
}

static int environment_check(const struct command *command, struct error *error)
{
    for (size_t i = 0; i < command->environment_count; i++) {
        const char *variable = command->environment[i];
        const char *equals = strchr(variable, '=');
        if (equals == NULL || equals == variable) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "job.environment: '%.64s' is not NAME=value", variable);
        }
        if (strncmp(variable, "TIDEPOOL_", 9) == 0) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "job.environment: '%.*s': names that begin with TIDEPOOL_ are the "
                             "server's",
                             (int)(equals - variable > 64 ? 64 : equals - variable), variable);
        }
    }
    return 0;
}

static int limit_value(const json_t *value, uint64_t *ret_value)
{
    const char *word = json_string_value(value);
    if (word != NULL && strcmp(word, "unlimited") == 0) {
        *ret_value = RLIM_INFINITY;
        return 0;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return -1;
    }
    *ret_value = (uint64_t)json_integer_value(value);
    return 0;
}

static int limit_read(const json_t *item, struct job_limit *ret_limit, struct error *error)
{
    const char *name = json_string_value(json_object_get(item, "resource"));
    for (size_t i = 0; name != NULL && i < RESOURCES; i++) {
        if (strcmp(resources[i].name, name) != 0) {
            continue;
        }
        ret_limit->resource = (uint64_t)resources[i].resource;
        if (limit_value(json_object_get(item, "soft"), &ret_limit->soft) < 0 ||
            limit_value(json_object_get(item, "hard"), &ret_limit->hard) < 0 ||
            ret_limit->soft > ret_limit->hard) {
            return error_set(error, ERROR_INVALID_ARGUMENT,
                             "job.limits: %s: `soft` and `hard` are whole numbers or "
                             "\"unlimited\", soft no more than hard",
                             name);
        }
        return 0;
    }
    return error_set(error, ERROR_INVALID_ARGUMENT, "job.limits: no resource '%.32s'",
                     name != NULL ? name : "");
}

static int limits_read(struct command *command, struct error *error)
{
    const json_t *list = command->parts.limits;
    int result = 0;
    if (!json_is_array(list) || json_array_size(list) > COMMAND_LIMITS_MAX) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "job.limits: is not a list of at most %d",
                         COMMAND_LIMITS_MAX);
    }
    command->limit_count = json_array_size(list);
    for (size_t i = 0; i < command->limit_count && result == 0; i++) {
        result = limit_read(json_array_get(list, i), &command->limits[i], error);
    }
    return result;
}

/* ---- single values -----------------------------------------------------------------------------
 */

static bool is_name_byte(char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' || byte == '-';
}

/* "/usr/bin/my job.sh" gives "my_job.sh". */
static int name_make(struct command *command, struct error *error)
{
    const char *slash = strrchr(command->arguments[0], '/');
    const char *program = slash != NULL ? slash + 1 : command->arguments[0];
    command->name = strndup(program[0] != '\0' ? program : "job", COMMAND_NAME_MAX);
    if (command->name == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "job.name: no memory");
    }
    for (char *byte = command->name; *byte != '\0'; byte++) {
        *byte = is_name_byte(*byte) ? *byte : '_';
    }
    if (command->name[0] == '.') {
        command->name[0] = '_';
    }
    return 0;
}

static int name_check(struct command *command, struct error *error)
{
    if (command->name == NULL || command->name[0] == '\0') {
        free(command->name);
        command->name = NULL;
        return name_make(command, error);
    }
    size_t length = 0;
    while (is_name_byte(command->name[length])) {
        length++;
    }
    if (command->name[length] != '\0' || length > COMMAND_NAME_MAX || command->name[0] == '.') {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.name: '%.80s': letters, digits, '.', '_' and '-', at most %d, no "
                         "'.' first",
                         command->name, COMMAND_NAME_MAX);
    }
    return 0;
}

static int count_read(const char **text, uint32_t *ret_count)
{
    char *end = NULL;
    unsigned long value = strtoul(*text, &end, 10);
    if (**text < '0' || **text > '9' || value < 1 || value > 1024) {
        return -1;
    }
    *ret_count = (uint32_t)value;
    *text = end;
    return 0;
}

static int devices_read(struct command *command, struct error *error)
{
    const char *at = command->parts.devices;
    bool good = count_read(&at, &command->devices_min) == 0;
    command->devices_max = command->devices_min;
    if (good && *at == ':') {
        at++;
        good = count_read(&at, &command->devices_max) == 0;
    }
    if (!good || *at != '\0' || command->devices_max < command->devices_min) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.devices: '%.32s' is neither \"2\" nor \"1:4\" (1 to 1024)",
                         command->parts.devices);
    }
    return 0;
}

static int path_check(const char *path, const char *key, struct error *error)
{
    if (path != NULL && (path[0] != '/' || strlen(path) >= PATH_MAX)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.%s: '%.200s' is not an absolute path of less than %d bytes", key,
                         path, PATH_MAX);
    }
    return 0;
}

static int signal_read(struct command *command, struct error *error)
{
    const char *text = command->parts.notice_signal;
    if (text == NULL || text[0] == '\0') {
        return 0;
    }
    command->notice_signal = command_signal_number(text);
    if (command->notice_signal == 0 || command->notice_signal == SIGKILL ||
        command->notice_signal == SIGSTOP) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "job.notice_signal: '%.32s' is no signal that a program can handle", text);
    }
    return 0;
}

static void empty_is_absent(char **text)
{
    if (*text != NULL && (*text)[0] == '\0') {
        free(*text);
        *text = NULL;
    }
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static int parts_read(struct command *command, struct error *error)
{
    int result = words_read(command->parts.command, "command", &command->arguments,
                            &command->argument_count, error);
    if (result == 0 && (command->argument_count == 0 || command->arguments[0][0] == '\0')) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "job.command: names no program");
    }
    if (result == 0) {
        result = words_read(command->parts.environment, "environment", &command->environment,
                            &command->environment_count, error);
    }
    result = result < 0 ? result : environment_check(command, error);
    result = result < 0 ? result : limits_read(command, error);
    result = result < 0 ? result : name_check(command, error);
    result = result < 0 ? result : devices_read(command, error);
    result =
        result < 0 ? result : path_check(command->working_directory, "working_directory", error);
    result = result < 0 ? result : path_check(command->output, "output", error);
    return result < 0 ? result : signal_read(command, error);
}

static int held_read(const json_t *specification, struct command *ret_command, struct error *error)
{
    struct command command = {.notice_s = -1, .no_freeze = true};
    int result = options_read(held_table, HELD_OPTIONS, specification, "lease", &command, error);
    if (result == 0 && (!command.held || command.name[0] == '\0')) {
        result = error_set(error, ERROR_INVALID_ARGUMENT, "lease.%s",
                           command.held ? "name: is empty" : "held: is not true");
    }
    result = result < 0 ? result : name_check(&command, error);
    result = result < 0 ? result : devices_read(&command, error);
    if (result < 0) {
        command_fini(&command);
        return result;
    }
    *ret_command = command;
    return 0;
}

int command_read(const json_t *specification, struct command *ret_command, struct error *error)
{
    if (json_object_get(specification, "held") != NULL) {
        return held_read(specification, ret_command, error);
    }
    struct command command = {.notice_s = -1};
    int result = options_read(table, OPTIONS, specification, "job", &command, error);
    empty_is_absent(&command.output);
    if (result == 0) {
        result = parts_read(&command, error);
    }
    if (result < 0) {
        command_fini(&command);
        return result;
    }
    *ret_command = command;
    return 0;
}

void command_fini(struct command *command)
{
    words_free(command->arguments);
    words_free(command->environment);
    options_free(table, OPTIONS, command);
    *command = (struct command){0};
}
