"""The two clients of the benchmarks: tests/bench/closed (saturating) and tidepool-load (open loop,
latency from the intended time of sending)."""
import contextlib
import json
import os
import subprocess

import numpy as np

import harness
import process
from kserve import array_request


def body_file(server, model, rows, width):
    """An encoded ModelInferRequest of rows × width FP32."""
    array = (np.arange(rows * width, dtype=np.float32) % 17 / 17).reshape(rows, width)
    path = os.path.join(server.directory, "%s-%d.body" % (model, rows))
    with open(path, "wb") as file:
        file.write(array_request(model, array).SerializeToString())
    return path


class Closed:
    """tests/bench/closed, kept running between rounds."""

    def __init__(self, server, model, rows, width, in_flight, core):
        self.requests = 0  # answered so far
        command = [os.path.join(harness.BUILD, "tests/bench/closed"), server.address,
                   body_file(server, model, rows, width), str(in_flight)]
        self.process = subprocess.Popen(process.pinned(core, command), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def run(self, seconds):
        """Requests per second; none may fail."""
        self.process.stdin.write("%g\n" % seconds)
        self.process.stdin.flush()
        done, failed, wall_ns = (int(x) for x in self.process.stdout.readline().split())
        if failed:
            raise RuntimeError("%d requests failed: %s" % (failed, self.process.stdout.readline()))
        self.requests += done
        return done / (wall_ns / 1e9)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def command(server, model, rate, seconds, seed):
    """On a core that the server's device leaves free."""
    return process.pinned(process.other_core(server), [
        os.path.join(harness.BUILD, "tidepool-load"), "--server", server.address, "--endpoint",
        model, "--rate", "%g" % rate, "--seconds", "%g" % seconds, "--poisson", "--seed",
        str(seed), "--json"])


def play(server, model, rate, seconds, seed=1):
    """The report of one open-loop run; none may fail."""
    done = subprocess.run(command(server, model, rate, seconds, seed), capture_output=True,
                          text=True, timeout=seconds + 60, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return json.loads(done.stdout)


@contextlib.contextmanager
def steady(server, model, rate, seconds, seed=1):
    """The same beside what the caller does; entered when the first answers have come."""
    before = server.metrics().sum("nv_inference_request_success", model=model)
    running = subprocess.Popen(command(server, model, rate, seconds, seed),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    def answered():
        if running.poll() is not None:
            raise RuntimeError("the load ended early: " + "".join(running.communicate()))
        return server.metrics().sum("nv_inference_request_success", model=model) > before + 3
    try:
        harness.wait_until(answered, 20, "the load runs")
        yield
        out, err = running.communicate(timeout=seconds + 60)
    finally:
        running.kill()
    if running.returncode != 0:
        raise RuntimeError(out + err)
