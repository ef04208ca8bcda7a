/* change.h: what callers may change. Who may call is the service's business, not checked here.
 * Answers: `done` runs on the control thread, once: at once or when the change is on disk; `index`
 *          is the object's for the views of view.h. With an error it has the text.
 * Thread:  the control thread (control_post). */
#ifndef TIDEPOOL_CONTROL_CHANGE_H
#define TIDEPOOL_CONTROL_CHANGE_H

#include "server/control/control.h"

/* `error` NULL: done. */
typedef void control_done(struct control *control, void *context, size_t index,
                          const struct error *error);

#define CONTROL_SPECIFICATION_BYTES_MAX (1u << 20)
#define CONTROL_REQUEST_ID_BYTES_MAX 128
#define CONTROL_JOBS_ACTIVE_MAX 1000

/* A job of the same request id is answered instead of made anew; "" makes one always. */
struct control_submission {
    const char *specification, *request_id;
    bool export_anywhere; /* else only into the model repository */
};
void control_job_submit(struct control *control, const struct control_submission *submission,
                        control_done *done, void *context);
/* By index. A job that has ended: FAILED_PRECONDITION; one already so: done. */
void control_job_cancel(struct control *control, size_t index, control_done *done, void *context);
void control_job_pause(struct control *control, size_t index, control_done *done, void *context);
void control_job_resume(struct control *control, size_t index, control_done *done, void *context);
/* To an outside job's first process, or to all of them. FAILED_PRECONDITION: it does not run. */
void control_job_signal(struct control *control, size_t index, int signal, bool all,
                        control_done *done, void *context);

/* Leases held from outside, by index: submitted as a specification with `held`, listed with the
 * jobs. A wrong token, or a job that is none: FAILED_PRECONDITION. */
struct control_progress {
    bool has_step; /* false: only a sign of life */
    uint64_t step, checkpointed_step;
};
int control_lease_report(struct control *control, size_t index, const char *token,
                         const struct control_progress *progress, struct error *error);
/* Once a notice; the deadline moves by no more than the configured extension. */
int control_lease_extend(struct control *control, size_t index, const char *token, double seconds,
                         struct error *error);
/* All of its devices are free. `again`: it waits for others; else it has finished. */
void control_lease_release(struct control *control, size_t index, const char *token, bool again,
                           control_done *done, void *context);
/* Holds when it waits next; what it has now stays. */
void control_lease_resize(struct control *control, size_t index, uint32_t least, uint32_t most,
                          control_done *done, void *context);

struct control_serve_options {
    const char *path;                  /* of a model file, or */
    const char *model;                 /* the name of a model in the repository */
    const char *name;                  /* "": from the file's name */
    double slo_ms;                     /* 0: the model's own */
    uint32_t devices_min, devices_max; /* maximum 0: as many as there are */
};
/* Done when the model is loaded and checked and its endpoint is on disk; its first instance may
 * still load. */
void control_serve_model(struct control *control, const struct control_serve_options *options,
                         control_done *done, void *context);
void control_stop_serving(struct control *control, size_t index, control_done *done, void *context);

void control_set_hold(struct control *control, bool hold, const char *reason, control_done *done,
                      void *context);
void control_set_mode(struct control *control, enum core_mode mode, control_done *done,
                      void *context);

/* ---- settings changed while running; done at once, answered when on disk ----------------------
 */

/* Who, why, until when. Texts outlive the call. */
struct control_terms {
    const char *actor, *reason;
    uint64_t expires_in_ns;     /* then the configuration's holds again; 0: it stays */
    uint64_t expected_revision; /* ABORTED when its settings were changed after it; 0: whatever */
    bool validate_only;         /* checked, and answered as if done */
};
/* On: nothing new comes onto it. Off: ends a drain, too. */
void control_device_cordon(struct control *control, size_t index, bool on,
                           const struct control_terms *terms, control_done *done, void *context);
/* Cordoned, and what is on it leaves by then. */
void control_device_drain(struct control *control, size_t index, uint64_t within_ns,
                          const struct control_terms *terms, control_done *done, void *context);
/* Its provider takes it back then; `stays`: it does not any more. */
void control_device_reclaim(struct control *control, size_t index, uint64_t within_ns, bool stays,
                            const struct control_terms *terms, control_done *done, void *context);

struct control_endpoint_wish {
    bool sets_min, sets_max, sets_slo, sets_priority; /* the others stay as they are */
    uint32_t devices_min, devices_max;
    double slo_ms;
    int32_t priority;
};
void control_endpoint_set(struct control *control, size_t index,
                          const struct control_endpoint_wish *wish,
                          const struct control_terms *terms, control_done *done, void *context);

struct control_team_quota {
    const char *kind;
    uint32_t devices;
};
struct control_team_wish {
    const char *name; /* a new one is made */
    bool sets_weight;
    uint32_t weight;
    const struct control_team_quota *quotas; /* of the kinds that are set */
    size_t quota_count;
};
void control_team_set(struct control *control, const struct control_team_wish *wish,
                      const struct control_terms *terms, control_done *done, void *context);

/* What the configuration says holds again. NOT_FOUND: there is no such override. */
struct control_override_name {
    const char *object, *name; /* "device", "endpoint" or "team", and its name */
    const char *field;         /* "": all of the object's */
};
void control_override_drop(struct control *control, const struct control_override_name *which,
                           const struct control_terms *terms, control_done *done, void *context);

void control_device_fail(struct control *control, size_t index, const char *reason);
/* FAILED_PRECONDITION when it has not failed. */
int control_device_recover(struct control *control, size_t index, struct error *error);

/* Devices that a provider has on their way; replaces what it told of this kind before. No devices
 * and no lead time: forgotten. Done at once. NOT_FOUND: no such kind here. */
struct control_coming {
    const char *provider, *kind;
    uint32_t devices;
    uint64_t arrives_in_ns;
    uint64_t lead_ns; /* what a device takes that is asked for now; 0: not known */
};
int control_scale_announce(struct control *control, const struct control_coming *coming,
                           struct error *error);

#endif
