/* rates.h: requests made from published rate curves: for every endpoint and window of 10 minutes a
 * rate and the distribution of the time between requests.
 * How:     a window has as many requests as its rate says (a fraction by chance); the gaps are
 *          drawn from the window's family (Gamma or Weibull) and shape and stretched to fill the
 *          window, so that its burstiness stays. Token lengths are drawn from the endpoint's
 *          quantiles, scaled to the window's mean; without quantiles they are exponential. Windows
 *          marked as a gap of the source make no requests.
 * Repeat:  every window has random numbers of its own, made from the seed, its endpoint's
 *          name and its time: what else is played changes nothing.
 * Errors:  0 or a negative enum error_code.
 * Thread:  plain values. */
#ifndef TIDEPOOL_CLIENTS_SIM_RATES_H
#define TIDEPOOL_CLIENTS_SIM_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clients/sim/rows.h"
#include "clients/sim/trace.h"

#define RATE_WINDOW_NS UINT64_C(600000000000)
#define RATE_WINDOWS_MAX 1000000u
#define RATE_SHAPE_MIN 0.01  /* the burstiest published is 0.088 */
#define RATE_TOTAL_INPUT 500 /* mean tokens of a curve that does not say */
#define RATE_TOTAL_OUTPUT 50
#define LENGTH_QUANTILES 10

struct rate_row {
    uint64_t start_ns;
    const char *endpoint;
    double rate, gap_cv, shape;
    const char *family;
    double input_mean, output_mean;
    uint64_t gap;
};

struct total_row {
    uint64_t start_ns;
    const char *model;
    double rate, top_share;
    uint64_t clients;
};

struct length_row {
    const char *endpoint, *field;
    double quantiles[LENGTH_QUANTILES];
};

struct rate_window {
    uint64_t start_ns;
    double rate; /* requests per second */
    double shape;
    double input_mean, output_mean;
    uint32_t endpoint; /* index into rates.names */
    bool weibull;      /* else Gamma */
    bool gap;          /* the source has no data */
};

struct rate_endpoint {
    double quantiles[2][LENGTH_QUANTILES]; /* of input and output tokens; [0] is 0: not known */
    double sum;                            /* of its windows' rates */
    uint64_t windows;                      /* that are no gaps */
};

struct rates {
    struct rate_window *windows;
    size_t count, capacity;
    struct trace_names names;        /* of endpoints with windows, lengths, or both */
    struct rate_endpoint *endpoints; /* [names.count] */
    size_t endpoint_capacity;
};

struct rate_scale {
    uint64_t seed;
    double factor;
    double mean; /* if above 0: each endpoint's mean over its windows, before the factor */
    uint64_t from_ns, until_ns; /* of windows that make requests */
};

/* What the generator calls for every request; negative ends it. */
struct rate_sink {
    int (*add)(void *target, const char *endpoint, uint64_t arrival_ns, uint32_t input_tokens,
               uint32_t output_tokens, struct error *error);
    void *target;
};

extern const struct row_table rate_table, total_table, length_table;

/* All answer what is wrong with a row by an error of rows_refuse. */
int rates_add(struct rates *rates, const struct rows *rows, const struct rate_row *row,
              uint64_t offset_ns, struct error *error);
/* A curve of nothing but a rate: exponential gaps, RATE_TOTAL_* tokens. */
int rates_add_total(struct rates *rates, const struct rows *rows, const struct total_row *row,
                    uint64_t offset_ns, struct error *error);
int rates_add_lengths(struct rates *rates, const struct rows *rows, const struct length_row *row,
                      struct error *error);
/* About how many requests there will be. */
double rates_expected(const struct rates *rates, const struct rate_scale *scale);
/* Window by window; ascending within one. */
int rates_generate(const struct rates *rates, const struct rate_scale *scale,
                   const struct rate_sink *sink, struct error *error);
void rates_fini(struct rates *rates); /* a zeroed one is fine */

#endif
