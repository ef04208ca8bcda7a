"""make bench: all figures, into docs/benchmarks.md and build/bench.json.

    python tests/bench/run.py [--only NAME …] [--rounds 13] [--quick] [--out build/bench.json]

--only takes figures or groups; figures that are not measured keep what bench.json says of them, on
the page what the page says.
"""
import argparse
import json
import os
import platform
import re
import sys
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import beside    # noqa: E402
import figures   # noqa: E402
import handover  # noqa: E402
import harvest   # noqa: E402
import idle      # noqa: E402
import process   # noqa: E402
import serving   # noqa: E402
import speed     # noqa: E402
import training  # noqa: E402
import training_sim  # noqa: E402
import wire      # noqa: E402

GROUPS = [wire.wire, wire.whole, serving.onnx_throughput, handover.handover, training.kept, serving.tail,
          training.beside_idle, idle.idle, harvest.harvest, harvest.sim_speed, speed.core_speed,
          beside.beside, *training_sim.GROUPS]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=13)
    parser.add_argument("--quick", action="store_true", help="short rounds: only to try it out")
    parser.add_argument("--out", default=os.path.join(process.ROOT, "build", "bench.json"))
    parser.add_argument("--page", default=os.path.join(process.ROOT, "docs", "benchmarks.md"))
    options = parser.parse_args()
    known = set(figures.GOALS) | {group.__name__ for group in GROUPS}
    unknown = [name for name in options.only if name not in known]
    if unknown:
        parser.error("no figure %s; known: %s" % (", ".join(unknown), ", ".join(sorted(known))))
    return options


def wanted(group, only):
    return not only or group.__name__ in only or bool(set(group.figures) & set(only))


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    import numpy
    import onnxruntime
    return {"cpu": names[0] if names else platform.machine(), "cores": len(process.CORES),
            "memory_gib": round(memory), "kernel": platform.release(),
            "onnxruntime": onnxruntime.__version__, "numpy": numpy.__version__}


def load(path):
    if not os.path.exists(path):
        return {"figures": []}
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def number(value):
    return "%.0f" % value if abs(value) >= 1000 else "%.3g" % value


def row(entry):
    goal = figures.GOALS[entry["name"]]
    return "| `%s` | %s | %s %s | %s … %s | %s %s | %s | %d |" % (
        entry["name"], goal.what, number(entry["value"]), entry["unit"],
        number(entry["low"]), number(entry["high"]), "≥" if goal.better == "more" else "≤",
        number(goal.value), "yes" if entry["met"] else "**no**", len(entry["rounds"]))


def earlier(path, pattern):
    """{figure: its line} of the page as it is."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        found = [(re.match(pattern, line), line.rstrip("\n")) for line in file]
    return {match.group(1): line for match, line in found if match}


def earlier_sections(path):
    """{heading: its section} after that of how each was measured: tables of figures."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        sections = file.read().split("\n## ")[2:]
    return {section.split("\n", 1)[0]: "## " + section.rstrip("\n") for section in sections}


def page(result, path, measured):
    rows, hows = earlier(path, r"\| `(\w+)` \|"), earlier(path, r"- `(\w+)`: ")
    sections = earlier_sections(path)
    for entry in result["figures"]:
        if entry["name"] in measured or entry["name"] not in rows:
            rows[entry["name"]] = row(entry)
            hows[entry["name"]] = "- `%s`: %s" % (entry["name"], entry["how"])
            if entry.get("table"):
                text = entry["table"].strip("\n")
                sections[text.split("\n", 1)[0].lstrip("# ")] = text
    lines = ["# Benchmarks", "",
             "Measured by `make bench` on %(cpu)s, %(cores)d cores, %(memory_gib)d GiB, Linux "
             "%(kernel)s, ONNX Runtime %(onnxruntime)s." % result["machine"],
             "Ratios come from short rounds of both sides in turn, within one run; the value is "
             "the median of the rounds,", "the interval is 95 %, by resampling the rounds.", "",
             "| figure | what | value | 95 % interval | goal | met | rounds |",
             "|---|---|---|---|---|---|---|"]
    lines += [rows[name] for name in figures.GOALS if name in rows]
    lines += ["", "Triton's own load generator runs against the server too, in `make test-long`: the package "
              "named", "perf_analyzer holds no program, so it comes from stock client 2.41 "
              "(`tests/e2e/test_perf_analyzer.py`).", "", "## How each was measured", ""]
    lines += [hows[name] for name in figures.GOALS if name in hows]
    lines += ["\n" + section for section in sections.values()]
    return "\n".join(lines) + "\n"


def main():
    options = arguments()
    kept = {entry["name"]: entry for entry in load(options.out)["figures"]}
    failed, measured = [], set()
    for group in GROUPS:
        if not wanted(group, options.only):
            continue
        began = time.monotonic()
        print("== %s" % group.__name__, flush=True)
        try:
            with process.Place() as place:
                found = group(place, options.rounds, options.quick)
        except (Exception, pytest.fail.Exception) as error:  # one figure's trouble must not lose the others
            print("   %s: %s" % (type(error).__name__, error), flush=True)
            failed.append(group.__name__)
            continue
        for figure in found:
            measured.add(figure.name)
            kept[figure.name] = dict(figure.as_json(), how=figure.how, table=figure.table)
            print("   %-36s %10s %-12s [%s … %s] goal %s %s%s" % (
                figure.name, number(figure.value), figure.goal.unit, number(figure.low),
                number(figure.high), ">=" if figure.goal.better == "more" else "<=",
                number(figure.goal.value), "" if figure.met else "   MISSED"), flush=True)
        print("   %.0f s" % (time.monotonic() - began), flush=True)
    result = {"machine": machine(), "figures": [kept[n] for n in figures.GOALS if n in kept]}
    os.makedirs(os.path.dirname(options.out), exist_ok=True)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    if not options.quick:
        text = page(result, options.page, measured)
        with open(options.page, "w", encoding="utf-8") as file:
            file.write(text)
    if failed:
        sys.exit("not measured: " + ", ".join(failed))


if __name__ == "__main__":
    main()
