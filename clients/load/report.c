#include "clients/load/report.h"

#include <inttypes.h>

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static json_t *latency_json(const struct histogram *histogram)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "min",
                     ms(histogram->count == 0 ? 0 : histogram->minimum), "mean",
                     histogram_mean(histogram) / 1e6, "p50", ms(histogram_quantile(histogram, 0.5)),
                     "p90", ms(histogram_quantile(histogram, 0.9)), "p99",
                     ms(histogram_quantile(histogram, 0.99)), "p99_9",
                     ms(histogram_quantile(histogram, 0.999)), "max", ms(histogram->maximum));
}

static double cpu_share(const struct load_result *result)
{
    return result->elapsed_ns == 0 ? 0 : (double)result->cpu_ns / (double)result->elapsed_ns;
}

static double rate(const struct load_result *result, uint64_t count)
{
    return result->elapsed_ns == 0 ? 0 : (double)count * 1e9 / (double)result->elapsed_ns;
}

json_t *report_json(const struct report *report)
{
    const struct load_result *result = report->result;
    const struct load_counts *total = &result->total;
    json_t *codes = json_object();
    for (unsigned i = 1; i < LOAD_CODES && codes != NULL; i++) {
        if (total->by_code[i] > 0) {
            json_object_set_new(codes, error_code_name((enum error_code)i),
                                json_integer((json_int_t)total->by_code[i]));
        }
    }
    return json_pack(
        "{s:s,s:s,s:f,s:I,s:I,s:I,s:o,s:I,s:f,s:f,s:f,s:f,s:o,s:o}", "endpoint", report->endpoint,
        "schedule", report->schedule, "seconds", (double)result->elapsed_ns / 1e9, "sent",
        (json_int_t)total->sent, "ok", (json_int_t)total->ok, "failed", (json_int_t)total->failed,
        "failed_by_code", codes, "late", (json_int_t)total->late, "slo_ms", report->slo_ms,
        "sent_per_s", rate(result, total->sent), "ok_per_s", rate(result, total->ok),
        "generator_cpu_share", cpu_share(result), "latency_ms", latency_json(&result->latency),
        "send_lateness_ms", latency_json(&result->send_lateness));
}

void report_text(const struct report *report, FILE *out)
{
    const struct load_result *result = report->result;
    const struct load_counts *total = &result->total;
    const struct histogram *latency = &result->latency;
    fprintf(out, "%s: %s for %.1f s\n", report->endpoint, report->schedule,
            (double)result->elapsed_ns / 1e9);
    fprintf(out, "sent %" PRIu64 " (%.1f/s), ok %" PRIu64 ", failed %" PRIu64, total->sent,
            rate(result, total->sent), total->ok, total->failed);
    for (unsigned i = 1; i < LOAD_CODES; i++) {
        if (total->by_code[i] > 0) {
            fprintf(out, ", %s %" PRIu64, error_code_name((enum error_code)i), total->by_code[i]);
        }
    }
    fprintf(out, "\nlater than the SLO of %g ms: %" PRIu64 " (%.2f %%)\n", report->slo_ms,
            total->late, total->ok == 0 ? 0 : 100.0 * (double)total->late / (double)total->ok);
    fprintf(out, "latency ms: p50 %.3f  p90 %.3f  p99 %.3f  p99.9 %.3f  max %.3f\n",
            ms(histogram_quantile(latency, 0.5)), ms(histogram_quantile(latency, 0.9)),
            ms(histogram_quantile(latency, 0.99)), ms(histogram_quantile(latency, 0.999)),
            ms(latency->maximum));
    fprintf(out, "generator: %.1f %% of a core; sends late by p50 %.3f, p99 %.3f, max %.3f ms\n",
            100 * cpu_share(result), ms(histogram_quantile(&result->send_lateness, 0.5)),
            ms(histogram_quantile(&result->send_lateness, 0.99)),
            ms(result->send_lateness.maximum));
}

void report_csv_head(FILE *out)
{
    fputs("time_s,seconds,sent,ok,failed,late,p50_ms,p90_ms,p99_ms,max_ms\n", out);
}

void report_csv_row(const struct load_slot *slot, FILE *out)
{
    const struct load_counts *counts = &slot->counts;
    fprintf(out, "%.3f,%.3f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.3f,%.3f,%.3f,%.3f\n",
            (double)slot->start_ns / 1e9, (double)(slot->end_ns - slot->start_ns) / 1e9,
            counts->sent, counts->ok, counts->failed, counts->late,
            ms(histogram_quantile(&slot->latency, 0.5)),
            ms(histogram_quantile(&slot->latency, 0.9)),
            ms(histogram_quantile(&slot->latency, 0.99)), ms(slot->latency.maximum));
}

void report_csv_histogram(const struct histogram *histogram, FILE *out)
{
    uint64_t seen = 0;
    fputs("from_ms,to_ms,count,share_up_to\n", out);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t lowest, highest;
        if (histogram->buckets[i] == 0) {
            continue;
        }
        seen += histogram->buckets[i];
        histogram_bucket_bounds(i, &lowest, &highest);
        fprintf(out, "%.6f,%.6f,%" PRIu64 ",%.9f\n", ms(lowest), ms(highest), histogram->buckets[i],
                (double)seen / (double)histogram->count);
    }
}
