/* jobs.h: what the demo trains and serves. Three jobs on the handwritten digits:
 * "digits":      a small network, exported and served;
 * "digits-wide": a wide one, trained undisturbed, exported and served under load;
 * the same wide one again under that load, and then a long one that goes on.
 * Thread: one. */
#ifndef TIDEPOOL_DEMO_JOBS_H
#define TIDEPOOL_DEMO_JOBS_H

#include "clients/demo/server.h"

#define DEMO_SLO_MS 20.0
#define DEMO_WIDE_ROWS_MAX 256 /* largest batch of the wide model */

enum demo_job { DEMO_SMALL, DEMO_WIDE, DEMO_AGAIN, DEMO_LONG };

/* `steps` for DEMO_WIDE and DEMO_AGAIN, which must have as many as each other. */
int demo_job_submit(struct demo_server *server, enum demo_job kind, uint64_t steps,
                    Tidepool__V1__Job **ret_job, struct error *error);
/* How many steps of the wide network this machine makes in `seconds`, undisturbed: found by
 * training it for a moment. */
int demo_steps_measure(struct demo_server *server, double seconds, uint64_t *ret_steps,
                       struct error *error);
int demo_job_get(struct demo_server *server, const char *id, Tidepool__V1__Job **ret_job,
                 struct error *error);
/* Until it is over; an error unless it finished. */
int demo_job_wait(struct demo_server *server, const char *id, Tidepool__V1__Job **ret_job,
                  struct error *error);
int demo_job_cancel(struct demo_server *server, const char *id, struct error *error);
/* Serves a model of the demo's repository and waits until it is ready. */
int demo_serve(struct demo_server *server, const char *model, struct error *error);
int demo_device_fault(struct demo_server *server, bool fail, struct error *error);

/* An encoded request that costs one core about `wanted_ms`: the number of images in it is found by
 * trying. Writes what it costs and how many there are. */
int demo_request_make(struct demo_server *server, const char *endpoint, double wanted_ms,
                      unsigned char **ret_body, size_t *ret_length, double *ret_cost_ms,
                      uint32_t *ret_rows, struct error *error);

#endif
