/* studies: runs of the simulator with more than its options say: jobs with priorities, a gang on
 * all of a large pool, a pool of two kinds, a whole year. tests/bench/training_sim.py compares
 * them. studies jobs DEVICES TIME_SCALE FROM_S UNTIL_S RECLAIMS_PER_H FILE... studies effective
 * DEVICES GANG DAYS FAULT_H CHECKPOINT_S DETECT_S RESTORE_S studies kinds DEVICES TIME_SCALE FILE
 *     studies year DEVICES MONTHS
 * Prints one JSON object. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/baselines.h"
#include "clients/sim/sim.h"

#define SECOND UINT64_C(1000000000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define GIB (UINT64_C(1) << 30)
#define ALL_KINDS ((1u << CORE_KINDS_MAX) - 1)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void fail(const struct error *error)
{
    fprintf(stderr, "studies: %s\n", error->text);
    exit(1);
}

static void *allocated(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (memory == NULL) {
        fprintf(stderr, "studies: no memory\n");
        exit(1);
    }
    return memory;
}

static struct policy_choice choice_of(const char *text)
{
    struct policy_choice choice;
    struct error error = {0};
    if (sim_policy_parse(text, &choice, &error) < 0) {
        fail(&error);
    }
    return choice;
}

static struct sim_result played(const struct sim_setup *setup, const char *policy)
{
    struct policy_choice choice = choice_of(policy);
    struct sim_result result;
    struct error error = {0};
    if (engine_run(setup, &choice, &result, &error) < 0) {
        fail(&error);
    }
    if (!result.ledger_balanced) {
        fprintf(stderr, "studies: the ledger of '%s' does not balance\n", policy);
        exit(1);
    }
    return result;
}

/* As if drawn, but the same everywhere. */
static uint64_t mixed(uint64_t number)
{
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

static void rung_add(struct sim_setup *setup, enum core_rung rung, double take_s, double give_s)
{
    setup->rungs[setup->rung_count++] = (struct sim_rung){
        .rung = rung,
        .take_ns = (uint64_t)(take_s * 1e9),
        .give_ns = (uint64_t)(give_s * 1e9),
    };
}

static void set(json_t *object, const char *name, double value)
{
    json_object_set_new(object, name, isnan(value) ? json_null() : json_real(value));
}

static json_t *numbers(const struct sim_result *result)
{
    json_t *object = json_object();
    set(object, "harvest", result->harvest_fraction);
    set(object, "lost", result->lost_work_fraction);
    set(object, "goodput", result->goodput_fraction);
    set(object, "effective", result->effective_training_fraction);
    set(object, "handovers", result->handovers_per_device_hour);
    set(object, "span_s", result->span_s);
    set(object, "wall_s", result->wall_s);
    set(object, "jobs_finished", (double)result->jobs_finished);
    set(object, "reclaims", (double)result->reclaims);
    set(object, "faults", (double)result->faults);
    set(object, "events", (double)result->events);
    return object;
}

/* ---- jobs: with priorities and teams, under a provider that takes devices back ---- */

enum { CLASS_ALL, CLASS_URGENT, CLASS_NORMAL, CLASS_COMPLETION, CLASSES };

/* From submission to the first grant, or to the end: to that of the run, where there is none. */
struct waits {
    const struct sim_setup *setup;
    double *of[CLASSES];
    size_t count[CLASSES];
};

static double span_s(const struct waits *waits, const struct sim_job *job, uint64_t until_ns)
{
    uint64_t end_ns = until_ns != ENGINE_NEVER_NS ? until_ns : waits->setup->end_ns;
    return (double)(end_ns - job->submit_ns) / 1e9;
}

static void on_job(void *context, uint32_t job, uint64_t granted_ns, uint64_t ended_ns)
{
    struct waits *waits = context;
    const struct sim_job *spec = &waits->setup->jobs[job];
    int class = spec->priority > 0 ? CLASS_URGENT : CLASS_NORMAL;
    double wait_s = span_s(waits, spec, granted_ns);
    waits->of[CLASS_ALL][waits->count[CLASS_ALL]++] = wait_s;
    waits->of[class][waits->count[class]++] = wait_s;
    waits->of[CLASS_COMPLETION][waits->count[CLASS_COMPLETION]++] = span_s(waits, spec, ended_ns);
}

static int compare_seconds(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static json_t *spread(double *values, size_t count)
{
    double sum = 0;
    qsort(values, count, sizeof *values, compare_seconds);
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return count == 0 ? json_null()
                      : json_pack("{s:f,s:f,s:f}", "mean", sum / (double)count, "p50",
                                  values[count / 2], "p99", values[count * 99 / 100]);
}

static json_t *jobs_played(struct sim_setup setup, const char *policy)
{
    static const char *const names[CLASSES] = {"wait", "wait_urgent", "wait_normal", "completion"};
    struct waits waits = {.setup = &setup};
    setup.observer = (struct sim_observer){.context = &waits, .job = on_job};
    for (int i = 0; i < CLASSES; i++) {
        waits.of[i] = allocated(setup.job_count, sizeof *waits.of[i]);
    }
    struct sim_result result = played(&setup, policy);
    json_t *object = numbers(&result);
    for (int i = 0; i < CLASSES; i++) {
        json_object_set_new(object, names[i], spread(waits.of[i], waits.count[i]));
        free(waits.of[i]);
    }
    return object;
}

/* Submitted over so much more time, to fit the pool; those who do not end in a while after that
 * never will. */
static void jobs_spread(struct sim *sim, double scale)
{
    size_t count = sim->workload.job_count;
    for (size_t i = 0; i < count; i++) {
        struct sim_job *job = &sim->workload.jobs[i];
        job->submit_ns = (uint64_t)((double)job->submit_ns * scale);
    }
    sim->setup.end_ns = 2 * sim->workload.jobs[count - 1].submit_ns + 2 * DAY;
}

/* Every fifth job is urgent. */
static void priorities_set(struct sim *sim)
{
    for (size_t i = 0; i < sim->workload.job_count; i++) {
        sim->workload.jobs[i].priority = mixed(i + 1) % 5 == 0 ? 10 : 0;
    }
}

/* What was recorded on one size runs on half to twice as many, as well as the elastic jobs that
 * were measured do on average (speed on 1 to 8 devices; thousandths of one). */
static void elastic_make(struct sim_job *job)
{
    static const uint32_t speed[] = {1000, 1800, 2550, 3300, 3650, 4000, 4350, 4700};
    uint32_t asked = job->devices_min;
    if (asked != job->devices_max || asked > COUNT(speed)) {
        return; /* elastic already, or larger than was measured */
    }
    job->devices_min = (asked + 1) / 2;
    job->devices_max = asked * 2 < COUNT(speed) ? asked * 2 : (uint32_t)COUNT(speed);
    for (uint32_t i = 0; i < COUNT(speed); i++) {
        job->speed_permille[i] = 1000 * asked * speed[i] / speed[asked - 1];
    }
}

static struct sim_job *rigid_made(const struct sim *sim)
{
    struct sim_job *rigid = allocated(sim->workload.job_count, sizeof *rigid);
    for (size_t i = 0; i < sim->workload.job_count; i++) {
        rigid[i] = sim->workload.jobs[i];
        rigid[i].devices_min = rigid[i].devices_max = sim->trace.jobs[i].devices;
    }
    return rigid;
}

/* Trainers that devices join and leave between micro-batches, beside jobs of their own processes on
 * the size that was asked for. */
static json_t *jobs_variants(struct sim *sim)
{
    struct sim_setup elastic = sim->setup, rigid = sim->setup;
    for (size_t i = 0; i < sim->workload.job_count; i++) {
        elastic_make(&sim->workload.jobs[i]);
    }
    struct sim_job *rigid_jobs = rigid_made(sim);
    elastic.rung_count = rigid.rung_count = 0;
    rung_add(&elastic, CORE_RUNG_YIELD, 0.5, 10);
    rung_add(&rigid, CORE_RUNG_NOTICE, 30, 10);
    rigid.jobs = rigid_jobs;
    json_t *root =
        json_pack("{s:o,s:o,s:o}", "elastic", jobs_played(elastic, "tidepool"), "rigid",
                  jobs_played(rigid, "tidepool"), "fifo", jobs_played(rigid, "static:serving=0"));
    free(rigid_jobs);
    return root;
}

static json_t *study_jobs(char **arguments, int count)
{
    struct sim_options options;
    struct error error = {0};
    struct sim sim = {0};
    sim_options_init(&options);
    options.devices = strtol(arguments[0], NULL, 10);
    options.from_s = strtod(arguments[2], NULL);
    options.until_s = strtod(arguments[3], NULL);
    options.reclaims_per_h = strtod(arguments[4], NULL);
    options.jobs = (const char *const *)arguments + 5;
    options.job_files = (size_t)count - 5;
    options.restore_s = 60;
    options.until_done = true;
    if (sim_open(&options, &sim, &error) < 0) {
        fail(&error);
    }
    jobs_spread(&sim, strtod(arguments[1], NULL));
    priorities_set(&sim);
    json_t *root = jobs_variants(&sim);
    json_object_set_new(root, "jobs", json_integer((json_int_t)sim.workload.job_count));
    sim_close(&sim);
    return root;
}

/* ---- effective: one gang on all of a large pool ---- */

static json_t *study_effective(char **arguments, int count)
{
    uint32_t devices = (uint32_t)strtoul(arguments[0], NULL, 10);
    uint32_t gang = (uint32_t)strtoul(arguments[1], NULL, 10);
    double fault_h = strtod(arguments[3], NULL);
    struct sim_job job = {
        .devices_min = gang,
        .devices_max = gang,
        .checkpoint_ns = (uint64_t)(strtod(arguments[4], NULL) * 1e9),
        .restore_ns = (uint64_t)(strtod(arguments[6], NULL) * 1e9),
        .kinds_mask = ALL_KINDS,
    };
    struct sim_setup setup = {
        .jobs = &job,
        .job_count = 1,
        .device_count = devices,
        .slo_ns = SECOND,
        .end_ns = (uint64_t)(strtod(arguments[2], NULL) * (double)DAY),
        .late_budget = 0.005,
        .hold_ns = ENGINE_NEVER_NS,
        .seed = 1,
        .faults = {.device_mtbf_ns = (uint64_t)(fault_h * devices * (double)HOUR),
                   .device_repair_ns = HOUR,
                   .detect_ns = (uint64_t)(strtod(arguments[5], NULL) * 1e9),
                   .slow_factor_milli = 1000},
    };
    (void)count;
    rung_add(&setup, CORE_RUNG_NOTICE, 30, 0);
    struct sim_result result = played(&setup, "tidepool");
    return numbers(&result);
}

/* ---- kinds: fast ones with little memory, slow ones with much ---- */

static void kinds_set(const struct sim_setup *setup, struct sim_device *devices)
{
    for (uint32_t i = 0; i < setup->device_count; i++) {
        bool large = i % 2 == 1;
        devices[i] = (struct sim_device){.kind = large, .memory_bytes = (large ? 96 : 24) * GIB};
    }
}

static const struct core_kind_spec measured[] = {
    {.kind = 0, .speed_permille = {[CORE_WORK_COMPUTE] = 1600, [CORE_WORK_MEMORY] = 700}},
    {.kind = 1, .speed_permille = {[CORE_WORK_COMPUTE] = 600, [CORE_WORK_MEMORY] = 1000}},
};

/* Half of the jobs are limited by arithmetic, half by memory: a third of those also need more of it
 * than the fast kind has. */
static void works_set(struct sim *sim)
{
    for (size_t i = 0; i < sim->workload.job_count; i++) {
        struct sim_job *job = &sim->workload.jobs[i];
        uint64_t drawn = mixed(i + 1) % 6;
        job->work = drawn < 3 ? CORE_WORK_COMPUTE : CORE_WORK_MEMORY;
        job->memory_bytes = drawn == 5 ? 64 * GIB : 16 * GIB;
        for (size_t kind = 0; kind < COUNT(measured); kind++) {
            job->kind_permille[kind] = measured[kind].speed_permille[job->work];
        }
    }
}

static json_t *study_kinds(char **arguments, int count)
{
    struct sim_options options;
    struct error error = {0};
    struct sim sim = {0};
    sim_options_init(&options);
    options.devices = strtol(arguments[0], NULL, 10);
    options.jobs = (const char *const *)arguments + 2;
    options.job_files = (size_t)count - 2;
    options.rungs = "notice";
    options.until_done = true;
    if (sim_open(&options, &sim, &error) < 0) {
        fail(&error);
    }
    struct sim_device *devices = allocated(sim.setup.device_count, sizeof *devices);
    jobs_spread(&sim, strtod(arguments[1], NULL));
    kinds_set(&sim.setup, devices);
    works_set(&sim);
    sim.setup.devices = devices;
    sim.setup.kinds = measured;
    sim.setup.kind_count = COUNT(measured);
    json_t *root = json_pack("{s:o,s:o,s:o}", "aware", jobs_played(sim.setup, "tidepool"), "blind",
                             jobs_played(sim.setup, "tidepool:kind_speeds=0"), "fifo",
                             jobs_played(sim.setup, "static:serving=0"));
    sim_close(&sim);
    free(devices);
    return root;
}

/* ---- year: memory in use after each month ---- */

#define MONTH (30 * DAY)

struct year {
    uint64_t next_ns;
    size_t peak, month_peak[13];
};

/* Called at about every change of a device: looks once an hour. */
static void on_span(void *context, uint32_t device, enum core_account account, uint64_t from_ns,
                    uint64_t to_ns)
{
    struct year *year = context;
    (void)device;
    (void)account;
    (void)from_ns;
    if (to_ns < year->next_ns) {
        return;
    }
    struct mallinfo2 info = mallinfo2();
    size_t used = info.uordblks + info.hblkhd;
    year->next_ns = to_ns + HOUR;
    year->peak = used > year->peak ? used : year->peak;
    year->month_peak[to_ns / MONTH < 12 ? to_ns / MONTH : 12] = year->peak;
}

#define YEAR_ENDPOINTS 4
#define REQUEST_GAP (240 * SECOND)
#define JOB_GAP (3600 * SECOND)

/* Bursts of requests all day, more of them by day; jobs of one to four devices come all the time.
 */
static void year_fill(struct sim_request *requests, size_t request_count, struct sim_job *jobs,
                      size_t job_count)
{
    for (size_t i = 0; i < request_count; i++) {
        uint64_t at = i * REQUEST_GAP, burst = at / (600 * SECOND);
        bool day = at % DAY > 8 * HOUR && at % DAY < 18 * HOUR;
        requests[i] = (struct sim_request){
            .arrival_ns = at - at % (600 * SECOND) / (mixed(burst) % 4 + 1),
            .service_ns = (1 + mixed(i) % (day ? 8 : 2)) * SECOND,
            .endpoint = (uint32_t)(mixed(burst) >> 8) % YEAR_ENDPOINTS,
        };
    }
    for (size_t i = 0; i < job_count; i++) {
        uint32_t devices = 1u << mixed(i) % 3;
        jobs[i] = (struct sim_job){
            .submit_ns = i * JOB_GAP,
            .work_ns = devices * (60 + mixed(i + 7) % 3600) * SECOND,
            .devices_min = devices,
            .devices_max = devices * (1 + mixed(i) % 2),
            .checkpoint_ns = 600 * SECOND,
            .team = 1 + (uint32_t)(mixed(i) >> 8) % 5,
            .kinds_mask = ALL_KINDS,
        };
    }
}

static json_t *study_year(char **arguments, int count)
{
    static const char *const names[YEAR_ENDPOINTS] = {"one", "two", "three", "four"};
    uint64_t end_ns = strtoul(arguments[1], NULL, 10) * MONTH;
    struct year year = {0};
    struct sim_setup setup = {
        .request_count = end_ns / REQUEST_GAP,
        .endpoint_count = YEAR_ENDPOINTS,
        .endpoint_names = names,
        .job_count = end_ns / JOB_GAP,
        .device_count = (uint32_t)strtoul(arguments[0], NULL, 10),
        .slo_ns = SECOND,
        .end_ns = end_ns,
        .late_budget = 0.01,
        .hold_ns = ENGINE_NEVER_NS,
        .seed = 1,
        .faults = {.device_mtbf_ns = 500 * HOUR,
                   .device_repair_ns = HOUR,
                   .reclaim_every_ns = 6 * HOUR,
                   .reclaim_notice_ns = 120 * SECOND,
                   .reclaim_away_ns = HOUR,
                   .slow_factor_milli = 1000},
        .observer = {.context = &year, .span = on_span},
    };
    struct sim_request *requests = allocated(setup.request_count, sizeof *requests);
    struct sim_job *jobs = allocated(setup.job_count, sizeof *jobs);
    (void)count;
    year_fill(requests, setup.request_count, jobs, setup.job_count);
    setup.requests = requests;
    setup.jobs = jobs;
    rung_add(&setup, CORE_RUNG_NOTICE, 30, 10);
    struct mallinfo2 before = mallinfo2();
    struct sim_result result = played(&setup, "tidepool:sample_ms=1000");
    json_t *root = numbers(&result), *months = json_array();
    for (uint64_t i = 0; i < end_ns / MONTH; i++) {
        json_array_append_new(months, json_integer((json_int_t)year.month_peak[i]));
    }
    json_object_set_new(root, "input_bytes",
                        json_integer((json_int_t)(before.uordblks + before.hblkhd)));
    json_object_set_new(root, "month_peak_bytes", months);
    free(requests);
    free(jobs);
    return root;
}

int main(int argc, char **argv)
{
    static const struct study {
        const char *name;
        int least;
        json_t *(*run)(char **arguments, int count);
    } studies[] = {
        {"jobs", 6, study_jobs},
        {"effective", 7, study_effective},
        {"kinds", 3, study_kinds},
        {"year", 2, study_year},
    };
    for (size_t i = 0; argc > 1 && i < COUNT(studies); i++) {
        if (strcmp(argv[1], studies[i].name) == 0 && argc - 2 >= studies[i].least) {
            json_t *root = studies[i].run(argv + 2, argc - 2);
            json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(12));
            json_decref(root);
            return 0;
        }
    }
    fprintf(stderr, "usage: studies jobs|effective|kinds|year ARGUMENTS: see the source's head\n");
    return 2;
}
