"""The control API: who may change things, jobs by hand, hold and mode over a restart, Watch."""
import json
import os
import resource
import sqlite3
import threading

import grpc
import pytest

import harness
import jobs
from kserve import CODE, identity_request, output, refused, stub

LONG_JOB = 10_000_000


def messages():
    return harness.Stubs.control


def over_tcp(server):
    return harness.Stubs.control_rpc.ControlStub(server.channel())


# ---- who may ------------------------------------------------------------------------------------


def test_tcp_reads_and_changes_nothing(server):
    tcp = over_tcp(server)
    assert tcp.GetStatus(messages().GetStatusRequest(), timeout=10).devices == 2
    error = refused(tcp.SetHold, messages().SetHoldRequest(hold=True), timeout=10)
    assert error.code() == CODE.PERMISSION_DENIED
    assert "token_file" in error.details() and "Unix socket" in error.details()
    assert not server.get_status().hold


def test_a_token_lets_tcp_change(start, tmp_path):
    path = tmp_path / "token"
    path.write_text("a-secret-of-some-length\n", encoding="ascii")
    path.chmod(0o600)
    server = start(["identity_fp32"], {"token_file": str(path), "testing": False}).start()
    tcp, hold = over_tcp(server), messages().SetHoldRequest(hold=True, reason="by token")
    wrong = refused(tcp.SetHold, hold, timeout=10,
                    metadata=[("authorization", "Bearer a-secret-of-some-other")])
    assert wrong.code() == CODE.PERMISSION_DENIED and "token" in wrong.details()
    right = [("authorization", "Bearer a-secret-of-some-length")]
    assert tcp.SetHold(hold, timeout=10, metadata=right).hold_reason == "by token"
    # Faults are for the Unix socket, or for a server that is there for tests.
    fault = messages().InjectDeviceFaultRequest(device="0")
    assert refused(tcp.InjectDeviceFault, fault, timeout=10,
                   metadata=right).code() == CODE.PERMISSION_DENIED
    assert server.control().InjectDeviceFault(fault, timeout=10).state \
        == messages().DEVICE_STATE_FAILED


def test_a_token_that_others_can_read_is_refused(start, tmp_path):
    path = tmp_path / "token"
    path.write_text("a-secret-of-some-length\n", encoding="ascii")
    path.chmod(0o644)
    server = start([], {"token_file": str(path)})
    server.spawn()
    assert server.process.wait(30 * harness.SLOWER) != 0
    server.process = None
    assert str(path) in server.log() and "chmod 600" in server.log()


# ---- devices ------------------------------------------------------------------------------------


def test_a_device_that_has_not_failed_cannot_recover(server):
    error = refused(server.control().RecoverDevice,
                    messages().RecoverDeviceRequest(device="0"), timeout=10)
    assert error.code() == CODE.FAILED_PRECONDITION
    error = refused(server.control().RecoverDevice,
                    messages().RecoverDeviceRequest(device="gpu:7"), timeout=10)
    assert error.code() == CODE.NOT_FOUND
    assert all(device.id in error.details() for device in server.list_devices())


# ---- jobs ---------------------------------------------------------------------------------------


@pytest.fixture
def job_server(start, tmp_path):
    server = start(["identity_fp32"]).start()
    server.job = server.submit(jobs.digits_job(tmp_path, LONG_JOB), request_id="one")
    jobs.wait_state(server, server.job.id, "RUNNING", 30 * harness.SLOWER)
    return server


@pytest.mark.threads
def test_a_job_is_paused_resumed_and_cancelled(job_server):
    control, job = job_server.control(), job_server.job
    control.PauseJob(messages().PauseJobRequest(job=job.id), timeout=10)
    paused = jobs.wait_state(job_server, job.id, "PAUSED", 10 * harness.SLOWER)
    assert list(paused.devices) == []
    control.ResumeJob(messages().ResumeJobRequest(job=str(job.number)), timeout=10)
    jobs.wait_step(job_server, job.id, paused.step + 5, 20 * harness.SLOWER)
    control.CancelJob(messages().CancelJobRequest(job=job.id), timeout=10)
    jobs.wait_state(job_server, job.id, "CANCELLED", 10 * harness.SLOWER)
    error = refused(control.PauseJob, messages().PauseJobRequest(job=job.id), timeout=10)
    assert error.code() == CODE.FAILED_PRECONDITION and "cancelled" in error.details()
    # It stays what it is over a restart, and its request id stays its own.
    assert job_server.stop() == 0
    job_server.start()
    assert jobs.state(job_server, job.id) == "JOB_STATE_CANCELLED"
    assert job_server.submit({}, request_id="one").id == job.id
    assert job_server.get_status().ledger_balanced


def test_a_paused_job_stays_paused_over_a_restart(job_server):
    control, job = job_server.control(), job_server.job
    control.PauseJob(messages().PauseJobRequest(job=job.id), timeout=10)
    step = jobs.wait_state(job_server, job.id, "PAUSED", 10 * harness.SLOWER).step
    assert job_server.stop() == 0
    job_server.start()
    assert jobs.wait_state(job_server, job.id, "PAUSED", 20 * harness.SLOWER).step == step
    job_server.control().ResumeJob(messages().ResumeJobRequest(job=job.id), timeout=10)
    jobs.wait_step(job_server, job.id, step + 5, 30 * harness.SLOWER)


def test_a_job_cancelled_on_a_full_disk_stays_cancelled(job_server):
    job = job_server.job
    limits = resource.prlimit(job_server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(job_server.process.pid, resource.RLIMIT_FSIZE, (0, limits[1]))
    error = refused(job_server.control().CancelJob, messages().CancelJobRequest(job=job.id),
                    timeout=10)
    assert "done, but a restart will not know of it" in error.details()
    jobs.wait_state(job_server, job.id, "CANCELLED", 10 * harness.SLOWER)
    harness.wait_until(lambda: job_server.metrics().sum("tidepool_store_errors") > 0,
                       10 * harness.SLOWER, "the store cannot write")
    resource.prlimit(job_server.process.pid, resource.RLIMIT_FSIZE, limits)
    database = sqlite3.connect(os.path.join(job_server.state, "tidepool.db"))
    harness.wait_until(
        lambda: database.execute("SELECT state FROM jobs").fetchall() == [("cancelled",)],
        30 * harness.SLOWER, "the store has it")
    database.close()
    job_server.kill()
    job_server.start()
    assert jobs.state(job_server, job.id) == "JOB_STATE_CANCELLED"


def test_a_token_exports_into_the_model_repository_alone(start, tmp_path):
    path = tmp_path / "token"
    path.write_text("a-secret-of-some-length\n", encoding="ascii")
    path.chmod(0o600)
    server = start([], {"token_file": str(path)}).start()
    token = [("authorization", "Bearer a-secret-of-some-length")]
    wanted = jobs.digits_job(tmp_path, 5)

    def submit(repository):
        wanted["export"]["repository"] = repository
        request = messages().SubmitJobRequest(spec_json=json.dumps(wanted))
        return over_tcp(server).SubmitJob(request, timeout=10, metadata=token)
    for elsewhere in (str(tmp_path), "/no/such/folder", server.repository + "/..",
                      server.repository + "/digits"):
        error = refused(submit, elsewhere)
        assert error.code() == CODE.PERMISSION_DENIED and server.repository in error.details()
    job = submit(server.repository + "/.")
    assert jobs.wait_state(server, job.id, "FINISHED", 30 * harness.SLOWER).export_path \
        == server.repository + "/./digits/1/model.onnx"


def test_what_a_job_exports_is_served_as_its_config_says(start, tmp_path):
    server = start([]).start()
    wanted = jobs.digits_job(tmp_path, 5, export={
        "repository": server.repository, "name": "mine",
        "config": {"max_batch": 24, "slo": {"latency_ms": 37, "target": 0.9}, "devices": "1:2"}})
    job = server.submit(wanted)
    jobs.wait_state(server, job.id, "FINISHED", 30 * harness.SLOWER)
    made = server.control().ServeModel(messages().ServeModelRequest(model="mine"),
                                       timeout=30 * harness.SLOWER)
    assert (made.batch_max, made.slo_ms, made.slo_target_fraction) == (24, 37, 0.9)
    assert (made.devices_min, made.devices_max) == (1, 2)
    # What serving would refuse is refused before it is trained for.
    wanted["export"]["config"]["max_bach"] = 8
    error = refused(server.submit, wanted)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert "job.export.config: unknown key 'max_bach'" in error.details()


def test_explain_tells_of_the_grant(job_server):
    story = job_server.explain(job=job_server.job.id)
    assert job_server.job.id in story.summary
    grants = [move for move in story.moves if move.what == "grant"]
    assert grants and grants[-1].device in [d.id for d in job_server.list_devices()]
    assert grants[-1].to == "job " + job_server.job.id and grants[-1].done
    assert refused(job_server.explain, job="nobody-7").code() == CODE.NOT_FOUND


# ---- hold and mode ------------------------------------------------------------------------------


def test_hold_and_mode_hold_over_a_restart(start):
    server = start(["identity_fp32"]).start()
    server.control().SetMode(messages().SetModeRequest(mode=messages().MODE_ADVISE), timeout=10)
    server.control().SetHold(messages().SetHoldRequest(hold=True, reason="a long weekend"),
                             timeout=10)
    assert server.stop() == 0
    server.start(ready=False)
    status = server.get_status()
    assert status.mode == messages().MODE_ADVISE
    assert status.hold and status.hold_reason == "a long weekend" and status.hold_since_wall_ns
    server.control().SetMode(messages().SetModeRequest(mode=messages().MODE_ACT), timeout=10)
    server.control().SetHold(messages().SetHoldRequest(hold=False), timeout=10)
    harness.wait_until(server.is_ready, 30 * harness.SLOWER, "readiness without hold")
    assert output(stub(server).ModelInfer(identity_request(), timeout=10)).tolist() \
        == [[0, 1, 2, 3]]


# ---- endpoints ----------------------------------------------------------------------------------


def test_an_endpoint_is_stopped_and_served_again(start):
    server = start(["identity_fp32", "add_one"]).start()
    control = server.control()
    serve = messages().ServeModelRequest(model="add_one")
    assert refused(control.ServeModel, serve, timeout=20).code() == CODE.ALREADY_EXISTS
    control.StopServing(messages().StopServingRequest(name="add_one"), timeout=10)
    harness.wait_until(lambda: [e.name for e in server.list_endpoints()] == ["identity_fp32"],
                       20 * harness.SLOWER, "add_one is gone")
    assert refused(stub(server).ModelInfer, identity_request(model="add_one"),
                   timeout=10).code() == CODE.NOT_FOUND
    assert control.ServeModel(serve, timeout=20 * harness.SLOWER).name == "add_one"
    harness.wait_until(lambda: all(e.instances_ready for e in server.list_endpoints()),
                       20 * harness.SLOWER, "both are ready")
    error = refused(control.StopServing, messages().StopServingRequest(name="add_two"), timeout=10)
    assert error.code() == CODE.NOT_FOUND and "add_one" in error.details()


# ---- watch --------------------------------------------------------------------------------------


def take_until(stream, wanted):
    """All changes up to and with the first that `wanted` likes."""
    seen = []
    for change in stream:
        seen.append(change)
        if wanted(change):
            return seen
    raise AssertionError("the stream ended")


def synced(change):
    return change.WhichOneof("object") == "synced"


def held(change):
    return change.WhichOneof("object") == "status" and change.status.hold


@pytest.mark.threads
def test_watch_begins_with_everything_and_goes_on_where_it_stopped(start):
    server = start(["identity_fp32"]).start()
    control = server.control()
    first = control.Watch(messages().WatchRequest(), timeout=60)
    kinds = [change.WhichOneof("object") for change in take_until(first, synced)]
    assert kinds.count("status") == 1 and kinds.count("device") == 2
    assert kinds.count("endpoint") == 1
    control.SetHold(messages().SetHoldRequest(hold=True, reason="look"), timeout=10)
    last = take_until(first, held)[-1].revision
    first.cancel()
    control.SetHold(messages().SetHoldRequest(hold=False), timeout=10)
    control.StopServing(messages().StopServingRequest(name="identity_fp32"), timeout=10)
    harness.wait_until(lambda: not server.list_endpoints(), 20 * harness.SLOWER, "it is gone")
    again = control.Watch(messages().WatchRequest(after_revision=last), timeout=60)
    missed = take_until(again, synced)
    assert any(change.WhichOneof("object") == "status" and not change.status.hold
               for change in missed)
    assert [change.removed.endpoint for change in missed
            if change.WhichOneof("object") == "removed"] == ["identity_fp32"]
    revisions = [change.revision for change in missed]
    assert revisions == sorted(revisions)
    again.cancel()


def test_watch_refuses_a_revision_of_another_run(start):
    server = start(["identity_fp32"]).start()
    last = take_until(server.control().Watch(messages().WatchRequest(), timeout=20),
                      synced)[-1].revision
    assert server.stop() == 0
    server.start()
    with pytest.raises(grpc.RpcError) as caught:
        next(server.control().Watch(messages().WatchRequest(after_revision=last), timeout=20))
    assert caught.value.code() == CODE.OUT_OF_RANGE
    assert server.list_devices()[0].revision > last


@pytest.mark.threads
def test_many_watchers_come_and_go(server):
    control, done = server.control(), []

    def follow():
        for _ in range(5):
            stream = control.Watch(messages().WatchRequest(interval_ms=100), timeout=30)
            take_until(stream, synced)
            stream.cancel()
        done.append(True)
    threads = [threading.Thread(target=follow) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * harness.SLOWER)
        assert not thread.is_alive()
    assert len(done) == len(threads)


# ---- the process --------------------------------------------------------------------------------


def test_a_second_server_on_the_same_state_is_refused(start):
    server = start(["identity_fp32"]).start()
    other = start([], name="other")
    other.config["state"] = server.state
    other.spawn()
    assert other.process.wait(30 * harness.SLOWER) != 0
    other.process = None
    assert "in use by another tidepoold" in other.log() and str(server.process.pid) in other.log()


def test_sighup_reads_the_configuration_again(start):
    server = start(["identity_fp32"], {"testing": False}).start()
    server.config.update({"testing": True, "drain_s": 3})
    server.write_config()
    os.kill(server.process.pid, 1)
    harness.wait_until(lambda: server.get_status().testing, 10 * harness.SLOWER, "testing is on")
    assert 'changed="testing"' in server.log() and 'needs_restart="drain_s"' in server.log()
    server.config["drian_s"] = 3
    server.write_config()
    os.kill(server.process.pid, 1)
    harness.wait_until(lambda: "not reloaded" in server.log(), 10 * harness.SLOWER, "the mistake")
    assert "drian_s" in server.log() and server.get_status().testing
