"""The load generator against a real server: it sends when it says, counts all, and hides nothing."""
import csv
import gzip
import json
import os
import subprocess
import time

import pytest

import harness

pytestmark = pytest.mark.release

TOOL = os.path.join(harness.BUILD, "tidepool-load")


def load(server, *arguments, code=0, seconds=60):
    done = subprocess.run([TOOL, "--server", server.address, *arguments, "--json"],
                          capture_output=True, text=True, timeout=seconds * harness.SLOWER,
                          check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_all_requests_of_a_schedule_are_sent_and_counted(server, tmp_path):
    rows = tmp_path / "rows.csv"
    whole = tmp_path / "histogram.csv"
    report = load(server, "--endpoint", "identity_fp32", "--steps", "0:0.5,200:1,20:0.5",
                  "--connections", "3", "--csv", str(rows), "--histogram", str(whole))
    assert report["sent"] == report["ok"] == 210 and report["failed"] == 0
    assert report["failed_by_code"] == {}
    with open(rows, encoding="utf-8") as file:
        seconds = list(csv.DictReader(file))
    assert sum(int(row["sent"]) for row in seconds) == 210
    with open(whole, encoding="utf-8") as file:
        buckets = list(csv.DictReader(file))
    assert sum(int(row["count"]) for row in buckets) == 210
    assert float(buckets[-1]["share_up_to"]) == 1
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p99"] <= report["latency_ms"]["max"]
    before = server.metrics().sum("nv_inference_request_success", model="identity_fp32")
    load(server, "--endpoint", "identity_fp32", "--rate", "50", "--seconds", "1", "--poisson")
    again = load(server, "--endpoint", "identity_fp32", "--rate", "50", "--seconds", "1",
                 "--poisson")
    after = server.metrics().sum("nv_inference_request_success", model="identity_fp32")
    assert after - before == 2 * again["ok"], "the same seed sends the same requests"


def test_a_trace_is_replayed_at_its_speed(server, tmp_path):
    path = tmp_path / "trace.csv.gz"
    with gzip.open(path, "wt") as file:
        file.write("arrival_s,endpoint\n")
        file.writelines("%d.5,%s\n" % (i, "ab"[i % 2]) for i in range(40))
    report = load(server, "--endpoint", "identity_fp32", "--replay", str(path), "--speed", "40",
                  "--trace-endpoint", "a")
    assert report["sent"] == report["ok"] == 20
    assert 0.9 < report["seconds"] < 3 * harness.SLOWER


@pytest.fixture(name="slow")
def fixture_slow(single, tmp_path):
    """A request that takes the one device 30 ms or more, written as a file."""
    path = tmp_path / "input.json"
    rounds = 64

    def write(count):
        path.write_text(json.dumps({"inputs": [{"name": "COUNT", "datatype": "INT64",
                                                "shape": [1, 1], "data": [count]}]}))
    while True:
        write(rounds)
        report = load(single, "--endpoint", "loop", "--input", str(path), "--rate", "20",
                      "--seconds", "1")
        if report["latency_ms"]["min"] >= 30:
            return str(path)
        rounds *= 2


def test_waiting_counts_from_the_meant_time(single, slow):
    """One device that takes 30 ms or more a request is asked 400 times a second, by batches of at
    most 4: the queue grows, and so does what is reported, although each run takes the same time."""
    report = load(single, "--endpoint", "loop", "--input", slow, "--rate", "400",
                  "--seconds", "0.5")
    assert report["ok"] == 200
    assert report["latency_ms"]["max"] > 400
    assert report["latency_ms"]["p90"] > 2 * report["latency_ms"]["min"]


def test_failures_are_told_apart(server):
    report = load(server, "--endpoint", "loop", "--rate", "20", "--seconds", "0.5",
                  "--deadline-ms", "0.001", code=1)
    assert report["failed"] == report["sent"] == 10
    assert report["failed_by_code"] == {"DEADLINE_EXCEEDED": 10}
    none = load(server, "--endpoint", "none", "--rate", "1", code=122)
    assert none["error"]["code"] == "NOT_FOUND"
    wrong = load(server, "--endpoint", "identity_fp32", code=2)
    assert "--rate" in wrong["error"]["message"]


def test_requests_beyond_the_bound_fail_here(single, slow):
    report = load(single, "--endpoint", "loop", "--input", slow, "--rate", "200", "--seconds",
                  "0.5", "--in-flight", "2", code=1)
    assert report["sent"] == 100
    assert report["failed_by_code"] == {"RESOURCE_EXHAUSTED": report["failed"]}
    assert report["ok"] + report["failed"] == 100 and report["ok"] >= 2


def test_a_server_that_dies_and_comes_back_is_seen_and_found_again(start):
    server = start(["identity_fp32"])
    server.config["listeners"][0]["address"] = "127.0.0.1:%d" % free_port()
    server.start()
    with subprocess.Popen([TOOL, "--server", server.address, "--endpoint", "identity_fp32",
                           "--rate", "50", "--seconds", "600", "--json"],
                          stdout=subprocess.PIPE, text=True) as process:
        def served():
            return server.metrics().sum("nv_inference_request_success")
        harness.wait_until(served, 20 * harness.SLOWER, "the first answers")
        server.kill()
        server.start()
        harness.wait_until(served, 20 * harness.SLOWER, "answers after the restart")
        process.terminate()
        out, _ = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 1
    assert set(report["failed_by_code"]) <= {"UNAVAILABLE"} and report["failed"] > 0
    assert report["ok"] + report["failed"] == report["sent"]


def free_port():
    import socket
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_it_keeps_its_rate_without_spinning(server):
    if harness.VARIANT != "release":
        return  # says nothing about the real thing
    rate = 2000
    start = time.monotonic()
    report = load(server, "--endpoint", "identity_fp32", "--rate", str(rate), "--seconds", "2")
    assert report["ok"] == 2 * rate
    assert time.monotonic() - start < 10
    assert report["generator_cpu_share"] < 0.6
    assert report["send_lateness_ms"]["p50"] < 5
