"""Small ONNX models for the tests, each in Triton's repository layout.

    python tests/models.py DIRECTORY [NAME ...]     write all (or the named) models

Every builder returns (onnx model, text of config.pbtxt or None). The first dimension is the batch
unless the text beside the builder says otherwise.
"""
import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
IR_VERSION = 8  # old enough for every ONNX Runtime of the last years

CONFIG_TYPE = {
    TensorProto.FLOAT: "TYPE_FP32", TensorProto.DOUBLE: "TYPE_FP64", TensorProto.INT64: "TYPE_INT64",
    TensorProto.INT32: "TYPE_INT32", TensorProto.FLOAT16: "TYPE_FP16", TensorProto.BOOL: "TYPE_BOOL",
    TensorProto.BFLOAT16: "TYPE_BF16", TensorProto.STRING: "TYPE_STRING",
    TensorProto.UINT8: "TYPE_UINT8", TensorProto.INT8: "TYPE_INT8", TensorProto.INT16: "TYPE_INT16",
    TensorProto.UINT16: "TYPE_UINT16", TensorProto.UINT32: "TYPE_UINT32",
    TensorProto.UINT64: "TYPE_UINT64",
}


def value(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def constant(name, array):
    return numpy_helper.from_array(np.asarray(array), name)


def make(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "tests", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model)
    return model


def config(max_batch, inputs, outputs, extra=""):
    """inputs, outputs: (name, onnx type, dims without the batch)."""
    def tensors(word, entries):
        return "".join('%s { name: "%s" data_type: %s dims: [ %s ] }\n' % (
            word, name, CONFIG_TYPE[kind], ", ".join(str(d) for d in dims))
            for name, kind, dims in entries)
    return ('platform: "onnxruntime_onnx"\nmax_batch_size: %d\n' % max_batch
            + tensors("input", inputs) + tensors("output", outputs) + extra)


def batching(delay_us):
    return "dynamic_batching { max_queue_delay_microseconds: %d }\n" % delay_us


def identity(kind, max_batch=64, delay_us=0):
    model = make([helper.make_node("Identity", ["INPUT"], ["OUTPUT"])],
                 [value("INPUT", kind, ["n", "width"])], [value("OUTPUT", kind, ["n", "width"])])
    return model, config(max_batch, [("INPUT", kind, [-1])], [("OUTPUT", kind, [-1])],
                         batching(delay_us) if delay_us is not None else "")


def identity_bytes():
    """No batch dimension: the shape is the number of elements."""
    model = make([helper.make_node("Identity", ["INPUT"], ["OUTPUT"])],
                 [value("INPUT", TensorProto.STRING, ["n"])],
                 [value("OUTPUT", TensorProto.STRING, ["n"])])
    return model, config(0, [("INPUT", TensorProto.STRING, [-1])],
                         [("OUTPUT", TensorProto.STRING, [-1])])


def add_one(max_batch=16, delay_us=500):
    model = make([helper.make_node("Add", ["INPUT", "one"], ["OUTPUT"])],
                 [value("INPUT", TensorProto.FLOAT, ["n", 4])],
                 [value("OUTPUT", TensorProto.FLOAT, ["n", 4])],
                 [constant("one", np.float32([1]))])
    return model, config(max_batch, [("INPUT", TensorProto.FLOAT, [4])],
                         [("OUTPUT", TensorProto.FLOAT, [4])], batching(delay_us))


def row_sums():
    model = make([helper.make_node("ReduceSum", ["INPUT", "axis"], ["OUTPUT"], keepdims=1)],
                 [value("INPUT", TensorProto.FLOAT, ["n", "width"])],
                 [value("OUTPUT", TensorProto.FLOAT, ["n", 1])], [constant("axis", np.int64([1]))])
    return model, None


def gather_fails():
    """The run fails when an index is not in -4 to 3."""
    model = make([helper.make_node("Gather", ["table", "INPUT"], ["OUTPUT"], axis=0)],
                 [value("INPUT", TensorProto.INT64, ["n", 1])],
                 [value("OUTPUT", TensorProto.FLOAT, ["n", 1])],
                 [constant("table", np.float32([10, 11, 12, 13]))])
    return model, config(8, [("INPUT", TensorProto.INT64, [1])],
                         [("OUTPUT", TensorProto.FLOAT, [1])], batching(20000))


def two_inputs():
    model = make([helper.make_node("Cast", ["B"], ["b_float"], to=TensorProto.FLOAT),
                  helper.make_node("Add", ["A", "b_float"], ["SUM"]),
                  helper.make_node("Identity", ["B"], ["COPY"])],
                 [value("A", TensorProto.FLOAT, ["n", 4]), value("B", TensorProto.INT32, ["n", 4])],
                 [value("SUM", TensorProto.FLOAT, ["n", 4]),
                  value("COPY", TensorProto.INT32, ["n", 4])])
    return model, config(8, [("A", TensorProto.FLOAT, [4]), ("B", TensorProto.INT32, [4])],
                         [("SUM", TensorProto.FLOAT, [4]), ("COPY", TensorProto.INT32, [4])])


LOOP_WIDTH = 128


def spin_nodes(count_name):
    """A loop of `count_name` (int64 scalar) rounds of a LOOP_WIDTH square product; its result is
    `spun`, a scalar that is always 0 but that no optimiser can know to be 0."""
    rng = np.random.default_rng(7)
    weights = (rng.standard_normal((LOOP_WIDTH, LOOP_WIDTH)) / LOOP_WIDTH).astype(np.float32)
    body = helper.make_graph(
        [helper.make_node("MatMul", ["state", "weights"], ["product"]),
         helper.make_node("Tanh", ["product"], ["state_next"]),
         helper.make_node("Identity", ["go_on"], ["go_on_next"])], "round",
        [value("round", TensorProto.INT64, []), value("go_on", TensorProto.BOOL, []),
         value("state", TensorProto.FLOAT, [LOOP_WIDTH, LOOP_WIDTH])],
        [value("go_on_next", TensorProto.BOOL, []),
         value("state_next", TensorProto.FLOAT, [LOOP_WIDTH, LOOP_WIDTH])])
    nodes = [helper.make_node("Loop", [count_name, "always", "weights"], ["state_last"], body=body),
             helper.make_node("ReduceMax", ["state_last"], ["largest"], keepdims=0),
             # tanh stays within [-1, 1], and so do the weights: never above 2
             helper.make_node("Greater", ["largest", "two"], ["impossible"]),
             helper.make_node("Cast", ["impossible"], ["spun"], to=TensorProto.INT64)]
    return nodes, [constant("weights", weights), constant("always", np.bool_(True)),
                   constant("two", np.float32(2))]


def loop(max_batch=4, extra=""):
    """Runs for as many rounds as the largest COUNT of the batch says; OUTPUT is COUNT again."""
    nodes, initializers = spin_nodes("rounds")
    model = make([helper.make_node("ReduceMax", ["COUNT"], ["rounds"], keepdims=0)] + nodes
                 + [helper.make_node("Add", ["COUNT", "spun"], ["OUTPUT"])],
                 [value("COUNT", TensorProto.INT64, ["n", 1])],
                 [value("OUTPUT", TensorProto.INT64, ["n", 1])], initializers)
    return model, config(max_batch, [("COUNT", TensorProto.INT64, [1])],
                         [("OUTPUT", TensorProto.INT64, [1])], extra)


def slow_load(rounds=6000):
    """Runs long whatever its input is, so that warming it up takes seconds."""
    nodes, initializers = spin_nodes("rounds")
    model = make(nodes + [helper.make_node("Add", ["COUNT", "spun"], ["OUTPUT"])],
                 [value("COUNT", TensorProto.INT64, ["n", 1])],
                 [value("OUTPUT", TensorProto.INT64, ["n", 1])],
                 initializers + [constant("rounds", np.int64(rounds))])
    return model, config(1, [("COUNT", TensorProto.INT64, [1])],
                         [("OUTPUT", TensorProto.INT64, [1])])


def dense(width=512, layers=4, max_batch=8, delay_us=0):
    """A chain of `layers` products of width × width: a model whose run time is its size."""
    rng = np.random.default_rng(11)
    nodes, initializers, name = [], [], "INPUT"
    for layer in range(layers):
        weights = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        initializers.append(constant("w%d" % layer, weights))
        last = layer == layers - 1
        nodes.append(helper.make_node("MatMul", [name, "w%d" % layer], ["p%d" % layer]))
        name = "OUTPUT" if last else "a%d" % layer
        nodes.append(helper.make_node("Relu", ["p%d" % layer], [name]))
    model = make(nodes, [value("INPUT", TensorProto.FLOAT, ["n", width])],
                 [value("OUTPUT", TensorProto.FLOAT, ["n", width])], initializers)
    return model, config(max_batch, [("INPUT", TensorProto.FLOAT, [width])],
                         [("OUTPUT", TensorProto.FLOAT, [width])], batching(delay_us))


# ---- models that have no usable batch dimension ------------------------------------------------


def fixed_input():
    """Input [1, 4], and a configuration that wants batches of 8."""
    model = make([helper.make_node("Identity", ["INPUT"], ["OUTPUT"])],
                 [value("INPUT", TensorProto.FLOAT, [1, 4])],
                 [value("OUTPUT", TensorProto.FLOAT, [1, 4])])
    return model, config(8, [("INPUT", TensorProto.FLOAT, [4])],
                         [("OUTPUT", TensorProto.FLOAT, [4])], batching(1000))


def fixed_output():
    """The output's first dimension is 1 whatever the batch is, and its shape says so."""
    model = make([helper.make_node("ReduceSum", ["INPUT", "axis"], ["OUTPUT"], keepdims=1)],
                 [value("INPUT", TensorProto.FLOAT, ["n", 4])],
                 [value("OUTPUT", TensorProto.FLOAT, [1, 4])], [constant("axis", np.int64([0]))])
    return model, config(8, [("INPUT", TensorProto.FLOAT, [4])],
                         [("OUTPUT", TensorProto.FLOAT, [4])], batching(1000))


def shrinking_rows():
    """One output row is missing when a value of the batch is above 1e6: seen only by running."""
    model = make(
        [helper.make_node("ReduceMax", ["INPUT"], ["largest"], keepdims=0),
         helper.make_node("Greater", ["largest", "limit"], ["over"]),
         helper.make_node("Cast", ["over"], ["missing"], to=TensorProto.INT64),
         helper.make_node("Shape", ["INPUT"], ["shape"]),
         helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
         helper.make_node("Sub", ["rows", "missing"], ["rows_left"]),
         helper.make_node("Slice", ["INPUT", "zero", "rows_left", "zero"], ["OUTPUT"])],
        [value("INPUT", TensorProto.FLOAT, ["n", 4])],
        [value("OUTPUT", TensorProto.FLOAT, ["m", 4])],
        [constant("limit", np.float32(1e6)), constant("zero", np.int64([0]))])
    return model, config(8, [("INPUT", TensorProto.FLOAT, [4])],
                         [("OUTPUT", TensorProto.FLOAT, [4])], batching(20000))


def mixed_batch():
    """One input has a batch dimension, the other has none."""
    model = make([helper.make_node("Add", ["A", "B"], ["OUTPUT"])],
                 [value("A", TensorProto.FLOAT, ["n", 4]), value("B", TensorProto.FLOAT, [4])],
                 [value("OUTPUT", TensorProto.FLOAT, ["n", 4])])
    return model, config(8, [("A", TensorProto.FLOAT, [4]), ("B", TensorProto.FLOAT, [4])],
                         [("OUTPUT", TensorProto.FLOAT, [4])], batching(1000))


MODELS = {
    "identity_fp32": lambda: identity(TensorProto.FLOAT),
    "identity_fp64": lambda: identity(TensorProto.DOUBLE),
    "identity_int64": lambda: identity(TensorProto.INT64),
    "identity_int32": lambda: identity(TensorProto.INT32),
    "identity_int16": lambda: identity(TensorProto.INT16),
    "identity_int8": lambda: identity(TensorProto.INT8),
    "identity_uint64": lambda: identity(TensorProto.UINT64),
    "identity_uint32": lambda: identity(TensorProto.UINT32),
    "identity_uint16": lambda: identity(TensorProto.UINT16),
    "identity_uint8": lambda: identity(TensorProto.UINT8),
    "identity_bool": lambda: identity(TensorProto.BOOL),
    "identity_fp16": lambda: identity(TensorProto.FLOAT16),
    "identity_bf16": lambda: identity(TensorProto.BFLOAT16),
    "identity_bytes": identity_bytes,
    "add_one": add_one,
    "row_sums": row_sums,
    "gather_fails": gather_fails,
    "two_inputs": two_inputs,
    "loop": loop,
    "slow_load": slow_load,
    "dense": dense,
    "delay_50ms": lambda: identity(TensorProto.FLOAT, max_batch=8, delay_us=50000),
    "delay_0": lambda: identity(TensorProto.FLOAT, max_batch=8, delay_us=0),
    "fixed_input": fixed_input,
    "fixed_output": fixed_output,
    "shrinking_rows": shrinking_rows,
    "mixed_batch": mixed_batch,
}


def write_model(directory, name, built, version=1):
    """Writes one built model as directory/name/version/model.onnx, with its config.pbtxt."""
    model, text = built
    path = os.path.join(directory, name, str(version))
    os.makedirs(path, exist_ok=True)
    onnx.save(model, os.path.join(path, "model.onnx"))
    if text is not None:
        with open(os.path.join(directory, name, "config.pbtxt"), "w", encoding="utf-8") as file:
            file.write('name: "%s"\n%s' % (name, text))


def write_json(directory, name, settings):
    """The model's config.json, which wins over config.pbtxt."""
    with open(os.path.join(directory, name, "config.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)


def write(directory, names=None):
    for name in MODELS if names is None else names:
        write_model(directory, name, MODELS[name]())


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2:] or None)
