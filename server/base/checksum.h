/* checksum.h: CRC-64 (ECMA-182, reflected, as in xz), eight bytes at a time. */
#ifndef TIDEPOOL_BASE_CHECKSUM_H
#define TIDEPOOL_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from `checksum`; begin with 0. "123456789" gives 0x995dc9bbdf1939fa. */
uint64_t checksum_add(uint64_t checksum, const void *data, size_t length);

#endif
