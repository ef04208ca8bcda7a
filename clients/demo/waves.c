#include "clients/demo/waves.h"

#include <math.h>
#include <stdlib.h>

#include "server/base/clock.h"

#define PERIOD_NS (8 * NS_PER_S)
#define HIGH_FROM_NS (3 * NS_PER_S)
#define HIGH_TO_NS (7 * NS_PER_S)
#define BURST_NS (3 * NS_PER_S)

void waves_init(struct waves *waves, double capacity, uint64_t length_ns)
{
    waves->low = 0.15 * capacity;
    waves->high = 1.15 * capacity;
    waves->burst = 1.4 * capacity;
    waves->length_ns = length_ns;
    waves->random = 1;
    waves->offset_ns = 0;
    atomic_init(&waves->burst_until_ns, 0);
    waves->arrivals = (struct arrivals){.whole = true};
}

void waves_fini(struct waves *waves)
{
    free(waves->arrivals.offsets_ns);
    waves->arrivals = (struct arrivals){0};
}

void waves_burst(struct waves *waves, uint64_t elapsed_ns)
{
    atomic_store(&waves->burst_until_ns, elapsed_ns + BURST_NS);
}

double waves_rate(struct waves *waves, uint64_t elapsed_ns)
{
    uint64_t phase = elapsed_ns % PERIOD_NS;
    if (elapsed_ns < atomic_load(&waves->burst_until_ns)) {
        return waves->burst;
    }
    return phase >= HIGH_FROM_NS && phase < HIGH_TO_NS ? waves->high : waves->low;
}

const char *waves_name(struct waves *waves, uint64_t elapsed_ns)
{
    double rate = waves_rate(waves, elapsed_ns);
    return rate >= waves->burst ? "burst" : rate >= waves->high ? "high tide" : "low tide";
}

static double unit_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)((*state >> 11) + 1) * 0x1p-53;
}

static void arrival_keep(struct arrivals *arrivals, uint64_t offset_ns)
{
    if (arrivals->count == arrivals->capacity && arrivals->whole) {
        size_t capacity = arrivals->capacity == 0 ? 4096 : arrivals->capacity * 2;
        uint64_t *offsets_ns = capacity > ARRIVALS_MAX
                                   ? NULL
                                   : realloc(arrivals->offsets_ns, capacity * sizeof(*offsets_ns));
        arrivals->whole = offsets_ns != NULL;
        arrivals->offsets_ns = offsets_ns != NULL ? offsets_ns : arrivals->offsets_ns;
        arrivals->capacity = offsets_ns != NULL ? capacity : arrivals->capacity;
    }
    if (arrivals->whole) {
        arrivals->offsets_ns[arrivals->count++] = offset_ns;
    }
}

/* A Poisson stream whose rate changes, by thinning one of the highest rate. */
bool waves_next(void *context, uint64_t *ret_offset_ns)
{
    struct waves *waves = context;
    do {
        waves->offset_ns += (uint64_t)(-log(unit_next(&waves->random)) / waves->burst * 1e9);
        if (waves->offset_ns >= waves->length_ns) {
            return false;
        }
    } while (unit_next(&waves->random) * waves->burst > waves_rate(waves, waves->offset_ns));
    *ret_offset_ns = waves->offset_ns;
    arrival_keep(&waves->arrivals, waves->offset_ns);
    return true;
}
