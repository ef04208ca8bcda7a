#include "tests/unit/shim/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/shim/remains.h"

#define LOG_MAX (4 << 20)

static char place[64]; /* with the programs, and a folder for each test */
static enum cgroup_mode mode_now;
static unsigned count;

/* ---- modes ------------------------------------------------------------------------------ */

static void file_copy(const char *from, const char *to)
{
    char block[65536];
    ssize_t length;
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    if (in < 0 || out < 0) {
        (void)fprintf(stderr, "copy '%s' to '%s': %s\n", from, to, strerror(errno));
        exit(1);
    }
    while ((length = read(in, block, sizeof(block))) > 0) {
        if (write(out, block, (size_t)length) != length) {
            exit(1);
        }
    }
    (void)close(in);
    (void)close(out);
}

/* build/[variant/]tests/unit/shim/test_x: the shim is beside tests. */
static void place_make(void)
{
    char self[4096], shim[4200], target[128];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    (void)snprintf(shim, sizeof(shim), "%s", self);
    for (int up = 0; up < 4 && strrchr(shim, '/') != NULL; up++) {
        *strrchr(shim, '/') = '\0';
    }
    (void)strcat(shim, "/tidepool-shim");
    (void)snprintf(place, sizeof(place), "/tmp/tidepool-shim-XXXXXX");
    if (mkdtemp(place) == NULL || chmod(place, 0755) < 0) {
        exit(1);
    }
    (void)snprintf(target, sizeof(target), "%s/open", place);
    if (mkdir(target, 0777) < 0 || chmod(target, 0777) < 0) {
        exit(1);
    }
    (void)snprintf(target, sizeof(target), "%s/tidepool-shim", place);
    file_copy(shim, target);
    (void)snprintf(target, sizeof(target), "%s/act", place);
    file_copy(self, target);
}

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static bool mode_works(enum cgroup_mode mode)
{
    struct cgroup cgroup;
    struct error error;
    char name[64];
    (void)snprintf(name, sizeof(name), "tidepool-test-%d", getpid());
    if (mode == CGROUP_NEVER) {
        return true;
    }
    if (cgroup_create(mode, name, &cgroup, &error) < 0) {
        print_message("left out: %s\n", error.text);
        return false;
    }
    assert_int_equal(cgroup_remove(&cgroup), 0);
    return true;
}

static int mode_run(int (*group)(void), enum cgroup_mode mode, const char *name)
{
    mode_now = mode;
    print_message("---- %s\n", name);
    return mode_works(mode) ? group() : 0;
}

static int user_run(int (*group)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (setgroups(0, NULL) < 0 || setgid(PLAIN_USER) < 0 || setuid(PLAIN_USER) < 0) {
            _exit(1);
        }
        _exit(mode_run(group, CGROUP_NEVER, "as a plain user"));
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int fixture_run_modes(int (*group)(void))
{
    int failures = 0;
    place_make();
    if (geteuid() == 0) {
        failures += mode_run(group, CGROUP_ONLY_V2, "control group v2");
        failures += mode_run(group, CGROUP_ONLY_V1, "v1 freezer");
        if (chown(place, PLAIN_USER, PLAIN_USER) == 0) {
            failures += user_run(group);
        }
    }
    failures += mode_run(group, CGROUP_NEVER, "no control group");
    (void)nftw(place, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
    return failures;
}

/* ---- one test --------------------------------------------------------------------------- */

static struct spawner *spawner_for(uid_t owner)
{
    char program[128];
    const struct spawner_rules rules = {.program = program, .directory = place, .owner = owner};
    struct spawner *spawner = NULL;
    struct error error = {.text = ""};
    (void)snprintf(program, sizeof(program), "%s/tidepool-shim", place);
    if (spawner_create(&rules, &spawner, &error) < 0) {
        fail_msg("%s", error.text);
    }
    return spawner;
}

void fixture_give_to(struct fixture *fixture, uid_t server)
{
    spawner_destroy(fixture->spawner);
    fixture->spawner = spawner_for(server);
    fixture->job.owner = fixture->job.uid = server;
    fixture->job.gid = server;
    assert_int_equal(chown(fixture->directory, server, server), 0);
}

int fixture_setup(void **state)
{
    static const unsigned char token[] = {1, 2, 3};
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    if (fixture == NULL) {
        return -1;
    }
    fixture->mode = mode_now;
    fixture->uid = geteuid();
    fixture->gid = getegid();
    (void)snprintf(fixture->directory, sizeof(fixture->directory), "%s/%u-%d-%u", place,
                   (unsigned)mode_now, getpid(), ++count);
    (void)snprintf(fixture->log_path, sizeof(fixture->log_path), "%s/log", fixture->directory);
    if (mkdir(fixture->directory, 0700) < 0) {
        free(fixture);
        return -1;
    }
    fixture->spawner = spawner_for(fixture->uid);
    fixture->environment[0] = "PATH=/usr/bin:/bin";
    fixture->job = (struct shim_job){
        .directory = fixture->directory,
        .job = "job",
        .lease = "lease",
        .devices = "cpu0",
        .epoch = 3,
        .generation = 10,
        .token = token,
        .token_size = sizeof(token),
        .arguments = fixture->arguments,
        .environment = fixture->environment,
        .working_directory = "/",
        .stdin_fd = -1,
        .owner = fixture->uid,
        .uid = fixture->uid,
        .gid = fixture->gid,
        .umask = 027,
        .log_bytes = 1 << 20,
        .cgroup = mode_now,
        .grace_ms = 300,
        .linger_ms = 60000,
        .oom_score = 500,
    };
    *state = fixture;
    return 0;
}

/* By the record: whoever is left, the shim too. */
static void remains_clear(const struct fixture *fixture)
{
    struct shim_record record;
    if (record_read(fixture->directory, &record, NULL) < 0) {
        return;
    }
    for (int tries = 0; tries < 1000 && remains_end(&record) == REMAINS_LIVE; tries++) {
        (void)poll(NULL, 0, 5);
    }
}

/* A sanitizer's word in the shim is in its log alone. */
static bool shim_was_clean(const struct fixture *fixture)
{
    char path[320], line[512];
    bool clean = true;
    FILE *file;
    (void)snprintf(path, sizeof(path), "%s/shim.log", fixture->directory);
    file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strstr(line, "AddressSanitizer") != NULL || strstr(line, "runtime error") != NULL ||
            strstr(line, "detected memory leaks") != NULL || strstr(line, "Assertion") != NULL) {
            print_error("shim: %s", line);
            clean = false;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return clean;
}

int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    bool clean;
    remains_clear(fixture);
    if (fixture->client != NULL) {
        for (int tries = 0; tries < 1000 && !fixture->lost; tries++) {
            fixture_turn(fixture, 5);
        }
    }
    shim_client_destroy(fixture->client);
    spawner_destroy(fixture->spawner);
    clean = shim_was_clean(fixture);
    free(fixture);
    return clean ? 0 : -1;
}

void fixture_open_path(const struct fixture *fixture, const char *name, char path[320])
{
    (void)snprintf(path, 320, "%s/open/%s%s", place, name, strrchr(fixture->directory, '/') + 1);
}

const char *fixture_program(void)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/act", place);
    return path;
}

void fixture_act(struct fixture *fixture, const char *act, const char *argument)
{
    fixture->arguments[0] = fixture_program();
    fixture->arguments[1] = act;
    fixture->arguments[2] = argument;
}

void fixture_shell(struct fixture *fixture, const char *script)
{
    fixture->arguments[0] = "sh";
    fixture->arguments[1] = "-c";
    fixture->arguments[2] = script;
}

static void on_report(void *arg, const struct shim_report *report)
{
    struct fixture *fixture = arg;
    switch (report->kind) {
    case SHIM_STATE:
        fixture->record = *report->record;
        fixture->frozen = report->frozen;
        fixture->stirred = report->stirred;
        fixture->told = true;
        break;
    case SHIM_LOST:
        fixture->lost = true;
        break;
    case SHIM_DONE:
    case SHIM_FAILED_COMMAND:
        fixture->last_answer = report->command;
        fixture->answer = (struct answer){.there = true,
                                          .kind = report->kind,
                                          .empty = report->empty,
                                          .processes = report->processes,
                                          .took_ns = report->took_ns,
                                          .code = report->code};
        (void)snprintf(fixture->answer.text, sizeof(fixture->answer.text), "%s", report->text);
        break;
    }
}

void fixture_begin(struct fixture *fixture)
{
    struct error error = {.text = ""};
    int result = shim_client_start(fixture->spawner, &fixture->job, on_report, fixture,
                                   &fixture->client, &error);
    if (result < 0) {
        fail_msg("%s", error.text);
    }
}

static void turn_once(struct fixture *fixture, int milliseconds)
{
    struct pollfd ready = {.fd = shim_client_fd(fixture->client), .events = POLLIN};
    if (poll(&ready, 1, milliseconds) > 0) {
        shim_client_turn(fixture->client);
    }
}

void fixture_turn(struct fixture *fixture, int milliseconds)
{
    uint64_t until = boottime_now_ns() + (uint64_t)milliseconds * 1000000;
    uint64_t now;
    while ((now = boottime_now_ns()) < until) {
        turn_once(fixture, (int)((until - now) / 1000000) + 1);
    }
}

void fixture_wait_state(struct fixture *fixture, enum shim_state state)
{
    uint64_t until = boottime_now_ns() + WAIT_MS * UINT64_C(1000000);
    while (!(fixture->told && fixture->record.state == state) && !fixture->lost) {
        assert_true(boottime_now_ns() < until);
        turn_once(fixture, 100);
    }
    if (fixture->record.state != state) {
        fail_msg("state %d instead of %d: %s", (int)fixture->record.state, (int)state,
                 fixture->record.text);
    }
}

void fixture_start(struct fixture *fixture)
{
    fixture_begin(fixture);
    fixture_wait_state(fixture, SHIM_RUNNING);
}

void fixture_wait_lost(struct fixture *fixture)
{
    uint64_t until = boottime_now_ns() + WAIT_MS * UINT64_C(1000000);
    while (!fixture->lost) {
        assert_true(boottime_now_ns() < until);
        turn_once(fixture, 100);
    }
}

const struct answer *fixture_answer(struct fixture *fixture, uint64_t command)
{
    uint64_t until = boottime_now_ns() + WAIT_MS * UINT64_C(1000000);
    assert_true(command != 0);
    while (fixture->last_answer != command) {
        assert_true(boottime_now_ns() < until);
        assert_false(fixture->lost);
        turn_once(fixture, 100);
    }
    return &fixture->answer;
}

bool fixture_restart(struct fixture *fixture)
{
    struct shim_record record;
    struct error error = {.text = ""};
    shim_client_destroy(fixture->client);
    fixture->client = NULL;
    fixture->told = fixture->lost = false;
    fixture->last_answer = 0;
    for (int tries = 0;; tries++) {
        int result = shim_client_find(fixture->spawner, fixture->directory, on_report, fixture,
                                      &record, &fixture->client, &error);
        if (result == 0) {
            break;
        }
        if (result != -(int)ERROR_UNAVAILABLE || tries == 1000) {
            fail_msg("%s", error.text);
        }
        (void)poll(NULL, 0, 5);
    }
    fixture->record = record;
    return fixture->client != NULL;
}

const char *fixture_log(struct fixture *fixture)
{
    static char text[LOG_MAX];
    size_t length = 0;
    FILE *file = fopen(fixture->log_path, "re");
    if (file != NULL) {
        length = fread(text, 1, sizeof(text) - 1, file);
        (void)fclose(file);
    }
    text[length] = '\0';
    return text;
}

const char *fixture_log_until(struct fixture *fixture, const char *text)
{
    uint64_t until = boottime_now_ns() + WAIT_MS * UINT64_C(1000000);
    const char *log;
    while (strstr(log = fixture_log(fixture), text) == NULL) {
        if (boottime_now_ns() >= until) {
            fail_msg("no '%s' in the log: %s", text, log);
        }
        fixture_turn(fixture, 5);
    }
    return log;
}

size_t fixture_pids(struct fixture *fixture, pid_t *pids, size_t room)
{
    size_t found = 0;
    for (const char *at = fixture_log(fixture); (at = strstr(at, "pid ")) != NULL; at += 4) {
        assert_true(found < room);
        pids[found++] = (pid_t)strtol(at + 4, NULL, 10);
    }
    return found;
}

bool pid_lives(pid_t pid)
{
    struct process process;
    return process_read(pid, &process) && process.state != 'Z' && process.state != 'X';
}
