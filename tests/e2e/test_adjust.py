"""Settings changed while the server runs: by whom, why, until when; over restarts; beside the file."""
import json
import os
import signal
import time

import pytest

import harness
import jobs
import kserve
from kserve import CODE, refused
from test_json_api import Asker
from test_sim_serve import SPEED, fixture_begin, fixture_traces  # noqa: F401


def messages():
    return harness.Stubs.control


def terms(**fields):
    return messages().Terms(**{"actor": "keda", "reason": "a test", **fields})


def call(server, method, /, **fields):
    request = getattr(messages(), method + "Request")(**fields)
    return getattr(server.control(), method)(request, timeout=20)


def device(server, index=0):
    return server.list_devices()[index]


def overrides(server):
    return {(o.object, o.name, o.field): o for o in call(server, "ListOverrides").overrides}


@pytest.fixture(name="served")
def fixture_served(start):
    return start(["identity_fp32"]).start()


def test_a_cordoned_device_gets_nothing_new_and_is_used_again(served, tmp_path):
    changed = call(served, "CordonDevice", device="1", terms=terms(reason="a loud fan")).device
    assert changed.cordoned and changed.reason == "cordoned by keda: a loud fan"
    job = served.submit(jobs.digits_job(tmp_path, 10_000_000, devices="1:2"))
    jobs.wait_step(served, job.id, 50, 30 * harness.SLOWER)  # many plans were made meanwhile
    assert served.get_job(job.id).devices == [device(served, 0).id]
    assert not call(served, "UncordonDevice", device="1", terms=terms()).device.cordoned
    harness.wait_until(lambda: len(served.get_job(job.id).devices) == 2, 20, "the second device")
    assert device(served, 1).reason == "" and not overrides(served)
    call(served, "UncordonDevice", device="1")  # twice is once
    call(served, "CancelJob", job=job.id)


def test_a_drained_device_is_empty_in_time_and_says_who_asked(served, tmp_path):
    job = served.submit(jobs.digits_job(tmp_path, 10_000_000, devices="1:2"))
    harness.wait_until(lambda: len(served.get_job(job.id).devices) == 2, 30, "both devices")
    changed = call(served, "DrainDevice", device="1", within_s=2, terms=terms(actor="ops")).device
    assert changed.cordoned and changed.leaves_wall_ns > time.time_ns()
    harness.wait_until(lambda: not device(served, 1).job and not device(served, 1).instances, 20,
                       "nothing is on it")
    assert served.get_job(job.id).devices == [device(served, 0).id]
    assert any("asked for by ops: a test" in move.text for move in served.explain(device="1").moves)
    assert "drained by ops: a test" in served.cli("why", device(served, 1).id).stdout
    # Without it the job has the other device still, and serving goes on.
    assert kserve.output(kserve.stub(served).ModelInfer(kserve.identity_request(), timeout=20)) is not None
    call(served, "UncordonDevice", device="1")
    harness.wait_until(lambda: len(served.get_job(job.id).devices) == 2, 30, "the device is back")
    call(served, "CancelJob", job=job.id)


def test_a_device_wanted_back_leaves_and_may_stay_after_all(served):
    changed = call(served, "ReclaimDevice", device="0", within_s=600, terms=terms()).device
    assert changed.reason == "wanted back by keda: a test" and changed.leaves_wall_ns > 0
    changed = call(served, "ReclaimDevice", device="0", stays=True, terms=terms()).device
    assert changed.leaves_wall_ns == 0 and changed.reason == ""
    error = refused(call, served, "ReclaimDevice", device="0", terms=terms())
    assert error.code() == CODE.INVALID_ARGUMENT and "within_s, or stays" in error.details()


def test_an_endpoint_gets_other_settings_at_once(served):
    before = served.list_endpoints()[0]
    changed = call(served, "SetEndpoint", name=before.name, devices_min=2, slo_ms=250, priority=7,
                   terms=terms()).endpoint
    assert (changed.devices_min, changed.slo_ms, changed.priority) == (2, 250, 7)
    assert changed.devices_max == before.devices_max
    harness.wait_until(lambda: served.list_endpoints()[0].instances_ready == 2, 20, "its minimum")
    assert "set by keda: a test" in served.explain(endpoint=before.name).summary
    found = overrides(served)[("endpoint", before.name, "slo_ms")]
    assert (found.value, found.configured, found.actor) == ("250", "%g" % before.slo_ms, "keda")
    kept = call(served, "DropOverride", object="endpoint", name=before.name, field="slo_ms").overrides
    assert [o.field for o in kept] == ["devices_min", "priority"]
    assert served.list_endpoints()[0].slo_ms == before.slo_ms
    call(served, "DropOverride", object="endpoint", name=before.name)
    after = served.list_endpoints()[0]
    assert (after.devices_min, after.priority) == (before.devices_min, before.priority)


def test_what_is_late_or_senseless_changes_nothing(served):
    name = served.list_endpoints()[0].name
    old = served.list_endpoints()[0].revision
    call(served, "SetEndpoint", name=name, priority=3, terms=terms())
    for fields, code, words in (
            ({"devices_min": 3}, CODE.INVALID_ARGUMENT, "more than there are (2)"),
            ({"devices_min": 2, "devices_max": 1}, CODE.INVALID_ARGUMENT, "2 to devices_max 1"),
            ({"devices_max": 0}, CODE.INVALID_ARGUMENT, "no range"),
            ({"slo_ms": 0}, CODE.INVALID_ARGUMENT, "slo_ms"),
            ({"slo_ms": float("nan")}, CODE.INVALID_ARGUMENT, "slo_ms"),
            ({"priority": 101}, CODE.INVALID_ARGUMENT, "0 to 100"),
            ({"terms": terms(actor="x" * 64)}, CODE.INVALID_ARGUMENT, "1 to 63 bytes"),
            ({"terms": terms(reason="x" * 256)}, CODE.INVALID_ARGUMENT, "at most 255"),
            ({"terms": terms(expires_in_s=400 * 86400)}, CODE.INVALID_ARGUMENT, "366 days"),
            ({"priority": 4, "terms": terms(expected_revision=old)}, CODE.ABORTED, "read it again"),
            ({"terms": terms(expected_revision=2**63)}, CODE.INVALID_ARGUMENT, "has not been yet"),
            ({"name": "nobody"}, CODE.NOT_FOUND, "nobody")):
        error = refused(call, served, "SetEndpoint", **{"name": name, "terms": terms(), **fields})
        assert (error.code(), words in error.details()) == (code, True), error.details()
    assert [o.field for o in overrides(served).values()] == ["priority"]
    # Which bound stands against it, for programs.
    error = refused(call, served, "SetEndpoint", name=name, devices_min=3)
    told = {key: value for key, value in error.trailing_metadata() if key.startswith("tidepool-")}
    assert told == {"tidepool-limit": "devices", "tidepool-limit-value": "3", "tidepool-limit-maximum": "2"}
    # Figures change all the time; the settings have not since this look.
    seen = served.list_endpoints()[0].revision
    kserve.stub(served).ModelInfer(kserve.identity_request(), timeout=20)
    harness.wait_until(lambda: served.list_endpoints()[0].revision > seen, 20, "new figures")
    assert call(served, "SetEndpoint", name=name, priority=4,
                terms=terms(expected_revision=seen)).endpoint.priority == 4
    for method, fields, code in (("DrainDevice", {"device": "0", "within_s": -1}, CODE.INVALID_ARGUMENT),
                               ("DrainDevice", {"device": "0", "within_s": 1e9}, CODE.INVALID_ARGUMENT),
                               ("CordonDevice", {"device": "9"}, CODE.NOT_FOUND),
                               ("DropOverride", {"object": "device", "name": "0"}, CODE.NOT_FOUND)):
        assert refused(call, served, method, **fields).code() == code
    tcp = harness.Stubs.control_rpc.ControlStub(served.channel())
    assert refused(tcp.CordonDevice, messages().CordonDeviceRequest(device="0"),
                   timeout=10).code() == CODE.PERMISSION_DENIED


def test_a_change_of_what_has_changed_meanwhile_is_refused(served, tmp_path):
    job = served.submit(jobs.digits_job(tmp_path, 10_000_000))
    jobs.wait_state(served, job.id, "RUNNING", 30)
    seen = served.get_job(job.id).revision
    assert refused(call, served, "PauseJob", job=job.id,
                   expected_revision=job.revision).code() == CODE.ABORTED
    call(served, "PauseJob", job=job.id, expected_revision=seen)
    assert refused(call, served, "CancelJob", job=job.id, expected_revision=seen).code() == CODE.ABORTED
    call(served, "CancelJob", job=job.id)
    seen = served.get_status().revision
    call(served, "SetHold", hold=True, expected_revision=seen)
    assert refused(call, served, "SetHold", hold=False, expected_revision=seen).code() == CODE.ABORTED
    assert served.get_status().hold
    name = served.list_endpoints()[0].name
    assert refused(call, served, "StopServing", name=name, expected_revision=1).code() == CODE.ABORTED


def test_validate_only_tells_what_would_move_and_moves_nothing(served, tmp_path):
    job = served.submit(jobs.digits_job(tmp_path, 10_000_000, devices="2:2"))
    jobs.wait_state(served, job.id, "RUNNING", 30)
    only = terms(validate_only=True)
    would = call(served, "DrainDevice", device="1", within_s=60, terms=only).would
    assert any(job.id in move.move.text and not move.anyway for move in would.moves), would
    name = served.list_endpoints()[0].name
    answer = call(served, "SetEndpoint", name=name, devices_min=2, terms=only)
    assert answer.would.horizon_s > 0 and answer.endpoint.devices_min == 1
    assert call(served, "CordonDevice", device="0", terms=only).device.cordoned is False
    assert not overrides(served) and len(served.get_job(job.id).devices) == 2
    assert refused(call, served, "SetEndpoint", name=name, devices_min=9,
                   terms=only).code() == CODE.INVALID_ARGUMENT
    call(served, "CancelJob", job=job.id)


def test_they_hold_over_a_crash_and_a_reload_and_are_shown_beside_the_file(served):
    name = served.list_endpoints()[0].name
    call(served, "CordonDevice", device="1", terms=terms(actor="ops"))
    call(served, "SetEndpoint", name=name, devices_max=1, slo_ms=70, terms=terms(expires_in_s=3600))
    served.kill()
    served.start()
    assert device(served, 1).reason == "cordoned by ops: a test"
    endpoint = served.list_endpoints()[0]
    assert (endpoint.devices_max, endpoint.slo_ms) == (1, 70)
    os.kill(served.process.pid, signal.SIGHUP)
    harness.wait_until(lambda: "configuration reloaded" in served.log(), 20, "the reload")
    assert device(served, 1).cordoned and served.list_endpoints()[0].slo_ms == 70
    lines = served.cli("config", "diff").stdout.splitlines()
    assert lines[0].split()[:3] == ["OBJECT", "NAME", "FIELD"] and len(lines) == 4
    assert "false -> true" in lines[1] and "ops" in lines[1]
    assert "until" in lines[2] and "2 -> 1" in lines[2]
    told = json.loads(served.cli("config", "diff", "--json").stdout)["overrides"]
    assert [o["field"] for o in told] == ["cordoned", "devices_max", "slo_ms"]
    served.cli("config", "drop", "endpoint", name, "slo_ms")
    served.kill()
    served.start()
    assert served.list_endpoints()[0].slo_ms == 100 and served.list_endpoints()[0].devices_max == 1


def test_the_command_line_and_http_change_them_too(start, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-secret-of-some-length\n")
    token.chmod(0o600)
    server = start(["identity_fp32"], {"token_file": str(token)}).start()
    cordoned = server.cli("devices", "cordon", "1", "--actor", "me", "--reason", "fans").stdout
    assert "cordoned by me: fans" in cordoned
    assert "cordoned" not in server.cli("devices", "uncordon", "1").stdout
    assert "would" not in server.cli("devices", "drain", "0", "--within", "5", "--dry-run").stdout
    assert "drained by uid" in server.cli("devices", "drain", "0", "--within", "5").stdout
    name = server.list_endpoints()[0].name
    assert "0 to 1 devices, SLO 30 ms, priority 0" in server.cli(
        "endpoints", "set", name, "--devices", "0:1", "--slo-ms", "30").stdout
    ask = Asker(server)
    status, answer = ask.post("SetEndpoint", name=name, priority=5, terms={"reason": "by http"})
    assert (status, answer["endpoint"]["priority"]) == (200, 5), answer
    status, answer = ask.post("SetEndpoint", name=name, devicesMin=3, devicesMax=9)
    assert (status, answer["error"]["details"]) == (400, {"limit": "devices", "value": 3, "maximum": 2})
    status, answer = ask("GET", "ListOverrides")
    assert [o["actor"] for o in answer["overrides"] if o["field"] == "priority"] == ["token"]
    ask.connection.close()
    assert server.cli("endpoints", "set", check=False).returncode == 2
    assert server.cli("devices", "paint", "0", check=False).returncode == 2


@pytest.mark.release
def test_a_dead_controllers_settings_end_by_themselves(begin, traces):
    """In virtual time."""
    virtual = begin(*traces)
    control = virtual.stub()
    harness.wait_until(lambda: len(virtual.json("endpoints")["endpoints"]) == 2, 20, "both endpoints")
    configured = control.ListEndpoints(messages().ListEndpointsRequest(),
                                       timeout=20).endpoints[0].devices_min
    began = time.monotonic()
    control.SetEndpoint(messages().SetEndpointRequest(
        name="chat_a", devices_min=3, terms=terms(expires_in_s=100)), timeout=20)
    control.CordonDevice(messages().CordonDeviceRequest(
        device="0", terms=terms(expires_in_s=60)), timeout=20)

    def state():
        endpoint = control.ListEndpoints(messages().ListEndpointsRequest(), timeout=20).endpoints[0]
        found = control.ListDevices(messages().ListDevicesRequest(), timeout=20).devices[0]
        return endpoint.devices_min, found.cordoned
    seen = [(0, state())]
    while seen[-1][1] != (configured, False):
        assert time.monotonic() - began < 20, seen
        now = state()
        if now != seen[-1][1]:
            seen.append(((time.monotonic() - began) * SPEED, now))
        time.sleep(0.05)
    assert [now for _, now in seen] == [(3, True), (3, False), (configured, False)]
    assert 55 < seen[1][0] < 75 and 95 < seen[2][0] < 125, seen
    assert not control.ListOverrides(messages().ListOverridesRequest(), timeout=20).overrides
