/* address.h: a shim's socket by its directory, however long the directory's path is (an address in
 * the kernel's form holds 107 bytes). */
#ifndef TIDEPOOL_SHIM_ADDRESS_H
#define TIDEPOOL_SHIM_ADDRESS_H

#include <sys/un.h>

#include "server/base/error.h"

struct shim_address {
    int directory;
    struct sockaddr_un name; /* valid while the address is open */
};

int shim_address_open(struct shim_address *address, const char *directory, struct error *error);
void shim_address_close(struct shim_address *address);

#endif
