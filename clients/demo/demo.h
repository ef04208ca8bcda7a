/* demo.h: the whole of `make run`: what its parts share.
 * Thread: the main thread, but for the load, which has its own and is asked by snapshots. */
#ifndef TIDEPOOL_DEMO_DEMO_H
#define TIDEPOOL_DEMO_DEMO_H

#include <pthread.h>

#include "clients/common/load.h"
#include "clients/common/view.h"
#include "clients/demo/jobs.h"
#include "clients/demo/waves.h"

struct demo {
    const char *build, *config;
    double seconds; /* of the waves; 0: until q */
    bool terminal;  /* the live view, else plain lines */
    int signal_fd;
    struct demo_server server;
    struct view view;

    struct load *load;
    struct load_result *result;
    struct waves waves;
    pthread_t thread;
    bool thread_started;
    _Atomic bool load_over;
    uint64_t start_ns; /* of the waves */
    unsigned char *body;
    size_t body_length;
    double cost_ms;
    uint32_t rows;
    uint64_t steps; /* of the run that is compared */

    char again_id[128], long_id[128]; /* empty: not submitted yet */
    double alone_steps_per_s;         /* of the undisturbed run */
    uint64_t handovers_before, slices_before;
    uint32_t devices;
    Tidepool__V1__ExplainResponse *moves;
};

/* The waves with the live view (or lines), until their end, q or a signal. */
int demo_live(struct demo *demo, struct error *error);

/* What the run proved: figures on stdout and in BUILD/run.json. *ret_good: all as promised. */
int demo_prove(struct demo *demo, bool *ret_good, struct error *error);

#endif
