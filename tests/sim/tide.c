/* tide.c: see tide.h. */
#include "tests/sim/tide.h"

#include <string.h>

#define QUEUE (sizeof((struct tide *)0)->queue / sizeof(uint64_t))

static bool trains(const struct tide *tide, uint64_t id)
{
    struct core_device_view view = rig_device_view(tide->rig, id);
    return view.hold == CORE_HOLD_HELD || view.hold == CORE_HOLD_REVOKING;
}

static void sample_device(struct tide *tide, uint64_t id)
{
    struct tide_device *device = &tide->device[id];
    uint64_t slices = device->slices, serving_ns = device->serving_ns;
    uint64_t interval_ns = tide->rig->now_ns - device->sampled_ns;
    device->sampled_ns = tide->rig->now_ns;
    device->slices = 0;
    device->serving_ns = 0;
    rig_send(tide->rig, (struct core_event){.kind = CORE_EVENT_DEVICE_SAMPLE,
                                            .device_sample = {.device = id,
                                                              .interval_ns = interval_ns,
                                                              .serving_ns = serving_ns,
                                                              .slices = (uint32_t)slices}});
}

/* What changes a device's party is told after the time that belongs to the former one. */
static void on_event(struct rig *rig, const struct core_event *event)
{
    struct tide *tide = rig->context;
    uint64_t id = 0;
    switch (event->kind) {
    case CORE_EVENT_REVOKE_ACKNOWLEDGED:
    case CORE_EVENT_ACTION_DONE:
        id = event->answer.device;
        break;
    case CORE_EVENT_RELEASE_VERIFIED:
        id = event->verified.device;
        break;
    case CORE_EVENT_INSTANCE_READY:
        id = event->instance.device;
        break;
    default:
        return;
    }
    if (tide->device[id].serving_ns > 0) {
        sample_device(tide, id);
    }
}

void tide_init(struct tide *tide, const struct core_config *config, uint32_t devices,
               uint64_t tick_ns)
{
    memset(tide, 0, sizeof *tide);
    tide->rig = rig_create(config);
    tide->rig->context = tide;
    tide->rig->on_event = on_event;
    tide->devices = devices;
    tide->tick_ns = tick_ns;
    tide->service_ns = MS(4);
    tide->slo_ns = MS(20);
    for (uint64_t id = 1; id <= devices; id++) {
        rig_device(tide->rig, id);
    }
    rig_endpoint(tide->rig, 1, tide->slo_ns, tide->service_ns);
    rig_reconcile(tide->rig);
    tide_run(tide, MS(100));
}

void tide_fini(struct tide *tide)
{
    rig_destroy(tide->rig);
}

static void enqueue(struct tide *tide)
{
    size_t length = tide->tail - tide->head;
    assert_true(length < QUEUE);
    tide->queue[tide->tail++ % QUEUE] = tide->rig->now_ns;
    tide->arrivals++;
    uint64_t wait_ns = length * tide->service_ns / tide->devices;
    if (wait_ns > tide->slo_ns / 2) {
        rig_send(tide->rig, (struct core_event){
                                .kind = CORE_EVENT_ENDPOINT_DANGER,
                                .endpoint_danger = {.endpoint = 1, .projected_wait_ns = wait_ns}});
    }
}

static void serve(struct tide *tide, uint64_t id)
{
    struct tide_device *device = &tide->device[id];
    uint64_t now_ns = tide->rig->now_ns;
    if (device->busy && device->busy_until_ns <= now_ns) {
        uint64_t latency_ns = now_ns - device->batch_arrival_ns;
        tide->served++;
        tide->late += latency_ns > tide->slo_ns;
        tide->latency_max_ns =
            latency_ns > tide->latency_max_ns ? latency_ns : tide->latency_max_ns;
        device->busy = false;
    }
    if (!device->busy && tide->head != tide->tail &&
        core_instance_find(tide->rig->core, 1, id) == CORE_INSTANCE_READY) {
        device->busy = true;
        device->batch_arrival_ns = tide->queue[tide->head++ % QUEUE];
        device->busy_until_ns = now_ns + tide->service_ns;
        device->slices += trains(tide, id);
    }
}

void tide_sample(struct tide *tide)
{
    for (uint64_t id = 1; id <= tide->devices; id++) {
        sample_device(tide, id);
    }
    rig_load(tide->rig, 1, MS(50), tide->arrivals);
    tide->arrivals = 0;
    tide->sampled_ns = tide->rig->now_ns;
}

static void tick(struct tide *tide)
{
    uint64_t now_ns = tide->rig->now_ns;
    while (tide->interval_ns != 0 && tide->next_arrival_ns <= now_ns) {
        enqueue(tide);
        tide->next_arrival_ns += tide->interval_ns;
    }
    for (uint64_t id = 1; id <= tide->devices; id++) {
        struct tide_device *device = &tide->device[id];
        serve(tide, id);
        device->serving_ns += device->busy ? tide->tick_ns : 0;
        tide->served_ns += device->busy ? tide->tick_ns : 0;
        device->trained_ns += !device->busy && trains(tide, id) ? tide->tick_ns : 0;
    }
    rig_run(tide->rig, tide->tick_ns);
    if (tide->rig->now_ns - tide->sampled_ns >= MS(50)) {
        tide_sample(tide);
    }
}

void tide_run(struct tide *tide, uint64_t span_ns)
{
    uint64_t end_ns = tide->rig->now_ns + span_ns;
    while (tide->rig->now_ns < end_ns) {
        tick(tide);
    }
}

void tide_load(struct tide *tide, uint32_t requests_per_second)
{
    tide->interval_ns = requests_per_second > 0 ? SECONDS(1) / requests_per_second : 0;
    tide->next_arrival_ns = tide->rig->now_ns;
}

uint64_t tide_trained(const struct tide *tide)
{
    uint64_t trained_ns = 0;
    for (uint64_t id = 1; id <= tide->devices; id++) {
        trained_ns += tide->device[id].trained_ns;
    }
    return trained_ns;
}
