/* campaign.c: see campaign.h. */
#include "tests/sim/campaign.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/sim/shrink.h"
#include "tests/sim/world.h"

#define WORKERS_MAX 64
#define WORKER_SECONDS 3600

struct worker {
    uint64_t seed; /* that it works on */
    struct campaign_total total;
};

/* Between the processes. */
struct board {
    uint64_t end;
    _Atomic uint64_t next;
    _Atomic bool failed;
    struct worker workers[WORKERS_MAX];
};

struct job {
    struct board *board;
    struct worker *worker;
};

static void play_seed(uint64_t seed, FILE *record, struct campaign_total *total)
{
    struct world *world = world_create_recorded(seed, seed % 2 == 1, record);
    world_play(world, CAMPAIGN_SCHEDULE);
    world_settle(world);
    total->seeds++;
    total->steps += world_rig(world)->steps;
    total->crashes += world_crashes(world);
    for (int kind = 0; kind < CORE_ACTION_COUNT; kind++) {
        total->actions[kind] += world_rig(world)->total[kind];
    }
    world_destroy(world);
}

static void work(void *context)
{
    struct job *job = context;
    while (!job->board->failed) {
        job->worker->seed = atomic_fetch_add(&job->board->next, 1);
        if (job->worker->seed >= job->board->end) {
            break;
        }
        play_seed(job->worker->seed, NULL, &job->worker->total);
    }
}

static void total_add(struct campaign_total *total, const struct campaign_total *part)
{
    total->seeds += part->seeds;
    total->steps += part->steps;
    total->crashes += part->crashes;
    for (int kind = 0; kind < CORE_ACTION_COUNT; kind++) {
        total->actions[kind] += part->actions[kind];
    }
}

static long worker_count(void)
{
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > WORKERS_MAX ? WORKERS_MAX : count;
}

uint64_t campaign_run(const struct campaign *campaign, struct campaign_total *ret_total)
{
    struct trial trials[WORKERS_MAX];
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t failed = 0;
    if (board == MAP_FAILED) {
        perror("a campaign's memory");
        exit(1);
    }
    atomic_init(&board->next, campaign->seed);
    board->end = campaign->seed + (campaign->events + CAMPAIGN_SCHEDULE - 1) / CAMPAIGN_SCHEDULE;
    for (long i = 0; i < worker_count(); i++) {
        struct job job = {board, &board->workers[i]};
        trials[i] = trial_begin(work, &job, WORKER_SECONDS);
    }
    memset(ret_total, 0, sizeof *ret_total);
    for (long i = 0; i < worker_count(); i++) {
        struct trial_end end;
        trial_wait(&trials[i], &end);
        total_add(ret_total, &board->workers[i].total);
        if (end.failed) {
            board->failed = true; /* the others stop after their seed */
            failed = failed == 0 ? board->workers[i].seed : failed;
            printf("seed %" PRIu64 " fails: %s\n", board->workers[i].seed, end.text);
        }
    }
    munmap(board, sizeof *board);
    if (failed != 0 && campaign->path != NULL) {
        campaign_explain(failed, campaign->path);
    }
    return failed;
}

/* ---- one failure ---- */

struct recording {
    uint64_t seed;
    char path[512];
};

static void record(void *context)
{
    const struct recording *recording = context;
    struct campaign_total total = {0};
    FILE *file = fopen(recording->path, "w");
    if (file == NULL) {
        perror(recording->path);
        _exit(1);
    }
    play_seed(recording->seed, file, &total);
    fclose(file);
}

static bool read_recording(const struct recording *recording, struct script *script)
{
    char error[256];
    FILE *file = fopen(recording->path, "r");
    bool right = file != NULL && script_read(script, file, error, sizeof error);
    if (file != NULL) {
        fclose(file);
    }
    if (!right) {
        printf("%s: %s\n", recording->path, file != NULL ? error : "not there");
    }
    return right;
}

static void write_short(const struct recording *recording, const struct script *script,
                        const struct trial_end *end)
{
    FILE *file = fopen(recording->path, "w");
    if (file == NULL) {
        perror(recording->path);
        return;
    }
    fprintf(file, "# seed %" PRIu64 " failed; shrunk to what is needed for it:\n#   %s\n",
            recording->seed, end->reason);
    script_write(script, file);
    fclose(file);
    printf("%zu events are enough, in %s:\n", script->count, recording->path);
    script_write(script, stdout);
    printf("  %s\nKeep it: move it to tests/sim/scenarios/ under a name that says what it is.\n",
           end->text);
}

bool campaign_explain(uint64_t seed, const char *path)
{
    struct recording recording = {.seed = seed};
    struct script script = {0};
    struct trial_end end;
    mkdir(path, 0777);
    snprintf(recording.path, sizeof recording.path, "%s/seed-%" PRIu64 ".scenario", path, seed);
    struct trial trial = trial_begin(record, &recording, WORKER_SECONDS);
    trial_wait(&trial, &end);
    if (!end.failed) {
        printf("seed %" PRIu64 " does not fail by itself\n", seed);
        return false;
    }
    if (read_recording(&recording, &script)) {
        if (shrink(&script, &end)) {
            write_short(&recording, &script, &end);
        } else {
            printf("its events alone do not fail: they are in %s\n", recording.path);
        }
    }
    script_fini(&script);
    return true;
}
