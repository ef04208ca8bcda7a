"""The metrics page: parseable whatever is in it, and every request counted once (ME-1, ME-2)."""
import random
import threading
import time

import numpy as np
import pytest

import harness
from kserve import (CODE, array_request, identity_request, output, refused, request, stub, tensor)

FAILURE = "nv_inference_request_failure"


def counted(server, model):
    """{counter: value} of one model, failures by reason."""
    metrics = server.metrics()
    values = {"success": metrics.sum("nv_inference_request_success", model=model),
              "inferences": metrics.sum("nv_inference_count", model=model),
              "executions": metrics.sum("nv_inference_exec_count", model=model)}
    for labels, value in metrics.all(FAILURE):
        if labels["model"] == model:
            values[labels["reason"]] = values.get(labels["reason"], 0) + value
    return values


def difference(before, after):
    return {key: value - before.get(key, 0) for key, value in after.items()
            if value != before.get(key, 0)}


def test_the_page_is_well_formed(server):
    status, headers, body = server.http("/metrics", "metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    text = body.decode("utf-8")
    assert text.endswith("\n")
    seen, current, series = set(), None, set()
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name = line.split(" ", 3)[:3]
            assert word in ("HELP", "TYPE")
            if name != current:
                assert name not in seen, "family %s comes twice" % name
                seen.add(name)
                current = name
        else:
            name = line.rsplit(" ", 1)[0]
            assert name.startswith(current), "%s stands under %s" % (name, current)
            assert name not in series, "series %s comes twice" % name
            series.add(name)
    harness.Metrics(text)  # and the official parser takes it


def test_all_reasons_are_there_from_the_start(server):
    reasons = {labels["reason"] for labels, _ in server.metrics().all(FAILURE)
               if labels["model"] == "identity_int8"}
    assert {"REJECTED", "CANCELED", "BACKEND", "OTHER"} <= reasons


def test_devices_handovers_and_the_ledger_are_shown(server):
    metrics = server.metrics()
    assert sum(value for _, value in metrics.all("tidepool_devices")) == len(server.list_devices())
    assert {labels["rung"] for labels, _ in metrics.all("tidepool_handovers")} >= {"yield", "shrink"}
    status = server.get_status()
    assert status.ledger_balanced
    assert sum(a.time_ns for a in status.accounts) == status.device_time_ns


def test_every_request_is_counted_once_under_its_reason(single):
    """Good, refused, failed in the run, cancelled and late ones in known numbers."""
    calls = stub(single)
    model = "gather_fails"

    def index_request(index):
        return request(model, [tensor("INPUT", "INT64", [1, 1], {"int64_contents": [index]})])
    before, status_before = counted(single, model), single.get_status()
    for _ in range(7):
        assert output(calls.ModelInfer(index_request(1), timeout=10)).tolist() == [[11]]
    for _ in range(3):
        refused(calls.ModelInfer, index_request(99), timeout=10)
    for _ in range(2):  # cannot run: over before they arrive
        assert refused(calls.ModelInfer, index_request(1),
                       timeout=1e-6).code() == CODE.DEADLINE_EXCEEDED
    for _ in range(4):  # refused by validation
        refused(calls.ModelInfer, request(model, [tensor("OTHER", "INT64", [1, 1])], [bytes(8)]),
                timeout=10)
    for _ in range(5):
        refused(calls.ModelInfer, identity_request(model="absent"), timeout=10)
    after, status = counted(single, model), single.get_status()
    delta = difference(before, after)
    assert delta["success"] == 7 and delta["inferences"] == 7
    assert delta["BACKEND"] == 3
    assert status.requests_ok - status_before.requests_ok == 7
    # A deadline so short may be over before the client sends anything at all.
    assert 12 <= status.requests_failed - status_before.requests_failed <= 14
    durations = single.metrics()
    total = durations.sum("nv_inference_request_duration_us", model=model)
    parts = sum(durations.sum(name, model=model) for name in (
        "nv_inference_queue_duration_us", "nv_inference_compute_input_duration_us",
        "nv_inference_compute_infer_duration_us", "nv_inference_compute_output_duration_us"))
    assert 0 < parts <= total + after["success"] * 4  # each of the four may be rounded


def test_unknown_names_make_no_series(server):
    calls = stub(server)
    before = len(server.metrics().text.splitlines())
    order = random.Random(9)
    for _ in range(harness.scale(200, 10_000)):
        name = "m%d" % order.randrange(1 << 40)
        assert refused(calls.ModelInfer, identity_request(model=name),
                       timeout=10).code() == CODE.NOT_FOUND
    assert len(server.metrics().text.splitlines()) == before


def test_latency_histograms_agree_with_the_counters(server):
    calls = stub(server)
    for _ in range(20):
        calls.ModelInfer(identity_request(), timeout=10)
    metrics = server.metrics()
    histograms = [name for name, family in metrics.families.items()
                  if family.type == "histogram"]
    assert histograms
    success = metrics.sum("nv_inference_request_success", model="identity_fp32")
    counts = [metrics.sum(name + "_count", model="identity_fp32") for name in histograms
              if any(labels.get("model") == "identity_fp32"
                     for labels, _ in metrics.all(name + "_count"))]
    assert counts and success in counts
    for name in histograms:
        for labels, count in metrics.all(name + "_count"):
            buckets = [(float(found["le"].replace("+Inf", "inf")), value)
                       for found, value in metrics.all(name + "_bucket")
                       if {k: v for k, v in found.items() if k != "le"} == labels]
            values = [value for _, value in sorted(buckets)]
            assert values == sorted(values) and values[-1] == count


@pytest.mark.threads
def test_scrapes_during_full_load(server):
    """100 scrapes a second for as long as eight clients press."""
    stop, errors = threading.Event(), []

    def press(worker):
        calls = stub(server)
        array = np.full((1, 4), worker, np.float32)
        while not stop.is_set():
            answer = calls.ModelInfer(array_request("identity_fp32", array),
                                      timeout=20 * harness.SLOWER)
            if answer.raw_output_contents[0] != array.tobytes():
                errors.append(answer)
    threads = [threading.Thread(target=press, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    scrapes = 0
    end = time.monotonic() + harness.scale(1.0, 10.0)
    while time.monotonic() < end:
        server.metrics()
        scrapes += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == [] and scrapes > 5
