"""What training gets: waiting, completion and lost work under a provider that takes devices back, against first come
first served and against jobs of one size; one gang on a large pool; a pool of two kinds; gangs of 4 on the traces of
requests; memory over a year. Virtual time: the figures, but for times and memory, are the same on every machine."""

import json
import os
import subprocess

import harvest
import process
from figures import GANG_RUNGS, GANG_TRACES, JOB_STUDIES, figure

DAY = 86400
REVOKES = 150
PHILLY, POLLUX = ["philly_jobs.csv.gz"], ["pollux_jobs.csv", "pollux_step_time.csv.gz", "pollux_convergence.csv.gz"]
# Devices, submissions spread over so much more time, days of the trace, files.
JOBS = {
    "philly_64": (64, 10, 20, 21, PHILLY),
    "philly_2000": (2000, 0.1, 30, 32, PHILLY),
    "pollux_64": (64, 5, 0, 0, POLLUX),
    "pollux_2000": (2000, 0.02, 0, 0, POLLUX),
}
GANG_OF = 4
# One gang of 95 % of a pool: the mean time between faults (h), then in seconds checkpoint, detection, restore.
STANDARD = (3, 600, 30, 180)
SWEEP = [("a fault every … h", 0, (1, 3, 12, 24)), ("checkpoint every … s", 1, (60, 300, 600, 1800)),
         ("detection … s", 2, (1, 10, 30, 120)), ("restore … s", 3, (30, 180, 600, 1200))]
SWEEP_DEVICES = 200


def study(*arguments):
    tool = os.path.join(process.harness.BUILD, "tests", "bench", "studies")
    done = subprocess.run([tool, *(str(argument) for argument in arguments)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr or "studies: exit %d" % done.returncode)
    return json.loads(done.stdout)


def job_files(names):
    files = [os.path.join(harvest.TRACES, "training", name) for name in names]
    for file in files:
        if not os.path.exists(file):
            raise FileNotFoundError("no trace %s: set TRACES to the folder of the traces" % file)
    return files


# ---- jobs ----

def hours(seconds):
    return "%.2f" % (seconds / 3600)


def jobs_row(name, revokes, variant, told):
    wait = told["wait"]
    return "| %s | %d | %s | %s | %s | %s | %s | %.1f | %.1f | %.2f |" % (
        name, revokes, variant, hours(wait["mean"]), hours(wait["p50"]), hours(wait["p99"]),
        hours(told["completion"]["mean"]), 100 * told["goodput"], 100 * told["harvest"], 100 * told["lost"])


JOBS_TABLE = [
    "### Jobs against first come first served, and against one size", "",
    "Recorded jobs, every fifth of them urgent, teams as recorded; times in hours. `elastic`: from half of what was asked "
    "for to twice as much (Pollux: as measured), trainers that devices join and leave; `rigid`: the size asked for, ended by "
    "notice (30 s, and 10 s to start again); `fifo`: the same jobs first come first served, killed when their device goes, a "
    "checkpoint every 10 minutes. Jobs that never end count up to the end of the run. Revokes: devices that their provider "
    "takes back, told 120 s before, back after 10 minutes.", "",
    "| jobs | revokes/h | policy | wait mean | p50 | p99 | completion mean | goodput % | harvest % | lost % |",
    "|---|---|---|---|---|---|---|---|---|---|"]


def jobs_study(name, revokes):
    devices, scale, first, last, files = JOBS[name]
    return study("jobs", devices, scale, first * DAY, last * DAY, revokes, *job_files(files))


def jobs(place, rounds, quick):
    found, rows, lost = [], list(JOBS_TABLE), []
    for name in JOB_STUDIES[:1] if quick else JOB_STUDIES:
        for revokes in (0, REVOKES):
            told = jobs_study(name, revokes)
            rows += [jobs_row(name, revokes, variant, told[variant]) for variant in ("elastic", "rigid", "fifo")]
            if revokes:
                lost += [told["elastic"]["lost"], told["rigid"]["lost"]]
                continue
            how = "%d jobs, no revokes; elastic jobs; " % told["jobs"]
            ours = told["elastic"]
            for other, what in (("fifo", "first come first served"), ("rigid", "the same core with jobs of one size")):
                found.append(figure("jobs_%s_wait_vs_%s" % (name, other),
                                    [ours["wait"]["mean"] / max(1, told[other]["wait"]["mean"])],
                                    how + "mean wait ÷ that of " + what))
                found.append(figure("jobs_%s_completion_vs_%s" % (name, other),
                                    [ours["completion"]["mean"] / told[other]["completion"]["mean"]],
                                    how + "mean completion ÷ that of " + what))
    found.append(figure("lost_work_150_revokes", [max(lost)], "the worst of the runs of the table, elastic and rigid"))
    return found, rows


jobs.figures = ["jobs_%s_%s_vs_%s" % (name, what, other) for name in JOB_STUDIES for what in ("wait", "completion")
                for other in ("fifo", "rigid")] + ["lost_work_150_revokes"]


# ---- one gang ----

def effective(devices, days, times):
    return study("effective", devices, devices * 95 // 100, days, *times)


def gang(place, rounds, quick):
    devices, days = (1000, 3) if quick else (10000, 30)
    told = effective(devices, days, STANDARD)
    rows = ["### Effective training time", "",
            "One gang of 95 %% of the devices for %d days, with a fault every 3 h, a checkpoint every 10 min, detection in 30 "
            "s, restore in 3 min, and one of the four changed at a time; kept training time ÷ time held. The row of 10,000 "
            "devices is `effective_training_10000`, the sweep has %d devices and as many faults." % (days, SWEEP_DEVICES),
            "", "| what | values | effective training time |", "|---|---|---|",
            "| %d devices | as above | %.4f |" % (devices, told["effective"])]
    for what, place_of, values in SWEEP:
        shares = []
        for value in values:
            times = list(STANDARD)
            times[place_of] = value
            shares.append("%.4f" % effective(SWEEP_DEVICES, days, times)["effective"])
        rows.append("| %s | %s | %s |" % (what, ", ".join(map(str, values)), ", ".join(shares)))
    how = "%d faults in %d days on %d devices, a gang of %d; %.1f s" % (
        told["faults"], days, devices, devices * 95 // 100, told["wall_s"])
    return [figure("effective_training_10000", [told["effective"]], how)], rows


gang.figures = ["effective_training_10000"]


# ---- kinds ----

def kinds(place, rounds, quick):
    told = study("kinds", 64, 1, *job_files(["philly_churn_14d.csv"]))
    rows = ["### Kinds of device", "",
            "Half of 64 devices are fast and have 24 GiB, half are slow and have 96 GiB. Half of the jobs are limited by "
            "arithmetic (speed 1.6 on the fast, 0.6 on the slow ones), half by memory (0.7 and 1.0; a third of these needs "
            "more than 24 GiB). `blind`: the same core, not told of speeds.", "",
            "| planner | goodput % | wait mean (h) | completion mean (h) |", "|---|---|---|---|"]
    rows += ["| %s | %.1f | %s | %s |" % (name, 100 * told[name]["goodput"], hours(told[name]["wait"]["mean"]),
                                          hours(told[name]["completion"]["mean"])) for name in ("aware", "blind", "fifo")]
    how = "progress per device-second held, %.1f %% against %.1f %%" % (
        100 * told["aware"]["goodput"], 100 * told["blind"]["goodput"])
    return [figure("goodput_vs_kind_blind", [told["aware"]["goodput"] / told["blind"]["goodput"]], how)], rows


kinds.figures = ["goodput_vs_kind_blind"]


# ---- gangs of 4 on traces of requests ----

def gangs_of_4(place, rounds, quick):
    rows = ["### Harvest with gangs of 4", "",
            "8 devices, always two jobs of exactly 4 devices: a stop of one device stops all four. Late: points of late work "
            "above the floor.", "", "| trace | rung | late | harvest % | ÷ hindsight | idle bound % | hand-overs |",
            "|---|---|---|---|---|---|---|"]
    found = []
    for trace in GANG_TRACES[:1] if quick else GANG_TRACES:
        for rung, points in GANG_RUNGS.items():
            told = harvest.play("--requests", *harvest.trace_files(harvest.FILES[trace]), "--devices",
                                str(harvest.DEVICES), "--rungs", rung, "--gang", str(GANG_OF), "--late-budget",
                                str(points / 100), "--policy", "tidepool", "hindsight")
            ours, _ = harvest.pair(told)
            late = 100 * (ours["late_fraction"] - told["late_floor"])
            rows.append("| %s | %s | %.2f | %.1f | %s | %.1f | %.1f |" % (
                trace, rung, late, 100 * ours["harvest_fraction"],
                "%.2f" % ours["harvest_vs_hindsight"] if ours["harvest_vs_hindsight"] is not None else "-",
                100 * ours["idle_bound"], ours["handovers_per_device_hour"]))
            found.append(figure("late_gang4_%s_%s" % (trace, rung), [late], "harvest %.1f %%, hindsight's ratio %s" % (
                100 * ours["harvest_fraction"], ours["harvest_vs_hindsight"])))
    return found, rows


gangs_of_4.figures = ["late_gang4_%s_%s" % (trace, rung) for trace in GANG_TRACES for rung in GANG_RUNGS]


# ---- memory ----

def year(place, rounds, quick):
    months = 2 if quick else 12
    told = study("year", 16, months)
    peaks = told["month_peak_bytes"]
    how = "heap in use, looked at every hour of %d months of 30 days, 16 devices, 4 endpoints, %d events, %d jobs: %.2f MiB in " \
          "the first month, %.2f MiB in all, of which %.2f MiB are the input" % (
              months, told["events"], told["jobs_finished"], peaks[0] / 2**20, peaks[-1] / 2**20,
              told["input_bytes"] / 2**20)
    own = [peak - told["input_bytes"] for peak in peaks]
    return [figure("core_memory_year", [own[-1] / own[0]], how)], []


year.figures = ["core_memory_year"]

PARTS = [jobs, gang, kinds, gangs_of_4, year]
BEGIN, END = "<!-- studies: written by make bench -->", "<!-- end of studies -->"


def page_write(tables):
    """Each part's tables take the place of its former ones in docs/simulation.md."""
    path = os.path.join(process.ROOT, "docs", "simulation.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for name, rows in tables.items():
        begin, end = BEGIN.replace("studies", name), END.replace("studies", name)
        before, rest = text.split(begin)
        text = before + begin + "\n" + "\n".join(rows) + "\n" + end + rest.split(end)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def part_of(run):
    def group(place, rounds, quick):
        found, rows = run(place, rounds, quick)
        if rows and not quick:
            page_write({run.__name__: rows})
        return found
    group.__name__ = "training_" + run.__name__
    group.figures = run.figures
    return group


GROUPS = [part_of(run) for run in PARTS]
