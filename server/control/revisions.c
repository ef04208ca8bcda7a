/* revisions.c: which object changed when, and who is told. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/control/state.h"

void revision_touch(struct control *control, struct revisions *revisions, bool state)
{
    revisions->any = ++control->revision;
    if (state) {
        revisions->state = revisions->any;
        control->changed = true;
    }
}

void revision_touch_status(struct control *control)
{
    revision_touch(control, &control->status_revisions, true);
}

uint64_t control_revision(const struct control *control)
{
    return control->revision;
}

uint64_t control_revision_floor(const struct control *control)
{
    return control->revision_floor;
}

void control_on_change(struct control *control, void (*notice)(void *context), void *context)
{
    size_t place = 0;
    while (place < CONTROL_WATCHERS_MAX && control->watchers[place].context != context) {
        place++;
    }
    if (place == CONTROL_WATCHERS_MAX && notice == NULL) {
        return; /* it was none */
    }
    for (size_t i = 0; place == CONTROL_WATCHERS_MAX; i++) {
        assert(i < CONTROL_WATCHERS_MAX);
        place = control->watchers[i].notice == NULL ? i : place;
    }
    control->watchers[place].notice = notice;
    control->watchers[place].context = notice != NULL ? context : NULL;
}

/* ---- removed objects
 * ------------------------------------------------------------------------------- */

void revision_removed(struct control *control, bool is_job, const char *name)
{
    struct removed_entry *entry = &control->removed[control->removed_count % REMOVED_MAX];
    free(entry->name);
    /* Without memory the name is lost; a watcher then shows the object until it begins anew. */
    *entry = (struct removed_entry){++control->revision, is_job, strdup(name)};
    control->removed_count++;
    control->changed = true;
}

static uint64_t first_removed(const struct control *control)
{
    return control->removed_count > REMOVED_MAX ? control->removed_count - REMOVED_MAX : 0;
}

bool control_removed_at(struct control *control, uint64_t after_revision, size_t index,
                        struct control_removed *ret_removed)
{
    for (uint64_t i = first_removed(control); i < control->removed_count; i++) {
        const struct removed_entry *entry = &control->removed[i % REMOVED_MAX];
        if (entry->revision > after_revision && index-- == 0) {
            *ret_removed = (struct control_removed){entry->revision, entry->is_job,
                                                    entry->name != NULL ? entry->name : ""};
            return true;
        }
    }
    return false;
}

bool control_removed_known(const struct control *control, uint64_t after_revision)
{
    uint64_t first = first_removed(control);
    return first == 0 || control->removed[first % REMOVED_MAX].revision <= after_revision + 1;
}

/* ---- states
 * ---------------------------------------------------------------------------------------- */

static void refresh_device(struct control *control, uint32_t index)
{
    struct device_entry *entry = &control->devices[index];
    struct core_device_view view = {0};
    enum control_device_state state = device_state(control, index, &view);
    if (state != entry->shown.state || view.lease != entry->shown.job ||
        view.instances_ready != entry->shown.instances) {
        entry->shown.state = state;
        entry->shown.job = view.lease;
        entry->shown.instances = view.instances_ready;
        revision_touch(control, &entry->revisions, true);
    }
}

static void refresh_endpoint(struct control *control, struct endpoint_entry *endpoint)
{
    if (endpoint->in_serve) {
        serve_endpoint_sample(control->serve, endpoint->number, control->now_ns, &endpoint->sample);
    }
    enum control_endpoint_state state = endpoint_entry_state(endpoint);
    if (state != endpoint->shown.state ||
        endpoint->sample.instances_ready != endpoint->shown.instances) {
        endpoint->shown.state = state;
        endpoint->shown.instances = endpoint->sample.instances_ready;
        revision_touch(control, &endpoint->revisions, true);
    }
}

static void refresh_job(struct control *control, struct job_entry *job)
{
    uint32_t devices = 0;
    for (uint32_t i = 0; i < control->device_count; i++) {
        devices += control->devices[i].shown.job == job->number ? 1 : 0;
    }
    if (devices != job->shown_devices) {
        job->shown_devices = devices;
        revision_touch(control, &job->revisions, true);
    }
}

void revisions_refresh(struct control *control)
{
    if (control->moved) {
        control->moved = false;
        for (uint32_t i = 0; i < control->device_count; i++) {
            refresh_device(control, i);
        }
        for (size_t i = 0; i < control->endpoint_count; i++) {
            refresh_endpoint(control, control->endpoints[i]);
        }
        for (size_t i = 0; i < control->job_count; i++) {
            refresh_job(control, control->jobs[i]);
        }
    }
    if (control->changed) {
        control->changed = false;
        for (size_t i = 0; i < CONTROL_WATCHERS_MAX; i++) {
            if (control->watchers[i].notice != NULL) {
                control->watchers[i].notice(control->watchers[i].context);
            }
        }
    }
}
