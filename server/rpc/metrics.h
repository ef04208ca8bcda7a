/* metrics.h: what the metrics page shows (docs/operations.md lists it). Inside rpc only.
 * Thread:  the HTTP thread. */
#ifndef TIDEPOOL_RPC_METRICS_H
#define TIDEPOOL_RPC_METRICS_H

#include "server/rpc/pages.h"

/* The page, to be freed by the caller; NULL: no memory. */
char *metrics_write(const struct pages *pages, size_t *ret_length);

#endif
