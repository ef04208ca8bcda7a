"""Requests of the inference protocol, built by hand with the stock client's generated messages."""
import struct

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

CODE = grpc.StatusCode


def stub(server, options=()):
    return service_pb2_grpc.GRPCInferenceServiceStub(server.channel(options=options))


def tensor(name, datatype, shape, contents=None):
    made = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    if contents is not None:
        made.contents.CopyFrom(pb.InferTensorContents(**contents))
    return made


def request(model, inputs=(), raw=(), outputs=(), **fields):
    made = pb.ModelInferRequest(model_name=model, **fields)
    made.inputs.extend(inputs)
    made.raw_input_contents.extend(raw)
    for name in outputs:
        made.outputs.add(name=name)
    return made


def array_request(model, array, datatype="FP32", name="INPUT", **fields):
    return request(model, [tensor(name, datatype, array.shape)], [array.tobytes()], **fields)


def identity_request(width=4, model="identity_fp32"):
    return array_request(model, np.arange(width, dtype=np.float32).reshape(1, width))


def output(response, index=0):
    """An output as an array of its numpy type."""
    types = {"FP32": np.float32, "FP64": np.float64, "FP16": np.float16, "BF16": np.uint16,
             "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
             "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
             "BOOL": np.bool_}
    meta = response.outputs[index]
    flat = np.frombuffer(response.raw_output_contents[index], types[meta.datatype])
    return flat.reshape(list(meta.shape))


def bytes_raw(elements):
    return b"".join(struct.pack("<I", len(e)) + e for e in elements)


def bytes_elements(raw):
    elements, position = [], 0
    while position < len(raw):
        length = struct.unpack_from("<I", raw, position)[0]
        elements.append(raw[position + 4:position + 4 + length])
        position += 4 + length
    assert position == len(raw)
    return elements


def refused(call, *arguments, **keywords):
    """The grpc.RpcError of a call that must fail."""
    try:
        call(*arguments, **keywords)
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call went through")


def statistics(server, model):
    """ModelStatistics of one model, as the stock message."""
    if server.statistics_stub is None:  # one connection for all of them
        server.statistics_stub = stub(server)
    answer = server.statistics_stub.ModelStatistics(pb.ModelStatisticsRequest(name=model),
                                                    timeout=10)
    return answer.model_stats[0]


def batches(stats):
    """{batch size: executions}."""
    return {entry.batch_size: entry.compute_infer.count for entry in stats.batch_stats}


def batches_since(before, after):
    old = batches(before)
    return {size: count - old.get(size, 0) for size, count in batches(after).items()
            if count != old.get(size, 0)}
