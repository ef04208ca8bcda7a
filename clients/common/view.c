#include "clients/common/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/clock.h"

#define STRIP_SLOTS_KEPT 4096
#define MAINLY_SERVING 60 /* percent of the time that serving and training share */
#define MAINLY_TRAINING 20
#define SHARE_LITTLE 5 /* of 255: below 2 % of the time it does not show */

/* ---- fetching
 * ------------------------------------------------------------------------------------ */

static int timeline_fetch(struct view *view, struct grpc_client *client, uint64_t timeout_ns,
                          Tidepool__V1__Timeline **ret_timeline, struct error *error)
{
    Tidepool__V1__GetTimelineRequest request = TIDEPOOL__V1__GET_TIMELINE_REQUEST__INIT;
    request.from_slot =
        view->fetched_slot > STRIP_SLOTS_KEPT ? view->fetched_slot - STRIP_SLOTS_KEPT : 0;
    return control_call(client, "GetTimeline", &request.base, timeout_ns, ret_timeline, error);
}

int view_fetch(struct view *view, struct grpc_client *client, uint64_t timeout_ns,
               struct error *error)
{
    Tidepool__V1__GetStatusRequest status = TIDEPOOL__V1__GET_STATUS_REQUEST__INIT;
    Tidepool__V1__ListDevicesRequest devices = TIDEPOOL__V1__LIST_DEVICES_REQUEST__INIT;
    Tidepool__V1__ListEndpointsRequest endpoints = TIDEPOOL__V1__LIST_ENDPOINTS_REQUEST__INIT;
    Tidepool__V1__ListJobsRequest jobs = TIDEPOOL__V1__LIST_JOBS_REQUEST__INIT;
    struct view fresh = {.fetched_slot = view->fetched_slot};
    int result = control_call(client, "GetStatus", &status.base, timeout_ns, &fresh.status, error);
    if (result == 0) {
        result =
            control_call(client, "ListDevices", &devices.base, timeout_ns, &fresh.devices, error);
    }
    if (result == 0) {
        result = control_call(client, "ListEndpoints", &endpoints.base, timeout_ns,
                              &fresh.endpoints, error);
    }
    if (result == 0) {
        result = control_call(client, "ListJobs", &jobs.base, timeout_ns, &fresh.jobs, error);
    }
    if (result == 0) {
        result = timeline_fetch(&fresh, client, timeout_ns, &fresh.timeline, error);
    }
    if (result == 0) {
        struct view old = *view;
        fresh.fetched_slot = fresh.timeline->next_slot;
        *view = fresh;
        fresh = old;
    }
    view_release(&fresh);
    return result;
}

void view_release(struct view *view)
{
    control_free(view->status);
    control_free(view->devices);
    control_free(view->endpoints);
    control_free(view->jobs);
    control_free(view->timeline);
    memset(view, 0, sizeof(*view));
}

/* ---- drawing
 * --------------------------------------------------------------------------------------- */

void view_line_end(FILE *out, const struct view_style *style)
{
    fputs(style->in_place ? "\033[K\n" : "\n", out);
}

void view_colour(FILE *out, const struct view_style *style, const char *code)
{
    if (style->colour) {
        fprintf(out, "\033[%sm", code == NULL ? "0" : code);
    }
}

void view_line(FILE *out, const struct view_style *style, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') {
        text[--length] = '\0';
    }
    text_write(out, text, style->columns);
    view_line_end(out, style);
}

void view_heading(FILE *out, const struct view_style *style, const char *text)
{
    view_colour(out, style, "1");
    text_write(out, text, style->columns);
    view_colour(out, style, NULL);
    view_line_end(out, style);
}

void view_draw_status(FILE *out, const struct view *view, const struct view_style *style)
{
    const Tidepool__V1__Status *status = view->status;
    struct text_small up;
    view_line(out, style,
              "tidepool %s  %s  mode %s%s%s  up %s  %u device%s  %u of %u endpoints ready  "
              "%u job%s running",
              status->version,
              status->draining ? "stopping"
              : status->ready  ? "ready"
                               : "not ready",
              control_mode(status->mode), status->hold ? "  ON HOLD: " : "",
              status->hold
                  ? (status->hold_reason[0] != '\0' ? status->hold_reason : "no reason given")
                  : "",
              text_duration(&up, status->uptime_ns), status->devices,
              status->devices == 1 ? "" : "s", status->endpoints_ready, status->endpoints,
              status->jobs_running, status->jobs_running == 1 ? "" : "s");
    view_line(out, style,
              "requests %.1f/s  ok %" PRIu64 "  failed %" PRIu64 "  late %" PRIu64
              " (by hand-over %" PRIu64 ")  hand-overs %" PRIu64 "  slices %" PRIu64 "  ledger %s",
              status->requests_per_s, status->requests_ok, status->requests_failed,
              status->requests_late, status->late_by_handover, status->handovers_total,
              status->slices, status->ledger_balanced ? "balanced" : "DOES NOT ADD UP");
}

char view_strip_character(unsigned serving, unsigned training, unsigned handover, unsigned failed)
{
    if (failed > SHARE_LITTLE) {
        return 'x';
    }
    if (handover > SHARE_LITTLE && handover >= serving && handover >= training) {
        return '/';
    }
    if (serving > SHARE_LITTLE && training > SHARE_LITTLE) {
        unsigned percent = serving * 100 / (serving + training);
        return percent >= MAINLY_SERVING ? '#' : percent <= MAINLY_TRAINING ? '-' : '+';
    }
    if (serving > SHARE_LITTLE) {
        return '#';
    }
    if (training > SHARE_LITTLE) {
        return '-';
    }
    return handover > SHARE_LITTLE ? '/' : '.';
}

static const char *strip_colour(char character)
{
    switch (character) {
    case '#':
        return "30;44";
    case '+':
        return "30;46";
    case '-':
        return "30;42";
    case '/':
        return "30;43";
    case 'x':
        return "37;41";
    default:
        return "2";
    }
}

static unsigned slots_mean(const ProtobufCBinaryData *slots, size_t first, size_t count)
{
    unsigned sum = 0;
    for (size_t i = 0; i < count && first + i < slots->len; i++) {
        sum += slots->data[first + i];
    }
    return count == 0 ? 0 : sum / (unsigned)count;
}

static void strip_draw(FILE *out, const struct view *view, const Tidepool__V1__DeviceTimeline *row,
                       unsigned columns, const struct view_style *style)
{
    const Tidepool__V1__Timeline *timeline = view->timeline;
    size_t per_column = timeline->slot_ms == 0 || style->column_ms < timeline->slot_ms
                            ? 1
                            : style->column_ms / timeline->slot_ms;
    /* Columns begin at whole multiples, so that the strip moves without flickering. */
    uint64_t last = timeline->next_slot / per_column;
    char before = '\0';
    for (unsigned i = 0; i < columns; i++) {
        uint64_t column = last + i >= columns ? last + i - columns : UINT64_MAX;
        uint64_t slot = column == UINT64_MAX ? 0 : column * per_column;
        char character = ' ';
        if (row != NULL && column != UINT64_MAX && slot >= timeline->first_slot) {
            size_t first = (size_t)(slot - timeline->first_slot);
            character = view_strip_character(slots_mean(&row->serving, first, per_column),
                                             slots_mean(&row->training, first, per_column),
                                             slots_mean(&row->handover, first, per_column),
                                             slots_mean(&row->failed, first, per_column));
        }
        if (character != before) {
            view_colour(out, style, NULL);
            view_colour(out, style, strip_colour(character));
            before = character;
        }
        putc(character, out);
    }
    view_colour(out, style, NULL);
}

static const Tidepool__V1__DeviceTimeline *timeline_find(const struct view *view, const char *id)
{
    for (size_t i = 0; i < view->timeline->n_devices; i++) {
        if (strcmp(view->timeline->devices[i]->device, id) == 0) {
            return view->timeline->devices[i];
        }
    }
    return NULL;
}

/* "digits-2, endpoint digits-wide" */
static void holder_text(const Tidepool__V1__Device *device, char *text, size_t size)
{
    size_t length = (size_t)snprintf(text, size, "%s", device->job);
    for (size_t i = 0; i < device->n_instances && length < size; i++) {
        length += (size_t)snprintf(text + length, size - length, "%s%s", length == 0 ? "" : ", ",
                                   device->instances[i]);
    }
    if (length == 0) {
        snprintf(text, size, "-");
    }
}

static void legend_draw(FILE *out, const struct view_style *style)
{
    static const struct {
        char character;
        const char *text;
    } legend[] = {{'#', "serving"},   {'+', "both in turns"}, {'-', "training"},
                  {'/', "hand-over"}, {'x', "failed"},        {'.', "idle"}};
    text_write(out, "  ", style->columns);
    for (size_t i = 0; i < sizeof(legend) / sizeof(legend[0]); i++) {
        view_colour(out, style, strip_colour(legend[i].character));
        putc(legend[i].character, out);
        view_colour(out, style, NULL);
        fprintf(out, " %s   ", legend[i].text);
    }
    view_line_end(out, style);
}

void view_draw_devices(FILE *out, const struct view *view, const struct view_style *style)
{
    /* Narrow terminals keep the strip and lose the names. */
    const unsigned holds = style->columns >= 100 ? 24 : style->columns >= 80 ? 12 : 0;
    const unsigned left = 10 + 12 + holds, right = 20;
    unsigned strip = style->columns > left + right + 10 ? style->columns - left - right : 10;
    char text[512];
    snprintf(text, sizeof(text), "%-10s%-12s%-*.*s%-*.*s%20s", "DEVICE", "STATE", (int)holds,
             (int)holds, "HOLDS", (int)strip, (int)strip, "LAST SECONDS, NOW AT THE RIGHT",
             "SERVING  TRAINING");
    view_heading(out, style, text);
    for (size_t i = 0; i < view->devices->n_devices; i++) {
        const Tidepool__V1__Device *device = view->devices->devices[i];
        char holder[256];
        holder_text(device, holder, sizeof(holder));
        text_pad(out, device->id, 9);
        putc(' ', out);
        text_pad(out, control_device_state(device), 11);
        putc(' ', out);
        if (holds > 0) {
            text_pad(out, holder, holds - 1);
            putc(' ', out);
        }
        strip_draw(out, view, timeline_find(view, device->id), strip, style);
        fprintf(out, "%7.0f %%%9.0f %%", device->serving_fraction * 100,
                device->training_fraction * 100);
        view_line_end(out, style);
    }
    legend_draw(out, style);
}

void view_draw_endpoints(FILE *out, const struct view *view, const struct view_style *style)
{
    char text[160];
    snprintf(text, sizeof(text), "%-18s%-9s%9s%9s%9s%9s%9s%8s%9s%10s", "ENDPOINT", "STATE", "REQ/S",
             "P50 ms", "P99 ms", "SLO ms", "LATE", "QUEUE", "DEVICES", "FAILED");
    view_heading(out, style, text);
    for (size_t i = 0; i < view->endpoints->n_endpoints; i++) {
        const Tidepool__V1__Endpoint *endpoint = view->endpoints->endpoints[i];
        struct text_small p50, p99, late;
        char devices[32];
        snprintf(devices, sizeof(devices), "%u of %u", endpoint->instances_ready,
                 endpoint->devices_max);
        text_pad(out, endpoint->name, 17);
        view_line(out, style, " %-9s%9.1f%9s%9s%9.1f%8s%%%8" PRIu64 "%9s%10" PRIu64,
                  control_endpoint_state(endpoint), endpoint->requests_per_s,
                  text_figure(&p50, endpoint->p50_ms, 2), text_figure(&p99, endpoint->p99_ms, 2),
                  endpoint->slo_ms, text_figure(&late, endpoint->late_fraction * 100, 1),
                  endpoint->queue_requests, devices, endpoint->requests_failed);
    }
}

/* When a waiting job will start, how likely a running one loses a device. */
static const char *outlook_text(struct text_small *buffer, const Tidepool__V1__Job *job)
{
    struct text_small wait;
    if (job->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_RUNNING && job->revoke_fraction >= 0) {
        snprintf(buffer->text, sizeof(buffer->text), "revoke %.0f %%", job->revoke_fraction * 100);
    } else if (job->state == TIDEPOOL__V1__JOB_STATE__JOB_STATE_WAITING &&
               job->expected_wait_s >= 0) {
        text_duration(&wait, (uint64_t)(job->expected_wait_s * 1e9));
        snprintf(buffer->text, sizeof(buffer->text), "in %.28s", wait.text);
    } else {
        snprintf(buffer->text, sizeof(buffer->text), "-");
    }
    return buffer->text;
}

/* Of how many is known of jobs in the server alone; of others how far they say they are. */
static const char *step_text(struct text_small *buffer, const Tidepool__V1__Job *job)
{
    if (job->steps > 0) {
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64 "/%" PRIu64, job->step, job->steps);
    } else if (job->step > 0) {
        snprintf(buffer->text, sizeof(buffer->text), "%" PRIu64, job->step);
    } else {
        snprintf(buffer->text, sizeof(buffer->text), "-");
    }
    return buffer->text;
}

void view_draw_jobs(FILE *out, const struct view *view, const struct view_style *style,
                    unsigned rows_max)
{
    char text[160];
    snprintf(text, sizeof(text), "%-18s%-11s%19s%10s%11s%10s%10s%9s%16s", "JOB", "STATE", "STEP",
             "STEPS/S", "LOSS", "FIRST", "ACCURACY", "DEVICES", "OUTLOOK");
    view_heading(out, style, text);
    size_t count = view->jobs->n_jobs;
    size_t first = count > rows_max ? count - rows_max : 0;
    for (size_t i = first; i < count; i++) {
        const Tidepool__V1__Job *job = view->jobs->jobs[i];
        struct text_small step, rate, loss, begin, accuracy, outlook;
        bool accurate = !isnan(job->held_out_accuracy_fraction);
        text_pad(out, job->id, 17);
        view_line(out, style, " %-11s%19s%10s%11s%10s%9s%s%9zu%16s  %s", control_job_state(job),
                  step_text(&step, job), text_figure(&rate, job->steps_per_s, 1),
                  text_figure(&loss, job->loss_last, 4), text_figure(&begin, job->loss_first, 4),
                  text_figure(&accuracy, job->held_out_accuracy_fraction * 100, 1),
                  accurate ? "%" : " ", job->n_devices, outlook_text(&outlook, job), job->reason);
    }
}
