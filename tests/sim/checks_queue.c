/* checks_queue.c: invariant 5: who heads the queue and fits on devices that nobody needs is granted
 * them within the longest hold, notice, extension and kill bound. */
#include "tests/sim/checks.h"

/* What a shell that does not answer costs comes on top: instances that are not told gone, retries
 * after failed grants (at most 64 times retry_ns). */
static uint64_t bound_ns(const struct checks *checks)
{
    const struct core_config *config = &checks->config;
    uint64_t handover_ns = config->notice_ns + config->extension_ns + config->kill_bound_ns +
                           config->shrink_deadline_ns;
    return 3 * handover_ns + config->hold_min_ns + config->cool_down_ns +
           2 * config->place_timeout_ns + 64 * config->retry_ns;
}

static bool free_for(const struct core_device_view *device, const struct core_lease_view *lease)
{
    bool well = device->health == CORE_HEALTH_OK || device->health == CORE_HEALTH_SLOW;
    bool spare = device->account == CORE_ACCOUNT_FREE || device->promised == lease->spec.lease;
    return well && spare && !device->cordoned && !device->occupied && !device->drained &&
           device->reclaim_by_ns == 0 && device->hold == CORE_HOLD_NONE &&
           !device->kept_for_serving &&
           (device->promised == 0 || device->promised == lease->spec.lease) &&
           ((lease->spec.kinds_mask >> device->kind) & 1) &&
           (device->memory_bytes == 0 || lease->spec.memory_bytes <= device->memory_bytes);
}

/* It does not share the device: what is there must go first. */
static bool must_empty(const struct core_device_view *device, const struct core_lease_view *lease)
{
    return !lease->spec.in_process ||
           (device->memory_bytes != 0 &&
            device->memory_used_bytes + lease->spec.memory_bytes > device->memory_bytes);
}

/* Instances that each endpoint can do without, whichever devices are emptied. */
static uint32_t spare_instances(const struct core *core)
{
    struct core_endpoint_view endpoint;
    uint32_t spare = UINT32_MAX;
    for (size_t i = 0; core_endpoint_at(core, i, &endpoint); i++) {
        uint32_t there = endpoint.instances_ready + endpoint.instances_placing;
        uint32_t left = there > endpoint.devices_needed ? there - endpoint.devices_needed : 0;
        spare = there > 0 && left < spare ? left : spare;
    }
    return spare;
}

static bool fits(const struct checks *checks, const struct core_lease_view *lease)
{
    struct core_device_view device;
    uint32_t shared = 0, emptied = 0;
    for (size_t i = 0; core_device_at(checks->rig->core, i, &device); i++) {
        bool possible = free_for(&device, lease);
        bool busy = device.utilisation_permille >= checks->config.shrink_low_permille;
        shared += possible && !must_empty(&device, lease);
        emptied += possible && !busy && must_empty(&device, lease);
    }
    uint32_t spare = emptied > 0 ? spare_instances(checks->rig->core) : 0;
    return shared + (emptied < spare ? emptied : spare) >= lease->spec.devices_min;
}

void checks_queue_step(struct checks *checks)
{
    struct core_lease_view view;
    uint64_t now_ns = checks->rig->now_ns;
    for (size_t i = 0; core_lease_at(checks->rig->core, i, &view); i++) {
        struct seen_lease *lease = checks_lease(checks, view.spec.lease);
        /* A reservation may wait for its team's quota. */
        bool heads = checks->acts && view.state == CORE_LEASE_WAITING && view.position == 1 &&
                     view.spec.preemptible;
        if (!heads || !fits(checks, &view)) {
            lease->fits_since_ns = 0;
        } else if (lease->fits_since_ns == 0) {
            lease->fits_since_ns = now_ns;
        }
        checks_require(
            checks, lease->fits_since_ns == 0 || now_ns - lease->fits_since_ns <= bound_ns(checks),
            "5: heads the queue, fits and is not granted: lease", view.spec.lease);
    }
}
