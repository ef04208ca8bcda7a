/* routes.h: from a request's path to a method. Built once, then read by all threads. */
#ifndef TIDEPOOL_NET_ROUTES_H
#define TIDEPOOL_NET_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/net/grpc.h"

struct route {
    char *path; /* "/package.Service/Method" */
    size_t path_length;
    const struct grpc_method *method;
    const struct grpc_service *service;
    uint64_t service_bit; /* of a listener's service_mask */
};

struct routes {
    struct route *slots; /* open addressing, a power of two, at most half full */
    size_t slot_count;
};

bool routes_init(struct routes *routes, const struct grpc_service *services, size_t count);
void routes_fini(struct routes *routes);
const struct route *routes_find(const struct routes *routes, const char *path, size_t length);

#endif
