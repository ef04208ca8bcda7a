"""The tide: a load that needs both devices, beside a training job that holds both."""
import csv
import json
import os
import subprocess
import threading
import time

import pytest

import harness
import jobs
import models
from kserve import identity_request, output, request, statistics, stub, tensor

SLO_MS = 50
ROUNDS = 57  # of the loop: about 4 ms on one core
TOGETHER = {"devices": {"cpu_devices": 2, "cores_per_device": 1}}


@pytest.fixture
def tidal(start, tmp_path):
    """Two devices, an endpoint of 4 ms a request, and a job that wants both devices."""
    server = start(["identity_fp32"], TOGETHER)
    built, _ = models.slow_load(ROUNDS)
    models.write_model(server.repository, "wide", (built, None))
    models.write_json(server.repository, "wide", {"max_batch": 1, "slo": {"latency_ms": SLO_MS}})
    server.start()
    job = server.submit(jobs.digits_job(tmp_path, 10_000_000, hidden=(256, 256)))
    jobs.wait_state(server, job.id, "RUNNING", 30 * harness.SLOWER)
    harness.wait_until(lambda: len(server.get_job(job.id).devices) == 2, 20 * harness.SLOWER,
                       "the job holds both devices")
    jobs.wait_step(server, job.id, 20, 30 * harness.SLOWER)
    server.job = job
    return server


def wide_request():
    return request("wide", [tensor("COUNT", "INT64", [1, 1], {"int64_contents": [1]})])


def play(server, rate, seconds):
    """A constant rate by the load generator: its report, and its rows of one second each."""
    rows_path = os.path.join(server.directory, "rows.csv")
    done = subprocess.run(
        [os.path.join(harness.BUILD, "tidepool-load"), "--server", server.address, "--endpoint",
         "wide", "--rate", str(rate), "--seconds", str(seconds), "--slo-ms", str(SLO_MS),
         "--json", "--csv", rows_path], capture_output=True, text=True,
        timeout=60 * harness.SLOWER, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(rows_path, encoding="utf-8") as file:
        return json.loads(done.stdout), list(csv.DictReader(file))


def shares(server, kind, after_slot=0):
    """{device: [share of each slot]} of one kind of use, from the timeline."""
    timeline = server.timeline()
    skip = max(0, after_slot - timeline.first_slot)
    return {d.device: [value / 255 for value in getattr(d, kind)[skip:]] for d in timeline.devices}


def rate_for_both(server):
    """Requests a second that take 60 % of both devices, by what one takes here and now."""
    calls = stub(server)
    before = statistics(server, "wide").inference_stats.compute_infer
    for _ in range(40):
        calls.ModelInfer(wide_request(), timeout=20 * harness.SLOWER)
    after = statistics(server, "wide").inference_stats.compute_infer
    return 2 * 0.6 / ((after.ns - before.ns) / 40 / 1e9)


def step_of_load(server):
    """One step from 0 to the load and back; whether its latencies kept the promise."""
    seconds = harness.scale(2, 10)
    rate = rate_for_both(server)
    result, rows = play(server, rate, seconds)
    assert result["failed"] == 0
    assert result["ok"] >= int(rate * seconds * 0.95)
    print("%.0f/s: p50 %.1f p99 %.1f ms; first second p90 %s ms" % (
        rate, result["latency_ms"]["p50"], result["latency_ms"]["p99"], rows[0]["p90_ms"]))
    return result["latency_ms"]["p50"] < SLO_MS / 2 and float(rows[0]["p90_ms"]) < SLO_MS


@pytest.mark.threads
def test_a_step_of_load_takes_both_devices_and_gives_them_back(tidal):
    server, job = tidal, tidal.job
    slot_before = server.timeline().next_slot
    step_before = server.get_job(job.id).step
    kept = step_of_load(server)
    # Others may use this machine too: then the best of some steps counts.
    attempts = 1
    while not kept and harness.VARIANT == "release" and attempts < 4:
        kept = step_of_load(server)
        attempts += 1
    assert kept or harness.VARIANT != "release"
    step_at_end = server.get_job(job.id).step
    # How soon is the next test's business; in its idle class training starves beside strangers.
    harness.wait_until(lambda: server.get_job(job.id).step > step_at_end, 60 * harness.SLOWER,
                       "training goes on")
    status = server.get_status()
    assert status.ledger_balanced
    assert sum(a.time_ns for a in status.accounts) == status.device_time_ns
    assert status.slices > 0
    # Both devices served, and both train again.
    serving = shares(server, "serving", slot_before)
    assert len(serving) == 2
    for device, values in serving.items():
        assert max(values) > 0.2, "%s never served" % device
    harness.wait_until(lambda: all(d.training_fraction > 0.5 for d in server.list_devices()),
                       10 * harness.SLOWER, "both devices train")
    assert server.get_job(job.id).step > step_before
    assert server.get_job(job.id).state == harness.Stubs.control.JOB_STATE_RUNNING
    story = server.cli("why", server.list_devices()[0].id).stdout
    assert job.id in story


@pytest.mark.threads
def test_training_resumes_within_a_fifth_of_a_second(tidal):
    """By the server's own timeline, slot by slot, after a burst that ends at once."""
    server = tidal
    calls = stub(server)
    slot_ms = server.timeline().slot_ms
    began = server.timeline().next_slot
    end = time.monotonic() + 1.0

    def press():
        while time.monotonic() < end:
            calls.ModelInfer(wide_request(), timeout=30 * harness.SLOWER)
    threads = [threading.Thread(target=press) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = server.timeline().next_slot
    wanted = last + max(3, 600 * harness.SLOWER // slot_ms)
    harness.wait_until(lambda: server.timeline().next_slot > wanted, 20 * harness.SLOWER,
                       "the timeline goes on")
    for device, serving in shares(server, "serving", began).items():
        training = shares(server, "training", began)[device]
        assert max(serving) > 0.3, device
        if harness.VARIANT != "release":
            continue
        final = max(i for i, share in enumerate(serving) if share > 0.02)
        resumed = next(i for i, share in enumerate(training) if i >= final and share > 0.5)
        assert (resumed - final) * slot_ms <= 200 + slot_ms, (serving, training)


def test_a_lone_request_beside_training_is_quick(tidal):
    calls = stub(tidal)
    took = []
    for _ in range(30):
        began = time.monotonic()
        assert output(calls.ModelInfer(identity_request(), timeout=20)).tolist() == [[0, 1, 2, 3]]
        took.append(time.monotonic() - began)
    assert sorted(took)[len(took) // 2] < 0.02 * harness.SLOWER


@pytest.mark.threads
def test_a_failed_device_moves_its_work_and_comes_back(tidal):
    server, job = tidal, tidal.job
    calls = stub(server)
    device = server.list_devices()[1].id
    fault = harness.Stubs.control.InjectDeviceFaultRequest(device=device, reason="test")
    stop, errors, answered = threading.Event(), [], [0]

    def press():
        while not stop.is_set():
            try:
                calls.ModelInfer(wide_request(), timeout=30 * harness.SLOWER)
                answered[0] += 1
            except Exception as error:  # shown by the assertion below
                errors.append(error)
    threads = [threading.Thread(target=press) for _ in range(4)]
    for thread in threads:
        thread.start()
    harness.wait_until(lambda: answered[0] > 20, 20 * harness.SLOWER, "answers before the fault")
    server.control().InjectDeviceFault(fault, timeout=10)
    harness.wait_until(lambda: server.list_devices()[1].state
                       == harness.Stubs.control.DEVICE_STATE_FAILED, 5 * harness.SLOWER, "failed")
    then = answered[0]
    harness.wait_until(lambda: answered[0] > then + 20, 20 * harness.SLOWER, "answers after it")
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    step = server.get_job(job.id).step
    jobs.wait_step(server, job.id, step + 5, 20 * harness.SLOWER)
    server.control().RecoverDevice(harness.Stubs.control.RecoverDeviceRequest(device=device),
                                   timeout=10)
    harness.wait_until(lambda: len(server.get_job(job.id).devices) == 2, 30 * harness.SLOWER,
                       "the job has its second device again")
    assert server.get_status().ledger_balanced


def test_hold_stops_all_moves(tidal):
    server = tidal
    server.cli("hold", "on", "--reason", "maintenance")
    status = server.get_status()
    assert status.hold and status.hold_reason == "maintenance"
    calls = stub(server)
    assert output(calls.ModelInfer(identity_request(), timeout=20)).tolist() == [[0, 1, 2, 3]]
    server.cli("hold", "off")
    assert not server.get_status().hold
