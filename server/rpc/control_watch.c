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
    struct stream stream; /* first */
    struct control_service *service;
    uint64_t interval_ns;
    uint64_t state_seen;   /* changes of state up to here have been sent */
    uint64_t figures_seen; /* all changes up to here: from here a client may go on */
    uint64_t figures_ns;   /* when that was */
    uint64_t after_revision;
};

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
        result = exchange_send(&watcher->stream.exchange, &change.base);
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
    return exchange_send(&watcher->stream.exchange, &change.base);
}

/* True: the stream goes on. */
static bool check_sent(struct watcher *watcher, int result)
{
    if (result == 0) {
        return true;
    }
    if (result == -ERROR_CANCELLED) {
        stream_end(&watcher->stream, ERROR_CANCELLED, NULL);
    } else {
        stream_end(&watcher->stream, ERROR_RESOURCE_EXHAUSTED,
                   "the client reads more slowly than things change: ask for a longer interval");
    }
    return false;
}

/* ---- passes
 * --------------------------------------------------------------------------------------------------
 */

void watch_pass(struct control *control, struct stream *stream)
{
    struct watcher *watcher = (struct watcher *)stream;
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
    stream_end(&watcher->stream, ERROR_OUT_OF_RANGE, text);
    return false;
}

void watch_begin(struct control *control, struct stream *stream)
{
    struct watcher *watcher = (struct watcher *)stream;
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
}

void watch_open(struct control_service *service, struct exchange exchange,
                const Tidepool__V1__WatchRequest *request)
{
    struct watcher *watcher = calloc(1, sizeof *watcher);
    if (watcher == NULL) {
        exchange_finish(&exchange, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    uint64_t interval_ms = request->interval_ms == 0 ? INTERVAL_STANDARD_MS : request->interval_ms;
    interval_ms = interval_ms < INTERVAL_MINIMUM_MS ? INTERVAL_MINIMUM_MS : interval_ms;
    watcher->service = service;
    watcher->interval_ns = interval_ms * NS_PER_MS;
    watcher->after_revision = request->after_revision;
    stream_open(&watcher->stream, &service->watchers, exchange);
}

void watch_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context)
{
    watch_open(context, exchange_of_grpc(call), (const void *)message);
}
