/* The endpoints by name and by number: coming, being found, being asked, going. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/serve/state.h"

static uint32_t bucket_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)name[i]) * 16777619u;
    }
    return (hash ^ hash >> 16) % NAME_BUCKETS;
}

/* Under serve.names. */
static struct endpoint **name_link(struct serve *serve, const char *name, size_t length)
{
    struct endpoint **link = &serve->buckets[bucket_of(name, length)];
    /* The name from outside may hold any byte, also a NUL. */
    while (*link != NULL && (strlen(endpoint_name(*link)) != length ||
                             memcmp(endpoint_name(*link), name, length) != 0)) {
        link = &(*link)->name_next;
    }
    return link;
}

struct endpoint *endpoint_find(struct serve *serve, const char *name, size_t name_length)
{
    struct endpoint *endpoint;
    if (name_length == 0 || name_length > MODEL_NAME_MAX) {
        return NULL;
    }
    (void)pthread_mutex_lock(&serve->names);
    endpoint = *name_link(serve, name, name_length);
    if (endpoint != NULL) {
        (void)endpoint_hold(endpoint);
    }
    (void)pthread_mutex_unlock(&serve->names);
    return endpoint;
}

struct endpoint *serve_endpoint_at(struct serve *serve, uint64_t number)
{
    struct endpoint *endpoint = serve->endpoints;
    while (endpoint != NULL && endpoint->number != number) {
        endpoint = endpoint->next;
    }
    return endpoint;
}

struct endpoint *serve_endpoint_hold(struct serve *serve, uint64_t number)
{
    struct endpoint *endpoint;
    (void)pthread_mutex_lock(&serve->names);
    endpoint = serve_endpoint_at(serve, number);
    if (endpoint != NULL) {
        (void)endpoint_hold(endpoint);
    }
    (void)pthread_mutex_unlock(&serve->names);
    return endpoint;
}

/* The list is kept in the order of the names. */
size_t serve_endpoints(struct serve *serve, struct endpoint **ret_endpoints, size_t capacity)
{
    size_t count = 0;
    (void)pthread_mutex_lock(&serve->names);
    for (struct endpoint *endpoint = serve->endpoints; endpoint != NULL;
         endpoint = endpoint->next) {
        if (count < capacity) {
            ret_endpoints[count] = endpoint_hold(endpoint);
        }
        count++;
    }
    (void)pthread_mutex_unlock(&serve->names);
    return count;
}

int serve_endpoint_add(struct serve *serve, uint64_t number, struct repository_model *model,
                       struct error *error)
{
    const char *name = model->config.name;
    struct endpoint **place, **link = &serve->endpoints;
    struct endpoint *endpoint = endpoint_create(serve, number, model, error);
    int result = 0;
    if (endpoint == NULL) {
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    (void)pthread_mutex_lock(&serve->control);
    (void)pthread_mutex_lock(&serve->names);
    place = name_link(serve, name, strlen(name));
    if (*place != NULL || serve_endpoint_at(serve, number) != NULL) {
        result = error_set(error, ERROR_ALREADY_EXISTS,
                           "an endpoint '%s' is there already; remove it first or choose another "
                           "name",
                           name);
    } else {
        *place = endpoint;
        while (*link != NULL && strcmp(endpoint_name(*link), name) < 0) {
            link = &(*link)->next;
        }
        endpoint->next = *link;
        *link = endpoint;
    }
    (void)pthread_mutex_unlock(&serve->names);
    (void)pthread_mutex_unlock(&serve->control);
    if (result < 0) {
        endpoint->model = NULL; /* stays the caller's */
        endpoint_release(endpoint);
        return result;
    }
    serve_readiness_changed(serve);
    return 0;
}

bool endpoint_stopped_now(struct endpoint *endpoint)
{
    if (endpoint->stopped || !atomic_load(&endpoint->stopping)) {
        return false;
    }
    for (uint32_t i = 0; i < DEVICES_MAX; i++) {
        if (endpoint->placements[i].state != PLACEMENT_ABSENT) {
            return false;
        }
    }
    endpoint->stopped = true;
    return true;
}

/* Its list entry goes only now, so that its figures can be read and no number comes twice. */
void endpoint_tell_stopped(struct endpoint *endpoint)
{
    struct serve *serve = endpoint->serve;
    struct serve_event event = {.kind = SERVE_ENDPOINT_STOPPED, .endpoint = endpoint->number};
    struct endpoint **link = &serve->endpoints;
    endpoint_fail_waiting(endpoint, ERROR_UNAVAILABLE,
                          "the model was removed and no device has it any more");
    (void)pthread_mutex_lock(&serve->control);
    (void)pthread_mutex_lock(&serve->names);
    while (*link != endpoint) {
        link = &(*link)->next;
    }
    *link = endpoint->next;
    (void)pthread_mutex_unlock(&serve->names);
    (void)pthread_mutex_unlock(&serve->control);
    serve_notify(serve, &event);
    serve_readiness_changed(serve);
    endpoint_release(endpoint);
}

void serve_endpoint_remove(struct serve *serve, uint64_t number)
{
    struct endpoint *endpoint;
    bool stopped = false;
    (void)pthread_mutex_lock(&serve->control);
    (void)pthread_mutex_lock(&serve->names);
    endpoint = serve_endpoint_at(serve, number);
    if (endpoint != NULL && !atomic_exchange(&endpoint->stopping, true)) {
        struct endpoint **link =
            name_link(serve, endpoint_name(endpoint), strlen(endpoint_name(endpoint)));
        *link = endpoint->name_next;
        stopped = endpoint_stopped_now(endpoint);
    }
    (void)pthread_mutex_unlock(&serve->names);
    (void)pthread_mutex_unlock(&serve->control);
    if (endpoint != NULL && stopped) {
        endpoint_tell_stopped(endpoint);
    }
    serve_readiness_changed(serve);
}

/* ---- settings --------------------------------------------------------------------------------
 */

void serve_endpoint_set(struct serve *serve, uint64_t number, uint64_t slo_ns, int32_t priority)
{
    struct endpoint *endpoint = serve_endpoint_hold(serve, number);
    if (endpoint == NULL) {
        return;
    }
    atomic_store(&endpoint->priority, priority);
    if (atomic_exchange(&endpoint->slo_ns, slo_ns) != slo_ns) {
        for (uint32_t i = 0; i < serve->devices->count; i++) {
            worker_change(&serve->workers[i], CHANGE_SLO, NULL);
        }
    }
    endpoint_release(endpoint);
}

/* ---- figures ----------------------------------------------------------------------------------
 */

int serve_endpoint_sample(struct serve *serve, uint64_t number, uint64_t now_ns,
                          struct serve_sample *ret_sample)
{
    struct endpoint *endpoint = serve_endpoint_hold(serve, number);
    struct endpoint_statistics statistics;
    uint64_t oldest_ns;
    if (endpoint == NULL) {
        return -ERROR_NOT_FOUND;
    }
    endpoint_statistics(endpoint, &statistics);
    *ret_sample = (struct serve_sample){
        .arrivals = statistics.arrivals,
        .busy_ns = statistics.busy_ns,
        .instances_ready = (uint32_t)__builtin_popcountll(endpoint_serving(endpoint)),
        .running = atomic_load(&endpoint->running),
        .state = endpoint_state(endpoint),
    };
    (void)pthread_mutex_lock(&endpoint->lock);
    oldest_ns = queue_oldest_ns(&endpoint->queue);
    ret_sample->queue_length = endpoint->queue.count;
    ret_sample->queue_rows = endpoint->queue.rows;
    ret_sample->queue_bytes = endpoint->queue.bytes;
    ret_sample->oldest_wait_ns = oldest_ns < now_ns ? now_ns - oldest_ns : 0;
    ret_sample->projected_wait_ns = endpoint_projected_ns(endpoint, now_ns, false);
    (void)pthread_mutex_unlock(&endpoint->lock);
    endpoint_release(endpoint);
    return 0;
}

int serve_endpoint_service(struct serve *serve, uint64_t number, const char *device_kind,
                           struct service_table *ret_table)
{
    struct endpoint *endpoint = serve_endpoint_hold(serve, number);
    int result = -ERROR_NOT_FOUND;
    if (endpoint == NULL) {
        return result;
    }
    for (uint32_t i = 0; i < serve->kind_count; i++) {
        if (strcmp(serve->kinds[i], device_kind) == 0) {
            (void)pthread_mutex_lock(&endpoint->lock);
            *ret_table = endpoint->tables[i];
            (void)pthread_mutex_unlock(&endpoint->lock);
            result = 0;
        }
    }
    endpoint_release(endpoint);
    return result;
}

int serve_endpoint_reason(struct serve *serve, uint64_t number, char *ret_text, size_t size)
{
    struct endpoint *endpoint;
    (void)pthread_mutex_lock(&serve->control);
    endpoint = serve_endpoint_at(serve, number);
    if (endpoint != NULL) {
        (void)snprintf(ret_text, size, "%s", endpoint->reason);
    }
    (void)pthread_mutex_unlock(&serve->control);
    return endpoint != NULL ? 0 : -ERROR_NOT_FOUND;
}
