/* trace_reader.h: a trace while its files are read: what trace.c and trace_files.c share. */
#ifndef TIDEPOOL_CLIENTS_SIM_TRACE_READER_H
#define TIDEPOOL_CLIENTS_SIM_TRACE_READER_H

#include "clients/sim/elastic.h"
#include "clients/sim/names.h"
#include "clients/sim/rates.h"
#include "clients/sim/trace.h"

/* An elastic job waits for the measurements of its application: they may come in a later file. */
struct elastic_job {
    uint64_t submit_ns;
    uint32_t user_devices, tuned_devices;
    uint32_t workload;
    uint32_t application; /* index into reader.applications */
};

struct reader {
    const struct trace_options *options;
    struct trace *trace;
    const struct rows *rows; /* of the file being read */
    uint64_t offset_ns;      /* of that file */
    uint64_t before_ns;      /* its last arrival */
    struct rates rates;
    struct elastic elastic;
    struct trace_names applications; /* of elastic jobs */
    struct elastic_job *elastic_jobs;
    size_t elastic_count, elastic_capacity;
};

/* Both leave out what is not within the part of the trace that is played. */
int reader_add_request(struct reader *reader, const struct trace_request *request,
                       struct error *error);
int reader_add_job(struct reader *reader, const struct trace_job *job, struct error *error);

/* Reads one "FILE" or "FILE@SECONDS". */
int reader_read(struct reader *reader, const char *file, struct error *error);

#endif
