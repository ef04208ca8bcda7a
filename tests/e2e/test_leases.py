"""Leases held from outside: devices for a process that the server has not started."""
import grpc

import harness
import outside
from kserve import refused

CODE = grpc.StatusCode


def call(server, method, /, **fields):
    messages = harness.Stubs.control
    return getattr(server.control(), method)(getattr(messages, method + "Request")(**fields),
                                           timeout=10 * harness.SLOWER)


def must_refuse(server, method, code, text, /, **fields):
    error = refused(call, server, method, **fields)
    assert error.code() == code and text in error.details(), error


def held(server, name="mine", **fields):
    """A lease that has been granted devices, and its token."""
    lease = call(server, "RequestLease", name=name, **fields)
    outside.wait_for(server, lease.id, lambda job: job.devices and
                     outside.state(job) == "RUNNING", 20, "holds devices")
    claimed = call(server, "ClaimLease", lease=lease.id)
    return claimed.lease, claimed.token


def test_a_lease_is_granted_claimed_reported_and_released(start):
    server = start([]).start()
    lease, token = held(server, devices_min=2)
    assert lease.held and len(lease.devices) == 2 and lease.runs == 1 and not lease.pid
    assert not lease.HasField("command") and not lease.spec_json
    assert token not in str(server.get_job(lease.id))
    reported = call(server, "ReportLease", lease=lease.id, token=token, step=12,
                    checkpointed_step=10)
    assert (reported.step, reported.checkpointed_step) == (12, 10)
    call(server, "ReportLease", lease=str(lease.number), token=token)
    done = call(server, "ReleaseLease", lease=lease.id, token=token)
    assert outside.exit_class(done) == "COMPLETED"
    done = outside.wait_end(server, lease.id)
    assert outside.state(done) == "FINISHED" and not done.devices
    assert not [d for d in server.list_devices() if d.job]


def test_what_is_wrong_is_refused_with_its_reason(start, tmp_path):
    server = start([]).start()
    lease, token = held(server)
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    for name, fields, code, text in (
            ("RequestLease", {}, CODE.INVALID_ARGUMENT, "lease.name"),
            ("RequestLease", {"name": "a/b"}, CODE.INVALID_ARGUMENT, "a/b"),
            ("RequestLease", {"name": "x", "devices_min": 9}, CODE.INVALID_ARGUMENT, "has 2"),
            ("RequestLease", {"name": "x", "kind": "abacus"}, CODE.INVALID_ARGUMENT, "abacus"),
            ("RequestLease", {"name": "x", "time_s": float("nan")}, CODE.INVALID_ARGUMENT,
             "not finite"),
            ("ClaimLease", {"lease": "nobody-9"}, CODE.NOT_FOUND, "nobody-9"),
            ("ReportLease", {"lease": lease.id, "token": wrong}, CODE.FAILED_PRECONDITION,
             "not that of its present run"),
            ("ReportLease", {"lease": lease.id, "token": token, "step": 1, "checkpointed_step": 2},
             CODE.INVALID_ARGUMENT, "beyond step"),
            ("ReleaseLease", {"lease": lease.id, "token": ""}, CODE.FAILED_PRECONDITION, "token"),
            ("ExtendLease", {"lease": lease.id, "token": token, "seconds": 5},
             CODE.FAILED_PRECONDITION, "under no notice"),
            ("ExtendLease", {"lease": lease.id, "token": token}, CODE.INVALID_ARGUMENT, "seconds"),
            ("ResizeLease", {"lease": lease.id, "devices_min": 3, "devices_max": 3},
             CODE.INVALID_ARGUMENT, "server's 2"),
            ("SignalJob", {"job": lease.id, "signal": "TERM"}, CODE.FAILED_PRECONDITION,
             "no process")):
        must_refuse(server, name, code, text, **fields)
    job = outside.submit(server, "sleep 60")
    must_refuse(server, "ClaimLease", CODE.FAILED_PRECONDITION, "no lease held from outside", lease=job.id)
    waiting = call(server, "RequestLease", name="waits", devices_min=2)
    must_refuse(server, "ClaimLease", CODE.FAILED_PRECONDITION, "holds no device now", lease=waiting.id)


def test_a_notice_is_shown_extended_once_and_answered(start):
    server = start([], {"planner": {"notice_s": 20, "extension_s": 5}}).start()
    lease, token = held(server, devices_min=2, notice_s=20)
    cancelled = call(server, "PauseJob", job=lease.id)  # the owner wants it back: a notice too
    job = outside.wait_for(server, lease.id, lambda job: job.notice_deadline_wall_ns, 20,
                           "is under notice")
    assert cancelled.id == lease.id and job.notice_reason
    before = job.notice_deadline_wall_ns
    longer = call(server, "ExtendLease", lease=lease.id, token=token, seconds=3)
    assert 2.5e9 < longer.notice_deadline_wall_ns - before < 3.5e9
    must_refuse(server, "ExtendLease", CODE.FAILED_PRECONDITION, "used up", lease=lease.id, token=token, seconds=3)
    call(server, "ReleaseLease", lease=lease.id, token=token, requeue=True)
    outside.wait_state(server, lease.id, "PAUSED")
    must_refuse(server, "ReportLease", CODE.FAILED_PRECONDITION, "holds no device now", lease=lease.id, token=token)
    call(server, "ResumeJob", job=lease.id)
    outside.wait_for(server, lease.id, lambda job: outside.state(job) == "RUNNING", 20, "runs")
    again = call(server, "ClaimLease", lease=lease.id)
    assert again.token != token and again.lease.runs == 2
    must_refuse(server, "ReleaseLease", CODE.FAILED_PRECONDITION, "not that of its present run 2", lease=lease.id, token=token)


def test_what_is_not_given_back_is_quarantined_until_it_is(start):
    server = start([], {"planner": {"kill_bound_s": 1}}).start()
    lease, token = held(server, devices_min=1, notice_s=0.5)
    held_device = lease.devices[0]
    call(server, "CancelJob", job=lease.id)

    def state_of():
        device = next(d for d in server.list_devices() if d.id == held_device)
        return device if device.state == harness.Stubs.control.DEVICE_STATE_QUARANTINED else None
    device = harness.wait_until(state_of, 20 * harness.SLOWER, "quarantine")
    assert "has not given it back" in device.reason
    call(server, "ReleaseLease", lease=lease.id, token=token)
    assert outside.state(outside.wait_end(server, lease.id)) == "CANCELLED"
    server.control().RecoverDevice(harness.Stubs.control.RecoverDeviceRequest(device=held_device))
    other, _ = held(server, "other", devices_min=2)
    assert held_device in other.devices


def test_a_lease_its_token_and_its_devices_outlive_the_server(start):
    server = start([]).start()
    lease, token = held(server, devices_min=2, request_id="once")
    server.kill()
    server.start()
    assert call(server, "RequestLease", name="mine", devices_min=2, request_id="once").id == \
        lease.id
    found = outside.wait_for(server, lease.id, lambda job: job.devices, 20, "holds devices again")
    assert sorted(found.devices) == sorted(lease.devices) and found.runs == 1
    call(server, "ReportLease", lease=lease.id, token=token, step=3)
    assert call(server, "ClaimLease", lease=lease.id).token == token
    call(server, "ReleaseLease", lease=lease.id, token=token)
    assert outside.state(outside.wait_end(server, lease.id)) == "FINISHED"


def test_a_lease_wants_another_number_of_devices_when_it_waits_next(start):
    server = start([]).start()
    lease, token = held(server, devices_min=1)
    resized = call(server, "ResizeLease", lease=lease.id, devices_min=2, devices_max=2)
    assert len(resized.devices) == 1 and resized.devices_min == 2
    call(server, "ReleaseLease", lease=lease.id, token=token, requeue=True)
    outside.wait_for(server, lease.id, lambda job: len(job.devices) == 2 and
                     outside.state(job) == "RUNNING", 20, "holds 2")
    claimed = call(server, "ClaimLease", lease=lease.id)
    must_refuse(server, "ResizeLease", CODE.FAILED_PRECONDITION, "holds 2 devices now",
                lease=lease.id, devices_min=1, devices_max=1)
    server.kill()
    server.start()
    again = outside.wait_for(server, lease.id, lambda job: job.devices, 20, "holds devices again")
    assert again.devices_min == 2 and claimed.lease.runs == 2
