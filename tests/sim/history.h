/* history.h: the actions that cores have emitted, over all lives of the server: what an answer
 * answers, and how to say so in words that survive when other events go ("the last grant of device
 * 3") instead of by a number. Ids grow, also over a crash, so that they are found by bisection. */
#ifndef TIDEPOOL_TESTS_SIM_HISTORY_H
#define TIDEPOOL_TESTS_SIM_HISTORY_H

#include "server/core/core.h"

struct history_action {
    uint64_t id;
    enum core_action_kind kind;
    uint64_t device, endpoint, lease;
    uint64_t generation; /* of a GRANT */
    bool answered;       /* an event with its id was sent */
};

struct history {
    struct history_action *actions;
    size_t count, capacity;
    size_t life; /* index of the first action of the present life */
};

void history_fini(struct history *history);
void history_crash(struct history *history);
/* Kinds that are only told are left out. */
void history_add(struct history *history, const struct core_action *action);
struct history_action *history_find(const struct history *history, uint64_t id); /* or NULL */
/* The GRANT that gave out this generation, or NULL. */
struct history_action *history_grant(const struct history *history, uint64_t generation);
/* Of actions of its kind on its device (and endpoint), how many are newer. */
uint32_t history_age(const struct history *history, const struct history_action *action);
/* The one that is `age` places before the newest, or NULL. Endpoint 0: any. */
struct history_action *history_at(const struct history *history, enum core_action_kind kind,
                                  uint64_t device, uint64_t endpoint, uint32_t age);

#endif
