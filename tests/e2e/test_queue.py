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
LONG_RUN = 1_000_000  # rounds of the loop model: more than a minute, so that it gets cancelled


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


def waiting(server):
    return server.metrics().sum("nv_inference_pending_request_count", model="loop")


def block(server, calls):
    """A request that runs for seconds, so that the queue behind it stands still; cancel it."""
    blocker = calls.ModelInfer.future(loop_request(LONG_RUN), timeout=120 * harness.SLOWER)
    harness.wait_until(lambda: waiting(server) == 0 and server.metrics().sum(
        "tidepool_grpc_calls_open") >= 1, 5 * harness.SLOWER, "the blocker runs")
    return blocker


@pytest.mark.threads
@pytest.mark.case("BA-4 grpc")
def test_a_full_queue_refuses_fast_and_keeps_nothing(bounded):
    calls = stub(bounded)
    calls.ModelInfer(loop_request(1), timeout=20 * harness.SLOWER)
    rss, refused_before = bounded.rss_bytes(), refusals(bounded)
    blocker = block(bounded, calls)
    count, lock, results = 200, threading.Lock(), []

    def finished(future, began):
        took = time.monotonic() - began
        try:
            outcome = output(future.result()).tolist()
        except grpc.RpcError as error:
            outcome = error
        with lock:
            results.append((outcome, took))
    for _ in range(count):
        future = calls.ModelInfer.future(loop_request(3), timeout=120 * harness.SLOWER)
        future.add_done_callback(lambda f, began=time.monotonic(): finished(f, began))
    harness.wait_until(lambda: len(results) >= count - BOUND, 20 * harness.SLOWER, "refusals")
    assert waiting(bounded) == BOUND
    assert timed_refusal(calls) < 0.02 * harness.SLOWER
    blocker.cancel()
    harness.wait_until(lambda: len(results) == count, 60 * harness.SLOWER, "answers")
    full = [entry for entry in results if isinstance(entry[0], grpc.RpcError)]
    assert len(full) == count - BOUND
    assert all(outcome == [[3]] for outcome, _ in results
               if not isinstance(outcome, grpc.RpcError))
    for error, _ in full:
        assert error.code() == CODE.RESOURCE_EXHAUSTED
        assert "queue" in error.details() and "full" in error.details()
        assert str(BOUND) in error.details()
    # 200 calls take this client itself some time to send: the median tells the server's part.
    waits = sorted(took for _, took in full)
    assert waits[len(waits) // 2] < (0.02 + 0.1) * harness.SLOWER
    assert refusals(bounded) - refused_before == len(full) + REFUSED_ALONE
    if harness.MEASURES_MEMORY:
        assert bounded.rss_bytes() < rss * 1.05 + (4 << 20)


REFUSED_ALONE = 5


def timed_refusal(calls):
    """Seconds that one refusal takes when the client has nothing else to do: the best of some."""
    took = []
    for _ in range(REFUSED_ALONE):
        began = time.monotonic()
        error = refused(calls.ModelInfer, loop_request(1), timeout=10)
        took.append(time.monotonic() - began)
        assert error.code() == CODE.RESOURCE_EXHAUSTED
        assert pushback_ms(error) >= 1
    return min(took)


def pushback_ms(error):
    """When a client that retries by itself is told to come again; negative: not at all."""
    return int(dict(error.trailing_metadata())["grpc-retry-pushback-ms"])


@pytest.mark.case("BA-4 bytes")
def test_the_bound_counts_bytes_too(bounded):
    big = np.zeros((1, 2 << 20), np.float32)  # 8 MiB
    error = refused(stub(bounded).ModelInfer, array_request("bytes_bound", big),
                    timeout=20 * harness.SLOWER)
    assert error.code() == CODE.RESOURCE_EXHAUSTED
    assert "queue" in error.details() and str(1 << 20) in error.details()
    assert pushback_ms(error) == -1
    small = np.zeros((1, 1000), np.float32)
    answer = stub(bounded).ModelInfer(array_request("bytes_bound", small), timeout=10)
    assert answer.raw_output_contents[0] == small.tobytes()
