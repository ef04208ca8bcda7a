/* campaign.h: many random schedules, on all cores. A seed that fails is printed, its schedule is
 * shrunk, and the short one is written as a scenario file. */
#ifndef TIDEPOOL_TESTS_SIM_CAMPAIGN_H
#define TIDEPOOL_TESTS_SIM_CAMPAIGN_H

#include "server/core/core.h"

#define CAMPAIGN_SCHEDULE 2000 /* events, before it settles */

struct campaign {
    uint64_t seed;    /* the first one */
    uint64_t events;  /* in all, at least */
    const char *path; /* folder for scenario files of failures; NULL: they are not shrunk */
};

struct campaign_total {
    uint64_t seeds, steps, crashes;
    uint64_t actions[CORE_ACTION_COUNT];
};

/* Every second seed crashes now and then. 0: all is well; else the first seed that failed. */
uint64_t campaign_run(const struct campaign *campaign, struct campaign_total *ret_total);
/* Records, shrinks and writes the schedule of one seed; prints what came of it. False: it does not
 * fail. */
bool campaign_explain(uint64_t seed, const char *path);

#endif
