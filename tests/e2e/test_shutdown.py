"""SIGTERM: readiness off, what was accepted is finished, exit 0 (the gRPC side of SH-1)."""
import signal
import socket
import time

import grpc
import pytest

import harness
import jobs
import raw
from kserve import CODE, output, pb, refused, request, stub, tensor

TENTH = 1400  # rounds of the loop: about 0.1 s on one core
ONE_DEVICE = {"devices": {"cpu_devices": 1, "cores_per_device": 1}}


def loop_request(rounds):
    return request("loop", [tensor("COUNT", "INT64", [1, 1], {"int64_contents": [rounds]})])


@pytest.mark.threads
def test_accepted_requests_finish_and_new_ones_are_refused(start):
    server = start(["identity_fp32", "loop"], ONE_DEVICE).start()
    calls = stub(server)
    quiet = raw.Connection(server.connect())  # open, without a call
    assert quiet.wait(lambda: quiet.h2.remote_settings.max_concurrent_streams, 5)
    messages = [loop_request(5 * TENTH)] + [loop_request(TENTH // 2 + i) for i in range(10)]
    futures = [calls.ModelInfer.future(message, timeout=60 * harness.SLOWER)
               for message in messages]
    harness.wait_until(lambda: server.metrics().sum(
        "nv_inference_pending_request_count", model="loop") >= 7, 10 * harness.SLOWER, "a queue")
    server.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    # The quiet connection is told to go elsewhere, while the others are still being answered.
    assert quiet.wait(lambda: quiet.goaways, 5 * harness.SLOWER)
    assert quiet.goaways[0][0] == 0
    for future, message in zip(futures, messages):
        count = message.inputs[0].contents.int64_contents[0]
        assert output(future.result()).tolist() == [[count]]
    assert server.process.wait(20 * harness.SLOWER) == 0
    assert time.monotonic() - began < 12 * harness.SLOWER
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.ports["inference"]), timeout=1)
    assert refused(calls.ModelInfer, loop_request(1), timeout=2).code() in (
        CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED)
    assert server.stop() == 0


def test_an_idle_server_stops_at_once(start):
    server = start(["identity_fp32"]).start()
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 2 * harness.SLOWER


@pytest.mark.threads
def test_a_stop_while_training_keeps_the_job(start, tmp_path):
    server = start([]).start()
    job = server.submit(jobs.digits_job(tmp_path, 10_000_000))
    before = jobs.wait_step(server, job.id, 100, 30 * harness.SLOWER).step
    assert server.stop() == 0
    server.start()
    after = jobs.wait_step(server, job.id, before, 30 * harness.SLOWER)
    assert after.state == harness.Stubs.control.JOB_STATE_RUNNING
    # It went on from the state at the stop, not from the beginning.
    assert server.get_job(job.id).loss_last < after.loss_first


def test_two_servers_do_not_share_a_state_folder(start):
    first = start([], name="shared").start()
    second = start([], name="second")
    second.config["state"] = first.state
    second.spawn()
    code = second.process.wait(20 * harness.SLOWER)
    second.process = None
    assert code != 0
    assert first.state in second.log()


def test_infer_after_readiness_never_fails(start):
    """Readiness means that the first call is answered."""
    server = start(["identity_fp32", "add_one", "row_sums"]).start()
    answer = stub(server).ModelReady(pb.ModelReadyRequest(name="add_one"), timeout=5)
    assert answer.ready
    with pytest.raises(grpc.RpcError):
        stub(server).ModelReady(pb.ModelReadyRequest(name="absent"), timeout=5)
