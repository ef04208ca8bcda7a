#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/net/address.h"

static void malformed_addresses_name_what_is_wanted(void **state)
{
    static const char *const bad[] = {
        "",      "8001",  ":8001",      "127.0.0.1", "::1:80", "127.0.0.1:99999", "127.0.0.1:x",
        "unix:", "[::1]", "300.1.1.1:0"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct listening listening;
        struct error error = {0};
        assert_int_equal(address_listen(bad[i], &listening, &error), -ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, bad[i]));
    }
}

static void tcp_binds_exactly_what_it_is_told(void **state)
{
    struct listening listening, second;
    struct error error = {0};
    char again[32];
    (void)state;
    assert_int_equal(address_listen("127.0.0.1:0", &listening, &error), 0);
    assert_true(listening.port > 0);
    snprintf(again, sizeof again, "127.0.0.1:%u", listening.port);
    assert_int_equal(address_listen(again, &second, &error), -ERROR_UNAVAILABLE);
    assert_non_null(strstr(error.text, again));
    address_close(&listening);
    assert_int_equal(address_listen(again, &second, &error), 0);
    address_close(&second);
    address_close(&second); /* closed already */
}

static void unix_socket_is_private_and_replaces_only_a_dead_one(void **state)
{
    char directory[] = "/tmp/tidepool-net-XXXXXX", address[64];
    struct listening first, second;
    struct stat status;
    struct error error = {0};
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(address, sizeof address, "unix:%s/socket", directory);
    assert_int_equal(address_listen(address, &first, &error), 0);
    assert_int_equal(stat(address + 5, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    assert_int_equal(address_listen(address, &second, &error), -ERROR_UNAVAILABLE);
    close(first.fd); /* as if its process had died: the file stays */
    assert_int_equal(address_listen(address, &second, &error), 0);
    address_close(&second);
    assert_int_equal(access(address + 5, F_OK), -1);
    FILE *file = fopen(address + 5, "w"); /* a plain file is never removed */
    assert_non_null(file);
    fclose(file);
    assert_int_equal(address_listen(address, &second, &error), -ERROR_UNAVAILABLE);
    assert_int_equal(unlink(address + 5), 0);
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_addresses_name_what_is_wanted),
        cmocka_unit_test(tcp_binds_exactly_what_it_is_told),
        cmocka_unit_test(unix_socket_is_private_and_replaces_only_a_dead_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
