/* rungs.c: the ladder of a run: which ways there are to get a device back, and what they cost. */
#include <stdlib.h>
#include <string.h>

#include "clients/sim/sim.h"
#include "server/base/options.h"

#define SECONDS_MAX 86400.0

static const struct {
    const char *name;
    enum core_rung rung;
    double take_s, give_s;
} standards[] = {
    {"yield", CORE_RUNG_YIELD, 0.002, 0},
    {"shrink", CORE_RUNG_SHRINK, 0.5, 0},
    {"freeze", CORE_RUNG_FREEZE, 0.005, 0.005},
    {"pause", CORE_RUNG_PAUSE, 1.5, 1},
    {"swap", CORE_RUNG_SWAP, 3, 3},
    {"notice", CORE_RUNG_NOTICE, 30, 10},
    {"kill", CORE_RUNG_KILL, 1, 30},
};
#define STANDARD_COUNT (sizeof standards / sizeof standards[0])

static int unknown(const char *name, struct error *error)
{
    const char *names[STANDARD_COUNT];
    for (size_t i = 0; i < STANDARD_COUNT; i++) {
        names[i] = standards[i].name;
    }
    const char *nearest = options_nearest(name, names, STANDARD_COUNT);
    return error_set(error, ERROR_INVALID_ARGUMENT,
                     "--rungs: no rung '%.32s'%s%s%s; there are yield, shrink, freeze, pause, "
                     "swap, notice and kill",
                     name, nearest != NULL ? "; do you mean '" : "", nearest != NULL ? nearest : "",
                     nearest != NULL ? "'?" : "");
}

static bool seconds_read(const char *text, char end, const char **ret_rest, double *ret_s)
{
    char *rest = NULL;
    *ret_s = strtod(text, &rest);
    *ret_rest = rest + (*rest == end && end != '\0');
    return rest != text && *rest == end && *ret_s >= 0 && *ret_s <= SECONDS_MAX;
}

/* "TAKE/GIVE" */
static int times_read(const char *name, const char *text, double *ret_take_s, double *ret_give_s,
                      struct error *error)
{
    const char *rest = text;
    if (!seconds_read(text, '/', &rest, ret_take_s) ||
        !seconds_read(rest, '\0', &rest, ret_give_s)) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "--rungs: times of '%s' are TAKE/GIVE in seconds from 0 to %g, as in "
                         "%s=1.5/1, not '%.64s'",
                         name, SECONDS_MAX, name, text);
    }
    return 0;
}

static struct sim_rung rung_of(enum core_rung rung, double take_s, double give_s)
{
    return (struct sim_rung){.rung = rung,
                             .take_ns = (uint64_t)(take_s * 1e9 + 0.5),
                             .give_ns = (uint64_t)(give_s * 1e9 + 0.5),
                             .loses = rung == CORE_RUNG_KILL};
}

static bool has(const struct sim_setup *setup, enum core_rung rung)
{
    for (size_t i = 0; i < setup->rung_count; i++) {
        if (setup->rungs[i].rung == rung) {
            return true;
        }
    }
    return false;
}

static int rung_add(char *item, double notice_s, struct sim_setup *setup, struct error *error)
{
    char *times = strchr(item, '=');
    size_t i = 0;
    if (times != NULL) {
        *times++ = '\0';
    }
    while (i < STANDARD_COUNT && strcmp(standards[i].name, item) != 0) {
        i++;
    }
    if (i == STANDARD_COUNT) {
        return unknown(item, error);
    }
    if (has(setup, standards[i].rung)) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "--rungs: '%s' stands there twice", item);
    }
    bool notice = standards[i].rung == CORE_RUNG_NOTICE;
    double take_s = notice ? notice_s : standards[i].take_s, give_s = standards[i].give_s;
    if (times != NULL && times_read(item, times, &take_s, &give_s, error) < 0) {
        return -(int)error->code;
    }
    setup->rungs[setup->rung_count++] = rung_of(standards[i].rung, take_s, give_s);
    return 0;
}

int sim_rungs_parse(const char *text, double notice_s, struct sim_setup *setup, struct error *error)
{
    char *copy = strdup(text), *rest = NULL;
    int result = copy != NULL ? 0 : error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory");
    setup->rung_count = 0;
    for (char *item = copy != NULL ? strtok_r(copy, ",", &rest) : NULL; item != NULL && result == 0;
         item = strtok_r(NULL, ",", &rest)) {
        result = rung_add(item, notice_s, setup, error);
    }
    free(copy);
    if (result == 0 && setup->rung_count == 0) {
        result = error_set(error, ERROR_INVALID_ARGUMENT,
                           "--rungs: names none; give some of yield, shrink, freeze, pause, swap, "
                           "notice, kill");
    }
    if (result == 0 && !has(setup, CORE_RUNG_KILL)) {
        setup->rungs[setup->rung_count++] = rung_of(CORE_RUNG_KILL, 1, 30);
    }
    return result;
}
