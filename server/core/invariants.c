/* invariants.c: what must hold after every event, recounted from the tables alone. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/core/state.h"

struct report {
    char *text;
    size_t size;
    bool broken;
};

__attribute__((format(printf, 2, 3))) static void broken(struct report *report, const char *format,
                                                         ...)
{
    if (report->broken) {
        return; /* the first one tells most */
    }
    report->broken = true;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report->text, report->size, format, arguments);
    va_end(arguments);
}

/* 1: one active holder; what is beside it shares the device by right and by memory. */
static void check_holder(const struct core *core, const struct device *device,
                         struct report *report)
{
    bool none = device->hold == CORE_HOLD_NONE;
    bool nobody = device->lease == NULL;
    if (none ? !nobody : nobody && device->hold != CORE_HOLD_VERIFYING) {
        broken(report, "1: device %" PRIu64 " is %s with the wrong holder", device->id,
               core_hold_name(device->hold));
    }
    bool failed = device->health == CORE_HEALTH_FAILED || device->health == CORE_HEALTH_QUARANTINED;
    if (failed && (!none || device->promised != NULL || device->kept)) {
        broken(report, "1: lost device %" PRIu64 " is still in use", device->id);
    }
    uint64_t used = device->holder_bytes, bytes = 0;
    bool full = device->hold == CORE_HOLD_GRANTING || device->hold == CORE_HOLD_HELD ||
                device->hold == CORE_HOLD_RESUMING || device->hold == CORE_HOLD_REVOKING;
    if (nobody ? used != 0 : full && used != device->lease->spec.memory_bytes) {
        broken(report, "1: holder of device %" PRIu64 " is accounted %" PRIu64 " bytes", device->id,
               used);
    }
    uint32_t present = 0, ready = 0;
    for (size_t i = 0; i < core->endpoint_count; i++) {
        const struct endpoint *endpoint = core->endpoints[i];
        enum core_instance_state state = core_instance_of(device, endpoint)->state;
        bool serves = core_instance_serves(core_instance_of(device, endpoint));
        used += serves ? endpoint->spec.memory_bytes : 0;
        bytes += state != CORE_INSTANCE_ABSENT ? endpoint->spec.memory_bytes : 0;
        present += state != CORE_INSTANCE_ABSENT;
        ready += state == CORE_INSTANCE_READY;
        if (serves && failed) {
            broken(report, "1: lost device %" PRIu64 " is %s for endpoint %" PRIu64, device->id,
                   core_instance_name(state), endpoint->spec.endpoint);
        }
        if (core->reconciled && !nobody && !device->lease->spec.in_process &&
            !core_lease_can_stop(device->lease) && serves) {
            broken(report, "1: device %" PRIu64 " of lease %" PRIu64 " is %s for endpoint %" PRIu64,
                   device->id, device->lease->spec.lease, core_instance_name(state),
                   endpoint->spec.endpoint);
        }
    }
    if (bytes != device->instances_bytes || present != device->instances_present ||
        ready != device->instances_ready) {
        broken(report, "1: device %" PRIu64 " counts %" PRIu32 " instances, has %" PRIu32,
               device->id, device->instances_present, present);
    }
    if (used > device->memory_bytes) {
        broken(report, "1: device %" PRIu64 " has %" PRIu64 " of %" PRIu64 " bytes in use",
               device->id, used, device->memory_bytes);
    }
}

static uint64_t revoke_bound(const struct core *core, const struct device *device)
{
    const struct core_lease_spec *spec = &device->lease->spec;
    uint64_t extension_ns =
        spec->extension_ns != 0 ? spec->extension_ns : core->config.extension_ns;
    uint64_t span_ns = core_rung_span_ns(core, device->lease, device->rung);
    return device->extended ? core_add_u64(span_ns, extension_ns) : span_ns;
}

/* 2: nothing is awaited past its deadline, and no deadline is past its bound. */
static void check_deadline(const struct core *core, const struct device *device,
                           struct report *report)
{
    uint64_t bound = 0;
    switch (device->hold) {
    case CORE_HOLD_GRANTING:
    case CORE_HOLD_VERIFYING:
        bound = core->config.action_timeout_ns;
        break;
    case CORE_HOLD_REVOKING:
        bound = revoke_bound(core, device);
        break;
    case CORE_HOLD_KILLING:
        bound = core->config.kill_bound_ns;
        break;
    case CORE_HOLD_SUSPENDING:
        bound = core->config.suspend_deadline_ns;
        break;
    case CORE_HOLD_RESUMING:
        bound = core->config.action_timeout_ns;
        break;
    case CORE_HOLD_SUSPENDED:
    case CORE_HOLD_NONE:
    case CORE_HOLD_HELD:
        return;
    }
    if (core_device_stopped(device) && device->lease->going_on_wanted && !device->lease->going_on) {
        return; /* waits for the whole gang to have its memory back */
    }
    if (device->deadline_ns <= core->now_ns ||
        device->deadline_ns > core_add_u64(core->now_ns, bound) || device->action == 0) {
        broken(report, "2: device %" PRIu64 " is %s until %" PRIu64 " at %" PRIu64, device->id,
               core_hold_name(device->hold), device->deadline_ns, core->now_ns);
    }
}

/* 4: the present token is the newest of the device and belongs to the present run. */
static void check_token(const struct core *core, const struct device *device, struct report *report)
{
    const struct lease *lease = device->lease;
    if (device->generation > core->generation ||
        (lease != NULL &&
         (device->generation < lease->run || device->generation > lease->generation))) {
        broken(report, "4: device %" PRIu64 " has generation %" PRIu64 " outside its run",
               device->id, device->generation);
    }
}

/* 6 */
static void check_moves(const struct core *core, const struct device *device, struct report *report)
{
    uint32_t moves = core_device_moves(core, device);
    if (moves > core->config.moves_per_hour + core->config.moves_extra) {
        broken(report, "6: device %" PRIu64 " was moved %" PRIu32 " times in an hour", device->id,
               moves);
    }
}

/* 7, for one device */
static void check_accounts(const struct core *core, const struct device *device,
                           struct report *report)
{
    uint64_t sum = core->now_ns - device->account_since_ns;
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        sum += device->account_ns[account];
    }
    if (sum != core->now_ns - device->added_ns) {
        broken(report, "7: accounts of device %" PRIu64 " hold %" PRIu64 " of %" PRIu64 " ns",
               device->id, sum, core->now_ns - device->added_ns);
    }
}

/* 3 */
static void check_gang(const struct core *core, const struct lease *lease, struct report *report)
{
    bool holds = lease->held > 0, leaves = lease->leaving > 0, right = false;
    switch (lease->state) {
    case CORE_LEASE_RUNNING:
        right = !core->reconciled ||
                (lease->held >= lease->spec.devices_min && lease->held <= lease->spec.devices_max);
        break;
    case CORE_LEASE_DRAINING:
        right = !holds && leaves && lease->promised == 0;
        break;
    case CORE_LEASE_SUSPENDED:
        right = lease->stopped > 0 && lease->promised == 0 &&
                (!holds || lease->going_on || !core->reconciled);
        break;
    case CORE_LEASE_ENDING:
        right = !holds && leaves && lease->promised == 0;
        break;
    case CORE_LEASE_WAITING:
        right = !holds && !leaves;
        break;
    case CORE_LEASE_PAUSED:
    case CORE_LEASE_ENDED:
        right = !holds && !leaves && lease->promised == 0;
        break;
    }
    if (lease->state != CORE_LEASE_SUSPENDED && lease->stopped > 0) {
        right = false;
    }
    if (!right) {
        broken(report,
               "3: lease %" PRIu64 " is %s with %" PRIu32 " devices, %" PRIu32 " leaving, %" PRIu32
               " promised; it asked for %" PRIu32 ":%" PRIu32,
               lease->spec.lease, core_lease_state_name(lease->state), lease->held, lease->leaving,
               lease->promised, lease->spec.devices_min, lease->spec.devices_max);
    }
}

/* 2 and 3: whole, all of it stopped or all of it told to go on; and not for longer than its cap. */
static void check_stop(const struct core *core, const struct lease *lease, struct report *report)
{
    bool whole = true;
    if (lease->state != CORE_LEASE_SUSPENDED || !core->reconciled) {
        return;
    }
    for (const struct device *device = lease->first; device != NULL; device = device->next) {
        bool going = device->hold == CORE_HOLD_RESUMING;
        whole = whole && (!core_device_stopped(device) || going == lease->going_on);
    }
    bool long_enough = core->now_ns >= core_lease_stop_end_ns(core, lease);
    if (!whole || (lease->quiet > 0 && long_enough && !lease->going_on_wanted)) {
        broken(report, "%s: lease %" PRIu64 " is stopped %s", whole ? "2" : "3", lease->spec.lease,
               whole ? "beyond its cap" : "in parts");
    }
}

static void check_lease_counts(const struct core *core, const struct lease *lease,
                               struct report *report)
{
    uint32_t held = 0, leaving = 0, stopped = 0, promised = 0, listed = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        bool active = device->hold == CORE_HOLD_GRANTING || device->hold == CORE_HOLD_HELD;
        bool stops = core_device_stopped(device);
        held += device->lease == lease && active;
        stopped += device->lease == lease && stops;
        leaving += device->lease == lease && !active && !stops;
        promised += device->promised == lease;
    }
    for (const struct device *device = lease->first; device != NULL; device = device->next) {
        bool ordered = device->next == NULL || device->id < device->next->id;
        listed += device->lease == lease && ordered;
    }
    if (held != lease->held || leaving != lease->leaving || stopped != lease->stopped ||
        promised != lease->promised || listed != held + leaving + stopped) {
        broken(report,
               "1: lease %" PRIu64 " counts %" PRIu32 "+%" PRIu32 "+%" PRIu32
               " devices, has %" PRIu32 "+%" PRIu32 "+%" PRIu32 ", lists %" PRIu32,
               lease->spec.lease, lease->held, lease->leaving, lease->stopped, held, leaving,
               stopped, listed);
    }
}

static void check_lease_moves(const struct core *core, const struct lease *lease,
                              struct report *report)
{
    uint32_t coming = 0, movable[CORE_KINDS_MAX] = {0}, clear[CORE_KINDS_MAX] = {0};
    bool right = true;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        bool counts = device->counted_for == lease;
        coming += counts && device->counted_coming;
        movable[device->kind] += counts && device->counted_movable;
        clear[device->kind] += counts && device->counted_clear;
    }
    for (uint32_t kind = 0; kind < CORE_KINDS_MAX; kind++) {
        right =
            right && movable[kind] == lease->movable[kind] && clear[kind] == lease->clear[kind] &&
            core_set_has(&core->lease_sets[LEASES_MOVABLE + kind], lease->slot) ==
                (movable[kind] > 0) &&
            core_set_has(&core->lease_sets[LEASES_CLEAR + kind], lease->slot) == (clear[kind] > 0);
    }
    if (!right || coming != lease->coming) {
        broken(report, "lease %" PRIu64 " counts %" PRIu32 " devices that may come, has %" PRIu32,
               lease->spec.lease, lease->coming, coming);
    }
}

static void check_endpoint_counts(const struct core *core, const struct endpoint *endpoint,
                                  struct report *report)
{
    uint32_t placed = 0, ready = 0, resting = 0, borrowed = 0, going = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        const struct device *device = core->devices[i];
        const struct instance *instance = core_instance_of(device, endpoint);
        bool rests = device->lease != NULL && !device->lease->spec.in_process &&
                     device->hold != CORE_HOLD_SUSPENDED;
        placed += core_instance_serves(instance);
        resting += core_instance_serves(instance) && rests;
        borrowed += core_instance_serves(instance) && device->hold == CORE_HOLD_SUSPENDED;
        going += core_instance_serves(instance) && device->going && !rests &&
                 device->hold != CORE_HOLD_SUSPENDED;
        ready += instance->state == CORE_INSTANCE_READY && !rests;
    }
    if (placed != endpoint->placed || ready != endpoint->ready || resting != endpoint->resting ||
        borrowed != endpoint->borrowed || going != endpoint->going ||
        (!endpoint->removing && placed > core_endpoint_most(endpoint))) {
        broken(report,
               "1: endpoint %" PRIu64 " counts %" PRIu32 " instances, has %" PRIu32
               " of at most %" PRIu32,
               endpoint->spec.endpoint, endpoint->placed, placed, endpoint->spec.devices_max);
    }
}

static void count_share(const struct team *team, const struct device *device, struct share *share)
{
    const struct lease *lease = device->lease, *promised = device->promised;
    if (lease != NULL && lease->team == team) {
        bool active = device->hold == CORE_HOLD_GRANTING || device->hold == CORE_HOLD_HELD ||
                      core_device_stopped(device);
        share->held += active;
        share->leaving += !active;
        share->reserved += !lease->spec.preemptible;
    }
    if (promised != NULL && promised->team == team) {
        share->promised++;
        share->reserved += !promised->spec.preemptible;
    }
}

/* Those that grow are all there, each once, in order. */
static bool growing_is_right(const struct team *team, uint32_t grows)
{
    bool right = team->growing_count == grows;
    for (size_t i = 0; i + 1 < team->growing_count && right; i++) {
        const struct lease *lease = team->growing[i], *next = team->growing[i + 1];
        right = lease->spec.priority > next->spec.priority ||
                (lease->spec.priority == next->spec.priority &&
                 (lease->grown < next->grown ||
                  (lease->grown == next->grown && lease->sequence < next->sequence)));
    }
    return right;
}

static void check_team(const struct core *core, const struct team *team, struct report *report)
{
    struct share share[CORE_KINDS_MAX] = {0};
    uint32_t leases = 0, live = 0, waiting = 0, grows = 0, revocable[URGENCIES] = {0};
    for (size_t i = 0; i < core->lease_count; i++) {
        const struct lease *lease = core->leases[i];
        leases += lease->team == team;
        grows += lease->team == team && lease->grows;
        revocable[lease->revocable_bucket] += lease->team == team ? lease->revocable : 0;
        live += lease->team == team && lease->state != CORE_LEASE_ENDED;
        waiting += lease->team == team && lease->state == CORE_LEASE_WAITING;
    }
    for (size_t i = 0; i < core->device_count; i++) {
        count_share(team, core->devices[i], &share[core->devices[i]->kind]);
    }
    if (leases != team->leases || live != team->live || waiting != team->waiting_count ||
        memcmp(share, team->share, sizeof share) != 0 ||
        memcmp(revocable, team->revocable, sizeof revocable) != 0 ||
        !growing_is_right(team, grows)) {
        broken(report, "1: team %" PRIu64 " counts other leases or devices than it has",
               team->spec.team);
    }
}

/* No more than the health budget is drained for slowness. */
static void check_health(const struct core *core, struct report *report)
{
    uint32_t drained = 0;
    for (size_t i = 0; i < core->device_count; i++) {
        drained += core->devices[i]->drained;
    }
    if (drained != core->drained_count || drained > core_health_budget(core)) {
        broken(report,
               "health: %" PRIu32 " devices are drained, %" PRIu32 " counted, %" PRIu32 " may",
               drained, core->drained_count, core_health_budget(core));
    }
}

/* 7: what devices have on their accounts is what teams, endpoints and nobody have. */
static void check_totals(const struct core *core, struct report *report)
{
    core_sum_ns devices[CORE_ACCOUNT_COUNT], owners[CORE_ACCOUNT_COUNT];
    memcpy(devices, core->retired_ns, sizeof devices);
    memcpy(owners, core->nobody_ns, sizeof owners);
    devices[CORE_ACCOUNT_TRAINING] -= core->lost_ns;
    devices[CORE_ACCOUNT_LOST] += core->lost_ns;
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        for (size_t i = 0; i < core->device_count; i++) {
            devices[account] += core->devices[i]->account_ns[account];
        }
        for (size_t i = 0; i < core->team_count; i++) {
            owners[account] += core->teams[i]->account_ns[account];
        }
        for (size_t i = 0; i < core->endpoint_count; i++) {
            owners[account] += core->endpoints[i]->account_ns[account];
        }
        if (devices[account] != owners[account]) {
            broken(report, "7: account %s has %" PRIu64 " ns on devices, %" PRIu64 " by owner",
                   core_account_name(account), core_sum_clip(devices[account]),
                   core_sum_clip(owners[account]));
        }
    }
}

/* 7, for the pool */
static void check_ledger(const struct core *core, struct report *report)
{
    struct core_ledger ledger;
    core_ledger_read(core, 0, &ledger);
    core_sum_ns sum = 0;
    bool sound = ledger.provisional_ns <= ledger.account_ns[CORE_ACCOUNT_TRAINING];
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        sum += ledger.account_ns[account];
        sound = sound && ledger.account_ns[account] <= ledger.elapsed_ns;
    }
    if (sum != ledger.elapsed_ns || !sound) {
        broken(report, "7: accounts hold %" PRIu64 " of %" PRIu64 " ns", core_sum_clip(sum),
               core_sum_clip(ledger.elapsed_ns));
    }
}

static void check_index(const struct core *core, struct report *report)
{
    uint64_t id = 0;
    const char *what = core_index_check(core, &id);
    if (what != NULL) {
        broken(report, "%s %" PRIu64 " is not as after a touch", what, id);
    }
}

bool core_check(const struct core *core, char *text, size_t size)
{
    struct report report = {.text = text, .size = size};
    for (size_t i = 0; i < core->device_count; i++) {
        check_holder(core, core->devices[i], &report);
        check_deadline(core, core->devices[i], &report);
        check_token(core, core->devices[i], &report);
        check_moves(core, core->devices[i], &report);
        check_accounts(core, core->devices[i], &report);
    }
    for (size_t i = 0; i < core->lease_count; i++) {
        check_gang(core, core->leases[i], &report);
        check_stop(core, core->leases[i], &report);
        check_lease_counts(core, core->leases[i], &report);
        check_lease_moves(core, core->leases[i], &report);
    }
    for (size_t i = 0; i < core->endpoint_count; i++) {
        check_endpoint_counts(core, core->endpoints[i], &report);
    }
    for (size_t i = 0; i < core->team_count; i++) {
        check_team(core, core->teams[i], &report);
    }
    check_health(core, &report);
    check_totals(core, &report);
    check_ledger(core, &report);
    check_index(core, &report);
    return !report.broken;
}
