/* state.h: what the files of the core share. Not for others: they include core.h.
 * Pointers link objects but never order anything: tables are sorted by id, sets and lists by slot.
 * One writer: hold and lease of a device change only in hold.c, a lease's state only in lease.c,
 * an instance's only in instance.c, accounts only in ledger.c and totals.c.
 *
 * A step costs what changed, not what there is. Three rules keep it so:
 * 1. Whoever changes something that a plan looks at (a state, a count, a wish, a flag) calls
 *    core_device_touch, core_endpoint_touch or core_lease_touch after the change; where only the
 *    account or the next time changed, core_*_note. The sets below follow by themselves.
 * 2. What time alone changes has its next time told by core_*_due_ns of the object: it is touched
 *    when that time comes. A condition on the clock without a due time is never seen to turn.
 * 3. A pass of the planner visits what is in the sets of NEWS (touched since the last look, or in
 *    this one) and finds the rest in sets of slots; it must leave alone what is not touched. A
 *    second look right after a step thus does nothing: tests compare with one at everything. */
#ifndef TIDEPOOL_CORE_STATE_H
#define TIDEPOOL_CORE_STATE_H

#include <assert.h>

#include "server/core/objects.h"

/* ---- number.c ---- */
uint64_t core_scale_u64(uint64_t value, uint64_t times, uint64_t by); /* floor; saturates; by > 0 */
core_sum_ns core_scale_sum(core_sum_ns sum, uint64_t part,
                           uint64_t whole);         /* floor; part <= whole */
uint64_t core_multiply_u64(uint64_t a, uint64_t b); /* saturates */
uint64_t core_add_u64(uint64_t a, uint64_t b);      /* saturates */
/* One step of an average over `window`; `weight` is the age of the sample. */
uint64_t core_average_u64(uint64_t average, uint64_t sample, uint64_t weight, uint64_t window);
uint64_t core_decay_u64(uint64_t value, uint64_t age, uint64_t half_life);
uint64_t core_hash_u64(uint64_t hash, uint64_t value);
uint64_t core_secret(const uint64_t seed[2], uint64_t epoch, uint64_t generation);

/* ---- action.c: the only writer of the action buffer ---- */
struct core_action *core_emit(struct core *core, enum core_action_kind kind);
void core_emit_reject(struct core *core, uint64_t device, uint64_t endpoint, uint64_t lease,
                      enum core_reason reason);
void core_hash_actions(struct core *core);

/* ---- table.c: sorted by id ---- */
struct device *core_device_get(const struct core *core, uint64_t id);
struct endpoint *core_endpoint_get(const struct core *core, uint64_t id);
struct lease *core_lease_get(const struct core *core, uint64_t id);
int core_table_reserve(void ***table, size_t *capacity, size_t count);
int core_device_insert(struct core *core, struct device *device); /* -1: no memory */
void core_device_erase(struct core *core, struct device *device);
int core_endpoint_insert(struct core *core, struct endpoint *endpoint);
void core_endpoint_erase(struct core *core, struct endpoint *endpoint);
void core_endpoint_rank(struct core *core);
struct group *core_group_get(const struct groups *groups, uint64_t id);
int core_group_insert(struct groups *groups, struct group *group); /* -1: no memory */
void core_group_erase(struct groups *groups, struct group *group);
struct team *core_team_get(const struct core *core, uint64_t id);
int core_team_insert(struct core *core, struct team *team); /* -1: no memory */
void core_team_erase(struct core *core, struct team *team);
void core_endpoint_destroy(struct endpoint *endpoint);
int core_lease_insert(struct core *core, struct lease *lease);
void core_lease_erase(struct core *core, struct lease *lease);
int core_tables_init(struct core *core); /* -1: no memory */
void core_tables_destroy(struct core *core);

/* ---- touch.c: see the three rules above ---- */
void core_device_touch(struct core *core, struct device *device);
void core_device_note(struct core *core, struct device *device);
void core_endpoint_touch(struct core *core, struct endpoint *endpoint);
void core_endpoint_note(struct core *core, struct endpoint *endpoint);
void core_kept_touch(struct core *core, const struct endpoint *endpoint); /* devices kept for it */
void core_lease_touch(struct core *core, struct lease *lease);
void core_lease_note(struct core *core, struct lease *lease);
void core_touch_all(struct core *core);
bool core_is_touched(const struct core *core);
void core_news_begin(struct core *core); /* what is touched becomes news */
static inline bool core_device_is_news(const struct core *core, const struct device *device)
{
    return core_set_has(&core->device_sets[NEWS], device->slot);
}
static inline bool core_endpoint_is_news(const struct core *core, const struct endpoint *endpoint)
{
    return core_set_has(&core->endpoint_sets[NEWS], endpoint->slot);
}
static inline bool core_lease_is_news(const struct core *core, const struct lease *lease)
{
    return core_set_has(&core->lease_sets[NEWS], lease->slot);
}
/* What is not in the sets that it belongs to, since somebody forgot a touch; NULL: nothing. */
const char *core_index_check(const struct core *core, uint64_t *ret_id);

/* ---- timer.c ---- */
int core_timers_reserve(struct core *core); /* for one more object; -1: no memory */
void core_timer_set(struct core *core, struct timer *timer, uint64_t at_ns); /* NEVER_NS: none */
uint64_t core_timer_next(const struct core *core);                           /* NEVER_NS: none */
void core_timers_fire(struct core *core);
/* The earlier of `due_ns` and base + span, if that lies ahead; base NEVER_NS is no time. */
uint64_t core_sooner(const struct core *core, uint64_t due_ns, uint64_t base_ns, uint64_t span_ns);

/* ---- hold.c ---- */
void core_hold_event(struct core *core, const struct core_event *event);
void core_device_lose(struct core *core, struct device *device, enum core_reason reason);
/* NULL: to nobody */
void core_device_promise(struct core *core, struct device *device, struct lease *lease);
void core_promises_drop(struct core *core, struct lease *lease);
void core_device_grant(struct core *core, struct device *device, struct lease *lease,
                       enum core_reason reason);
void core_device_revoke(struct core *core, struct device *device, enum core_rung rung,
                        enum core_reason reason);
void core_device_killing(struct core *core, struct device *device, uint64_t action);
void core_device_verify(struct core *core, struct device *device, enum core_reason reason);
void core_device_quarantine(struct core *core, struct device *device, enum core_reason reason);
void core_device_restore(struct core *core, struct device *device, struct lease *lease,
                         uint64_t generation, bool alive);
void core_device_restore_stopped(struct core *core, struct device *device, struct lease *lease,
                                 uint64_t generation, uint64_t residue_bytes);
void core_device_overdue(struct core *core, struct device *device);
void core_device_suspend(struct core *core, struct device *device, enum core_rung rung,
                         enum core_reason reason);
void core_device_suspended(struct core *core, struct device *device, uint64_t residue_bytes);
void core_device_resume(struct core *core, struct device *device, enum core_reason reason);
void core_device_resumed(struct core *core, struct device *device);

bool core_device_stopped(const struct device *device); /* SUSPENDING, SUSPENDED or RESUMING */

/* ---- pool.c ---- */
bool core_device_usable(const struct device *device); /* for something new */
uint64_t core_device_memory_used(const struct device *device);
bool core_device_rested(const struct core *core, const struct device *device); /* hold time over */
uint32_t core_device_moves(const struct core *core, const struct device *device); /* last hour */
/* The last hour's moves are `bound` or more; of 1 to the capacity. */
bool core_device_moves_used_up(const struct core *core, const struct device *device,
                               uint32_t bound);
uint32_t core_moves_capacity(const struct core *core); /* of the ring of each device */
void core_device_count_move(struct core *core, struct device *device);
void core_device_keep(struct core *core, struct device *device, uint64_t endpoint);
void core_device_unkeep(struct core *core, struct device *device);
uint32_t core_pool_matching(const struct core *core, uint32_t kinds_mask);
uint32_t core_pool_usable(const struct core *core, uint32_t kinds_mask);
bool core_device_is_open(const struct device *device); /* an instance may come beside its holder */
uint64_t core_device_due_ns(const struct core *core, const struct device *device);
void core_pool_event(struct core *core, const struct core_event *event);
void core_device_destroy(struct device *device);

/* ---- leave.c ---- */
void core_device_leave_follow(struct core *core,
                              struct device *device); /* what its end brings now */
uint64_t core_device_leave_due_ns(const struct core *core, const struct device *device);
/* The lease can have it for as long as is of use before it would have to leave it. */
bool core_device_lasts(const struct core *core, const struct device *device,
                       const struct lease *lease);
void core_leaving_plan(struct core *core);

/* ---- health.c ---- */
void core_device_health_follow(struct core *core, struct device *device); /* another speed */
void core_device_health_forget(struct core *core, struct device *device); /* it is removed */
uint64_t core_device_health_due_ns(const struct core *core, const struct device *device);
uint32_t core_health_budget(const struct core *core); /* devices */
void core_health_plan(struct core *core);

/* ---- kinds.c ---- */
void core_kinds_event(struct core *core, const struct core_event *event);
void core_lease_compare_kinds(const struct core *core, struct lease *lease);
void core_kinds_compare(struct core *core); /* for all leases: a kind has come, gone or changed */

/* ---- instance.c ---- */
/* Walks the endpoints with an instance on the device that is not just absent. */
#define DEVICE_ENDPOINTS(core, on, each)                                                           \
    for (struct endpoint *each = core_device_endpoint(core, on, 0); each != NULL;                  \
         each = core_device_endpoint(core, on, each->slot + 1))
static inline struct endpoint *core_device_endpoint(const struct core *core,
                                                    const struct device *device, uint32_t from)
{
    uint32_t slot = core_set_next(&device->live, from);
    return slot != SLOT_NONE ? core->endpoint_slots[slot] : NULL;
}
static inline struct instance *core_instance_of(const struct device *device,
                                                const struct endpoint *endpoint)
{
    return &device->instances[endpoint->slot];
}
static inline bool core_instance_serves(const struct instance *instance)
{
    return instance->state == CORE_INSTANCE_PLACING || instance->state == CORE_INSTANCE_READY;
}
void core_instances_resize(struct core *core, struct endpoint *endpoint, uint64_t memory_bytes);
/* Those that serve or will as soon as they are ready, on devices that stay. */
uint32_t core_endpoint_serving(const struct endpoint *endpoint);
uint32_t core_endpoint_most(const struct endpoint *endpoint); /* of the placed, at this time */
/* The holder of the device begins or ends to let them not serve, or to stand still for them. */
void core_instances_rest(struct core *core, struct device *device, bool resting, bool borrowed);
/* The device leaves the pool (or stays after all): others are to take over from its instances. */
void core_instances_go(struct core *core, struct device *device, bool going);
void core_instance_place(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instance_remove(struct core *core, struct device *device, struct endpoint *endpoint);
void core_instances_vanish(struct core *core, struct device *device);
void core_instances_overdue(struct core *core, struct device *device);
void core_instance_forget(struct device *device, const struct endpoint *endpoint);
void core_instance_event(struct core *core, const struct core_event *event);

/* ---- demand.c ---- */
void core_demand_event(struct core *core, const struct core_event *event);
void core_demand_refresh(struct core *core); /* what time alone changes */
uint64_t core_endpoint_due_ns(const struct core *core, const struct endpoint *endpoint);
uint64_t core_endpoint_batch_ns(const struct endpoint *endpoint);   /* of one request alone */
uint64_t core_endpoint_request_ns(const struct endpoint *endpoint); /* of one in a good batch */

/* ---- burst.c ---- */
void core_device_sampled(struct core *core, const struct core_event *event);
void core_device_refresh(struct core *core, struct device *device);
void core_burst_follow(struct core *core, struct device *device); /* at the end of a step */
bool core_device_hot(const struct core *core, const struct device *device);  /* long enough */
bool core_device_cool(const struct core *core, const struct device *device); /* long enough */
struct endpoint *core_device_busiest(const struct core *core, const struct device *device);

/* ---- fleet.c ---- */
void core_fleets_form(struct core *core); /* endpoints came, went or changed */
void core_fleet_feed(struct core *core, struct endpoint *endpoint); /* its figures changed */
struct core_need core_fleet_need(const struct core *core, const struct endpoint *endpoint);
/* The one that asks for what all of the endpoint's fleet need; NULL: none is left. */
struct endpoint *core_fleet_bearer(const struct core *core, const struct endpoint *endpoint);
/* When what its bearer asks for is to be worked out again without news. */
uint64_t core_fleet_due_ns(const struct core *core, const struct endpoint *endpoint);
uint64_t core_fleet_hold_ns(const struct core *core, const struct endpoint *endpoint);
/* It needs so many devices fewer: each will be taken back once. */
void core_fleet_spend(struct core *core, const struct endpoint *endpoint, uint32_t devices);
uint64_t core_hold_ns(const struct core *core);

/* ---- reserve.c ---- */
struct core_load {
    uint64_t now_ns, lead_ns;
    uint64_t demand_milli, base_milli; /* over the fast window, over the slow one */
    uint32_t devices;                  /* in all */
    uint32_t budget_ppm;               /* of the work that may be late */
    uint64_t slo_ns;                   /* the tightest */
};
void core_reserve_follow(struct reserve *reserve, const struct core_load *load);
/* Work begun, and how much of it late for want of a device that was lent. */
void core_reserve_judge(struct reserve *reserve, const struct core_load *load, uint64_t work_us,
                        uint64_t late_us);
/* For want of history a device is kept; what is assumed takes none from a lease. */
uint32_t core_reserve_keeps_milli(const struct reserve *reserve, const struct core_load *load);
uint32_t core_reserve_takes_milli(const struct reserve *reserve, const struct core_load *load);

/* ---- levels.c ---- */
void core_levels_follow(struct levels *levels, const struct core_load *load);
void core_levels_judge(struct levels *levels, uint64_t late_us); /* while devices are lent */
/* Devices, for an average demand and what waits. For want of history one is kept; what is assumed
 * takes none from a lease. */
uint32_t core_levels_keeps(const struct levels *levels, uint64_t base_milli, uint64_t queue_us);
uint32_t core_levels_takes(const struct levels *levels, uint64_t base_milli, uint64_t queue_us);
uint64_t core_levels_hold_ns(const struct levels *levels); /* before one is given back */

/* ---- lease.c ---- */
void core_lease_event(struct core *core, const struct core_event *event);
void core_lease_lost_device(struct core *core, struct lease *lease, enum core_reason reason);
void core_lease_settle(struct core *core, struct lease *lease); /* after a device has left it */
void core_lease_kill(struct core *core, struct lease *lease, struct device *overdue);
void core_lease_move(struct core *core, struct lease *lease, enum core_lease_state next,
                     enum core_reason reason);
void core_lease_withdraw(struct core *core, struct lease *lease, enum core_lease_state next,
                         enum core_reason reason);
uint64_t core_lease_recall(struct core *core, struct lease *lease, enum core_lease_state next,
                           enum core_reason reason);
void core_lease_goes_on(struct core *core, struct lease *lease);
bool core_lease_token_is_current(const struct lease *lease, uint64_t generation);
void core_lease_started(struct core *core, struct lease *lease);
void core_lease_restored(struct core *core);
void core_lease_overdue(struct core *core, struct lease *lease);
void core_lease_grant_failed(struct core *core, struct lease *lease, enum core_reason reason);
void core_lease_tell(struct core *core, struct lease *lease);
void core_leases_forget(struct core *core);
uint64_t core_lease_due_ns(const struct core *core, const struct lease *lease);
bool core_lease_wants_more(const struct lease *lease);
uint64_t core_lease_ran_ns(const struct core *core, const struct lease *lease);
uint64_t core_lease_end_ns(const struct core *core, const struct lease *lease); /* NEVER_NS: none */
uint64_t core_lease_waited_ns(const struct core *core, const struct lease *lease);
void core_lease_destroy(struct lease *lease);

/* ---- heartbeat.c ---- */
void core_heartbeat(struct core *core, struct lease *lease);
/* When its heartbeat will be missed; NEVER_NS: not awaited. */
uint64_t core_heartbeat_due_ns(const struct core *core, const struct lease *lease);
void core_heartbeat_overdue(struct core *core, struct lease *lease);
/* The server itself was stopped until now: nobody is to blame for silence. */
void core_heartbeats_forgive(struct core *core, uint64_t late_ns);

/* ---- guard.c ---- */
int core_guard_init(struct lease *lease); /* -1: no memory */
void core_guard_fini(struct lease *lease);
/* What keeps the core from taking so many devices from a running lease by this rung, now; NONE:
 * nothing. `danger`: an SLO is in danger. */
enum core_reason core_guard(const struct core *core, const struct lease *lease, uint32_t devices,
                            enum core_rung rung, bool danger);
/* When that may change by time alone; NEVER_NS: not at all. */
uint64_t core_guard_due_ns(const struct core *core, const struct lease *lease);
uint32_t core_guard_stops(const struct core *core, const struct lease *lease); /* last hour */
void core_guard_count(struct core *core, struct lease *lease, enum core_rung rung);

/* ---- suspend.c ---- */
bool core_rung_stops(enum core_rung rung); /* in place */
void core_lease_stop(struct core *core, struct lease *lease, enum core_rung rung,
                     enum core_reason reason);
void core_lease_go_on(struct core *core, struct lease *lease, enum core_reason reason);
uint64_t core_lease_stop_end_ns(const struct core *core, const struct lease *lease);
void core_stop_then(struct core *core, struct lease *lease, enum core_lease_state then,
                    enum core_reason reason);
void core_stop_follow(struct core *core, struct lease *lease);
void core_stop_follow_state(struct core *core, struct lease *lease, enum core_lease_state next);
void core_stop_settle(struct core *core, struct lease *lease, enum core_reason reason);
void core_stop_answered(struct core *core, struct device *device, const struct core_event *event);
void core_stop_overdue(struct core *core, struct device *device);
void core_stop_restore(struct core *core, struct device *device, struct lease *lease,
                       const struct core_event *event);
void core_stops_restored(struct core *core);
void core_stops_touch(struct core *core);

/* ---- notice.c ---- */
enum core_reason core_notice_extend(struct core *core, struct lease *lease,
                                    const struct core_event *event);

/* ---- rung.c ---- */
bool core_rungs_are_valid(const struct core_lease_spec *spec);
/* When a device that is on its way from its holder is expected. */
uint64_t core_device_arrival_ns(const struct core *core, const struct device *device);
uint32_t core_rungs_of(const struct lease *lease); /* bits of those that its holder has */
bool core_rung_supported(const struct lease *lease, enum core_rung rung);
bool core_lease_can_stop(const struct lease *lease);         /* in place, by some rung */
enum core_rung core_rung_for_all(const struct lease *lease); /* to get all its devices back */
enum core_rung core_rung_for_one(const struct lease *lease); /* one of several */
uint64_t core_rung_span_ns(const struct core *core, const struct lease *lease,
                           enum core_rung rung); /* from a revoke to its deadline */
uint64_t core_rung_take_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind);
uint64_t core_rung_give_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind);
uint64_t core_rung_hold_ns(const struct core *core, const struct lease *lease, enum core_rung rung,
                           uint32_t kind);
void core_rung_took(struct core *core, const struct device *device, enum core_rung rung,
                    uint64_t ns);
void core_rung_started(struct lease *lease);
void core_rung_restored(struct core *core, struct lease *lease); /* it has got on */
void core_rung_gave(struct core *core, const struct device *device, enum core_rung rung,
                    uint64_t ns);
void core_rung_measured(struct core *core, struct lease *lease, const struct core_event *event);

/* ---- team.c ---- */
int core_teams_init(struct core *core); /* -1: no memory */
void core_team_event(struct core *core, const struct core_event *event);
void core_teams_follow(struct core *core); /* what time alone changes */
/* The team of a new lease, made if need be. */
enum core_reason core_team_join(struct core *core, uint64_t id, struct team **ret_team);
void core_team_leave(struct core *core, struct team *team);
/* A device of this kind enters (+1) or leaves (-1) one of the counts of the lease's team. */
void core_team_count(struct core *core, const struct lease *lease, uint32_t kind, bool leaving,
                     int sign);
void core_team_promise(struct core *core, const struct lease *lease, uint32_t kind, int sign);
void core_team_destroy(struct team *team);
void core_team_live(struct core *core, struct team *team, int sign); /* a lease begins or ends */
/* Use beyond quota of late, in its own unit; and what one device is worth for a half-life. */
uint64_t core_team_usage(const struct core *core, const struct team *team);
uint64_t core_team_device_to_come(const struct core *core);
uint64_t core_team_usage_ns(const struct core *core, const struct team *team);

/* ---- fair.c ---- */
bool core_fair_matters(const struct core *core);
void core_fair_tick(struct core *core);  /* use of late counts from now on */
void core_fair_touch(struct core *core); /* a claim changed */
/* Devices of each kind within its team's quota for a lease, those promised to it included. */
void core_fair_limits(const struct lease *lease, uint32_t ret_limits[CORE_KINDS_MAX]);
bool core_fair_is_bound(const struct core *core, const struct lease *lease); /* by the quota */
bool core_fair_is_within(const struct core *core, const struct lease *lease, uint32_t devices);
bool core_fair_may_ever(const struct core *core, const struct core_lease_spec *spec);
void core_fair_begin(struct core *core); /* of a plan */
/* Claims, the lower goes first: with some more devices of these kinds, with some fewer. */
uint64_t core_fair_claim_with(const struct core *core, const struct team *team, uint32_t kinds_mask,
                              uint32_t more);
uint64_t core_fair_claim_without(const struct core *core, const struct team *team, uint32_t fewer);
bool core_fair_borrows(const struct team *team, uint32_t kind);
/* A lease that takes `more` devices may take one of this kind that another has above its minimum.
 * `within`: the taker stays within its quota. */
bool core_fair_may_take(const struct core *core, const struct lease *taker, uint32_t more,
                        bool within, const struct lease *giver, uint32_t kind);
/* Below 0: a gives before b; 0: their cost decides. */
struct giver core_fair_giver(const struct lease *lease);
int core_fair_compare(const struct giver *a, const struct giver *b);
int core_fair_compare_givers(const struct lease *a, const struct lease *b);

/* ---- totals.c ---- */
void core_totals_add(struct core *core, const struct device *device, uint64_t amount_ns);
void core_totals_move(struct core *core, const struct device *device, uint64_t amount_ns,
                      enum core_account to);
void core_totals_lose(struct lease *lease, core_sum_ns amount_ns);
void core_totals_forget_endpoint(struct core *core, struct endpoint *endpoint);
void core_totals_forget_team(struct core *core, const struct team *team);
struct endpoint *core_totals_endpoint(const struct core *core, const struct device *device);

/* ---- placement.c ---- */
bool core_may_move(const struct core *core);
void core_placement_plan(struct core *core);
/* Its wishes changed: where it fits, and who fits beside it, may have changed everywhere. */
void core_endpoint_reconsider(struct core *core, struct endpoint *endpoint);
/* Its longest batch of one took `former_ns` until now. */
void core_endpoint_measured(struct core *core, struct endpoint *endpoint, uint64_t former_ns);
enum core_reason core_endpoint_lacks(const struct core *core, const struct endpoint *endpoint);
/* Every endpoint with an instance there could do with one fewer, beside those it has only borrowed
 * from stopped gangs: these come first. */
bool core_device_spare(const struct core *core, const struct device *device);
/* The same, whatever a plan under way would take. */
bool core_device_clear(const struct core *core, const struct device *device);
/* The instances on the device let the endpoint's be there. */
bool core_neighbours_agree(const struct core *core, const struct device *device,
                           const struct endpoint *endpoint);

/* Devices that will serve the endpoint by then without any more decisions. */
uint32_t core_capacity_coming(const struct core *core, const struct endpoint *endpoint,
                              uint64_t by_ns);

/* ---- take.c: devices back from leases ---- */
enum core_take {
    CORE_TAKE_ANY,
    CORE_TAKE_LASTING, /* no stop in place */
    CORE_TAKE_BRIDGE,  /* by a stop in place, until what is on its way arrives */
};
uint64_t core_victim_cost(const struct core *core, const struct device *device);
/* Takes one device from its elastic lease for something more urgent, and says why. */
void core_shrink(struct core *core, struct device *device, enum core_reason reason,
                 struct core_explanation *explanation);
/* So many more devices for the endpoint, each by the best rung there is. Returns how many. */
uint32_t core_take_for(struct core *core, struct endpoint *endpoint, uint32_t count,
                       enum core_take how, uint64_t within_ns);
/* Nothing was taken, but not because nobody can give: whoever could is still news. */
bool core_take_undecided(const struct core *core, const struct endpoint *endpoint);
/* How soon what the endpoint lacks is wanted. */
uint64_t core_endpoint_within_ns(const struct core *core, const struct endpoint *endpoint);

/* ---- bridge.c ---- */
void core_stops_release(struct core *core);
void core_stops_replace(struct core *core);
uint64_t core_stop_due_ns(const struct core *core, const struct lease *lease);

/* A model that just failed to load is no reason to take more devices for it. */
bool core_endpoint_failing(const struct core *core, const struct endpoint *endpoint);

/* ---- queue.c: the minimums of waiting leases; sets core->blocked ---- */
void core_queue_plan(struct core *core);
void core_queue_pool_changed(struct core *core); /* what was possible may not be, or now be */
void core_queue_join(struct core *core, struct lease *lease);
void core_queue_leave(struct core *core, struct lease *lease);
enum core_reason core_queue_reason(const struct core *core,
                                   const struct lease *lease); /* to wait */
/* 1: next; 0: it does not wait. */
uint32_t core_queue_position(const struct core *core, const struct lease *lease);

/* ---- supply.c: what waiting leases could have that was not there at the last plan ---- */

/* At most so many devices, each with at most that memory; and so many that are held by whoever
 * would have to go as a whole. */
struct supply {
    uint32_t devices, whole;
    uint64_t memory_bytes;
};
void core_supply_begin(struct core *core, struct supply supply[CORE_KINDS_MAX]);
void core_supply_again(struct core *core, struct supply supply[CORE_KINDS_MAX]); /* more is news */
void core_supply_end(struct core *core); /* all of it has been considered */
bool core_supply_is_empty(const struct supply supply[CORE_KINDS_MAX]);
/* There may be enough for the lease; where there is not, what it lacks is counted down. */
bool core_supply_reaches(const struct core *core, struct lease *lease,
                         const struct supply supply[CORE_KINDS_MAX]);

/* ---- groups.c ---- */
int core_groups_join(struct core *core, struct device *device); /* -1: no memory */
void core_groups_leave(struct core *core, struct device *device);
void core_groups_count(struct core *core, struct device *device, uint32_t free);
/* The best group with so many devices of these kinds in this FREE_ count; NULL: there is none. */
struct group *core_group_find(struct core *core, uint32_t count, uint32_t kinds_mask,
                              uint32_t devices);
void core_groups_forget_tried(struct core *core);

/* ---- gang.c: which devices a lease would get ---- */
bool core_lease_lets_serve(const struct device *device, const struct lease *lease);
bool core_device_must_empty(const struct device *device, const struct lease *lease);
bool core_device_empty(struct core *core, struct device *device); /* true: it is, already */
bool core_device_suits(const struct core *core, const struct device *device,
                       const struct lease *lease);
/* Its times of rest and its moves of the hour let a held device be taken for another lease.
 * `within`: that one stays within the quota of its team. */
bool core_may_move_for(const struct core *core, const struct device *device,
                       const struct lease *lease, bool within);
bool core_surplus_before(const struct core *core, struct device *a, struct device *b);
/* One that would give it, or go from all of its devices. */
struct candidate core_candidate_of(const struct core *core, struct device *device);
/* Sinks the candidate at `at` of a heap: the one that goes before all others is at its top. */
void core_candidates_sink(struct candidate *heap, size_t at, size_t count,
                          bool (*goes_before)(const struct candidate *, const struct candidate *));
/* Picks a minimum into DEVICES_PICKED, and leases into core->evicted that would have to go for it.
 * `within`: the quota of its team. Returns how many devices are lacking at least; what is picked is
 * of no use then. */
uint32_t core_gang_pick(struct core *core, struct lease *lease, bool within);
void core_gang_unpick_endpoints(struct core *core); /* from here on removals are real */
void core_gang_unpick(struct core *core);

/* ---- evict.c: leases that must go as a whole ---- */
void core_evict_count(struct lease *lease); /* after a touch: its team may have fewer, or more */
bool core_evict_is_counted(const struct lease *lease); /* as after a touch */
/* No more than these: what nothing but urgency and quotas forbids. */
uint32_t core_evict_most(const struct core *core, const struct lease *taker);
/* Chooses leases, into core->evicted, that free so many devices for the taker, and of each kind no
 * more than it may have. Returns how many devices are lacking then; nothing is chosen unless 0. */
uint32_t core_evict_choose(struct core *core, const struct lease *taker, bool within,
                           uint32_t wanted, const uint32_t limits[CORE_KINDS_MAX]);
void core_evict_chosen(struct core *core, const struct lease *taker);
void core_evict_forget(struct core *core);

/* ---- growth.c ---- */
void core_growth_plan(struct core *core);
void core_growth_follow(struct lease *lease); /* after a touch: its place among those that grow */
bool core_growth_is_followed(const struct lease *lease); /* as after a touch */
/* A lease of a team with a lower claim would grow onto what is picked for this one. */
bool core_growth_goes_first(struct core *core, const struct lease *lease);

/* ---- outlook.c ---- */
void core_outlook_ran(struct core *core, uint64_t run_ns);
void core_outlook_revoked(struct core *core);

/* ---- planner.c ---- */
void core_plan(struct core *core);

/* ---- ledger.c ---- */
void core_ledger_open(struct core *core, struct device *device);
void core_ledger_update(struct core *core, struct device *device); /* accrues, chooses account */
void core_ledger_book(struct core *core, struct device *device, uint64_t amount_ns,
                      enum core_account to);
core_sum_ns core_lease_provisional(const struct core *core, const struct lease *lease); /* now */
void core_ledger_retire(struct core *core, struct device *device);
void core_ledger_keep(struct core *core, struct lease *lease, uint64_t step,
                      uint64_t checkpointed_step);
void core_ledger_lose(struct core *core, struct lease *lease);
void core_ledger_kept_all(struct core *core, struct lease *lease);

/* ---- explain.c ---- */
int core_explain_init(struct core *core); /* -1: no memory */
/* Begins an explanation about these objects, with their figures filled in. */
struct core_explanation core_explain_begin(const struct core *core, enum core_what what,
                                           enum core_reason reason, const struct device *device,
                                           const struct lease *lease,
                                           const struct endpoint *endpoint);
void core_explain_victim(struct core_explanation *explanation, const struct device *device,
                         uint64_t cost_ns, bool chosen);
void core_explain(struct core *core, const struct core_explanation *explanation);
/* The same for something that mode or hold forbids; once as long as `memo` stays. */
void core_explain_advice(struct core *core, uint64_t *memo, struct core_explanation explanation);

#endif
