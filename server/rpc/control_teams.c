/* control_teams.c: SetTeam and ListTeams. */
#include "server/control/change.h"
#include "server/control/view.h"
#include "server/rpc/control_service.h"

static Tidepool__V1__TeamKind *encode_kind(struct scratch *scratch, const char *kind,
                                           uint32_t quota, uint32_t held)
{
    Tidepool__V1__TeamKind *message = message_new(scratch, &tidepool__v1__team_kind__descriptor);
    if (message != NULL) {
        message->kind = scratch_text(scratch, kind);
        message->quota = quota;
        message->held = held;
    }
    return message;
}

static Tidepool__V1__Team *encode_team(struct scratch *scratch, const struct control_team *team)
{
    Tidepool__V1__Team *message = message_new(scratch, &tidepool__v1__team__descriptor);
    if (message == NULL) {
        return NULL;
    }
    message->revision = team->revision;
    message->name = scratch_text(scratch, team->name);
    message->weight = team->weight;
    message->jobs = team->leases;
    message->jobs_waiting = team->leases_waiting;
    message->usage_device_s = (double)team->usage_ns / 1e9;
    message->kinds = scratch_take(scratch, team->kind_count + 1, sizeof *message->kinds);
    for (size_t i = 0; message->kinds != NULL && i < team->kind_count; i++) {
        message->kinds[i] =
            encode_kind(scratch, team->kinds[i].kind, team->kinds[i].quota, team->kinds[i].held);
        message->n_kinds += message->kinds[i] != NULL ? 1 : 0;
    }
    return message;
}

struct control_team_wish team_wish_of(struct scratch *scratch,
                                      const Tidepool__V1__SetTeamRequest *request)
{
    struct control_team_wish wish = {.name = request->name,
                                     .sets_weight = request->weight_or_not_case != 0,
                                     .weight = request->weight};
    struct control_team_quota *quotas =
        scratch_take(scratch, request->n_quotas + 1, sizeof *quotas);
    for (size_t i = 0; quotas != NULL && i < request->n_quotas; i++) {
        quotas[i] =
            (struct control_team_quota){request->quotas[i]->kind, request->quotas[i]->devices};
        wish.quota_count++;
    }
    wish.quotas = quotas;
    return wish;
}

static void on_team_set(struct control *control, void *context, size_t index,
                        const struct error *error)
{
    struct task *task = context;
    Tidepool__V1__SetTeamRequest *request = (void *)(uintptr_t)task->request;
    struct scratch scratch = {0};
    struct control_team team;
    Tidepool__V1__ChangedTeam answer = TIDEPOOL__V1__CHANGED_TEAM__INIT;
    Tidepool__V1__DryRunRequest change = TIDEPOOL__V1__DRY_RUN_REQUEST__INIT;
    change.change_case = TIDEPOOL__V1__DRY_RUN_REQUEST__CHANGE_SET_TEAM;
    change.set_team = request;
    if (error != NULL) {
        finish_error(task, error);
        return;
    }
    if (request->terms != NULL && request->terms->validate_only &&
        !would_add(task, control, &scratch, &change, &answer.would)) {
        return;
    }
    if (control_team_at(control, index, &team)) {
        answer.team = encode_team(&scratch, &team);
    }
    finish(task, &scratch, &answer);
}

void run_set_team(struct control *control, struct control_call *letter)
{
    struct task *task = (struct task *)letter;
    const Tidepool__V1__SetTeamRequest *request = (const void *)task->request;
    struct scratch scratch = {0};
    struct terms terms;
    struct control_team_wish wish = team_wish_of(&scratch, request);
    terms_read(task, request->terms, &terms);
    if (scratch.failed) {
        struct error error = {0};
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "no memory for the call");
        finish_error(task, &error);
    } else {
        control_team_set(control, &wish, &terms.terms, on_team_set, task);
    }
    scratch_free(&scratch);
}

void run_list_teams(struct control *control, struct control_call *letter)
{
    struct scratch scratch = {0};
    Tidepool__V1__ListTeamsResponse answer = TIDEPOOL__V1__LIST_TEAMS_RESPONSE__INIT;
    struct control_team team;
    size_t count = 0;
    while (control_team_at(control, count, &team)) {
        count++;
    }
    answer.revision = control_revision(control);
    answer.teams = scratch_take(&scratch, count + 1, sizeof *answer.teams);
    for (size_t i = 0; answer.teams != NULL && i < count; i++) {
        control_team_at(control, i, &team);
        answer.teams[answer.n_teams++] = encode_team(&scratch, &team);
    }
    finish((struct task *)letter, &scratch, &answer);
}
