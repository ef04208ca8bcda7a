/* acts.h: what the jobs of these tests do: the test program itself, started again with an act's
 * name. Each process of an act ends by itself after a minute. */
#ifndef TIDEPOOL_TESTS_SHIM_ACTS_H
#define TIDEPOOL_TESTS_SHIM_ACTS_H

/* For main: runs the act when the arguments name one, and does not come back then. */
void act_if_asked(int count, char **arguments);

#endif
