#include "clients/sim/scaler.h"

#include <math.h>
#include <stdlib.h>

void *scaler_create(struct engine *engine, size_t size, double minimum, struct error *error)
{
    struct scaler *scaler = calloc(1, size);
    if (scaler == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "simulate: no memory for a policy");
        return NULL;
    }
    scaler->rung = CORE_RUNG_NONE;
    scaler->devices = engine_setup(engine)->device_count;
    scaler->wanted = scaler->devices;
    scaler->minimum = scaler_ceiling(minimum, scaler->devices);
    return scaler;
}

void scaler_destroy(struct policy *policy)
{
    free(policy);
}

static void sum_advance(struct scaler *scaler)
{
    uint64_t now_ns = engine_now_ns(scaler->policy.engine);
    scaler->sum += (double)scaler->in_flight * (double)(now_ns - scaler->seen_ns) * 1e-9;
    scaler->seen_ns = now_ns;
}

void scaler_arrived(struct policy *policy, uint32_t endpoint)
{
    struct scaler *scaler = (struct scaler *)policy;
    (void)endpoint;
    sum_advance(scaler);
    scaler->in_flight++;
}

void scaler_ended(struct policy *policy, uint32_t device, uint32_t endpoint, uint64_t service_ns)
{
    struct scaler *scaler = (struct scaler *)policy;
    (void)device;
    (void)endpoint;
    (void)service_ns;
    sum_advance(scaler);
    scaler->in_flight -= scaler->in_flight > 0 ? 1 : 0;
}

double scaler_sum(struct scaler *scaler)
{
    struct engine_load load;
    sum_advance(scaler);
    /* Hooks sleep while the controller is down: what they missed is put right here. */
    engine_load(scaler->policy.engine, ENGINE_ALL, &load);
    scaler->in_flight = load.queue_length + load.running;
    return scaler->sum;
}

void scaler_want(struct scaler *scaler, uint32_t devices)
{
    struct engine *engine = scaler->policy.engine;
    uint32_t serving = engine_count(engine, ENGINE_SERVING) + engine_count(engine, ENGINE_TAKING);
    devices = devices > scaler->minimum ? devices : scaler->minimum;
    scaler->wanted = devices < scaler->devices ? devices : scaler->devices;
    for (; serving > scaler->wanted && engine_give_any(engine); serving--) {
    }
    for (; serving < scaler->wanted && engine_take_any(engine, scaler->rung); serving++) {
    }
}

uint32_t scaler_ceiling(double quotient, uint32_t maximum)
{
    double devices = ceil(quotient - 1e-9);
    return devices < 0 ? 0 : devices > maximum ? maximum : (uint32_t)devices;
}
