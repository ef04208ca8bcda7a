/* `make run`: trains and serves the handwritten digits on one tidepoold and shows how the devices
 * move between the two while waves of requests come and go. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clients/common/arguments.h"
#include "clients/common/exit_code.h"
#include "clients/demo/demo.h"
#include "server/base/clock.h"

#define CALL_NS (10 * NS_PER_S)
#define COST_MS 3.6            /* of one request on one device */
#define UNDISTURBED_S 4.0      /* how long the compared run takes without load */
#define SECONDS_IN_A_PIPE 30.0 /* where nobody can press q */

struct options {
    const char *build, *config;
    double seconds;
};

#define FIELD(member) offsetof(struct options, member)
static const struct argument table[] = {
    {"build", ARGUMENT_TEXT, FIELD(build), 1, 0, 0, "FOLDER", "where the programs are"},
    {"config", ARGUMENT_TEXT, FIELD(config), 1, 0, 0, "FILE", "the server's configuration"},
    {"seconds", ARGUMENT_NUMBER, FIELD(seconds), 1, 0, 86400, "S",
     "how long the waves last; 0: until q"},
};

/* Trains, says so, and gives back how the job ended. */
static int train(struct demo *demo, enum demo_job kind, Tidepool__V1__Job **ret_job,
                 struct error *error)
{
    Tidepool__V1__Job *job = NULL;
    uint64_t start = clock_now_ns();
    int result = demo_job_submit(&demo->server, kind, demo->steps, &job, error);
    if (result < 0) {
        return result;
    }
    printf("training %s …", job->id);
    fflush(stdout);
    result = demo_job_wait(&demo->server, job->id, ret_job, error);
    if (result == 0) {
        printf(" %.1f s, loss %.3f to %.3f, %.1f %% of unseen digits right\n",
               (double)(clock_now_ns() - start) / 1e9, (*ret_job)->loss_first,
               (*ret_job)->loss_last, (*ret_job)->held_out_accuracy_fraction * 100);
    }
    control_free(job);
    return result;
}

static int prepare_models(struct demo *demo, struct error *error)
{
    Tidepool__V1__Job *small = NULL, *wide = NULL;
    int result = train(demo, DEMO_SMALL, &small, error);
    result = result < 0 ? result : demo_serve(&demo->server, "digits", error);
    result =
        result < 0 ? result : demo_steps_measure(&demo->server, UNDISTURBED_S, &demo->steps, error);
    result = result < 0 ? result : train(demo, DEMO_WIDE, &wide, error);
    if (result == 0) {
        double seconds = (double)(wide->finished_wall_ns - wide->started_wall_ns) / 1e9;
        demo->alone_steps_per_s = seconds > 0 ? (double)wide->step / seconds : 0;
        result = demo_serve(&demo->server, "digits-wide", error);
    }
    if (result == 0) {
        result = demo_request_make(&demo->server, "digits-wide", COST_MS, &demo->body,
                                   &demo->body_length, &demo->cost_ms, &demo->rows, error);
    }
    if (result == 0) {
        printf("serving digits and digits-wide; a request to the latter (%u images) costs a device "
               "%.1f ms\n",
               demo->rows, demo->cost_ms);
    }
    control_free(small);
    control_free(wide);
    return result;
}

static int prepare_load(struct demo *demo, struct error *error)
{
    Tidepool__V1__GetStatusRequest request = TIDEPOOL__V1__GET_STATUS_REQUEST__INIT;
    Tidepool__V1__Status *status = NULL;
    Tidepool__V1__Job *job = NULL;
    struct load_options options = {
        .address = demo->server.inference,
        .connections = 2,
        .body = demo->body,
        .body_length = demo->body_length,
        .slo_ns = (uint64_t)(DEMO_SLO_MS * 1e6),
        .next = waves_next,
        .next_context = &demo->waves,
    };
    waves_init(&demo->waves, 1000.0 / demo->cost_ms,
               demo->seconds > 0 ? (uint64_t)(demo->seconds * 1e9) : UINT64_MAX);
    int result = load_create(&options, &demo->load, error);
    if (result == 0) {
        result =
            control_call(demo->server.client, "GetStatus", &request.base, CALL_NS, &status, error);
    }
    if (result == 0) {
        demo->handovers_before = status->handovers_total;
        demo->slices_before = status->slices;
        demo->devices = status->devices;
        result = demo_job_submit(&demo->server, DEMO_AGAIN, demo->steps, &job, error);
    }
    if (result == 0) {
        snprintf(demo->again_id, sizeof(demo->again_id), "%s", job->id);
    }
    control_free(job);
    control_free(status);
    return result;
}

static void hints_print(const struct demo *demo)
{
    printf("\nThe same wide network is trained again, now under waves of requests; %s\n"
           "From another terminal:\n"
           "  export TIDEPOOL_SERVER=%s\n"
           "  %s/tidepool top\n"
           "  %s/tidepool why cpu:0      (or: why digits-wide)\n\n",
           demo->seconds > 0 ? "it ends by itself." : "q ends it.", demo->server.socket,
           demo->build, demo->build);
    fflush(stdout);
}

static int demo_run(struct demo *demo, bool *ret_good, struct error *error)
{
    printf("starting %s/tidepoold with %s\n", demo->build, demo->config);
    fflush(stdout);
    int result = demo_server_start(&demo->server, demo->build, demo->config, error);
    if (result == 0) {
        grpc_client_set_wake_fd(demo->server.client, demo->signal_fd);
        printf("tidepoold %d: inference on %s, control on %s, its log in %s/tidepoold.log\n",
               (int)demo->server.pid, demo->server.inference, demo->server.socket,
               demo->server.folder);
    }
    result = result < 0 ? result : prepare_models(demo, error);
    result = result < 0 ? result : prepare_load(demo, error);
    if (result == 0) {
        hints_print(demo);
        grpc_client_set_wake_fd(demo->server.client, -1); /* from here on the loop looks */
        result = demo_live(demo, error);
    }
    if (result == 0) {
        grpc_client_set_wake_fd(demo->server.client, demo->signal_fd);
        printf("the waves are over; comparing the weights with those of the undisturbed run\n");
        fflush(stdout);
        result = demo_prove(demo, ret_good, error);
    }
    return result;
}

static int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
    static const struct arguments arguments = {table, sizeof(table) / sizeof(table[0]), 1,
                                               "tidepool-demo"};
    struct options options = {.build = "build", .config = "config/demo.json"};
    const char *positional[16];
    size_t count = 0;
    struct error error = {0};
    static struct load_result result; /* large */
    static struct demo demo;
    bool good = false;
    if (argc > 16 ||
        arguments_parse(&arguments, argc - 1, argv + 1, &options, positional, &count, &error) < 0 ||
        count > 0) {
        fprintf(stderr, "%s\n", error.text[0] != '\0' ? error.text : "options only");
        arguments_print(&arguments, stderr);
        return EXIT_USAGE;
    }
    demo.build = options.build;
    demo.config = options.config;
    demo.terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    demo.seconds = options.seconds > 0 || demo.terminal ? options.seconds : SECONDS_IN_A_PIPE;
    demo.result = &result;
    demo.signal_fd = signals_open();
    int code = demo_run(&demo, &good, &error);
    int exit_code = code < 0 ? (int)exit_code_of(&error) : good ? EXIT_OK : EXIT_FAILED;
    struct signalfd_siginfo info;
    if (code == -(int)ERROR_CANCELLED &&
        read(demo.signal_fd, &info, sizeof(info)) == sizeof(info)) {
        exit_code = EXIT_SIGNAL + (int)info.ssi_signo;
    } else if (code < 0) {
        fprintf(stderr, "make run: %s (the server's log: %s/demo/tidepoold.log)\n", error.text,
                demo.build);
    } else if (!good) {
        fprintf(stderr, "make run: not everything is as promised, see above\n");
    } else {
        printf("figures in %s/run.json; README.md tells how to serve and train your own\n",
               demo.build);
    }
    demo_server_stop(&demo.server);
    load_destroy(demo.load);
    waves_fini(&demo.waves);
    view_release(&demo.view);
    control_free(demo.moves);
    free(demo.body);
    return exit_code;
}
