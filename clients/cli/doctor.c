/* tidepool doctor: what of this machine Tidepool can use as the user who asks, each tried and not
 * looked up, and what stands in for what is missing. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/cli/commands_outside.h"
#include "server/base/clock.h"
#include "server/base/json_message.h"
#include "server/shim/cgroup.h"

#define SERVER_NS (3 * NS_PER_S)
#define GROUP_NS NS_PER_S /* far more than a freeze of one process takes */
#define CHECKS_MAX 24

enum outcome { WORKS, INSTEAD, MISSING }; /* INSTEAD: something else does it */

struct check {
    const char *name;
    enum outcome outcome;
    char text[256];
};

struct doctor {
    struct check checks[CHECKS_MAX];
    size_t count;
    bool unusable; /* without it no job of one's own runs */
};

static void say(struct doctor *doctor, const char *name, enum outcome outcome, const char *format,
                ...) __attribute__((format(printf, 4, 5)));
static void say(struct doctor *doctor, const char *name, enum outcome outcome, const char *format,
                ...)
{
    struct check *check = &doctor->checks[doctor->count++];
    va_list arguments;
    *check = (struct check){.name = name, .outcome = outcome};
    va_start(arguments, format);
    (void)vsnprintf(check->text, sizeof(check->text), format, arguments);
    va_end(arguments);
}

/* ---- in a process of its own: it may change itself ----------------------------------------- */

/* What `work` returns, 0 or an errno; it leaves nothing behind here. */
static int child_try(int (*work)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(work());
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0) {
        return errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : ENOSYS;
}

static int error_of(long result)
{
    return result < 0 ? errno : 0;
}

static int subreaper_work(void)
{
    return error_of(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
}

static int pidfd_work(void)
{
    return error_of(syscall(SYS_pidfd_open, getpid(), 0));
}

static int close_range_work(void)
{
    return error_of(syscall(SYS_close_range, 1000u, ~0u, CLOSE_RANGE_UNSHARE));
}

static int idle_work(void)
{
    struct sched_param none = {0};
    return error_of(sched_setscheduler(0, SCHED_IDLE, &none));
}

static int nice_work(void)
{
    return error_of(setpriority(PRIO_PROCESS, 0, -10));
}

/* One core of those that we have. */
static int affinity_work(void)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all) < 0) {
        return errno;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            return error_of(sched_setaffinity(0, sizeof(one), &one));
        }
    }
    return ENODEV;
}

static void kernel_check(struct doctor *doctor)
{
    static const struct {
        const char *name;
        int (*work)(void);
    } needed[] = {{"subreaper", subreaper_work},
                  {"pidfd_open", pidfd_work},
                  {"close_range", close_range_work}};
    struct utsname name;
    (void)uname(&name);
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        int error = child_try(needed[i].work);
        if (error != 0) {
            say(doctor, "kernel", MISSING,
                "%s: %s has no %s (%s); jobs of your own need Linux 5.11", name.sysname,
                name.release, needed[i].name, strerror(error));
            doctor->unusable = true;
            return;
        }
    }
    say(doctor, "kernel", WORKS, "Linux %s: jobs of your own outlive the server", name.release);
}

/* ---- control groups ------------------------------------------------------------------------ */

static bool frozen_in_time(const struct cgroup *cgroup, uint64_t *ret_ns)
{
    uint64_t begin_ns = clock_now_ns();
    if (cgroup_freeze(cgroup, true) < 0) {
        return false;
    }
    while (!cgroup_is_frozen(cgroup)) {
        if (clock_now_ns() - begin_ns > GROUP_NS) {
            return false;
        }
        sched_yield();
    }
    *ret_ns = clock_now_ns() - begin_ns;
    return true;
}

/* A process in it that only waits: frozen, then killed. */
static const char *group_use(const struct cgroup *cgroup, uint64_t *ret_ns)
{
    const char *problem = NULL;
    int ready[2];
    char byte;
    if (pipe(ready) < 0) {
        return "no descriptor is left";
    }
    pid_t pid = fork();
    if (pid == 0) {
        byte = cgroup_enter(cgroup) == 0 ? 'y' : 'n';
        (void)!write(ready[1], &byte, 1);
        for (;;) {
            pause();
        }
    }
    if (pid < 0 || read(ready[0], &byte, 1) != 1 || byte != 'y') {
        problem = "no process can be put into it";
    } else if (!frozen_in_time(cgroup, ret_ns)) {
        problem = "it does not freeze";
    } else if (cgroup_kill(cgroup) < 0) {
        problem = "it does not kill";
    }
    if (pid > 0) {
        (void)cgroup_freeze(cgroup, false);
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    (void)close(ready[0]);
    (void)close(ready[1]);
    return problem;
}

static bool group_check(struct doctor *doctor, const char *title, enum cgroup_mode mode,
                        const char *without)
{
    struct cgroup cgroup = {0};
    struct error error = {0};
    char name[64];
    uint64_t took_ns = 0;
    const char *problem;
    (void)snprintf(name, sizeof(name), "tidepool-doctor-%d", (int)getpid());
    if (cgroup_create(mode, name, &cgroup, &error) < 0 || cgroup.kind == CGROUP_NONE) {
        say(doctor, title, INSTEAD, "%s; %s", error.text[0] != '\0' ? error.text : "none here",
            without);
        return false;
    }
    problem = group_use(&cgroup, &took_ns);
    (void)cgroup_remove(&cgroup);
    if (problem != NULL) {
        say(doctor, title, INSTEAD, "%s; %s", problem, without);
        return false;
    }
    say(doctor, title, WORKS, "froze a process in %" PRIu64 " us and killed it as one",
        took_ns / NS_PER_US);
    return true;
}

static void groups_check(struct doctor *doctor)
{
    bool v2 = group_check(doctor, "cgroup v2", CGROUP_ONLY_V2, "the v1 freezer is tried");
    bool v1 = group_check(doctor, "cgroup v1 freezer", CGROUP_ONLY_V1,
                          v2 ? "v2 does it" : "signals to each process do it");
    if (v1 || v2) {
        say(doctor, "end of a shim", WORKS, "all of its job is ended, and that is certain");
    } else {
        say(doctor, "end of a shim", INSTEAD,
            "its job's processes are sought; where one may be missed, the device waits for "
            "RecoverDevice");
    }
    say(doctor, "memory, pids limits", INSTEAD,
        "not by control groups in this version; `limits` of a "
        "specification, as setrlimit does");
}

/* ---- rights and libraries -------------------------------------------------------------------- */

static void rights_check(struct doctor *doctor)
{
    struct rlimit files = {0};
    int error = child_try(idle_work);
    (void)getrlimit(RLIMIT_NOFILE, &files);
    say(doctor, "user", geteuid() == 0 ? WORKS : INSTEAD, "%u; jobs run as the server's user",
        (unsigned)geteuid());
    say(doctor, "idle class", error == 0 ? WORKS : INSTEAD, "%s",
        error == 0 ? "training gives way to requests within microseconds"
                   : "nice 19 instead: requests wait for a tick");
    error = child_try(nice_work);
    say(doctor, "nicer than jobs", error == 0 ? WORKS : INSTEAD, "%s",
        error == 0 ? "a shim acts at once beside a busy job"
                   : "a shim may wait a tick behind its busy job");
    error = child_try(affinity_work);
    say(doctor, "cores", error == 0 ? WORKS : MISSING, "%ld usable; %s",
        sysconf(_SC_NPROCESSORS_ONLN),
        error == 0 ? "jobs stay on those of their devices" : strerror(error));
    doctor->unusable |= error != 0;
    say(doctor, "open files", files.rlim_cur >= 4096 ? WORKS : INSTEAD, "%llu; %s",
        (unsigned long long)files.rlim_cur,
        files.rlim_cur >= 4096 ? "enough" : "few for many clients: ulimit -n 65536");
}

static bool library_has(const char *path, const char *symbol)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    return library != NULL && dlsym(library, symbol) != NULL;
}

/* Where the server looks: the variable, beside the programs, where the loader looks. */
static int onnx_work(void)
{
    char own[PATH_MAX] = "", beside[PATH_MAX + 64];
    const char *path = getenv("TIDEPOOL_ONNXRUNTIME");
    if (path != NULL && path[0] != '\0') {
        return library_has(path, "OrtGetApiBase") ? 0 : ENOENT;
    }
    ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);
    char *slash = length > 0 ? strrchr(own, '/') : NULL;
    if (slash != NULL) {
        (void)snprintf(beside, sizeof(beside), "%.*s/onnxruntime/libonnxruntime.so",
                       (int)(slash - own), own);
        if (library_has(beside, "OrtGetApiBase")) {
            return 0;
        }
    }
    return library_has("libonnxruntime.so", "OrtGetApiBase") ||
                   library_has("libonnxruntime.so.1", "OrtGetApiBase")
               ? 0
               : ENOENT;
}

static int blas_work(void)
{
    return library_has("libopenblas.so.0", "cblas_sgemm") ? 0 : ENOENT;
}

static int cuda_work(void)
{
    return library_has("libcuda.so.1", "cuInit") ? 0 : ENOENT;
}

static void libraries_check(struct doctor *doctor)
{
    bool onnx = child_try(onnx_work) == 0;
    bool blas = child_try(blas_work) == 0;
    say(doctor, "ONNX Runtime", onnx ? WORKS : MISSING, "%s",
        onnx ? "models are served"
             : "no models are served; TIDEPOOL_ONNXRUNTIME takes the path of its library");
    say(doctor, "OpenBLAS", blas ? WORKS : MISSING, "%s",
        blas ? "in-process training runs"
             : "no in-process training; Debian has it as libopenblas0-pthread");
    say(doctor, "GPUs", INSTEAD, "%s",
        child_try(cuda_work) == 0 ? "there is a driver; this version does not use it yet"
                                  : "no driver; this version has CPU devices only");
}

static void rungs_check(struct doctor *doctor)
{
    say(doctor, "pause", WORKS, "for programs that report their steps (docs/jobs.md)");
    say(doctor, "shrink, grow", WORKS, "from one run of a program to the next");
    say(doctor, "swap", MISSING, "needs CUDA's checkpoints of a process");
}

static void server_check(struct cli *cli, struct doctor *doctor)
{
    struct error error = {0};
    Tidepool__V1__Status *status = NULL;
    Tidepool__V1__GetStatusRequest request = TIDEPOOL__V1__GET_STATUS_REQUEST__INIT;
    if (cli_connect(cli, &error) < 0 ||
        control_call(cli->client, "GetStatus", &request.base, SERVER_NS, &status, &error) < 0) {
        say(doctor, "server", MISSING, "%s", error.text);
        return;
    }
    say(doctor, "server", WORKS, "%s at %s, %u devices, state in %s", status->version, cli->address,
        status->devices, status->state_directory);
    control_free(status);
}

/* ---- the report --------------------------------------------------------------------------------
 */

static const char *const outcomes[] = {"works", "instead", "missing"};

static json_t *doctor_json(const struct doctor *doctor)
{
    json_t *checks = json_array();
    for (size_t i = 0; i < doctor->count; i++) {
        const struct check *check = &doctor->checks[i];
        (void)json_array_append_new(checks, json_pack("{s:s,s:s,s:o}", "name", check->name,
                                                      "outcome", outcomes[check->outcome], "text",
                                                      json_from_text(check->text)));
    }
    return json_pack("{s:o}", "checks", checks);
}

int cli_doctor(struct cli *cli)
{
    struct doctor doctor = {0};
    server_check(cli, &doctor);
    kernel_check(&doctor);
    groups_check(&doctor);
    rights_check(&doctor);
    rungs_check(&doctor);
    libraries_check(&doctor);
    if (cli->options.json) {
        int exit_code = cli_write_json(cli, doctor_json(&doctor));
        return doctor.unusable ? EXIT_FAILED : exit_code;
    }
    for (size_t i = 0; i < doctor.count; i++) {
        const struct check *check = &doctor.checks[i];
        printf("%-8s %-20s %s\n", outcomes[check->outcome], check->name, check->text);
    }
    return doctor.unusable ? EXIT_FAILED : EXIT_OK;
}
