/* script.h: a list of events and what is expected of them, as it is written in a scenario file
 * (scenarios/README.md has the grammar). Random schedules are recorded as scripts too, so that a
 * failure can be shrunk and kept.
 * An answer names what it answers ("the last grant of device 3"), so that it still fits when other
 * lines are taken out. */
#ifndef TIDEPOOL_TESTS_SIM_SCRIPT_H
#define TIDEPOOL_TESTS_SIM_SCRIPT_H

#include <stdio.h>

#include "tests/sim/history.h"

#define SCRIPT_BEGIN_NS UINT64_C(1000000000) /* time 0 of a script on the core's clock */

enum script_what {
    SCRIPT_EVENT,
    SCRIPT_CRASH, /* the core is lost; events that restore it follow */
    SCRIPT_WAIT,  /* time passes */
    SCRIPT_SHELL, /* whether and how fast the shell answers by itself */
    SCRIPT_EXPECT,
    SCRIPT_EXPECT_NOT,
    SCRIPT_STATE,
    SCRIPT_WHY,
    SCRIPT_SETTLED, /* all has calmed down: nothing hangs half-way */
};

enum reference_how {
    REFERENCE_NUMBER, /* the event has it */
    REFERENCE_ACTION, /* an action of this kind on this device (and endpoint) */
    REFERENCE_RUN,    /* the lease's present run */
    REFERENCE_GRANT,  /* a grant of this device */
};

struct reference {
    enum reference_how how;
    enum core_action_kind kind;
    uint64_t device;
    uint32_t age; /* 0: the newest */
};

struct script_line {
    enum script_what what;
    uint32_t number;  /* in its file */
    uint64_t time_ns; /* since the script began */
    struct core_event event;
    struct reference action, generation;
    char *text; /* what is expected; as written */
};

struct script {
    struct core_config config;
    struct script_line *lines;
    size_t count, capacity;
};

void script_fini(struct script *script);
struct script_line *script_add(struct script *script); /* a zeroed line, until the next one */

/* An event with the numbers in it turned into references, as far as the history knows them. */
void script_refer(struct script_line *line, const struct history *history, const struct core *core);
/* The reverse. False: what it refers to never was. */
bool script_resolve(const struct script_line *line, const struct history *history,
                    const struct core *core, struct core_event *ret_event);

/* Text. `ret_error` is filled as "line 7: …" when it returns false. */
bool script_read(struct script *script, FILE *file, char *ret_error, size_t size);
/* Events, crashes and waits; what is expected of them is not written. */
void script_write(const struct script *script, FILE *file);
void script_write_config(const struct core_config *config, FILE *file);
void script_write_line(const struct script_line *line, uint64_t before_ns, FILE *file);

/* What a line says when a field is left out. */
void script_event_default(struct core_event *event);
struct reference script_action_default(const struct core_event *event);
struct reference script_generation_default(const struct core_event *event);

#endif
