/* levels.c: how few devices stand by where another one takes longer to come than the window of
 * demand. Rises cannot be covered one by one there, and each mistake lasts. So a small family of
 * rules is played against the load as it comes: each keeps some devices whatever comes, asks for
 * one as soon as the average or the queue needs it, and gives one back when it was not needed for a
 * hold time. The rule that lent most, and left no more late than the budget allows, decides.
 *
 * The load is a fluid here, so rules look a little better or worse than they are: the model may use
 * more than the budget, what is really late while devices are lent may not. Before a rule has
 * earned it, it is assumed to have been wrong once: for want of history a device is kept, but what
 * is assumed takes none from a lease. */
#include <string.h>

#include "server/core/state.h"

#define TICK_NS SECOND_NS
#define CATCH_UP 1024 /* ticks of a silence that are lived through one by one */
#define FORGET_TICKS                                                                               \
    UINT32_C(131072)        /* then what was seen counts half; half of it fits the ring            \
                             */
#define MODEL_PERMILLE 1500 /* of the budget */
#define REALLY_PERMILLE 750
#ifndef CAP
#define CAP 100
#define TP 100
#endif
#define MILLION UINT64_C(1000000)

static const uint32_t holds[LEVELS_HOLDS] = {1, 3, 10}; /* in lead times */

static uint32_t minimum_of(const struct levels *levels, uint32_t number)
{
    return (levels->devices * (number / LEVELS_HOLDS) + LEVELS_PARTS - 1) / LEVELS_PARTS;
}

static uint64_t hold_of(const struct levels *levels, uint32_t number)
{
    return core_multiply_u64(levels->lead_ns, holds[number % LEVELS_HOLDS]);
}

static uint32_t lead_ticks(const struct levels *levels)
{
    return (uint32_t)((levels->lead_ns + levels->tick_ns - 1) / levels->tick_ns);
}

static void begin(struct levels *levels, const struct core_load *load)
{
    uint64_t least_ns = load->lead_ns / (LEVELS_RING - 1) + 1;
    memset(levels, 0, sizeof *levels);
    levels->lead_ns = load->lead_ns;
    levels->tick_ns = least_ns > TICK_NS ? least_ns : TICK_NS;
    levels->next_ns = load->now_ns;
    levels->devices = load->devices;
    levels->keeps = LEVELS_RULES - 1;
    for (uint32_t i = 0; i < LEVELS_RULES; i++) {
        levels->rules[i].serving = levels->rules[i].target = load->devices;
    }
}

/* Shares of them stay what they are. */
static void resize(struct levels *levels, uint32_t devices)
{
    levels->devices = devices;
    for (uint32_t i = 0; i < LEVELS_RULES; i++) {
        struct level_rule *rule = &levels->rules[i];
        rule->target = rule->target < devices ? rule->target : devices;
        if (rule->serving + rule->on_way > devices) {
            memset(rule->coming, 0, sizeof rule->coming);
            rule->on_way = 0;
            rule->serving = rule->target;
        }
    }
}

/* What waits is to be started within two thirds of what a device takes to come. */
static uint32_t needed_by(const struct levels *levels, uint32_t number, uint64_t base_milli,
                          uint64_t queue_us)
{
    uint64_t patience_us = levels->lead_ns / 1500 + 1;
    uint64_t milli = core_add_u64(base_milli, core_scale_u64(queue_us, 1000, patience_us));
    uint64_t devices = milli / 1000 + (milli % 1000 != 0), least = minimum_of(levels, number);
    devices = devices > least ? devices : least;
    return devices < levels->devices ? (uint32_t)devices : levels->devices;
}

/* ---- playing a rule ---- */

/* Fewer only when fewer were enough for the whole hold time. */
static void target_follow(const struct levels *levels, struct level_rule *rule, uint32_t need,
                          uint64_t hold_ns)
{
    rule->peak = need > rule->peak ? need : rule->peak;
    rule->low_ticks++;
    if (need >= rule->target || rule->low_ticks * levels->tick_ns >= hold_ns) {
        rule->target = rule->peak;
        rule->low_ticks = 0;
        rule->peak = 0;
    }
}

static void devices_follow(const struct levels *levels, struct level_rule *rule)
{
    uint32_t now = levels->ticks % LEVELS_RING;
    rule->serving += rule->coming[now];
    rule->on_way -= rule->coming[now];
    rule->coming[now] = 0;
    uint32_t have = rule->serving + rule->on_way;
    if (rule->target > have) {
        rule->coming[(now + lead_ticks(levels)) % LEVELS_RING] += (uint16_t)(rule->target - have);
        rule->on_way += rule->target - have;
    } else if (rule->on_way == 0) {
        rule->serving = rule->target;
    }
}

/* Late is what comes while the queue is longer than the SLO. */
static void queue_follow(struct level_rule *rule, const struct core_load *load, uint64_t work_us,
                         uint64_t tick_us)
{
    uint64_t can_us = rule->serving * tick_us;
    rule->late_us += rule->queue_us > rule->serving * (load->slo_ns / 1000) ? work_us : 0;
    rule->queue_us += work_us;
    rule->queue_us -= rule->queue_us < can_us ? rule->queue_us : can_us;
}

static uint64_t lent_us(const struct levels *levels, const struct level_rule *rule)
{
    return (levels->devices - rule->serving - rule->on_way) * (levels->tick_ns / 1000);
}

static void tick(struct levels *levels, const struct core_load *load)
{
    uint64_t tick_us = levels->tick_ns / 1000;
    uint64_t work_us = core_scale_u64(load->demand_milli, tick_us, 1000);
    for (uint32_t i = 0; i < LEVELS_RULES; i++) {
        struct level_rule *rule = &levels->rules[i];
        uint32_t need = needed_by(levels, i, load->base_milli, rule->queue_us);
        target_follow(levels, rule, need, hold_of(levels, i));
        devices_follow(levels, rule);
        queue_follow(rule, load, work_us, tick_us);
        rule->lent_us += lent_us(levels, rule);
    }
    levels->work_us += work_us;
    levels->ticks++;
    levels->next_ns += levels->tick_ns;
}

/* The rest of a long silence: all goes on as it is by now. */
static void skip(struct levels *levels, uint64_t now_ns)
{
    uint64_t ticks = (now_ns - levels->next_ns) / levels->tick_ns + 1;
    for (uint32_t i = 0; i < LEVELS_RULES; i++) {
        struct level_rule *rule = &levels->rules[i];
        rule->lent_us += core_multiply_u64(lent_us(levels, rule), ticks);
    }
    levels->next_ns += ticks * levels->tick_ns;
}

static void forget(struct levels *levels)
{
    for (uint32_t i = 0; i < LEVELS_RULES; i++) {
        levels->rules[i].late_us /= 2;
        levels->rules[i].lent_us /= 2;
    }
    levels->work_us /= 2;
    levels->really_us /= 2;
    levels->ticks -= FORGET_TICKS / 2;
}

/* ---- choosing one ---- */

/* `assumed`: as if it had been wrong once. */
static bool is_allowed(const struct levels *levels, const struct core_load *load, uint32_t number,
                       bool assumed)
{
    const struct level_rule *rule = &levels->rules[number];
    uint64_t all_late_us = levels->rules[LEVELS_RULES - 1].late_us; /* with all devices */
    uint64_t lent = assumed ? levels->devices - minimum_of(levels, number) : 0;
    uint64_t late_us = core_add_u64(rule->late_us, core_multiply_u64(lent, levels->lead_ns / 2000));
    uint64_t budget_us = core_scale_u64(levels->work_us, load->budget_ppm, MILLION);
    uint64_t most_us = core_add_u64(all_late_us, core_scale_u64(budget_us, MODEL_PERMILLE, 1000));
    bool paid = levels->really_us <= core_scale_u64(budget_us, REALLY_PERMILLE, 1000);
    return load->budget_ppm >= MILLION || (paid && late_us <= most_us);
}

/* Where two lent as much, the one that keeps less. */
static uint32_t best_rule(const struct levels *levels, const struct core_load *load, bool assumed)
{
    uint32_t best = LEVELS_RULES - 1; /* all devices serve */
    for (uint32_t i = LEVELS_RULES - 1; i-- > 0;) {
        if (levels->rules[i].lent_us >= levels->rules[best].lent_us &&
            is_allowed(levels, load, i, assumed)) {
            best = i;
        }
    }
    return best;
}

void core_levels_follow(struct levels *levels, const struct core_load *load)
{
    if (load->lead_ns > levels->lead_ns + levels->lead_ns / 2 ||
        load->lead_ns + load->lead_ns / 2 < levels->lead_ns) {
        begin(levels, load);
    } else if (load->devices != levels->devices) {
        resize(levels, load->devices);
    }
    for (int i = 0; levels->next_ns <= load->now_ns && i < CATCH_UP; i++) {
        tick(levels, load);
    }
    if (levels->next_ns <= load->now_ns) {
        skip(levels, load->now_ns);
    }
    if (levels->ticks >= FORGET_TICKS) {
        forget(levels);
    }
    levels->keeps = best_rule(levels, load, true);
    levels->takes = best_rule(levels, load, false);
}

void core_levels_judge(struct levels *levels, uint64_t late_us)
{
    levels->really_us = core_add_u64(levels->really_us, late_us);
}

uint32_t core_levels_keeps(const struct levels *levels, uint64_t base_milli, uint64_t queue_us)
{
    return needed_by(levels, levels->keeps, base_milli, queue_us);
}

uint32_t core_levels_takes(const struct levels *levels, uint64_t base_milli, uint64_t queue_us)
{
    return needed_by(levels, levels->takes, base_milli, queue_us);
}

uint64_t core_levels_hold_ns(const struct levels *levels)
{
    return hold_of(levels, levels->keeps);
}
