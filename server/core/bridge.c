/* bridge.c: for how long a gang stays stopped. It goes on as soon as serving can do without its
 * devices. Where the load stays, another device is sought that stays too: once standing still has
 * cost as much as that will, and early enough before the cap on stopped time. Where nobody else can
 * give one, the gang gives its own: it goes on, under notice, one gang after the other. */
#include "server/core/state.h"

static bool is_whole(const struct lease *lease)
{
    return lease->quiet > 0 && lease->quiet == lease->stopped && lease->held == 0;
}

/* Saving and starting again costs one device of anybody about as much as it would cost this gang.
 */
static uint64_t lasting_cost_ns(const struct core *core, const struct lease *lease)
{
    return core_rung_give_ns(core, lease, core_rung_for_all(lease), lease->first->kind);
}

/* Until a lasting device would be there. */
static uint64_t lasting_take_ns(const struct core *core, const struct lease *lease)
{
    uint64_t take_ns = core_rung_take_ns(core, lease, core_rung_for_all(lease), lease->first->kind);
    return core_add_u64(take_ns, core->config.hold_min_ns);
}

/* Before the cap: time for all stopped gangs one after the other, but no more than half of it. */
static uint64_t lead_start_ns(const struct core *core, const struct lease *lease)
{
    uint64_t end_ns = core_lease_stop_end_ns(core, lease);
    uint64_t half_ns = (end_ns - lease->stop_ns) / 2;
    uint64_t lead_ns = core_multiply_u64(lasting_take_ns(core, lease), core->stops_count);
    return end_ns - (lead_ns < half_ns ? lead_ns : half_ns);
}

/* When its devices will have stood still for nothing as long as a lasting one costs. */
static uint64_t paid_ns(const struct core *core, const struct lease *lease)
{
    uint64_t cost_ns = lasting_cost_ns(core, lease);
    uint64_t left_ns = cost_ns > lease->idle_ns ? cost_ns - lease->idle_ns : 0;
    if (left_ns > 0 && lease->idle_devices == 0) {
        return NEVER_NS;
    }
    return core_add_u64(lease->idle_since_ns, left_ns > 0 ? left_ns / lease->idle_devices : 0);
}

/* When its devices are to be replaced by lasting ones, as far as can be told now. */
static uint64_t replace_ns(const struct core *core, const struct lease *lease)
{
    uint64_t by_cap_ns = lead_start_ns(core, lease);
    uint64_t by_cost_ns = paid_ns(core, lease);
    uint64_t due_ns = by_cost_ns < by_cap_ns ? by_cost_ns : by_cap_ns;
    uint64_t first_ns = core_add_u64(lease->stop_ns, core->config.sustained_ns);
    return due_ns > first_ns ? due_ns : first_ns;
}

static uint64_t rest_end_ns(const struct core *core, const struct lease *lease)
{
    return core_add_u64(lease->stop_ns,
                        core_rung_hold_ns(core, lease, lease->stop_rung, lease->first->kind));
}

static void count_taken(const struct core *core, const struct lease *lease, int sign)
{
    for (const struct device *device = lease->first; device != NULL; device = device->next) {
        DEVICE_ENDPOINTS (core, device, endpoint) {
            bool serves = core_instance_serves(core_instance_of(device, endpoint));
            endpoint->taken += (uint32_t)(sign * serves);
        }
    }
}

/* How many of its devices serving could not do without, if all went together. */
static uint32_t devices_needed(const struct core *core, const struct lease *lease)
{
    uint32_t most = 0;
    count_taken(core, lease, 1);
    for (const struct device *device = lease->first; device != NULL; device = device->next) {
        DEVICE_ENDPOINTS (core, device, endpoint) {
            uint32_t want = endpoint->needed + endpoint->taken;
            uint32_t lack = want > endpoint->ready ? want - endpoint->ready : 0;
            bool here = core_instance_serves(core_instance_of(device, endpoint));
            most = here && lack > most ? lack : most;
        }
    }
    count_taken(core, lease, -1);
    return most < lease->stopped ? most : lease->stopped;
}

/* The others stand still for nothing. */
static void idle_follow(struct core *core, struct lease *lease, uint32_t idle)
{
    if (idle != lease->idle_devices) {
        uint64_t since_ns = core->now_ns - lease->idle_since_ns;
        lease->idle_ns += core_multiply_u64(since_ns, lease->idle_devices);
        lease->idle_since_ns = core->now_ns;
        lease->idle_devices = idle;
        core_lease_touch(core, lease);
    }
}

static void release(struct core *core, struct lease *lease)
{
    uint32_t needed = devices_needed(core, lease);
    idle_follow(core, lease, lease->stopped - needed);
    if (needed == 0 && core_may_move(core) && core->now_ns >= rest_end_ns(core, lease)) {
        core_lease_go_on(core, lease,
                         lease->replaced ? CORE_REASON_DELIVERED : CORE_REASON_LOAD_FELL);
    }
}

/* Of itself, or of an endpoint on one of its devices. */
static bool is_news(const struct core *core, const struct lease *lease)
{
    bool news = core_lease_is_news(core, lease), some = core->endpoint_sets[NEWS].count > 0;
    for (const struct device *device = lease->first; device != NULL && some && !news;
         device = device->next) {
        news = core_set_meets(&device->live, &core->endpoint_sets[NEWS]);
    }
    return news;
}

void core_stops_release(struct core *core)
{
    struct lease *next;
    for (struct lease *lease = core->stops_first; lease != NULL; lease = next) {
        next = lease->stop_next;
        core_stop_follow(core, lease);
        if (!lease->going_on_wanted && is_whole(lease) && is_news(core, lease)) {
            release(core, lease);
        }
    }
}

static bool is_expiring(const struct core *core, const struct lease *lease)
{
    return !lease->going_on_wanted && is_whole(lease) && core->now_ns >= replace_ns(core, lease);
}

/* Instances that will have to do without the devices of such gangs. False: there is no such gang.
 */
static bool count_expiring(const struct core *core)
{
    bool any = false;
    for (struct lease *lease = core->stops_first; lease != NULL; lease = lease->stop_next) {
        if (is_expiring(core, lease)) {
            count_taken(core, lease, 1);
            any = true;
        }
    }
    return any;
}

static uint32_t lacking_later(const struct core *core, const struct endpoint *endpoint)
{
    uint32_t have = core_endpoint_serving(endpoint) - endpoint->taken +
                    core_capacity_coming(core, endpoint, NEVER_NS);
    return have < endpoint->needed ? endpoint->needed - have : 0;
}

/* The endpoint that would lack one of the gang's devices even then. */
static struct endpoint *endpoint_behind(const struct core *core, const struct lease *lease)
{
    for (const struct device *device = lease->first; device != NULL; device = device->next) {
        DEVICE_ENDPOINTS (core, device, endpoint) {
            if (core_instance_serves(core_instance_of(device, endpoint)) &&
                lacking_later(core, endpoint) > 0) {
                return endpoint;
            }
        }
    }
    return NULL;
}

/* Gangs whose caps end together must not all be gone together. */
static uint64_t step_aside_ns(const struct core *core, const struct lease *lease)
{
    uint64_t end_ns = core_lease_stop_end_ns(core, lease);
    uint64_t start_ns = lead_start_ns(core, lease);
    uint64_t last_ns = core->stepped_aside_ns;
    uint64_t left_ns = end_ns - (last_ns > start_ns && last_ns < end_ns ? last_ns : start_ns);
    uint64_t take_ns = lasting_take_ns(core, lease), share_ns = left_ns / core->stops_count;
    uint64_t next_ns = core_add_u64(last_ns, share_ns < take_ns ? share_ns : take_ns);
    return last_ns != 0 && next_ns > start_ns ? next_ns : start_ns;
}

static bool can_give(const struct core *core, const struct lease *lease)
{
    enum core_rung rung = core_rung_for_all(lease);
    return rung == CORE_RUNG_NOTICE &&
           core_guard(core, lease, lease->stopped, rung, true) == CORE_REASON_NONE;
}

static void step_aside(struct core *core, struct lease *lease, const struct endpoint *endpoint)
{
    core->stepped_aside_ns = core->now_ns;
    core_stops_touch(core);
    count_taken(core, lease, -1); /* of those that stay */
    core_guard_count(core, lease, CORE_RUNG_NOTICE);
    if (!lease->first->kept) {
        core_device_keep(core, lease->first, endpoint->spec.endpoint);
    }
    core_stop_then(core, lease, CORE_LEASE_DRAINING, CORE_REASON_SUSTAINED_LOAD);
}

/* One whose want was not there looks at everybody once it is there again. */
static void lasting_done(struct core *core)
{
    for (size_t i = 0; i < core->endpoint_count; i++) {
        struct endpoint *endpoint = core->endpoints[i];
        if (endpoint->taken == 0 || lacking_later(core, endpoint) == 0) {
            endpoint->wide_lasting = true;
        }
        endpoint->taken = 0;
    }
}

static void replace(struct core *core, struct lease *lease)
{
    struct endpoint *endpoint = endpoint_behind(core, lease);
    while (endpoint != NULL &&
           core_take_for(core, endpoint, lacking_later(core, endpoint), CORE_TAKE_LASTING,
                         core_endpoint_within_ns(core, endpoint)) > 0) {
        endpoint = endpoint_behind(core, lease);
    }
    lease->replaced = lease->replaced || endpoint == NULL;
    if (endpoint != NULL) {
        endpoint->wide_lasting = core_take_undecided(core, endpoint);
    }
    if (endpoint != NULL && can_give(core, lease) && core->now_ns >= step_aside_ns(core, lease)) {
        step_aside(core, lease, endpoint);
    }
}

void core_stops_replace(struct core *core)
{
    if (core->stops_first == NULL || !core_may_move(core)) {
        return;
    }
    bool any = count_expiring(core);
    struct lease *next;
    for (struct lease *lease = core->stops_first; lease != NULL && any; lease = next) {
        next = lease->stop_next;
        if (is_expiring(core, lease)) {
            replace(core, lease);
        }
    }
    lasting_done(core);
}

static uint64_t first_after(const struct core *core, const uint64_t *times_ns, size_t count)
{
    uint64_t first_ns = NEVER_NS;
    for (size_t i = 0; i < count; i++) {
        bool comes = times_ns[i] > core->now_ns && times_ns[i] < first_ns;
        first_ns = comes ? times_ns[i] : first_ns;
    }
    return first_ns;
}

uint64_t core_stop_due_ns(const struct core *core, const struct lease *lease)
{
    if (lease->state == CORE_LEASE_RUNNING && lease->held > 0 && core_lease_can_stop(lease)) {
        const struct stop_failure *failures = lease->stop_failures;
        const uint64_t times_ns[] = {lease->stop_again_ns, lease->stop_calm_ns,
                                     failures[0].until_ns, failures[1].until_ns,
                                     failures[2].until_ns};
        return first_after(core, times_ns, sizeof times_ns / sizeof *times_ns);
    }
    if (lease->state == CORE_LEASE_SUSPENDED && !lease->going_on_wanted && is_whole(lease)) {
        const uint64_t times_ns[] = {rest_end_ns(core, lease), replace_ns(core, lease),
                                     step_aside_ns(core, lease)};
        return first_after(core, times_ns, sizeof times_ns / sizeof *times_ns);
    }
    return NEVER_NS;
}
