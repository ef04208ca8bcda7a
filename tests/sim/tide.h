/* tide.h: two parties on the same devices in virtual time: requests arrive, wait in one queue and
 * are served by devices with a ready instance; training runs on granted devices whenever no batch
 * does. The shell part follows the core's contract: samples, danger at enqueue, acknowledgements.
 */
#ifndef TIDEPOOL_TESTS_SIM_TIDE_H
#define TIDEPOOL_TESTS_SIM_TIDE_H

#include "tests/unit/core/rig.h"

#define TIDE_DEVICES_MAX 8

struct tide_device {
    uint64_t busy_until_ns; /* a batch runs until then */
    uint64_t batch_arrival_ns;
    bool busy;
    uint64_t serving_ns, slices; /* since the last sample */
    uint64_t sampled_ns;
    uint64_t trained_ns; /* ever */
};

struct tide {
    struct rig *rig;
    uint32_t devices;
    uint64_t tick_ns, service_ns, slo_ns;
    uint64_t interval_ns; /* between arrivals; 0: none */
    uint64_t next_arrival_ns;
    struct tide_device device[TIDE_DEVICES_MAX + 1];
    uint64_t queue[4096]; /* arrival times, a ring */
    size_t head, tail;
    uint32_t arrivals; /* since the last sample of the endpoint */
    uint64_t sampled_ns;
    uint64_t served, served_ns, late, latency_max_ns;
};

/* Devices 1 .. devices, endpoint 1, no lease yet; the instances are ready on return. */
void tide_init(struct tide *tide, const struct core_config *config, uint32_t devices,
               uint64_t tick_ns);
void tide_fini(struct tide *tide);
void tide_run(struct tide *tide, uint64_t span_ns);
void tide_load(struct tide *tide, uint32_t requests_per_second); /* from now on */
uint64_t tide_trained(const struct tide *tide);                  /* on all devices */
void tide_sample(struct tide *tide);                             /* tells all that is not told */

#endif
