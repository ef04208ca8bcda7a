/* beside.h: what others would have made of the run's own arrivals: the same requests and the same
 * training, played in virtual time (`tidepool sim`) under a static split and under KEDA's timing.
 * Kind to them: a device changes hands at once, nothing is lost and nothing else takes time. */
#ifndef TIDEPOOL_DEMO_BESIDE_H
#define TIDEPOOL_DEMO_BESIDE_H

#include "clients/demo/waves.h"
#include "server/base/error.h"

struct beside_run {
    const struct arrivals *arrivals;
    uint64_t elapsed_ns;
    uint64_t cost_ns; /* of a request on one device */
    uint64_t slo_ns;  /* from arrival to answer; above cost_ns */
    uint32_t devices;
    double steps_per_s; /* of training on all devices, undisturbed */
};

struct beside {
    uint64_t late;
    double steps;
};

/* Half of the devices serve (one at least), the others train. Errors: no memory. */
int beside_static(const struct beside_run *run, struct beside *ret_beside, struct error *error);
/* KEDA with its documented times and standard target. */
int beside_keda(const struct beside_run *run, struct beside *ret_beside, struct error *error);

#endif
