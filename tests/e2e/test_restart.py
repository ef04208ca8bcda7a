"""What a restart finds again: jobs, endpoints, what was told; and what it says of what it lost."""
import glob
import os
import sqlite3

import grpc
import numpy as np
import pytest

import harness
import jobs
import models
from kserve import array_request, output, pb, refused, stub

STEPS = harness.scale({"release": 1500, "asan": 800, "tsan": 400}[harness.VARIANT], 20_000)


def undisturbed(start, tmp_path):
    server = start([], name="undisturbed").start()
    job = server.submit(jobs.digits_job(tmp_path, STEPS))
    done = jobs.wait_state(server, job.id, "FINISHED", 120 * harness.SLOWER)
    assert done.step == STEPS
    assert done.loss_last < done.loss_first / 2
    assert done.held_out_accuracy_fraction > 0.9
    expected = jobs.weights(done.export_path)
    assert server.stop() == 0
    return expected


@pytest.mark.threads
def test_kill_9_three_times_leaves_the_same_weights(start, tmp_path):
    expected = undisturbed(start, tmp_path)
    server = start([], name="crashed").start()
    job = server.submit(jobs.digits_job(tmp_path, STEPS), request_id="the-only-one")
    for crash in range(3):
        jobs.wait_step(server, job.id, (crash + 1) * STEPS // 5, 60 * harness.SLOWER)
        server.kill()
        server.start()
        found = server.get_job(job.id)
        assert found.id == job.id
        # The same request submitted again is the same job.
        assert server.submit(jobs.digits_job(tmp_path, STEPS),
                             request_id="the-only-one").id == job.id
    done = jobs.wait_state(server, job.id, "FINISHED", 120 * harness.SLOWER)
    assert done.step == STEPS
    assert jobs.weights(done.export_path) == expected
    assert server.get_status().ledger_balanced


def test_what_was_trained_here_is_served_here(start, tmp_path):
    server = start([]).start()
    job = server.submit(jobs.digits_job(tmp_path, 400))
    done = jobs.wait_state(server, job.id, "FINISHED", 60 * harness.SLOWER)
    request = harness.Stubs.control.ServeModelRequest(path=done.export_path, name="trained",
                                                      slo_ms=50)
    server.control().ServeModel(request, timeout=30 * harness.SLOWER)
    harness.wait_until(lambda: any(e.name == "trained" and e.instances_ready
                                   for e in server.list_endpoints()), 30 * harness.SLOWER,
                       "the endpoint is ready")
    metadata = stub(server).ModelMetadata(
        pb.ModelMetadataRequest(name="trained"), timeout=10)
    features = np.load(tmp_path / "features.npy")[:32]
    labels = np.load(tmp_path / "labels.npy")[:32]
    answer = output(stub(server).ModelInfer(
        array_request("trained", features, name=metadata.inputs[0].name), timeout=20))
    assert (answer.argmax(1) == labels).mean() > 0.9
    # A restart finds the endpoint again.
    assert server.stop() == 0
    server.start()
    harness.wait_until(lambda: any(e.name == "trained" and e.instances_ready
                                   for e in server.list_endpoints()), 30 * harness.SLOWER,
                       "the endpoint is back")


class Lock:
    """Keeps the server's store from being written."""

    def __init__(self, server):
        self.database = sqlite3.connect(os.path.join(server.state, "tidepool.db"),
                                        isolation_level=None)

    def __enter__(self):
        self.database.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_):
        self.database.execute("ROLLBACK")
        self.database.close()


def test_what_was_answered_holds_after_kill_9_and_nothing_is_answered_earlier(start, tmp_path):
    models.write(tmp_path / "elsewhere", ["add_one"])
    path = str(tmp_path / "elsewhere" / "add_one" / "1" / "model.onnx")
    server = start([]).start()
    messages = harness.Stubs.control
    server.control().ServeModel(messages.ServeModelRequest(path=path, name="extra"),
                                timeout=30 * harness.SLOWER)
    job = server.submit(jobs.digits_job(tmp_path, 10_000_000))
    jobs.wait_state(server, job.id, "RUNNING", 30 * harness.SLOWER)
    with Lock(server):
        cancel = server.control().CancelJob.future(messages.CancelJobRequest(job=job.id),
                                                   timeout=20)
        stop = server.control().StopServing.future(messages.StopServingRequest(name="extra"),
                                                   timeout=20)
        jobs.wait_state(server, job.id, ["STOPPING", "CANCELLED"], 1)
        harness.wait_until(lambda: [e.state for e in server.list_endpoints()] ==
                           [messages.ENDPOINT_STATE_STOPPING], 1, "the endpoint is to be stopped")
        assert not cancel.done() and not stop.done()
    assert cancel.result().id == job.id
    assert stop.result().name == "extra"
    server.kill()
    server.start()
    assert jobs.state(server, job.id) == "JOB_STATE_CANCELLED"
    assert not server.list_endpoints()


def test_a_request_id_outlives_its_job_and_ends_after_a_day(start, tmp_path):
    server = start([]).start()
    job = server.submit(jobs.digits_job(tmp_path, 10), request_id="mine")
    jobs.wait_state(server, job.id, "FINISHED", 60 * harness.SLOWER)
    assert server.stop() == 0

    def database_do(statement):
        database = sqlite3.connect(os.path.join(server.state, "tidepool.db"))
        with database:
            database.execute(statement)
        database.close()
    # As if a thousand jobs had ended since.
    database_do("DELETE FROM jobs")
    server.start()
    error = refused(server.submit, jobs.digits_job(tmp_path, 10), request_id="mine")
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION and job.id in error.details()
    assert server.stop() == 0
    database_do("UPDATE requests SET made_wall_ns = made_wall_ns - 86400000000000")
    server.start()
    again = server.submit(jobs.digits_job(tmp_path, 10), request_id="mine")
    assert again.number == job.number + 1
    server.kill()
    server.start()
    assert server.submit({}, request_id="mine").id == again.id


def test_a_damaged_database_is_moved_aside_and_its_jobs_are_not_continued(start, tmp_path):
    server = start([]).start()
    job = server.submit(jobs.digits_job(tmp_path, 200))
    jobs.wait_state(server, job.id, "FINISHED", 60 * harness.SLOWER)
    epoch = server.get_status().store_epoch
    assert server.stop() == 0
    path = os.path.join(server.state, "tidepool.db")
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (os.path.getsize(path) - 4096))
    server.start()
    moved, = glob.glob(path + ".damaged-*Z")
    assert os.path.getsize(moved) >= 8192
    assert "error store: damaged, moved aside" in server.log() and moved in server.log()
    status = server.get_status()
    assert status.store_epoch == epoch + 1 and status.revision >> 40 == epoch + 1
    # The same job again is another one: it does not go on from the finished one's checkpoint.
    again = server.submit(jobs.digits_job(tmp_path, 400))
    assert again.number > job.number and again.id != job.id
    done = jobs.wait_state(server, again.id, "FINISHED", 60 * harness.SLOWER)
    assert done.loss_first > 2
    assert server.stop() == 0
    server.start()
    assert server.get_job(again.id).step == 400
