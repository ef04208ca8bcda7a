"""The queue has a bound and says so at once (BA-4)."""
import threading
import time

import grpc
import numpy as np
import pytest

import harness
import models
from kserve import CODE, array_request, output, refused, request, stub, tensor

BOUND = 16
HALF_SECOND = 7000  # rounds of the loop model: about 0.5 s on one core


@pytest.fixture(scope="module")
def bounded(stubs, tmp_path_factory):
    """One device; `loop` takes 16 waiting requests, `identity_fp32` 1 MiB of them."""
    server = harness.Server(tmp_path_factory.mktemp("bounded"), ["identity_fp32"],
                            {"devices": {"cpu_devices": 1, "cores_per_device": 1}})
    built, _ = models.loop(max_batch=1)
    models.write_model(server.repository, "loop", (built, None))
    models.write_json(server.repository, "loop", {"max_batch": 1, "queue": {"requests": BOUND}})
    built, _ = models.identity(models.TensorProto.FLOAT)
    models.write_model(server.repository, "bytes_bound", (built, None))
    models.write_json(server.repository, "bytes_bound", {"max_batch": 8, "queue": {"bytes": 1 << 20}})
    server.start()
    yield server
    assert server.stop() == 0


def loop_request(rounds):
    return request("loop", [tensor("COUNT", "INT64", [1, 1], {"int64_contents": [rounds]})])


def refusals(server):
    return sum(e.requests_refused for e in server.list_endpoints() if e.name == "loop")


@pytest.mark.threads
@pytest.mark.case("BA-4 grpc")
def test_a_full_queue_refuses_fast_and_keeps_nothing(bounded):
    calls = stub(bounded)
    calls.ModelInfer(loop_request(1), timeout=20 * harness.SLOWER)
    rss, refused_before = bounded.rss_bytes(), refusals(bounded)
    count, lock, results = 200, threading.Lock(), []
    done = threading.Semaphore(0)

    def finished(future, began):
        took = time.monotonic() - began
        try:
            outcome = output(future.result()).tolist()
        except grpc.RpcError as error:
            outcome = error
        with lock:
            results.append((outcome, took))
        done.release()
    rounds = harness.scale(HALF_SECOND // 5, HALF_SECOND)
    message = loop_request(rounds)
    for _ in range(count):
        future = calls.ModelInfer.future(message, timeout=60 * harness.SLOWER)
        future.add_done_callback(lambda f, began=time.monotonic(): finished(f, began))
    for _ in range(count):
        assert done.acquire(timeout=60 * harness.SLOWER)
    accepted = [entry for entry in results if not isinstance(entry[0], grpc.RpcError)]
    full = [entry for entry in results if isinstance(entry[0], grpc.RpcError)]
    # At most the bound waits; one more may have been running, and one finished, meanwhile.
    assert BOUND <= len(accepted) <= BOUND + 3
    assert all(outcome == [[rounds]] for outcome, _ in accepted)
    for error, _ in full:
        assert error.code() == CODE.RESOURCE_EXHAUSTED
        assert "queue" in error.details() and "full" in error.details()
        assert str(BOUND) in error.details()
    # 200 calls take this client itself some time to send: the median tells the server's part.
    waits = sorted(took for _, took in full)
    assert waits[len(waits) // 2] < (0.02 + 0.1) * harness.SLOWER
    assert waits[-1] < 0.5 * harness.SLOWER
    assert refusals(bounded) - refused_before == len(full)
    if harness.MEASURES_MEMORY:
        assert bounded.rss_bytes() < rss * 1.05 + (4 << 20)
    assert refused_alone(bounded, rounds) < 0.02 * harness.SLOWER


def refused_alone(server, rounds):
    """Seconds that one refusal takes when the client has nothing else to do."""
    calls = stub(server)
    futures = [calls.ModelInfer.future(loop_request(rounds), timeout=60 * harness.SLOWER)
               for _ in range(BOUND + 1)]
    harness.wait_until(lambda: server.metrics().sum(
        "nv_inference_pending_request_count", model="loop") == BOUND, 5 * harness.SLOWER, "full")
    best = min(timed_refusal(calls) for _ in range(5))
    for future in futures:
        future.cancel()
    return best


def timed_refusal(calls):
    began = time.monotonic()
    error = refused(calls.ModelInfer, loop_request(1), timeout=10)
    took = time.monotonic() - began
    assert error.code() == CODE.RESOURCE_EXHAUSTED
    return took


@pytest.mark.case("BA-4 bytes")
def test_the_bound_counts_bytes_too(bounded):
    big = np.zeros((1, 2 << 20), np.float32)  # 8 MiB
    error = refused(stub(bounded).ModelInfer, array_request("bytes_bound", big),
                    timeout=20 * harness.SLOWER)
    assert error.code() == CODE.RESOURCE_EXHAUSTED
    assert "queue" in error.details() and str(1 << 20) in error.details()
    small = np.zeros((1, 1000), np.float32)
    answer = stub(bounded).ModelInfer(array_request("bytes_bound", small), timeout=10)
    assert answer.raw_output_contents[0] == small.tobytes()
