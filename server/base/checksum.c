#include "server/base/checksum.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL UINT64_C(0xc96c5795d7870f42)

static uint64_t table[8][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void table_fill(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t value = byte;
        for (int bit = 0; bit < 8; bit++) {
            value = value & 1 ? value >> 1 ^ POLYNOMIAL : value >> 1;
        }
        table[0][byte] = value;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        for (int i = 1; i < 8; i++) {
            uint64_t before = table[i - 1][byte];
            table[i][byte] = before >> 8 ^ table[0][before & 0xff];
        }
    }
}

uint64_t checksum_add(uint64_t checksum, const void *data, size_t length)
{
    const unsigned char *at = data;
    uint64_t sum = ~checksum;
    (void)pthread_once(&table_once, table_fill);
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, 8); /* little-endian, as all the formats here */
        word ^= sum;
        sum = 0;
        for (unsigned i = 0; i < 8; i++) {
            sum ^= table[7 - i][word >> (8 * i) & 0xff];
        }
    }
    for (; length > 0; at++, length--) {
        sum = table[0][(sum ^ *at) & 0xff] ^ sum >> 8;
    }
    return ~sum;
}
