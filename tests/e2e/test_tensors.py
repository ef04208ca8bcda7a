"""BYTES tensors and requests that do not match their model (TV-2, TV-3)."""
import os
import struct
import threading
import time

import grpc
import numpy as np
import pytest

import harness
from kserve import (CODE, bytes_elements, bytes_raw, identity_request, output, refused, request,
                    stub, tensor)

FP32 = np.arange(4, dtype=np.float32).reshape(1, 4)
INT32 = np.arange(4, dtype=np.int32).reshape(1, 4)
A, B = tensor("A", "FP32", [1, 4]), tensor("B", "INT32", [1, 4])
GOOD_ELEMENTS = [b"", b"a", b"a\0b", b"x\0\0", b"\xff\xfe\x80", os.urandom(1 << 20), b""]


# ---- TV-2 ---------------------------------------------------------------------------------------


def bytes_input(count, contents=None):
    return tensor("INPUT", "BYTES", [count], contents)


@pytest.mark.case("TV-2 good raw")
def test_bytes_elements_come_back_unchanged(calls):
    raw = bytes_raw(GOOD_ELEMENTS)
    answer = calls.ModelInfer(request("identity_bytes", [bytes_input(len(GOOD_ELEMENTS))], [raw]),
                              timeout=20 * harness.SLOWER)
    assert answer.outputs[0].datatype == "BYTES"
    assert answer.raw_output_contents[0] == raw


@pytest.mark.case("TV-2 good typed")
def test_typed_bytes_elements_come_back_unchanged(calls):
    answer = calls.ModelInfer(request("identity_bytes", [
        bytes_input(len(GOOD_ELEMENTS), {"bytes_contents": GOOD_ELEMENTS})]),
        timeout=20 * harness.SLOWER)
    assert bytes_elements(answer.raw_output_contents[0]) == GOOD_ELEMENTS


def prefix(length):
    return struct.pack("<I", length)


# name, raw bytes, element count of the shape, fragments of the message
BAD_BYTES = [
    ("past the end", prefix(3) + b"abc" + prefix(100) + b"de", 2, ["1", "100"]),
    ("giant prefix", prefix(0xFFFFFFFF) + b"abc", 1, ["0", "4294967295"]),
    ("stray bytes", bytes_raw([b"abc"]) + b"\0\0\0", 1, ["3"]),
    ("half a prefix", bytes_raw([b"abc"]) + b"\0\0", 2, ["1"]),
    ("one too few", bytes_raw([b"a", b"b"]), 3, ["2", "3"]),
    ("one too many", bytes_raw([b"a", b"b", b"c"]), 2, ["2"]),
    ("inner prefix wrong", prefix(1) + b"abc" + prefix(5) + b"d", 2, ["INPUT"]),
    ("nothing", b"", 1, ["0", "1"]),
]


@pytest.mark.case("TV-2 bad")
@pytest.mark.parametrize("name,raw,count,fragments", BAD_BYTES, ids=[b[0] for b in BAD_BYTES])
def test_lengths_that_do_not_add_up_are_refused(calls, name, raw, count, fragments):
    error = refused(calls.ModelInfer, request("identity_bytes", [bytes_input(count)], [raw]),
                    timeout=10)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert "INPUT" in error.details()
    for fragment in fragments:
        assert fragment in error.details()


@pytest.mark.case("TV-2 bad")
@pytest.mark.parametrize("count", [1, 3])
def test_typed_bytes_with_another_count_are_refused(calls, count):
    error = refused(calls.ModelInfer, request("identity_bytes", [
        bytes_input(count, {"bytes_contents": [b"a", b"b"]})]), timeout=10)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert "INPUT" in error.details() and str(count) in error.details()


@pytest.mark.case("TV-2 bad")
def test_a_huge_shape_reserves_nothing(server, calls):
    rss = server.rss_bytes()
    for shape in ([1 << 40], [(1 << 63) - 1], [-1], [-5]):
        error = refused(calls.ModelInfer, request(
            "identity_bytes", [tensor("INPUT", "BYTES", shape)], [bytes_raw([b"a"])]), timeout=10)
        assert error.code() == CODE.INVALID_ARGUMENT
    for shape in ([1 << 32, 1 << 32], [1 << 62, 4], [-1, 4]):
        error = refused(calls.ModelInfer, request(
            "identity_fp32", [tensor("INPUT", "FP32", shape)], [bytes(16)]), timeout=10)
        assert error.code() == CODE.INVALID_ARGUMENT
    if harness.MEASURES_MEMORY:
        assert server.rss_bytes() - rss < 4 << 20


# ---- TV-3 ---------------------------------------------------------------------------------------


def two(inputs=None, raw=None, **fields):
    return request("two_inputs", [A, B] if inputs is None else inputs,
                   [FP32.tobytes(), INT32.tobytes()] if raw is None else raw, **fields)


def half(model, datatype, field, value):
    return request(model, [tensor("INPUT", datatype, [1, 2], {field: [value] * 2})])


INVALID, NOT_FOUND = CODE.INVALID_ARGUMENT, CODE.NOT_FOUND

# row of cases.py, request, code, fragments of the message
TABLE = [
    ("TV-3 output unknown", two(outputs=["NONE"]), INVALID, ["NONE"]),
    ("TV-3 output twice", two(outputs=["SUM", "SUM"]), INVALID, ["SUM"]),
    ("TV-3 input unknown", two([A, tensor("C", "INT32", [1, 4])]), INVALID, ["C"]),
    ("TV-3 input unknown", two([A, B, tensor("C", "INT32", [1, 4])],
                               [FP32.tobytes(), INT32.tobytes(), INT32.tobytes()]), INVALID, []),
    ("TV-3 input missing", two([A], [FP32.tobytes()]), INVALID, ["B"]),
    ("TV-3 input missing", two([], []), INVALID, ["A"]),
    ("TV-3 input twice", two([A, A]), INVALID, ["A"]),
    ("TV-3 input twice", two([A, B, B], [FP32.tobytes(), INT32.tobytes(), INT32.tobytes()]),
     INVALID, ["B"]),
    ("TV-3 datatype", two([A, tensor("B", "INT64", [1, 4])],
                          [FP32.tobytes(), INT32.astype(np.int64).tobytes()]), INVALID,
     ["B", "INT32", "INT64"]),
    ("TV-3 datatype", two([A, tensor("B", "NOTHING", [1, 4])]), INVALID, ["B", "NOTHING"]),
    ("TV-3 datatype", two([A, tensor("B", "", [1, 4])]), INVALID, ["B"]),
    ("TV-3 half typed", half("identity_fp16", "FP16", "fp32_contents", 1.5), INVALID,
     ["INPUT", "FP16", "raw"]),
    ("TV-3 half typed", half("identity_bf16", "BF16", "fp32_contents", 1.5), INVALID,
     ["INPUT", "BF16", "raw"]),
    ("TV-3 raw and typed", two([tensor("A", "FP32", [1, 4], {"fp32_contents": [1, 2, 3, 4]}), B]),
     INVALID, ["A"]),
    ("TV-3 raw and typed", two([tensor("A", "FP32", [1, 4], {}), B]), INVALID, ["A"]),
    ("TV-3 raw count", two(raw=[FP32.tobytes()]), INVALID, ["1", "2"]),
    ("TV-3 raw count", two(raw=[FP32.tobytes(), INT32.tobytes(), b""]), INVALID, ["3", "2"]),
    ("TV-3 raw count", two(raw=[]), INVALID, ["A"]),
    ("TV-3 typed field", request("identity_int32", [
        tensor("INPUT", "INT32", [1, 2], {"int64_contents": [1, 2]})]), INVALID, ["INPUT"]),
    ("TV-3 typed field", request("identity_fp32", [
        tensor("INPUT", "FP32", [1, 1], {"fp32_contents": [1], "int_contents": [1]})]), INVALID,
     ["INPUT"]),
    ("TV-3 typed field", request("identity_fp32", [
        tensor("INPUT", "FP32", [1, 3], {"fp32_contents": [1, 2]})]), INVALID, ["INPUT"]),
    ("TV-3 model unknown", identity_request(model="absent"), NOT_FOUND, ["absent"]),
    ("TV-3 model unknown", identity_request(model=""), NOT_FOUND, []),
    ("TV-3 model unknown", identity_request(model="../server.log"), NOT_FOUND, []),
    ("TV-3 version unknown", two(model_version="7"), NOT_FOUND, ["two_inputs", "7"]),
    ("TV-3 version text", two(model_version="abc"), INVALID, ["abc"]),
    ("TV-3 version text", two(model_version="-1"), INVALID, ["-1"]),
    ("TV-3 version text", two(model_version="1x"), INVALID, ["1x"]),
]

# Wrong shapes and sizes belong to the same table, but to no row of the shared cases.
SHAPES = [
    (two([tensor("A", "FP32", [1, 5]), B], [bytes(20), INT32.tobytes()]), ["A", "4", "5"]),
    (two([tensor("A", "FP32", [4]), B]), ["A"]),
    (two([tensor("A", "FP32", [1, 2, 2]), B]), ["A"]),
    (two([tensor("A", "FP32", []), B]), ["A"]),
    (two([tensor("A", "FP32", [2, 4]), B], [bytes(32), INT32.tobytes()]), ["A", "B"]),
    (two(raw=[FP32.tobytes()[:-1], INT32.tobytes()]), ["A", "15", "16"]),
    (two(raw=[FP32.tobytes() + b"\0", INT32.tobytes()]), ["A", "17", "16"]),
    (request("add_one", [tensor("INPUT", "FP32", [17, 4])], [bytes(17 * 16)]), ["17", "16"]),
    (request("add_one", [tensor("INPUT", "FP32", [0, 4])], [b""]), ["INPUT"]),
    (request("add_one", [tensor("INPUT", "FP32", [-1, 4])], [bytes(16)]), ["INPUT", "-1"]),
]


def failures(server):
    """All requests that failed or were refused, by any counter of the inference service."""
    metrics = server.metrics()
    return sum(metrics.sum(name) for name in (
        "nv_inference_request_failure", "tidepool_requests_refused",
        "tidepool_requests_unknown_model", "tidepool_requests_unreadable"))


@pytest.mark.parametrize("message,code,fragments", [
    pytest.param(*entry[1:], marks=pytest.mark.case(entry[0]), id=entry[0][5:].replace(" ", "-"))
    for entry in TABLE])
def test_requests_that_do_not_match_are_refused(server, calls, message, code, fragments):
    before = failures(server)
    error = refused(calls.ModelInfer, message, timeout=10)
    assert error.code() == code
    for fragment in fragments:
        assert fragment in error.details()
    assert failures(server) - before == 1


@pytest.mark.parametrize("message,fragments", SHAPES, ids=range(len(SHAPES)))
def test_shapes_and_sizes_that_do_not_match_are_refused(calls, message, fragments):
    error = refused(calls.ModelInfer, message, timeout=10)
    assert error.code() == CODE.INVALID_ARGUMENT
    for fragment in fragments:
        assert fragment in error.details()


@pytest.mark.case("TV-3 half typed")
@pytest.mark.parametrize("model,datatype", [("identity_fp16", "FP16"), ("identity_bf16", "BF16")])
def test_half_types_work_raw(calls, model, datatype):
    raw = os.urandom(2 * 6)
    answer = calls.ModelInfer(request(model, [tensor("INPUT", datatype, [2, 3])], [raw]),
                              timeout=10)
    assert answer.raw_output_contents[0] == raw


@pytest.mark.parametrize("key,value", [("triton_unknown", True), ("sequence_id", 1.5)])
def test_parameters_of_the_wrong_kind_are_refused(calls, key, value):
    message = identity_request()
    if isinstance(value, bool):
        message.parameters[key].bool_param = value
    else:
        message.parameters[key].double_param = value
    error = refused(calls.ModelInfer, message, timeout=10)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert key in error.details()


@pytest.mark.case("TV-3 loading")
def test_a_model_that_still_loads_is_unavailable(start):
    server = start(["identity_fp32", "slow_load"]).start(ready=False)
    calls = stub(server)
    message = request("slow_load", [tensor("COUNT", "INT64", [1, 1], {"int64_contents": [1]})])
    error = refused(calls.ModelInfer, message, timeout=10 * harness.SLOWER)
    assert error.code() == CODE.UNAVAILABLE
    assert "slow_load" in error.details() and "loading" in error.details()
    assert server.http_status("/v2/health/ready") != 200
    # Another model does not wait for it.
    def other_answers():
        try:
            return calls.ModelInfer(identity_request(), timeout=5)
        except grpc.RpcError as error:
            assert error.code() == CODE.UNAVAILABLE
            return None
    harness.wait_until(other_answers, 10 * harness.SLOWER, "identity_fp32 is ready")
    harness.wait_until(server.is_ready, 120 * harness.SLOWER, "all loaded")
    assert output(calls.ModelInfer(message, timeout=60 * harness.SLOWER)).tolist() == [[1]]


@pytest.mark.threads
def test_bad_data_of_one_request_leaves_its_batch_mates_alone(single):
    """The model's run fails for one index; the batch had good ones too."""
    calls = stub(single)
    def index_request(index):
        return request("gather_fails", [tensor("INPUT", "INT64", [1, 1],
                                               {"int64_contents": [index]})])
    for bad in (99, -50):
        futures = [calls.ModelInfer.future(index_request(i), timeout=10 * harness.SLOWER)
                   for i in (0, 1, bad, 2, 3)]
        results = []
        for future in futures:
            try:
                results.append(output(future.result()).tolist())
            except grpc.RpcError as error:
                results.append(error)
        assert results[0] == [[10]] and results[1] == [[11]]
        assert results[3] == [[12]] and results[4] == [[13]]
        assert results[2].code() in (CODE.INVALID_ARGUMENT, CODE.INTERNAL)
        assert "gather_fails" in results[2].details()


def test_good_requests_go_on_while_bad_ones_are_refused(calls):
    stop, errors = threading.Event(), []

    def spoil():
        while not stop.is_set():
            error = refused(calls.ModelInfer, TABLE[0][1], timeout=10)
            if error.code() != CODE.INVALID_ARGUMENT:
                errors.append(error)
    threads = [threading.Thread(target=spoil) for _ in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert output(calls.ModelInfer(identity_request(), timeout=10)).tolist() == [[0, 1, 2, 3]]
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
