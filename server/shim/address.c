#include "server/shim/address.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int shim_address_open(struct shim_address *address, const char *directory, struct error *error)
{
    *address = (struct shim_address){.name = {.sun_family = AF_UNIX}};
    address->directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (address->directory < 0) {
        return error_set_errno(error, errno, "open shim directory '%s'", directory);
    }
    (void)snprintf(address->name.sun_path, sizeof(address->name.sun_path),
                   "/proc/self/fd/%d/socket", address->directory);
    return 0;
}

void shim_address_close(struct shim_address *address)
{
    if (address->directory >= 0) {
        (void)close(address->directory);
    }
    address->directory = -1;
}
