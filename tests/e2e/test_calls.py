"""The stock Triton client does every call that the server has, and many at once."""
import concurrent.futures
import threading

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

import harness
from kserve import CODE, array_request, identity_request, output, refused, request, stub, tensor


@pytest.fixture
def client(server):
    made = triton.InferenceServerClient(server.address)
    yield made
    made.close()


def infer_input(name, array, datatype):
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def test_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("add_one")
    assert client.is_model_ready("add_one", "1")


def test_server_metadata_names_only_what_is_served(client):
    metadata = client.get_server_metadata()
    assert metadata.name == "tidepool"
    assert metadata.version != ""
    assert "statistics" in metadata.extensions
    for absent in ("sequence", "system_shared_memory", "cuda_shared_memory", "trace", "logging"):
        assert absent not in metadata.extensions


def test_model_metadata_has_the_batch_dimension(client):
    metadata = client.get_model_metadata("two_inputs")
    assert metadata.name == "two_inputs"
    assert list(metadata.versions) == ["1"]
    assert metadata.platform == "onnxruntime_onnx"
    assert [(i.name, i.datatype, list(i.shape)) for i in metadata.inputs] == [
        ("A", "FP32", [-1, 4]), ("B", "INT32", [-1, 4])]
    assert [(o.name, o.datatype, list(o.shape)) for o in metadata.outputs] == [
        ("SUM", "FP32", [-1, 4]), ("COPY", "INT32", [-1, 4])]


def test_model_config_agrees_with_the_metadata(client):
    config = client.get_model_config("add_one").config
    assert config.name == "add_one"
    assert config.max_batch_size == 16
    assert [(i.name, list(i.dims)) for i in config.input] == [("INPUT", [4])]
    assert [(o.name, list(o.dims)) for o in config.output] == [("OUTPUT", [4])]
    assert config.HasField("dynamic_batching")
    assert config.dynamic_batching.max_queue_delay_microseconds == 500


TYPES = [("fp32", "FP32", np.float32), ("fp64", "FP64", np.float64), ("int8", "INT8", np.int8),
         ("int16", "INT16", np.int16), ("int32", "INT32", np.int32), ("int64", "INT64", np.int64),
         ("uint8", "UINT8", np.uint8), ("uint16", "UINT16", np.uint16),
         ("uint32", "UINT32", np.uint32), ("uint64", "UINT64", np.uint64),
         ("bool", "BOOL", np.bool_), ("fp16", "FP16", np.float16)]


@pytest.mark.parametrize("model,datatype,dtype", TYPES, ids=[t[1] for t in TYPES])
def test_every_datatype_comes_back_the_same(client, model, datatype, dtype):
    rng = np.random.default_rng(3)
    array = rng.integers(0, 2, (3, 5)).astype(dtype) if dtype == np.bool_ else (
        (rng.standard_normal((3, 5)) * 100).astype(dtype))
    result = client.infer("identity_" + model, [infer_input("INPUT", array, datatype)],
                          request_id="r-17")
    assert result.as_numpy("OUTPUT").dtype == dtype
    np.testing.assert_array_equal(result.as_numpy("OUTPUT"), array)
    response = result.get_response()
    assert (response.model_name, response.model_version, response.id) == (
        "identity_" + model, "1", "r-17")


def test_bf16_comes_back_the_same_bits(calls):
    array = np.linspace(-3, 3, 20).astype(ml_dtypes.bfloat16).view(np.uint16).reshape(4, 5)
    response = calls.ModelInfer(array_request("identity_bf16", array, "BF16"), timeout=10)
    np.testing.assert_array_equal(output(response), array)


def test_bytes_by_the_stock_client(client):
    array = np.array([b"", b"a", b"a\0b", b"\xff\xfe\0\0x"], dtype=np.object_)
    result = client.infer("identity_bytes", [infer_input("INPUT", array, "BYTES")])
    assert result.as_numpy("OUTPUT").tolist() == array.tolist()


TYPED = [("fp32", "FP32", "fp32_contents", [1.5, -2.0]), ("fp64", "FP64", "fp64_contents", [1.25, 0]),
         ("int8", "INT8", "int_contents", [-128, 127]), ("int16", "INT16", "int_contents", [-5, 300]),
         ("int32", "INT32", "int_contents", [-5, 1 << 30]),
         ("int64", "INT64", "int64_contents", [-5, 1 << 60]),
         ("uint8", "UINT8", "uint_contents", [0, 255]),
         ("uint16", "UINT16", "uint_contents", [0, 65535]),
         ("uint32", "UINT32", "uint_contents", [0, (1 << 32) - 1]),
         ("uint64", "UINT64", "uint64_contents", [0, (1 << 64) - 1]),
         ("bool", "BOOL", "bool_contents", [True, False])]


@pytest.mark.parametrize("model,datatype,field,values", TYPED, ids=[t[1] for t in TYPED])
def test_typed_contents_are_read(calls, model, datatype, field, values):
    response = calls.ModelInfer(request("identity_" + model, [
        tensor("INPUT", datatype, [1, 2], {field: values})]), timeout=10)
    assert output(response).tolist() == [values]


def test_only_the_outputs_asked_for_in_their_order(calls):
    a, b = np.ones((2, 4), np.float32), np.full((2, 4), 5, np.int32)
    inputs = [tensor("A", "FP32", a.shape), tensor("B", "INT32", b.shape)]
    raw = [a.tobytes(), b.tobytes()]
    both = calls.ModelInfer(request("two_inputs", inputs, raw), timeout=10)
    assert [o.name for o in both.outputs] == ["SUM", "COPY"]
    one = calls.ModelInfer(request("two_inputs", inputs, raw, outputs=["COPY"]), timeout=10)
    assert [o.name for o in one.outputs] == ["COPY"]
    np.testing.assert_array_equal(output(one), b)
    turned = calls.ModelInfer(request("two_inputs", inputs, raw, outputs=["COPY", "SUM"]),
                              timeout=10)
    assert [o.name for o in turned.outputs] == ["COPY", "SUM"]
    np.testing.assert_array_equal(output(turned, 1), a + b)
    swapped = calls.ModelInfer(request("two_inputs", inputs[::-1], raw[::-1]), timeout=10)
    np.testing.assert_array_equal(output(swapped), a + b)


def test_empty_tensor_is_accepted(calls):
    array = np.zeros((1, 0), np.float32)
    response = calls.ModelInfer(array_request("identity_fp32", array), timeout=10)
    assert list(response.outputs[0].shape) == [1, 0]
    assert response.raw_output_contents[0] == b""


def test_statistics_count_what_was_sent(client):
    before = client.get_inference_statistics("row_sums").model_stats[0]
    array = np.ones((3, 7), np.float32)
    for _ in range(5):
        client.infer("row_sums", [infer_input("INPUT", array, "FP32")])
    after = client.get_inference_statistics("row_sums", "1").model_stats[0]
    assert after.inference_count - before.inference_count == 15
    assert after.execution_count - before.execution_count == 5
    assert after.inference_stats.success.count - before.inference_stats.success.count == 5
    assert after.inference_stats.queue.count - before.inference_stats.queue.count == 5
    parts = after.inference_stats
    total = parts.success.ns
    assert 0 < parts.compute_infer.ns < total
    assert parts.queue.ns + parts.compute_infer.ns <= total
    assert after.last_inference > 1_600_000_000_000
    assert after.memory_usage
    assert all(entry.type == "CPU" and entry.byte_size > 0 for entry in after.memory_usage)
    assert len({entry.id for entry in after.memory_usage}) == len(after.memory_usage)
    names = {stats.name for stats in client.get_inference_statistics().model_stats}
    assert {"row_sums", "add_one", "identity_bytes"} <= names


UNSERVED = [("RepositoryIndex", pb.RepositoryIndexRequest()),
            ("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="add_one")),
            ("RepositoryModelUnload", pb.RepositoryModelUnloadRequest(model_name="add_one")),
            ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()),
            ("SystemSharedMemoryRegister", pb.SystemSharedMemoryRegisterRequest(name="x")),
            ("SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name="x")),
            ("CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest()),
            ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="x")),
            ("CudaSharedMemoryUnregister", pb.CudaSharedMemoryUnregisterRequest(name="x")),
            ("TraceSetting", pb.TraceSettingRequest()), ("LogSettings", pb.LogSettingsRequest())]


@pytest.mark.parametrize("method,message", UNSERVED, ids=[u[0] for u in UNSERVED])
def test_methods_that_are_not_served_say_so(calls, method, message):
    assert refused(getattr(calls, method), message, timeout=10).code() == CODE.UNIMPLEMENTED


def test_streaming_infer_says_that_it_is_not_served(calls):
    stream = calls.ModelStreamInfer(iter([identity_request()]), timeout=10)
    assert refused(list, stream).code() == CODE.UNIMPLEMENTED


@pytest.mark.parametrize("method,message", [
    ("ModelReady", pb.ModelReadyRequest(name="add_one\0")),
    ("ModelReady", pb.ModelReadyRequest(name="add_one", version="1\0 2")),
    ("ModelMetadata", pb.ModelMetadataRequest(name="add_one\0b")),
    ("ModelConfig", pb.ModelConfigRequest(name="add_one\0")),
    ("ModelStatistics", pb.ModelStatisticsRequest(name="\0add_one"))])
def test_text_with_a_nul_byte_is_refused_and_not_cut(calls, method, message):
    error = refused(getattr(calls, method), message, timeout=10)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert "NUL" in error.details()


def test_an_infer_of_a_name_with_a_nul_byte_finds_nothing(calls):
    for tail in range(512):  # some of them fall where the name without it is kept
        error = refused(calls.ModelInfer, identity_request(model="identity_fp32\0%d" % tail),
                        timeout=10)
        assert error.code() == CODE.NOT_FOUND


def test_shared_memory_parameters_are_refused(calls):
    message = identity_request()
    message.inputs[0].parameters["shared_memory_region"].string_param = "region"
    message.inputs[0].parameters["shared_memory_byte_size"].int64_param = 16
    del message.raw_input_contents[:]
    error = refused(calls.ModelInfer, message, timeout=10)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert "shared" in error.details() and "region" in error.details()


@pytest.mark.threads
def test_thousand_concurrent_infers(server):
    client = triton.InferenceServerClient(server.address)
    count = 1000
    done = threading.Semaphore(0)
    answers = [None] * count

    def take(index, result, error):
        answers[index] = error if error is not None else result.as_numpy("OUTPUT")
        done.release()
    for index in range(count):
        array = np.full((1, 4), index, np.float32)
        client.async_infer("add_one", [infer_input("INPUT", array, "FP32")],
                           lambda result, error, index=index: take(index, result, error))
    for _ in range(count):
        assert done.acquire(timeout=30 * harness.SLOWER)
    client.close()
    failed = [str(a) for a in answers if isinstance(a, InferenceServerException)]
    assert failed == []
    for index in range(count):
        assert answers[index].tolist() == [[index + 1] * 4]


@pytest.mark.threads
def test_many_connections_at_once(server):
    def work(worker):
        with grpc.insecure_channel(server.address,
                                   options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            from tritonclient.grpc import service_pb2_grpc
            calls = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            for index in range(10):
                array = np.full((1, 4), worker * 100 + index, np.float32)
                answer = calls.ModelInfer(array_request("identity_fp32", array),
                                          timeout=20 * harness.SLOWER)
                np.testing.assert_array_equal(output(answer), array)
        return worker
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert sorted(pool.map(work, range(40))) == list(range(40))


@pytest.mark.parametrize("encoding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_plain_grpcio_with_compression(server, encoding):
    array = np.zeros((1, 20000), np.float32)
    array[0, 77] = 3
    response = stub(server).ModelInfer(array_request("identity_fp32", array), timeout=10,
                                       compression=encoding)
    np.testing.assert_array_equal(output(response), array)


def test_message_of_8_mib(server):
    array = np.random.default_rng(1).standard_normal((1, 2 << 20)).astype(np.float32)
    response = stub(server).ModelInfer(array_request("identity_fp32", array),
                                       timeout=30 * harness.SLOWER)
    assert response.raw_output_contents[0] == array.tobytes()


def test_8_mib_by_eight_clients(server):
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((1, 2 << 20)).astype(np.float32) for _ in range(8)]

    def work(array):
        response = stub(server).ModelInfer(array_request("identity_fp32", array),
                                           timeout=60 * harness.SLOWER)
        return response.raw_output_contents[0] == array.tobytes()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, arrays))


def test_deadline_and_cancel_by_plain_grpcio(single):
    calls = stub(single)
    slow = request("loop", [tensor("COUNT", "INT64", [1, 1], {"int64_contents": [100000]})])
    assert refused(calls.ModelInfer, slow, timeout=0.2).code() == CODE.DEADLINE_EXCEEDED
    future = calls.ModelInfer.future(slow, timeout=60)
    harness.wait_until(
        lambda: single.metrics().sum("nv_inference_pending_request_count", model="loop") == 0
        and not future.done(), 10 * harness.SLOWER, "the call runs")
    future.cancel()
    assert future.cancelled()
