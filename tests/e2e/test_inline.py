"""Quick runs of lone requests are done by the network thread that reads them."""
import threading

import numpy as np
import pytest

import harness
from kserve import array_request, output, stub


def executions(server, where):
    return server.metrics().sum(where, model="add_one")


def ask(calls, number):
    array = np.full((1, 4), number, np.float32)
    answer = output(calls.ModelInfer(array_request("add_one", array), timeout=30 * harness.SLOWER))
    np.testing.assert_array_equal(answer, array + 1)


@pytest.mark.threads
def test_a_lone_caller_is_answered_by_the_thread_that_reads(start):
    # A millisecond: on a sanitizer's build nothing is quicker.
    server = start(["row_sums"], {"inline_us": 1000})
    harness.models.write_model(server.repository, "add_one", harness.models.add_one())
    harness.models.write_json(server.repository, "add_one", {"max_batch": 16})
    server.start()
    calls = stub(server)
    sent = 0

    def some_inline():
        nonlocal sent
        for _ in range(50):
            ask(calls, sent)
            sent += 1
        return executions(server, "tidepool_inline_executions") >= 20
    harness.wait_until(some_inline, 60 * harness.SLOWER, "a request runs inline")
    assert executions(server, "nv_inference_exec_count") == sent
    assert executions(server, "nv_inference_request_success") == sent
    # Beside others, each caller has its own answers all the same.
    failures = []

    def caller(first):
        try:
            own = stub(server)
            for number in range(100):
                ask(own, first + number)
        except Exception as error:  # shown by the main thread
            failures.append(error)
    callers = [threading.Thread(target=caller, args=(1000 * n,)) for n in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not failures
    assert executions(server, "nv_inference_request_success") == sent + 400


def test_inline_us_0_leaves_all_runs_to_the_device(start):
    server = start(["row_sums"], {"inline_us": 0})
    harness.models.write_model(server.repository, "add_one", harness.models.add_one())
    harness.models.write_json(server.repository, "add_one", {"max_batch": 16})
    server.start()
    calls = stub(server)
    for number in range(300):
        ask(calls, number)
    assert executions(server, "nv_inference_exec_count") == 300
    assert executions(server, "tidepool_inline_executions") == 0
