"""What one event costs the core, per kind of event and by the number of devices: a crowd of devices, leases
and endpoints that live (tests/bench/crowd.c), processor time of core_step alone."""
import json
import os
import statistics
import subprocess

import process
from figures import figure

# Devices, leases, events that are measured in a round.
SIZES = [(64, 24, 3000000), (640, 160, 2000000), (2000, 500, 2000000), (10000, 2000, 3000000)]
ENDPOINTS = 7
SETTLE_S = 60
ROUNDS = 3
EVENTS_MIN = 30  # fewer of a kind say nothing about its 99th percentile


def play(devices, leases, events, seed):
    tool = os.path.join(process.harness.BUILD, "tests", "bench", "core_event")
    done = subprocess.run([tool, "--devices", str(devices), "--leases", str(leases), "--endpoints", str(ENDPOINTS),
                           "--events", str(events), "--settle", str(SETTLE_S), "--seed", str(seed), "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def worst(costs, quantile):
    return max((told[quantile], kind) for kind, told in costs.items() if told["count"] >= EVENTS_MIN)


def worst_figure(name, rounds, quantile, how):
    kinds = [worst(costs, quantile)[1] for costs in rounds]
    return figure(name, [worst(costs, quantile)[0] for costs in rounds],
                  how + "; worst kinds: " + ", ".join(sorted(set(kinds))))


def cell(rounds, kind):
    known = [costs[kind] for costs in rounds if costs.get(kind, {"count": 0})["count"] >= EVENTS_MIN]
    if not known:
        return "–"
    return "%.1f / %.0f" % tuple(statistics.median(told[q] for told in known) for q in ("p50_us", "p99_us"))


def table(by_size):
    """A row a kind of event, a column a number of devices."""
    devices = list(by_size)
    kinds = sorted({kind for rounds in by_size.values() for costs in rounds for kind in costs})
    lines = ["## What an event costs the core", "",
             "Microseconds of processor time, median / 99th percentile, by the number of devices; with %s leases and "
             % ", ".join(str(leases) for _, leases, _ in SIZES), "%d endpoints; –: too few of that kind." % ENDPOINTS,
             "",
             "| event | %s |" % " | ".join("%d devices" % count for count in devices),
             "|---|%s" % ("---|" * len(devices))]
    lines += ["| %s | %s |" % (kind, " | ".join(cell(by_size[count], kind) for count in devices)) for kind in kinds]
    return "\n".join(lines)


def core_speed(place, rounds, quick):
    """Per kind of event; the worst kind's median and 99th percentile, and the table of all."""
    seeds = range(1, 2 if quick else min(rounds, ROUNDS) + 1)
    by_size = {devices: [play(devices, leases, events // (10 if quick else 1), seed) for seed in seeds]
               for devices, leases, events in SIZES}
    text = table(by_size)
    print(text, flush=True)
    how = "a round is another seed: %s events of a crowd of %s, after %d s of virtual time unmeasured"
    small = how % ("{:,}".format(SIZES[0][2]), "64 devices, 24 leases, 7 endpoints", SETTLE_S)
    large = how % ("{:,}".format(SIZES[-1][2]), "10,000 devices, 2,000 leases, 7 endpoints", SETTLE_S)
    return [worst_figure("core_event_64_us", by_size[64], "p50_us", small)._replace(table=text),
            worst_figure("core_event_64_p99_us", by_size[64], "p99_us", small),
            worst_figure("core_event_10000_p99_us", by_size[10000], "p99_us", large)]


core_speed.figures = ["core_event_64_us", "core_event_64_p99_us", "core_event_10000_p99_us"]
