/* fuzz_trace: trace files of every kind, damaged, into the simulator's reader, as they are and
 * compressed.
 *     fuzz_trace [ROUNDS [SEED]]
 * What is read must keep its promises: sorted, within the limits, names that exist; what is refused
 * says why. */
#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "clients/sim/trace.h"
#include "server/base/random.h"

#define ROUNDS 3000
#define TEXT_MAX 4096
#define FILES 3 /* of one round: elastic jobs need theirs */

static const char *const whole[] = {
    "arrival_s,endpoint,input_tokens,output_tokens\n0.5,a,100,10\n1,b,20,0\n77.299370,a,1,1\n",
    "t_s,endpoint,rate_rps,iat_cv,iat_family,iat_shape,mean_input_tokens,mean_output_tokens,gap\n"
    "0,a,0.05,1.2,Gamma,0.7,100,10,0\n600,a,0.0,,,,,,1\n1200,b,0.1,3,Weibull,0.4,50,5,0\n",
    "t_s,model,rate_rps,active_clients,top_client_share\n0,m,0.2,4,0.4\n600,m,0.1,3,0.5\n",
    "endpoint,field,p1,p5,p10,p25,p50,p75,p90,p95,p99,p99_9\n"
    "a,input_tokens,1,2,3,4,5,6,7,8,9,10\na,output_tokens,1,1,1,1,2,2,2,2,3,3\n",
    "job_id,submit_s,duration_s,num_gpus,group\n0,0,100,1,red\n1,60,5,8,blue\n",
    "workload,job,submit_s,application,tuned_gpus,tuned_batch,user_gpus,user_batch\n"
    "1,n-0,10,n,6,64,1,8\n2,n-1,20,n,2,64,4,8\n",
    "application,num_nodes,num_gpus,placement,batch_per_gpu,step_time_s,sync_time_s\n"
    "n,1,1,1,8,1.5,0\nn,1,2,2,8,1.0,0.2\nn,2,8,4+4,8,1.2,0.6\n",
    "application,batch_size,epoch,progress,iteration,metric,grad_sqr,grad_var\n"
    "n,8,1,50.0,50,0.5,1e-3,2e5\nn,8,2,100,100,0.4,,\nn,64,2,100,20,0.4,,\n",
};
#define KINDS (sizeof(whole) / sizeof(whole[0]))

static uint64_t random_state;

static size_t below(size_t limit)
{
    return (size_t)(random_next(&random_state) % limit);
}

/* Bytes changed, cut out, doubled; parts that look right put in the wrong place. */
static size_t text_damage(char *text, size_t length)
{
    static const char *const parts[] = {
        ",",        "\n",  "-1",           "1e309", "nan",      "18446744073709551616",
        "\xff\xfe", "0x1", "1000000000.1", "\r\n",  "999999999"};
    for (size_t times = below(4); times > 0 && length > 0; times--) {
        size_t at = below(length), count = 1 + below(20);
        count = count < length - at ? count : length - at;
        switch (below(4)) {
        case 0:
            text[at] = (char)below(256);
            break;
        case 1:
            memmove(text + at, text + at + count, length - at - count);
            length -= count;
            break;
        case 2:
            if (length + count <= TEXT_MAX) {
                memmove(text + at + count, text + at, length - at);
                length += count;
            }
            break;
        default: {
            const char *part = parts[below(sizeof(parts) / sizeof(parts[0]))];
            size_t size = strlen(part);
            if (length + size <= TEXT_MAX) {
                memmove(text + at + size, text + at, length - at);
                memcpy(text + at, part, size);
                length += size;
            }
        }
        }
    }
    return length;
}

static void file_make(char *name, const char *text, size_t length)
{
    strcpy(name, "/tmp/tidepool-fuzz-XXXXXX");
    int fd = mkstemp(name);
    assert(fd >= 0);
    if (below(3) > 0) {
        assert(write(fd, text, length) == (ssize_t)length);
        close(fd);
        return;
    }
    gzFile file = gzdopen(dup(fd), "wb");
    assert(length == 0 || gzwrite(file, text, (unsigned)length) == (int)length);
    assert(gzclose(file) == Z_OK);
    off_t size = lseek(fd, 0, SEEK_END);
    if (below(3) == 0) { /* also the compressed bytes get hurt */
        char byte = (char)below(256);
        assert(pwrite(fd, &byte, 1, (off_t)below((size_t)size)) == 1);
        assert(below(2) || ftruncate(fd, (off_t)below((size_t)size)) == 0);
    }
    close(fd);
}

static void trace_check(const struct trace *trace)
{
    for (size_t i = 0; i < trace->request_count; i++) {
        const struct trace_request *request = &trace->requests[i];
        assert(request->endpoint < trace->endpoints.count);
        assert(request->input_tokens <= TRACE_TOKENS_MAX);
        assert(request->output_tokens <= TRACE_TOKENS_MAX);
        assert(request->arrival_ns <= trace->end_ns);
        assert(i == 0 || request[-1].arrival_ns <= request->arrival_ns);
    }
    for (size_t i = 0; i < trace->job_count; i++) {
        const struct trace_job *job = &trace->jobs[i];
        assert(job->team < trace->teams.count);
        assert(job->devices_min >= 1 && job->devices_min <= job->devices);
        assert(job->devices <= job->devices_max);
        assert(job->application == TRACE_RIGID || job->application < trace->application_count);
        assert(trace_job_speed_milli(trace, job, job->devices) == 1000);
        assert(i == 0 || job[-1].submit_ns <= job->submit_ns);
    }
}

/* True: it was read. */
static bool round_play(void)
{
    char names[FILES][40], text[TEXT_MAX];
    const char *files[FILES];
    struct trace_options options;
    struct trace trace;
    struct error error = {0};
    trace_options_init(&options);
    options.rate_scale = 1e-3; /* a damaged rate may be a million a second */
    size_t first = below(KINDS);
    for (size_t i = 0; i < FILES; i++) {
        const char *from = whole[(first + i) % KINDS];
        memcpy(text, from, strlen(from));
        file_make(names[i], text, below(2) ? text_damage(text, strlen(from)) : strlen(from));
        files[i] = names[i];
    }
    int result = trace_read(files, FILES, &options, &trace, &error);
    for (size_t i = 0; i < FILES; i++) {
        unlink(names[i]);
    }
    if (result < 0) {
        assert(error.code != 0 && error.text[0] != '\0');
        return false;
    }
    trace_check(&trace);
    trace_free(&trace);
    return true;
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : ROUNDS;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    unsigned read = 0;
    printf("fuzz_trace: %u rounds, seed %" PRIu64 "\n", rounds, seed);
    random_state = seed;
    for (unsigned i = 0; i < rounds; i++) {
        read += round_play();
    }
    printf("fuzz_trace: %u read, %u refused\n", read, rounds - read);
    assert(read > rounds / 50 && read < rounds); /* both ways were gone */
    return 0;
}
