/* reserve.c: how many devices stand by for what comes before another one can be had.
 *
 * History. Every tick, an eighth of the lead time, the demand of now is held against the base (the
 * slow average) of one lead time ago: the rise is what a device ordered then came too late for.
 * Rises are counted by size and by the load they began from: a burst out of silence is another
 * thing than the noise of a full house. Nothing needs to go wrong to be learned from.
 *
 * Size. A reserve r leaves the sum of max(0, rise - r) late. The smallest reserves are taken of
 * which that sum stays within the late budget: the same share of rises goes beyond the reserve
 * from whatever load, since there a device more saves equally much.
 *
 * Feedback. What was really late is held against the budget, and makes the history count for more
 * or for less. */
#include <string.h>

#include "server/core/state.h"

#define TICK_MIN_NS (SECOND_NS / 10)
#define TICK_MAX_NS SECOND_NS
#define TICKS_A_LEAD 8
#define SOLVE_EVERY 10      /* ticks */
#define SOLVE_STEPS 12      /* of a search by halves */
#define FORGET_TICKS 200000 /* then all counts are halved */
#define CATCH_UP 64         /* ticks of a silence that are lived through one by one */
#define MARGIN_PERMILLE 750 /* of the budget is planned with */
#define EASE_MIN (-6 * 256)
#define EASE_MAX (8 * 256)
#define EASE_A_SECOND 58 /* for a second of all devices' work within the budget */
#define DEBT_BEGIN 50    /* thousandths of what lending all for one lead time may cost */
#define DEBT_MOST 500
#define PRIOR_NS (10 * SECOND_NS) /* of lead time, for each rise that is assumed at first */
#define MILLION UINT64_C(1000000)

/* Loads, in thousandths of all devices, up to which a context goes. */
static const uint32_t context_ends[RESERVE_CONTEXTS - 1] = {6, 38, 125, 313, 563};

static uint32_t context_of(uint64_t base_milli, uint32_t devices)
{
    uint32_t context = 0;
    while (context < RESERVE_CONTEXTS - 1 &&
           base_milli >= (uint64_t)context_ends[context] * devices) {
        context++;
    }
    return context;
}

static uint64_t tick_for(uint64_t lead_ns)
{
    uint64_t tick_ns = lead_ns / TICKS_A_LEAD;
    tick_ns = tick_ns < TICK_MIN_NS ? TICK_MIN_NS : tick_ns > TICK_MAX_NS ? TICK_MAX_NS : tick_ns;
    return tick_ns * RESERVE_RING > lead_ns ? tick_ns : lead_ns / (RESERVE_RING - 1) + 1;
}

/* Work in the budget that pays for so many thousandths of all devices late for one lead time. */
static int64_t debt_us(const struct core_load *load, uint64_t permille)
{
    uint64_t late_us = core_scale_u64(load->lead_ns / 1000, load->devices * permille, 1000);
    return (int64_t)(core_scale_u64(late_us, MILLION, load->budget_ppm + 1) % INT64_MAX);
}

/* Another lead time or another number of devices asks other questions: history begins anew. The
 * longer the lead, the more has to be seen before a device is lent. */
static void begin(struct reserve *reserve, const struct core_load *load, uint32_t bin_milli)
{
    bool first = reserve->bin_milli == 0;
    int32_t ease = reserve->ease;
    int64_t balance_us = reserve->balance_us;
    memset(reserve, 0, sizeof *reserve);
    reserve->ease = ease;
    reserve->balance_us = first ? -debt_us(load, DEBT_BEGIN) : balance_us;
    reserve->lead_ns = load->lead_ns;
    reserve->tick_ns = tick_for(load->lead_ns);
    reserve->next_ns = load->now_ns;
    reserve->bin_milli = bin_milli;
    reserve->assumed = (uint32_t)(load->lead_ns / PRIOR_NS);
    for (int i = 0; i < RESERVE_CONTEXTS; i++) {
        reserve->keeps_milli[i] = load->budget_ppm < MILLION ? load->devices * 1000 : 0;
        reserve->counts[i][RESERVE_BINS - 1] = reserve->assumed;
    }
}

/* What history allows in late work, microseconds of device time. */
static uint64_t allowed_us(const struct reserve *reserve, const struct core_load *load)
{
    uint64_t budget = core_scale_u64(reserve->work_us, load->budget_ppm, MILLION);
    budget = core_scale_u64(budget, MARGIN_PERMILLE, 1000);
    int32_t ease = reserve->ease - EASE_MIN; /* from 0 */
    uint64_t scaled = core_scale_u64(budget, 256 + ease % 256, 256);
    return core_scale_u64(scaled, UINT64_C(1) << (ease / 256), UINT64_C(1) << (-EASE_MIN / 256));
}

/* The smallest reserve that at most `share_ppm` of the rises go beyond, `assumed` ones left out. */
static uint32_t bin_for(const uint32_t counts[RESERVE_BINS], uint32_t assumed, uint64_t share_ppm)
{
    uint64_t all = 0, above = 0;
    for (int i = 0; i < RESERVE_BINS; i++) {
        all += counts[i];
    }
    all -= assumed;
    uint32_t bin = RESERVE_BINS;
    while (bin > 0) {
        uint64_t more = counts[bin - 1] - (bin == RESERVE_BINS ? assumed : 0);
        if ((above + more) * MILLION > share_ppm * all) {
            break;
        }
        above += more;
        bin--;
    }
    return bin;
}

static uint64_t late_ticks_milli(const struct reserve *reserve, int context, uint32_t bin)
{
    uint64_t late = 0;
    for (uint32_t i = bin + 1; i < RESERVE_BINS; i++) {
        late += (uint64_t)reserve->counts[context][i] * (i - bin) * reserve->bin_milli;
    }
    return late;
}

static uint64_t late_us(const struct reserve *reserve, uint64_t share_ppm)
{
    uint64_t late = 0;
    for (int i = 0; i < RESERVE_CONTEXTS; i++) {
        late += late_ticks_milli(reserve, i, bin_for(reserve->counts[i], 0, share_ppm));
    }
    return core_scale_u64(late, reserve->tick_ns, MILLION);
}

static uint32_t milli_of(const struct reserve *reserve, const struct core_load *load, uint32_t bin)
{
    uint64_t milli = (uint64_t)bin * reserve->bin_milli, most = (uint64_t)load->devices * 1000;
    return (uint32_t)(milli < most ? milli : most);
}

static void solve(struct reserve *reserve, const struct core_load *load)
{
    uint64_t low = 0, high = MILLION, allowed = allowed_us(reserve, load);
    low = load->budget_ppm >= MILLION ? high : low; /* all may be late: nothing is kept */
    for (int i = 0; i < SOLVE_STEPS; i++) {
        uint64_t middle = (low + high) / 2;
        if (late_us(reserve, middle) <= allowed) {
            low = middle;
        } else {
            high = middle;
        }
    }
    for (int i = 0; i < RESERVE_CONTEXTS; i++) {
        uint32_t keeps = bin_for(reserve->counts[i], 0, low);
        uint32_t takes = bin_for(reserve->counts[i], reserve->assumed, low);
        reserve->keeps_milli[i] = milli_of(reserve, load, keeps);
        reserve->takes_milli[i] = milli_of(reserve, load, takes);
    }
}

static void forget(struct reserve *reserve)
{
    for (int i = 0; i < RESERVE_CONTEXTS; i++) {
        for (int bin = 0; bin < RESERVE_BINS; bin++) {
            reserve->counts[i][bin] /= 2;
        }
    }
    reserve->assumed /= 2; /* as their counts were */
    reserve->ticks /= 2;
    reserve->work_us /= 2;
}

static void tick(struct reserve *reserve, const struct core_load *load)
{
    uint64_t lag = (reserve->lead_ns + reserve->tick_ns / 2) / reserve->tick_ns;
    lag = lag == 0 ? 1 : lag < RESERVE_RING ? lag : RESERVE_RING - 1;
    uint64_t now = reserve->ticks++;
    if (now >= lag) {
        uint64_t base = reserve->ring[(now - lag) % RESERVE_RING].base_milli;
        uint64_t rise = load->demand_milli > base ? load->demand_milli - base : 0;
        uint64_t bin = (rise + reserve->bin_milli - reserve->bin_milli / 5) / reserve->bin_milli;
        bin = bin < RESERVE_BINS ? bin : RESERVE_BINS - 1;
        reserve->counts[reserve->ring[(now - lag) % RESERVE_RING].context][bin]++;
    }
    reserve->ring[now % RESERVE_RING].base_milli =
        load->base_milli < UINT32_MAX ? (uint32_t)load->base_milli : UINT32_MAX;
    reserve->ring[now % RESERVE_RING].context = context_of(load->base_milli, load->devices);
    reserve->work_us += core_scale_u64(load->demand_milli, reserve->tick_ns, MILLION);
}

/* The rest of a long silence: nothing rises out of nothing. */
static void skip(struct reserve *reserve, uint64_t now_ns)
{
    uint64_t ticks = (now_ns - reserve->next_ns) / reserve->tick_ns;
    uint32_t *none = &reserve->counts[0][0];
    *none = ticks < UINT32_MAX - *none ? *none + (uint32_t)ticks : UINT32_MAX;
    reserve->next_ns += ticks * reserve->tick_ns;
}

void core_reserve_follow(struct reserve *reserve, const struct core_load *load)
{
    uint32_t bin_milli = load->devices > 32 ? load->devices * 1000 / 32 : 250;
    bool other = load->lead_ns > reserve->lead_ns + reserve->lead_ns / 2 ||
                 load->lead_ns + load->lead_ns / 2 < reserve->lead_ns;
    if (reserve->bin_milli != bin_milli || other) {
        begin(reserve, load, bin_milli);
    }
    for (int i = 0; reserve->next_ns <= load->now_ns && i < CATCH_UP; i++) {
        tick(reserve, load);
        reserve->next_ns += reserve->tick_ns;
        if (reserve->ticks % SOLVE_EVERY == 0) {
            solve(reserve, load);
        }
    }
    if (reserve->next_ns <= load->now_ns) {
        skip(reserve, load->now_ns);
    }
    if (reserve->ticks >= FORGET_TICKS) {
        forget(reserve);
    }
}

void core_reserve_judge(struct reserve *reserve, const struct core_load *load, uint64_t work_us,
                        uint64_t late_us_now)
{
    if (load->budget_ppm == 0 || load->devices == 0) {
        return;
    }
    uint64_t spent = core_scale_u64(late_us_now, MILLION, load->budget_ppm);
    int64_t unit = (int64_t)load->devices * (int64_t)MILLION / EASE_A_SECOND;
    reserve->balance_us +=
        (int64_t)work_us - (int64_t)(spent < INT64_MAX / 4 ? spent : INT64_MAX / 4);
    int64_t most = EASE_MAX * unit, least = -debt_us(load, DEBT_MOST);
    int64_t balance = reserve->balance_us;
    reserve->balance_us = balance > most ? most : balance < least ? least : balance;
    int64_t ease = reserve->balance_us / unit;
    reserve->ease = (int32_t)(ease < EASE_MIN ? EASE_MIN : ease);
}

uint32_t core_reserve_keeps_milli(const struct reserve *reserve, const struct core_load *load)
{
    return reserve->keeps_milli[context_of(load->base_milli, load->devices)];
}

uint32_t core_reserve_takes_milli(const struct reserve *reserve, const struct core_load *load)
{
    return reserve->takes_milli[context_of(load->base_milli, load->devices)];
}
