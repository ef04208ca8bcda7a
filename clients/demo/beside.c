#include "clients/demo/beside.h"

#include <stdlib.h>

#include "clients/sim/baselines.h"

static struct sim_request *requests_make(const struct beside_run *run)
{
    struct sim_request *requests = calloc(run->arrivals->count + 1, sizeof(*requests));
    for (size_t i = 0; requests != NULL && i < run->arrivals->count; i++) {
        requests[i] = (struct sim_request){.arrival_ns = run->arrivals->offsets_ns[i],
                                           .service_ns = run->cost_ns};
    }
    return requests;
}

static int play(const struct beside_run *run, const struct policy_choice *choice,
                struct beside *ret_beside, struct error *error)
{
    static const char *const names[] = {"digits-wide"};
    const struct sim_job job = {.devices_min = 1, .devices_max = run->devices, .kinds_mask = 1};
    struct sim_request *requests = requests_make(run);
    const struct sim_setup setup = {
        .requests = requests,
        .request_count = run->arrivals->count,
        .endpoint_count = 1,
        .endpoint_names = names,
        .jobs = &job,
        .job_count = 1,
        .device_count = run->devices,
        .rungs = {{.rung = CORE_RUNG_SHRINK}, {.rung = CORE_RUNG_KILL, .loses = true}},
        .rung_count = 2,
        .slo_ns = run->slo_ns - run->cost_ns, /* the simulator's promise is about the wait */
        .end_ns = run->elapsed_ns,
        .hold_ns = ENGINE_NEVER_NS,
        .seed = 1,
    };
    struct sim_result result;
    int code = requests == NULL ? error_set(error, ERROR_RESOURCE_EXHAUSTED, "no memory")
                                : engine_run(&setup, choice, &result, error);
    if (code == 0) {
        ret_beside->late = result.late_requests;
        ret_beside->steps =
            result.harvest_fraction * (double)run->elapsed_ns * 1e-9 * run->steps_per_s;
    }
    free(requests);
    return code;
}

int beside_static(const struct beside_run *run, struct beside *ret_beside, struct error *error)
{
    struct policy_choice choice = policy_standard(&policy_static);
    choice.parameters[0] = run->devices > 1 ? run->devices / 2 : 1;
    return play(run, &choice, ret_beside, error);
}

int beside_keda(const struct beside_run *run, struct beside *ret_beside, struct error *error)
{
    struct policy_choice choice = policy_standard(&policy_keda);
    return play(run, &choice, ret_beside, error);
}
