/* shrink.h: a failing script becomes a short one that fails in the same way (delta debugging: ever
 * smaller runs of lines are taken out as long as it still fails). */
#ifndef TIDEPOOL_TESTS_SIM_SHRINK_H
#define TIDEPOOL_TESTS_SIM_SHRINK_H

#include "tests/sim/script.h"
#include "tests/sim/trial.h"

/* False: the script does not fail by itself. `ret_end` tells how the shrunk one fails. */
bool shrink(struct script *script, struct trial_end *ret_end);

#endif
