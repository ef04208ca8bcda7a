#include "server/progress/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"

#define SMOOTHING 0.1  /* weight of the newest step time */
#define MEMORY_S 120.0 /* waiting is averaged over about this long */

void ranks_fini(struct ranks *ranks)
{
    free(ranks->table);
    *ranks = (struct ranks){0};
}

static void rank_reset(struct rank *rank)
{
    *rank = (struct rank){.step = -1, .checkpointed_step = -1, .step_s = (double)NAN};
}

static int ranks_allocate(struct ranks *ranks, uint32_t count)
{
    struct rank *table;
    if (count <= ranks->allocated) {
        return 0;
    }
    table = realloc(ranks->table, count * sizeof(*table));
    if (table == NULL) {
        return -(int)ERROR_RESOURCE_EXHAUSTED;
    }
    for (uint32_t i = ranks->allocated; i < count; i++) {
        rank_reset(&table[i]);
    }
    ranks->table = table;
    ranks->allocated = count;
    return 0;
}

int ranks_join(struct ranks *ranks, uint32_t number, uint32_t count, bool can_pause)
{
    uint32_t told = count > number ? count : number + 1;
    if (ranks_allocate(ranks, told) < 0) {
        return -(int)ERROR_RESOURCE_EXHAUSTED;
    }
    if (count > 0 || told > ranks->count) {
        ranks->count = told; /* fewer too: the job has started again with fewer */
    }
    ranks->table[number].connections++;
    ranks->table[number].can_pause += can_pause;
    return 0;
}

void ranks_leave(struct ranks *ranks, uint32_t number, bool can_pause)
{
    struct rank *rank = &ranks->table[number];
    rank->connections--;
    rank->can_pause -= can_pause;
    if (rank->connections == 0) {
        rank->told_ns = 0;
    }
    if (rank->connections == 0 && number >= ranks->count) {
        rank_reset(rank);
    }
}

static void waiting_add(struct rank *rank, double waiting_s, uint64_t now_ns)
{
    double since_s = (double)(now_ns - rank->told_ns) / 1e9;
    if (rank->told_ns == 0 || now_ns < rank->told_ns) {
        return; /* of time before we looked, or in which it stood still for us */
    }
    rank->observed_s += since_s;
    rank->waiting_s += fmin(waiting_s, since_s);
    if (rank->observed_s > MEMORY_S) {
        rank->observed_s /= 2;
        rank->waiting_s /= 2;
    }
}

void ranks_step(struct ranks *ranks, uint32_t number, const struct progress_message *message,
                uint64_t now_ns)
{
    struct rank *rank = &ranks->table[number];
    rank->step = message->step;
    if (message->checkpointed_step >= 0) {
        rank->checkpointed_step = message->checkpointed_step;
    }
    if (!isnan(message->step_s)) {
        rank->step_s = isnan(rank->step_s)
                           ? message->step_s
                           : rank->step_s + SMOOTHING * (message->step_s - rank->step_s);
    }
    if (!isnan(message->waiting_s)) {
        waiting_add(rank, message->waiting_s, now_ns);
    }
    rank->told_ns = now_ns;
}

void ranks_stand(struct ranks *ranks, uint32_t number)
{
    ranks->table[number].told_ns = 0;
}

static int times_compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void step_times(const struct ranks *ranks, struct ranks_figures *figures)
{
    double *times = malloc((ranks->count + 1) * sizeof(*times));
    uint32_t count = 0;
    for (uint32_t i = 0; i < ranks->count; i++) {
        double step_s = ranks->table[i].step_s;
        if (ranks->table[i].connections == 0 || isnan(step_s)) {
            continue;
        }
        if (!(step_s <= figures->slowest_step_s)) { /* the first one too */
            figures->slowest_step_s = step_s;
            figures->slowest = i;
        }
        if (times != NULL) {
            times[count++] = step_s;
        }
    }
    if (count > 0) {
        qsort(times, count, sizeof(*times), times_compare);
        figures->step_s = times[(count - 1) / 2];
    }
    free(times);
}

void ranks_figures(const struct ranks *ranks, struct ranks_figures *ret_figures)
{
    double waiting_s = 0, observed_s = 0;
    int64_t left = -1; /* told by those that are gone, too */
    *ret_figures = (struct ranks_figures){.ranks = ranks->count,
                                          .step = -1,
                                          .checkpointed_step = -1,
                                          .waiting_fraction = (double)NAN,
                                          .step_s = (double)NAN,
                                          .slowest_step_s = (double)NAN};
    for (uint32_t i = 0; i < ranks->count; i++) {
        const struct rank *rank = &ranks->table[i];
        int64_t saved = rank->checkpointed_step;
        if (saved >= 0 &&
            (ret_figures->checkpointed_step < 0 || saved < ret_figures->checkpointed_step)) {
            ret_figures->checkpointed_step = saved;
        }
        left = rank->step > left ? rank->step : left;
        if (rank->connections == 0) {
            continue;
        }
        ret_figures->here++;
        ret_figures->can_pause += rank->can_pause > 0;
        ret_figures->step = rank->step > ret_figures->step ? rank->step : ret_figures->step;
        waiting_s += rank->waiting_s;
        observed_s += rank->observed_s;
    }
    if (ret_figures->here == 0) {
        ret_figures->step = left;
    }
    if (observed_s > 0) {
        ret_figures->waiting_fraction = waiting_s / observed_s;
    }
    step_times(ranks, ret_figures);
}
