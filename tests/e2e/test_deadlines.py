"""Deadlines and clients that are gone (DC-1, DC-2)."""
import time

import pytest

import harness
import raw
from kserve import identity_request, output, request, statistics, stub, tensor

GOOD = identity_request().SerializeToString()


def loop_request(rounds, rows=1):
    return request("loop", [tensor("COUNT", "INT64", [rows, 1],
                                   {"int64_contents": [rounds] * rows})])


@pytest.fixture
def connection(server):
    made = raw.Connection(server.connect())
    yield made
    made.close()


# ---- DC-2 ---------------------------------------------------------------------------------------

LONG_ENOUGH = ["1M", "1H", "99999999H", "99999999M", "30S", "60000m", "60000000u"]
TOO_SHORT = ["1n", "1u", "0S", "0n", "0H"]
MALFORMED = ["100000000S", "-1S", "1.5S", "1s", "S", "", "1 S", "+1S", "0x1S", "1S1", "1"]


@pytest.mark.case("DC-2 legal")
@pytest.mark.parametrize("value", LONG_ENOUGH)
def test_timeouts_that_leave_time(connection, value):
    reply = connection.call(GOOD, extra=[("grpc-timeout", value)])
    assert reply.status == 0, reply.message


@pytest.mark.case("DC-2 legal")
@pytest.mark.parametrize("value", TOO_SHORT)
def test_timeouts_that_are_over_run_nothing(server, connection, value):
    before = statistics(server, "identity_fp32").execution_count
    assert connection.call(GOOD, extra=[("grpc-timeout", value)]).status == 4
    assert statistics(server, "identity_fp32").execution_count == before


@pytest.mark.case("DC-2 legal")
@pytest.mark.parametrize("value,seconds", [("300m", 0.3), ("300000u", 0.3), ("99999999n", 0.1),
                                           ("1S", 1.0)])
def test_timeouts_are_honoured_in_their_unit(connection, value, seconds):
    began = time.monotonic()
    reply = connection.call(loop_request(1_000_000).SerializeToString(),
                            extra=[("grpc-timeout", value)])
    took = time.monotonic() - began
    assert reply.status == 4 or reply.reset == 8
    assert seconds * 0.95 <= took < seconds + 0.5 * harness.SLOWER


@pytest.mark.case("DC-2 malformed")
@pytest.mark.parametrize("value", MALFORMED, ids=repr)
def test_malformed_timeouts_share_one_outcome(server, connection, value):
    before = statistics(server, "identity_fp32").execution_count
    reply = connection.call(GOOD, extra=[("grpc-timeout", value)])
    assert reply.status == 13
    assert "grpc-timeout" in reply.message
    assert statistics(server, "identity_fp32").execution_count == before
    assert connection.call(GOOD).status == 0


@pytest.mark.case("DC-2 two headers")
def test_two_timeout_headers_are_malformed(connection):
    reply = connection.call(GOOD, extra=[("grpc-timeout", "1H"), ("grpc-timeout", "2H")])
    assert reply.status == 13


@pytest.mark.case("DC-2 parameter")
@pytest.mark.parametrize("parameter_us,header,seconds", [(200_000, "60S", 0.2),
                                                         (60_000_000, "200m", 0.2)])
def test_the_earlier_of_parameter_and_header_counts(single, parameter_us, header, seconds):
    """Behind a running request: the one that waits is given up when the earlier time is over."""
    connection = raw.Connection(single.connect())
    blocker = connection.headers()
    connection.data(blocker, raw.frame(loop_request(1_000_000).SerializeToString()))
    wait_running(single)
    message = loop_request(1)
    message.parameters["timeout"].int64_param = parameter_us
    began = time.monotonic()
    reply = connection.call(message.SerializeToString(), extra=[("grpc-timeout", header)])
    took = time.monotonic() - began
    connection.cancel(blocker)
    connection.flush()
    connection.close()
    assert reply.status == 4 or reply.reset == 8
    assert seconds * 0.95 <= took < seconds + 0.5 * harness.SLOWER


# ---- DC-1 ---------------------------------------------------------------------------------------

ONE_SECOND = 14000  # rounds; about 1 s on one core


def wait_running(server, model="loop", waiting=0):
    """Until a request of the model has left the queue and `waiting` are in it."""
    def reached():
        endpoint = [e for e in server.list_endpoints() if e.name == model][0]
        pending = server.metrics().sum("nv_inference_pending_request_count", model=model)
        return pending == waiting and endpoint.queue_requests == waiting
    began = time.monotonic()
    harness.wait_until(reached, 10 * harness.SLOWER, "%d requests waiting" % waiting)
    return time.monotonic() - began


def pending(server):
    return server.metrics().sum("nv_inference_pending_request_count", model="loop")


@pytest.mark.threads
@pytest.mark.parametrize("way", [
    pytest.param("deadline", marks=pytest.mark.case("DC-1 a")),
    pytest.param("cancel", marks=pytest.mark.case("DC-1 b")),
    pytest.param("connection", marks=pytest.mark.case("DC-1 c"))])
def test_entries_whose_client_is_gone_leave_the_queue(single, way):
    stays = raw.Connection(single.connect())
    goes = raw.Connection(single.connect())
    before = statistics(single, "loop")
    reasons_before = {reason: single.metrics().sum("nv_inference_request_failure", model="loop",
                                                   reason=reason)
                      for reason in ("CANCELED", "REJECTED")}
    running = stays.headers()
    # The model is as fast on every build, the deadlines are not: it must outlast them.
    rounds = ONE_SECOND * max(3, harness.SLOWER)
    stays.data(running, raw.frame(loop_request(rounds, rows=4).SerializeToString()))
    harness.wait_until(lambda: pending(single) == 0, 10 * harness.SLOWER, "the first one runs")
    # Rows of 4 fill a batch of their own: one execution a request.
    small = raw.frame(loop_request(1, rows=4).SerializeToString())
    timeout = [("grpc-timeout", "%dm" % (300 * harness.SLOWER))] if way == "deadline" else []
    kept, dropped = [], []
    for index in range(30):
        connection, extra = (stays, []) if index % 6 == 0 else (goes, timeout)
        stream = connection.headers(extra=extra)
        connection.data(stream, small)
        (kept if connection is stays else dropped).append(stream)
    sent = time.monotonic()
    if way != "deadline":
        harness.wait_until(lambda: pending(single) == 30, 5 * harness.SLOWER, "30 wait")
    if way == "cancel":
        for stream in dropped:
            goes.h2.reset_stream(stream, 8)
        goes.flush()
    elif way == "connection":
        goes.close()
    began = time.monotonic()
    harness.wait_until(lambda: pending(single) == 5, 5 * harness.SLOWER, "25 have left")
    left = time.monotonic()
    if way == "deadline":
        assert left - sent < (0.3 + 0.1 + 0.2) * harness.SLOWER
        for stream in dropped:
            reply = goes.finish(stream)
            assert reply.status == 4 or reply.reset == 8
    else:
        # 100 ms, and what a scrape may take on a shared machine.
        assert left - began < (0.1 + 0.2) * harness.SLOWER
    assert not stays.replies[running].ended, "they left while the first one still ran"
    for stream in [running] + kept:
        reply = stays.finish(stream, 30 * harness.SLOWER)
        assert reply.status == 0, reply.message
    stays.close()
    goes.close()
    after = statistics(single, "loop")
    assert after.execution_count - before.execution_count == 6
    assert after.inference_count - before.inference_count == 24
    reasons = {reason: single.metrics().sum("nv_inference_request_failure", model="loop",
                                            reason=reason) - reasons_before[reason]
               for reason in ("CANCELED", "REJECTED")}
    expected = "REJECTED" if way == "deadline" else "CANCELED"
    assert reasons == {"CANCELED": 0, "REJECTED": 0, expected: 25}


@pytest.mark.threads
def test_a_running_request_whose_client_is_gone_ends_soon(single):
    """The run is aborted where the runtime can, so that the device is free again."""
    connection = raw.Connection(single.connect())
    stream = connection.headers()
    connection.data(stream, raw.frame(loop_request(60 * ONE_SECOND).SerializeToString()))
    harness.wait_until(lambda: pending(single) == 0, 10 * harness.SLOWER, "it runs")
    connection.cancel(stream)
    began = time.monotonic()
    answer = stub(single).ModelInfer(loop_request(1), timeout=30 * harness.SLOWER)
    assert output(answer).tolist() == [[1]]
    assert time.monotonic() - began < 5 * harness.SLOWER
    connection.close()
