/* Tests server/base/user.c and folder.c. What only root may do is tried by children that give
 * root up for good. */
#include <errno.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/base/folder.h"
#include "server/base/user.h"

static char place[64];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(place, sizeof place, "/tmp/tidepool-user-XXXXXX");
    return mkdtemp(place) != NULL && chmod(place, 0755) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -r '%s'", place);
    return system(command);
}

static void a_user_is_found_by_name_and_by_number(void **state)
{
    struct user root, number;
    struct error error;
    (void)state;
    assert_int_equal(user_find("root", &root, &error), 0);
    assert_int_equal(root.uid, 0);
    assert_int_equal(user_find("0", &number, &error), 0);
    assert_string_equal(number.name, "root");
    assert_int_equal(user_find("no-such-user", &root, &error), -(int)ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "no user 'no-such-user' on this machine"));
}

static void folders_are_made_with_those_above(void **state)
{
    char path[128];
    struct stat status;
    (void)state;
    (void)snprintf(path, sizeof path, "%s/a/b/c", place);
    assert_int_equal(folder_make_all(path, 0700, NULL), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
    assert_int_equal(folder_make_all(path, 0700, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/a/b", place);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0755);
    struct error error;
    assert_int_equal(folder_make_all("/proc/nowhere/at", 0700, &error), -(int)ERROR_NOT_FOUND);
    assert_non_null(strstr(error.text, "create '/proc/nowhere'"));
}

static void an_empty_folder_is_given_and_a_used_one_refused(void **state)
{
    struct user nobody;
    struct error error;
    struct stat status;
    char path[128], inside[160];
    (void)state;
    if (geteuid() != 0) {
        return;
    }
    assert_int_equal(user_find("nobody", &nobody, &error), 0);
    (void)snprintf(path, sizeof path, "%s/state", place);
    assert_int_equal(user_give_folder(&nobody, path, &error), 0);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_uid, nobody.uid);
    assert_int_equal(user_give_folder(&nobody, path, &error), 0);
    (void)snprintf(path, sizeof path, "%s/used", place);
    (void)snprintf(inside, sizeof inside, "%s/file", path);
    assert_int_equal(folder_make_all(inside, 0700, &error), 0);
    assert_int_equal(user_give_folder(&nobody, path, &error), -(int)ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "chown -R nobody"));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_uid, 0);
}

static _Noreturn void become_nobody_and_look(void)
{
    struct user nobody;
    gid_t groups[8];
    struct error error = {.text = ""};
    if (user_find("nobody", &nobody, &error) < 0 || user_become(&nobody, &error) < 0) {
        (void)fprintf(stderr, "%s\n", error.text);
        _exit(1);
    }
    int count = getgroups(8, groups);
    for (int i = 0; i < count; i++) {
        if (groups[i] == 0) {
            _exit(2);
        }
    }
    if (getuid() != nobody.uid || geteuid() != nobody.uid || getegid() != nobody.gid ||
        setuid(0) == 0 || access("/proc/self/fd/0", F_OK) != 0) {
        _exit(3);
    }
    struct user root = {.uid = 0, .gid = 0, .name = "root"};
    _exit(user_become(&root, &error) == -(int)ERROR_PERMISSION_DENIED &&
                  user_become(&nobody, &error) == 0
              ? 0
              : 4);
}

static void there_is_no_way_back_to_root(void **state)
{
    int status;
    (void)state;
    if (geteuid() != 0) {
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        become_nobody_and_look();
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_is_found_by_name_and_by_number),
        cmocka_unit_test_setup_teardown(folders_are_made_with_those_above, setup, teardown),
        cmocka_unit_test_setup_teardown(an_empty_folder_is_given_and_a_used_one_refused, setup,
                                        teardown),
        cmocka_unit_test(there_is_no_way_back_to_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
