/* Tests server/shim/tree.c and process.c: who is who, and core lists. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/shim/tree.h"

static void core_lists_are_read_strictly(void **state)
{
    static const struct {
        const char *text;
        int count; /* -1: refused */
    } cases[] = {
        {"0", 1},
        {"0-3,5", 5},
        {"1023", 1},
        {"7,7", 1},
        {"", -1},
        {",", -1},
        {"1-", -1},
        {"-1", -1},
        {"3-1", -1},
        {"1024", -1},
        {"1,", -1},
        {"1 2", -1},
        {" 1", -1},
        {"+1", -1},
        {"0x1", -1},
        {"1-2-3", -1},
        {"99999999999999999999", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cpu_set_t cpus;
        int result = cpus_parse(cases[i].text, &cpus, NULL);
        if (result != (cases[i].count < 0 ? -(int)ERROR_INVALID_ARGUMENT : 0) ||
            (result == 0 && CPU_COUNT(&cpus) != cases[i].count)) {
            fail_msg("'%s'", cases[i].text);
        }
    }
}

static void a_pid_with_another_start_time_is_another_process(void **state)
{
    struct process self;
    int fd;
    (void)state;
    assert_true(process_read(getpid(), &self));
    fd = process_open(self.pid, self.start);
    assert_true(fd >= 0);
    assert_false(process_over(fd));
    (void)close(fd);
    assert_int_equal(process_open(self.pid, self.start + 1), -1);
    assert_int_equal(process_open(0, 0), -1);
    assert_int_equal(process_open(-1, 0), -1);
    assert_int_equal(process_user(self.pid), geteuid());
}

static void a_tree_is_what_descends_from_its_root_and_nothing_else(void **state)
{
    int pipes[2];
    char byte;
    struct tree tree;
    pid_t child;
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    child = fork();
    if (child == 0) {
        if (fork() == 0) {
            (void)setsid();
        }
        (void)close(pipes[1]);
        (void)!read(pipes[0], &byte, 1); /* until the test closes it */
        _exit(0);
    }
    (void)close(pipes[0]);
    tree_init(&tree, getpid());
    while (tree_look(&tree) == 0 && tree.members.count < 2) {
    }
    assert_int_equal(tree.members.count, 2);
    assert_non_null(process_find(&tree.members, child));
    assert_null(process_find(&tree.members, getpid()));
    assert_null(process_find(&tree.members, getppid()));
    assert_int_equal(tree_live(&tree), 2);
    (void)close(pipes[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    tree_fini(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(core_lists_are_read_strictly),
        cmocka_unit_test(a_pid_with_another_start_time_is_another_process),
        cmocka_unit_test(a_tree_is_what_descends_from_its_root_and_nothing_else),
    };
    (void)alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
