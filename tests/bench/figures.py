"""Figures: a name, the values of its rounds, their median, and how sure it is."""
import random
import statistics
from typing import NamedTuple


class Goal(NamedTuple):
    value: float
    better: str  # "more" or "less"
    unit: str
    what: str


# Traces, and ways to get a device back with the points of late work that each may cost.
HARVEST_TRACES = ["code", "conv", "both", "recon"]
HARVEST_RUNGS = {"yield": 0.5, "freeze": 1, "pause": 2, "swap": 2, "notice": 1}
BESIDE_TRACES = ["code", "conv", "both"]  # the searches on two days would take hours
BESIDE_RUNGS = ["yield", "freeze", "pause", "notice"]
GANG_TRACES = ["code", "conv", "both"]
GANG_RUNGS = {rung: HARVEST_RUNGS[rung] for rung in BESIDE_RUNGS}
JOB_STUDIES = ["philly_64", "philly_2000", "pollux_64", "pollux_2000"]

GOALS = {
    "grpc_pipelined_vs_cpp": Goal(4, "more", "ratio", "requests/s against gRPC C++, 64 B, "
                                  "4 connections × 32 streams, through queue and worker"),
    "grpc_wire_vs_cpp": Goal(5, "more", "ratio", "the same for a call answered on the network "
                             "thread"),
    "grpc_single_cpu_vs_cpp": Goal(0.6, "less", "ratio", "server CPU per request against gRPC "
                                   "C++, one call in flight"),
    "grpc_single_p50_vs_cpp": Goal(0.9, "less", "ratio", "p50 latency against gRPC C++, one call "
                                   "in flight"),
    "grpc_instructions_small": Goal(30000, "less", "instructions", "whole server, per ModelInfer "
                                    "of 64 B (callgrind)"),
    "grpc_instructions_wire": Goal(22000, "less", "instructions", "whole server, per call answered "
                                   "on the network thread (callgrind)"),
    "grpc_large_cpu_vs_cpp": Goal(0.9, "less", "ratio", "server CPU per request against gRPC C++, "
                                  "600 kB in, 4 kB out"),
    "onnx_throughput_vs_direct_5ms": Goal(0.95, "more", "ratio", "endpoint against ONNX Runtime "
                                          "called in a loop on the same core, 5 ms a batch"),
    "onnx_throughput_vs_direct_200us": Goal(0.7, "more", "ratio", "the same, 200 µs a batch"),
    "handover_yield_p50_ms": Goal(0.1, "less", "ms", "arrival of a request at a device busy "
                                  "training to the start of its batch, median"),
    "handover_yield_p99_ms": Goal(1, "less", "ms", "the same, 99th percentile"),
    "handover_inside_share": Goal(0.9, "more", "share", "arrivals that came while a micro-batch "
                                  "was being computed"),
    "train_kept_at_30pct_load_20ms": Goal(0.9, "more", "ratio", "training rate beside 60 "
                                          "arrivals/s that take 30 % of the device ÷ what is left "
                                          "of the rate alone, micro-batches of 20 ms"),
    "train_kept_at_30pct_load_100ms": Goal(0.9, "more", "ratio", "the same, micro-batches of "
                                           "100 ms"),
    "serve_p99_beside_training_ratio": Goal(1.1, "less", "ratio", "p99 beside training ÷ p99 "
                                            "alone, 10 ms a batch, 30 % load"),
    "serve_p99_beside_training_extra_ms": Goal(1, "less", "ms", "p99 beside training − p99 alone, "
                                               "1 ms a batch, 30 % load"),
    "train_beside_idle_endpoint_ratio": Goal(0.98, "more", "ratio", "training rate with an idle "
                                             "resident endpoint ÷ alone"),
    "idle_cpu_percent": Goal(1, "less", "%", "CPU of an idle server, of one core"),
    "idle_rss_mib": Goal(64, "less", "MiB", "resident memory of an idle server, ONNX Runtime not "
                         "loaded"),
}
GOALS["sim_14d_64_s"] = Goal(30, "less", "s", "14 days of the ServeGen rates on 64 devices through the core, "
                             "4 million events and more")
GOALS["core_event_64_us"] = Goal(5, "less", "µs", "core_step of one event at 64 devices, median, of the kind of event "
                                 "that costs most")
GOALS["core_event_64_p99_us"] = Goal(20, "less", "µs", "the same, 99th percentile")
GOALS["core_event_10000_p99_us"] = Goal(200, "less", "µs", "the same at 10,000 devices and 2,000 leases")
for _name in JOB_STUDIES:
    for _what in ("wait", "completion"):
        for _other in ("fifo", "rigid"):
            GOALS["jobs_%s_%s_vs_%s" % (_name, _what, _other)] = Goal(
                1, "less", "ratio", "mean time of jobs to their %s, elastic ÷ %s, jobs %s" % (
                    "first device" if _what == "wait" else "end",
                    "first come first served" if _other == "fifo" else "of one size", _name))
GOALS["lost_work_150_revokes"] = Goal(0.01, "less", "share", "device time of training that is lost at 150 revokes per "
                                      "hour")
GOALS["effective_training_10000"] = Goal(0.95, "more", "share", "kept training time ÷ time held, one gang of 9,500 on "
                                         "10,000 devices for 30 days, a fault every 3 h")
GOALS["goodput_vs_kind_blind"] = Goal(1.2, "more", "ratio", "progress per device-second on a mixed pool ÷ that of the same "
                                      "planner blind for kinds")
for _trace in GANG_TRACES:
    for _rung, _points in GANG_RUNGS.items():
        GOALS["late_gang4_%s_%s" % (_trace, _rung)] = Goal(
            _points, "less", "points", "late work above the floor beside gangs of 4, trace %s, rung %s" % (_trace, _rung))
GOALS["core_memory_year"] = Goal(1.05, "less", "ratio", "peak of memory in use after 12 months ÷ after the first")
for _trace in HARVEST_TRACES:
    for _rung, _points in HARVEST_RUNGS.items():
        GOALS["harvest_%s_%s" % (_trace, _rung)] = Goal(
            0.9, "more", "ratio", "device time harvested for training ÷ hindsight's, trace %s, rung %s" % (
                _trace, _rung))
        GOALS["late_%s_%s" % (_trace, _rung)] = Goal(
            _points, "less", "points", "late work above the floor of all devices serving, trace %s, rung %s" % (
                _trace, _rung))
for _trace in BESIDE_TRACES:
    for _rung in BESIDE_RUNGS:
        GOALS["dominance_%s_%s" % (_trace, _rung)] = Goal(
            1, "more", "share", "points of all baselines on or below the curve of the late budget, trace %s, rung %s" % (
                _trace, _rung))
        GOALS["training_gain_percent_%s_%s" % (_trace, _rung)] = Goal(
            30, "more", "%", "training over static splits at equal late work, trace %s, rung %s" % (_trace, _rung))
        GOALS["inference_gain_percent_%s_%s" % (_trace, _rung)] = Goal(
            50, "more", "%", "work served in time over static splits at equal training, trace %s, rung %s" % (
                _trace, _rung))


def bootstrap(rounds, measure=statistics.median, count=2000):
    """The 95 % interval of `measure` over the rounds, by resampling them (always the same)."""
    if len(rounds) < 2:
        return measure(rounds), measure(rounds)
    order = random.Random(1)
    values = sorted(measure(order.choices(rounds, k=len(rounds))) for _ in range(count))
    return values[int(0.025 * count)], values[int(0.975 * count) - 1]


class Figure(NamedTuple):
    name: str
    rounds: list
    value: float
    low: float
    high: float
    how: str  # one sentence: what a round was
    table: str = ""  # a section of the page: more than one number

    @property
    def goal(self):
        return GOALS[self.name]

    @property
    def met(self):
        return self.value >= self.goal.value if self.goal.better == "more" else (
            self.value <= self.goal.value)

    def as_json(self):
        return {"name": self.name, "value": self.value, "unit": self.goal.unit,
                "goal": self.goal.value, "better": self.goal.better, "rounds": self.rounds,
                "low": self.low, "high": self.high, "met": self.met}


def figure(name, rounds, how, measure=statistics.median):
    rounds = [float(value) for value in rounds]
    low, high = bootstrap(rounds, measure)
    return Figure(name, rounds, measure(rounds), low, high, how)


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def pooled(name, samples, share, how):
    """A quantile of all samples together; `samples` has one list a round."""
    def measure(rounds):
        return quantile([value for values in rounds for value in values], share)
    low, high = bootstrap(samples, measure, 300)
    return Figure(name, [quantile(values, share) for values in samples], measure(samples), low,
                  high, how)


def steadier(name, by_clock, by_cpu, how, how_clock, how_cpu):
    """The figure by the clock where its interval is narrower than 5 %, else by CPU time."""
    clock = figure(name, by_clock, how + how_clock)
    if clock.high - clock.low < 0.05 * clock.value:
        return clock
    return figure(name, by_cpu, how + how_cpu + " (by the clock, on a machine that was not quiet: "
                  "%.3g, %.3g … %.3g)" % (clock.value, clock.low, clock.high))
