"""`tidepool sim --serve`: the control API over virtual devices: the command line and a stock gRPC client
work against it as against a server, in a time that runs faster than ours."""
import glob
import json
import os
import signal
import subprocess
import time

import grpc
import pytest

import harness
from kserve import CODE, refused

TOOL = os.path.join(harness.BUILD, "tidepool")
SPEED = {"release": 20, "asan": 10, "tsan": 5}[harness.VARIANT]
BURST_S, QUIET_S = 40, 60


class Virtual:
    """One `tidepool sim --serve` with a Unix socket and a port of its own."""

    def __init__(self, directory, *arguments):
        self.directory = str(directory)
        self.socket = os.path.join(self.directory, "sim.sock")
        self.log_path = os.path.join(self.directory, "sim.log")
        environment = dict(os.environ, **harness.sanitizer_environment(self.directory))
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [TOOL, "sim", "--serve", "--listen", "127.0.0.1:0", "unix:" + self.socket,
                 *arguments], stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        self.addresses = [self.process.stdout.readline().split()[-1] for _ in range(2)]
        self.channels = []

    def stub(self, address=None):
        channel = grpc.insecure_channel(address or "unix:" + self.socket)
        grpc.channel_ready_future(channel).result(20 * harness.SLOWER)
        self.channels.append(channel)
        return harness.Stubs.control_rpc.ControlStub(channel)

    def cli(self, *arguments):
        done = subprocess.run([TOOL, *arguments], capture_output=True, text=True, check=False,
                              timeout=60 * harness.SLOWER,
                              env=dict(os.environ, TIDEPOOL_SERVER="unix:" + self.socket))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.cli(*arguments, "--json"))

    def stop(self):
        for channel in self.channels:
            channel.close()
        self.channels = []
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20 * harness.SLOWER)
        self.process.stdout.close()
        reports = ""
        for path in glob.glob(os.path.join(self.directory, "sanitizer.*")):
            with open(path, encoding="utf-8", errors="replace") as file:
                reports += file.read()[:8000]
        assert not reports, reports
        return code


@pytest.fixture(name="traces")
def fixture_traces(tmp_path):
    """Bursts that need two of the devices between silences, and three jobs."""
    lines = ["arrival_s,endpoint,input_tokens,output_tokens"]
    for second in range(20 * (BURST_S + QUIET_S)):
        for i in range(6 if second % (BURST_S + QUIET_S) < BURST_S else 1):
            lines.append("%.3f,chat/%s,%d,%d" % (second + i / 10, "ab"[i % 2], 500 + second % 700, 40))
    requests, job_list = tmp_path / "requests.csv", tmp_path / "jobs.csv"
    requests.write_text("\n".join(lines) + "\n")
    job_list.write_text("job_id,submit_s,duration_s,num_gpus,group\n1,0,100,1,x\n2,10,60,2,y\n"
                        "3,20,1000000,1,x\n")
    return ["--requests", str(requests), "--jobs", str(job_list), "--devices", "4", "--speed", str(SPEED)]


@pytest.fixture(name="begin")
def fixture_begin(tmp_path, stubs):
    """begin(arguments…) → one that is stopped and checked at the end, whatever the test comes to."""
    running = []

    def start(*arguments):
        running.append(Virtual(tmp_path, *arguments))
        return running[-1]
    yield start
    for virtual in running:
        assert virtual.stop() == 0


@pytest.fixture(name="virtual")
def fixture_virtual(begin, traces):
    virtual = begin(*traces)
    yield virtual
    state = virtual.stub().GetStatus(harness.Stubs.control.GetStatusRequest(),
                                     timeout=20).state_directory
    assert os.path.isdir(state)
    assert virtual.stop() == 0
    assert not os.path.exists(state)


def specification(tmp_path, steps):
    path = tmp_path / "job.json"
    path.write_text(json.dumps({
        "name": "mine", "model": {"layers": [64, 10]}, "steps": steps, "batch": 256, "devices": "1:2",
        "data": {"path": "features.npy", "labels": "labels.npy"}}))
    return str(path)


def wait_state(virtual, job, state, seconds=30):
    """By the start of its id, which ends with a number."""
    def reached():
        return [j for j in virtual.json("jobs")["jobs"]
                if j["id"].startswith(job) and j["state"] == state]
    return harness.wait_until(reached, seconds * harness.SLOWER, "%s is %s" % (job, state))[0]


@pytest.mark.threads
def test_the_command_line_works_as_with_a_server(virtual, tmp_path):
    devices = virtual.json("devices")["devices"]
    assert [d["id"] for d in devices] == ["virtual:%d" % i for i in range(4)]
    harness.wait_until(lambda: len(virtual.json("endpoints")["endpoints"]) == 2,
                       20 * harness.SLOWER, "both endpoints of the trace")
    assert [e["name"] for e in virtual.json("endpoints")["endpoints"]] == ["chat_a", "chat_b"]
    job = virtual.cli("submit", specification(tmp_path, 40)).strip()
    assert job.startswith("mine-")
    done = wait_state(virtual, job, "JOB_STATE_FINISHED")
    assert int(done["step"]) == 40
    # A second of a device each, on two devices at most.
    took_s = (int(done["finishedWallNs"]) - int(done["startedWallNs"])) / 1e9
    assert 20 <= took_s < 300
    wait_state(virtual, "trace-1-", "JOB_STATE_FINISHED")
    endless = wait_state(virtual, "trace-3-", "JOB_STATE_RUNNING")["id"]
    virtual.cli("pause", endless)
    wait_state(virtual, endless, "JOB_STATE_PAUSED")
    virtual.cli("resume", endless)
    wait_state(virtual, endless, "JOB_STATE_RUNNING")
    virtual.cli("cancel", endless)
    wait_state(virtual, endless, "JOB_STATE_CANCELLED")
    assert "is finished, at step 40 of 40" in virtual.cli("why", job)
    virtual.cli("hold", "on", "--reason", "a test")
    status = virtual.json("status")
    assert status["hold"] is True and status["ledgerBalanced"] is True
    assert int(status["requestsOk"]) > 50
    virtual.cli("hold", "off")
    (tmp_path / "extra.onnx").write_text("not read")
    virtual.cli("serve", str(tmp_path / "extra.onnx"), "--name", "extra", "--slo-ms", "5000")
    assert "extra" in virtual.cli("endpoints")
    virtual.cli("unserve", "extra")
    harness.wait_until(lambda: "extra" not in virtual.cli("endpoints"), 20 * harness.SLOWER,
                       "the endpoint is gone")


def test_time_runs_faster_and_load_moves_devices(virtual):
    control, messages = virtual.stub(), harness.Stubs.control
    began, first = time.monotonic(), control.GetStatus(messages.GetStatusRequest(), timeout=20)
    wanted, held = set(), set()

    def both_tides():
        endpoints = control.ListEndpoints(messages.ListEndpointsRequest(), timeout=20).endpoints
        devices = control.ListDevices(messages.ListDevicesRequest(), timeout=20).devices
        wanted.add(sum(e.devices_wanted for e in endpoints))
        held.add(sum(d.job != "" for d in devices))
        moved = len(wanted) >= 2 and max(wanted) >= 3 and max(held) >= 3
        return moved and sum(e.requests_ok for e in endpoints) > 330
    harness.wait_until(both_tides, 60 * harness.SLOWER, "a burst and a silence after it")
    last, passed = control.GetStatus(messages.GetStatusRequest(), timeout=20), time.monotonic() - began
    virtual_s = (last.uptime_ns - first.uptime_ns) / 1e9
    assert 0.9 * SPEED < virtual_s / passed < 1.1 * SPEED
    assert abs((last.now_wall_ns - first.now_wall_ns) / 1e9 - virtual_s) < 0.1 * SPEED
    assert last.ledger_balanced
    # What an autoscaling controller reads: 4 devices of one kind, and what they are wanted for.
    signal_now = control.GetScaleSignal(messages.GetScaleSignalRequest(), timeout=20).kinds
    assert [(kind.kind, kind.ready) for kind in signal_now] == [("cpu", 4)]
    assert {desire.reason for desire in signal_now[0].desired} >= {"slo", "waiting"}
    if harness.VARIANT == "release":  # the machine's delays count as so much more time here
        assert last.requests_late < 0.05 * last.requests_ok


def test_a_watcher_is_told_of_changes(virtual, tmp_path):
    control, messages = virtual.stub(), harness.Stubs.control
    stream = control.Watch(messages.WatchRequest(), timeout=60 * harness.SLOWER)
    next(stream)
    job = virtual.cli("submit", specification(tmp_path, 5)).strip()
    states = []
    for change in stream:
        if change.WhichOneof("object") == "job" and change.job.id == job:
            states.append(messages.JobState.Name(change.job.state))
            if states[-1] == "JOB_STATE_FINISHED":
                break
    assert "JOB_STATE_RUNNING" in states
    stream.cancel()


def test_a_failed_device_moves_its_work(begin, traces, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"testing": true}')
    virtual = begin(*traces, "--config", str(config))
    control, messages = virtual.stub(), harness.Stubs.control
    harness.wait_until(lambda: control.GetStatus(messages.GetStatusRequest(), timeout=20).requests_ok > 20,
                       20 * harness.SLOWER, "requests")
    control.InjectDeviceFault(messages.InjectDeviceFaultRequest(device="virtual:0"), timeout=20)
    before = control.GetStatus(messages.GetStatusRequest(), timeout=20)
    assert before.devices_failed == 1
    harness.wait_until(lambda: control.GetStatus(messages.GetStatusRequest(), timeout=20).requests_ok
                       > before.requests_ok + 50, 30 * harness.SLOWER, "requests go on")
    control.RecoverDevice(messages.RecoverDeviceRequest(device="virtual:0"), timeout=20)
    assert control.GetStatus(messages.GetStatusRequest(), timeout=20).devices_failed == 0
    assert control.GetStatus(messages.GetStatusRequest(), timeout=20).ledger_balanced


def test_over_tcp_changes_need_the_token(begin, traces, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-secret-of-some-length\n")
    token.chmod(0o600)
    virtual = begin(*traces, "--token-file", str(token))
    messages = harness.Stubs.control
    tcp = virtual.stub(virtual.addresses[0])
    assert tcp.GetStatus(messages.GetStatusRequest(), timeout=20).devices == 4
    error = refused(tcp.SetHold, messages.SetHoldRequest(hold=True), timeout=20)
    assert error.code() == CODE.PERMISSION_DENIED
    told = tcp.SetHold(messages.SetHoldRequest(hold=True), timeout=20,
                       metadata=[("authorization", "Bearer a-secret-of-some-length")])
    assert told.hold


WRONG = [
    (["--policy", "keda"], 2, "--serve goes without --policy"),
    (["--rungs", "freeze"], 2, "--serve goes without --rungs"),
    (["--crash-every-h", "1"], 2, "--serve goes without --crash-every-h"),
    (["--speed", "1000"], 2, "--speed is a"),
    (["--devices", "65"], 2, "devices 1 to 64"),
    (["--requests", "nowhere.csv"], 125, "nowhere.csv"),
    (["--listen", "nowhere"], 2, "nowhere"),
    (["--config", "nowhere.json"], 125, "nowhere.json"),
]


@pytest.mark.parametrize("arguments,code,says", WRONG, ids=[says for _, _, says in WRONG])
def test_a_wrong_command_line_is_named_and_nothing_stays(arguments, code, says):
    before = set(glob.glob("/tmp/tidepool-sim-*"))
    listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
    done = subprocess.run([TOOL, "sim", "--serve", *listen, *arguments], capture_output=True,
                          text=True, timeout=20 * harness.SLOWER, check=False)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert set(glob.glob("/tmp/tidepool-sim-*")) <= before


def test_help_tells_what_serve_takes():
    done = subprocess.run([TOOL, "sim", "--help"], capture_output=True, text=True, check=False)
    for option in ("--serve", "--speed", "--listen", "--token-file", "--config"):
        assert option in done.stdout
