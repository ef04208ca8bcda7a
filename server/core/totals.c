/* totals.c: whose device time it was. Each nanosecond of a device belongs to one lease (and its
 * team), to one endpoint or to nobody, so that these add up to the accounts of all devices. What
 * is forgotten leaves its totals to nobody. */
#include "server/core/state.h"

/* Whom a device serves that no lease has: who keeps it, else who is most in demand there. */
struct endpoint *core_totals_endpoint(const struct core *core, const struct device *device)
{
    if (device->lease != NULL || device->account == CORE_ACCOUNT_FREE ||
        device->account == CORE_ACCOUNT_QUARANTINED) {
        return NULL;
    }
    struct endpoint *keeper = device->kept ? core_endpoint_get(core, device->kept_for) : NULL;
    return keeper != NULL ? keeper : core_device_busiest(core, device);
}

static core_sum_ns *owner_accounts(struct core *core, const struct device *device)
{
    if (device->lease != NULL) {
        return device->lease->account_ns;
    }
    return device->account_for != NULL ? device->account_for->account_ns : core->nobody_ns;
}

void core_totals_add(struct core *core, const struct device *device, uint64_t amount_ns)
{
    owner_accounts(core, device)[device->account] += amount_ns;
    if (device->lease != NULL) {
        device->lease->team->account_ns[device->account] += amount_ns;
    }
}

static uint64_t serving_weight(const struct device *device, const struct endpoint *endpoint)
{
    bool ready = core_instance_of(device, endpoint)->state == CORE_INSTANCE_READY;
    return ready && endpoint->ready > 0 ? endpoint->demand_milli / endpoint->ready + 1 : 0;
}

/* A sample tells how long batches ran on a device, not whose: split by demand. */
static void add_serving(struct core *core, const struct device *device, uint64_t amount_ns)
{
    uint64_t weights = 0;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        weights += serving_weight(device, core->endpoints[i]);
    }
    for (size_t i = 0; i < core->endpoint_count && weights > 0; i++) {
        uint64_t weight = serving_weight(device, core->endpoints[i]);
        uint64_t part = core_scale_u64(amount_ns, weight, weights);
        core->endpoints[i]->account_ns[CORE_ACCOUNT_SERVING] += part;
        amount_ns -= part;
        weights -= weight;
    }
    core->nobody_ns[CORE_ACCOUNT_SERVING] += amount_ns;
}

void core_totals_move(struct core *core, const struct device *device, uint64_t amount_ns,
                      enum core_account to)
{
    core_sum_ns *owner = owner_accounts(core, device);
    core_sum_ns *team = device->lease != NULL ? device->lease->team->account_ns : NULL;
    owner[device->account] -= amount_ns;
    if (team != NULL) {
        team[device->account] -= amount_ns;
    }
    if (to == CORE_ACCOUNT_SERVING) {
        add_serving(core, device, amount_ns);
        return;
    }
    owner[to] += amount_ns;
    if (team != NULL) {
        team[to] += amount_ns;
    }
}

void core_totals_lose(struct lease *lease, core_sum_ns amount_ns)
{
    lease->account_ns[CORE_ACCOUNT_TRAINING] -= amount_ns;
    lease->account_ns[CORE_ACCOUNT_LOST] += amount_ns;
    lease->team->account_ns[CORE_ACCOUNT_TRAINING] -= amount_ns;
    lease->team->account_ns[CORE_ACCOUNT_LOST] += amount_ns;
}

static void leave_to_nobody(struct core *core, const core_sum_ns *account_ns)
{
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        core->nobody_ns[account] += account_ns[account];
    }
}

void core_totals_forget_endpoint(struct core *core, struct endpoint *endpoint)
{
    for (size_t i = 0; i < core->device_count; i++) {
        if (core->devices[i]->account_for == endpoint) {
            core->devices[i]->account_for = NULL;
        }
    }
    leave_to_nobody(core, endpoint->account_ns);
}

void core_totals_forget_team(struct core *core, const struct team *team)
{
    leave_to_nobody(core, team->account_ns);
}
