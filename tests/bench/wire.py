"""The wire layer against gRPC C++: the same service, each side on one core, the client on another."""
import json
import os
import re
import subprocess
import tempfile

import process
from figures import figure

METHOD = "/inference.GRPCInferenceService/ModelInfer"
TOOLS = os.path.join(process.harness.BUILD, "tests/bench")


def request_file(folder, size):
    """A ModelInferRequest for an FP32 tensor of `size` bytes, in a file."""
    path = os.path.join(folder, "request%d" % size)
    message = process.kserve.pb.ModelInferRequest(model_name="identity", id="1")
    message.inputs.add(name="INPUT", datatype="FP32", shape=[1, size // 4])
    message.raw_input_contents.append(bytes(range(256)) * (size // 256) + bytes(size % 256))
    with open(path, "wb") as file:
        file.write(message.SerializeToString())
    return path


class Program:
    """A server that prints its port and ends with its standard input."""

    def __init__(self, command, core):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, preexec_fn=process.pinned(core))
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0


class Replay:
    """The client, connected; each run is one round."""

    def __init__(self, port, body, connections, streams, core=None):
        self.process = subprocess.Popen(
            [os.path.join(TOOLS, "replay"), "127.0.0.1:%d" % port, METHOD, body,
             str(connections), str(streams)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, preexec_fn=process.pinned(process.CLIENT_CORE if core is None else core))

    def run(self, seconds):
        self.process.stdin.write("%g\n" % seconds)
        self.process.stdin.flush()
        result = json.loads(self.process.stdout.readline())
        assert result["failed"] == 0, result
        return result

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0


class Side:
    """One server with its client: requests, latency and the server's CPU time of each round."""

    def __init__(self, port, pid, body, connections, streams, threads=""):
        self.pid, self.threads = pid, threads
        self.client = Replay(port, body, connections, streams)

    def run(self, seconds):
        before = process.cpu_ns(self.pid, self.threads)
        result = self.client.run(seconds)
        used = process.cpu_ns(self.pid, self.threads) - before
        result["cpu_us"] = used / 1e3 / result["all_requests"]
        return result

    def close(self):
        self.client.close()


def compare(ours, peers, rounds, seconds):
    """Rounds in turn, after one each that is not counted: [(ours, peer's)]."""
    pairs = []
    for number in range(rounds + 1):
        order = [ours, peers] if number % 2 else [peers, ours]
        results = {side: side.run(seconds) for side in order}
        pairs.append((results[ours], results[peers]))
    for side in (ours, peers):
        side.close()
    return pairs[1:]


def peer(answer_bytes=None):
    extra = [] if answer_bytes is None else [str(answer_bytes)]
    return Program([os.path.join(TOOLS, "peer/peer")] + extra, process.SERVER_CORE)


def echo(answer_bytes=None):
    extra = [] if answer_bytes is None else [str(answer_bytes)]
    return Program([os.path.join(TOOLS, "echo")] + extra, process.SERVER_CORE)


def instructions(command, body, port_of=None, requests=2000):
    """Instructions per request by callgrind, one call in flight: the difference of two runs."""
    totals = []
    for count in (requests // 4, requests):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            program = Program(["valgrind", "--tool=callgrind", "-q",
                               "--callgrind-out-file=" + out] + command, process.SERVER_CORE)
            replay = subprocess.run(
                [os.path.join(TOOLS, "replay"), "127.0.0.1:%d" % program.port, METHOD, body, "1",
                 "1"], input="#%d\n" % count, stdout=subprocess.PIPE, text=True, check=True)
            result = json.loads(replay.stdout)
            assert result["failed"] == 0 and result["all_requests"] == count, result
            program.close()
            with open(out, encoding="utf-8") as file:
                totals.append(int(re.search(r"^(?:totals|summary): (\d+)", file.read(),
                                            re.MULTILINE).group(1)))
    return (totals[1] - totals[0]) / (requests - requests // 4)


def wire(place, rounds, quick):
    """A call answered on the network thread: our wire layer and gRPC C++ by themselves."""
    seconds = 0.2 if quick else 0.5
    small = request_file(place.path("wire"), 64)
    ours, other = echo(), peer()
    pipelined = compare(Side(ours.port, ours.pid, small, 4, 32),
                        Side(other.port, other.pid, small, 4, 32), rounds, seconds)
    ours.close()
    other.close()
    count = instructions([os.path.join(TOOLS, "echo")], small)
    return [figure("grpc_wire_vs_cpp", [a["per_second"] / b["per_second"] for a, b in pipelined],
                   "64 B, 4 connections × 32 streams"),
            figure("grpc_instructions_wire", [count], "callgrind, one call in flight")]


wire.figures = ["grpc_wire_vs_cpp", "grpc_instructions_wire"]
