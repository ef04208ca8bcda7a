/* control.h: the control thread. It owns the core: letters from serve, train, the store and the
 * handlers come in and become core events; the core's actions become calls on serve and train.
 * Life:    control_create (main) -> serve_create and trainer_create with control's notify functions
 *          -> control_start; at the end: the grpc server destroyed (no handler waits any more)
 *          -> control_stop -> trainer_destroy, serve_destroy -> control_destroy.
 * Reading and changing: functions of view.h and change.h, on the control thread only; others get
 *          there by control_post.
 * Thread:  notify, post and figures: any; the rest: main. */
#ifndef TIDEPOOL_CONTROL_CONTROL_H
#define TIDEPOOL_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "server/base/clock.h"
#include "server/base/mailbox.h"
#include "server/control/config.h"
#include "server/core/core.h"
#include "server/core/scale.h"
#include "server/device/device.h"
#include "server/outside/outside.h"
#include "server/serve/serve.h"
#include "server/store/store.h"
#include "server/train/trainer.h"

struct control;

/* All must outlive the control thread. */
struct control_parts {
    const struct config *config;
    struct device_set *devices;
    struct store *store;           /* opened, not started: what it holds is loaded here */
    const struct clock_pace *pace; /* copied; NULL: the machine's own */
};

/* Reads the store, makes the core. Starts no thread. */
struct control *control_create(const struct control_parts *parts, struct error *error);
/* Starts the thread: adds devices, loads the model repository and what was served and trained
 * before the last stop. `serve` becomes open (ready) when the repository has been read. */
struct control_rooms {
    struct serve *serve;
    struct trainer *trainer;
    struct outside *outside; /* NULL: no outside jobs here */
};
int control_start(struct control *control, const struct control_rooms *rooms, struct error *error);
/* Ends the thread; jobs keep their state in the store and go on with the next start. */
void control_stop(struct control *control);
void control_destroy(struct control *control); /* NULL is fine */

/* For serve_options.notify, trainer_create and outside_options.notify; `context` is the control. */
void control_notify_serve(void *context, const struct serve_event *event);
void control_notify_train(void *context, const struct train_event *event);
void control_notify_outside(void *context, const struct outside_event *event);

/* Runs `run` on the control thread, soon. The letter is the caller's until then and must not be
 * posted again before `run` was called; `run` may free it. After control_stop nothing runs. */
struct control_call {
    struct letter letter;
    uint32_t kind; /* the control's */
    void (*run)(struct control *control, struct control_call *call);
};
void control_post(struct control *control, struct control_call *call);

/* What can change while the server runs (SIGHUP). */
void control_set_testing(struct control *control, bool testing);
/* As bound, for GetStatus: copied. Before start. */
int control_add_listener(struct control *control, const char *address, unsigned services);

struct control_scale {
    char kind[16];
    uint64_t now_ns; /* on the clock of core.arrives_ns */
    struct core_scale_view core;
};

/* A copy of the figures that the metrics page shows, at most 100 ms old. Short lock that only this
 * thread and the control thread's tick take. */
struct control_figures {
    uint32_t devices_by_state[16]; /* by enum control_device_state */
    struct core_ledger ledger;
    uint64_t late_total, late_by_handover, twin_requests;
    uint64_t store_errors;
    uint32_t jobs_by_state[16]; /* by enum control_job_state; ended ones that are remembered too */
    uint32_t devices_wanted, devices_have;
    struct core_health_view health;
    struct control_scale scale[CORE_KINDS_MAX];
    size_t scale_count;
    bool hold;
    enum core_mode mode;
};
void control_figures_read(struct control *control, struct control_figures *ret_figures);

#endif
