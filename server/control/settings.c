/* settings.c: mode, hold and the ledger's totals: what the store keeps beside jobs and endpoints.
 */
#include <stdlib.h>
#include <string.h>

#include "server/base/log.h"
#include "server/control/state.h"

#define HOLD_REASON_MAX 255

void count_store_error(void *context, const struct error *error)
{
    struct control *control = context;
    if (error != NULL) { /* the store has logged it */
        atomic_fetch_add(&control->store_errors, 1);
    }
}

/* ---- the start
 * ------------------------------------------------------------------------------------ */

static int load_accounts(struct control *control, struct error *error)
{
    int result = 0;
    for (int account = 0; account < CORE_ACCOUNT_COUNT && result == 0; account++) {
        result = store_load_account(control->store, core_account_name(account),
                                    &control->ever_before_ns[account], error);
    }
    return result;
}

/* "" or "<wall ns> <reason>". */
static int load_hold(struct control *control, struct error *error)
{
    char *hold = NULL;
    int result = store_load_setting(control->store, "hold", &hold, error);
    if (result == 0 && hold != NULL && hold[0] != '\0') {
        char *reason = NULL;
        control->hold_since_wall_ns = strtoull(hold, &reason, 10);
        control->hold_reason = strdup(reason[0] == ' ' ? reason + 1 : reason);
        if (control->hold_reason == NULL) {
            result = error_set(error, ERROR_RESOURCE_EXHAUSTED, "read settings: no memory");
        }
    }
    free(hold);
    return result;
}

int settings_load(struct control *control, struct core_config *core_config, struct error *error)
{
    char *mode = NULL;
    int result = store_load_setting(control->store, "mode", &mode, error);
    for (int i = CORE_MODE_OBSERVE; i <= CORE_MODE_ACT && mode != NULL; i++) {
        if (strcmp(mode, core_mode_name(i)) == 0) {
            core_config->mode = i;
        }
    }
    free(mode);
    if (result == 0) {
        result = load_hold(control, error);
    }
    return result < 0 ? result : load_accounts(control, error);
}

void settings_boot(struct control *control)
{
    if (control->hold_reason != NULL) {
        struct core_event event = {.kind = CORE_EVENT_HOLD};
        event.hold.on = true;
        control_feed(control, event);
        log_write(LOG_WARN, "control", "on hold", "since_wall_ns=%llu",
                  (unsigned long long)control->hold_since_wall_ns);
    }
    revision_touch_status(control);
}

/* ---- the ledger
 * ------------------------------------------------------------------------------------- */

void ledger_store(struct control *control)
{
    struct core_ledger ledger;
    core_ledger_read(control->core, control->now_ns, &ledger);
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        store_put_account(
            control->store, core_account_name(account),
            core_sum_clip(control->ever_before_ns[account] + ledger.account_ns[account]),
            count_store_error, control);
    }
    control->ledger_stored_ns = control->now_ns;
}

/* ---- calls
 * --------------------------------------------------------------------------------------------- */

static void run_kept(struct control *control, struct control_call *call)
{
    struct kept_answer *answer = (struct kept_answer *)call;
    if (answer->endpoint != 0 && answer->error.code == ERROR_NONE &&
        endpoint_by_number(control, answer->endpoint, &answer->index) == NULL) {
        error_set(&answer->error, ERROR_ABORTED, "the endpoint was stopped meanwhile");
    }
    answer->done(control, answer->context, answer->index,
                 answer->error.code != ERROR_NONE ? &answer->error : NULL);
    free(answer);
}

struct kept_answer *kept_answer_create(struct control *control, control_done *done, void *context)
{
    struct kept_answer *answer = calloc(1, sizeof *answer);
    if (answer != NULL) {
        *answer = (struct kept_answer){
            .call = {.run = run_kept}, .control = control, .done = done, .context = context};
    }
    return answer;
}

void kept_answer_done(void *context, const struct error *error)
{
    struct kept_answer *answer = context;
    if (error != NULL) {
        answer->error = *error;
        error_prefix(&answer->error, "done, but a restart will not know of it");
    }
    control_post(answer->control, &answer->call);
}

static void keep(struct control *control, const char *name, const char *value, control_done *done,
                 void *context)
{
    struct kept_answer *answer = kept_answer_create(control, done, context);
    if (answer == NULL ||
        store_put_setting(control->store, name, value, kept_answer_done, answer) < 0) {
        struct error error = {0};
        error_set(&error, ERROR_RESOURCE_EXHAUSTED, "keep the setting '%s': no memory", name);
        free(answer);
        done(control, context, 0, &error);
    }
}

void control_set_hold(struct control *control, bool hold, const char *reason, control_done *done,
                      void *context)
{
    struct core_event event = {.kind = CORE_EVENT_HOLD};
    struct error error = {0};
    char value[HOLD_REASON_MAX + 32] = "";
    char *copy = strdup(reason);
    if (copy == NULL || strlen(reason) > HOLD_REASON_MAX) {
        error_set(&error, ERROR_INVALID_ARGUMENT, "hold: the reason has %zu bytes; at most %d",
                  strlen(reason), HOLD_REASON_MAX);
        free(copy);
        done(control, context, 0, &error);
        return;
    }
    struct log_text text;
    log_write(LOG_INFO, "control", hold ? "hold" : "hold lifted", "reason=%s",
              log_quote(&text, reason));
    free(control->hold_reason);
    control->hold_reason = hold ? copy : NULL;
    control->hold_since_wall_ns = hold ? clock_pace_wall_ns(&control->pace) : 0;
    if (hold) {
        snprintf(value, sizeof value, "%llu %s", (unsigned long long)control->hold_since_wall_ns,
                 reason);
    } else {
        free(copy);
    }
    event.hold.on = hold;
    control_feed(control, event);
    revision_touch_status(control);
    keep(control, "hold", value, done, context);
    revisions_refresh(control);
}

void control_set_mode(struct control *control, enum core_mode mode, control_done *done,
                      void *context)
{
    struct core_event event = {.kind = CORE_EVENT_MODE_CHANGED};
    event.mode.mode = mode;
    log_write(LOG_INFO, "control", "mode", "mode=%s", core_mode_name(mode));
    control_feed(control, event);
    revision_touch_status(control);
    keep(control, "mode", core_mode_name(mode), done, context);
    revisions_refresh(control);
}
