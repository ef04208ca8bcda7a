/* expect.c: what a scenario's lines 'expect', 'never', 'state' and 'why' claim. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/player.h"
#include "tests/sim/words.h"

/* What can be claimed of an object: by its name, as a number, or as a word for it. */
struct claim {
    const char *name;
    uint64_t value;
    const char *word; /* NULL: a number or a span */
};

struct claims {
    struct claim list[32];
    size_t count;
};

static void add(struct claims *claims, const char *name, uint64_t value, const char *word)
{
    assert_true(claims->count < sizeof claims->list / sizeof *claims->list);
    claims->list[claims->count++] = (struct claim){name, value, word};
}

static void add_flag(struct claims *claims, const char *name, bool value)
{
    add(claims, name, value, value ? "yes" : "no");
}

__attribute__((noreturn)) static void broken(const struct player *player, const char *what,
                                             const char *word)
{
    fail_msg("%s:%" PRIu32 ": %s '%s'", player->name, player->line->number, what, word);
    abort();
}

/* ---- actions ---- */

static const char *const action_names[CORE_ACTION_COUNT] = {
    [CORE_ACTION_PLACE] = "place",
    [CORE_ACTION_REMOVE] = "remove",
    [CORE_ACTION_GRANT] = "grant",
    [CORE_ACTION_REVOKE] = "revoke",
    [CORE_ACTION_RESUME] = "resume",
    [CORE_ACTION_EXTEND] = "extend",
    [CORE_ACTION_KILL] = "kill",
    [CORE_ACTION_VERIFY] = "verify",
    [CORE_ACTION_QUARANTINE] = "quarantine",
    [CORE_ACTION_REJECT] = "reject",
    [CORE_ACTION_EXPIRE] = "expire",
    [CORE_ACTION_LEASE_MOVED] = "moved",
    [CORE_ACTION_SCALE] = "scale",
};

static void claims_of_revoke(struct claims *claims, const struct core_action *action)
{
    add(claims, "device", action->revoke.device, NULL);
    add(claims, "lease", action->revoke.lease, NULL);
    add(claims, "rung", action->revoke.rung, core_rung_name(action->revoke.rung));
    add(claims, "reason", action->revoke.reason, core_reason_name(action->revoke.reason));
    add(claims, "deadline", action->revoke.deadline_ns - SCRIPT_BEGIN_NS, NULL);
}

static void claims_of_action(struct claims *claims, const struct core_action *action)
{
    switch (action->kind) {
    case CORE_ACTION_PLACE:
    case CORE_ACTION_REMOVE:
        add(claims, "device", action->instance.device, NULL);
        add(claims, "endpoint", action->instance.endpoint, NULL);
        break;
    case CORE_ACTION_GRANT:
        add(claims, "device", action->grant.device, NULL);
        add(claims, "lease", action->grant.lease, NULL);
        add(claims, "reason", action->grant.reason, core_reason_name(action->grant.reason));
        add(claims, "generation", action->grant.token.generation, NULL);
        add_flag(claims, "yield", action->grant.yield);
        break;
    case CORE_ACTION_REVOKE:
    case CORE_ACTION_RESUME:
    case CORE_ACTION_EXTEND:
    case CORE_ACTION_KILL:
        claims_of_revoke(claims, action);
        break;
    case CORE_ACTION_VERIFY:
    case CORE_ACTION_QUARANTINE:
        add(claims, "device", action->device.device, NULL);
        add(claims, "lease", action->device.lease, NULL);
        add(claims, "reason", action->device.reason, core_reason_name(action->device.reason));
        break;
    case CORE_ACTION_REJECT:
        add(claims, "device", action->reject.device, NULL);
        add(claims, "endpoint", action->reject.endpoint, NULL);
        add(claims, "lease", action->reject.lease, NULL);
        add(claims, "reason", action->reject.reason, core_reason_name(action->reject.reason));
        break;
    case CORE_ACTION_EXPIRE:
    case CORE_ACTION_LEASE_MOVED:
        add(claims, "lease", action->lease.lease, NULL);
        add(claims, "state", action->lease.state, core_lease_state_name(action->lease.state));
        add(claims, "devices", action->lease.devices, NULL);
        add(claims, "reason", action->lease.reason, core_reason_name(action->lease.reason));
        break;
    default:
        break;
    }
}

void expect_print(const struct core_action *action, FILE *file)
{
    struct claims claims = {.count = 0};
    char value[WORD_MAX];
    claims_of_action(&claims, action);
    if (claims.count == 0) {
        return;
    }
    fprintf(file, "        %s", action_names[action->kind]);
    for (size_t i = 0; i < claims.count; i++) {
        snprintf(value, sizeof value, "%" PRIu64, claims.list[i].value);
        fprintf(file, " %s=%s", claims.list[i].name,
                claims.list[i].word != NULL ? claims.list[i].word : value);
    }
    fprintf(file, "\n");
}

/* ---- states ---- */

static void claims_of_device(struct claims *claims, const struct core_device_view *view)
{
    add(claims, "device", view->device, NULL);
    add(claims, "hold", view->hold, core_hold_name(view->hold));
    add(claims, "lease", view->lease, NULL);
    add(claims, "health", view->health, core_health_name(view->health));
    add(claims, "account", view->account, core_account_name(view->account));
    add(claims, "promised", view->promised, NULL);
    add(claims, "generation", view->generation, NULL);
    add(claims, "handovers", view->handovers, NULL);
    add(claims, "memory_used", view->memory_used_bytes, NULL);
    add(claims, "instances", view->instances_ready, NULL);
    add_flag(claims, "kept", view->kept_for_serving);
    add_flag(claims, "cordoned", view->cordoned);
    add_flag(claims, "occupied", view->occupied);
    add_flag(claims, "drained", view->drained);
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        add(claims, core_account_name((enum core_account)account), view->account_ns[account], NULL);
    }
}

static void claims_of_lease(struct claims *claims, const struct core_lease_view *view)
{
    add(claims, "lease", view->spec.lease, NULL);
    add(claims, "state", view->state, core_lease_state_name(view->state));
    add(claims, "reason", view->reason, core_reason_name(view->reason));
    add(claims, "devices", view->devices, NULL);
    add(claims, "leaving", view->devices_leaving, NULL);
    add(claims, "stopped", view->devices_stopped, NULL);
    add(claims, "position", view->position, NULL);
    add(claims, "step", view->step, NULL);
    add(claims, "kept_step", view->checkpointed_step, NULL);
    add(claims, "revokes", view->revokes, NULL);
    add(claims, "runs", view->runs, NULL);
    add(claims, "preemptions", view->preemptions, NULL);
    add(claims, "stops", view->stops, NULL);
    add(claims, "failures", view->failures, NULL);
    add(claims, "training", view->training_ns, NULL);
    add(claims, "provisional", view->provisional_ns, NULL);
    add(claims, "lost", view->lost_ns, NULL);
    add_flag(claims, "heartbeat_lost", view->heartbeat_lost);
}

static void claims_of_endpoint(struct claims *claims, const struct core_endpoint_view *view)
{
    add(claims, "endpoint", view->spec.endpoint, NULL);
    add(claims, "needed", view->devices_needed, NULL);
    add(claims, "ready", view->instances_ready, NULL);
    add(claims, "placing", view->instances_placing, NULL);
    add(claims, "reason", view->reason, core_reason_name(view->reason));
    add(claims, "demand", view->demand_milli, NULL);
}

static void claims_of_why(struct claims *claims, const struct core_explanation *why)
{
    add(claims, "what", why->what, core_what_name(why->what));
    add(claims, "reason", why->reason, core_reason_name(why->reason));
    add(claims, "rung", why->rung, core_rung_name(why->rung));
    add(claims, "device", why->device, NULL);
    add(claims, "lease", why->lease, NULL);
    add(claims, "endpoint", why->endpoint, NULL);
    add(claims, "victims", why->victim_count, NULL);
    add_flag(claims, "applied", why->applied);
}

/* ---- comparing ---- */

static const struct claim *find(const struct claims *claims, const char *name, size_t length)
{
    for (size_t i = 0; i < claims->count; i++) {
        if (strlen(claims->list[i].name) == length &&
            strncmp(claims->list[i].name, name, length) == 0) {
            return &claims->list[i];
        }
    }
    return NULL;
}

/* "name=value", also with <=, >= or !=. */
static bool holds(const struct player *player, const struct claims *claims, const char *word)
{
    size_t length = strcspn(word, "<>!=");
    const struct claim *claim = find(claims, word, length);
    const char *sign = word + length, *value = sign + (sign[0] == '=' ? 1 : 2);
    uint64_t number;
    if (claim == NULL || *sign == 0 || (sign[0] != '=' && sign[1] != '=')) {
        broken(player, "nothing can be said so:", word);
    }
    if (claim->word != NULL && (word_is(claim->word, value) || *sign == '=')) {
        return word_is(claim->word, value) == (*sign == '=');
    }
    if (!word_span(value, &number)) {
        broken(player, "no number:", word);
    }
    return *sign == '<'   ? claim->value <= number
           : *sign == '>' ? claim->value >= number
                          : (claim->value == number) == (*sign == '=');
}

/* All words of the text, from `text` on; the first that does not hold comes back. */
static const char *first_wrong(const struct player *player, const struct claims *claims,
                               const char *text, char copy[256])
{
    char *save = NULL;
    snprintf(copy, 256, "%s", text);
    for (char *word = strtok_r(copy, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        if (!holds(player, claims, word)) {
            return word;
        }
    }
    return NULL;
}

/* "grant device=1", or "2 grant lease=3": exactly so many. */
void expect_action(const struct player *player, bool never)
{
    char copy[256], *name;
    uint64_t wanted = strtoull(player->line->text, &name, 10), found = 0;
    bool counted = name != player->line->text;
    name += strspn(name, " ");
    size_t length = strcspn(name, " ");
    int kind = 0;
    while (kind < CORE_ACTION_COUNT &&
           (action_names[kind] == NULL || strlen(action_names[kind]) != length ||
            strncmp(action_names[kind], name, length) != 0)) {
        kind++;
    }
    if (kind == CORE_ACTION_COUNT) {
        broken(player, "no such action:", name);
    }
    for (size_t i = 0; i < player->window_count; i++) {
        struct claims claims = {.count = 0};
        if ((int)player->window[i].kind == kind) {
            claims_of_action(&claims, &player->window[i]);
            found += first_wrong(player, &claims, name + length, copy) == NULL;
        }
    }
    if (never ? found > 0 : counted ? found != wanted : found == 0) {
        broken(player, never ? "came, against what was said:" : "did not come as expected:",
               player->line->text);
    }
}

void expect_state(const struct player *player)
{
    const char *text = player->line->text + strspn(player->line->text, " ");
    struct claims claims = {.count = 0};
    char copy[256];
    uint64_t id = strtoull(text + strcspn(text, "=") + 1, NULL, 10);
    struct core_device_view device;
    struct core_lease_view lease;
    struct core_endpoint_view endpoint;
    if (strncmp(text, "device=", 7) == 0 && core_device_find(player->rig->core, id, &device)) {
        claims_of_device(&claims, &device);
    } else if (strncmp(text, "lease=", 6) == 0 && core_lease_find(player->rig->core, id, &lease)) {
        claims_of_lease(&claims, &lease);
    } else if (strncmp(text, "endpoint=", 9) == 0 &&
               core_endpoint_find(player->rig->core, id, &endpoint)) {
        claims_of_endpoint(&claims, &endpoint);
    } else {
        broken(player, "there is no such object:", text);
    }
    const char *word = first_wrong(player, &claims, text, copy);
    if (word != NULL) {
        char is[WORD_MAX];
        const struct claim *claim = find(&claims, word, strcspn(word, "<>!="));
        word_of_span(claim->value, is);
        fail_msg("%s:%" PRIu32 ": '%s' does not hold: it is %s", player->name, player->line->number,
                 word, claim->word != NULL ? claim->word : is);
    }
}

void expect_why(const struct player *player)
{
    struct core_explanation all[64];
    size_t count = core_explanations(player->rig->core, 0, 0, 0, all, 64);
    char copy[256];
    for (size_t i = 0; i < count; i++) {
        struct claims claims = {.count = 0};
        claims_of_why(&claims, &all[i]);
        if (first_wrong(player, &claims, player->line->text, copy) == NULL) {
            return;
        }
    }
    broken(player, "nothing is explained so:", player->line->text);
}
