"""More ONNX models, for unit tests of the runtime and the repository alone.

    python tests/unit/models/more_models.py DIRECTORY     one NAME/1/model.onnx each
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
from models import constant, dense, make, value, write_model  # noqa: E402

FLOAT = TensorProto.FLOAT


def unchecked(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "tests", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def centred():
    """A row's result depends on the batch: the mean over the batch is taken off."""
    return make([helper.make_node("ReduceMean", ["INPUT"], ["mean"], axes=[0], keepdims=1),
                 helper.make_node("Sub", ["INPUT", "mean"], ["OUTPUT"])],
                [value("INPUT", FLOAT, ["n", 4])], [value("OUTPUT", FLOAT, ["n", 4])])


def one_row_only():
    """Gives the first row only, whatever the batch: no shape in the file tells it."""
    return make([helper.make_node("Shape", ["INPUT"], ["shape"]),
                 helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
                 helper.make_node("Min", ["rows", "one"], ["end"]),
                 helper.make_node("Slice", ["INPUT", "zero", "end", "zero"], ["OUTPUT"])],
                [value("INPUT", FLOAT, ["n", 4])], [value("OUTPUT", FLOAT, ["m", 4])],
                [constant("zero", np.int64([0])), constant("one", np.int64([1]))])


def sequence_output():
    return make([helper.make_node("Identity", ["INPUT"], ["OUTPUT"]),
                 helper.make_node("SplitToSequence", ["INPUT"], ["PARTS"])],
                [value("INPUT", FLOAT, ["n", 4])],
                [value("OUTPUT", FLOAT, ["n", 4]),
                 helper.make_tensor_sequence_value_info("PARTS", FLOAT, None)])


def complex_input():
    return make([helper.make_node("Identity", ["INPUT"], ["OUTPUT"])],
                [value("INPUT", TensorProto.COMPLEX64, ["n"])],
                [value("OUTPUT", TensorProto.COMPLEX64, ["n"])])


def needs_values():
    """Zeros, or halves, are no valid index for it: it does not run on made-up values."""
    return make([helper.make_node("Sub", ["INPUT", "offset"], ["index"]),
                 helper.make_node("Gather", ["table", "index"], ["OUTPUT"], axis=0)],
                [value("INPUT", TensorProto.INT64, ["n", 1])], [value("OUTPUT", FLOAT, ["n", 1])],
                [constant("offset", np.int64([100])),
                 constant("table", np.float32([10, 11, 12, 13]))])


def images():
    """A convolution over images of any size that is at least its window's."""
    return make([helper.make_node("Conv", ["INPUT", "window"], ["OUTPUT"])],
                [value("INPUT", FLOAT, ["n", 1, "height", "width"])],
                [value("OUTPUT", FLOAT, ["n", 1, "h", "w"])],
                [constant("window", np.ones((1, 1, 5, 5), np.float32))])


def strings_batch():
    return make([helper.make_node("Identity", ["INPUT"], ["OUTPUT"])],
                [value("INPUT", TensorProto.STRING, ["n", 2])],
                [value("OUTPUT", TensorProto.STRING, ["n", 2])])


def heavy():
    """32 MiB of weights in 2 matrices."""
    return dense(width=2048, layers=2)[0]


def external(location):
    weights = np.arange(4096, dtype=np.float32).reshape(1024, 4)
    tensor = TensorProto(name="weights", data_type=FLOAT, dims=[1024, 4],
                         data_location=TensorProto.EXTERNAL)
    for key, text in (("location", location), ("offset", "0"), ("length", str(weights.nbytes))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return unchecked([helper.make_node("MatMul", ["INPUT", "weights"], ["OUTPUT"])],
                     [value("INPUT", FLOAT, ["n", 1024])], [value("OUTPUT", FLOAT, ["n", 4])],
                     [tensor]), weights


def write_external(directory):
    outside = os.path.join(directory, "outside.bin")
    for name, location in (("external", "weights.bin"), ("external_up", "../../outside.bin"),
                           ("external_absolute", os.path.abspath(outside)),
                           ("external_link", "link.bin"),
                           ("external_missing_up", "../../not-there.bin")):
        model, weights = external(location)
        folder = os.path.join(directory, name, "1")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "model.onnx"), "wb") as file:
            file.write(model.SerializeToString())
        with open(os.path.join(folder, "weights.bin"), "wb") as file:
            file.write(weights.tobytes())
        with open(outside, "wb") as file:
            file.write(weights.tobytes())
        link = os.path.join(folder, "link.bin")
        if not os.path.islink(link):
            os.symlink(os.path.abspath(outside), link)


def write_corrupt(directory):
    folder = os.path.join(directory, "corrupt", "1")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(b"this is no model, only a text about one\n" * 8)
    folder = os.path.join(directory, "cut_short", "1")
    os.makedirs(folder, exist_ok=True)
    whole = centred().SerializeToString()
    with open(os.path.join(folder, "model.onnx"), "wb") as file:
        file.write(whole[:len(whole) // 2])


if __name__ == "__main__":
    target = sys.argv[1]
    for build in (centred, one_row_only, sequence_output, complex_input, needs_values,
                  strings_batch, heavy, images):
        write_model(target, build.__name__, (build(), None))
    # about 0.2 ms and 5 ms a batch of 8 on one core
    write_model(target, "dense_small", dense(width=384, layers=2))
    write_model(target, "dense_large", dense(width=1024, layers=10))
    write_external(target)
    write_corrupt(target)
