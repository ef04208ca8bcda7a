/* view.h: what a server is doing now, fetched in a few calls and drawn as text: `tidepool top`,
 * `tidepool status` and the live view of `make run`.
 * Strips:  one character for each piece of time, so that they read without colour:
 *          '#' mainly serving, '+' both in turns, '-' mainly training, '/' hand-over, 'x' failed,
 *          '.' idle.
 * Owner:   a snapshot owns its messages until view_release.
 * Thread:  one at a time. */
#ifndef TIDEPOOL_CLIENTS_VIEW_H
#define TIDEPOOL_CLIENTS_VIEW_H

#include "clients/common/control.h"
#include "clients/common/terminal.h"

struct view {
    Tidepool__V1__Status *status;
    Tidepool__V1__ListDevicesResponse *devices;
    Tidepool__V1__ListEndpointsResponse *endpoints;
    Tidepool__V1__ListJobsResponse *jobs;
    Tidepool__V1__Timeline *timeline;
    uint64_t fetched_slot; /* where the next fetch begins */
};

struct view_style {
    unsigned columns;
    bool colour;
    bool in_place;      /* each line clears the rest of its row */
    unsigned column_ms; /* time that one character of a strip stands for */
};

/* Replaces what the view holds; on an error the view keeps what it had. */
int view_fetch(struct view *view, struct grpc_client *client, uint64_t timeout_ns,
               struct error *error);
void view_release(struct view *view);

void view_line_end(FILE *out, const struct view_style *style);
/* One line, cut to the width, trailing spaces left out. */
void view_line(FILE *out, const struct view_style *style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void view_heading(FILE *out, const struct view_style *style, const char *text);
void view_colour(FILE *out, const struct view_style *style, const char *code); /* NULL: plain */
/* Two lines about the server; a strip for each device and the legend; tables. */
void view_draw_status(FILE *out, const struct view *view, const struct view_style *style);
void view_draw_devices(FILE *out, const struct view *view, const struct view_style *style);
void view_draw_endpoints(FILE *out, const struct view *view, const struct view_style *style);
void view_draw_jobs(FILE *out, const struct view *view, const struct view_style *style,
                    unsigned rows_max);

/* The character for shares of a piece of time, each 0..255. */
char view_strip_character(unsigned serving, unsigned training, unsigned handover, unsigned failed);

#endif
