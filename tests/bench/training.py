"""How fast training goes, alone and beside serving."""
import os
import time

import numpy as np

import harness
import jobs
import load
import models
import process
from figures import figure, steadier


def write_data(folder, features, rows=2048, classes=10):
    rng = np.random.default_rng(2)
    paths = [os.path.join(folder, name + "%d.npy" % features) for name in ("features", "labels")]
    if not os.path.exists(paths[0]):
        np.save(paths[0], rng.standard_normal((rows, features)).astype(np.float32))
        np.save(paths[1], rng.integers(0, classes, rows).astype(np.int64))
    return paths


def submit(place, server, name, hidden, micro_batch, features=1024, batch=None):
    """An endless job on one device."""
    found, labels = write_data(place.path("data"), features)
    return server.submit(jobs.specification(
        name, found, labels, [features, *hidden, 10], steps=10_000_000,
        batch=batch or micro_batch * 4, micro_batch=micro_batch, devices="1"))


def wait_busy(server, job):
    jobs.wait_state(server, job.id, "RUNNING", 30)
    harness.wait_until(lambda: server.get_job(job.id).micro_batches >= 3, 60, "training goes")


def micro_batches(server, job):
    return server.get_job(job.id).micro_batches


def milliseconds_each(server, job, seconds=1.5):
    return 1e3 / process.rate_of(lambda: micro_batches(server, job), seconds)


def job_of(place, server, milliseconds):
    """A job whose micro-batches take about so long: the micro-batch is fitted to the core."""
    rows, hidden = 64, (1024, 1024)
    for _ in range(3):
        job = submit(place, server, "fit%d" % rows, hidden, rows)
        wait_busy(server, job)
        took = milliseconds_each(server, job)
        if abs(took - milliseconds) < 0.15 * milliseconds:
            return job, took
        server.cli("cancel", job.id)
        jobs.wait_state(server, job.id, "CANCELLED", 30)
        rows = max(4, round(rows * milliseconds / took))
    job = submit(place, server, "fit%d" % rows, hidden, rows)
    wait_busy(server, job)
    return job, milliseconds_each(server, job)


def kept(place, rounds, quick):
    """60 arrivals/s of 5 ms: rate beside them ÷ (rate alone × share of time not serving)."""
    found = []
    for name, wanted in (("20ms", 20), ("100ms", 100)):
        server = place.server([])
        layers = process.dense_for(place.path("probe"), process.SERVER_CORE, 1, 5)
        models.write_model(server.repository, "five_ms", models.dense(512, layers, 1))
        models.write_json(server.repository, "five_ms", {"max_batch": 1})
        server.start()
        job, took = job_of(place, server, wanted)
        seconds = 0.6 if quick else (3 if wanted == 20 else 4)
        values = []
        for _ in range(rounds):
            alone = process.rate_of(lambda: micro_batches(server, job), seconds)
            if alone == 0:
                raise RuntimeError("training stood still alone: others use this machine")
            with load.steady(server, "five_ms", rate=60, seconds=seconds + 1):
                serving = server.metrics().sum("nv_inference_compute_infer_duration_us",
                                               model="five_ms")
                beside = process.rate_of(lambda: micro_batches(server, job), seconds)
                serving = (server.metrics().sum("nv_inference_compute_infer_duration_us",
                                                model="five_ms") - serving) / 1e6 / seconds
            values.append(beside / (alone * (1 - serving)))
        found.append(figure(
            "train_kept_at_30pct_load_" + name, values,
            "%g s alone, then %g s beside 60 arrivals/s that took %.0f %% of the device; "
            "micro-batches of %.0f ms" % (seconds, seconds, 100 * serving, took)))
        place.stop(server)
    return found


kept.figures = ["train_kept_at_30pct_load_20ms", "train_kept_at_30pct_load_100ms"]


def beside_idle(place, rounds, quick):
    """The endpoint comes and goes while the job trains on."""
    server = place.server([])
    models.write(place.path("served"), ["identity_fp32"])
    path = os.path.join(place.path("served"), "identity_fp32", "1", "model.onnx")
    server.start()
    job, took = job_of(place, server, 4)
    seconds = 0.5 if quick else 2
    request = harness.Stubs.control.ServeModelRequest(path=path, name="idle")
    stop = harness.Stubs.control.StopServingRequest(name="idle")
    by_clock, by_cpu = [], []
    for _ in range(rounds):
        alone, alone_ns = trained(server, job, seconds)
        server.control().ServeModel(request, timeout=30)
        harness.wait_until(lambda: any(e.instances_ready for e in server.list_endpoints()), 30,
                           "the endpoint is ready")
        time.sleep(0.2)
        beside, beside_ns = trained(server, job, seconds)
        server.control().StopServing(stop, timeout=30)
        harness.wait_until(lambda: not server.list_endpoints(), 30, "the endpoint is gone")
        by_clock.append(beside / alone)
        by_cpu.append(alone_ns / beside_ns)
    return [steadier("train_beside_idle_endpoint_ratio", by_clock, by_cpu,
                     "%g s without, %g s with the endpoint; micro-batches of %.1f ms; " % (
                         seconds, seconds, took), "micro-batches per second",
                     "micro-batches per CPU-second of the server")]


def trained(server, job, seconds):
    """Micro-batches per second, and CPU ns of the whole server for each."""
    done, before = micro_batches(server, job), process.cpu_ns(server.process.pid)
    rate = process.rate_of(lambda: micro_batches(server, job), seconds)
    used = process.cpu_ns(server.process.pid) - before
    return rate, used / (micro_batches(server, job) - done)


beside_idle.figures = ["train_beside_idle_endpoint_ratio"]
