"""Runs DIR/model.onnx in onnxruntime on DIR/inputs and compares with DIR/outputs.

usage: native_check.py DIR FEATURES OUTPUTS OUTPUT_NAME
"""
import sys

import numpy
import onnx
import onnxruntime

directory, features, columns, name = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
onnx.checker.check_model(directory + "/model.onnx", full_check=True)
inputs = numpy.fromfile(directory + "/inputs", numpy.float32).reshape(-1, features)
outputs = numpy.fromfile(directory + "/outputs", numpy.float32).reshape(-1, columns)
session = onnxruntime.InferenceSession(directory + "/model.onnx",
                                       providers=["CPUExecutionProvider"])
assert [i.name for i in session.get_inputs()] == ["input"]
assert session.get_inputs()[0].shape == ["batch", features], session.get_inputs()[0].shape
assert [o.name for o in session.get_outputs()] == [name]
for rows in (1, 3, len(inputs)):
    (got,) = session.run(None, {"input": inputs[:rows]})
    numpy.testing.assert_allclose(got, outputs[:rows], rtol=2e-5, atol=2e-5)
