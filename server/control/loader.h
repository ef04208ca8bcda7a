/* loader.h: one helper thread for what takes seconds: reading and loading models.
 * Order:   tasks are done one after another as they were given.
 * Owner:   the giver owns a task again when its `done` call runs on the control thread; tasks that
 *          never came to that are handed to `drop`.
 * Thread:  submit: the control thread; create, destroy: control_start, control_stop. */
#ifndef TIDEPOOL_CONTROL_LOADER_H
#define TIDEPOOL_CONTROL_LOADER_H

#include "server/control/control.h"

struct loader;

struct loader_task {
    struct control_call call; /* first; its `run` is called on the control thread when done */
    void (*work)(struct loader_task *task); /* on the loader's thread */
    void (*drop)(struct loader_task *task);
};

struct loader *loader_create(struct control *control, struct error *error);
void loader_submit(struct loader *loader, struct loader_task *task);
/* Ends after the task that is being worked on; drops the others. NULL is fine. */
void loader_destroy(struct loader *loader);

#endif
