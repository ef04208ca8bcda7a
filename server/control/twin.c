#include "server/control/twin.h"

#include <stdlib.h>
#include <string.h>

#include "server/core/twin.h"

struct twin {
    struct core_twin_request *requests; /* answered, not judged; sorted by arrival up to `sorted` */
    size_t count, sorted, capacity;
    struct twin_totals totals;
};

struct twin *twin_create(void)
{
    return calloc(1, sizeof(struct twin));
}

void twin_destroy(struct twin *twin)
{
    if (twin != NULL) {
        free(twin->requests);
        free(twin);
    }
}

static int reserve(struct twin *twin, size_t count)
{
    if (twin->count + count <= twin->capacity) {
        return 0;
    }
    size_t capacity = (twin->count + count) * 2;
    struct core_twin_request *grown = realloc(twin->requests, capacity * sizeof twin->requests[0]);
    if (grown == NULL) {
        return -1;
    }
    twin->requests = grown;
    twin->capacity = capacity;
    return 0;
}

int twin_add(struct twin *twin, const struct recorded_request *requests, size_t count)
{
    if (reserve(twin, count) < 0) {
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        twin->requests[twin->count++] = (struct core_twin_request){
            .arrival_ns = requests[i].arrival_ns, .latency_ns = requests[i].latency_ns};
    }
    return 0;
}

static int by_arrival(const void *left, const void *right)
{
    const struct core_twin_request *a = left;
    const struct core_twin_request *b = right;
    return (a->arrival_ns > b->arrival_ns) - (a->arrival_ns < b->arrival_ns);
}

static void sort(struct twin *twin)
{
    if (twin->sorted < twin->count) {
        qsort(twin->requests, twin->count, sizeof twin->requests[0], by_arrival);
        twin->sorted = twin->count;
    }
}

/* The largest n ≤ limit so that the first n were all answered before the next arrival. Arrivals of
 * the same instant stay together. 0: there is no such moment. */
static size_t find_cut(const struct twin *twin, size_t limit)
{
    size_t cut = 0;
    uint64_t busy_until_ns = 0;
    for (size_t i = 0; i < limit; i++) {
        const struct core_twin_request *request = &twin->requests[i];
        if (i > 0 && request->arrival_ns > busy_until_ns) {
            cut = i;
        }
        uint64_t end_ns = request->arrival_ns + request->latency_ns;
        busy_until_ns = end_ns > busy_until_ns ? end_ns : busy_until_ns;
    }
    return cut;
}

static void judge(struct twin *twin, const struct twin_subject *subject, size_t count)
{
    uint64_t service_ns[CORE_BATCH_SIZES] = {0};
    struct core_twin_result result = {0};
    for (uint32_t i = 0; i < CORE_BATCH_SIZES; i++) {
        service_ns[i] = service_table_ns(subject->service, 1u << i);
    }
    struct core_twin replay = {.requests = twin->requests,
                               .count = count,
                               .devices = subject->devices,
                               .slo_ns = subject->slo_ns,
                               .batch_max = subject->batch_max,
                               .service_ns = service_ns};
    /* Without measured times nothing can be played again; without memory neither. */
    if (subject->service->count > 0 && core_twin_run(&replay, &result) == 0) {
        twin->totals.requests += count;
        twin->totals.late += result.late_in_run;
        twin->totals.late_by_handover += result.late_by_handover;
    }
    memmove(twin->requests, twin->requests + count,
            (twin->count - count) * sizeof twin->requests[0]);
    twin->count -= count;
    twin->sorted -= count;
}

void twin_advance(struct twin *twin, const struct twin_subject *subject, uint64_t now_ns,
                  uint64_t settle_ns)
{
    sort(twin);
    /* A request that arrived before others may be answered after them: only what arrived
     * settle_ns ago is surely complete. */
    size_t settled = twin->count;
    while (settled > 0 && twin->requests[settled - 1].arrival_ns + settle_ns > now_ns) {
        settled--;
    }
    size_t count = settled == twin->count ? settled : find_cut(twin, settled);
    if (count == 0 && settled >= TWIN_PIECE_MAX) {
        count = settled;
    }
    if (count > 0) {
        judge(twin, subject, count);
    }
}

struct twin_totals twin_totals(const struct twin *twin)
{
    return twin->totals;
}
