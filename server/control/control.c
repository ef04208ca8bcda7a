#include "server/control/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "server/base/log.h"
#include "server/control/state.h"

/* ---- letters ----------------------------------------------------------------------------------
 */

/* All letters begin alike; this is enough to tell them apart. */
struct any_letter {
    struct letter letter;
    uint32_t kind;
};

void control_notify_serve(void *context, const struct serve_event *event)
{
    struct control *control = context;
    struct serve_letter *letter = malloc(sizeof *letter);
    if (letter == NULL) {
        /* The core asks again after its time-out. */
        log_write(LOG_ERROR, "control", "event lost", "reason=\"no memory\" kind=%d",
                  (int)event->kind);
        return;
    }
    letter->kind = LETTER_SERVE;
    letter->event = *event;
    mailbox_send(control->mailbox, &letter->letter);
}

void control_notify_train(void *context, const struct train_event *event)
{
    struct control *control = context;
    struct train_letter *letter = malloc(sizeof *letter);
    if (letter == NULL) {
        log_write(LOG_ERROR, "control", "event lost", "reason=\"no memory\" job=%llu kind=%d",
                  (unsigned long long)event->job, (int)event->kind);
        return;
    }
    letter->kind = LETTER_TRAIN;
    letter->event = *event;
    mailbox_send(control->mailbox, &letter->letter);
}

void control_notify_outside(void *context, const struct outside_event *event)
{
    struct control *control = context;
    struct outside_letter *letter = malloc(sizeof *letter);
    if (letter == NULL) {
        log_write(LOG_ERROR, "control", "event lost", "reason=\"no memory\" job=%llu kind=%d",
                  (unsigned long long)event->job, (int)event->kind);
        return;
    }
    letter->kind = LETTER_OUTSIDE;
    letter->event = *event;
    mailbox_send(control->mailbox, &letter->letter);
}

void control_post(struct control *control, struct control_call *call)
{
    call->kind = LETTER_CALL;
    mailbox_send(control->mailbox, &call->letter);
}

static void open_letter(struct control *control, struct letter *letter)
{
    switch ((enum letter_kind)((struct any_letter *)letter)->kind) {
    case LETTER_CALL: {
        struct control_call *call = (struct control_call *)letter;
        call->run(control, call);
        break;
    }
    case LETTER_SERVE:
        control_on_serve(control, &((struct serve_letter *)letter)->event);
        free(letter);
        break;
    case LETTER_TRAIN:
        control_on_train(control, &((struct train_letter *)letter)->event);
        free(letter);
        break;
    case LETTER_OUTSIDE:
        control_on_outside(control, &((struct outside_letter *)letter)->event);
        free(letter);
        break;
    }
}

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
    struct control *control = arg;
    (void)fd;
    (void)what;
    struct letter *letter = mailbox_take(control->mailbox);
    control->now_ns = clock_pace_now_ns(&control->pace);
    while (letter != NULL) {
        struct letter *next = letter->next;
        open_letter(control, letter);
        letter = next;
    }
    revisions_refresh(control);
}

/* ---- create ------------------------------------------------------------------------------------
 */

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * (double)NS_PER_S);
}

static uint32_t permille_of(double share)
{
    return (uint32_t)(share * 1000 + 0.5);
}

static int fill_core_config(const struct control *control, struct core_config *ret_config,
                            struct error *error)
{
    const struct config *config = control->config;
    core_config_init(ret_config);
    if (getrandom(ret_config->seed, sizeof ret_config->seed, 0) !=
        (ssize_t)sizeof ret_config->seed) {
        return error_set_errno(error, errno, "draw a secret");
    }
    ret_config->store_epoch = store_epoch(control->store);
    ret_config->mode = (enum core_mode)config->mode;
    ret_config->demand_fast_ns = ns_of(config->planner.demand_fast_s);
    ret_config->demand_slow_ns = ns_of(config->planner.demand_slow_s);
    ret_config->late_budget_ppm = (uint32_t)(config->planner.late_budget * 1e6 + 0.5);
    ret_config->load_high_permille = permille_of(config->planner.load_high);
    ret_config->load_low_permille = permille_of(config->planner.load_low);
    ret_config->shrink_high_permille = permille_of(config->planner.shrink_high);
    ret_config->shrink_after_ns = ns_of(config->planner.shrink_after_s);
    ret_config->shrink_low_permille = permille_of(config->planner.shrink_low);
    ret_config->cool_down_ns = ns_of(config->planner.cool_down_s);
    ret_config->hold_min_ns = ns_of(config->planner.hold_min_s);
    ret_config->notice_ns = ns_of(config->planner.notice_s);
    ret_config->extension_ns = ns_of(config->planner.extension_s);
    ret_config->stopped_cap_ns = ns_of(config->planner.stopped_cap_s);
    ret_config->sustained_ns = ns_of(config->planner.sustained_s);
    ret_config->kill_bound_ns = ns_of(config->planner.kill_bound_s);
    ret_config->leave_lead_ns = ns_of(config->planner.leave_lead_s);
    ret_config->leave_useful_ns = ns_of(config->planner.leave_useful_s);
    ret_config->slow_permille = permille_of(config->planner.slow);
    ret_config->drain_permille = permille_of(config->planner.drain);
    ret_config->drain_after_ns = ns_of(config->planner.drain_after_s);
    ret_config->health_budget_permille = permille_of(config->planner.health_budget);
    ret_config->moves_per_hour = (uint32_t)config->planner.moves_per_hour;
    ret_config->moves_extra = (uint32_t)config->planner.moves_extra;
    return 0;
}

/* A server that cannot record serves all the same. */
static void create_record(struct control *control, const struct core_config *config)
{
    struct error error;
    struct log_text text;
    char *directory = NULL;
    if (!control->config->record.enabled ||
        asprintf(&directory, "%s/events", control->config->state) < 0) {
        return;
    }
    struct record_options options = {.directory = directory,
                                     .bytes_max = (uint64_t)control->config->record.max_mib << 20,
                                     .wall_ns = control->start_wall_ns,
                                     .now_ns = control->start_ns};
    control->record = record_writer_create(&options, config, &error);
    if (control->record == NULL) {
        log_write(LOG_WARN, "record", "events are not recorded", "reason=%s",
                  log_quote(&text, error.text));
    }
    free(directory);
}

static int create_core(struct control *control, struct error *error)
{
    struct core_config config;
    int result = fill_core_config(control, &config, error);
    if (result == 0) {
        result = settings_load(control, &config, error);
    }
    if (result < 0) {
        return result;
    }
    control->core = core_create(&config);
    if (control->core == NULL) {
        return error_set(error, ERROR_INVALID_ARGUMENT,
                         "config.planner: the values do not fit together (or no memory): see "
                         "config/README.md for what must be less than what");
    }
    create_record(control, &config);
    return scale_create(control, error);
}

static int create_loop(struct control *control, struct error *error)
{
    control->mailbox = mailbox_create();
    control->base = event_base_new();
    if (control->mailbox != NULL && control->base != NULL) {
        control->mail_event = event_new(control->base, mailbox_fd(control->mailbox),
                                        EV_READ | EV_PERSIST, on_mail, control);
        control->tick_event = event_new(control->base, -1, EV_PERSIST, on_tick, control);
        control->core_event = event_new(control->base, -1, 0, on_core_timer, control);
        control->quiet_event = event_new(control->base, -1, 0, on_quiet_timer, control);
    }
    if (control->mail_event == NULL || control->tick_event == NULL || control->core_event == NULL ||
        control->quiet_event == NULL) {
        return error_set(error, ERROR_RESOURCE_EXHAUSTED,
                         "start the control thread: no memory or no descriptor");
    }
    return 0;
}

struct control *control_create(const struct control_parts *parts, struct error *error)
{
    struct control *control = calloc(1, sizeof *control);
    if (control == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the control thread: no memory");
        return NULL;
    }
    pthread_mutex_init(&control->shared.lock, NULL);
    control->config = parts->config;
    control->device_set = parts->devices;
    control->store = parts->store;
    atomic_init(&control->testing, parts->config->testing);
    if (parts->pace != NULL) {
        control->pace = *parts->pace;
    } else {
        clock_pace_begin(&control->pace, 1);
    }
    control->start_ns = control->now_ns = clock_pace_now_ns(&control->pace);
    control->start_wall_ns = clock_pace_wall_ns(&control->pace);
    /* Revisions of two runs never meet: a run has 2^40 of them. */
    control->revision_floor = control->revision = store_epoch(parts->store) << 40;
    control->requests = requests_create();
    control->overrides = overrides_create();
    if (control->requests == NULL || control->overrides == NULL) {
        error_set(error, ERROR_RESOURCE_EXHAUSTED, "start the control thread: no memory");
        control_destroy(control);
        return NULL;
    }
    if (create_loop(control, error) < 0 || create_core(control, error) < 0 ||
        devices_create(control, error) < 0 || jobs_load(control, error) < 0 ||
        overrides_load(control->overrides, control->store, control->start_ns,
                       control->start_wall_ns, error) < 0 ||
        teams_create(control, error) < 0) {
        control_destroy(control);
        return NULL;
    }
    return control;
}

int control_add_listener(struct control *control, const char *address, unsigned services)
{
    char *copy = control->listener_count < CONFIG_LISTENERS_MAX ? strdup(address) : NULL;
    if (copy == NULL) {
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    control->listeners[control->listener_count++] = (struct config_listener){copy, services};
    return 0;
}

void control_set_testing(struct control *control, bool testing)
{
    atomic_store(&control->testing, testing);
}

/* ---- the thread --------------------------------------------------------------------------------
 */

static void *control_main(void *arg)
{
    struct control *control = arg;
    pthread_setname_np(pthread_self(), "control");
    control->now_ns = clock_pace_now_ns(&control->pace);
    teams_boot(control);
    devices_boot(control);
    settings_boot(control);
    jobs_boot(control);
    outside_boot(control);
    serving_boot(control);
    revisions_refresh(control);
    event_base_dispatch(control->base);
    control->now_ns = clock_pace_now_ns(&control->pace);
    ledger_store(control);
    jobs_store(control);
    return NULL;
}

int control_start(struct control *control, const struct control_rooms *rooms, struct error *error)
{
    uint64_t tick_us = clock_pace_machine_ns(&control->pace, TICK_MS * NS_PER_MS) / NS_PER_US;
    struct timeval tick = {.tv_sec = (time_t)(tick_us / 1000000),
                           .tv_usec = (suseconds_t)(tick_us % 1000000)};
    control->serve = rooms->serve;
    control->trainer = rooms->trainer;
    control->outside = rooms->outside;
    control->loader = loader_create(control, error);
    if (control->loader == NULL) {
        return -ERROR_RESOURCE_EXHAUSTED;
    }
    event_add(control->mail_event, NULL);
    event_add(control->tick_event, &tick);
    int number = pthread_create(&control->thread, NULL, control_main, control);
    if (number != 0) {
        return error_set_errno(error, number, "start the control thread");
    }
    control->started = true;
    return 0;
}

static void run_stop(struct control *control, struct control_call *call)
{
    (void)call;
    control->stopping = true;
    event_base_loopbreak(control->base);
}

void control_stop(struct control *control)
{
    /* First the loader: what it has done becomes letters, the rest is dropped. */
    loader_destroy(control->loader);
    control->loader = NULL;
    if (control->started) {
        struct control_call stop = {.run = run_stop};
        control_post(control, &stop);
        pthread_join(control->thread, NULL);
        control->started = false;
    }
}

/* ---- destroy ------------------------------------------------------------------------------------
 */

/* Letters of a stopped thread. A call is its poster's: none posts after the grpc server is gone. */
static void drop_letters(struct control *control)
{
    struct letter *letter = mailbox_take(control->mailbox);
    while (letter != NULL) {
        struct letter *next = letter->next;
        switch ((enum letter_kind)((struct any_letter *)letter)->kind) {
        case LETTER_CALL:
            open_letter(control, letter); /* they free themselves */
            break;
        case LETTER_SERVE:
        case LETTER_TRAIN:
        case LETTER_OUTSIDE:
            free(letter);
            break;
        }
        letter = next;
    }
}

static void free_event(struct event *event)
{
    if (event != NULL) {
        event_free(event);
    }
}

static void destroy_objects(struct control *control)
{
    for (size_t i = 0; i < control->endpoint_count; i++) {
        endpoint_entry_destroy(control->endpoints[i]);
    }
    for (size_t i = 0; i < control->job_count; i++) {
        job_destroy(control->jobs[i]);
    }
    for (size_t i = 0; i < REMOVED_MAX; i++) {
        free(control->removed[i].name);
    }
    for (uint32_t i = 0; i < control->listener_count; i++) {
        free(control->listeners[i].address);
    }
    free(control->endpoints);
    free(control->jobs);
    requests_destroy(control->requests);
    overrides_destroy(control->overrides);
    free(control->devices);
    timeline_destroy(control->timeline);
}

void control_destroy(struct control *control)
{
    if (control == NULL) {
        return;
    }
    control->stopping = true;
    if (control->mailbox != NULL) {
        drop_letters(control);
    }
    destroy_objects(control);
    free_event(control->mail_event);
    free_event(control->tick_event);
    free_event(control->core_event);
    free_event(control->quiet_event);
    if (control->base != NULL) {
        event_base_free(control->base);
    }
    mailbox_destroy(control->mailbox);
    record_writer_destroy(control->record, control->core);
    core_scale_destroy(control->scale.signal);
    core_destroy(control->core);
    free(control->actions);
    free(control->events.events);
    free(control->hold_reason);
    pthread_mutex_destroy(&control->shared.lock);
    free(control);
}

void control_figures_read(struct control *control, struct control_figures *ret_figures)
{
    pthread_mutex_lock(&control->shared.lock);
    *ret_figures = control->shared.figures;
    pthread_mutex_unlock(&control->shared.lock);
}
