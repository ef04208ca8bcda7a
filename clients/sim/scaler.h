/* scaler.h: what the emulated controllers share: they look at the requests in flight from time to
 * time and ask for a number of serving devices.
 * Thread:  the engine's. */
#ifndef TIDEPOOL_CLIENTS_SIM_SCALER_H
#define TIDEPOOL_CLIENTS_SIM_SCALER_H

#include "clients/sim/policy.h"

struct scaler {
    struct policy policy; /* first: the engine knows it by this */
    enum core_rung rung;  /* how devices come back; CORE_RUNG_NONE: the pool's first */
    uint32_t devices;     /* in the pool */
    uint32_t minimum;     /* serving devices that are asked for at least */
    uint32_t wanted;      /* serving devices asked for; all of them at the start */
    uint64_t in_flight;   /* requests waiting or running */
    uint64_t seen_ns;     /* until when `sum` counts */
    double sum;           /* requests in flight x seconds since the start */
};

/* `size` bytes with a struct scaler first, zeroed but for it. NULL: error is set. */
void *scaler_create(struct engine *engine, size_t size, double minimum, struct error *error);
void scaler_destroy(struct policy *policy);

/* For the hooks arrived and serve_ended. */
void scaler_arrived(struct policy *policy, uint32_t endpoint);
void scaler_ended(struct policy *policy, uint32_t device, uint32_t endpoint, uint64_t service_ns);

/* Requests in flight x seconds, up to now. */
double scaler_sum(struct scaler *scaler);
/* Asks for so many serving devices (but at least the minimum, at most all) and moves what can
 * move; ask again for those that could not. */
void scaler_want(struct scaler *scaler, uint32_t devices);
/* The quotient rounded up; a little above a whole number counts as it. */
uint32_t scaler_ceiling(double quotient, uint32_t maximum);

#endif
