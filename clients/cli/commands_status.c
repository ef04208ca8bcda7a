#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/common/view.h"
#include "server/base/clock.h"
#include "server/base/json_message.h"

#define JOB_ROWS 12

static struct view_style style_now(bool in_place)
{
    return (struct view_style){
        .columns = terminal_size(STDOUT_FILENO).columns,
        .colour = terminal_has_colour(STDOUT_FILENO),
        .in_place = in_place,
        .column_ms = 250,
    };
}

static int status_run(struct cli *cli)
{
    struct error error = {0};
    struct view view = {0};
    Tidepool__V1__GetStatusRequest request = TIDEPOOL__V1__GET_STATUS_REQUEST__INIT;
    if (cli_call(cli, "GetStatus", &request.base, &view.status, &error) < 0) {
        return cli_fail(cli, &error);
    }
    int exit_code = EXIT_OK;
    if (cli->options.json) {
        exit_code = cli_write_message(cli, &view.status->base);
    } else {
        struct view_style style = style_now(false);
        view_draw_status(stdout, &view, &style);
        if (view.status->devices_drained > 0 || view.status->devices_beyond_budget > 0) {
            printf("slow devices: %u drained of at most %u, %u beyond that are used all the same\n",
                   view.status->devices_drained, view.status->devices_health_budget,
                   view.status->devices_beyond_budget);
        }
        if (view.status->store_warning[0] != '\0') {
            printf("store: %s\n", view.status->store_warning);
        }
        if (view.status->store_errors > 0) {
            printf("store: %" PRIu64 " writes have failed; the log says why\n",
                   view.status->store_errors);
        }
        for (size_t i = 0; i < view.status->n_listeners; i++) {
            const Tidepool__V1__Listener *listener = view.status->listeners[i];
            printf("listens on %-28s", listener->address);
            for (size_t j = 0; j < listener->n_services; j++) {
                printf(" %s", listener->services[j]);
            }
            putchar('\n');
        }
        printf("state in %s, models in %s\n", view.status->state_directory,
               view.status->model_repository[0] != '\0' ? view.status->model_repository
                                                        : "no repository");
    }
    view_release(&view);
    return exit_code;
}

static void top_draw(FILE *out, const struct view *view, bool in_place)
{
    struct view_style style = style_now(in_place);
    view_draw_status(out, view, &style);
    view_line_end(out, &style);
    view_draw_devices(out, view, &style);
    view_line_end(out, &style);
    view_draw_endpoints(out, view, &style);
    view_line_end(out, &style);
    view_draw_jobs(out, view, &style, JOB_ROWS);
}

/* One write for the whole picture, so that it never shows half drawn. */
static void top_show(const struct view *view)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (out == NULL) {
        return;
    }
    fputs("\033[H", out);
    top_draw(out, view, true);
    fputs("\033[Kq: quit   tidepool why DEVICE|JOB|ENDPOINT tells why it is so\033[K\033[J", out);
    fclose(out);
    fwrite(text, 1, length, stdout);
    fflush(stdout);
    free(text);
}

/* True: time for the next picture. False: a key or a signal says to end. */
static bool top_sleep(struct cli *cli, double seconds)
{
    uint64_t end = clock_now_ns() + (uint64_t)(seconds * 1e9);
    for (;;) {
        uint64_t now = clock_now_ns();
        struct pollfd entries[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                    {.fd = cli->signal_fd, .events = POLLIN}};
        if (now >= end) {
            return true;
        }
        int count = poll(entries, 2, (int)((end - now) / NS_PER_MS) + 1);
        if (count > 0 && entries[1].revents != 0) {
            return false;
        }
        if (count > 0 && entries[0].revents != 0) {
            int key = terminal_key();
            if (key == 'q' || key == 'Q' || key == -1) {
                return false;
            }
        }
    }
}

static int top_live(struct cli *cli, struct view *view, struct error *error)
{
    double interval_s = cli->options.interval_s > 0 ? cli->options.interval_s : 0.5;
    int result;
    do {
        result = view_fetch(view, cli->client, cli_timeout_ns(cli), error);
        if (result == 0) {
            top_show(view);
        }
    } while (result == 0 && top_sleep(cli, interval_s));
    terminal_leave();
    return result;
}

static json_t *top_json(const struct view *view)
{
    return json_pack("{s:o,s:o,s:o,s:o}", "status", json_from_message(&view->status->base),
                     "devices", json_from_message(&view->devices->base), "endpoints",
                     json_from_message(&view->endpoints->base), "jobs",
                     json_from_message(&view->jobs->base));
}

static int top_run(struct cli *cli)
{
    struct error error = {0};
    struct view view = {0};
    int exit_code = EXIT_OK;
    int result = cli_connect(cli, &error);
    if (result == 0) {
        result = view_fetch(&view, cli->client, cli_timeout_ns(cli), &error);
    }
    bool live = result == 0 && !cli->options.json && !cli->options.once;
    if (live) {
        cli_catch_signals(cli);
        live = terminal_enter();
    }
    if (live) {
        result = top_live(cli, &view, &error);
    } else if (result == 0 && cli->options.json) {
        exit_code = cli_write_json(cli, top_json(&view));
    } else if (result == 0) {
        top_draw(stdout, &view, false);
    }
    if (result < 0) {
        exit_code = cli_fail(cli, &error);
    } else if (cli_signal(cli) != 0) {
        exit_code = EXIT_SIGNAL + cli_signal(cli);
    }
    view_release(&view);
    return exit_code;
}

static const struct command commands[] = {
    {"status", "", "the server in a few lines", 0, 0, 0, status_run},
    {"top", "", "devices, endpoints and jobs, live; q ends", 0, 0, OPTION_ONCE, top_run},
};
const struct command_group commands_status = {"What is going on", commands,
                                              sizeof(commands) / sizeof(commands[0])};
