/* fixture.h: real shims with real jobs for tests. The test program is also each job's program
 * (acts.h).
 * Modes:   with a v2 group, with the v1 freezer, with neither, as a plain user; what the machine
 *          does not have is left out, and said.
 * Bounds:  each wait ends by itself; a test's processes are ended by pid and start time alone. */
#ifndef TIDEPOOL_TESTS_SHIM_FIXTURE_H
#define TIDEPOOL_TESTS_SHIM_FIXTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "server/shim/client.h"

#define WAIT_MS 20000 /* far more than anything here takes, sanitizers included */
#define PLAIN_USER 65534

struct answer {
    bool there;
    enum shim_report_kind kind;
    bool empty;
    uint64_t processes, took_ns;
    enum error_code code;
    char text[SHIM_TEXT_MAX];
};

struct fixture {
    enum cgroup_mode mode;
    uid_t uid;
    gid_t gid;
    char directory[256];
    char log_path[320];
    struct spawner *spawner;
    struct shim_job job;
    const char *arguments[8];
    const char *environment[8];
    struct shim_client *client;
    uint64_t last_answer;
    struct answer answer;
    struct shim_record record; /* as last told */
    bool told, frozen, lost;
    uint64_t stirred;
};

/* Runs `group` in each mode; the number of failures. */
int fixture_run_modes(int (*group)(void));
/* cmocka's set-up and tear-down of one test. */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* A path in a folder that any user may write to. */
void fixture_open_path(const struct fixture *fixture, const char *name, char path[320]);
const char *fixture_program(void); /* this one, where any user may execute it */
void fixture_act(struct fixture *fixture, const char *act, const char *argument);
void fixture_shell(struct fixture *fixture, const char *script);
/* The server is another user's than the spawner; so is the job. */
void fixture_give_to(struct fixture *fixture, uid_t server);
/* Starts it and waits until it runs. */
void fixture_start(struct fixture *fixture);
void fixture_begin(struct fixture *fixture); /* without waiting */
void fixture_wait_state(struct fixture *fixture, enum shim_state state);
void fixture_wait_lost(struct fixture *fixture);
/* Waits for the command's answer. */
const struct answer *fixture_answer(struct fixture *fixture, uint64_t command);
/* Forgets the client, as a server does that was killed, and finds the shim again; false: it is
 * gone. */
bool fixture_restart(struct fixture *fixture);
/* Waits until the log has `text`, and returns what it has; valid until the next call. */
const char *fixture_log_until(struct fixture *fixture, const char *text);
const char *fixture_log(struct fixture *fixture);
/* Turns until `milliseconds` are over. */
void fixture_turn(struct fixture *fixture, int milliseconds);

/* Pids that an act wrote as "pid N" into the log. */
size_t fixture_pids(struct fixture *fixture, pid_t *pids, size_t room);
bool pid_lives(pid_t pid);

#endif
