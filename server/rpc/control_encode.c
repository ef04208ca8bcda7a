#include "server/rpc/control_encode.h"

#include "server/rpc/control_command.h"

#include <string.h>
#include <unistd.h>

/* An empty message; NULL: no memory. */
void *message_new(struct scratch *scratch, const ProtobufCMessageDescriptor *descriptor)
{
    void *message = scratch_take(scratch, 1, descriptor->sizeof_message);
    if (message != NULL) {
        protobuf_c_message_init(descriptor, message);
    }
    return message;
}

/* ---- parts
 * ---------------------------------------------------------------------------------------- */

static Tidepool__V1__Account **encode_accounts(struct scratch *scratch,
                                               const uint64_t account_ns[CORE_ACCOUNT_COUNT],
                                               size_t *ret_count)
{
    Tidepool__V1__Account **list = scratch_take(scratch, CORE_ACCOUNT_COUNT, sizeof *list);
    for (size_t i = 0; list != NULL && i < CORE_ACCOUNT_COUNT; i++) {
        list[i] = message_new(scratch, &tidepool__v1__account__descriptor);
        if (list[i] == NULL) {
            return NULL;
        }
        list[i]->name = scratch_text(scratch, core_account_name((enum core_account)i));
        list[i]->time_ns = account_ns[i];
    }
    *ret_count = list != NULL ? CORE_ACCOUNT_COUNT : 0;
    return list;
}

static void encode_rungs(struct scratch *scratch, const struct core_ledger *ledger,
                         Tidepool__V1__Status *message)
{
    Tidepool__V1__RungCount **list = scratch_take(scratch, CORE_RUNG_COUNT, sizeof *list);
    for (int rung = CORE_RUNG_FREE; list != NULL && rung < CORE_RUNG_COUNT; rung++) {
        Tidepool__V1__RungCount *count =
            message_new(scratch, &tidepool__v1__rung_count__descriptor);
        if (count == NULL) {
            return;
        }
        count->rung = scratch_text(scratch, core_rung_name((enum core_rung)rung));
        count->count = ledger->handovers[rung];
        message->handovers_total += count->count;
        list[message->n_handovers++] = count;
    }
    message->handovers = list;
}

static Tidepool__V1__Listener *encode_listener(struct scratch *scratch,
                                               const struct config_listener *listener)
{
    Tidepool__V1__Listener *message = message_new(scratch, &tidepool__v1__listener__descriptor);
    if (message == NULL) {
        return NULL;
    }
    message->address = scratch_text(scratch, listener->address);
    message->services = scratch_take(scratch, 8, sizeof *message->services);
    const char *name;
    for (unsigned bit = 0; message->services != NULL && (name = config_service_name(bit)) != NULL;
         bit++) {
        if ((listener->services & (1u << bit)) != 0) {
            message->services[message->n_services++] = scratch_text(scratch, name);
        }
    }
    return message;
}

static void encode_listeners(struct scratch *scratch, const struct control_status *status,
                             Tidepool__V1__Status *message)
{
    message->listeners = scratch_take(scratch, CONFIG_LISTENERS_MAX, sizeof *message->listeners);
    for (uint32_t i = 0; message->listeners != NULL && i < status->listener_count; i++) {
        Tidepool__V1__Listener *listener = encode_listener(scratch, &status->listeners[i]);
        if (listener != NULL) {
            message->listeners[message->n_listeners++] = listener;
        }
    }
}

/* ---- the server
 * --------------------------------------------------------------------------------------- */

static void encode_totals(struct scratch *scratch, const struct control_status *status,
                          Tidepool__V1__Status *message)
{
    uint64_t account_ns[CORE_ACCOUNT_COUNT];
    core_sum_ns sum = 0;
    message->requests_ok = status->requests_ok;
    message->requests_failed = status->requests_failed;
    message->requests_per_s = status->requests_per_s;
    message->requests_late = status->requests_late;
    message->twin_requests = status->twin_requests;
    message->late_total = status->late_total;
    message->late_by_handover = status->late_by_handover;
    encode_rungs(scratch, &status->ledger, message);
    message->slices = status->ledger.slices;
    for (int i = 0; i < CORE_ACCOUNT_COUNT; i++) {
        sum += status->ledger.account_ns[i];
        account_ns[i] = core_sum_clip(status->ledger.account_ns[i]);
    }
    message->accounts = encode_accounts(scratch, account_ns, &message->n_accounts);
    message->accounts_ever = encode_accounts(scratch, status->ever_ns, &message->n_accounts_ever);
    message->device_time_ns = core_sum_clip(status->ledger.elapsed_ns);
    message->ledger_balanced = sum == status->ledger.elapsed_ns;
}

static Tidepool__V1__ScaleKind *encode_scale_kind(struct scratch *scratch,
                                                  const struct control_scale *scale)
{
    const struct core_scale_view *core = &scale->core;
    Tidepool__V1__ScaleKind *message = message_new(scratch, &tidepool__v1__scale_kind__descriptor);
    if (message == NULL) {
        return NULL;
    }
    message->kind = scratch_text(scratch, scale->kind);
    message->ready = core->ready;
    message->pending = core->pending;
    message->arrives_in_ns =
        core->arrives_ns > scale->now_ns ? core->arrives_ns - scale->now_ns : 0;
    message->surplus = core->surplus;
    message->horizon_ns = core->lead_ns;
    message->desired = scratch_take(scratch, CORE_SCALE_REASONS, sizeof *message->desired);
    for (int i = 0; message->desired != NULL && i < CORE_SCALE_REASONS; i++) {
        Tidepool__V1__ScaleDesire *desire =
            message_new(scratch, &tidepool__v1__scale_desire__descriptor);
        if (desire == NULL) {
            return NULL;
        }
        desire->reason = scratch_text(scratch, core_scale_reason_name((enum core_scale_reason)i));
        desire->devices = core->desired[i];
        message->desired_total += core->desired[i];
        message->desired[message->n_desired++] = desire;
    }
    return message;
}

static Tidepool__V1__ScaleKind **encode_scale(struct scratch *scratch, struct control *control,
                                              size_t *ret_count)
{
    struct control_scale scale;
    Tidepool__V1__ScaleKind **list = scratch_take(scratch, CORE_KINDS_MAX, sizeof *list);
    while (list != NULL && control_scale_at(control, *ret_count, &scale)) {
        list[*ret_count] = encode_scale_kind(scratch, &scale);
        if (list[(*ret_count)++] == NULL) {
            return NULL;
        }
    }
    return list;
}

Tidepool__V1__ScaleSignal *encode_scale_signal(struct scratch *scratch, struct control *control)
{
    Tidepool__V1__ScaleSignal *message =
        message_new(scratch, &tidepool__v1__scale_signal__descriptor);
    if (message != NULL) {
        message->kinds = encode_scale(scratch, control, &message->n_kinds);
    }
    return message;
}

Tidepool__V1__Status *encode_status(struct scratch *scratch, struct control *control,
                                    const char *version, struct inference_context *inference)
{
    struct control_status status;
    Tidepool__V1__Status *message = message_new(scratch, &tidepool__v1__status__descriptor);
    if (message == NULL) {
        return NULL;
    }
    control_status(control, &status);
    message->revision = status.revision;
    message->version = scratch_text(scratch, version);
    message->pid = (uint32_t)getpid();
    message->start_wall_ns = status.start_wall_ns;
    message->now_wall_ns = status.now_wall_ns;
    message->uptime_ns = status.uptime_ns;
    message->store_epoch = status.store_epoch;
    message->store_warning = scratch_text(scratch, status.store_warning);
    message->store_errors = status.store_errors;
    message->state_directory = scratch_text(scratch, status.state_directory);
    message->model_repository = scratch_text(scratch, status.model_repository);
    encode_listeners(scratch, &status, message);
    message->mode = (Tidepool__V1__Mode)(status.mode + 1);
    message->hold = status.hold;
    message->hold_reason = scratch_text(scratch, status.hold_reason);
    message->hold_since_wall_ns = status.hold_since_wall_ns;
    message->ready = status.ready;
    message->draining = status.draining;
    message->testing = status.testing;
    message->devices = status.devices;
    message->devices_failed = status.devices_failed;
    message->devices_slow = status.health.slow;
    message->devices_drained = status.health.drained;
    message->devices_health_budget = status.health.budget;
    message->devices_beyond_budget = status.health.beyond;
    message->endpoints = status.endpoints;
    message->endpoints_ready = status.endpoints_ready;
    message->jobs_active = status.jobs_active;
    message->jobs_running = status.jobs_running;
    encode_totals(scratch, &status, message);
    message->scale = encode_scale(scratch, control, &message->n_scale);
    if (inference != NULL) {
        struct inference_counters counters;
        inference_counters(inference, &counters);
        message->requests_failed += counters.unknown_model + counters.unreadable;
    }
    return message;
}

/* ---- objects
 * -------------------------------------------------------------------------------------------- */

/* "0-3,8" */
static void print_cores(const cpu_set_t *cores, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int first = 0; first < CPU_SETSIZE && used < size; first++) {
        if (!CPU_ISSET(first, cores)) {
            continue;
        }
        int last = first;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cores)) {
            last++;
        }
        used += (size_t)snprintf(text + used, size - used, last > first ? "%s%d-%d" : "%s%d",
                                 used > 0 ? "," : "", first, last);
        first = last;
    }
}

Tidepool__V1__Device *encode_device(struct scratch *scratch, const struct control_device *device)
{
    char cores[256];
    Tidepool__V1__Device *message = message_new(scratch, &tidepool__v1__device__descriptor);
    if (message == NULL) {
        return NULL;
    }
    print_cores(&device->device->cores, cores, sizeof cores);
    message->revision = device->revision;
    message->index = device->device->index;
    message->id = scratch_text(scratch, device->device->id);
    message->kind = scratch_text(scratch, device->device->kind);
    message->node = scratch_text(scratch, device->device->node);
    message->cores = scratch_text(scratch, cores);
    message->memory_bytes = device->device->memory_bytes;
    message->state = (Tidepool__V1__DeviceState)device->state;
    message->reason = scratch_text(scratch, device->reason);
    message->job = scratch_text(scratch, device->job);
    message->instances = scratch_take(scratch, device->instance_count + 1, sizeof(char *));
    for (size_t i = 0; message->instances != NULL && i < device->instance_count; i++) {
        message->instances[message->n_instances++] = scratch_text(scratch, device->instances[i]);
    }
    message->serving_fraction = device->serving;
    message->training_fraction = device->training;
    message->handover_fraction = device->handover;
    message->slices = device->core.slices;
    message->handovers = device->core.handovers;
    message->accounts = encode_accounts(scratch, device->core.account_ns, &message->n_accounts);
    message->cordoned = device->cordoned;
    message->leaves_wall_ns = device->leaves_wall_ns;
    return message;
}

Tidepool__V1__Endpoint *encode_endpoint(struct scratch *scratch,
                                        const struct control_endpoint *endpoint)
{
    char version[16];
    Tidepool__V1__Endpoint *message = message_new(scratch, &tidepool__v1__endpoint__descriptor);
    if (message == NULL) {
        return NULL;
    }
    snprintf(version, sizeof version, "%u", endpoint->version);
    message->revision = endpoint->revision;
    message->name = scratch_text(scratch, endpoint->name);
    message->version = scratch_text(scratch, version);
    message->path = scratch_text(scratch, endpoint->path);
    message->runtime = scratch_text(scratch, endpoint->runtime);
    message->state = (Tidepool__V1__EndpointState)endpoint->state;
    message->reason = scratch_text(scratch, endpoint->reason);
    message->from_repository = endpoint->from_repository;
    message->devices_min = endpoint->devices_min;
    message->devices_max = endpoint->devices_max;
    message->priority = endpoint->priority > 0 ? (uint32_t)endpoint->priority : 0;
    message->batch_max = endpoint->batch_max;
    message->slo_ms = (double)endpoint->slo_ns / 1e6;
    message->slo_target_fraction = endpoint->slo_target;
    message->instances_ready = endpoint->instances_ready;
    message->devices_wanted = endpoint->devices_wanted;
    message->queue_requests = endpoint->queue_requests;
    message->queue_bytes = endpoint->queue_bytes;
    message->requests_per_s = endpoint->requests_per_s;
    message->p50_ms = endpoint->p50_ms;
    message->p99_ms = endpoint->p99_ms;
    message->late_fraction = endpoint->late_fraction;
    message->requests_ok = endpoint->requests_ok;
    message->requests_failed = endpoint->requests_failed;
    message->requests_refused = endpoint->requests_refused;
    message->requests_late = endpoint->requests_late;
    message->twin_requests = endpoint->twin_requests;
    message->late_total = endpoint->late_total;
    message->late_by_handover = endpoint->late_by_handover;
    return message;
}

static void encode_figures(struct scratch *scratch, const struct train_status *figures,
                           Tidepool__V1__Job *message)
{
    message->step = figures->step;
    message->steps = figures->steps;
    message->checkpointed_step = figures->checkpointed_step;
    message->steps_per_s = figures->steps_per_second;
    message->loss_first = figures->loss_first;
    message->loss_last = figures->loss_last;
    message->held_out_loss = figures->held_out_loss;
    message->held_out_accuracy_fraction = figures->held_out_accuracy;
    message->data_wait_ns = figures->data_wait_ns;
    message->preemptions = figures->preemptions;
    message->micro_batches = figures->micro_batches_done;
    message->micro_batches_returned = figures->micro_batches_returned;
    message->checkpoint_path = scratch_text(scratch, figures->checkpoint_path);
    message->export_path = scratch_text(scratch, figures->export_path);
}

static void encode_outside(struct scratch *scratch, const struct control_outside *outside,
                           Tidepool__V1__Job *message)
{
    message->held = outside->command->held;
    message->heartbeat_lost = outside->heartbeat_lost;
    if (!outside->command->held) {
        message->command = encode_command(scratch, outside->command);
    }
    message->exit_class = (Tidepool__V1__ExitClass)outside->exit_class;
    message->exit_code = outside->exit_code;
    message->exit_signal = (uint32_t)outside->exit_signal;
    message->runs = outside->runs;
    message->failures = outside->failures;
    message->lost_s = outside->lost_s;
    message->suspended_s = outside->suspended_s;
    message->pid = (uint32_t)outside->pid;
    message->keeper = scratch_text(scratch, outside->keeper);
    message->log_path = scratch_text(scratch, outside->log_path);
    message->notice_deadline_wall_ns = outside->notice_deadline_wall_ns;
    message->notice_reason = scratch_text(scratch, outside->notice_reason);
    message->ranks = outside->ranks.ranks;
    message->ranks_here = outside->ranks.here;
    message->waiting_fraction = outside->ranks.waiting_fraction;
    message->slowest_step_s = outside->ranks.slowest_step_s;
    message->slowest_rank = outside->ranks.slowest;
    message->advice = scratch_text(scratch, outside->advice);
}

Tidepool__V1__Job *encode_job(struct scratch *scratch, const struct control_job *job)
{
    Tidepool__V1__Job *message = message_new(scratch, &tidepool__v1__job__descriptor);
    if (message == NULL) {
        return NULL;
    }
    message->revision = job->revision;
    message->number = job->number;
    message->id = scratch_text(scratch, job->id);
    message->name = scratch_text(scratch, job->name);
    message->state = (Tidepool__V1__JobState)job->state;
    message->reason = scratch_text(scratch, job->reason);
    message->spec_json = scratch_text(scratch, job->specification);
    message->submitted_wall_ns = job->submitted_wall_ns;
    message->started_wall_ns = job->started_wall_ns;
    message->finished_wall_ns = job->finished_wall_ns;
    message->devices_min = job->devices_min;
    message->devices_max = job->devices_max;
    message->priority = (uint32_t)job->priority;
    message->devices = scratch_take(scratch, job->device_count + 1, sizeof(char *));
    for (size_t i = 0; message->devices != NULL && i < job->device_count; i++) {
        message->devices[message->n_devices++] = scratch_text(scratch, job->devices[i]);
    }
    message->warning = scratch_text(scratch, job->warning);
    message->expected_wait_s = job->expected_wait_s;
    message->revoke_fraction = job->revoke_fraction;
    encode_figures(scratch, &job->figures, message);
    if (job->outside.command != NULL) {
        encode_outside(scratch, &job->outside, message);
    }
    return message;
}

/* ---- why
 * ----------------------------------------------------------------------------------------------------
 */

static Tidepool__V1__Victim *encode_victim(struct scratch *scratch,
                                           const struct control_victim *victim, const char *rung)
{
    Tidepool__V1__Victim *message = message_new(scratch, &tidepool__v1__victim__descriptor);
    if (message != NULL) {
        message->job = scratch_text(scratch, victim->job);
        message->device = scratch_text(scratch, victim->device);
        message->rung = scratch_text(scratch, rung);
        message->cost_device_s = (double)victim->cost_ns / 1e9;
        message->chosen = victim->chosen;
    }
    return message;
}

Tidepool__V1__Move *encode_move(struct scratch *scratch, const struct control_move *move)
{
    const struct core_explanation *core = &move->core;
    Tidepool__V1__Move *message = message_new(scratch, &tidepool__v1__move__descriptor);
    if (message == NULL) {
        return NULL;
    }
    const char *rung = core->rung != CORE_RUNG_NONE ? core_rung_name(core->rung) : "";
    message->sequence = core->explanation;
    message->time_wall_ns = move->time_wall_ns;
    message->what = scratch_text(scratch, core_what_name(core->what));
    message->text = scratch_text(scratch, move->text);
    message->device = scratch_text(scratch, move->device);
    message->from = scratch_text(scratch, move->from);
    message->to = scratch_text(scratch, move->to);
    message->rung = scratch_text(scratch, rung);
    message->reason = scratch_text(
        scratch, core->reason != CORE_REASON_NONE ? core_reason_name(core->reason) : "");
    message->done = core->applied;
    message->deadline_ns =
        core->deadline_ns > core->time_ns ? core->deadline_ns - core->time_ns : 0;
    message->endpoint = scratch_text(scratch, move->endpoint);
    message->demand_devices = core->demand_milli / 1000.0;
    message->ready_devices = core->devices_have;
    message->projected_wait_ms = (double)core->projected_wait_ns / 1e6;
    message->slo_ms = (double)core->slo_ns / 1e6;
    message->victims = scratch_take(scratch, CORE_VICTIMS_MAX, sizeof *message->victims);
    for (uint32_t i = 0; message->victims != NULL && i < core->victim_count; i++) {
        Tidepool__V1__Victim *victim = encode_victim(scratch, &move->victims[i], rung);
        if (victim != NULL) {
            message->victims[message->n_victims++] = victim;
        }
    }
    return message;
}

/* ---- timeline
 * --------------------------------------------------------------------------------------------------
 */

static ProtobufCBinaryData encode_use(struct scratch *scratch, const struct timeline *timeline,
                                      uint32_t device, enum timeline_use use, uint64_t first,
                                      size_t count)
{
    uint8_t *shares = scratch_take(scratch, count, 1);
    if (shares == NULL || count == 0) {
        return (ProtobufCBinaryData){0};
    }
    timeline_read(timeline, device, use, first, count, shares);
    return (ProtobufCBinaryData){.len = count, .data = shares};
}

Tidepool__V1__Timeline *encode_timeline(struct scratch *scratch, struct control *control,
                                        uint64_t from_slot, uint32_t slots_max)
{
    const struct timeline *timeline = control_timeline(control);
    Tidepool__V1__Timeline *message = message_new(scratch, &tidepool__v1__timeline__descriptor);
    struct control_device device;
    uint64_t next = timeline_next(timeline);
    uint64_t first = timeline_oldest(timeline);
    first = from_slot > first ? from_slot : first;
    first = first < next ? first : next;
    /* When fewer are wanted than there are: the newest. */
    if (slots_max != 0 && next - first > slots_max) {
        first = next - slots_max;
    }
    if (message == NULL) {
        return NULL;
    }
    message->devices = scratch_take(scratch, DEVICES_MAX, sizeof *message->devices);
    if (message->devices == NULL) {
        return NULL;
    }
    message->slot_ms = control_slot_ms();
    message->first_slot = first;
    message->next_slot = next;
    for (uint32_t i = 0; control_device_at(control, i, &device); i++) {
        Tidepool__V1__DeviceTimeline *strip =
            message_new(scratch, &tidepool__v1__device_timeline__descriptor);
        if (strip == NULL) {
            return NULL;
        }
        size_t count = (size_t)(next - first);
        strip->device = scratch_text(scratch, device.device->id);
        strip->serving = encode_use(scratch, timeline, i, TIMELINE_SERVING, first, count);
        strip->training = encode_use(scratch, timeline, i, TIMELINE_TRAINING, first, count);
        strip->handover = encode_use(scratch, timeline, i, TIMELINE_HANDOVER, first, count);
        strip->failed = encode_use(scratch, timeline, i, TIMELINE_FAILED, first, count);
        message->devices[message->n_devices++] = strip;
    }
    return message;
}
