/* player.h: plays a script through a core, with all checks on, and tells what is expected from what
 * comes. */
#ifndef TIDEPOOL_TESTS_SIM_PLAYER_H
#define TIDEPOOL_TESTS_SIM_PLAYER_H

#include "tests/sim/checks.h"
#include "tests/sim/script.h"

struct player {
    const struct script *script;
    const char *name; /* of the file: begins the text of a failure */
    struct rig *rig;
    struct checks *checks;
    struct core_config config; /* of the present life */
    const struct script_line *line;
    FILE *show;
    struct core_action *window; /* what came since the last event or wait */
    size_t window_count, window_capacity;
};

/* Ends the test when a check or an expectation fails, with file and line. `show` (may be NULL) gets
 * what the core does. */
void player_run(const struct script *script, const char *name, FILE *show);

/* ---- expect.c ---- */
void expect_action(const struct player *player, bool never);
void expect_state(const struct player *player);
void expect_why(const struct player *player);
/* One line for an action as scenarios write it; nothing for those that nothing can be said of. */
void expect_print(const struct core_action *action, FILE *file);

#endif
