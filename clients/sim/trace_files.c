/* trace_files.c: the kinds of file that make up a trace, by their header lines. */
#include <stdlib.h>
#include <string.h>

#include "clients/sim/array.h"
#include "clients/sim/trace_reader.h"

#define DEVICES_MAX 1e6 /* of one job */

static int name_number(struct reader *reader, struct trace_names *names, const char *what,
                       const char *name, uint32_t *ret_number, struct error *error)
{
    int result = names_intern(names, name, TRACE_NAMES_MAX, ret_number);
    return result == 0 ? 0
                       : rows_refuse(reader->rows, error, "more than %u different %s, or no memory",
                                     TRACE_NAMES_MAX, what);
}

/* ---- kinds of file --------------------------------------------------------------------------- */

struct request_row {
    uint64_t arrival_ns;
    const char *endpoint;
    uint64_t input_tokens, output_tokens;
};

static const struct column request_columns[] = {
    {"arrival_s", COLUMN_TIME, offsetof(struct request_row, arrival_ns), 0, ROWS_SECONDS_MAX},
    {"endpoint", COLUMN_NAME, offsetof(struct request_row, endpoint)},
    {"input_tokens", COLUMN_COUNT, offsetof(struct request_row, input_tokens), 0, TRACE_TOKENS_MAX},
    {"output_tokens", COLUMN_COUNT, offsetof(struct request_row, output_tokens), 0,
     TRACE_TOKENS_MAX},
};

static int request_row_add(struct reader *reader, const void *row, struct error *error)
{
    const struct request_row *request = row;
    struct trace_request made = {
        .input_tokens = (uint32_t)request->input_tokens,
        .output_tokens = (uint32_t)request->output_tokens,
    };
    if (request->arrival_ns < reader->before_ns) {
        return rows_refuse(reader->rows, error,
                           "column 1 (arrival_s): before the line above it; sort the file by it");
    }
    reader->before_ns = request->arrival_ns;
    double arrival_ns = (double)(request->arrival_ns + reader->offset_ns);
    made.arrival_ns = reader->options->time_scale == 1
                          ? request->arrival_ns + reader->offset_ns
                          : (uint64_t)(arrival_ns * reader->options->time_scale);
    int result = name_number(reader, &reader->trace->endpoints, "endpoints", request->endpoint,
                             &made.endpoint, error);
    return result < 0 ? result : reader_add_request(reader, &made, error);
}

static int rate_row_add(struct reader *reader, const void *row, struct error *error)
{
    return rates_add(&reader->rates, reader->rows, row, reader->offset_ns, error);
}

static int total_row_add(struct reader *reader, const void *row, struct error *error)
{
    return rates_add_total(&reader->rates, reader->rows, row, reader->offset_ns, error);
}

static int length_row_add(struct reader *reader, const void *row, struct error *error)
{
    return rates_add_lengths(&reader->rates, reader->rows, row, error);
}

struct job_row {
    uint64_t job, submit_ns, duration_ns, devices;
    const char *group;
};

static const struct column job_columns[] = {
    {"job_id", COLUMN_COUNT, offsetof(struct job_row, job), 0, 1e18},
    {"submit_s", COLUMN_TIME, offsetof(struct job_row, submit_ns), 0, ROWS_SECONDS_MAX},
    {"duration_s", COLUMN_TIME, offsetof(struct job_row, duration_ns), 0, ROWS_SECONDS_MAX},
    {"num_gpus", COLUMN_COUNT, offsetof(struct job_row, devices), 1, DEVICES_MAX},
    {"group", COLUMN_NAME, offsetof(struct job_row, group)},
};

static int job_row_add(struct reader *reader, const void *row, struct error *error)
{
    const struct job_row *job = row;
    struct trace_job made = {
        .submit_ns = job->submit_ns + reader->offset_ns,
        .duration_ns = job->duration_ns,
        .devices = (uint32_t)job->devices,
        .devices_min = (uint32_t)job->devices,
        .devices_max = (uint32_t)job->devices,
        .application = TRACE_RIGID,
    };
    int result =
        name_number(reader, &reader->trace->teams, "groups", job->group, &made.team, error);
    return result < 0 ? result : reader_add_job(reader, &made, error);
}

struct elastic_row {
    uint64_t workload, submit_ns;
    const char *job, *application;
    uint64_t tuned_devices, tuned_batch, user_devices, user_batch;
};

static const struct column elastic_columns[] = {
    {"workload", COLUMN_COUNT, offsetof(struct elastic_row, workload), 1, 1e6},
    {"job", COLUMN_NAME, offsetof(struct elastic_row, job)},
    {"submit_s", COLUMN_TIME, offsetof(struct elastic_row, submit_ns), 0, ROWS_SECONDS_MAX},
    {"application", COLUMN_NAME, offsetof(struct elastic_row, application)},
    {"tuned_gpus", COLUMN_COUNT, offsetof(struct elastic_row, tuned_devices), 1, DEVICES_MAX},
    {"tuned_batch", COLUMN_COUNT, offsetof(struct elastic_row, tuned_batch), 1, 1e9},
    {"user_gpus", COLUMN_COUNT, offsetof(struct elastic_row, user_devices), 1, DEVICES_MAX},
    {"user_batch", COLUMN_COUNT, offsetof(struct elastic_row, user_batch), 1, 1e9},
};

static int elastic_row_add(struct reader *reader, const void *row, struct error *error)
{
    const struct elastic_row *job = row;
    struct elastic_job made = {
        .submit_ns = job->submit_ns + reader->offset_ns,
        .user_devices = (uint32_t)job->user_devices,
        .tuned_devices = (uint32_t)job->tuned_devices,
        .workload = (uint32_t)job->workload,
    };
    if (reader->options->workload != 0 && reader->options->workload != job->workload) {
        return 0;
    }
    int result = name_number(reader, &reader->applications, "applications", job->application,
                             &made.application, error);
    if (result < 0) {
        return result;
    }
    struct elastic_job *grown =
        array_room(reader->elastic_jobs, reader->elastic_count, &reader->elastic_capacity,
                   sizeof(*grown), TRACE_JOBS_MAX);
    if (grown == NULL) {
        return rows_refuse(reader->rows, error, "more jobs than the limit of %u, or no memory",
                           TRACE_JOBS_MAX);
    }
    reader->elastic_jobs = grown;
    grown[reader->elastic_count++] = made;
    return 0;
}

static int step_time_row_add(struct reader *reader, const void *row, struct error *error)
{
    return elastic_add_step_time(&reader->elastic, reader->rows, row, error);
}

static int convergence_row_add(struct reader *reader, const void *row, struct error *error)
{
    return elastic_add_convergence(&reader->elastic, reader->rows, row, error);
}

enum file_kind {
    FILE_REQUESTS,
    FILE_RATES,
    FILE_TOTALS,
    FILE_LENGTHS,
    FILE_JOBS,
    FILE_ELASTIC_JOBS,
    FILE_STEP_TIMES,
    FILE_CONVERGENCE,
    FILE_KINDS,
};

typedef int row_add(struct reader *reader, const void *row, struct error *error);
static row_add *const row_adders[FILE_KINDS] = {
    [FILE_REQUESTS] = request_row_add,
    [FILE_RATES] = rate_row_add,
    [FILE_TOTALS] = total_row_add,
    [FILE_LENGTHS] = length_row_add,
    [FILE_JOBS] = job_row_add,
    [FILE_ELASTIC_JOBS] = elastic_row_add,
    [FILE_STEP_TIMES] = step_time_row_add,
    [FILE_CONVERGENCE] = convergence_row_add,
};

union any_row {
    struct request_row request;
    struct rate_row rate;
    struct total_row total;
    struct length_row length;
    struct job_row job;
    struct elastic_row elastic;
    struct step_time_row step_time;
    struct convergence_row convergence;
};

#define COLUMNS(columns) columns, sizeof(columns) / sizeof((columns)[0])

/* ---- files ----------------------------------------------------------------------------------- */

/* Takes "@SECONDS" off the end of the name, if it is there. */
static uint64_t offset_take(char *path)
{
    char *at = strrchr(path, '@');
    uint64_t offset_ns = 0;
    if (at != NULL && seconds_parse(at + 1, ROWS_SECONDS_MAX, &offset_ns)) {
        *at = '\0';
    }
    return offset_ns;
}

static int file_read(struct reader *reader, const char *path, struct error *error)
{
    const struct row_table tables[FILE_KINDS] = {
        [FILE_REQUESTS] = {"requests", COLUMNS(request_columns)},
        [FILE_RATES] = rate_table,
        [FILE_TOTALS] = total_table,
        [FILE_LENGTHS] = length_table,
        [FILE_JOBS] = {"jobs", COLUMNS(job_columns)},
        [FILE_ELASTIC_JOBS] = {"elastic jobs", COLUMNS(elastic_columns)},
        [FILE_STEP_TIMES] = step_time_table,
        [FILE_CONVERGENCE] = convergence_table,
    };
    struct rows *rows = NULL;
    union any_row row;
    size_t kind = 0;
    int result = rows_open(path, tables, FILE_KINDS, &rows, &kind, error);
    if (result < 0) {
        return result;
    }
    reader->rows = rows;
    reader->before_ns = 0;
    while ((result = rows_next(rows, &row, error)) == 1) {
        result = row_adders[kind](reader, &row, error);
        if (result < 0) {
            break;
        }
    }
    rows_close(rows);
    reader->rows = NULL;
    return result;
}

int reader_read(struct reader *reader, const char *file, struct error *error)
{
    char *path = strdup(file);
    if (path == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "trace: no memory");
    }
    reader->offset_ns = offset_take(path);
    int result = file_read(reader, path, error);
    free(path);
    return result;
}
