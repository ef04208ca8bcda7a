/* fake.h: a model whose runs the test controls, and requests whose answers it waits for.
 * Values:  one INT64 per row goes in and comes out. FAKE_BAD fails its batch, FAKE_LOST says that
 *          the device is gone, FAKE_GATE holds the run until fake_gate_open (or an abort). */
#ifndef TIDEPOOL_TESTS_SERVE_FAKE_H
#define TIDEPOOL_TESTS_SERVE_FAKE_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/serve/serve.h"
#include "server/serve/statistics.h"

#define FAKE_BAD INT64_C(-1)
#define FAKE_LOST INT64_C(-2)
#define FAKE_GATE INT64_C(-3)
#define FAKE_ROWS_MAX 64

struct fake_request {
    struct serve_request request; /* first */
    struct tensor input;
    int64_t values[FAKE_ROWS_MAX];
    int64_t results[FAKE_ROWS_MAX];
    _Atomic uint32_t answered; /* counts: must end at 1 */
    enum error_code status;
    char text[256];
};

/* All fake instances of the process. */
extern struct fake_world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t gated; /* runs that wait at the gate */
    bool open;      /* the gate */
    uint32_t runs, rows_max, requests_max, instances, aborts;
    pthread_t runner;  /* of the last run */
    bool two_in_a_run; /* of one instance, which only one may be in */
    bool fail_create;
    uint32_t events[SERVE_ENDPOINT_STOPPED + 1];
    struct serve_event last[SERVE_ENDPOINT_STOPPED + 1];
} fake_world;

extern const struct model_runtime fake_runtime;

void fake_reset(void);
void fake_notify(void *context, const struct serve_event *event);
/* A model of batch_max rows of one INT64; `variable`: the row's width is open. */
struct repository_model *fake_model(const char *name, uint32_t batch_max, bool variable);
void fake_request_init(struct fake_request *request, uint32_t rows, int64_t value);
void fake_request_wait(struct fake_request *request); /* until it is answered */
void fake_event_wait(enum serve_event_kind kind, uint32_t count);
void fake_gated_wait(uint32_t count);
void fake_gate_open(bool open);

#endif
