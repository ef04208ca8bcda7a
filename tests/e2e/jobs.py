"""In-process training jobs for the tests: their data and their specifications."""
import os

import numpy as np
import onnx
from onnx import numpy_helper
from sklearn.datasets import load_digits

import harness

RUNNING = ("JOB_STATE_LOADING", "JOB_STATE_WAITING", "JOB_STATE_RUNNING", "JOB_STATE_PAUSED",
           "JOB_STATE_STOPPING")


def write_digits(folder):
    """The handwritten digits as features.npy and labels.npy."""
    features, labels = os.path.join(folder, "features.npy"), os.path.join(folder, "labels.npy")
    if not os.path.exists(labels):  # a job may be reading them
        digits = load_digits()
        np.save(features, (digits.data / 16).astype(np.float32))
        np.save(labels, digits.target.astype(np.int64))
    return features, labels


def specification(name, path, labels, layers, steps, batch, micro_batch, devices="1:2",
                  every_steps=0, export=None):
    made = {
        "name": name,
        "model": {"kind": "mlp", "layers": layers, "activation": "relu"},
        "data": {"path": path, "labels": labels, "held_out": 0.1},
        "optimizer": {"kind": "adamw", "learning_rate": 0.001},
        "batch": batch, "micro_batch": micro_batch, "steps": steps, "seed": 7,
        "checkpoint": {"every_steps": every_steps, "every_s": 0}, "devices": devices,
    }
    if export is not None:
        made["export"] = {"repository": export, "name": name}
    return made


def digits_job(folder, steps, name="digits", hidden=(128,), every_steps=50, **changes):
    """Trained on the handwritten digits; exported below the folder when all steps are done."""
    features, labels = write_digits(folder)
    made = specification(name, features, labels, [64, *hidden, 10], steps, 256, 32,
                         every_steps=every_steps, export=os.path.join(folder, "exported"))
    made.update(changes)
    return made


def state(server, job_id):
    return harness.Stubs.control.JobState.Name(server.get_job(job_id).state)


def wait_state(server, job_id, wanted, seconds):
    wanted = ["JOB_STATE_" + word for word in ([wanted] if isinstance(wanted, str) else wanted)]

    def reached():
        server.check_alive()
        now = state(server, job_id)
        assert now in wanted or now in RUNNING, (now, server.get_job(job_id).reason)
        return now in wanted
    harness.wait_until(reached, seconds, "job %s is %s" % (job_id, wanted))
    return server.get_job(job_id)


def wait_step(server, job_id, step, seconds):
    harness.wait_until(lambda: server.get_job(job_id).step >= step, seconds,
                       "job %s at step %d" % (job_id, step))
    return server.get_job(job_id)


def weights(path):
    """{name: bytes} of an exported model."""
    model = onnx.load(path)
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert sum(array.size for array in found.values()) > 1000
    return {name: array.tobytes() for name, array in found.items()}
