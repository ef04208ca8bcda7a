/* world.h: a random world around a core: owners, holders, load, failing devices, a shell whose
 * answers come late, twice, wrong or never, and crashes after which only what was committed is
 * known. Everything follows from the seed. */
#ifndef TIDEPOOL_TESTS_SIM_WORLD_H
#define TIDEPOOL_TESTS_SIM_WORLD_H

#include <stdio.h>

#include "tests/unit/core/rig.h"

struct world;

struct world *world_create(uint64_t seed, bool crashes);
/* Every event is written to `record` before its step, as a scenario (NULL: to nowhere). */
struct world *world_create_recorded(uint64_t seed, bool crashes, FILE *record);
void world_destroy(struct world *world);
void world_play(struct world *world, uint64_t events);
/* No more random events and no more faults: what is under way must come to its end. */
void world_settle(struct world *world);
struct rig *world_rig(struct world *world);
uint64_t world_crashes(const struct world *world);
uint64_t world_hash(const struct world *world); /* over all lives of the core */

#endif
