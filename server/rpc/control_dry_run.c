/* control_dry_run.c: DryRun: the request as a change to try, its moves as an answer. */
#include <stdlib.h>

#include "server/rpc/control_command.h"
#include "server/rpc/control_service.h"

/* ---- the change ---- */

static struct control_dry_change change_of_endpoint(const Tidepool__V1__ChangeEndpoint *wish)
{
    return (struct control_dry_change){.kind = CONTROL_DRY_CHANGE_ENDPOINT,
                                       .name = wish->name,
                                       .slo_ms = wish->slo_ms,
                                       .devices_min = wish->devices_min,
                                       .devices_max = wish->devices_max,
                                       .priority = wish->priority};
}

static struct control_dry_change change_of_name(enum control_dry_kind kind, const char *name)
{
    return (struct control_dry_change){.kind = kind, .name = name};
}

static int change_of_mode(const Tidepool__V1__SetModeRequest *wish,
                          struct control_dry_change *ret_change, struct error *error)
{
    if (wish->mode < TIDEPOOL__V1__MODE__MODE_OBSERVE ||
        wish->mode > TIDEPOOL__V1__MODE__MODE_ACT) {
        return error_set(error, ERROR_INVALID_ARGUMENT, "mode: %d is none of observe, advise, act",
                         (int)wish->mode);
    }
    *ret_change = (struct control_dry_change){.kind = CONTROL_DRY_MODE,
                                              .mode = (enum core_mode)(wish->mode - 1)};
    return 0;
}

static int change_of(const Tidepool__V1__DryRunRequest *request,
                     struct control_dry_change *ret_change, struct error *error)
{
    switch (request->change_case) {
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SUBMIT_JOB:
        *ret_change = (struct control_dry_change){.kind = CONTROL_DRY_SUBMIT,
                                                  .specification = request->submit_job->spec_json};
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_CANCEL_JOB:
        *ret_change = change_of_name(CONTROL_DRY_CANCEL, request->cancel_job->job);
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_PAUSE_JOB:
        *ret_change = change_of_name(CONTROL_DRY_PAUSE, request->pause_job->job);
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_RESUME_JOB:
        *ret_change = change_of_name(CONTROL_DRY_RESUME, request->resume_job->job);
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_STOP_SERVING:
        *ret_change = change_of_name(CONTROL_DRY_STOP_SERVING, request->stop_serving->name);
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_CHANGE_ENDPOINT:
        *ret_change = change_of_endpoint(request->change_endpoint);
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SET_HOLD:
        *ret_change =
            (struct control_dry_change){.kind = CONTROL_DRY_HOLD, .on = request->set_hold->hold};
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SET_MODE:
        return change_of_mode(request->set_mode, ret_change, error);
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_ADD_DEVICES:
        *ret_change = change_of_name(CONTROL_DRY_ADD_DEVICES, request->add_devices->kind);
        ret_change->devices = request->add_devices->devices;
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_REMOVE_DEVICE:
        *ret_change = change_of_name(CONTROL_DRY_REMOVE_DEVICE, request->remove_device->device);
        ret_change->within_s = request->remove_device->within_s;
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_CORDON_DEVICE:
        *ret_change = change_of_name(CONTROL_DRY_CORDON, request->cordon_device->device);
        ret_change->on = true;
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_UNCORDON_DEVICE:
        *ret_change = change_of_name(CONTROL_DRY_CORDON, request->uncordon_device->device);
        return 0;
    case TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SET_TEAM:
        *ret_change = change_of_name(CONTROL_DRY_TEAM, request->set_team->name);
        return 0;
    default:
        return error_set(error, ERROR_INVALID_ARGUMENT, "dry run: the change is missing");
    }
}

/* ---- the answer ---- */

struct answering {
    struct scratch *scratch;
    Tidepool__V1__DryRunResponse *answer;
    size_t capacity;
};

/* An array in a scratch grows by a larger one; the smaller goes with the scratch. */
static bool reserve(struct answering *answering)
{
    Tidepool__V1__DryRunResponse *answer = answering->answer;
    if (answer->n_moves < answering->capacity) {
        return true;
    }
    size_t wanted = answering->capacity == 0 ? 64 : answering->capacity * 2;
    Tidepool__V1__DryRunMove **grown =
        scratch_take(answering->scratch, wanted, sizeof *answer->moves);
    for (size_t i = 0; grown != NULL && i < answer->n_moves; i++) {
        grown[i] = answer->moves[i];
    }
    if (grown != NULL) {
        answer->moves = grown;
        answering->capacity = wanted;
    }
    return grown != NULL;
}

static void add_move(void *context, const struct control_move *move, double after_s, bool anyway)
{
    struct answering *answering = context;
    Tidepool__V1__DryRunMove *message =
        message_new(answering->scratch, &tidepool__v1__dry_run_move__descriptor);
    if (message != NULL && reserve(answering)) {
        message->move = encode_move(answering->scratch, move);
        message->after_s = after_s;
        message->anyway = anyway;
        answering->answer->moves[answering->answer->n_moves++] = message;
    }
}

Tidepool__V1__DryRunResponse *dry_run(struct scratch *scratch, struct control *control,
                                      const Tidepool__V1__DryRunRequest *request,
                                      struct error *error)
{
    struct control_dry_change change;
    struct control_dry_result result;
    struct answering answering = {
        .scratch = scratch,
        .answer = message_new(scratch, &tidepool__v1__dry_run_response__descriptor)};
    char *command = NULL;
    struct control_team_wish team;
    int done = answering.answer == NULL ? -(int)ERROR_RESOURCE_EXHAUSTED
                                        : change_of(request, &change, error);
    if (done == 0 && change.kind == CONTROL_DRY_TEAM) {
        team = team_wish_of(scratch, request->set_team);
        change.team = &team;
    }
    if (done == 0 && change.kind == CONTROL_DRY_SUBMIT && request->submit_job->command != NULL) {
        command = command_specification(request->submit_job->command, error);
        change.specification = command;
        done = command != NULL ? 0 : -(int)ERROR_INVALID_ARGUMENT;
    }
    if (done == 0) {
        done = control_dry_run(control, &change, request->horizon_s, add_move, &answering, &result,
                               error);
    }
    free(command);
    if (done < 0) {
        return NULL;
    }
    answering.answer->refused = scratch_text(scratch, result.refused);
    answering.answer->starts_after_s = result.start_s;
    answering.answer->horizon_s = result.horizon_s;
    return answering.answer;
}
