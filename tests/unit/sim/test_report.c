#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/sim/report.h"
#include "tests/unit/sim/files.h"

static const char path[] = "/tmp/tidepool-report-test.html";

static char *file_read(void)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)size + 1);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    fclose(file);
    unlink(path);
    return text;
}

/* A page of two policies over a hundred requests. */
static char *report_make(void)
{
    static char text[8192] = REQUEST_HEADER;
    size_t length = strlen(REQUEST_HEADER);
    for (unsigned i = 0; i < 100; i++) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%u.5,<script>,%u,9\n",
                                   5 * i, 400 + i);
    }
    const char *trace = file_make(text, false);
    const char *const policies[] = {"tidepool", "static:serving=1", "serve-all"};
    struct sim_options options;
    struct error error = {0};
    struct sim sim = {0};
    sim_options_init(&options);
    options.requests = &trace;
    options.request_files = 1;
    options.policies = policies;
    options.policy_count = 3;
    options.devices = 2;
    options.rungs = "freeze";
    if (sim_open(&options, &sim, &error) < 0 || sim_play(&sim, &options, NULL, &error) < 0 ||
        sim_report_write(&sim, path, &error) < 0) {
        fail_msg("%s", error.text);
    }
    sim_close(&sim);
    unlink(trace);
    return file_read();
}

/* What the page's script reads. */
static json_t *figures_read(const char *page)
{
    static const char begin[] = "id=\"figures\">";
    const char *start = strstr(page, begin);
    assert_non_null(start);
    start += strlen(begin);
    const char *end = strstr(start, "</script>");
    assert_non_null(end);
    json_t *figures = json_loadb(start, (size_t)(end - start), 0, NULL);
    assert_non_null(figures);
    return figures;
}

static void the_page_needs_nothing_from_elsewhere(void **state)
{
    (void)state;
    static const char *const elsewhere[] = {"src=",   "href=",          "@import", "url(",
                                            "fetch(", "XMLHttpRequest", "https:"};
    char *page = report_make();
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        if (strstr(page, elsewhere[i]) != NULL) {
            fail_msg("the page has '%s'", elsewhere[i]);
        }
    }
    /* The one address is the name of SVG, which is never fetched. */
    const char *address = strstr(page, "http:");
    assert_non_null(address);
    assert_memory_equal(address, "http://www.w3.org/2000/svg", 26);
    assert_null(strstr(address + 1, "http:"));
    free(page);
}

static void the_page_has_a_course_of_every_policy_and_all_sweeps(void **state)
{
    (void)state;
    char *page = report_make();
    json_t *figures = figures_read(page);
    json_t *policies = json_object_get(figures, "policies");
    assert_int_equal(json_array_size(policies), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *course = json_object_get(json_array_get(policies, i), "course");
        json_t *accounts = json_object_get(course, "accounts"), *values;
        const char *name;
        double middle = 0;
        json_object_foreach(accounts, name, values)
        {
            middle += json_number_value(json_array_get(values, 240));
        }
        assert_float_equal(middle, 2, 0.02); /* both devices, to three digits */
        assert_int_equal(json_array_size(json_object_get(course, "devices")), 2);
    }
    assert_int_equal(json_array_size(json_object_get(figures, "budget_sweep")), 10);
    assert_int_equal(json_array_size(json_object_get(figures, "hold_sweep")), 4);
    json_t *grids = json_object_get(figures, "grids");
    assert_int_equal(json_array_size(json_object_get(grids, "static")), 3);
    assert_null(json_object_get(grids, "serve-all"));
    json_decref(figures);
    free(page);
}

static void a_place_that_cannot_be_written_is_an_error(void **state)
{
    (void)state;
    struct error error = {0};
    struct sim sim = {0};
    sim.setup.end_ns = 1;
    assert_true(sim_report_write(&sim, "/nowhere/at/all.html", &error) < 0);
    assert_non_null(strstr(error.text, "open '/nowhere/at/all.html'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_needs_nothing_from_elsewhere),
        cmocka_unit_test(the_page_has_a_course_of_every_policy_and_all_sweeps),
        cmocka_unit_test(a_place_that_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
