#include "server/progress/standing.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/base/clock.h"

uint64_t standing_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void notice_free(struct progress_notice *notice)
{
    for (size_t i = 0; i < notice->device_count && notice->devices != NULL; i++) {
        free((char *)(uintptr_t)notice->devices[i]);
    }
    free((void *)(uintptr_t)notice->devices);
    free((void *)(uintptr_t)notice->ranks);
    free((char *)(uintptr_t)notice->reason);
    free((char *)(uintptr_t)notice->asked);
}

static int notice_copy(const struct progress_notice *notice, struct progress_notice *copy)
{
    char **devices = calloc(notice->device_count + 1, sizeof(*devices));
    uint32_t *ranks = calloc(notice->rank_count + 1, sizeof(*ranks));
    bool whole = devices != NULL && ranks != NULL;
    *copy = *notice;
    copy->reason = strdup(notice->reason);
    copy->asked = strdup(notice->asked);
    copy->devices = (const char *const *)devices;
    copy->ranks = ranks;
    for (size_t i = 0; i < notice->device_count && devices != NULL; i++) {
        devices[i] = strdup(notice->devices[i]);
        whole = whole && devices[i] != NULL;
    }
    if (notice->rank_count > 0 && ranks != NULL) {
        memcpy(ranks, notice->ranks, notice->rank_count * sizeof(*ranks));
    }
    return whole && copy->reason != NULL && copy->asked != NULL ? 0
                                                                : -(int)ERROR_RESOURCE_EXHAUSTED;
}

int standing_set(struct standing *standing, const struct progress_notice *notice)
{
    struct progress_notice copy;
    int result = notice_copy(notice, &copy);
    if (result < 0) {
        notice_free(&copy);
        return result;
    }
    standing_end(standing);
    *standing = (struct standing){.there = true, .notice = copy};
    return 0;
}

void standing_end(struct standing *standing)
{
    if (standing->there) {
        notice_free(&standing->notice);
    }
    *standing = (struct standing){0};
}
