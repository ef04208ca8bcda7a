/* waves.h: when the demo sends: low and high tide in turns with random arrivals, and bursts that
 * can be asked for at any time.
 * Thread: waves_next on the load's thread; burst, rate and stop on any. */
#ifndef TIDEPOOL_DEMO_WAVES_H
#define TIDEPOOL_DEMO_WAVES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRIVALS_MAX 1000000u /* later ones are not kept */

/* When requests were due, from the start; the load's thread writes until it has ended. */
struct arrivals {
    uint64_t *offsets_ns; /* growing */
    size_t count, capacity;
    bool whole; /* none was left out */
};

struct waves {
    double low, high, burst; /* requests per second */
    uint64_t length_ns;      /* UINT64_MAX: until the load is stopped */
    uint64_t random, offset_ns;
    _Atomic uint64_t burst_until_ns; /* from the start */
    struct arrivals arrivals;
};

/* `capacity` is what one device serves a second: high tide needs two. */
void waves_init(struct waves *waves, double capacity, uint64_t length_ns);
void waves_fini(struct waves *waves); /* a zeroed one is fine */
void waves_burst(struct waves *waves, uint64_t elapsed_ns);
double waves_rate(struct waves *waves, uint64_t elapsed_ns);
const char *waves_name(struct waves *waves, uint64_t elapsed_ns); /* "low", "high", "burst" */
bool waves_next(void *waves, uint64_t *ret_offset_ns);            /* as load_options.next */

#endif
