/* Tests server/shim/client.c against real shims: start, report, restart, who may command. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/shim/address.h"
#include "tests/unit/shim/acts.h"
#include "tests/unit/shim/fixture.h"

static void the_exit_code_is_the_jobs_own(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "exit", "127"); /* a real 127 is no failed start */
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_code, 127);
    assert_int_equal(fixture->record.exit_signal, 0);
    assert_int_equal(fixture->record.step, START_NOTHING);
    assert_true(fixture->record.rss_bytes > 0);
}

static void a_job_killed_by_a_signal_is_told_as_that(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    fixture_log_until(fixture, "pid ");
    assert_int_equal(
        fixture_answer(fixture, shim_client_signal(fixture->client, SIGUSR1, true))->kind,
        SHIM_DONE);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_signal, SIGUSR1);
}

static void start_must_fail(struct fixture *fixture, enum shim_step step, int number,
                            const char *text)
{
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_FAILED);
    assert_int_equal(fixture->record.step, step);
    assert_int_equal(fixture->record.error_number, number);
    if (strstr(fixture->record.text, text) == NULL) {
        fail_msg("no '%s' in '%s'", text, fixture->record.text);
    }
    assert_int_equal(fixture->record.leader_pid, 0);
    fixture_wait_lost(fixture); /* the shim has gone by itself */
    assert_false(fixture_restart(fixture));
    assert_int_equal(fixture->record.state, SHIM_FAILED);
}

static void script_write(const struct fixture *fixture, const char *text, mode_t mode,
                         char path[320])
{
    int fd;
    fixture_open_path(fixture, "script-", path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)fchmod(fd, mode);
    (void)close(fd);
}

static void a_program_that_is_not_there_is_a_failed_start(void **state)
{
    struct fixture *fixture = *state;
    fixture->arguments[0] = "/nowhere/at/all";
    start_must_fail(fixture, START_EXECUTE, ENOENT, "/nowhere/at/all': No such file or directory");
}

static void a_name_that_no_folder_of_path_has_is_a_failed_start(void **state)
{
    struct fixture *fixture = *state;
    fixture->arguments[0] = "tidepool-no-such-program";
    start_must_fail(fixture, START_EXECUTE, ENOENT, "tidepool-no-such-program");
}

static void a_directory_is_no_program(void **state)
{
    struct fixture *fixture = *state;
    fixture->arguments[0] = "/usr";
    start_must_fail(fixture, START_EXECUTE, EACCES, "Permission denied");
}

static void a_script_without_its_execute_bit_is_no_program(void **state)
{
    struct fixture *fixture = *state;
    char path[320];
    script_write(fixture, "#!/bin/sh\nexit 0\n", 0644, path);
    fixture->arguments[0] = path;
    start_must_fail(fixture, START_EXECUTE, EACCES, "Permission denied");
}

static void a_script_without_a_first_line_is_no_program(void **state)
{
    struct fixture *fixture = *state;
    char path[320];
    script_write(fixture, "exit 0\n", 0755, path);
    fixture->arguments[0] = path;
    start_must_fail(fixture, START_EXECUTE, ENOEXEC, "Exec format error");
}

static void a_missing_interpreter_is_told_apart_from_a_missing_script(void **state)
{
    struct fixture *fixture = *state;
    char path[320];
    script_write(fixture, "#!/no/such/python\n", 0755, path);
    fixture->arguments[0] = path;
    start_must_fail(fixture, START_INTERPRETER, ENOENT, "its interpreter");
}

static void arguments_beyond_what_the_kernel_takes_are_a_failed_start(void **state)
{
    struct fixture *fixture = *state;
    char *long_one = malloc((1 << 18) + 1);
    memset(long_one, 'a', 1 << 18); /* one argument may have 128 KiB */
    long_one[1 << 18] = '\0';
    fixture->arguments[0] = "/bin/true";
    fixture->arguments[1] = long_one;
    start_must_fail(fixture, START_EXECUTE, E2BIG, "Argument list too long");
    free(long_one);
}

static void a_missing_working_directory_is_a_failed_start(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "exit", "0");
    fixture->job.working_directory = "/no/such/place";
    start_must_fail(fixture, START_DIRECTORY, ENOENT, "'/no/such/place'");
}

static void a_directory_that_has_a_job_already_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct shim_client *first;
    struct shim_record record;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    record = fixture->record;
    first = fixture->client;
    fixture->told = false;
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_FAILED);
    assert_int_equal(fixture->record.step, START_SHIM);
    shim_client_destroy(fixture->client);
    fixture->client = first;
    fixture->lost = false;
    assert_int_equal(fixture_answer(fixture, shim_client_verify(first))->processes, 1);
    assert_int_equal(record_read(fixture->directory, &fixture->record, NULL), 0);
    assert_int_equal(fixture->record.shim_pid, record.shim_pid); /* the first one's still */
}

static void a_directory_that_others_may_enter_is_refused(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "exit", "0");
    assert_int_equal(chmod(fixture->directory, 0750), 0);
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_FAILED);
    assert_non_null(strstr(fixture->record.text, "mode 0700"));
    fixture->record.state = 0;
}

static void kill_report(void *arg, const struct shim_report *report)
{
    if (report->kind == SHIM_DONE && report->empty) {
        *(bool *)arg = true;
    }
}

/* As the server does that has given up its privileges; the shim has kept them. */
static _Noreturn void kill_as_plain_user(const struct fixture *fixture)
{
    struct shim_record record;
    struct shim_client *client = NULL;
    struct error error = {.text = ""};
    bool killed = false;
    (void)alarm(WAIT_MS / 1000);
    if (setgid(PLAIN_USER) < 0 || setuid(PLAIN_USER) < 0 ||
        shim_client_find(fixture->spawner, fixture->directory, kill_report, &killed, &record,
                         &client, &error) < 0 ||
        client == NULL || shim_client_kill(client, 5000) == 0) {
        (void)fprintf(stderr, "%s\n", error.text);
        _exit(1);
    }
    while (!killed && shim_client_fd(client) >= 0) {
        struct pollfd ready = {.fd = shim_client_fd(client), .events = POLLIN};
        (void)poll(&ready, 1, WAIT_MS);
        shim_client_turn(client);
    }
    _exit(killed ? 0 : 2);
}

static void a_server_without_privileges_commands_a_shim_that_has_them(void **state)
{
    struct fixture *fixture = *state;
    int status;
    pid_t child;
    if (fixture->uid != 0) {
        return;
    }
    fixture_act(fixture, "stay", NULL);
    fixture_give_to(fixture, PLAIN_USER);
    fixture_start(fixture);
    child = fork();
    if (child == 0) {
        kill_as_plain_user(fixture);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_false(pid_lives((pid_t)fixture->record.leader_pid));
}

static void another_user_is_refused_to_who_may_not_become_one(void **state)
{
    struct fixture *fixture = *state;
    if (fixture->uid == 0) {
        return; /* root may: a_job_of_another_user_has_nothing_of_ours */
    }
    fixture_act(fixture, "exit", "0");
    fixture->job.uid = fixture->uid - 1;
    start_must_fail(fixture, START_USER, EPERM, "become user");
}

static void output_that_is_no_file_is_a_failed_start(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "exit", "0");
    fixture->job.output = "/proc/1"; /* a folder */
    start_must_fail(fixture, START_OUTPUT, EISDIR, "open output '/proc/1'");
}

static void many_failed_starts_leave_no_process_and_no_descriptor(void **state)
{
    struct fixture *fixture = *state;
    int before = dup(0), after;
    (void)close(before);
    for (int i = 0; i < 20; i++) {
        char path[320];
        fixture->arguments[0] = "/nowhere";
        fixture_begin(fixture);
        fixture_wait_state(fixture, SHIM_FAILED);
        fixture_wait_lost(fixture);
        shim_client_destroy(fixture->client);
        fixture->client = NULL;
        fixture->told = fixture->lost = false;
        for (int name = 0; name < 4; name++) {
            static const char *const names[] = {"record", "socket", "log", "shim.log"};
            (void)snprintf(path, sizeof(path), "%s/%s", fixture->directory, names[name]);
            (void)unlink(path);
        }
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), 0); /* none is dead; the spawner lives */
    after = dup(0);
    (void)close(after);
    assert_int_equal(before, after);
}

/* CP-3. What the shim has of us it must not hand on either. */
static void the_job_sees_its_own_descriptors_signals_and_limits_only(void **state)
{
    struct fixture *fixture = *state;
    const char *log;
    struct job_limit limit = {RLIMIT_NOFILE, 77, 77};
    sigset_t blocked;
    int leak = dup(0); /* not close-on-exec */
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGUSR2, SIG_IGN);
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &blocked, NULL);
    (void)setenv("TIDEPOOL_SERVER_SECRET", "key", 1);
    fixture_give_to(fixture, fixture->uid); /* a spawner that was given all that */
    fixture_shell(
        fixture,
        "echo fds $(ls /proc/$$/fd | tr '\\n' ' '); grep -E '^Sig(Blk|Ign)' "
        "/proc/self/status; umask; ulimit -n; nice; pwd; env; "
        "until grep -x 500 /proc/$$/oom_score_adj; do :; done; cut -d' ' -f1,5,6 /proc/$$/stat; "
        "echo done");
    fixture->job.limits = &limit;
    fixture->job.limit_count = 1;
    fixture->job.nice = 7;
    fixture->environment[1] = "MINE=yes";
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    (void)signal(SIGHUP, SIG_DFL);
    (void)signal(SIGUSR2, SIG_DFL);
    (void)sigprocmask(SIG_UNBLOCK, &blocked, NULL);
    (void)unsetenv("TIDEPOOL_SERVER_SECRET");
    (void)close(leak);
    log = fixture_log(fixture);
    /* 3 or 4 are the shell's own, of its $( ). */
    assert_non_null(strstr(log, "fds 0 1 2"));
    assert_null(strstr(log, " 5 "));
    assert_null(strstr(log, " 6 "));
    assert_non_null(strstr(log, "SigBlk:\t0000000000000000"));
    assert_non_null(strstr(log, "SigIgn:\t0000000000000000"));
    assert_non_null(strstr(log, "\n0027\n77\n7\n/\n"));
    assert_non_null(strstr(log, "MINE=yes\n"));
    assert_non_null(strstr(log, "TIDEPOOL_JOB_TAG="));
    assert_null(strstr(log, "SECRET"));
    assert_non_null(strstr(log, "\n500\n"));
    {
        int pid, group, session;
        const char *line = strstr(log, "\n500\n") + 5;
        assert_int_equal(sscanf(line, "%d %d %d", &pid, &group, &session), 3);
        assert_int_equal(pid, group);
        assert_int_equal(pid, session); /* its own, not the shim's */
    }
}

static void a_job_of_another_user_has_nothing_of_ours(void **state)
{
    struct fixture *fixture = *state;
    static const uint32_t groups[] = {12345};
    char output[320];
    struct stat status;
    const char *log;
    if (fixture->uid != 0) {
        return; /* a plain user has itself alone */
    }
    fixture_shell(fixture,
                  "id -u; id -G; cat /proc/$$/status | grep CapEff; touch /x 2>&1; echo done");
    fixture->job.uid = fixture->job.gid = PLAIN_USER;
    fixture->job.groups = groups;
    fixture->job.group_count = 1;
    fixture_open_path(fixture, "out-", output);
    fixture->job.output = output;
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    log = fixture_log(fixture);
    assert_non_null(strstr(log, "65534\n65534 12345\n"));
    assert_non_null(strstr(log, "CapEff:\t0000000000000000"));
    assert_non_null(strstr(log, "ermission denied"));
    assert_int_equal(stat(output, &status), 0); /* opened as the user, with its mask */
    assert_int_equal(status.st_uid, PLAIN_USER);
    assert_int_equal(status.st_mode & 0777, 0640);
    assert_true(status.st_size > 0);
}

static void standard_input_is_the_callers(void **state)
{
    struct fixture *fixture = *state;
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(write(pipes[1], "hello\n", 6), 6);
    fixture->job.stdin_fd = pipes[0];
    fixture_shell(fixture, "cat; echo end");
    fixture_start(fixture);
    (void)close(pipes[0]);
    (void)close(pipes[1]); /* nobody else has kept it: cat ends */
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_string_equal(fixture_log(fixture), "hello\nend\n");
}

static void a_program_is_found_by_the_jobs_own_path(void **state)
{
    struct fixture *fixture = *state;
    fixture->environment[0] = "PATH=/nowhere:/usr/bin:/bin";
    fixture->arguments[0] = "echo";
    fixture->arguments[1] = "found";
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_string_equal(fixture_log(fixture), "found\n");
}

/* ---- restart ---------------------------------------------------------------------------- */

static void a_later_server_finds_shim_job_and_lease_again(void **state)
{
    struct fixture *fixture = *state;
    struct shim_record update;
    pid_t leader;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    leader = (pid_t)fixture->record.leader_pid;
    update = fixture->record;
    (void)snprintf(update.lease, sizeof(update.lease), "lease-2");
    update.generation = 11;
    update.kill_deadline_ns = 123456789;
    update.token_size = 2;
    assert_int_equal(fixture_answer(fixture, shim_client_update(fixture->client, &update))->kind,
                     SHIM_DONE);
    assert_true(fixture_restart(fixture));
    assert_string_equal(fixture->record.lease, "lease-2"); /* it was on the disk */
    assert_int_equal(fixture->record.kill_deadline_ns, 123456789);
    assert_int_equal(fixture->record.generation, 11);
    assert_int_equal(fixture->record.token_size, 2);
    assert_string_equal(fixture->record.job, "job");
    fixture_wait_state(fixture, SHIM_RUNNING);
    assert_int_equal(fixture->record.leader_pid, leader);
    assert_true(pid_lives(leader));
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 5000))->empty);
    assert_false(pid_lives(leader));
}

static void log_and_exit_code_wait_for_the_next_server(void **state)
{
    struct fixture *fixture = *state;
    fixture_shell(fixture, "echo begun; read line; echo $line; exit 9");
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    fixture->job.stdin_fd = pipes[0];
    fixture_start(fixture);
    (void)close(pipes[0]);
    shim_client_destroy(fixture->client); /* the server dies; then the job ends */
    fixture->client = NULL;
    assert_int_equal(write(pipes[1], "over\n", 5), 5);
    for (int tries = 0; tries < 1000; tries++) {
        struct shim_record record;
        assert_int_equal(record_read(fixture->directory, &record, NULL), 0);
        if (record.state == SHIM_ENDED) {
            break;
        }
        (void)poll(NULL, 0, 10);
    }
    assert_true(fixture_restart(fixture));
    fixture_wait_state(fixture, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_code, 9);
    assert_string_equal(fixture_log(fixture), "begun\nover\n");
    assert_int_equal(fixture_answer(fixture, shim_client_close(fixture->client))->kind, SHIM_DONE);
    fixture_wait_lost(fixture);
    (void)close(pipes[1]);
    assert_false(
        fixture_restart(fixture)); /* gone, as it was told to; the record tells all the same */
    assert_int_equal(fixture->record.exit_code, 9);
}

static void a_shim_that_nobody_asks_goes_after_a_while_and_leaves_its_record(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "exit", "4");
    fixture->job.linger_ms = 50;
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_ENDED);
    fixture_wait_lost(fixture);
    assert_false(fixture_restart(fixture));
    assert_int_equal(fixture->record.state, SHIM_ENDED);
    assert_int_equal(fixture->record.exit_code, 4);
}

static void a_server_with_an_older_token_changes_nothing(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    shim_client_set_token(fixture->client, 3, 9);
    assert_int_equal(fixture_answer(fixture, shim_client_kill(fixture->client, 1000))->code,
                     ERROR_FAILED_PRECONDITION);
    shim_client_set_token(fixture->client, 2, 99);
    assert_int_equal(fixture_answer(fixture, shim_client_freeze(fixture->client, 1000))->code,
                     ERROR_FAILED_PRECONDITION);
    assert_true(pid_lives((pid_t)fixture->record.leader_pid));
    shim_client_set_token(fixture->client, 4, 0);
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 5000))->empty);
}

static int guest_connect(const struct fixture *fixture)
{
    struct shim_address address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(shim_address_open(&address, fixture->directory, NULL), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address.name, sizeof(address.name)), 0);
    shim_address_close(&address);
    return fd;
}

static void guest_is_shown_out(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char byte;
    assert_int_equal(poll(&ready, 1, WAIT_MS), 1);
    assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) <= 0);
    (void)close(fd);
}

static void who_does_not_know_the_secret_is_shown_out(void **state)
{
    struct fixture *fixture = *state;
    unsigned char bytes[256];
    struct message message;
    static const unsigned char wrong[SHIM_SECRET_SIZE] = {1};
    int guest, silent[6];
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    for (int i = 0; i < 3; i++) {
        guest = guest_connect(fixture);
        message_init(&message, i == 0 ? MESSAGE_HELLO : MESSAGE_KILL, 1);
        if (i == 0) {
            message_put_bytes(&message, FIELD_SECRET, wrong, sizeof(wrong));
        }
        message_encode(&message, bytes);
        assert_true(send(guest, bytes, i == 2 ? 3 : message_size(&message), MSG_NOSIGNAL) > 0);
        guest_is_shown_out(guest);
    }
    for (int i = 0; i < 6; i++) {
        silent[i] = guest_connect(fixture); /* those that say nothing do not fill the door */
    }
    assert_true(fixture_restart(fixture));
    fixture_wait_state(fixture, SHIM_RUNNING);
    assert_true(pid_lives((pid_t)fixture->record.leader_pid));
    for (int i = 0; i < 6; i++) {
        (void)close(silent[i]);
    }
}

static void a_newer_server_takes_the_say_from_an_older_one(void **state)
{
    struct fixture *fixture = *state;
    struct shim_client *older;
    struct shim_record record;
    struct error error;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    older = fixture->client;
    fixture->client = NULL;
    assert_int_equal(shim_client_find(fixture->spawner, fixture->directory, NULL, NULL, &record,
                                      &fixture->client, &error),
                     0);
    shim_client_destroy(fixture->client);
    fixture->client = older; /* its connection is closed by the shim */
    fixture_wait_lost(fixture);
    assert_int_equal(shim_client_kill(fixture->client, 1000), 0);
    assert_true(pid_lives((pid_t)record.leader_pid));
}

static void a_record_of_another_process_is_not_believed(void **state)
{
    struct fixture *fixture = *state;
    struct shim_record record;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    assert_int_equal(record_read(fixture->directory, &record, NULL), 0);
    record.shim_start++; /* the pid has come to somebody else */
    assert_int_equal(record_write(fixture->directory, &record, NULL), 0);
    assert_false(fixture_restart(fixture));
    record.shim_start--;
    record.boot[0] ^= 1; /* of another boot */
    assert_int_equal(record_write(fixture->directory, &record, NULL), 0);
    assert_false(fixture_restart(fixture));
    record.boot[0] ^= 1;
    assert_int_equal(record_write(fixture->directory, &record, NULL), 0);
    assert_true(fixture_restart(fixture));
}

static void a_stopped_shim_is_woken_by_being_found(void **state)
{
    struct fixture *fixture = *state;
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    assert_int_equal(kill((pid_t)fixture->record.shim_pid, SIGSTOP), 0);
    assert_true(fixture_restart(fixture));
    fixture_wait_state(fixture, SHIM_RUNNING);
    assert_true(fixture_answer(fixture, shim_client_kill(fixture->client, 5000))->empty);
}

static void a_shim_hears_no_signal_but_kill(void **state)
{
    struct fixture *fixture = *state;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGQUIT, SIGALRM};
    fixture_act(fixture, "stay", NULL);
    fixture_start(fixture);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        assert_int_equal(kill((pid_t)fixture->record.shim_pid, signals[i]), 0);
    }
    assert_int_equal(fixture_answer(fixture, shim_client_verify(fixture->client))->kind, SHIM_DONE);
    assert_false(fixture->answer.empty);
    assert_int_equal(fixture->answer.processes, 1);
}

static int group(void)
{
#define SHIM_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        SHIM_TEST(the_exit_code_is_the_jobs_own),
        SHIM_TEST(a_job_killed_by_a_signal_is_told_as_that),
        SHIM_TEST(a_program_that_is_not_there_is_a_failed_start),
        SHIM_TEST(a_name_that_no_folder_of_path_has_is_a_failed_start),
        SHIM_TEST(a_directory_is_no_program),
        SHIM_TEST(a_script_without_its_execute_bit_is_no_program),
        SHIM_TEST(a_script_without_a_first_line_is_no_program),
        SHIM_TEST(a_missing_interpreter_is_told_apart_from_a_missing_script),
        SHIM_TEST(arguments_beyond_what_the_kernel_takes_are_a_failed_start),
        SHIM_TEST(a_missing_working_directory_is_a_failed_start),
        SHIM_TEST(a_directory_that_has_a_job_already_is_refused),
        SHIM_TEST(a_directory_that_others_may_enter_is_refused),
        SHIM_TEST(a_server_without_privileges_commands_a_shim_that_has_them),
        SHIM_TEST(another_user_is_refused_to_who_may_not_become_one),
        SHIM_TEST(output_that_is_no_file_is_a_failed_start),
        SHIM_TEST(many_failed_starts_leave_no_process_and_no_descriptor),
        SHIM_TEST(the_job_sees_its_own_descriptors_signals_and_limits_only),
        SHIM_TEST(a_job_of_another_user_has_nothing_of_ours),
        SHIM_TEST(standard_input_is_the_callers),
        SHIM_TEST(a_program_is_found_by_the_jobs_own_path),
        SHIM_TEST(a_later_server_finds_shim_job_and_lease_again),
        SHIM_TEST(log_and_exit_code_wait_for_the_next_server),
        SHIM_TEST(a_shim_that_nobody_asks_goes_after_a_while_and_leaves_its_record),
        SHIM_TEST(a_server_with_an_older_token_changes_nothing),
        SHIM_TEST(who_does_not_know_the_secret_is_shown_out),
        SHIM_TEST(a_newer_server_takes_the_say_from_an_older_one),
        SHIM_TEST(a_record_of_another_process_is_not_believed),
        SHIM_TEST(a_stopped_shim_is_woken_by_being_found),
        SHIM_TEST(a_shim_hears_no_signal_but_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int count, char **arguments)
{
    act_if_asked(count, arguments);
    return fixture_run_modes(group);
}
