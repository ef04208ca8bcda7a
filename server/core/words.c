/* words.c: names for people, metrics and the explanation in one sentence. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "server/core/state.h"

#define NAME(table, index)                                                                         \
    ((size_t)(index) < sizeof(table) / sizeof *(table) && (table)[index] != NULL ? (table)[index]  \
                                                                                 : "unknown")

const char *core_account_name(enum core_account account)
{
    static const char *const names[] = {
        [CORE_ACCOUNT_FREE] = "free",           [CORE_ACCOUNT_RESERVE] = "reserve",
        [CORE_ACCOUNT_SERVING] = "serving",     [CORE_ACCOUNT_TRAINING] = "training",
        [CORE_ACCOUNT_WAITING] = "waiting",     [CORE_ACCOUNT_RESTORE] = "restore",
        [CORE_ACCOUNT_LOST] = "lost",           [CORE_ACCOUNT_HANDOVER] = "handover",
        [CORE_ACCOUNT_SUSPENDED] = "suspended", [CORE_ACCOUNT_QUARANTINED] = "quarantined",
    };
    return NAME(names, account);
}

const char *core_reason_name(enum core_reason reason)
{
    static const char *const names[] = {
        [CORE_REASON_NONE] = "none",
        [CORE_REASON_DEMAND] = "demand",
        [CORE_REASON_SUSTAINED_LOAD] = "sustained load",
        [CORE_REASON_LOAD_FELL] = "load fell",
        [CORE_REASON_GANG_MINIMUM] = "minimum of a waiting lease",
        [CORE_REASON_ELASTIC_GROWTH] = "elastic growth",
        [CORE_REASON_RESIZED] = "resized",
        [CORE_REASON_BELOW_MINIMUM] = "below its minimum",
        [CORE_REASON_OWNER_PAUSED] = "paused by its owner",
        [CORE_REASON_CANCELLED] = "cancelled",
        [CORE_REASON_EXPIRED] = "expired",
        [CORE_REASON_RELEASED] = "released",
        [CORE_REASON_JOB_EXITED] = "job exited",
        [CORE_REASON_DEVICE_FAILED] = "device failed",
        [CORE_REASON_DEVICE_REMOVED] = "device removed",
        [CORE_REASON_RECLAIM] = "wanted back by its provider",
        [CORE_REASON_ACTION_FAILED] = "could not be carried out",
        [CORE_REASON_ACTION_LOST] = "no answer in time",
        [CORE_REASON_DEADLINE_PASSED] = "deadline passed",
        [CORE_REASON_NOT_VERIFIED] = "former holder not verified gone",
        [CORE_REASON_RESTORED] = "restored",
        [CORE_REASON_IMPOSSIBLE] = "more devices than the pool has of these kinds",
        [CORE_REASON_DUPLICATE] = "id in use",
        [CORE_REASON_UNKNOWN] = "unknown id",
        [CORE_REASON_INVALID] = "field out of range",
        [CORE_REASON_NO_MEMORY] = "no memory in the server",
        [CORE_REASON_TABLE_FULL] = "table full",
        [CORE_REASON_NO_DEVICE_MEMORY] = "fits on no device",
        [CORE_REASON_NEIGHBOUR_SLO] = "a batch would outlast half of a neighbour's SLO",
        [CORE_REASON_RATE_BOUND] = "moves of the hour are used up",
        [CORE_REASON_HOLD] = "moves are on hold",
        [CORE_REASON_UNSUPPORTED] = "its holder has no such rung",
        [CORE_REASON_TOO_SLOW] = "too slow for the need",
        [CORE_REASON_DEARER] = "dearer",
        [CORE_REASON_RUNG_FAILED] = "failed when last asked",
        [CORE_REASON_BUSY] = "not whole, or in a hand-over already",
        [CORE_REASON_STOPPED_TOO_LONG] = "cap on stopped time",
        [CORE_REASON_DELIVERED] = "a slower rung has delivered",
        [CORE_REASON_EXTENDED] = "no extension left",
        [CORE_REASON_QUOTA] = "reservations beyond the team's quota",
        [CORE_REASON_QUOTA_RETURNED] = "lent quota wanted back",
        [CORE_REASON_PRIORITY] = "a more urgent lease of its team",
        [CORE_REASON_FAIR_SHARE] = "a team with less for its weight",
        [CORE_REASON_RESERVED] = "it is a reservation",
        [CORE_REASON_FLOOR] = "its floor",
        [CORE_REASON_RUN_TIME] = "its minimum run time",
        [CORE_REASON_REVOKES_BOUND] = "its revokes of the hour are used up",
        [CORE_REASON_RETRIES_USED] = "failed too often",
        [CORE_REASON_STALE_TOKEN] = "token of an earlier grant",
        [CORE_REASON_SLOW] = "slow device",
        [CORE_REASON_HEALTH_BUDGET] = "health budget used up",
    };
    return NAME(names, reason);
}

const char *core_rung_name(enum core_rung rung)
{
    static const char *const names[] = {
        [CORE_RUNG_NONE] = "none",     [CORE_RUNG_FREE] = "free",     [CORE_RUNG_YIELD] = "yield",
        [CORE_RUNG_SHRINK] = "shrink", [CORE_RUNG_FREEZE] = "freeze", [CORE_RUNG_PAUSE] = "pause",
        [CORE_RUNG_SWAP] = "swap",     [CORE_RUNG_NOTICE] = "notice", [CORE_RUNG_KILL] = "kill",
    };
    return NAME(names, rung);
}

const char *core_health_name(enum core_health health)
{
    static const char *const names[] = {
        [CORE_HEALTH_OK] = "ok",
        [CORE_HEALTH_SLOW] = "slow",
        [CORE_HEALTH_FAILED] = "failed",
        [CORE_HEALTH_QUARANTINED] = "quarantined",
    };
    return NAME(names, health);
}

const char *core_hold_name(enum core_hold hold)
{
    static const char *const names[] = {
        [CORE_HOLD_NONE] = "none",
        [CORE_HOLD_GRANTING] = "granting",
        [CORE_HOLD_HELD] = "held",
        [CORE_HOLD_REVOKING] = "revoking",
        [CORE_HOLD_KILLING] = "killing",
        [CORE_HOLD_VERIFYING] = "verifying",
        [CORE_HOLD_SUSPENDING] = "suspending",
        [CORE_HOLD_SUSPENDED] = "suspended",
        [CORE_HOLD_RESUMING] = "resuming",
    };
    return NAME(names, hold);
}

const char *core_instance_name(enum core_instance_state state)
{
    static const char *const names[] = {
        [CORE_INSTANCE_ABSENT] = "absent",
        [CORE_INSTANCE_PLACING] = "placing",
        [CORE_INSTANCE_READY] = "ready",
        [CORE_INSTANCE_REMOVING] = "removing",
    };
    return NAME(names, state);
}

const char *core_lease_state_name(enum core_lease_state state)
{
    static const char *const names[] = {
        [CORE_LEASE_WAITING] = "waiting",     [CORE_LEASE_RUNNING] = "running",
        [CORE_LEASE_DRAINING] = "draining",   [CORE_LEASE_PAUSED] = "paused",
        [CORE_LEASE_ENDING] = "ending",       [CORE_LEASE_ENDED] = "ended",
        [CORE_LEASE_SUSPENDED] = "suspended",
    };
    return NAME(names, state);
}

const char *core_what_name(enum core_what what)
{
    static const char *const names[] = {
        [CORE_WHAT_GRANT] = "grant",
        [CORE_WHAT_REVOKE] = "revoke",
        [CORE_WHAT_PLACE] = "place",
        [CORE_WHAT_REMOVE] = "remove",
        [CORE_WHAT_YIELD_BEGAN] = "yield began",
        [CORE_WHAT_YIELD_ENDED] = "yield ended",
        [CORE_WHAT_KEEP] = "keep for serving",
        [CORE_WHAT_GIVE_BACK] = "give back",
        [CORE_WHAT_DANGER] = "SLO in danger",
        [CORE_WHAT_WAIT] = "wait",
        [CORE_WHAT_KILL] = "kill",
        [CORE_WHAT_QUARANTINE] = "quarantine",
        [CORE_WHAT_DEVICE_LOST] = "device lost",
        [CORE_WHAT_LEASE_ENDED] = "lease ended",
        [CORE_WHAT_HEARTBEAT_LOST] = "heartbeat lost",
        [CORE_WHAT_REJECT] = "reject",
        [CORE_WHAT_SUSPEND] = "suspend",
        [CORE_WHAT_RESUME] = "resume",
        [CORE_WHAT_EXTEND] = "extend",
        [CORE_WHAT_DRAIN] = "drain",
        [CORE_WHAT_USE_AGAIN] = "use again",
    };
    return NAME(names, what);
}

const char *core_mode_name(enum core_mode mode)
{
    static const char *const names[] = {
        [CORE_MODE_OBSERVE] = "observe",
        [CORE_MODE_ADVISE] = "advise",
        [CORE_MODE_ACT] = "act",
    };
    return NAME(names, mode);
}

struct writer {
    char *text;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void append(struct writer *writer, const char *format,
                                                         ...)
{
    if (writer->used + 1 >= writer->size) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    int length =
        vsnprintf(writer->text + writer->used, writer->size - writer->used, format, arguments);
    va_end(arguments);
    writer->used += length > 0 ? (size_t)length : 0;
    if (writer->used >= writer->size) {
        writer->used = writer->size - 1;
    }
}

static void append_object(struct writer *writer, const char *name, uint64_t id)
{
    if (id != 0) {
        append(writer, " %s=%" PRIu64, name, id);
    }
}

static void append_ms(struct writer *writer, const char *name, uint64_t ns)
{
    append(writer, " %s=%" PRIu64 ".%03" PRIu64 "ms", name, ns / 1000000, ns / 1000 % 1000);
}

static void append_victim(struct writer *writer, const struct core_victim *victim)
{
    append(writer, " lease %" PRIu64 " on device %" PRIu64, victim->lease, victim->device);
    if (victim->rung != CORE_RUNG_NONE) {
        append(writer, " by %s", core_rung_name(victim->rung));
        append_ms(writer, "time", victim->take_ns);
    }
    append_ms(writer, "cost", victim->cost_ns);
    if (victim->chosen) {
        append(writer, " (chosen)");
    } else if (victim->refused != CORE_REASON_NONE) {
        append(writer, " (%s)", core_reason_name(victim->refused));
    }
}

void core_explanation_print(const struct core_explanation *explanation, char *text, size_t size)
{
    if (size == 0) {
        return;
    }
    struct writer writer = {.text = text, .size = size};
    text[0] = 0;
    append(&writer, "%s%s:", explanation->applied ? "" : "would ",
           core_what_name(explanation->what));
    append_object(&writer, "device", explanation->device);
    append_object(&writer, "lease", explanation->lease);
    append_object(&writer, "endpoint", explanation->endpoint);
    if (explanation->rung != CORE_RUNG_NONE) {
        append(&writer, " rung=%s", core_rung_name(explanation->rung));
    }
    append(&writer, " because %s;", core_reason_name(explanation->reason));
    if (explanation->endpoint != 0) {
        append(&writer, " demand=%" PRIu32 ".%03" PRIu32 " devices",
               explanation->demand_milli / 1000, explanation->demand_milli % 1000);
        append_ms(&writer, "projected_wait", explanation->projected_wait_ns);
        append_ms(&writer, "slo", explanation->slo_ns);
    }
    if (explanation->device != 0) {
        append(&writer, " serving share=%" PRIu32 "%%", explanation->utilisation_permille / 10);
    }
    append(&writer, " has %" PRIu32 " of %" PRIu32 " devices", explanation->devices_have,
           explanation->devices_wanted);
    if (explanation->deadline_ns != 0) {
        append_ms(&writer, "deadline", explanation->deadline_ns);
    }
    for (uint32_t i = 0; i < explanation->victim_count; i++) {
        const struct core_victim *victim = &explanation->victims[i];
        append(&writer, "%s", i == 0 ? " victims:" : ",");
        append_victim(&writer, victim);
    }
}
