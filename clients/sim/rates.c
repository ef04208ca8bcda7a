#include "clients/sim/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/sim/array.h"
#include "clients/sim/names.h"
#include "server/base/random.h"

#define RATE_MAX 1e6
#define PI 3.14159265358979323846

static const struct column rate_columns[] = {
    {"t_s", COLUMN_TIME, offsetof(struct rate_row, start_ns), 0, ROWS_SECONDS_MAX},
    {"endpoint", COLUMN_NAME, offsetof(struct rate_row, endpoint)},
    {"rate_rps", COLUMN_NUMBER, offsetof(struct rate_row, rate), 0, RATE_MAX},
    {"iat_cv", COLUMN_NUMBER, offsetof(struct rate_row, gap_cv), 0, 1e6, true},
    {"iat_family", COLUMN_NAME, offsetof(struct rate_row, family), .may_be_empty = true},
    {"iat_shape", COLUMN_NUMBER, offsetof(struct rate_row, shape), 0, 1e6, true},
    {"mean_input_tokens", COLUMN_NUMBER, offsetof(struct rate_row, input_mean), 0, 1e6, true},
    {"mean_output_tokens", COLUMN_NUMBER, offsetof(struct rate_row, output_mean), 0, 1e6, true},
    {"gap", COLUMN_COUNT, offsetof(struct rate_row, gap), 0, 1},
};
const struct row_table rate_table = {"rate curves", rate_columns,
                                     sizeof(rate_columns) / sizeof(rate_columns[0])};

static const struct column total_columns[] = {
    {"t_s", COLUMN_TIME, offsetof(struct total_row, start_ns), 0, ROWS_SECONDS_MAX},
    {"model", COLUMN_NAME, offsetof(struct total_row, model)},
    {"rate_rps", COLUMN_NUMBER, offsetof(struct total_row, rate), 0, RATE_MAX},
    {"active_clients", COLUMN_COUNT, offsetof(struct total_row, clients), 0, 1e9},
    {"top_client_share", COLUMN_NUMBER, offsetof(struct total_row, top_share), 0, 1, true},
};
const struct row_table total_table = {"rate totals", total_columns,
                                      sizeof(total_columns) / sizeof(total_columns[0])};

#define QUANTILE(name, index)                                                                      \
    {                                                                                              \
        name, COLUMN_NUMBER, offsetof(struct length_row, quantiles) + (index) * sizeof(double), 0, \
            1e7                                                                                    \
    }
static const struct column length_columns[] = {
    {"endpoint", COLUMN_NAME, offsetof(struct length_row, endpoint)},
    {"field", COLUMN_NAME, offsetof(struct length_row, field)},
    QUANTILE("p1", 0),
    QUANTILE("p5", 1),
    QUANTILE("p10", 2),
    QUANTILE("p25", 3),
    QUANTILE("p50", 4),
    QUANTILE("p75", 5),
    QUANTILE("p90", 6),
    QUANTILE("p95", 7),
    QUANTILE("p99", 8),
    QUANTILE("p99_9", 9),
};
static const double quantile_at[LENGTH_QUANTILES] = {0.01, 0.05, 0.10, 0.25, 0.50,
                                                     0.75, 0.90, 0.95, 0.99, 0.999};
const struct row_table length_table = {"token lengths", length_columns,
                                       sizeof(length_columns) / sizeof(length_columns[0])};

/* ---- reading --------------------------------------------------------------------------------- */

/* The endpoint of that name, new or known; NULL: too many, or no memory. */
static struct rate_endpoint *endpoint_make(struct rates *rates, const char *name,
                                           uint32_t *ret_index)
{
    uint32_t known = rates->names.count;
    struct rate_endpoint *grown =
        array_room(rates->endpoints, known, &rates->endpoint_capacity, sizeof(*grown), SIZE_MAX);
    if (grown == NULL) {
        return NULL;
    }
    rates->endpoints = grown;
    if (names_intern(&rates->names, name, TRACE_NAMES_MAX, ret_index) < 0) {
        return NULL;
    }
    if (*ret_index == known) {
        memset(&grown[known], 0, sizeof(grown[known]));
    }
    return &grown[*ret_index];
}

static int endpoint_refuse(const struct rows *rows, struct error *error)
{
    return rows_refuse(rows, error, "more than %u different endpoints, or no memory",
                       TRACE_NAMES_MAX);
}

int rates_add(struct rates *rates, const struct rows *rows, const struct rate_row *row,
              uint64_t offset_ns, struct error *error)
{
    struct rate_window window = {
        .start_ns = row->start_ns + offset_ns,
        .rate = row->rate,
        .shape = row->shape,
        .input_mean = row->input_mean,
        .output_mean = row->output_mean,
        .weibull = strcmp(row->family, "Weibull") == 0,
        .gap = row->gap != 0,
    };
    if (row->rate > 0 && !window.gap) {
        if (!window.weibull && strcmp(row->family, "Gamma") != 0) {
            return rows_refuse(rows, error, "column 5 (iat_family): neither Gamma nor Weibull");
        }
        if (row->shape < RATE_SHAPE_MIN) {
            return rows_refuse(rows, error, "column 6 (iat_shape): below %g where requests come",
                               RATE_SHAPE_MIN);
        }
    }
    struct rate_endpoint *endpoint = endpoint_make(rates, row->endpoint, &window.endpoint);
    if (endpoint == NULL) {
        return endpoint_refuse(rows, error);
    }
    struct rate_window *grown = array_room(rates->windows, rates->count, &rates->capacity,
                                           sizeof(*grown), RATE_WINDOWS_MAX);
    if (grown == NULL) {
        return rows_refuse(rows, error, "more than %u windows of rates, or no memory",
                           RATE_WINDOWS_MAX);
    }
    rates->windows = grown;
    endpoint->sum += window.gap ? 0 : row->rate;
    endpoint->windows += window.gap ? 0 : 1;
    grown[rates->count++] = window;
    return 0;
}

int rates_add_total(struct rates *rates, const struct rows *rows, const struct total_row *row,
                    uint64_t offset_ns, struct error *error)
{
    const struct rate_row rate = {
        .start_ns = row->start_ns,
        .endpoint = row->model,
        .rate = row->rate,
        .shape = 1,
        .family = "Gamma",
        .input_mean = RATE_TOTAL_INPUT,
        .output_mean = RATE_TOTAL_OUTPUT,
    };
    return rates_add(rates, rows, &rate, offset_ns, error);
}

int rates_add_lengths(struct rates *rates, const struct rows *rows, const struct length_row *row,
                      struct error *error)
{
    bool output = strcmp(row->field, "output_tokens") == 0;
    if (!output && strcmp(row->field, "input_tokens") != 0) {
        return rows_refuse(rows, error, "column 2 (field): neither input_tokens nor output_tokens");
    }
    for (size_t i = 1; i < LENGTH_QUANTILES; i++) {
        if (row->quantiles[i] < row->quantiles[i - 1]) {
            return rows_refuse(rows, error, "column %zu (%s): below the quantile before it", i + 3,
                               length_columns[i + 2].name);
        }
    }
    uint32_t index;
    struct rate_endpoint *endpoint = endpoint_make(rates, row->endpoint, &index);
    if (endpoint == NULL) {
        return endpoint_refuse(rows, error);
    }
    memcpy(endpoint->quantiles[output], row->quantiles, sizeof(row->quantiles));
    return 0;
}

/* ---- random numbers -------------------------------------------------------------------------- */

static double random_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(random_unit(state)));
    return radius * cos(2 * PI * random_unit(state));
}

/* Marsaglia and Tsang's method; a shape below 1 is one above it times a power of a uniform. */
static double random_gamma(uint64_t *state, double shape)
{
    double boost = 1;
    if (shape < 1) {
        boost = pow(random_unit(state), 1 / shape);
        shape += 1;
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = random_normal(state), v = 1 + c * x;
        v = v * v * v;
        if (v > 0 && log(random_unit(state)) < 0.5 * x * x + d - d * v + d * log(v)) {
            return boost * d * v;
        }
    }
}

/* A gap up to a factor, which stretching to the window takes out. */
static double random_gap(uint64_t *state, const struct rate_window *window)
{
    return window->weibull ? pow(-log(random_unit(state)), 1 / window->shape)
                           : random_gamma(state, window->shape);
}

/* The length below which a share `at` of lengths stay: straight lines between the quantiles. */
static double quantile_length(const double quantiles[LENGTH_QUANTILES], double at)
{
    for (size_t i = 0; i < LENGTH_QUANTILES; i++) {
        if (at <= quantile_at[i]) {
            double before_at = i > 0 ? quantile_at[i - 1] : 0;
            double before = i > 0 ? quantiles[i - 1] : quantiles[0];
            double share = (at - before_at) / (quantile_at[i] - before_at);
            return before + share * (quantiles[i] - before);
        }
    }
    return quantiles[LENGTH_QUANTILES - 1];
}

static double quantile_mean(const double quantiles[LENGTH_QUANTILES])
{
    double mean = quantile_at[0] * quantiles[0];
    for (size_t i = 1; i < LENGTH_QUANTILES; i++) {
        mean += (quantile_at[i] - quantile_at[i - 1]) * (quantiles[i] + quantiles[i - 1]) / 2;
    }
    return mean + (1 - quantile_at[LENGTH_QUANTILES - 1]) * quantiles[LENGTH_QUANTILES - 1];
}

static uint32_t length_draw(uint64_t *state, const double quantiles[LENGTH_QUANTILES], double mean)
{
    double length;
    if (quantiles[LENGTH_QUANTILES - 1] > 0) {
        double scale = mean > 0 ? mean / quantile_mean(quantiles) : 1;
        length = scale * quantile_length(quantiles, random_unit(state));
    } else {
        length = -mean * log(random_unit(state));
    }
    length = length < 1 ? 1 : length > TRACE_TOKENS_MAX ? TRACE_TOKENS_MAX : length;
    return (uint32_t)(length + 0.5);
}

/* ---- generating ------------------------------------------------------------------------------ */

static bool window_counts(const struct rate_window *window, const struct rate_scale *scale)
{
    return !window->gap && window->rate > 0 && window->start_ns + RATE_WINDOW_NS > scale->from_ns &&
           window->start_ns < scale->until_ns;
}

static double window_requests(const struct rates *rates, const struct rate_window *window,
                              const struct rate_scale *scale)
{
    const struct rate_endpoint *endpoint = &rates->endpoints[window->endpoint];
    double factor = scale->factor;
    if (scale->mean > 0) {
        factor *= scale->mean * (double)endpoint->windows / endpoint->sum;
    }
    return window->rate * factor * 1e-9 * (double)RATE_WINDOW_NS;
}

double rates_expected(const struct rates *rates, const struct rate_scale *scale)
{
    double sum = 0;
    for (size_t i = 0; i < rates->count; i++) {
        if (window_counts(&rates->windows[i], scale)) {
            sum += window_requests(rates, &rates->windows[i], scale);
        }
    }
    return sum;
}

/* The gaps are drawn twice from the same state: for their sum, then for the arrivals. */
static double gaps_sum(uint64_t state, const struct rate_window *window, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += random_gap(&state, window);
    }
    return sum;
}

/* FNV-1a. */
static uint64_t name_hash(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *name != '\0'; name++) {
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static int window_generate(const struct rates *rates, const struct rate_window *window,
                           const struct rate_scale *scale, const struct rate_sink *sink,
                           struct error *error)
{
    const struct rate_endpoint *endpoint = &rates->endpoints[window->endpoint];
    const char *name = rates->names.names[window->endpoint];
    uint64_t state = scale->seed;
    state = random_next(&state) ^ name_hash(name);
    state = random_next(&state) ^ window->start_ns;
    uint64_t count = (uint64_t)(window_requests(rates, window, scale) + 1 - random_unit(&state));
    uint64_t lengths = random_next(&state);
    double sum = gaps_sum(state, window, count + 1), at = 0;
    int result = 0;
    for (uint64_t i = 0; i < count && result == 0; i++) {
        at += random_gap(&state, window);
        /* Very bursty gaps may all be too small for a double: then everything comes at once. */
        double share = sum > 0 ? at / sum : 0;
        uint32_t input = length_draw(&lengths, endpoint->quantiles[0], window->input_mean);
        uint32_t output = length_draw(&lengths, endpoint->quantiles[1], window->output_mean);
        uint64_t offset_ns = (uint64_t)(share * (double)RATE_WINDOW_NS);
        result = sink->add(sink->target, name, window->start_ns + offset_ns, input, output, error);
    }
    return result;
}

int rates_generate(const struct rates *rates, const struct rate_scale *scale,
                   const struct rate_sink *sink, struct error *error)
{
    int result = 0;
    for (size_t i = 0; i < rates->count && result == 0; i++) {
        if (window_counts(&rates->windows[i], scale)) {
            result = window_generate(rates, &rates->windows[i], scale, sink, error);
        }
    }
    return result;
}

void rates_fini(struct rates *rates)
{
    free(rates->windows);
    free(rates->endpoints);
    names_fini(&rates->names);
    *rates = (struct rates){0};
}
