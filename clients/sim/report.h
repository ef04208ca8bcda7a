/* report.h: what a simulation came to as one HTML page that needs nothing else: no network, no
 * other file. Tables and plots: what every policy reached; harvest against late work, with
 * tidepool's late budget swept and the other policies' parameters on a grid; harvest against
 * hand-overs, with the hold time swept; and the course of every run: devices, load, waiting,
 * training, accounts.
 * Errors:  0 or a negative enum error_code.
 * Thread:  one. */
#ifndef TIDEPOOL_CLIENTS_SIM_REPORT_H
#define TIDEPOOL_CLIENTS_SIM_REPORT_H

#include "clients/sim/sim.h"

#define REPORT_SWEEP_REQUESTS_MAX 1000000u /* of longer runs no parameter is swept */

/* After sim_play: plays every policy once more, watched, and the sweeps. */
int sim_report_write(const struct sim *sim, const char *path, struct error *error);

#endif
