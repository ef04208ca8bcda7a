#include "server/control/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- helpers
 * -------------------------------------------------------------------------------------- */

static void write_config(const char *text, char path[64])
{
    strcpy(path, "/tmp/tidepool-config-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int read_text(const char *text, struct config *config, struct error *error)
{
    char path[64];
    write_config(text, path);
    int result = config_read(config, path, error);
    unlink(path);
    return result;
}

static void assert_refused(const char *text, const char *part, const char *other_part)
{
    struct config config = {0};
    struct error error = {0};
    assert_int_equal(read_text(text, &config, &error), -ERROR_INVALID_ARGUMENT);
    if (strstr(error.text, part) == NULL || strstr(error.text, other_part) == NULL) {
        fail_msg("'%s' lacks '%s' or '%s'", error.text, part, other_part);
    }
    config_fini(&config);
}

/* ---- tests
 * ------------------------------------------------------------------------------------------ */

static void without_a_file_everything_has_its_default(void **state)
{
    (void)state;
    struct config config = {0};
    assert_int_equal(config_read(&config, NULL, NULL), 0);
    assert_int_equal(config.listener_count, 3);
    assert_string_equal(config.listeners[0].address, "127.0.0.1:8001");
    assert_int_equal(config.listeners[0].services, CONFIG_SERVICES_GRPC);
    assert_int_equal(config.mode, 2);
    assert_int_equal(config.limits.message_mib, 64);
    assert_true(config.planner.load_high == 0.8);
    assert_false(config.testing);
    assert_null(config.model_repository);
    config_fini(&config);
}

static void values_are_read(void **state)
{
    (void)state;
    struct config config = {0};
    assert_int_equal(read_text("{\"mode\": \"observe\", \"testing\": true, \"drain_s\": 2.5,"
                               " \"devices\": {\"cpu_devices\": 2, \"cores_per_device\": 1},"
                               " \"planner\": {\"notice_s\": 5},"
                               " \"log\": {\"level\": \"warn\", \"format\": \"json\"},"
                               " \"listeners\": [{\"address\": \"unix:/tmp/x\", \"services\":"
                               " [\"control\"]}, {\"address\": \"[::1]:0\", \"services\":"
                               " [\"http\", \"metrics\"]}]}",
                               &config, NULL),
                     0);
    assert_int_equal(config.mode, 0);
    assert_true(config.testing);
    assert_true(config.drain_s == 2.5);
    assert_int_equal(config.devices.cpu_devices, 2);
    assert_int_equal(config.devices.cores_per_device, 1);
    assert_true(config.planner.notice_s == 5);
    assert_int_equal(config.log.level, 2);
    assert_int_equal(config.log.format, 1);
    assert_int_equal(config.listener_count, 2);
    assert_int_equal(config.listeners[0].services, CONFIG_SERVICE_CONTROL);
    assert_int_equal(config.listeners[1].services, CONFIG_SERVICE_HTTP | CONFIG_SERVICE_METRICS);
    config_fini(&config);
}

static void mistakes_are_named_with_the_way_out(void **state)
{
    (void)state;
    assert_refused("{\"model_repositry\": \"x\"}", "model_repositry",
                   "did you mean 'model_repository'");
    assert_refused("{\"devices\": {\"cpu_devises\": 1}}", "config.devices",
                   "did you mean 'cpu_devices'");
    assert_refused("{\"devices\": {\"cpu_devices\": -3}}", "-3", "0 to 64");
    assert_refused("{\"devices\": []}", "config.devices", "must be an object");
    assert_refused("{\"mode\": \"acting\"}", "acting", "observe, advise, act");
    assert_refused("{\"testing\": 1}", "config.testing", "true or false");
    assert_refused("{\"planner\": {\"load_low\": 0.9}}", "load_low", "less than load_high");
    assert_refused("{\"planner\": {\"shrink_low\": 0.85}}", "shrink_low", "shrink_high");
    assert_refused("{\"a\": 1,\n \"a\": 2}", "line 2", "duplicate");
    assert_refused("{\"mode\": }", "line 1", "column");
}

static void mistakes_in_listeners_are_named(void **state)
{
    (void)state;
    assert_refused("{\"listeners\": {}}", "config.listeners", "list");
    assert_refused("{\"listeners\": [{\"services\": [\"http\"]}]}", "config.listeners[0]",
                   "address");
    assert_refused("{\"listeners\": [{\"address\": \"a:1\", \"services\": []}]}",
                   "config.listeners[0].services", "at least one");
    assert_refused("{\"listeners\": [{\"address\": \"a:1\", \"services\": [\"grpc\"]}]}", "'grpc'",
                   "inference, health, control, http, metrics");
    assert_refused("{\"listeners\": [{\"address\": \"a:1\", \"services\": [7]}]}", "not a text",
                   "inference");
    assert_refused("{\"listeners\": [{\"address\": \"a:1\", \"services\":"
                   " [\"http\", \"control\"]}]}",
                   "two listeners", "gRPC");
    assert_refused("{\"listeners\": [{\"address\": \"unix:/x\", \"services\": [\"metrics\"]}]}",
                   "TCP", "metrics");
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    struct config config = {0};
    struct error error = {0};
    assert_int_equal(config_read(&config, "/nowhere/tidepool.json", &error), -ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nowhere/tidepool.json"));
}

static void the_socket_follows_the_state_directory(void **state)
{
    (void)state;
    struct config config = {0};
    assert_int_equal(config_read(&config, NULL, NULL), 0);
    assert_int_equal(config_override(&config, "models", "/srv/tide", NULL), 0);
    assert_int_equal(config_complete(&config, NULL), 0);
    assert_string_equal(config.model_repository, "models");
    assert_int_equal(config.listener_count, 4);
    assert_string_equal(config.listeners[3].address, "unix:/srv/tide/tidepool.sock");
    config_fini(&config);

    assert_int_equal(config_read(&config, NULL, NULL), 0);
    assert_int_equal(config_override(&config, NULL, "/var/lib/tidepool", NULL), 0);
    assert_int_equal(config_complete(&config, NULL), 0);
    assert_string_equal(config.listeners[3].address, "unix:/run/tidepool/tidepool.sock");
    config_fini(&config);

    assert_int_equal(read_text("{\"state\": \"/srv/tide\", \"listeners\": [{\"address\":"
                               " \"unix:/tmp/mine\", \"services\": [\"control\"]}]}",
                               &config, NULL),
                     0);
    assert_int_equal(config_complete(&config, NULL), 0);
    assert_int_equal(config.listener_count, 1); /* there is one already */
    config_fini(&config);
}

static void a_reload_tells_what_needs_a_restart(void **state)
{
    (void)state;
    struct config old = {0};
    struct config new = {0};
    char live[128];
    char restart[128];
    assert_int_equal(read_text("{\"mode\": \"act\", \"testing\": false}", &old, NULL), 0);
    assert_int_equal(read_text("{\"mode\": \"act\", \"testing\": true, \"log\": {\"level\":"
                               " \"debug\"}, \"drain_s\": 1, \"devices\": {\"cpu_devices\": 2}}",
                               &new, NULL),
                     0);
    config_changes(&old, &new, live, sizeof live, restart, sizeof restart);
    assert_string_equal(live, "testing, log");
    assert_string_equal(restart, "drain_s, devices");
    config_changes(&old, &old, live, sizeof live, restart, sizeof restart);
    assert_string_equal(live, "");
    assert_string_equal(restart, "");
    config_fini(&old);
    config_fini(&new);
}

static void the_demo_configuration_is_good(void **state)
{
    (void)state;
    struct config config = {0};
    struct error error = {0};
    if (config_read(&config, "config/demo.json", &error) < 0) {
        fail_msg("%s", error.text);
    }
    assert_true(config.port_fallback);
    assert_int_equal(config.devices.cpu_devices, 2);
    config_fini(&config);
}

static void the_documentation_is_what_the_tables_print(void **state)
{
    (void)state;
    char *printed = NULL;
    size_t printed_size = 0;
    FILE *out = open_memstream(&printed, &printed_size);
    config_print_help(out);
    fclose(out);
    FILE *file = fopen("config/README.md", "r");
    assert_non_null(file);
    char *kept = malloc(printed_size + 2);
    size_t kept_size = fread(kept, 1, printed_size + 1, file);
    fclose(file);
    if (kept_size != printed_size || memcmp(kept, printed, printed_size) != 0) {
        fail_msg("config/README.md is old: tidepoold --help-config > config/README.md");
    }
    free(kept);
    free(printed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_everything_has_its_default),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(mistakes_are_named_with_the_way_out),
        cmocka_unit_test(mistakes_in_listeners_are_named),
        cmocka_unit_test(a_missing_file_is_named),
        cmocka_unit_test(the_socket_follows_the_state_directory),
        cmocka_unit_test(a_reload_tells_what_needs_a_restart),
        cmocka_unit_test(the_demo_configuration_is_good),
        cmocka_unit_test(the_documentation_is_what_the_tables_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
