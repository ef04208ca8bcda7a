#include "server/rpc/health.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "server/rpc/infer_message.h"

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus ServingStatus;
#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

/* Bounded by the calls that the server holds open at once. */
struct watch {
    struct watch *next, *previous;
    struct health *health;
    struct grpc_call *call;
    ServingStatus told;
    bool ending;
    char name[]; /* of the service */
};

struct health {
    struct serve *serve;
    /* Held while statuses are sent, so that they go out in the order of the changes; never while
     * a call is finished, since finish waits for on_gone, which takes it. */
    pthread_mutex_t lock;
    struct watch *watches;
    struct watch *ended; /* by health_close; kept, since on_drained may still be on its way */
    bool closed;
};

/* ---- what is so -------------------------------------------------------------------------------
 */

static ServingStatus status_of(struct health *health, const char *name)
{
    struct endpoint *endpoint;
    ServingStatus status;
    if (name[0] == '\0' || strcmp(name, "inference.GRPCInferenceService") == 0) {
        return serve_ready(health->serve) ? STATUS(SERVING) : STATUS(NOT_SERVING);
    }
    endpoint = endpoint_find(health->serve, name, strlen(name));
    if (endpoint == NULL) {
        return STATUS(SERVICE_UNKNOWN);
    }
    status = endpoint_ready(endpoint) && !serve_draining(health->serve) ? STATUS(SERVING)
                                                                        : STATUS(NOT_SERVING);
    endpoint_release(endpoint);
    return status;
}

static void check(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Grpc__Health__V1__HealthCheckRequest *request =
        (const Grpc__Health__V1__HealthCheckRequest *)message;
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = status_of(context, request->service);
    if (response.status == STATUS(SERVICE_UNKNOWN)) {
        grpc_call_finish(call, ERROR_NOT_FOUND, "no such service or model");
    } else {
        grpc_call_reply(call, &response.base);
    }
}

/* ---- watches ----------------------------------------------------------------------------------
 */

/* Under the lock. What a slow reader has not taken yet is followed by the newest state only: the
 * next one is sent when the stream has drained. */
static void watch_tell(struct watch *watch)
{
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    ServingStatus status = status_of(watch->health, watch->name);
    if (status == watch->told || grpc_call_waiting_bytes(watch->call) > 0) {
        return;
    }
    response.status = status;
    if (grpc_call_send(watch->call, &response.base) == 0) {
        watch->told = status;
    }
}

/* Under the lock. */
static void watch_unlink(struct watch *watch)
{
    if (watch->previous != NULL) {
        watch->previous->next = watch->next;
    } else {
        watch->health->watches = watch->next;
    }
    if (watch->next != NULL) {
        watch->next->previous = watch->previous;
    }
}

static void on_drained(void *arg)
{
    struct watch *watch = arg;
    (void)pthread_mutex_lock(&watch->health->lock);
    if (!watch->ending) {
        watch_tell(watch);
    }
    (void)pthread_mutex_unlock(&watch->health->lock);
}

/* Network thread: the client has left. */
static void on_gone(void *arg)
{
    struct watch *watch = arg;
    bool ours;
    (void)pthread_mutex_lock(&watch->health->lock);
    ours = !watch->ending;
    if (ours) {
        watch_unlink(watch);
    }
    (void)pthread_mutex_unlock(&watch->health->lock);
    if (ours) { /* else health_close finishes it */
        grpc_call_finish(watch->call, ERROR_CANCELLED, NULL);
        free(watch);
    }
}

static void watch_begin(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Grpc__Health__V1__HealthCheckRequest *request =
        (const Grpc__Health__V1__HealthCheckRequest *)message;
    struct health *health = context;
    size_t size = strlen(request->service) + 1;
    struct watch *watch = calloc(1, sizeof(*watch) + size);
    bool closed;
    if (watch == NULL) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for a watch");
        return;
    }
    watch->health = health;
    watch->call = call;
    watch->told = STATUS(UNKNOWN);
    memcpy(watch->name, request->service, size);
    grpc_call_on_cancel(call, on_gone, watch);
    grpc_call_on_drained(call, on_drained, watch);
    (void)pthread_mutex_lock(&health->lock);
    watch_tell(watch);
    closed = health->closed;
    if (closed) {
        watch->ending = true;
    } else {
        watch->next = health->watches;
        if (watch->next != NULL) {
            watch->next->previous = watch;
        }
        health->watches = watch;
    }
    (void)pthread_mutex_unlock(&health->lock);
    if (closed) {
        grpc_call_finish(call, ERROR_UNAVAILABLE, "the server is shutting down");
        free(watch);
    }
}

/* Any thread: something may have become ready, or no longer be. */
static void on_readiness(void *context)
{
    struct health *health = context;
    (void)pthread_mutex_lock(&health->lock);
    for (struct watch *watch = health->watches; watch != NULL; watch = watch->next) {
        watch_tell(watch);
    }
    (void)pthread_mutex_unlock(&health->lock);
}

void health_close(struct health *health)
{
    struct watch *watches, *next;
    (void)pthread_mutex_lock(&health->lock);
    health->closed = true;
    watches = health->watches;
    health->watches = NULL;
    for (struct watch *watch = watches; watch != NULL; watch = watch->next) {
        watch_tell(watch);
        watch->ending = true;
    }
    (void)pthread_mutex_unlock(&health->lock);
    for (struct watch *watch = watches; watch != NULL; watch = next) {
        next = watch->next;
        grpc_call_finish(watch->call, ERROR_UNAVAILABLE, "the server is shutting down");
        watch->next = health->ended; /* only this thread looks at the list */
        health->ended = watch;
    }
}

/* ---- life -------------------------------------------------------------------------------------
 */

static const struct grpc_method methods[] = {
    {"Check", GRPC_UNARY, &grpc__health__v1__health_check_request__descriptor, check},
    {"Watch", GRPC_SERVER_STREAM, &grpc__health__v1__health_check_request__descriptor, watch_begin},
};

struct health *health_create(struct serve *serve, struct error *error)
{
    struct health *health = calloc(1, sizeof(*health));
    if (health == NULL) {
        (void)error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory for the health service");
        return NULL;
    }
    health->serve = serve;
    (void)pthread_mutex_init(&health->lock, NULL);
    serve_on_readiness(serve, on_readiness, health);
    return health;
}

void health_destroy(struct health *health)
{
    if (health != NULL) {
        serve_on_readiness(health->serve, NULL, NULL);
        while (health->ended != NULL) {
            struct watch *next = health->ended->next;
            free(health->ended);
            health->ended = next;
        }
        (void)pthread_mutex_destroy(&health->lock);
        free(health);
    }
}

struct grpc_service health_service(struct health *health)
{
    return (struct grpc_service){
        .name = "grpc.health.v1.Health",
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .context = health,
    };
}
