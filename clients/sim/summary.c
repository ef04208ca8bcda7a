/* summary.c: what a run came to: one JSON document for programs, a table for people. */
#include <math.h>

#include "clients/sim/sim.h"

static json_t *number(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static int set(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value);
}

static json_t *parameters_json(const struct policy_choice *choice)
{
    json_t *object = json_object();
    for (size_t i = 0; i < choice->class->parameter_count; i++) {
        set(object, choice->class->parameters[i].name, json_real(choice->parameters[i]));
    }
    return object;
}

static json_t *accounts_json(const struct sim_result *result)
{
    json_t *object = json_object();
    for (int i = 0; i < CORE_ACCOUNT_COUNT; i++) {
        set(object, core_account_name((enum core_account)i), json_real(result->account_s[i]));
    }
    return object;
}

static void metrics_set(json_t *object, const struct sim_result *result)
{
    const struct {
        const char *name;
        double value;
    } metrics[] = {
        {"late_fraction", result->late_fraction},
        {"harvest_fraction", result->harvest_fraction},
        {"idle_bound", result->idle_bound},
        {"slices_per_device_hour", result->slices_per_device_hour},
        {"handovers_per_device_hour", result->handovers_per_device_hour},
        {"lost_work_fraction", result->lost_work_fraction},
        {"goodput_fraction", result->goodput_fraction},
        {"effective_training_fraction", result->effective_training_fraction},
        {"job_wait_p50_s", result->job_wait_p50_s},
        {"job_wait_p99_s", result->job_wait_p99_s},
        {"job_completion_mean_s", result->job_completion_mean_s},
        {"span_s", result->span_s},
        {"wall_s", result->wall_s},
    };
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        set(object, metrics[i].name, number(metrics[i].value));
    }
}

static json_t *outcome_json(const struct sim_outcome *outcome)
{
    const struct sim_result *result = &outcome->result;
    json_t *object = json_object();
    set(object, "policy", json_string(outcome->choice.class->name));
    set(object, "parameters", parameters_json(&outcome->choice));
    metrics_set(object, result);
    set(object, "harvest_vs_hindsight", number(outcome->harvest_vs_hindsight));
    set(object, "late_requests", json_integer((json_int_t)result->late_requests));
    set(object, "requests", json_integer((json_int_t)result->requests));
    set(object, "jobs_finished", json_integer((json_int_t)result->jobs_finished));
    set(object, "faults", json_integer((json_int_t)result->faults));
    set(object, "reclaims", json_integer((json_int_t)result->reclaims));
    set(object, "ledger_balanced", json_boolean(result->ledger_balanced));
    set(object, "events", json_integer((json_int_t)result->events));
    set(object, "account_s", accounts_json(result));
    if (outcome->devices_needed > 0) {
        set(object, "devices_needed", json_integer(outcome->devices_needed));
    }
    return object;
}

static json_t *rungs_json(const struct sim_setup *setup)
{
    json_t *list = json_array();
    for (size_t i = 0; i < setup->rung_count; i++) {
        const struct sim_rung *rung = &setup->rungs[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:f,s:f,s:b}", "rung", core_rung_name(rung->rung),
                                        "take_s", (double)rung->take_ns / 1e9, "give_s",
                                        (double)rung->give_ns / 1e9, "loses", rung->loses));
    }
    return list;
}

json_t *sim_json(const struct sim *sim)
{
    json_t *root = json_object();
    json_t *policies = json_array();
    set(root, "devices", json_integer(sim->setup.device_count));
    set(root, "requests", json_integer((json_int_t)sim->setup.request_count));
    set(root, "endpoints", json_integer(sim->setup.endpoint_count));
    set(root, "jobs", json_integer((json_int_t)sim->setup.job_count));
    set(root, "duration_s", json_real((double)sim->setup.end_ns / 1e9));
    set(root, "slo_s", json_real((double)sim->setup.slo_ns / 1e9));
    set(root, "service_scale", json_real(sim->workload.scale));
    set(root, "seed", json_integer((json_int_t)sim->setup.seed));
    set(root, "late_budget", json_real(sim->setup.late_budget));
    set(root, "late_floor", json_real(sim->late_floor));
    set(root, "rungs", rungs_json(&sim->setup));
    for (size_t i = 0; i < sim->outcome_count; i++) {
        json_array_append_new(policies, outcome_json(&sim->outcomes[i]));
    }
    set(root, "policies", policies);
    return root;
}

/* ---- for people ---- */

static void percent(FILE *out, double value)
{
    if (isnan(value)) {
        fprintf(out, "%9s", "-");
    } else {
        fprintf(out, "%8.2f%%", 100 * value);
    }
}

static void outcome_print(const struct sim_outcome *outcome, FILE *out)
{
    const struct sim_result *result = &outcome->result;
    fprintf(out, "%-10s", outcome->choice.class->name);
    percent(out, result->late_fraction);
    percent(out, result->harvest_fraction);
    percent(out, outcome->harvest_vs_hindsight);
    percent(out, result->lost_work_fraction);
    fprintf(out, "%11.1f%11.1f%11.2f", result->handovers_per_device_hour,
            result->slices_per_device_hour, result->wall_s);
    if (outcome->devices_needed > 0) {
        fprintf(out, "  %u devices", outcome->devices_needed);
    }
    fprintf(out, "%s\n", result->ledger_balanced ? "" : "  THE LEDGER DOES NOT BALANCE");
}

void sim_print(const struct sim *sim, FILE *out)
{
    const struct sim_setup *setup = &sim->setup;
    fprintf(out, "%zu requests to %u endpoints, %zu jobs, %u devices, %.1f h; late floor %.2f%%\n",
            setup->request_count, setup->endpoint_count, setup->job_count, setup->device_count,
            (double)setup->end_ns / 3.6e12, 100 * sim->late_floor);
    if (sim->outcome_count > 0) {
        fprintf(out, "idle bound %.2f%%\n", 100 * sim->outcomes[0].result.idle_bound);
    }
    fprintf(out, "%-10s%9s%9s%9s%9s%11s%11s%11s\n", "policy", "late", "harvest", "of best", "lost",
            "moves/dev/h", "slices", "seconds");
    for (size_t i = 0; i < sim->outcome_count; i++) {
        outcome_print(&sim->outcomes[i], out);
    }
}
