"""A training job lives through crashes of the server."""
import numpy as np
import pytest

import harness
import jobs
from kserve import array_request, output, pb, stub

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
