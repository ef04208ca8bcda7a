/* replay_report.c: what a replay came to: one JSON document for programs, lines for people. */
#include <inttypes.h>

#include "clients/sim/replay.h"

static const struct {
    const char *name;
    enum core_action_kind kind;
} shown[] = {
    {"grants", CORE_ACTION_GRANT},           {"revokes", CORE_ACTION_REVOKE},
    {"resumes", CORE_ACTION_RESUME},         {"kills", CORE_ACTION_KILL},
    {"places", CORE_ACTION_PLACE},           {"removes", CORE_ACTION_REMOVE},
    {"quarantines", CORE_ACTION_QUARANTINE},
};
#define SHOWN (sizeof shown / sizeof *shown)

static json_t *course_json(const struct replay_course *course)
{
    char hash[17];
    snprintf(hash, sizeof hash, "%016" PRIx64, course->hash);
    json_t *object =
        json_pack("{s:s, s:I, s:I}", "hash", hash, "events", (json_int_t)course->events,
                  "handovers", (json_int_t)course->handovers);
    json_t *accounts = json_object();
    for (size_t i = 0; i < SHOWN; i++) {
        json_object_set_new(object, shown[i].name,
                            json_integer((json_int_t)course->actions[shown[i].kind]));
    }
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        json_object_set_new(accounts, core_account_name((enum core_account)account),
                            json_real((double)course->ledger.account_ns[account] / 1e9));
    }
    json_object_set_new(object, "account_s", accounts);
    return object;
}

static double span_s(const struct replay *replay)
{
    return (double)(replay->recorded.last_ns - replay->recorded.first_ns) / 1e9;
}

json_t *replay_json(const struct replay *replay)
{
    json_t *object = json_pack(
        "{s:b, s:I, s:I, s:f, s:f, s:o}", "same", (int)replay->same, "hashes",
        (json_int_t)replay->hashes, "torn_bytes", (json_int_t)replay->recorded.torn_bytes, "span_s",
        span_s(replay), "wall_s", replay->wall_s, "recorded", course_json(&replay->recorded));
    if (replay->part != 0) {
        json_object_set_new(object, "part", json_integer((json_int_t)replay->part));
        json_object_set_new(object, "events_before",
                            json_integer((json_int_t)replay->events_before));
    }
    if (replay->wrong_at != 0) {
        json_object_set_new(object, "differs_by_event", json_integer((json_int_t)replay->wrong_at));
    }
    if (replay->has_other) {
        json_object_set_new(object, "other", course_json(&replay->other));
    }
    return object;
}

static void course_print(const char *name, const struct replay_course *course, FILE *out)
{
    fprintf(out, "%-9s %" PRIu64 " events, %" PRIu64 " hand-overs", name, course->events,
            course->handovers);
    for (size_t i = 0; i < SHOWN; i++) {
        fprintf(out, ", %" PRIu64 " %s", course->actions[shown[i].kind], shown[i].name);
    }
    fprintf(out, "\n         ");
    for (int account = 0; account < CORE_ACCOUNT_COUNT; account++) {
        double share = course->ledger.elapsed_ns == 0 ? 0
                                                      : (double)course->ledger.account_ns[account] /
                                                            (double)course->ledger.elapsed_ns;
        fprintf(out, " %s %.1f %%", core_account_name((enum core_account)account), 100 * share);
    }
    fprintf(out, "\n");
}

void replay_print(const struct replay *replay, FILE *out)
{
    fprintf(out, "%.1f s of a server's life, %" PRIu64 " events in %.2f s\n", span_s(replay),
            replay->recorded.events, replay->wall_s);
    if (replay->recorded.torn_bytes > 0) {
        fprintf(out, "the last %" PRIu64 " bytes of the log are cut or damaged and left out\n",
                replay->recorded.torn_bytes);
    }
    if (replay->part != 0) {
        fprintf(out,
                "part %" PRIu64 " of its log: the %" PRIu64
                " events before it are missing; rebuilt as after a restart of the server, without "
                "what had been learned: not compared with what was decided\n",
                replay->part, replay->events_before);
    } else if (replay->hashes == 0) {
        fprintf(out, "the log ends before its first hash: nothing to compare with\n");
    } else if (replay->same) {
        fprintf(out,
                "the same actions: hash %016" PRIx64 ", %" PRIu64 " of %" PRIu64
                " recorded hashes came again\n",
                replay->recorded.hash, replay->hashes, replay->hashes);
    } else {
        fprintf(out,
                "other actions than recorded, by event %" PRIu64
                ": another version of the scheduler?\n",
                replay->wrong_at);
    }
    course_print("recorded", &replay->recorded, out);
    if (replay->has_other) {
        course_print("other", &replay->other, out);
    }
}
