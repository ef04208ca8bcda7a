/* control_task.c: one call of the control service: who may make it, its way to the control thread,
 * its answer. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/control/view.h"
#include "server/rpc/control_service.h"

/* ---- answers ---- */

void finish_error(struct task *task, const struct error *error)
{
    exchange_refuse(&task->exchange, error);
    free(task);
}

void finish(struct task *task, struct scratch *scratch, void *message)
{
    if (message == NULL || scratch->failed) {
        exchange_finish(&task->exchange, ERROR_RESOURCE_EXHAUSTED, "no memory for the answer");
    } else {
        exchange_reply(&task->exchange, message);
    }
    scratch_free(scratch);
    free(task);
}

void finish_status(struct task *task, struct control *control)
{
    struct scratch scratch = {0};
    finish(task, &scratch,
           encode_status(&scratch, control, task->service->version, task->service->inference));
}

void finish_device(struct task *task, struct control *control, size_t index)
{
    struct scratch scratch = {0};
    struct control_device device;
    control_device_at(control, index, &device);
    finish(task, &scratch, encode_device(&scratch, &device));
}

void on_status_changed(struct control *control, void *context, size_t index,
                       const struct error *error)
{
    (void)index;
    if (error != NULL) {
        finish_error(context, error);
    } else {
        finish_status(context, control);
    }
}

void on_job_changed(struct control *control, void *context, size_t index, const struct error *error)
{
    struct scratch scratch = {0};
    struct control_job job;
    if (error != NULL) {
        finish_error(context, error);
    } else if (control_job_at(control, index, &job)) {
        finish(context, &scratch, encode_job(&scratch, &job));
    }
}

void on_endpoint_changed(struct control *control, void *context, size_t index,
                         const struct error *error)
{
    struct scratch scratch = {0};
    struct control_endpoint endpoint;
    if (error != NULL) {
        finish_error(context, error);
    } else if (control_endpoint_at(control, index, &endpoint)) {
        finish(context, &scratch, encode_endpoint(&scratch, &endpoint));
    }
}

/* ---- who may ---- */

static int authorize_unix(uint32_t uid, struct error *error)
{
    if (uid == 0 || uid == geteuid()) {
        return 0;
    }
    return error_set(error, ERROR_PERMISSION_DENIED,
                     "over this socket user %u and root may change things; you are user %u",
                     (unsigned)geteuid(), (unsigned)uid);
}

static int authorize_token(struct control_service *service, const struct exchange *exchange,
                           struct error *error)
{
    const char *given = exchange_metadata(exchange, "authorization");
    pthread_mutex_lock(&service->shared.lock);
    bool there = service->shared.token[0] != '\0';
    bool matches = token_matches(service->shared.token, given);
    pthread_mutex_unlock(&service->shared.lock);
    if (matches) {
        return 0;
    }
    if (!there) {
        return error_set(error, ERROR_PERMISSION_DENIED,
                         "this TCP address only shows; use the Unix socket, or give the server a "
                         "\"token_file\" in its configuration");
    }
    return error_set(error, ERROR_PERMISSION_DENIED,
                     given == NULL
                         ? "this TCP address only shows; use the Unix socket, or send the metadata "
                           "'authorization: Bearer <token>' with the token of the server's "
                           "token_file"
                         : "the token is not the one in the server's token_file");
}

/* *ret_unix: by the Unix socket's user, not by a token. */
static int authorize(struct control_service *service, const struct exchange *exchange,
                     bool *ret_unix, uint32_t *ret_uid, struct error *error)
{
    uint32_t pid = 0;
    *ret_unix = exchange_peer(exchange, ret_uid, &pid);
    return *ret_unix ? authorize_unix(*ret_uid, error) : authorize_token(service, exchange, error);
}

/* ---- the way there ---- */

void task_begin(struct control_service *service, struct exchange exchange,
                const ProtobufCMessage *request, const struct control_method *method)
{
    struct error error = {0};
    bool by_unix = false;
    uint32_t uid = 0;
    if (method->changes && authorize(service, &exchange, &by_unix, &uid, &error) < 0) {
        exchange_finish(&exchange, error.code, error.text);
        return;
    }
    if (method->open != NULL) {
        method->open(service, exchange, request);
        return;
    }
    struct task *task = calloc(1, sizeof *task);
    if (task == NULL) {
        exchange_finish(&exchange, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        return;
    }
    *task = (struct task){.letter = {.run = method->run},
                          .exchange = exchange,
                          .service = service,
                          .request = request,
                          .by_unix = by_unix,
                          .uid = uid};
    control_post(service->control, &task->letter);
}
