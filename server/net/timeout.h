/* timeout.h: the grpc-timeout header. */
#ifndef TIDEPOOL_NET_TIMEOUT_H
#define TIDEPOOL_NET_TIMEOUT_H

#include <stddef.h>
#include <stdint.h>

/* 1 to 8 digits and a unit (H M S m u n), nothing else. A value beyond the range of ns becomes
 * UINT64_MAX. -ERROR_INTERNAL when malformed. */
int timeout_parse(const char *text, size_t length, uint64_t *ret_ns);

#endif
