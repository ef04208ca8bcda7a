/* twin.c: see twin.h. First come, first served. */
#include "server/core/twin.h"

#include <stdlib.h>

#include "server/core/state.h"

static int size_index(uint32_t batch)
{
    int index = 0;
    while (index < CORE_BATCH_SIZES - 1 && (UINT32_C(1) << index) < batch) {
        index++;
    }
    return index;
}

/* Batches larger than the largest measured one are not formed. */
static uint32_t batch_limit(const struct core_twin *twin)
{
    uint32_t limit = 1;
    for (int i = 0; twin->service_ns != NULL && i < CORE_BATCH_SIZES; i++) {
        limit = twin->service_ns[i] != 0 ? UINT32_C(1) << i : limit;
    }
    return twin->batch_max < limit ? (twin->batch_max > 0 ? twin->batch_max : 1) : limit;
}

static uint64_t batch_service(const struct core_twin *twin, size_t first, uint32_t batch)
{
    if (twin->service_ns == NULL) {
        return twin->requests[first].service_ns;
    }
    int index = size_index(batch);
    while (index < CORE_BATCH_SIZES - 1 && twin->service_ns[index] == 0) {
        index++;
    }
    return twin->service_ns[index];
}

static bool twin_is_valid(const struct core_twin *twin)
{
    for (size_t i = 1; i < twin->count; i++) {
        if (twin->requests[i].arrival_ns < twin->requests[i - 1].arrival_ns) {
            return false;
        }
    }
    return twin->devices > 0 && twin->devices <= CORE_DEVICES_MAX && twin->slo_ns > 0;
}

static uint64_t *first_idle(uint64_t *idle_at_ns, uint32_t devices)
{
    uint64_t *first = idle_at_ns;
    for (uint32_t i = 1; i < devices; i++) {
        first = idle_at_ns[i] < *first ? &idle_at_ns[i] : first;
    }
    return first;
}

static void count_batch(const struct core_twin *twin, size_t first, uint32_t batch, uint64_t end_ns,
                        struct core_twin_result *result)
{
    for (size_t i = first; i < first + batch; i++) {
        bool late_in_run = twin->requests[i].latency_ns > twin->slo_ns;
        bool late_in_twin = end_ns - twin->requests[i].arrival_ns > twin->slo_ns;
        result->late_in_run += late_in_run;
        result->late_in_twin += late_in_twin;
        result->late_by_handover += late_in_run && !late_in_twin;
    }
}

int core_twin_run(const struct core_twin *twin, struct core_twin_result *ret_result)
{
    uint64_t *idle_at_ns = twin_is_valid(twin) ? calloc(twin->devices, sizeof *idle_at_ns) : NULL;
    if (idle_at_ns == NULL) {
        return -1;
    }
    struct core_twin_result result = {0};
    uint32_t limit = batch_limit(twin);
    for (size_t next = 0; next < twin->count;) {
        uint64_t *idle = first_idle(idle_at_ns, twin->devices);
        uint64_t arrival_ns = twin->requests[next].arrival_ns;
        uint64_t start_ns = *idle > arrival_ns ? *idle : arrival_ns;
        uint32_t batch = 1;
        while (batch < limit && next + batch < twin->count &&
               twin->requests[next + batch].arrival_ns <= start_ns) {
            batch++;
        }
        *idle = core_add_u64(start_ns, batch_service(twin, next, batch));
        count_batch(twin, next, batch, *idle, &result);
        next += batch;
    }
    free(idle_at_ns);
    *ret_result = result;
    return 0;
}
