#include "server/observe/metrics.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/base/utf8.h"

struct metrics_page {
    char *text;
    size_t length, capacity;
    bool out_of_memory;
    char family[128]; /* begun last */
    enum metrics_type type;
};

static void append(struct metrics_page *page, const char *text, size_t length)
{
    if (page->length + length > page->capacity && !page->out_of_memory) {
        size_t capacity = (page->length + length) * 2;
        char *grown = realloc(page->text, capacity);
        page->out_of_memory = grown == NULL;
        if (grown != NULL) {
            page->text = grown;
            page->capacity = capacity;
        }
    }
    if (!page->out_of_memory) {
        memcpy(page->text + page->length, text, length);
        page->length += length;
    }
}

static void append_text(struct metrics_page *page, const char *text)
{
    append(page, text, strlen(text));
}

struct metrics_page *metrics_create(void)
{
    struct metrics_page *page = calloc(1, sizeof *page);
    if (page == NULL) {
        return NULL;
    }
    page->capacity = 16384;
    page->text = malloc(page->capacity);
    if (page->text == NULL) {
        free(page);
        return NULL;
    }
    return page;
}

void metrics_destroy(struct metrics_page *page)
{
    if (page != NULL) {
        free(page->text);
        free(page);
    }
}

void metrics_family(struct metrics_page *page, const char *name, enum metrics_type type,
                    const char *help)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    assert(strlen(name) < sizeof page->family && strchr(help, '\n') == NULL);
    append_text(page, "# HELP ");
    append_text(page, name);
    append_text(page, " ");
    append_text(page, help);
    append_text(page, "\n# TYPE ");
    append_text(page, name);
    append_text(page, " ");
    append_text(page, types[type]);
    append_text(page, "\n");
    strcpy(page->family, name);
    page->type = type;
}

static void append_value(struct metrics_page *page, const char *value)
{
    const unsigned char *text = (const unsigned char *)value;
    const unsigned char *end = text + strlen(value);
    while (text < end) {
        size_t length = utf8_character_length(text, (size_t)(end - text));
        if (*text == '\\') {
            append_text(page, "\\\\");
        } else if (*text == '"') {
            append_text(page, "\\\"");
        } else if (*text == '\n') {
            append_text(page, "\\n");
        } else if (length == 0) {
            append_text(page, "\xef\xbf\xbd");
            length = 1;
        } else {
            append(page, (const char *)text, length);
        }
        text += length;
    }
}

static void append_name(struct metrics_page *page, const char *suffix,
                        const struct metrics_label *labels, size_t count, const char *le)
{
    assert(page->family[0] != '\0' && count <= METRICS_LABELS_MAX);
    append_text(page, page->family);
    append_text(page, suffix);
    if (count > 0 || le != NULL) {
        const char *before = "{";
        for (size_t i = 0; i < count; i++) {
            append_text(page, before);
            append_text(page, labels[i].name);
            append_text(page, "=\"");
            append_value(page, labels[i].value);
            append_text(page, "\"");
            before = ",";
        }
        if (le != NULL) {
            append_text(page, before);
            append_text(page, "le=\"");
            append_text(page, le);
            append_text(page, "\"");
        }
        append_text(page, "}");
    }
    append_text(page, " ");
}

static void append_whole(struct metrics_page *page, uint64_t value)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%llu\n", (unsigned long long)value);
    append(page, text, (size_t)length);
}

static void print_double(char *text, size_t size, double value)
{
    if (isnan(value)) {
        snprintf(text, size, "NaN");
    } else if (isinf(value)) {
        snprintf(text, size, value > 0 ? "+Inf" : "-Inf");
    } else if (value == floor(value) && fabs(value) < 1e15) {
        snprintf(text, size, "%.0f", value);
    } else {
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, size, "%.*g", digits, value);
            if (strtod(text, NULL) == value) {
                return;
            }
        }
    }
}

static void append_double(struct metrics_page *page, double value)
{
    char text[40];
    print_double(text, sizeof text, value);
    append_text(page, text);
    append_text(page, "\n");
}

void metrics_series(struct metrics_page *page, const struct metrics_label *labels, size_t count,
                    uint64_t value)
{
    assert(page->type != METRICS_HISTOGRAM);
    append_name(page, "", labels, count, NULL);
    append_whole(page, value);
}

void metrics_series_double(struct metrics_page *page, const struct metrics_label *labels,
                           size_t count, double value)
{
    assert(page->type != METRICS_HISTOGRAM);
    append_name(page, "", labels, count, NULL);
    append_double(page, value);
}

void metrics_histogram(struct metrics_page *page, const struct metrics_label *labels, size_t count,
                       const double *bounds, const uint64_t *counts, size_t bound_count, double sum)
{
    uint64_t total = 0;
    assert(page->type == METRICS_HISTOGRAM);
    for (size_t i = 0; i < bound_count; i++) {
        char le[40];
        print_double(le, sizeof le, bounds[i]);
        total += counts[i];
        append_name(page, "_bucket", labels, count, le);
        append_whole(page, total);
    }
    total += counts[bound_count];
    append_name(page, "_bucket", labels, count, "+Inf");
    append_whole(page, total);
    append_name(page, "_sum", labels, count, NULL);
    append_double(page, sum);
    append_name(page, "_count", labels, count, NULL);
    append_whole(page, total);
}

char *metrics_finish(struct metrics_page *page, size_t *ret_length)
{
    char *text = NULL;
    if (!page->out_of_memory) {
        text = page->text;
        page->text = NULL;
        *ret_length = page->length;
    }
    metrics_destroy(page);
    return text;
}
