"""The scale signal: what is wanted and why, what is there, what is on its way."""
import json

import pytest

import harness
import jobs
from kserve import CODE, refused
from test_cli import tool


def signal(server):
    return server.control().GetScaleSignal(harness.Stubs.control.GetScaleSignalRequest(),
                                           timeout=10).kinds[0]


def desired(kind):
    return {desire.reason: desire.devices for desire in kind.desired}


def announce(server, **fields):
    fields = {"provider": "cloud", "kind": "cpu", **fields}
    return server.control().AnnounceDevices(
        harness.Stubs.control.AnnounceDevicesRequest(**fields), timeout=10).kinds[0]


@pytest.fixture(name="scaled")
def fixture_scaled(start):
    config = {"planner": {"scale_lead_s": 5, "scale_hold_s": 4}}
    return start(["identity_fp32"], config).start()


def test_each_reason_is_told_by_call_watch_page_and_command(scaled, tmp_path):
    first = signal(scaled)
    assert first.kind == "cpu" and first.ready == 2 and first.horizon_ns == 5 * 10**9
    assert set(desired(first)) == {"slo", "waiting", "backlog"}
    job = scaled.submit(jobs.digits_job(tmp_path, 10_000_000))
    jobs.wait_state(scaled, job.id, "RUNNING", 30)
    harness.wait_until(lambda: desired(signal(scaled))["waiting"] == 1, 10, "the job's minimum")
    kind = signal(scaled)
    assert desired(kind)["backlog"] == 1
    assert kind.desired_total == sum(desired(kind).values())
    status = scaled.get_status().scale[0]
    assert (status.kind, status.ready) == ("cpu", 2)
    page = scaled.metrics()
    assert page.sum("tidepool_scale_desired", kind="cpu", reason="waiting") == 1
    assert page.sum("tidepool_scale_ready", kind="cpu") == 2
    assert page.sum("tidepool_scale_horizon_seconds", kind="cpu") == 5
    server = "unix:" + scaled.socket
    lines = tool("scale", server=server).stdout.splitlines()
    assert lines[0].split()[:2] == ["KIND", "DESIRED"] and lines[1].split()[0] == "cpu"
    told = json.loads(tool("scale", "--json", server=server).stdout)["kinds"][0]
    assert told["ready"] == 2 and told["desired"][1] == {"reason": "waiting", "devices": 1}
    scaled.control().CancelJob(harness.Stubs.control.CancelJobRequest(job=job.id), timeout=10)
    harness.wait_until(lambda: desired(signal(scaled))["waiting"] == 0, 20, "no job any more")


def test_announced_devices_are_pending_until_they_are_overdue(scaled):
    kind = announce(scaled, devices=3, arrives_in_ns=2 * 10**9, lead_ns=7 * 10**9)
    assert (kind.pending, kind.horizon_ns) == (3, 7 * 10**9)
    assert 0 < kind.arrives_in_ns <= 2 * 10**9
    assert kind.surplus == 3 + kind.ready - kind.desired_total
    assert announce(scaled, devices=1, arrives_in_ns=2 * 10**9).pending == 1  # not four
    harness.wait_until(lambda: signal(scaled).pending == 0, 20, "the end of waiting for it")


def test_nonsense_is_refused_and_reading_alone_is_for_everybody(scaled):
    control = harness.Stubs.control
    for fields, code in (({"kind": "gpu9"}, CODE.NOT_FOUND), ({"provider": ""}, CODE.INVALID_ARGUMENT),
                         ({"provider": "x" * 64}, CODE.INVALID_ARGUMENT)):
        fields = {"provider": "cloud", "kind": "cpu", "devices": 1, **fields}
        assert refused(scaled.control().AnnounceDevices, control.AnnounceDevicesRequest(**fields),
                       timeout=10).code() == code
    tcp = harness.Stubs.control_rpc.ControlStub(scaled.channel())
    assert tcp.GetScaleSignal(control.GetScaleSignalRequest(), timeout=10).kinds[0].ready == 2
    assert refused(tcp.AnnounceDevices, control.AnnounceDevicesRequest(provider="x", kind="cpu"),
                   timeout=10).code() == CODE.PERMISSION_DENIED
