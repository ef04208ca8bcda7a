/* control_service.h: what the files of the control service share. Inside rpc/control*.c only. */
#ifndef TIDEPOOL_RPC_CONTROL_SERVICE_H
#define TIDEPOOL_RPC_CONTROL_SERVICE_H

#include <pthread.h>

#include "server/control/change.h"
#include "server/rpc/control.h"
#include "server/rpc/control_encode.h"
#include "server/rpc/control_logs.h"
#include "server/rpc/stream.h"
#include "server/rpc/token.h"

struct control_service {
    struct control *control;
    struct inference_context *inference;
    const char *version, *token_file;
    struct logs *logs;
    struct {
        pthread_mutex_t lock;
        char token[TOKEN_SIZE];
    } shared; /* under lock */
    struct stream_set watchers;
};

/* A call: run by the control thread, which answers it; or a stream that is fed elsewhere. */
struct control_method {
    const char *name;
    const ProtobufCMessageDescriptor *request;
    bool changes;
    bool stream;                                                       /* of answers */
    void (*run)(struct control *control, struct control_call *letter); /* of a struct task */
    /* In its place: the transport's thread. */
    void (*open)(struct control_service *service, struct exchange exchange,
                 const ProtobufCMessage *request);
};

/* control.c: the call of this name; NULL: there is none (Watch has a way of its own). */
const struct control_method *control_method_find(const char *name);

/* One call on its way through the control thread. The request lives as long as the exchange. */
struct task {
    struct control_call letter; /* first */
    struct exchange exchange;
    struct control_service *service;
    const ProtobufCMessage *request;
    bool by_unix; /* a change, asked for by the Unix socket's user (checked), not by a token */
    uint32_t uid; /* then */
};

/* control_task.c. The transport's thread: whoever may not is refused, else `run` is on its way. */
void task_begin(struct control_service *service, struct exchange exchange,
                const ProtobufCMessage *request, const struct control_method *method);
/* The ends of a task, on the control thread. */
void finish_error(struct task *task, const struct error *error);
/* `message` lies in the scratch, NULL: no memory. Frees the scratch. */
void finish(struct task *task, struct scratch *scratch, void *message);
void finish_status(struct task *task, struct control *control);
void finish_device(struct task *task, struct control *control, size_t index);
/* For the changes of change.h: `context` is the task. */
void on_status_changed(struct control *control, void *context, size_t index,
                       const struct error *error);
void on_job_changed(struct control *control, void *context, size_t index,
                    const struct error *error);
void on_endpoint_changed(struct control *control, void *context, size_t index,
                         const struct error *error);

/* On what terms a setting is changed, as control/change.h has it. */
struct terms {
    struct control_terms terms;
    char actor[24]; /* where none is named; the struct stays where it is */
};
/* control_adjust.c */
void terms_read(const struct task *task, const Tidepool__V1__Terms *wish, struct terms *ret_terms);
/* What would come of a change that is only looked at. False: refused, the task is over and the
 * scratch freed. */
bool would_add(struct task *task, struct control *control, struct scratch *scratch,
               const Tidepool__V1__DryRunRequest *change, Tidepool__V1__DryRunResponse **ret_would);

/* control_adjust.c, control_teams.c: settings changed while running. Each runs on the control
 * thread. */
void run_cordon_device(struct control *control, struct control_call *letter);
void run_uncordon_device(struct control *control, struct control_call *letter);
void run_drain_device(struct control *control, struct control_call *letter);
void run_reclaim_device(struct control *control, struct control_call *letter);
void run_set_endpoint(struct control *control, struct control_call *letter);
void run_set_team(struct control *control, struct control_call *letter);
void run_list_teams(struct control *control, struct control_call *letter);
void run_list_overrides(struct control *control, struct control_call *letter);
void run_drop_override(struct control *control, struct control_call *letter);

/* A SetTeam as control/change.h has it; everything lies in the scratch or the request. */
struct control_team_wish team_wish_of(struct scratch *scratch,
                                      const Tidepool__V1__SetTeamRequest *request);

/* control_dry_run.c. With an error nothing is returned. Control thread. */
Tidepool__V1__DryRunResponse *dry_run(struct scratch *scratch, struct control *control,
                                      const Tidepool__V1__DryRunRequest *request,
                                      struct error *error);

/* control_watch.c: Watch. */
void watch_handle(struct grpc_call *call, const ProtobufCMessage *message, void *context);
void watch_open(struct control_service *service, struct exchange exchange,
                const Tidepool__V1__WatchRequest *request);
void watch_begin(struct control *control, struct stream *stream);
void watch_pass(struct control *control, struct stream *stream);

#endif
