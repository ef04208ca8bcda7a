/* baselines.h: what people run today, and what a run is measured against, as policies.
 *
 * The controllers are emulated with their documented constants; only what their own documentation
 * tells users to set for their load is a parameter, to be searched on the trace (search.h): the
 * target (requests in flight per device), the least number of devices, a threshold. All of them
 * see exact figures without delay beyond their own timing and take a device back as fast as the
 * pool's first rung: a kinder world than the real one. Facts from the projects' documentation:
 *
 *   serve-all  all devices always serve: the floor of late work.
 *   static     a fixed number serves, the others train.
 *   kill       the reactive family below, but a device comes back by killing its job: it serves
 *              after 1 s, training starts again in 30 s, from a checkpoint every 10 minutes.
 *   keda       KEDA polls its metric every 30 s. The HPA looks every 15 s: replicas = ceil(current
 *              x metric / target), nothing within a tolerance of 0.1, up by at most the greater of
 *              4 and 100 % in 15 s, down to the highest of its answers of the last 300 s.
 *   knative    concurrency, seen every second, averaged over 60 s (stable) and 6 s (panic); decided
 *              every 2 s; panics when the short average asks for 2 x the devices there are, does
 *              not go down while it panics, and stops 60 s after the last reason for it; up by at
 *              most 1000 x, down by at most half at once; scale-down delay 0.
 *   rayserve   requests in flight averaged over 30 s, pushed every 10 s, looked at every 0.1 s:
 *              up after 30 s of asking for more without a break, down after 600 s of less.
 *   hindsight  a family of reactive policies that see everything at once: a reserve (beyond what is
 *              needed, and in any case), a hold time, a rate window, headroom (for the average, and
 *              patience with what waits). Its best member on a trace, found by search.h, is the
 *              reference of what can be harvested. */
#ifndef TIDEPOOL_CLIENTS_SIM_BASELINES_H
#define TIDEPOOL_CLIENTS_SIM_BASELINES_H

#include "clients/sim/policy.h"

extern const struct policy_class policy_serve_all, policy_static, policy_kill, policy_keda,
    policy_knative, policy_rayserve, policy_hindsight;

#define BASELINE_KILL_TAKE_NS UINT64_C(1000000000)
#define BASELINE_KILL_GIVE_NS UINT64_C(30000000000)
#define BASELINE_CHECKPOINT_NS UINT64_C(600000000000) /* for sim_job.checkpoint_ns */

/* Gives the setup the rung that a class needs: `kill` alone for policy_kill; else no change. */
void baseline_setup(const struct policy_class *class, struct sim_setup *setup);

#endif
