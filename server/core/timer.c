/* timer.c: when time alone changes something: one time an object, in a heap. An object tells its
 * next time at the end of every step that touched it; when the time comes it is touched. */
#include "server/core/state.h"

/* For one more object of any table, beside the one of fair.c. */
int core_timers_reserve(struct core *core)
{
    size_t objects = core->device_count + core->endpoint_count + core->lease_count;
    return core_table_reserve((void ***)&core->timers, &core->timer_capacity, objects + 2);
}

static void heap_put(struct core *core, size_t index, struct timer *timer)
{
    core->timers[index] = timer;
    timer->place = index + 1;
}

static void heap_up(struct core *core, struct timer *timer)
{
    size_t index = timer->place - 1;
    while (index > 0 && core->timers[(index - 1) / 2]->at_ns > timer->at_ns) {
        heap_put(core, index, core->timers[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    heap_put(core, index, timer);
}

static void heap_down(struct core *core, struct timer *timer)
{
    size_t index = timer->place - 1;
    for (;;) {
        size_t child = 2 * index + 1;
        if (child >= core->timer_count) {
            break;
        }
        if (child + 1 < core->timer_count &&
            core->timers[child + 1]->at_ns < core->timers[child]->at_ns) {
            child++;
        }
        if (core->timers[child]->at_ns >= timer->at_ns) {
            break;
        }
        heap_put(core, index, core->timers[child]);
        index = child;
    }
    heap_put(core, index, timer);
}

static void heap_remove(struct core *core, struct timer *timer)
{
    struct timer *last = core->timers[--core->timer_count];
    if (last != timer) {
        heap_put(core, timer->place - 1, last);
        heap_up(core, last);
        heap_down(core, last);
    }
    timer->place = 0;
}

void core_timer_set(struct core *core, struct timer *timer, uint64_t at_ns)
{
    if (timer->place != 0 && timer->at_ns == at_ns) {
        return;
    }
    timer->at_ns = at_ns;
    if (at_ns == NEVER_NS) {
        if (timer->place != 0) {
            heap_remove(core, timer);
        }
        return;
    }
    if (timer->place == 0) {
        assert(core->timer_count < core->timer_capacity);
        heap_put(core, core->timer_count++, timer);
    }
    heap_up(core, timer);
    heap_down(core, timer);
}

uint64_t core_timer_next(const struct core *core)
{
    return core->timer_count > 0 ? core->timers[0]->at_ns : NEVER_NS;
}

static void timer_fired(struct core *core, const struct timer *timer)
{
    switch (timer->of) {
    case TIMER_DEVICE:
        core_device_touch(core, core->device_slots[timer->slot]);
        break;
    case TIMER_ENDPOINT:
        core_endpoint_touch(core, core->endpoint_slots[timer->slot]);
        break;
    case TIMER_LEASE:
        core_lease_touch(core, core->lease_slots[timer->slot]);
        break;
    case TIMER_FAIR:
        core_fair_tick(core);
        break;
    }
}

void core_timers_fire(struct core *core)
{
    while (core->timer_count > 0 && core->timers[0]->at_ns <= core->now_ns) {
        struct timer *timer = core->timers[0];
        heap_remove(core, timer);
        timer_fired(core, timer);
    }
}

uint64_t core_sooner(const struct core *core, uint64_t due_ns, uint64_t base_ns, uint64_t span_ns)
{
    uint64_t at_ns = core_add_u64(base_ns, span_ns);
    return base_ns != NEVER_NS && at_ns > core->now_ns && at_ns < due_ns ? at_ns : due_ns;
}
