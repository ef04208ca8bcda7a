/* script_text.c: scripts as text and back: scenarios/README.md has the grammar. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/script.h"
#include "tests/sim/words.h"

#define LINE_MAX_LENGTH 2048
#define NESTED_MAX 4

struct reader {
    struct script *script;
    uint32_t number;
    uint64_t time_ns; /* of the line before */
    struct {
        size_t first; /* line of the script */
        uint64_t times, begin_ns;
    } repeats[NESTED_MAX];
    size_t nested;
    char *error;
    size_t size;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct reader *reader, const char *format,
                                                        ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(reader->error, reader->size, "line %" PRIu32 ": %s", reader->number, text);
    return false;
}

/* ---- references ---- */

/* Kinds of action that are answered. */
static const struct {
    const char *name;
    enum core_action_kind kind;
} answered[] = {
    {"place", CORE_ACTION_PLACE},   {"remove", CORE_ACTION_REMOVE}, {"grant", CORE_ACTION_GRANT},
    {"revoke", CORE_ACTION_REVOKE}, {"resume", CORE_ACTION_RESUME}, {"kill", CORE_ACTION_KILL},
    {"verify", CORE_ACTION_VERIFY},
};
#define ANSWERED (sizeof answered / sizeof *answered)

/* "grant" or, two places before the newest, "grant-2". */
static bool read_age(const char *text, uint32_t *ret_age)
{
    char *end;
    *ret_age = *text == '-' ? (uint32_t)strtoul(text + 1, &end, 10) : 0;
    return *text == 0 || (*text == '-' && end != text + 1 && *end == 0);
}

static bool read_action(const char *text, struct script_line *line)
{
    char *end;
    for (size_t i = 0; i < ANSWERED; i++) {
        size_t length = strlen(answered[i].name);
        if (strncmp(text, answered[i].name, length) == 0) {
            line->action.how = REFERENCE_ACTION;
            line->action.kind = answered[i].kind;
            return read_age(text + length, &line->action.age);
        }
    }
    line->action.how = REFERENCE_NUMBER;
    line->event.answer.action = strtoull(text, &end, 10);
    return end != text && *end == 0;
}

static bool read_generation(const char *text, struct script_line *line,
                            const struct record_field *field)
{
    uint64_t value;
    char *end;
    if (strcmp(text, "run") == 0) {
        line->generation = (struct reference){.how = REFERENCE_RUN};
        return true;
    }
    if (strncmp(text, "device", 6) == 0) {
        line->generation.how = REFERENCE_GRANT;
        line->generation.device = strtoull(text + 6, &end, 10);
        return end != text + 6 && read_age(end, &line->generation.age);
    }
    line->generation = (struct reference){.how = REFERENCE_NUMBER};
    bool right = word_value(field, text, &value);
    record_field_write(&line->event, field, 0, right ? value : 0);
    return right;
}

static bool same_reference(struct reference a, struct reference b)
{
    return a.how == b.how && a.kind == b.kind && a.device == b.device && a.age == b.age;
}

static void print_reference(FILE *file, const char *name, struct reference reference)
{
    if (reference.how == REFERENCE_NUMBER) {
        fprintf(file, " %s=0", name);
        return;
    }
    if (reference.how == REFERENCE_RUN) {
        fprintf(file, " %s=run", name);
        return;
    }
    fprintf(file, " %s=", name);
    for (size_t i = 0; i < ANSWERED && reference.how == REFERENCE_ACTION; i++) {
        if (answered[i].kind == reference.kind) {
            fprintf(file, "%s", answered[i].name);
        }
    }
    if (reference.how == REFERENCE_GRANT) {
        fprintf(file, "device%" PRIu64, reference.device);
    }
    if (reference.age > 0) {
        fprintf(file, "-%" PRIu32, reference.age);
    }
}

/* ---- reading ---- */

/* "name=value": splits it. */
static bool split(char *word, char **ret_value)
{
    *ret_value = strchr(word, '=');
    if (*ret_value == NULL) {
        return false;
    }
    *(*ret_value)++ = 0;
    return true;
}

static const struct record_field *find_field(const struct record_fields *fields, const char *name)
{
    char text[WORD_MAX];
    for (size_t i = 0; i < fields->count; i++) {
        word_of_field(fields, &fields->fields[i], text);
        if (strcmp(text, name) == 0) {
            return &fields->fields[i];
        }
    }
    return NULL;
}

/* Elements of an array are separated by commas; those left out are 0. */
static bool read_value(const struct record_field *field, char *text, void *object)
{
    char *save = NULL;
    size_t index = 0;
    for (char *word = strtok_r(text, ",", &save); word != NULL;
         word = strtok_r(NULL, ",", &save), index++) {
        uint64_t value;
        if (index >= field->count || !word_value(field, word, &value)) {
            return false;
        }
        bool time = field->meaning == RECORD_TIME && value != 0;
        record_field_write(object, field, index, time ? value + SCRIPT_BEGIN_NS : value);
    }
    return index > 0;
}

static bool read_event_word(struct reader *reader, struct script_line *line, char *word)
{
    char *value;
    const struct record_fields *fields = record_event_fields(line->event.kind);
    if (!split(word, &value)) {
        return wrong(reader, "'%s' is not name=value", word);
    }
    const struct record_field *field = find_field(fields, word);
    if (field == NULL) {
        return wrong(reader, "'%s' has no '%s'", fields->name, word);
    }
    bool right = field->meaning == RECORD_ACTION       ? read_action(value, line)
                 : field->meaning == RECORD_GENERATION ? read_generation(value, line, field)
                                                       : read_value(field, value, &line->event);
    return right || wrong(reader, "'%s' is no value of '%s'", value, word);
}

static bool read_event(struct reader *reader, struct script_line *line, const char *name,
                       char **save)
{
    int kind = 0;
    while (kind < CORE_EVENT_COUNT &&
           strcmp(record_event_fields((enum core_event_kind)kind)->name, name) != 0) {
        kind++;
    }
    if (kind == CORE_EVENT_COUNT) {
        return wrong(reader, "'%s' is no event and no other word of a scenario", name);
    }
    bool action = false, generation = false;
    line->event.kind = (enum core_event_kind)kind;
    script_event_default(&line->event);
    for (char *word = strtok_r(NULL, " \t", save); word != NULL;
         word = strtok_r(NULL, " \t", save)) {
        action = action || strncmp(word, "action=", 7) == 0;
        generation = generation || strncmp(word, "generation=", 11) == 0;
        if (!read_event_word(reader, line, word)) {
            return false;
        }
    }
    line->action = action ? line->action : script_action_default(&line->event);
    line->generation = generation ? line->generation : script_generation_default(&line->event);
    return true;
}

static bool read_config(struct reader *reader, char **save)
{
    char *value;
    if (reader->script->count > 0) {
        return wrong(reader, "the configuration comes before everything else");
    }
    for (char *word = strtok_r(NULL, " \t", save); word != NULL;
         word = strtok_r(NULL, " \t", save)) {
        const struct record_field *field =
            split(word, &value) ? find_field(record_config_fields(), word) : NULL;
        if (field == NULL || !read_value(field, value, &reader->script->config)) {
            return wrong(reader, "'%s' is no setting, or has another sort of value", word);
        }
    }
    return true;
}

static bool read_repeat(struct reader *reader, char **save)
{
    char *word = strtok_r(NULL, " \t", save);
    uint64_t times = word != NULL ? strtoull(word, NULL, 10) : 0;
    if (times == 0 || reader->nested == NESTED_MAX) {
        return wrong(reader, "repeat how often? (at most %d within each other)", NESTED_MAX);
    }
    reader->repeats[reader->nested].first = reader->script->count;
    reader->repeats[reader->nested].times = times;
    reader->repeats[reader->nested++].begin_ns = reader->time_ns;
    return true;
}

/* The lines since the repeat once more, as often as it says, each time later. */
static bool read_end(struct reader *reader)
{
    if (reader->nested == 0) {
        return wrong(reader, "nothing is repeated here");
    }
    size_t first = reader->repeats[--reader->nested].first, last = reader->script->count;
    uint64_t span_ns = reader->time_ns - reader->repeats[reader->nested].begin_ns;
    for (uint64_t time = 1; time < reader->repeats[reader->nested].times; time++) {
        for (size_t i = first; i < last; i++) {
            struct script_line *line = script_add(reader->script);
            *line = reader->script->lines[i];
            line->time_ns += time * span_ns;
            line->text = line->text != NULL ? strdup(line->text) : NULL;
        }
        reader->time_ns += span_ns;
    }
    return true;
}

static bool read_statement(struct reader *reader, char *word, char **save)
{
    static const struct {
        const char *name;
        enum script_what what;
    } statements[] = {
        {"shell", SCRIPT_SHELL},     {"expect", SCRIPT_EXPECT}, {"never", SCRIPT_EXPECT_NOT},
        {"state", SCRIPT_STATE},     {"why", SCRIPT_WHY},       {"crash", SCRIPT_CRASH},
        {"settled", SCRIPT_SETTLED},
    };
    struct script_line *line = script_add(reader->script);
    line->number = reader->number;
    line->time_ns = reader->time_ns;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (strcmp(word, statements[i].name) == 0) {
            line->what = statements[i].what;
            line->text = strdup(*save != NULL ? *save : "");
            return true;
        }
    }
    line->what = SCRIPT_EVENT;
    return read_event(reader, line, word, save);
}

static bool read_line(struct reader *reader, char *text)
{
    uint64_t span_ns;
    char *save = NULL, *word = strtok_r(text, " \t", &save);
    if (word == NULL || *word == '#') {
        return true;
    }
    if (*word == '+') {
        if (!word_span(word + 1, &span_ns)) {
            return wrong(reader, "'%s' is no span of time", word);
        }
        reader->time_ns += span_ns;
        word = strtok_r(NULL, " \t", &save);
        if (word == NULL) {
            struct script_line *line = script_add(reader->script);
            line->what = SCRIPT_WAIT;
            line->number = reader->number;
            line->time_ns = reader->time_ns;
            return true;
        }
    }
    if (strcmp(word, "config") == 0) {
        return read_config(reader, &save);
    }
    if (strcmp(word, "repeat") == 0) {
        return read_repeat(reader, &save);
    }
    return strcmp(word, "end") == 0 ? read_end(reader) : read_statement(reader, word, &save);
}

bool script_read(struct script *script, FILE *file, char *ret_error, size_t size)
{
    char text[LINE_MAX_LENGTH];
    struct reader reader = {.script = script, .error = ret_error, .size = size};
    core_config_init(&script->config);
    while (fgets(text, sizeof text, file) != NULL) {
        reader.number++;
        text[strcspn(text, "\n")] = 0;
        if (!read_line(&reader, text)) {
            return false;
        }
    }
    return reader.nested == 0 || wrong(&reader, "a repeat without its end");
}

/* ---- writing ---- */

static void print_fields(FILE *file, const struct record_fields *fields, const void *object,
                         const void *usual)
{
    char name[WORD_MAX], value[WORD_MAX];
    for (size_t i = 0; i < fields->count; i++) {
        const struct record_field *field = &fields->fields[i];
        size_t last = 0;
        bool differs = false;
        for (size_t element = 0; element < field->count; element++) {
            uint64_t here = record_field_read(object, field, element);
            differs = differs || here != record_field_read(usual, field, element);
            last = here != 0 ? element : last;
        }
        word_of_field(fields, field, name);
        for (size_t element = 0; differs && element <= last; element++) {
            uint64_t here = record_field_read(object, field, element);
            bool time = field->meaning == RECORD_TIME && here >= SCRIPT_BEGIN_NS;
            word_of_value(field, time ? here - SCRIPT_BEGIN_NS : here, value);
            fprintf(file, element == 0 ? " %s=%s" : ",%.0s%s", name, value);
        }
    }
}

/* A number that is not 0 is printed with the fields. */
static void print_unusual(FILE *file, const struct script_line *line, enum record_meaning meaning,
                          struct reference reference, struct reference usual)
{
    const struct record_fields *fields = record_event_fields(line->event.kind);
    uint64_t number = 0;
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->fields[i].meaning == meaning) {
            number = record_field_read(&line->event, &fields->fields[i], 0);
        }
    }
    if (number == 0 && !same_reference(reference, usual)) {
        print_reference(file, meaning == RECORD_ACTION ? "action" : "generation", reference);
    }
}

static void print_event(FILE *file, const struct script_line *line)
{
    const struct record_fields *fields = record_event_fields(line->event.kind);
    struct core_event usual = {.kind = line->event.kind};
    script_event_default(&usual);
    fprintf(file, "%s", fields->name);
    print_fields(file, fields, &line->event, &usual);
    print_unusual(file, line, RECORD_ACTION, line->action, script_action_default(&line->event));
    print_unusual(file, line, RECORD_GENERATION, line->generation,
                  script_generation_default(&line->event));
    fprintf(file, "\n");
}

void script_write_config(const struct core_config *config, FILE *file)
{
    struct core_config usual;
    core_config_init(&usual);
    fprintf(file, "config");
    print_fields(file, record_config_fields(), config, &usual);
    fprintf(file, "\n");
}

void script_write_line(const struct script_line *line, uint64_t before_ns, FILE *file)
{
    char span[WORD_MAX];
    word_of_span(line->time_ns - before_ns, span);
    fprintf(file, "+%-12s ", span);
    if (line->what == SCRIPT_EVENT) {
        print_event(file, line);
    } else {
        fprintf(file, "%s\n",
                line->what == SCRIPT_CRASH     ? "crash"
                : line->what == SCRIPT_SETTLED ? "settled"
                                               : "");
    }
}

void script_write(const struct script *script, FILE *file)
{
    uint64_t time_ns = 0;
    script_write_config(&script->config, file);
    for (size_t i = 0; i < script->count; i++) {
        script_write_line(&script->lines[i], time_ns, file);
        time_ns = script->lines[i].time_ns;
    }
}
