"""What the scheduler harvests on recorded traces beside the best of a family of reactive policies, and
what inference pays for it. Virtual time: the figures are the same on every machine.

TRACES       folder of the traces (default: ../shared/traces beside the project)
TRACE_NAMES  those that are played (default: all)"""
import json
import os
import subprocess

import process
from figures import HARVEST_RUNGS, HARVEST_TRACES, figure

TRACES = os.environ.get("TRACES", os.path.join(process.ROOT, "..", "shared", "traces"))
NAMES = os.environ.get("TRACE_NAMES", " ".join(HARVEST_TRACES)).split()
DEVICES = 8
CODE, CONV, RECON = "azure_llm_2023_code.csv.gz", "azure_llm_2023_conv.csv.gz", "servegen_recon_48h.csv.gz"
# Both were recorded on one afternoon; `code` began later.
FILES = {"code": [CODE], "conv": [CONV], "both": [CONV, CODE + "@77.299370"], "recon": [RECON]}
DAYS = 14
EVENTS = 4000000
SAMPLE_MS = 500


def trace_files(names):
    files = [os.path.join(TRACES, "inference", name) for name in names]
    for file in files:
        if not os.path.exists(file.split("@")[0]):
            raise FileNotFoundError("no trace %s: set TRACES to the folder of the traces" % file)
    return files


def play(*arguments):
    tool = os.path.join(process.harness.BUILD, "tidepool")
    done = subprocess.run([tool, "sim", *arguments, "--json", "-"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def pair(told):
    by_name = {policy["policy"]: policy for policy in told["policies"]}
    return by_name["tidepool"], by_name["hindsight"]


def harvest(place, rounds, quick):
    """harvest_<trace>_<rung>: harvest ÷ hindsight's; late_<trace>_<rung>: points of late work above the floor."""
    found = []
    for trace in NAMES:
        if quick and trace == "recon":
            continue  # two days
        for rung, points in HARVEST_RUNGS.items():
            told = play("--requests", *trace_files(FILES[trace]), "--devices", str(DEVICES), "--rungs", rung,
                        "--late-budget", str(points / 100), "--policy", "tidepool", "hindsight")
            ours, best = pair(told)
            how = ("one-device jobs always backlogged, %d devices; harvest %.1f %% of at most %.1f %%, hindsight "
                   "%.1f %%; late %.2f %%, hindsight %.2f %%, floor %.2f %%; %.1f hand-overs per device and hour" % (
                       DEVICES, 100 * ours["harvest_fraction"], 100 * ours["idle_bound"],
                       100 * best["harvest_fraction"], 100 * ours["late_fraction"], 100 * best["late_fraction"],
                       100 * told["late_floor"], ours["handovers_per_device_hour"]))
            found.append(figure("harvest_%s_%s" % (trace, rung), [ours["harvest_vs_hindsight"]], how))
            found.append(figure("late_%s_%s" % (trace, rung),
                                [100 * (ours["late_fraction"] - told["late_floor"])], how))
    return found


harvest.figures = [kind + "_%s_%s" % (trace, rung) for trace in HARVEST_TRACES for rung in HARVEST_RUNGS
                   for kind in ("harvest", "late")]


def sim_speed(place, rounds, quick):
    files = trace_files(["servegen_endpoints_14d.csv.gz", "servegen_token_quantiles.csv"])
    days = 1 if quick else DAYS
    seconds, events = [], 0
    for _ in range(1 if quick else min(rounds, 3)):
        told = play("--requests", *files, "--devices", "64", "--rate-rps", "0.28", "--until-s", str(86400 * days),
                    "--policy", "tidepool:sample_ms=%d" % SAMPLE_MS)
        policy = told["policies"][0]
        seconds.append(policy["wall_s"] * DAYS / days)
        events = policy["events"] * DAYS // days
    assert events >= EVENTS, "only %d events" % events
    return [figure("sim_14d_64_s", seconds, "the twelve endpoints of the rate curves at a mean of 0.28/s each: %d "
                   "events, %d requests; load sampled every %d ms" % (events, told["requests"], SAMPLE_MS))]


sim_speed.figures = ["sim_14d_64_s"]
