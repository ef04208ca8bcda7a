#include "server/control/requests.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct remembered {
    struct store_request request; /* first; its texts lie behind the entry */
    TAILQ_ENTRY(remembered) by_age;
};

struct requests {
    void *tree;                      /* of entries, by id */
    TAILQ_HEAD(, remembered) by_age; /* oldest first */
    size_t count;
};

static int compare_ids(const void *left, const void *right)
{
    const struct store_request *a = left;
    const struct store_request *b = right;
    return strcmp(a->id, b->id);
}

struct requests *requests_create(void)
{
    struct requests *requests = calloc(1, sizeof *requests);
    if (requests != NULL) {
        TAILQ_INIT(&requests->by_age);
    }
    return requests;
}

static void remove_entry(struct requests *requests, struct remembered *entry)
{
    tdelete(entry, &requests->tree, compare_ids);
    TAILQ_REMOVE(&requests->by_age, entry, by_age);
    requests->count--;
    free(entry);
}

void requests_destroy(struct requests *requests)
{
    if (requests == NULL) {
        return;
    }
    while (!TAILQ_EMPTY(&requests->by_age)) {
        remove_entry(requests, TAILQ_FIRST(&requests->by_age));
    }
    free(requests);
}

static struct remembered *find(const struct requests *requests, const char *id)
{
    struct store_request key = {.id = id};
    struct remembered **node = tfind(&key, &requests->tree, compare_ids);
    return node != NULL ? *node : NULL;
}

static bool is_old(const struct remembered *entry, uint64_t now_wall_ns)
{
    uint64_t made_wall_ns = entry->request.made_wall_ns;
    return now_wall_ns > made_wall_ns && now_wall_ns - made_wall_ns >= STORE_REQUEST_NS;
}

static void forget_old(struct requests *requests, uint64_t now_wall_ns)
{
    struct remembered *oldest;
    while ((oldest = TAILQ_FIRST(&requests->by_age)) != NULL && is_old(oldest, now_wall_ns)) {
        remove_entry(requests, oldest);
    }
}

static struct remembered *entry_create(const struct store_request *request)
{
    size_t id_size = strlen(request->id) + 1;
    size_t job_size = strlen(request->job_id) + 1;
    struct remembered *entry = malloc(sizeof *entry + id_size + job_size);
    if (entry != NULL) {
        char *texts = (char *)(entry + 1);
        entry->request = *request;
        entry->request.id = memcpy(texts, request->id, id_size);
        entry->request.job_id = memcpy(texts + id_size, request->job_id, job_size);
    }
    return entry;
}

int requests_add(struct requests *requests, const struct store_request *request,
                 struct error *error)
{
    if (request->id[0] == '\0') {
        return 0;
    }
    forget_old(requests, request->made_wall_ns);
    requests_remove(requests, request->id);
    if (requests->count >= REQUESTS_MAX) {
        int result = error_set(error, ERROR_RESOURCE_EXHAUSTED,
                               "request id '%s': %d of the last 24 h are remembered already; call "
                               "without one, or later",
                               request->id, REQUESTS_MAX);
        error_set_bound(error, "request_ids", requests->count + 1, REQUESTS_MAX);
        return result;
    }
    struct remembered *entry = entry_create(request);
    if (entry == NULL || tsearch(entry, &requests->tree, compare_ids) == NULL) {
        free(entry);
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "request id: no memory");
    }
    TAILQ_INSERT_TAIL(&requests->by_age, entry, by_age);
    requests->count++;
    return 0;
}

const struct store_request *requests_find(struct requests *requests, const char *id,
                                          uint64_t now_wall_ns)
{
    struct remembered *entry = find(requests, id);
    return entry != NULL && !is_old(entry, now_wall_ns) ? &entry->request : NULL;
}

void requests_remove(struct requests *requests, const char *id)
{
    struct remembered *entry = find(requests, id);
    if (entry != NULL) {
        remove_entry(requests, entry);
    }
}
