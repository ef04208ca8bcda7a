/* internal.h: what the files of the outside room share. */
#ifndef TIDEPOOL_OUTSIDE_INTERNAL_H
#define TIDEPOOL_OUTSIDE_INTERNAL_H

#define PROGRESS_SOCKET "progress"
#define PROGRESS_PATH_MAX 107 /* of a socket's address */

#include <limits.h>
#include <pthread.h>

#include "server/base/mailbox.h"
#include "server/outside/command.h"
#include "server/outside/outside.h"
#include "server/progress/progress.h"
#include "server/shim/client.h"

/* ---- one order to the thread (order.c) ----------------------------------------------------------
 */

enum order_kind {
    ORDER_START,
    ORDER_FIND,
    ORDER_FREEZE,
    ORDER_PAUSE,
    ORDER_THAW,
    ORDER_SIGNAL,
    ORDER_KILL,
    ORDER_NOTICE,
    ORDER_FORGET,
    ORDER_STOP,
};

struct order {
    struct letter letter; /* first */
    enum order_kind kind;
    struct outside_lease lease; /* START; job, run and id: FIND; its texts are the order's */
    uint64_t tag;
    int signal;
    enum outside_reach reach;
    uint64_t grace_ns, bound_ns;
    struct outside_notice notice; /* its texts are the order's */
    char *text;                   /* START: specification; NOTICE: reason */
    char *id, *devices, *cpus;
};

void order_destroy(struct order *order); /* NULL is fine */

/* ---- one job's supervisor (supervisor.c)
 * ----------------------------------------------------------------
 */

struct supervisor {
    struct supervisor *next;
    struct outside *outside;
    uint64_t job;
    uint32_t run;
    char *id;
    char folder[PATH_MAX], run_folder[PATH_MAX];
    struct shim_client *client; /* NULL: not connected */
    struct shim_record record;  /* as last told */
    bool running_told, over;    /* over: its end was told */
    bool frozen, state_awaited;
    uint64_t find_ns, find_until_ns; /* when to look for its shim again, and how long */
    /* Commands that are not answered yet; 0: none. A late answer of another one is not theirs. */
    uint64_t freeze, freeze_tag, thaw, thaw_tag, kill;
    struct progress *progress; /* NULL: it has no socket */
    uint64_t pause, pause_tag; /* the request that stands; 0: none */
    bool pause_told;
    bool progress_news;
    uint64_t progress_told_ns;
    double loss;
    uint64_t notice;                    /* that stands; 0: none */
    uint64_t answer_by_ns;              /* of the one that is awaited longest */
    bool woken;                         /* the shim was silent, and was sent SIGCONT */
    uint64_t kill_at_ns, kill_until_ns; /* TERM was sent: when KILL, and when it is stuck */
    bool stuck_told;
    uint64_t remains_ns, remains_until_ns; /* its shim is gone: when to end what is left */
};

struct outside {
    struct outside_options options;
    char *state_directory;
    struct mailbox *mailbox;
    pthread_t thread;
    bool started;
    bool stopping;                  /* the thread's */
    struct order *stop;             /* made at the start, so that there is memory for it */
    struct supervisor *supervisors; /* the thread's */
};

struct supervisor *supervisor_create(struct outside *outside, uint64_t job, uint32_t run,
                                     const char *id);
void supervisor_destroy(struct supervisor *supervisor);
void supervisor_start(struct supervisor *supervisor, const struct order *order);
void supervisor_find(struct supervisor *supervisor);
void supervisor_order(struct supervisor *supervisor, const struct order *order);
/* What is due; when to look again (UINT64_MAX: not by itself). */
uint64_t supervisor_turn(struct supervisor *supervisor, uint64_t now_ns);
int supervisor_fd(const struct supervisor *supervisor); /* -1: none */

/* The progress socket (ranks.c): opened in the job's folder; closed with its run. */
void ranks_open(struct supervisor *supervisor);
void ranks_close(struct supervisor *supervisor);
int ranks_fd(const struct supervisor *supervisor); /* -1: none */
void ranks_ready(struct supervisor *supervisor);
void ranks_pause(struct supervisor *supervisor, uint64_t tag);
/* False: nobody was paused. */
bool ranks_resume(struct supervisor *supervisor);
void ranks_notice(struct supervisor *supervisor, const struct outside_notice *notice);
/* Tells what is new, when it is due; when to look again (UINT64_MAX: not by itself). */
uint64_t ranks_turn(struct supervisor *supervisor, uint64_t now_ns);
/* The run has ended: what its ranks told last is heard and told on. */
void ranks_finish(struct supervisor *supervisor);
void supervisor_tell(const struct supervisor *supervisor, enum outside_event_kind kind,
                     uint64_t tag, const char *text);
void supervisor_ready(struct supervisor *supervisor);

/* ---- what a job reads (files.c, environment.c) --------------------------------------------------
 */

/* Replaces a file as a whole; mode 0600. */
int file_write(const char *folder, const char *name, const char *text, struct error *error);
void file_remove(const char *folder, const char *name);
/* All that a shim makes, and the folder. */
void run_remove(const char *run_folder);

/* The client's variables and the server's own. NULL: no memory. Freed by environment_free. */
char **environment_make(const struct command *command, const struct outside_lease *lease,
                        const char *folder);
void environment_free(char **environment);

#endif
