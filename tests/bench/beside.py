"""The scheduler's curve of harvest against late work beside every point of every other policy, and what it gains
over static splits. Virtual time: the figures are the same on every machine."""
import json
import os
import subprocess

import harvest
import process
from figures import BESIDE_RUNGS, BESIDE_TRACES, HARVEST_RUNGS, figure

NEAR = 1e-9


def study(trace, rung):
    tool = os.path.join(process.harness.BUILD, "tests", "bench", "dominance")
    done = subprocess.run([tool, rung, str(harvest.DEVICES), str(HARVEST_RUNGS[rung] / 100),
                           *harvest.trace_files(harvest.FILES[trace])], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def reached(curve, late):
    """The most harvest of the curve's points with at most so much late work; nothing where there is none."""
    return max((point["harvest"] for point in curve if point["late"] <= late + NEAR), default=0)


def excess(curve, points):
    """By how much the points lie above the curve: the share of them that do not, and the worst."""
    over = [point["harvest"] - reached(curve, point["late"]) for point in points]
    return sum(value <= NEAR for value in over) / len(over), max(over)


def opponents(told):
    """All baselines' points; of the static splits those that both serve and train."""
    return {name: points[1:-1] if name == "static" else points for name, points in told["baselines"].items()}


def between(points, key, at, want):
    """`want` of two neighbouring static splits mixed over time so that `key` is `at`."""
    ordered = sorted(points, key=lambda point: (point[key], point[want]))
    for low, high in zip(ordered, ordered[1:]):
        if low[key] <= at <= high[key]:
            share = (at - low[key]) / ((high[key] - low[key]) or 1)
            return low[want] + share * (high[want] - low[want])
    return ordered[-1][want] if at > ordered[-1][key] else ordered[0][want]


def gains(told):
    """Training at equal late work, and inference in time at equal training, in percent over static splits."""
    ours, splits = told["standard"], told["baselines"]["static"]
    training = between(splits, "late", ours["late"], "harvest")
    late = between(splits, "harvest", ours["harvest"], "late")
    # A split that trains or serves next to nothing makes any gain look endless: at most tenfold is told.
    most = 1000
    return (min(most, 100 * (ours["harvest"] / training - 1)) if training > 0 else most,
            min(most, 100 * ((1 - ours["late"]) / (1 - late) - 1)) if late < 1 else most)


def described(told):
    parts = []
    for name, points in opponents(told).items():
        share, worst = excess(told["budget_sweep"], points)
        above = ", worst %.1f points of harvest above" % (100 * worst) if worst > NEAR else ""
        parts.append("%s %.0f %% of %d points%s" % (name, 100 * share, len(points), above))
    holds = ", ".join("%.1f %% at %.0f" % (100 * point["harvest"], point["handovers"]) for point in told["hold_sweep"])
    return ("on or below the curve: %s; late floor %.2f %%; harvest at hand-overs per device and hour for hold times "
            "of 0, 0.1, 1 and 5 s: %s" % ("; ".join(parts), 100 * told["floor"], holds))


def beside(place, rounds, quick):
    found = []
    for trace in BESIDE_TRACES:
        for rung in BESIDE_RUNGS:
            told = study(trace, rung)
            every = [point for points in opponents(told).values() for point in points]
            share, _ = excess(told["budget_sweep"], every)
            how = described(told)
            training, inference = gains(told)
            found.append(figure("dominance_%s_%s" % (trace, rung), [share], how))
            how = "standard settings: late %.2f %%, harvest %.1f %%; two neighbouring splits mixed over time" % (
                100 * told["standard"]["late"], 100 * told["standard"]["harvest"])
            found.append(figure("training_gain_percent_%s_%s" % (trace, rung), [training], how))
            found.append(figure("inference_gain_percent_%s_%s" % (trace, rung), [inference], how))
    return found


beside.figures = [kind + "_%s_%s" % (trace, rung) for trace in BESIDE_TRACES for rung in BESIDE_RUNGS
                  for kind in ("dominance", "training_gain_percent", "inference_gain_percent")]
