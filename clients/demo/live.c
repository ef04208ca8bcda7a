#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clients/demo/demo.h"
#include "server/base/clock.h"

#define CALL_NS (5 * NS_PER_S)
#define PICTURE_NS (200 * NS_PER_MS)
#define LINE_NS (2 * NS_PER_S)
#define MOVES_SHOWN 3
#define BAR_COLUMNS 20

/* ---- what is going on
 * ------------------------------------------------------------------------------- */

static const Tidepool__V1__Job *job_find(const struct demo *demo, const char *id)
{
    for (size_t i = 0; i < demo->view.jobs->n_jobs; i++) {
        if (strcmp(demo->view.jobs->jobs[i]->id, id) == 0) {
            return demo->view.jobs->jobs[i];
        }
    }
    return NULL;
}

static int moves_fetch(struct demo *demo, struct error *error)
{
    Tidepool__V1__ExplainRequest request = TIDEPOOL__V1__EXPLAIN_REQUEST__INIT;
    Tidepool__V1__ExplainResponse *moves = NULL;
    request.moves_max = MOVES_SHOWN;
    int result =
        control_call(demo->server.client, "Explain", &request.base, CALL_NS, &moves, error);
    if (result == 0) {
        control_free(demo->moves);
        demo->moves = moves;
    }
    return result;
}

/* Training never stops: when the job that is compared is over, the long one begins. */
static int jobs_advance(struct demo *demo, struct error *error)
{
    const Tidepool__V1__Job *again = job_find(demo, demo->again_id);
    Tidepool__V1__Job *job = NULL;
    if (demo->long_id[0] != '\0' || again == NULL || !control_job_over(again)) {
        return 0;
    }
    if (again->state != TIDEPOOL__V1__JOB_STATE__JOB_STATE_FINISHED) {
        return error_set(error, ERROR_INTERNAL, "job %s %s: %s", again->id,
                         control_job_state(again), again->reason);
    }
    int result = demo_job_submit(&demo->server, DEMO_LONG, 0, &job, error);
    if (result == 0) {
        snprintf(demo->long_id, sizeof(demo->long_id), "%s", job->id);
        control_free(job);
    }
    return result;
}

/* ---- the picture
 * -------------------------------------------------------------------------------------- */

static void bar_make(double share, char *text)
{
    unsigned filled = share >= 1 ? BAR_COLUMNS : share <= 0 ? 0 : (unsigned)(share * BAR_COLUMNS);
    memset(text, '#', filled);
    memset(text + filled, ' ', BAR_COLUMNS - filled);
    text[BAR_COLUMNS] = '\0';
}

static void tide_draw(FILE *out, struct demo *demo, const struct view_style *style,
                      const struct load_snapshot *load, uint64_t elapsed_ns)
{
    char bar[BAR_COLUMNS + 1];
    double p99_ms = (double)load->p99_ns / 1e6;
    bar_make(p99_ms / DEMO_SLO_MS, bar);
    view_line(out, style,
              "serving   %-9s %6.0f requests/s of %.1f ms   p50 %5.1f ms   p99 %5.1f ms of %.0f ms "
              "promised [%s]",
              waves_name(&demo->waves, elapsed_ns), load->rate_per_s, demo->cost_ms,
              (double)load->p50_ns / 1e6, p99_ms, DEMO_SLO_MS, bar);
}

static void training_draw(FILE *out, struct demo *demo, const struct view_style *style)
{
    const char *id = demo->long_id[0] != '\0' ? demo->long_id : demo->again_id;
    const Tidepool__V1__Job *job = job_find(demo, id);
    struct text_small loss, rate;
    if (job == NULL) {
        view_line(out, style, "training  -");
        return;
    }
    view_line(out, style,
              "training  %s  step %" PRIu64 "   %s steps/s (undisturbed %.1f)   loss %s   on %zu "
              "device%s",
              job->id, job->step, text_figure(&rate, job->steps_per_s, 1), demo->alone_steps_per_s,
              text_figure(&loss, job->loss_last, 4), job->n_devices,
              job->n_devices == 1 ? "" : "s");
}

static void picture_draw(FILE *out, struct demo *demo, const struct view_style *style)
{
    struct load_snapshot load;
    uint64_t elapsed_ns = clock_now_ns() - demo->start_ns;
    const Tidepool__V1__Status *status = demo->view.status;
    char text[160], end[32] = "";
    load_snapshot(demo->load, &load);
    if (demo->seconds > 0) {
        snprintf(end, sizeof(end), " of %.0f s", demo->seconds);
    }
    snprintf(text, sizeof(text), "Tidepool: inference and training share %u devices      %.0f s%s",
             status->devices, (double)elapsed_ns / 1e9, end);
    view_heading(out, style, text);
    tide_draw(out, demo, style, &load, elapsed_ns);
    training_draw(out, demo, style);
    view_line(out, style,
              "so far    sent %" PRIu64 "   failed %" PRIu64 "   late %" PRIu64
              " (by hand-over %" PRIu64 ")   hand-overs %" PRIu64 "   slices %" PRIu64,
              load.total.sent, load.total.failed, load.total.late, status->late_by_handover,
              status->handovers_total - demo->handovers_before,
              status->slices - demo->slices_before);
    view_line_end(out, style);
    view_draw_devices(out, &demo->view, style);
    view_line_end(out, style);
    for (size_t i = 0; demo->moves != NULL && i < demo->moves->n_moves; i++) {
        view_line(out, style, "%s %s", i == 0 ? "last moves" : "          ",
                  demo->moves->moves[i]->text);
    }
    view_line_end(out, style);
    view_heading(out, style, "b a burst   f a device fails   r it recovers   q end");
    view_line(out, style, "In another terminal:  export TIDEPOOL_SERVER=%s", demo->server.socket);
    view_line(out, style, "then  %s/tidepool top   or  %s/tidepool why digits-wide", demo->build,
              demo->build);
}

/* One write for the whole picture, so that it never shows half drawn. */
static void picture_show(struct demo *demo)
{
    char *text = NULL;
    size_t length = 0;
    struct view_style style = {.columns = terminal_size(STDOUT_FILENO).columns,
                               .colour = terminal_has_colour(STDOUT_FILENO),
                               .in_place = true,
                               .column_ms = 250};
    FILE *out = open_memstream(&text, &length);
    if (out != NULL) {
        fputs("\033[H", out);
        picture_draw(out, demo, &style);
        fputs("\033[J", out);
        fclose(out);
        fwrite(text, 1, length, stdout);
        fflush(stdout);
    }
    free(text);
}

static void line_show(struct demo *demo)
{
    struct load_snapshot load;
    struct text_small rate, loss;
    uint64_t elapsed_ns = clock_now_ns() - demo->start_ns;
    const char *id = demo->long_id[0] != '\0' ? demo->long_id : demo->again_id;
    const Tidepool__V1__Job *job = job_find(demo, id);
    load_snapshot(demo->load, &load);
    printf("%5.1f s  %-9s  %4.0f requests/s  p50 %5.1f  p99 %5.1f of %.0f ms  failed %" PRIu64
           "  %s step %" PRIu64 "  %s steps/s  loss %s  devices",
           (double)elapsed_ns / 1e9, waves_name(&demo->waves, elapsed_ns), load.rate_per_s,
           (double)load.p50_ns / 1e6, (double)load.p99_ns / 1e6, DEMO_SLO_MS, load.total.failed, id,
           job == NULL ? 0 : job->step, text_figure(&rate, job == NULL ? NAN : job->steps_per_s, 1),
           text_figure(&loss, job == NULL ? NAN : job->loss_last, 4));
    for (size_t i = 0; i < demo->view.devices->n_devices; i++) {
        printf(" %s", control_device_state(demo->view.devices->devices[i]));
    }
    putchar('\n');
    fflush(stdout);
}

/* ---- the loop
 * -------------------------------------------------------------------------------------------- */

/* Keys and signals; false: end. */
static bool key_handle(struct demo *demo, int key, struct error *error)
{
    switch (key) {
    case 'b':
        waves_burst(&demo->waves, clock_now_ns() - demo->start_ns);
        return true;
    case 'f':
        return demo_device_fault(&demo->server, true, error) == 0;
    case 'r':
        return demo_device_fault(&demo->server, false, error) == 0;
    case 'q':
        return false;
    default:
        return true;
    }
}

/* Sleeps until the time, a key or a signal; false: end. */
static bool live_sleep(struct demo *demo, uint64_t until_ns, struct error *error)
{
    struct pollfd entries[2] = {{.fd = demo->signal_fd, .events = POLLIN},
                                {.fd = demo->terminal ? STDIN_FILENO : -1, .events = POLLIN}};
    for (uint64_t now = clock_now_ns(); now < until_ns && !demo->load_over; now = clock_now_ns()) {
        uint64_t left = until_ns - now;
        int count = poll(entries, 2, (int)(left / NS_PER_MS) + 1);
        if (count > 0 && entries[0].revents != 0) {
            struct signalfd_siginfo info;
            return read(demo->signal_fd, &info, sizeof(info)) != sizeof(info);
        }
        if (count > 0 && entries[1].revents != 0) {
            int key = terminal_key();
            if (key < 0 || !key_handle(demo, key, error)) {
                return false; /* the terminal is gone, or q */
            }
        }
    }
    return true;
}

static int live_step(struct demo *demo, uint64_t *line_ns, struct error *error)
{
    int result = demo_server_check(&demo->server, error);
    result = result < 0 ? result : view_fetch(&demo->view, demo->server.client, CALL_NS, error);
    result = result < 0 ? result : jobs_advance(demo, error);
    result = result < 0 || !demo->terminal ? result : moves_fetch(demo, error);
    if (result == 0 && demo->terminal) {
        picture_show(demo);
    } else if (result == 0 && clock_now_ns() >= *line_ns) {
        *line_ns += LINE_NS;
        line_show(demo);
    }
    return result;
}

static void *load_main(void *arg)
{
    struct demo *demo = arg;
    load_run(demo->load, demo->result);
    demo->load_over = true;
    return NULL;
}

int demo_live(struct demo *demo, struct error *error)
{
    demo->start_ns = clock_now_ns();
    uint64_t line_ns = demo->start_ns + LINE_NS;
    if (pthread_create(&demo->thread, NULL, load_main, demo) != 0) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED, "no thread for the load");
    }
    demo->thread_started = true;
    demo->terminal = demo->terminal && terminal_enter();
    int result;
    do {
        result = live_step(demo, &line_ns, error);
    } while (result == 0 && !demo->load_over &&
             live_sleep(demo, clock_now_ns() + PICTURE_NS, error));
    terminal_leave();
    load_stop(demo->load);
    pthread_join(demo->thread, NULL);
    demo->thread_started = false;
    return result == 0 && error->code != ERROR_NONE ? -(int)error->code : result;
}
