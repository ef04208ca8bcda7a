/* ledger.c: every device-second in exactly one account. Time runs into the account that a device
 * is in; samples then move parts of it (a device that trains also serves, in slices); a loss moves
 * training that was not kept. Nothing is rounded, so the accounts always add up. */
#include <string.h>

#include "server/core/state.h"

static enum core_account account_of(const struct core *core, const struct device *device)
{
    if (device->health == CORE_HEALTH_FAILED || device->health == CORE_HEALTH_QUARANTINED) {
        return CORE_ACCOUNT_QUARANTINED;
    }
    switch (device->hold) {
    case CORE_HOLD_HELD:
        return CORE_ACCOUNT_TRAINING;
    case CORE_HOLD_REVOKING: /* trains until it acknowledges, if it ever began */
        return device->granted_ns != 0 ? CORE_ACCOUNT_TRAINING : CORE_ACCOUNT_HANDOVER;
    case CORE_HOLD_GRANTING:
    case CORE_HOLD_KILLING:
    case CORE_HOLD_VERIFYING:
    case CORE_HOLD_SUSPENDING:
    case CORE_HOLD_RESUMING:
        return CORE_ACCOUNT_HANDOVER;
    case CORE_HOLD_SUSPENDED:
        return CORE_ACCOUNT_SUSPENDED;
    case CORE_HOLD_NONE:
        break;
    }
    if (device->occupied) {
        return CORE_ACCOUNT_QUARANTINED;
    }
    if (device->promised != NULL) {
        return CORE_ACCOUNT_HANDOVER;
    }
    if (device->instances_ready == 0) {
        return device->kept ? CORE_ACCOUNT_HANDOVER : CORE_ACCOUNT_FREE;
    }
    return device->kept || !core_device_spare(core, device) ? CORE_ACCOUNT_RESERVE
                                                            : CORE_ACCOUNT_FREE;
}

/* Of a lease, the time of all its devices at once: a gang may have thousands. */
static void lease_accrue(const struct core *core, struct lease *lease)
{
    lease->provisional_ns += (core_sum_ns)(core->now_ns - lease->accrued_ns) * lease->training;
    lease->accrued_ns = core->now_ns;
}

static core_sum_ns provisional_at(const struct lease *lease, uint64_t now_ns)
{
    return lease->provisional_ns + (core_sum_ns)(now_ns - lease->accrued_ns) * lease->training;
}

core_sum_ns core_lease_provisional(const struct core *core, const struct lease *lease)
{
    return provisional_at(lease, core->now_ns);
}

static void trains_for(struct core *core, struct device *device, struct lease *lease)
{
    if (device->trains_for == lease) {
        return;
    }
    if (device->trains_for != NULL) {
        lease_accrue(core, device->trains_for);
        device->trains_for->training--;
    }
    if (lease != NULL) {
        lease_accrue(core, lease);
        lease->training++;
    }
    device->trains_for = lease;
}

static void accrue(struct core *core, struct device *device)
{
    uint64_t passed = core->now_ns - device->account_since_ns;
    device->account_ns[device->account] += passed;
    device->account_open_ns += passed;
    device->account_since_ns = core->now_ns;
    core_totals_add(core, device, passed);
}

void core_ledger_open(struct core *core, struct device *device)
{
    device->added_ns = core->now_ns;
    device->account_since_ns = core->now_ns;
    device->account = account_of(core, device);
}

void core_ledger_update(struct core *core, struct device *device)
{
    accrue(core, device);
    enum core_account account = account_of(core, device);
    if (account != device->account) {
        device->account = account;
        device->account_for = core_totals_endpoint(core, device);
        device->account_open_ns = 0;
    }
    trains_for(core, device, account == CORE_ACCOUNT_TRAINING ? device->lease : NULL);
}

void core_ledger_book(struct core *core, struct device *device, uint64_t amount_ns,
                      enum core_account to)
{
    accrue(core, device);
    uint64_t moved = amount_ns < device->account_open_ns ? amount_ns : device->account_open_ns;
    if (device->account == CORE_ACCOUNT_QUARANTINED) {
        moved = 0; /* a lost device does nothing that counts */
    }
    core->unbooked_ns += amount_ns - moved;
    device->account_ns[device->account] -= moved;
    device->account_ns[to] += moved;
    device->account_open_ns -= moved;
    core_totals_move(core, device, moved, to);
    if (device->account == CORE_ACCOUNT_TRAINING) {
        struct lease *lease = device->lease;
        lease_accrue(core, lease);
        lease->provisional_ns -= moved < lease->provisional_ns ? moved : lease->provisional_ns;
    }
}

void core_ledger_retire(struct core *core, struct device *device)
{
    accrue(core, device);
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        core->retired_ns[account] += device->account_ns[account];
    }
    core->retired_elapsed_ns += core->now_ns - device->added_ns;
    core->retired_slices += device->slices;
}

/* What was trained since the checkpoint stays provisional, in proportion to its steps. */
void core_ledger_keep(struct core *core, struct lease *lease, uint64_t step,
                      uint64_t checkpointed_step)
{
    lease_accrue(core, lease);
    uint64_t open_steps = step - lease->checkpointed_step;
    if (checkpointed_step > lease->checkpointed_step && open_steps > 0) {
        lease->provisional_ns =
            core_scale_sum(lease->provisional_ns, step - checkpointed_step, open_steps);
        lease->checkpointed_step = checkpointed_step;
    }
    lease->step = step;
}

void core_ledger_lose(struct core *core, struct lease *lease)
{
    lease_accrue(core, lease);
    LEASE_DEVICES (lease, device) {
        accrue(core, device); /* what is lost is taken from what is booked */
    }
    core->lost_ns += lease->provisional_ns;
    core_totals_lose(lease, lease->provisional_ns);
    lease->provisional_ns = 0;
    lease->step = lease->checkpointed_step;
}

void core_ledger_kept_all(struct core *core, struct lease *lease)
{
    lease_accrue(core, lease);
    lease->provisional_ns = 0;
    lease->checkpointed_step = lease->step;
}

void core_ledger_read(const struct core *core, uint64_t now_ns, struct core_ledger *ret_ledger)
{
    uint64_t now = now_ns > core->now_ns ? now_ns : core->now_ns;
    memset(ret_ledger, 0, sizeof *ret_ledger);
    memcpy(ret_ledger->account_ns, core->retired_ns, sizeof ret_ledger->account_ns);
    ret_ledger->elapsed_ns = core->retired_elapsed_ns;
    ret_ledger->slices = core->retired_slices;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
            ret_ledger->account_ns[account] += device->account_ns[account];
        }
        uint64_t open_ns = now - device->account_since_ns;
        ret_ledger->account_ns[device->account] += open_ns;
        ret_ledger->elapsed_ns += now - device->added_ns;
        ret_ledger->slices += device->slices;
    }
    ret_ledger->account_ns[CORE_ACCOUNT_TRAINING] -= core->lost_ns;
    ret_ledger->account_ns[CORE_ACCOUNT_LOST] += core->lost_ns;
    for (size_t i = 0; i < core->lease_count; i++) {
        ret_ledger->provisional_ns += provisional_at(core->leases[i], now);
    }
    ret_ledger->unbooked_ns = core->unbooked_ns;
    memcpy(ret_ledger->handovers, core->handovers, sizeof ret_ledger->handovers);
}
