/* commands_sim.c: `tidepool sim`: options of its own, which shadow those that talk to a server. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "clients/sim/replay.h"
#include "clients/sim/report.h"

#define YEAR_S 3.2e7

static struct sim_command {
    bool help;
    struct argument_list requests, jobs, policies;
    const char *json, *html, *replay;
    struct argument_list settings;
    bool serve;
    double speed;
    struct argument_list listen;
    const char *config, *token_file;
    struct sim_options options;
} asked;

#define FIELD(member) offsetof(struct sim_command, member)
#define OPTION(member) FIELD(options.member)
static const struct argument table[] = {
    {"requests", ARGUMENT_LIST, FIELD(requests), 1, 0, 0, "FILE...",
     "traces of requests or of their rates; FILE@S shifts one by S seconds"},
    {"jobs", ARGUMENT_LIST, FIELD(jobs), 1, 0, 0, "FILE...", "traces of training jobs"},
    {"devices", ARGUMENT_INT, OPTION(devices), 1, 1, ENGINE_DEVICES_MAX, "N",
     "how many there are (default 8)"},
    {"gang", ARGUMENT_INT, OPTION(gang), 1, 0, 4096, "N",
     "endless jobs of so many devices fill what is left (default 1; 0, none, with --jobs)"},
    {"slo-ms", ARGUMENT_NUMBER, OPTION(slo_ms), 1, 1, 3.6e6, "MS",
     "a request that waited longer before it started is late (default 1000)"},
    {"rungs", ARGUMENT_TEXT, OPTION(rungs), 1, 0, 0, "LIST",
     "ways to take a device, as freeze,notice=30/10: take/give seconds (default yield)"},
    {"notice-s", ARGUMENT_NUMBER, OPTION(notice_s), 1, 0, 86400, "S",
     "what the rung notice takes (default 30)"},
    {"policy", ARGUMENT_LIST, FIELD(policies), 1, 0, 0, "NAME...",
     "tidepool (default), static, kill, keda, knative, rayserve, hindsight, serve-all; "
     "NAME:PARAMETER=VALUE,... tunes one"},
    {"late-budget", ARGUMENT_NUMBER, OPTION(late_budget), 1, 0, 1, "SHARE",
     "the one knob: late work that training may cost beyond the floor (default 0.005)"},
    {"hold-s", ARGUMENT_NUMBER, OPTION(hold_s), 1, 0, 86400, "S",
     "least time between two moves of a device (default: the policy's own)"},
    {"seed", ARGUMENT_INT, OPTION(seed), 1, 0, 9e15, "N",
     "the same one repeats a run exactly (default 1)"},
    {"json", ARGUMENT_TEXT, FIELD(json), 1, 0, 0, "FILE", "write the figures there; - is stdout"},
    {"html", ARGUMENT_TEXT, FIELD(html), 1, 0, 0, "FILE",
     "write a page with plots there; it needs no network, and plays all runs once more"},
    {"scale", ARGUMENT_NUMBER, OPTION(scale), 1, 0, 1e6, "X",
     "of service times (default: the busiest 10 s just fit the devices)"},
    {"time-scale", ARGUMENT_NUMBER, OPTION(time_scale), 1, 1e-6, 1e6, "X",
     "of the arrival times of requests: 0.5 doubles the load (default 1)"},
    {"rate-scale", ARGUMENT_NUMBER, OPTION(rate_scale), 1, 1e-6, 1e6, "X",
     "of traces of rates (default 1)"},
    {"rate-rps", ARGUMENT_NUMBER, OPTION(rate_rps), 1, 0, 1e6, "X",
     "scales each rate curve to this mean (default: as published)"},
    {"from-s", ARGUMENT_NUMBER, OPTION(from_s), 1, 0, 1e9, "S", "plays from there (default 0)"},
    {"until-s", ARGUMENT_NUMBER, OPTION(until_s), 1, 0, 1e9, "S", "and until there (default: all)"},
    {"duration-s", ARGUMENT_NUMBER, OPTION(duration_s), 1, 0, 1e9, "S",
     "how long the run lasts (default: to the end of the traces)"},
    {"until-done", ARGUMENT_FLAG, OPTION(until_done), 1, 0, 0, NULL,
     "it lasts until the last job is over instead"},
    {"checkpoint-s", ARGUMENT_NUMBER, OPTION(checkpoint_s), 1, 0, YEAR_S, "S",
     "training time between checkpoints of a job; 0: every step is kept (default 600)"},
    {"restore-s", ARGUMENT_NUMBER, OPTION(restore_s), 1, 0, 86400, "S",
     "what a job needs more when it starts again from a checkpoint (default 0)"},
    {"workload", ARGUMENT_INT, OPTION(workload), 1, 0, 8, "N",
     "of a file of elastic jobs; 0: all (default 0)"},
    {"find-devices", ARGUMENT_FLAG, OPTION(find_devices), 1, 0, 0, NULL,
     "the fewest that keep late work within the budget, with --devices' service times"},
    {"device-mtbf-h", ARGUMENT_NUMBER, OPTION(device_mtbf_h), 1, 0, 1e6, "H",
     "fault: mean time between losses of a device; 0: none (default 0)"},
    {"device-repair-s", ARGUMENT_NUMBER, OPTION(device_repair_s), 1, 0, 1e9, "S",
     "it comes back after this (default 600)"},
    {"detect-s", ARGUMENT_NUMBER, OPTION(detect_s), 1, 0, 86400, "S",
     "its loss is noticed after this; its job hangs meanwhile (default 0)"},
    {"reclaims-per-h", ARGUMENT_NUMBER, OPTION(reclaims_per_h), 1, 0, 1e6, "N",
     "so many devices are taken back by their provider; 0: none (default 0)"},
    {"reclaim-notice-s", ARGUMENT_NUMBER, OPTION(reclaim_notice_s), 1, 0, 1e6, "S",
     "which it says so long before (default 120)"},
    {"reclaim-away-s", ARGUMENT_NUMBER, OPTION(reclaim_away_s), 1, 0, 1e9, "S",
     "and they come back after this (default 600)"},
    {"slow-share", ARGUMENT_NUMBER, OPTION(slow_share), 1, 0, 1, "SHARE",
     "fault: so many devices are slow (default 0)"},
    {"slow-factor", ARGUMENT_NUMBER, OPTION(slow_factor), 1, 1, 1000, "X",
     "by this factor (default 1.5)"},
    {"late-share", ARGUMENT_NUMBER, OPTION(late_share), 1, 0, 1, "SHARE",
     "fault: so many answers come late (default 0)"},
    {"late-by-s", ARGUMENT_NUMBER, OPTION(late_by_s), 1, 0, 86400, "S",
     "by up to this (default 5)"},
    {"lost-share", ARGUMENT_NUMBER, OPTION(lost_share), 1, 0, 1, "SHARE",
     "fault: so many answers never come (default 0)"},
    {"crash-every-h", ARGUMENT_NUMBER, OPTION(crash_every_h), 1, 0, 1e6, "H",
     "fault: mean time between crashes of the controller; 0: none (default 0)"},
    {"crash-down-s", ARGUMENT_NUMBER, OPTION(crash_down_s), 1, 0, 86400, "S",
     "it is back after this (default 5)"},
    {"replay", ARGUMENT_TEXT, FIELD(replay), 1, 0, 0, "LOG",
     "repeats a server's decisions from its log of events (STATE/events/), instead of traces"},
    {"set", ARGUMENT_LIST, FIELD(settings), 1, 0, 0, "NAME=VALUE...",
     "with --replay: the same events under other settings, as hold_min_ns=2000000000"},
    {"serve", ARGUMENT_FLAG, FIELD(serve), 1, 0, 0, NULL,
     "the server's control API over virtual devices, until it is told to stop"},
    {"speed", ARGUMENT_NUMBER, FIELD(speed), 1, 0.01, 100, "X",
     "with --serve: its time runs so many times as fast as ours (default 1)"},
    {"listen", ARGUMENT_LIST, FIELD(listen), 1, 0, 0, "ADDRESS...",
     "with --serve: HOST:PORT or unix:PATH (default 127.0.0.1:8001); port 0: a free one, told on "
     "stdout"},
    {"config", ARGUMENT_TEXT, FIELD(config), 1, 0, 0, "FILE",
     "with --serve: a server's configuration, of which planner, mode and testing count"},
    {"token-file", ARGUMENT_TEXT, FIELD(token_file), 1, 0, 0, "FILE",
     "with --serve: changes over TCP need the token in it"},
    {"help", ARGUMENT_FLAG, FIELD(help), 1, 0, 0, NULL, "what this command does"},
};

/* Takes the document. */
static int json_save(struct cli *cli, json_t *document, const char *path)
{
    struct error error = {0};
    if (strcmp(path, "-") == 0) {
        return cli_write_json(cli, document);
    }
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        error_set_errno(&error, errno, "--json: open '%s'", path);
    } else {
        bool written = document != NULL &&
                       json_dumpf(document, file, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0 &&
                       fputc('\n', file) != EOF;
        if (fclose(file) != 0 || !written) {
            error_set_errno(&error, errno, "--json: write '%s'", path);
        }
    }
    json_decref(document);
    return error.code != 0 ? cli_fail(cli, &error) : EXIT_OK;
}

/* A log that is not repeated is a failure, after all has been said. */
static int replay_command(struct cli *cli)
{
    struct error error = {0};
    struct replay replay;
    if (replay_run(asked.replay, asked.settings.values, asked.settings.count, &replay, &error) <
        0) {
        return error.code == ERROR_INVALID_ARGUMENT ? cli_fail_usage(cli, "%s", error.text)
                                                    : cli_fail(cli, &error);
    }
    if (asked.json == NULL || strcmp(asked.json, "-") != 0) {
        replay_print(&replay, stdout);
    }
    int exit_code = asked.json != NULL ? json_save(cli, replay_json(&replay), asked.json) : EXIT_OK;
    return exit_code == EXIT_OK && !replay.same ? EXIT_FAILED : exit_code;
}

/* ---- --serve: another program, which has the server's parts in it ---- */

#define WORDS_MAX 256

struct words {
    char *values[WORDS_MAX + 1];
    size_t count;
};

static void word_add(struct words *words, const char *text)
{
    if (words->count < WORDS_MAX) {
        words->values[words->count++] = strdup(text);
    }
}

static void text_add(struct words *words, const char *option, const char *value)
{
    if (value != NULL) {
        word_add(words, option);
        word_add(words, value);
    }
}

static void list_add(struct words *words, const char *option, const struct argument_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        text_add(words, option, list->values[i]);
    }
}

static void number_add(struct words *words, const char *option, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", value);
    text_add(words, option, text);
}

/* Beside this program; an empty text: where that is cannot be found out. */
static void program_find(char path[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - sizeof "-virtual");
    path[length > 0 ? length : 0] = '\0';
    if (length > 0) {
        strcat(path, "-virtual");
    }
}

/* The first of the other ways to run that was asked for too, or NULL. */
static const char *asked_otherwise(void)
{
    return asked.policies.count > 0   ? "policy"
           : asked.settings.count > 0 ? "set"
           : asked.replay != NULL     ? "replay"
           : asked.html != NULL       ? "html"
           : asked.json != NULL       ? "json"
                                      : NULL;
}

/* The first option of what --serve does not model that is not as usual, or NULL. */
static const char *asked_in_vain(void)
{
    static const char *const names[] = {
        "rungs",      "notice-s",     "hold-s",        "gang",          "duration-s",
        "until-done", "find-devices", "workload",      "device-mtbf-h", "slow-share",
        "late-share", "lost-share",   "crash-every-h", "checkpoint-s",  "restore-s"};
    struct sim_command usual = {0};
    sim_options_init(&usual.options);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t place = 0;
        while (strcmp(table[place].name, names[i]) != 0) {
            place++;
        }
        size_t size = table[place].kind == ARGUMENT_FLAG ? sizeof(bool) : sizeof(double);
        if (memcmp((char *)&asked + table[place].offset, (char *)&usual + table[place].offset,
                   size) != 0) {
            return names[i];
        }
    }
    return NULL;
}

static void words_fill(struct words *words, const char *program)
{
    const struct sim_options *options = &asked.options;
    word_add(words, program);
    list_add(words, "--requests", &asked.requests);
    list_add(words, "--jobs", &asked.jobs);
    list_add(words, "--listen", &asked.listen);
    text_add(words, "--config", asked.config);
    text_add(words, "--token-file", asked.token_file);
    number_add(words, "--devices", (double)options->devices);
    number_add(words, "--speed", asked.speed);
    number_add(words, "--slo-ms", options->slo_ms);
    number_add(words, "--scale", options->scale);
    number_add(words, "--seed", (double)options->seed);
    number_add(words, "--late-budget", options->late_budget);
    number_add(words, "--time-scale", options->time_scale);
    number_add(words, "--rate-scale", options->rate_scale);
    number_add(words, "--rate-rps", options->rate_rps);
    number_add(words, "--from-s", options->from_s);
    number_add(words, "--until-s", options->until_s);
}

static int serve_command(struct cli *cli)
{
    static struct words words; /* the next program's */
    char path[PATH_MAX];
    struct error error = {0};
    const char *vain = asked_otherwise();
    vain = vain != NULL ? vain : asked_in_vain();
    if (vain != NULL) {
        return cli_fail_usage(cli, "--serve goes without --%s: see docs/simulation.md", vain);
    }
    program_find(path);
    words_fill(&words, path);
    if (words.count == WORDS_MAX) {
        return cli_fail_usage(cli, "--serve: more than %d files and addresses", WORDS_MAX / 2);
    }
    execv(path, words.values);
    error_set_errno(&error, errno, "--serve: start '%s', which is installed beside tidepool", path);
    return cli_fail(cli, &error);
}

static int sim_run(struct cli *cli)
{
    if (asked.serve) {
        return serve_command(cli);
    }
    if (asked.replay != NULL) {
        return replay_command(cli);
    }
    struct error error = {0};
    struct sim sim = {0};
    int exit_code = EXIT_OK;
    asked.options.requests = asked.requests.values;
    asked.options.request_files = asked.requests.count;
    asked.options.jobs = asked.jobs.values;
    asked.options.job_files = asked.jobs.count;
    asked.options.policies = asked.policies.values;
    asked.options.policy_count = asked.policies.count;
    if (sim_open(&asked.options, &sim, &error) < 0 ||
        sim_play(&sim, &asked.options, stderr, &error) < 0) {
        exit_code = error.code == ERROR_INVALID_ARGUMENT ? cli_fail_usage(cli, "%s", error.text)
                                                         : cli_fail(cli, &error);
        goto out;
    }
    if (asked.json == NULL || strcmp(asked.json, "-") != 0) {
        sim_print(&sim, stdout);
    }
    exit_code = asked.json != NULL ? json_save(cli, sim_json(&sim), asked.json) : EXIT_OK;
    if (asked.html != NULL && sim_report_write(&sim, asked.html, &error) < 0) {
        exit_code = cli_fail(cli, &error);
    }
out:
    sim_close(&sim);
    return exit_code;
}

static void options_reset(void)
{
    asked = (struct sim_command){.speed = 1};
    sim_options_init(&asked.options);
}

static const struct command_options own = {
    .table = table,
    .count = sizeof(table) / sizeof(table[0]),
    .target = &asked,
    .help = &asked.help,
    .reset = options_reset,
};

static const struct command commands[] = {
    {"sim", "", "play traces through the scheduler in virtual time, beside other policies", 0, 0, 0,
     sim_run, &own},
};
const struct command_group commands_sim = {"Simulation (no server needed)", commands, 1};
