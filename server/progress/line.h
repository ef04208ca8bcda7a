/* line.h: what a rank of an outside job says, one JSON object a line, and what it is told
 * (docs/jobs.md). A line holds one key, its kind, with an object of the fields of that kind.
 * Strict:  an unknown kind or field, a wrong type or a number out of its range is an error with a
 *          text that names it. Abilities that are not known are passed over: a client may be newer.
 * Units:   *_s are seconds, *_ns nanoseconds of CLOCK_BOOTTIME; a step is the number of steps done.
 * Owner:   what is read owns nothing; what is written is malloc'ed, for the caller to free.
 * Thread:  plain values. */
#ifndef TIDEPOOL_PROGRESS_LINE_H
#define TIDEPOOL_PROGRESS_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/base/error.h"

#define PROGRESS_LINE_MAX (64u << 10) /* bytes, the newline counted in */
#define PROGRESS_RANKS_MAX 4096
#define PROGRESS_METRICS_MAX 32
#define PROGRESS_NAME_MAX 64 /* bytes of a metric's name, the NUL counted in */
#define PROGRESS_STEP_MAX 1e15

enum progress_kind {
    PROGRESS_HELLO,        /* rank, ranks, pid, can */
    PROGRESS_STEP,         /* step, checkpointed_step, waiting_s, step_s, metrics */
    PROGRESS_STOPPED,      /* request, step: stands still before that step began */
    PROGRESS_LATE,         /* request, step: that step has begun already, so it did not stop */
    PROGRESS_RESUMED,      /* request */
    PROGRESS_ACKNOWLEDGED, /* notice: its devices may be taken now */
    PROGRESS_EXTEND,       /* notice, seconds more that are asked for */
};

enum progress_ability {
    PROGRESS_CAN_PAUSE = 1u << 0,
    PROGRESS_CAN_NOTICE = 1u << 1,
    PROGRESS_CAN_RESIZE = 1u << 2,
};

struct progress_metric {
    char name[PROGRESS_NAME_MAX];
    double value; /* NaN: it is not a number (null on the line) */
};

struct progress_message {
    enum progress_kind kind;
    int64_t rank, pid;
    int64_t ranks; /* 0: not told */
    unsigned can;  /* bits of progress_ability */
    int64_t step;
    int64_t checkpointed_step; /* -1: not told */
    double waiting_s, step_s;  /* NaN: not told */
    struct progress_metric metrics[PROGRESS_METRICS_MAX];
    size_t metric_count;
    int64_t request, notice;
    double seconds;
};

/* `length` bytes without the newline. */
int progress_line_read(const char *line, size_t length, struct progress_message *ret_message,
                       struct error *error);

/* Devices are to be given back until `deadline_ns`. */
struct progress_notice {
    uint64_t notice;
    uint64_t deadline_ns; /* CLOCK_BOOTTIME */
    const char *const *devices;
    size_t device_count;
    const uint32_t *ranks; /* those that use these devices */
    size_t rank_count;
    const char *reason, *asked;
};

/* The record as JSON, one line without newline: for the notice's file. NULL: no memory. */
char *progress_notice_text(const struct progress_notice *notice, uint64_t now_ns);

/* Lines with their newline. NULL: no memory. */
char *progress_line_notice(const struct progress_notice *notice, uint64_t now_ns);
char *progress_line_notice_over(uint64_t notice, const char *result, uint64_t deadline_ns,
                                uint64_t now_ns); /* deadline 0: none */
char *progress_line_pause(uint64_t request, int64_t step);
char *progress_line_resume(uint64_t request);
/* About a line that was not understood: its first 80 bytes, as far as they are UTF-8. */
char *progress_line_error(const char *line, size_t length, const char *text);

#endif
