"""`make run` as a stranger sees it, without a terminal, in a folder of its own."""
import json
import math
import os
import subprocess
import sys

import pytest

import harness

pytestmark = pytest.mark.release

KEYS = {"requests_ok", "requests_failed", "late", "late_by_handover", "p50_ms", "p99_ms", "slo_ms",
        "handovers", "slices", "train_steps", "train_loss_first", "train_loss_last",
        "ledger_balanced", "weights_equal", "static_split", "keda_timing"}
OTHERS = ("static_split", "keda_timing")


@pytest.fixture(name="build")
def fixture_build(tmp_path):
    for name in ("tidepoold", "tidepool", "tidepool-demo"):
        os.symlink(os.path.join(harness.BUILD, name), tmp_path / name)
    subprocess.run([sys.executable, os.path.join(harness.ROOT, "config", "demo", "prepare.py"),
                    tmp_path / "demo"], check=True)
    return tmp_path


def run(build, *arguments, seconds=120):
    environment = dict(os.environ)
    environment.setdefault("TIDEPOOL_ONNXRUNTIME", harness.onnxruntime_library())
    return subprocess.run([build / "tidepool-demo", "--build", build, "--config",
                           os.path.join(harness.ROOT, "config", "demo.json"), *arguments],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=seconds * harness.SLOWER, env=environment, check=False)


def processes_of(build):
    """Command lines of processes that were started from this folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                line = file.read()
        except OSError:
            continue
        if os.fsencode(str(build)) in line:
            found.append(line)
    return found


def test_it_ends_by_itself_and_proves_what_it_says(build):
    done = run(build, "--seconds", "6")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with open(build / "run.json", encoding="utf-8") as file:
        figures = json.load(file)
    assert set(figures) == KEYS
    assert figures["requests_ok"] > 100 and figures["requests_failed"] == 0
    assert figures["ledger_balanced"] is True and figures["weights_equal"] is True
    assert figures["slo_ms"] == 20 and 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert figures["slices"] > 0 and figures["train_steps"] > 0
    assert figures["train_loss_last"] < figures["train_loss_first"]
    assert all(math.isfinite(figures[key]) for key in KEYS.difference(OTHERS))
    # Half of two devices serves and the other half trains all the time; KEDA's timing starts with
    # all serving and lets none go in so short a run.
    assert figures["static_split"]["train_steps"] > 0
    assert figures["keda_timing"]["train_steps"] == 0
    assert figures["keda_timing"]["late"] <= figures["static_split"]["late"]
    for text in ("tidepool top", "half of the devices serve", "KEDA", "What this run proved", "byte by byte"):
        assert text in done.stdout
    assert processes_of(build) == []


def test_a_server_that_cannot_start_is_said(build):
    os.unlink(build / "tidepoold")
    with open(build / "tidepoold", "w", encoding="utf-8") as file:
        file.write("#!/bin/sh\necho no devices >&2\nexit 7\n")
    os.chmod(build / "tidepoold", 0o755)
    done = run(build, "--seconds", "5")
    assert done.returncode == 125
    assert "exit code 7" in done.stderr and "tidepoold.log" in done.stderr
    with open(build / "demo" / "tidepoold.log", encoding="utf-8") as file:
        assert file.read() == "no devices\n"
