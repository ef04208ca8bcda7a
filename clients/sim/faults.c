/* faults.c: what goes wrong, and when: all of it drawn from the seed by what it happens to, so that
 * every policy meets the same losses. */
#include <math.h>

#include "clients/sim/state.h"

/* Streams of draws; devices have one each from STREAM_DEVICES on. */
enum {
    STREAM_SLOW = 1,
    STREAM_CRASH,
    STREAM_LOSS,
    STREAM_LATE,
    STREAM_LATE_BY,
    STREAM_LOST,
    STREAM_WISH,
    STREAM_WISHED
};

static uint64_t mix(uint64_t z)
{
    z += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t draw(const struct engine *engine, uint64_t stream, uint64_t object, uint64_t number)
{
    return mix(mix(mix(engine->setup->seed + (stream << 56)) + object) + number);
}

/* Over 0, up to 1. */
static double draw_unit(const struct engine *engine, uint64_t stream, uint64_t object,
                        uint64_t number)
{
    return (double)((draw(engine, stream, object, number) >> 11) + 1) / 9007199254740992.0;
}

/* Exponential: as likely at any time. */
static uint64_t draw_gap_ns(const struct engine *engine, uint64_t stream, uint64_t object,
                            uint64_t number, uint64_t mean_ns)
{
    double gap = -log(draw_unit(engine, stream, object, number)) * (double)mean_ns;
    return gap < 1e18 ? (uint64_t)gap + 1 : ENGINE_NEVER_NS / 2;
}

uint64_t engine_fault_delay_ns(const struct engine *engine, uint64_t object, uint64_t number)
{
    const struct sim_faults *faults = &engine->setup->faults;
    if (draw(engine, STREAM_LATE, object, number) % 1000 >= faults->late_permille) {
        return 0;
    }
    return draw(engine, STREAM_LATE_BY, object, number) % (faults->late_ns + 1);
}

bool engine_fault_lost(const struct engine *engine, uint64_t object, uint64_t number)
{
    return draw(engine, STREAM_LOST, object, number) % 1000 < engine->setup->faults.lost_permille;
}

void faults_loss_next(struct engine *engine, uint32_t number)
{
    uint64_t mean_ns = engine->setup->faults.device_mtbf_ns;
    if (mean_ns != 0) {
        uint32_t loss = engine->devices[number].losses++;
        uint64_t gap_ns = draw_gap_ns(engine, STREAM_LOSS, number, loss, mean_ns);
        engine_add(engine, engine->now_ns + gap_ns, MOMENT_LOSS, number, loss);
    }
}

void faults_crash_next(struct engine *engine)
{
    uint64_t mean_ns = engine->setup->faults.crash_every_ns;
    if (mean_ns != 0) {
        uint64_t gap_ns = draw_gap_ns(engine, STREAM_CRASH, 0, engine->crashes, mean_ns);
        engine_add(engine, engine->now_ns + gap_ns, MOMENT_CRASH, 0, 0);
    }
}

void faults_wish_next(struct engine *engine)
{
    uint64_t mean_ns = engine->setup->faults.reclaim_every_ns;
    if (mean_ns != 0) {
        uint64_t wish = engine->wishes++;
        uint64_t gap_ns = draw_gap_ns(engine, STREAM_WISH, 0, wish, mean_ns);
        uint64_t device = draw(engine, STREAM_WISHED, 0, wish) % engine->setup->device_count;
        engine_add(engine, engine->now_ns + gap_ns, MOMENT_WANTED, (uint32_t)device, 0);
    }
}

void faults_begin(struct engine *engine)
{
    const struct sim_faults *faults = &engine->setup->faults;
    for (uint32_t i = 0; i < engine->setup->device_count; i++) {
        bool slow = draw(engine, STREAM_SLOW, i, 0) % 1000 < faults->slow_permille;
        engine->devices[i].slow_milli = slow ? faults->slow_factor_milli : 1000;
        faults_loss_next(engine, i);
    }
    faults_crash_next(engine);
    faults_wish_next(engine);
}
