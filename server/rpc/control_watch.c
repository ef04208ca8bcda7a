/* control_watch.c: the Watch streams: all objects, then what changes.
 * A pass sends, in the order of their revisions, the objects that changed after what the stream has
 * seen: at once those whose state changed, others when the stream's interval is over. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"
#include "server/control/view.h"
#include "server/rpc/control_encode.h"
#include "server/rpc/control_service.h"

#define INTERVAL_STANDARD_MS 1000
#define INTERVAL_MINIMUM_MS 100

struct watcher {
    struct control_call letter; /* first; starts the stream */
    struct watcher *next;
    struct control_service *service;
    struct grpc_call *call;
    uint64_t interval_ns;
    uint64_t state_seen;   /* changes of state up to here have been sent */
    uint64_t figures_seen; /* all changes up to here: from here a client may go on */
    uint64_t figures_ns;   /* when that was */
    uint64_t after_revision;
    bool ended;                 /* finished; only waits for its letter */
    _Atomic bool cancel_posted; /* set on a network thread */
};

/* ---- the end
 * ------------------------------------------------------------------------------------------- */

static void unlink_watcher(struct watcher *watcher)
{
    struct watcher **link = &watcher->service->own.watchers;
    while (*link != NULL && *link != watcher) {
        link = &(*link)->next;
    }
    if (*link == watcher) {
        *link = watcher->next;
    }
}

static void watcher_end(struct watcher *watcher, enum error_code status, const char *text)
{
    unlink_watcher(watcher);
    /* After this no callback runs any more. */
    grpc_call_finish(watcher->call, status, text);
    watcher->ended = true;
    if (!atomic_load(&watcher->cancel_posted)) {
        free(watcher);
    }
}

static void run_cancelled(struct control *control, struct control_call *letter)
{
    struct watcher *watcher = (struct watcher *)letter;
    (void)control;
    if (!watcher->ended) {
        unlink_watcher(watcher);
        grpc_call_finish(watcher->call, ERROR_CANCELLED, NULL);
    }
    free(watcher);
}

/* ---- what has changed
 * ----------------------------------------------------------------------------------- */

enum object { OBJECT_STATUS, OBJECT_DEVICE, OBJECT_ENDPOINT, OBJECT_JOB, OBJECT_REMOVED };

struct changed {
    uint64_t revision;
    enum object object;
    size_t index;
};

struct changes {
    struct changed *list;
    size_t count, capacity;
    bool failed;
};

static void changes_add(struct changes *changes, uint64_t revision, enum object object,
                        size_t index)
{
    if (changes->count == changes->capacity) {
        size_t capacity = changes->capacity == 0 ? 64 : changes->capacity * 2;
        struct changed *list = realloc(changes->list, capacity * sizeof *list);
        if (list == NULL) {
            changes->failed = true;
            return;
        }
        changes->list = list;
        changes->capacity = capacity;
    }
    changes->list[changes->count++] = (struct changed){revision, object, index};
}

static int by_revision(const void *left, const void *right)
{
    const struct changed *a = left;
    const struct changed *b = right;
    return (a->revision > b->revision) - (a->revision < b->revision);
}

/* Of any change after `seen`, or with `states` only of a state. */
static void changes_collect(struct control *control, uint64_t seen, bool states,
                            struct changes *changes)
{
    struct control_status status;
    struct control_device device;
    struct control_endpoint endpoint;
    struct control_job job;
    struct control_removed removed;
    control_status(control, &status);
    if ((states ? status.state_revision : status.revision) > seen) {
        changes_add(changes, status.revision, OBJECT_STATUS, 0);
    }
    for (size_t i = 0; control_device_at(control, i, &device); i++) {
        if ((states ? device.state_revision : device.revision) > seen) {
            changes_add(changes, device.revision, OBJECT_DEVICE, i);
        }
    }
    for (size_t i = 0; control_endpoint_at(control, i, &endpoint); i++) {
        if ((states ? endpoint.state_revision : endpoint.revision) > seen) {
            changes_add(changes, endpoint.revision, OBJECT_ENDPOINT, i);
        }
    }
    for (size_t i = 0; control_job_at(control, i, &job); i++) {
        if ((states ? job.state_revision : job.revision) > seen) {
            changes_add(changes, job.revision, OBJECT_JOB, i);
        }
    }
    for (size_t i = 0; seen != 0 && control_removed_at(control, seen, i, &removed); i++) {
        changes_add(changes, removed.revision, OBJECT_REMOVED, i);
    }
    if (changes->count > 1) {
        qsort(changes->list, changes->count, sizeof changes->list[0], by_revision);
    }
}

/* ---- sending
 * --------------------------------------------------------------------------------------------- */

static bool fill_removed(struct scratch *scratch, struct control *control, uint64_t seen,
                         size_t index, Tidepool__V1__Change *change)
{
    struct control_removed removed;
    Tidepool__V1__Removed *message = scratch_take(scratch, 1, sizeof *message);
    if (message == NULL || !control_removed_at(control, seen, index, &removed)) {
        return false;
    }
    tidepool__v1__removed__init(message);
    if (removed.is_job) {
        message->job = scratch_text(scratch, removed.name);
    } else {
        message->endpoint = scratch_text(scratch, removed.name);
    }
    change->object_case = TIDEPOOL__V1__CHANGE__OBJECT_REMOVED;
    change->removed = message;
    return true;
}

static bool fill_object(struct scratch *scratch, struct control *control,
                        const struct watcher *watcher, const struct changed *changed,
                        Tidepool__V1__Change *change)
{
    struct control_device device;
    struct control_endpoint endpoint;
    struct control_job job;
    switch (changed->object) {
    case OBJECT_STATUS:
        change->object_case = TIDEPOOL__V1__CHANGE__OBJECT_STATUS;
        change->status =
            encode_status(scratch, control, watcher->service->version, watcher->service->inference);
        return change->status != NULL;
    case OBJECT_DEVICE:
        change->object_case = TIDEPOOL__V1__CHANGE__OBJECT_DEVICE;
        return control_device_at(control, changed->index, &device) &&
               (change->device = encode_device(scratch, &device)) != NULL;
    case OBJECT_ENDPOINT:
        change->object_case = TIDEPOOL__V1__CHANGE__OBJECT_ENDPOINT;
        return control_endpoint_at(control, changed->index, &endpoint) &&
               (change->endpoint = encode_endpoint(scratch, &endpoint)) != NULL;
    case OBJECT_JOB:
        change->object_case = TIDEPOOL__V1__CHANGE__OBJECT_JOB;
        return control_job_at(control, changed->index, &job) &&
               (change->job = encode_job(scratch, &job)) != NULL;
    case OBJECT_REMOVED:
        break; /* by fill_removed */
    }
    return false;
}

static int send_one(struct control *control, const struct watcher *watcher, uint64_t seen,
                    uint64_t revision, const struct changed *changed)
{
    struct scratch scratch = {0};
    Tidepool__V1__Change change = TIDEPOOL__V1__CHANGE__INIT;
    int result = -ERROR_RESOURCE_EXHAUSTED;
    change.revision = revision;
    bool filled = changed->object == OBJECT_REMOVED
                      ? fill_removed(&scratch, control, seen, changed->index, &change)
                      : fill_object(&scratch, control, watcher, changed, &change);
    if (filled && !scratch.failed) {
        result = grpc_call_send(watcher->call, &change.base);
    }
    scratch_free(&scratch);
    return result;
}

/* A client that has seen the change with revision r has seen all up to r: what is sent out of turn
 * (states between two full passes, the first snapshot) carries the last such revision. */
static int send_changes(struct control *control, struct watcher *watcher, bool states)
{
    struct changes changes = {0};
    uint64_t seen = states ? watcher->state_seen : watcher->figures_seen;
    bool snapshot = watcher->figures_seen == 0;
    int result = 0;
    changes_collect(control, seen, states, &changes);
    for (size_t i = 0; i < changes.count && result == 0; i++) {
        uint64_t revision = states || snapshot ? watcher->figures_seen : changes.list[i].revision;
        result = send_one(control, watcher, seen, revision, &changes.list[i]);
    }
    if (changes.failed) {
        result = -ERROR_RESOURCE_EXHAUSTED;
    }
    free(changes.list);
    return result;
}

static int send_synced(struct control *control, struct watcher *watcher)
{
    Tidepool__V1__Change change = TIDEPOOL__V1__CHANGE__INIT;
    Tidepool__V1__Synced synced = TIDEPOOL__V1__SYNCED__INIT;
    change.revision = control_revision(control);
    change.object_case = TIDEPOOL__V1__CHANGE__OBJECT_SYNCED;
    change.synced = &synced;
    return grpc_call_send(watcher->call, &change.base);
}

/* True: the stream goes on. */
static bool check_sent(struct watcher *watcher, int result)
{
    if (result == 0) {
        return true;
    }
    if (result == -ERROR_CANCELLED) {
        watcher_end(watcher, ERROR_CANCELLED, NULL);
    } else {
        watcher_end(watcher, ERROR_RESOURCE_EXHAUSTED,
                    "the client reads more slowly than things change: ask for a longer interval");
    }
    return false;
}

/* ---- passes
 * --------------------------------------------------------------------------------------------------
 */

static void watcher_pass(struct control *control, struct watcher *watcher)
{
    uint64_t revision = control_revision(control);
    uint64_t now_ns = clock_now_ns();
    bool all = now_ns - watcher->figures_ns >= watcher->interval_ns;
    uint64_t seen = all ? watcher->figures_seen : watcher->state_seen;
    if (revision == seen || !check_sent(watcher, send_changes(control, watcher, !all))) {
        return;
    }
    watcher->state_seen = revision;
    if (all) {
        watcher->figures_seen = revision;
        watcher->figures_ns = now_ns;
    }
}

static void on_notice(void *context)
{
    struct control_service *service = context;
    struct watcher *watcher = service->own.watchers;
    while (watcher != NULL) {
        struct watcher *next = watcher->next;
        watcher_pass(service->control, watcher);
        watcher = next;
    }
    if (service->own.watchers == NULL) {
        control_on_change(service->control, NULL, NULL);
    }
}

/* ---- the start
 * --------------------------------------------------------------------------------------------------
 */

static bool check_revision(struct control *control, struct watcher *watcher)
{
    char text[256];
    uint64_t after = watcher->after_revision;
    if (after == 0) {
        return true;
    }
    if (after < control_revision_floor(control) || after > control_revision(control)) {
        snprintf(text, sizeof text,
                 "revision %" PRIu64 " is not of this run of the server (%" PRIu64 " to %" PRIu64
                 "): begin again with 0",
                 after, control_revision_floor(control), control_revision(control));
    } else if (!control_removed_known(control, after)) {
        snprintf(text, sizeof text,
                 "what was removed after revision %" PRIu64
                 " is no longer remembered: begin again with 0",
                 after);
    } else {
        return true;
    }
    watcher_end(watcher, ERROR_OUT_OF_RANGE, text);
    return false;
}

static void run_start(struct control *control, struct control_call *letter)
{
    struct watcher *watcher = (struct watcher *)letter;
    struct control_service *service = watcher->service;
    if (service->own.closed) {
        watcher_end(watcher, ERROR_UNAVAILABLE, "the server stops");
        return;
    }
    watcher->next = service->own.watchers;
    service->own.watchers = watcher;
    if (!check_revision(control, watcher)) {
        return;
    }
    watcher->figures_seen = watcher->state_seen = watcher->after_revision;
    if (!check_sent(watcher, send_changes(control, watcher, false)) ||
        !check_sent(watcher, send_synced(control, watcher))) {
        return;
    }
    watcher->figures_seen = watcher->state_seen = control_revision(control);
    watcher->figures_ns = clock_now_ns();
    control_on_change(control, on_notice, service);
}

/* A cancel that comes while the start's letter is on its way must not send the letter twice. */
struct cancel {
    struct control_call letter; /* first */
    struct watcher *watcher;
};

static void run_cancel(struct control *control, struct control_call *letter)
{
    struct cancel *cancel = (struct cancel *)letter;
    run_cancelled(control, &cancel->watcher->letter);
    free(cancel);
}

static void on_cancel(void *arg)
{
    struct watcher *watcher = arg;
    struct cancel *cancel = calloc(1, sizeof *cancel);
    if (cancel == NULL) {
        return; /* the next send says that the client is gone */
    }
    *cancel = (struct cancel){.letter = {.run = run_cancel}, .watcher = watcher};
    atomic_store(&watcher->cancel_posted, true);
    control_post(watcher->service->control, &cancel->letter);
}

void watch_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tidepool__V1__WatchRequest *request = (const void *)message;
    struct control_service *service = context;
    struct watcher *watcher = calloc(1, sizeof *watcher);
    if (watcher == NULL) {
        grpc_call_finish(call, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    uint64_t interval_ms = request->interval_ms == 0 ? INTERVAL_STANDARD_MS : request->interval_ms;
    interval_ms = interval_ms < INTERVAL_MINIMUM_MS ? INTERVAL_MINIMUM_MS : interval_ms;
    *watcher = (struct watcher){.letter = {.run = run_start},
                                .service = service,
                                .call = call,
                                .interval_ns = interval_ms * NS_PER_MS,
                                .after_revision = request->after_revision};
    grpc_call_on_cancel(call, on_cancel, watcher);
    control_post(service->control, &watcher->letter);
}

void watch_close_all(struct control_service *service)
{
    service->own.closed = true;
    while (service->own.watchers != NULL) {
        watcher_end(service->own.watchers, ERROR_UNAVAILABLE, "the server stops");
    }
    control_on_change(service->control, NULL, NULL);
}
