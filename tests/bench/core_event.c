/* core_event.c: what one event costs the core, per kind of event.
 *     core_event [--devices N] [--leases N] [--endpoints N] [--events N] [--settle S] [--seed N]
 *                [--json]
 * Events of S seconds pass first, unmeasured. Prints a line a kind: events, median, 99th
 * percentile, longest, in microseconds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/crowd.h"

struct costs {
    uint32_t *ns;
    size_t count, capacity;
};

static const char *const names[CORE_EVENT_COUNT] = {
    [CORE_EVENT_TIMER] = "timer",
    [CORE_EVENT_DEVICE_ADDED] = "device added",
    [CORE_EVENT_DEVICE_REMOVED] = "device removed",
    [CORE_EVENT_DEVICE_FAILED] = "device failed",
    [CORE_EVENT_DEVICE_RECOVERED] = "device recovered",
    [CORE_EVENT_DEVICE_SLOW] = "device slow",
    [CORE_EVENT_DEVICE_SPEED] = "device speed",
    [CORE_EVENT_DEVICE_CORDONED] = "device cordoned",
    [CORE_EVENT_DEVICE_RECLAIM_BY] = "device reclaim",
    [CORE_EVENT_DEVICE_SAMPLE] = "device sample",
    [CORE_EVENT_ENDPOINT_CHANGED] = "endpoint changed",
    [CORE_EVENT_ENDPOINT_SERVICE] = "endpoint service",
    [CORE_EVENT_ENDPOINT_SAMPLE] = "endpoint sample",
    [CORE_EVENT_ENDPOINT_DANGER] = "endpoint danger",
    [CORE_EVENT_INSTANCE_READY] = "instance ready",
    [CORE_EVENT_INSTANCE_FAILED] = "instance failed",
    [CORE_EVENT_INSTANCE_STOPPED] = "instance stopped",
    [CORE_EVENT_LEASE_REQUESTED] = "lease requested",
    [CORE_EVENT_LEASE_RESIZED] = "lease resized",
    [CORE_EVENT_LEASE_PAUSED] = "lease paused",
    [CORE_EVENT_LEASE_RESUMED] = "lease resumed",
    [CORE_EVENT_LEASE_CANCELLED] = "lease cancelled",
    [CORE_EVENT_LEASE_PROGRESS] = "lease progress",
    [CORE_EVENT_LEASE_HEARTBEAT] = "lease heartbeat",
    [CORE_EVENT_JOB_EXITED] = "job exited",
    [CORE_EVENT_REVOKE_ACKNOWLEDGED] = "revoke acknowledged",
    [CORE_EVENT_RELEASE_VERIFIED] = "release verified",
    [CORE_EVENT_ACTION_DONE] = "action done",
    [CORE_EVENT_ACTION_FAILED] = "action failed",
    [CORE_EVENT_SUSPENDED] = "suspended",
    [CORE_EVENT_RESUMED] = "resumed",
};

static void costs_add(struct costs *costs, uint64_t ns)
{
    if (costs->count == costs->capacity) {
        costs->capacity = costs->capacity * 2 + 256;
        costs->ns = realloc(costs->ns, costs->capacity * sizeof *costs->ns);
        if (costs->ns == NULL) {
            abort();
        }
    }
    costs->ns[costs->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static int compare(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* In microseconds; of sorted costs. */
static double quantile(const struct costs *costs, double share)
{
    size_t at = (size_t)(share * (double)costs->count);
    return costs->ns[at < costs->count ? at : costs->count - 1] / 1000.0;
}

static void print(struct costs *costs, bool json)
{
    const char *separator = "";
    printf(json ? "{" : "%-22s %9s %9s %9s %9s\n", "event", "count", "p50 us", "p99 us", "max us");
    for (int kind = 0; kind < CORE_EVENT_COUNT; kind++) {
        struct costs *of = &costs[kind];
        if (of->count == 0) {
            continue;
        }
        qsort(of->ns, of->count, sizeof *of->ns, compare);
        const char *name = names[kind] != NULL ? names[kind] : "other";
        if (json) {
            printf("%s\"%s\": {\"count\": %zu, \"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": "
                   "%.3f}",
                   separator, name, of->count, quantile(of, 0.5), quantile(of, 0.99),
                   quantile(of, 1));
            separator = ", ";
        } else {
            printf("%-22s %9zu %9.2f %9.2f %9.2f\n", name, of->count, quantile(of, 0.5),
                   quantile(of, 0.99), quantile(of, 1));
        }
    }
    printf(json ? "}\n" : "");
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return strtoull(argv[i + 1], NULL, 10);
        }
    }
    return otherwise;
}

int main(int argc, char **argv)
{
    struct crowd_size size = {.devices = (uint32_t)option(argc, argv, "--devices", 64),
                              .leases = (uint32_t)option(argc, argv, "--leases", 24),
                              .endpoints = (uint32_t)option(argc, argv, "--endpoints", 7)};
    uint64_t events = option(argc, argv, "--events", 300000);
    struct crowd *crowd = crowd_create(&size, option(argc, argv, "--seed", 1));
    struct costs *costs = calloc(CORE_EVENT_COUNT, sizeof *costs);
    if (crowd == NULL || costs == NULL) {
        fprintf(stderr, "core_event: no memory for %u devices\n", size.devices);
        return 1;
    }
    uint64_t settled_ns = crowd_now_ns(crowd) + option(argc, argv, "--settle", 300) * 1000000000;
    while (crowd_now_ns(crowd) < settled_ns) {
        struct core_event event = crowd_next(crowd);
        crowd_step(crowd, &event);
    }
    for (uint64_t i = 0; i < events; i++) {
        struct core_event event = crowd_next(crowd);
        costs_add(&costs[event.kind], crowd_step(crowd, &event));
    }
    print(costs, argc > 1 && strcmp(argv[argc - 1], "--json") == 0);
    for (int kind = 0; kind < CORE_EVENT_COUNT; kind++) {
        free(costs[kind].ns);
    }
    free(costs);
    crowd_destroy(crowd);
    return 0;
}
