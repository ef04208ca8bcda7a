#include "server/net/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t path_hash(const char *path, size_t length)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a */
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)path[i]) * UINT64_C(0x100000001B3);
    }
    return hash ^ hash >> 32;
}

static bool route_add(struct routes *routes, const struct grpc_service *service, size_t number,
                      const struct grpc_method *method)
{
    char *path = NULL;
    int length = asprintf(&path, "/%s/%s", service->name, method->name);
    if (length < 0) {
        return false;
    }
    size_t slot = path_hash(path, (size_t)length) & (routes->slot_count - 1);
    while (routes->slots[slot].path != NULL) {
        slot = (slot + 1) & (routes->slot_count - 1);
    }
    routes->slots[slot] = (struct route){
        .path = path,
        .path_length = (size_t)length,
        .method = method,
        .service = service,
        .service_bit = UINT64_C(1) << (number & 63),
    };
    return true;
}

bool routes_init(struct routes *routes, const struct grpc_service *services, size_t count)
{
    size_t methods = 0;
    for (size_t i = 0; i < count; i++) {
        methods += services[i].method_count;
    }
    routes->slot_count = 16;
    while (routes->slot_count < methods * 2) {
        routes->slot_count *= 2;
    }
    routes->slots = calloc(routes->slot_count, sizeof *routes->slots);
    if (routes->slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < services[i].method_count; j++) {
            if (!route_add(routes, &services[i], i, &services[i].methods[j])) {
                return false;
            }
        }
    }
    return true;
}

void routes_fini(struct routes *routes)
{
    for (size_t i = 0; routes->slots != NULL && i < routes->slot_count; i++) {
        free(routes->slots[i].path);
    }
    free(routes->slots);
    *routes = (struct routes){0};
}

const struct route *routes_find(const struct routes *routes, const char *path, size_t length)
{
    size_t slot = path_hash(path, length) & (routes->slot_count - 1);
    for (; routes->slots[slot].path != NULL; slot = (slot + 1) & (routes->slot_count - 1)) {
        const struct route *route = &routes->slots[slot];
        if (route->path_length == length && memcmp(route->path, path, length) == 0) {
            return route;
        }
    }
    return NULL;
}
