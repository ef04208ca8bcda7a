/* requests.h: ids that clients gave to calls which made something. A call that is repeated with the
 * same id, because its answer was lost, is answered and not done again. Inside the control room.
 * Time:    an id is remembered for STORE_REQUEST_NS of the wall clock; one set back remembers more.
 * Bound:   REQUESTS_MAX; a call with one more id is refused: to forget one early would be to do
 *          something twice.
 * Thread:  the control thread. */
#ifndef TIDEPOOL_CONTROL_REQUESTS_H
#define TIDEPOOL_CONTROL_REQUESTS_H

#include <stdint.h>

#include "server/base/error.h"
#include "server/store/store.h"

#define REQUESTS_MAX 100000

struct requests;

struct requests *requests_create(void);           /* NULL: no memory */
void requests_destroy(struct requests *requests); /* NULL is fine */
/* Copied; replaces what the id stood for. An empty id is nothing to remember. */
int requests_add(struct requests *requests, const struct store_request *request,
                 struct error *error);
/* NULL: unknown, or too old. Valid until the next call on `requests`. */
const struct store_request *requests_find(struct requests *requests, const char *id,
                                          uint64_t now_wall_ns);
void requests_remove(struct requests *requests, const char *id); /* unknown ones are fine */

#endif
