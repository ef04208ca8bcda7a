"""The wire layer against gRPC C++: the same service, each side on one core, the client on another."""
import json
import os
import re
import subprocess

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
        self.process = subprocess.Popen(process.pinned(core, command), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0


class Replay:
    """The client, connected; each run is one round."""

    def __init__(self, port, body, connections, streams, core=None):
        command = [os.path.join(TOOLS, "replay"), "127.0.0.1:%d" % port, METHOD, body,
                   str(connections), str(streams)]
        self.process = subprocess.Popen(
            process.pinned(process.CLIENT_CORE if core is None else core, command),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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


def identity_server(place):
    """A whole server on one core, with a model that costs nothing."""
    server = place.server([])
    tensor = {"datatype": "FP32", "dims": [-1]}
    os.makedirs(os.path.join(server.repository, "identity"))
    process.models.write_json(server.repository, "identity", {
        "runtime": "identity", "max_batch": 64, "inputs": [dict(tensor, name="INPUT")],
        "outputs": [dict(tensor, name="OUTPUT")]})
    return server


def callgrind_total(path):
    with open(path, encoding="utf-8") as file:
        return int(re.search(r"^(?:totals|summary): (\d+)", file.read(), re.MULTILINE).group(1))


def requests_send(port, body, count):
    """Exactly so many requests, one in flight."""
    done = subprocess.run([os.path.join(TOOLS, "replay"), "127.0.0.1:%d" % port, METHOD, body, "1",
                           "1"], input="#%d\n" % count, stdout=subprocess.PIPE, text=True,
                          check=True)
    result = json.loads(done.stdout)
    assert result["failed"] == 0 and result["all_requests"] == count, result


def callgrind(out):
    """With the setting for which the server would start itself again, out of valgrind's sight."""
    return ["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "valgrind", "--tool=callgrind", "-q",
            "--callgrind-out-file=" + out]


def wire_instructions(place, body, count):
    out = os.path.join(place.path("callgrind"), "wire%d" % count)
    program = Program(callgrind(out) + [os.path.join(TOOLS, "echo")], process.SERVER_CORE)
    requests_send(program.port, body, count)
    program.close()
    return callgrind_total(out)


def server_instructions(place, body, count):
    out = os.path.join(place.path("callgrind"), "server%d" % count)
    server = identity_server(place)
    server.wrapper = callgrind(out)
    patience, process.harness.SLOWER = process.harness.SLOWER, 20  # callgrind takes its time
    server.start()
    requests_send(server.ports["inference"], body, count)
    place.stop(server)
    process.harness.SLOWER = patience
    return callgrind_total(out)


def instructions_each(measure, place, body, few=1000, many=5000):
    """Start and stop cancel out in the difference of a short and a long run."""
    return (measure(place, body, many) - measure(place, body, few)) / (many - few)


def ratios(pairs, key):
    return [ours[key] / others[key] for ours, others in pairs]


def wire(place, rounds, quick):
    """A call answered on the network thread: our wire layer and gRPC C++ by themselves."""
    seconds = 0.2 if quick else 0.5
    small = request_file(place.path("wire"), 64)
    large = request_file(place.path("wire"), 600000)
    ours, other = echo(), peer()
    pipelined = compare(Side(ours.port, ours.pid, small, 4, 32),
                        Side(other.port, other.pid, small, 4, 32), rounds, seconds)
    ours.close()
    other.close()
    ours, other = echo(4096), peer(4096)
    bulk = compare(Side(ours.port, ours.pid, large, 1, 4),
                   Side(other.port, other.pid, large, 1, 4), rounds, seconds)
    ours.close()
    other.close()
    return [figure("grpc_wire_vs_cpp", [1 / ratio for ratio in ratios(pipelined, "cpu_us")],
                   "requests per CPU-second of the server, %g s each" % seconds),
            figure("grpc_large_cpu_vs_cpp", ratios(bulk, "cpu_us"),
                   "1 connection × 4 streams, %g s each" % seconds),
            figure("grpc_instructions_wire", [instructions_each(wire_instructions, place, small)],
                   "callgrind, one call in flight")]


wire.figures = ["grpc_wire_vs_cpp", "grpc_large_cpu_vs_cpp", "grpc_instructions_wire"]


def whole(place, rounds, quick):
    """ModelInfer through the whole server against gRPC C++ answering from its handler."""
    seconds = 0.2 if quick else 0.5
    small = request_file(place.path("wire"), 64)
    server = identity_server(place)
    server.wrapper = process.pinned(process.SERVER_CORE)
    server.start()
    other = peer()
    port, pid = server.ports["inference"], server.process.pid
    pipelined = compare(Side(port, pid, small, 4, 32), Side(other.port, other.pid, small, 4, 32),
                        rounds, seconds)
    single = compare(Side(port, pid, small, 1, 1), Side(other.port, other.pid, small, 1, 1),
                     rounds, seconds)
    place.stop(server)
    other.close()
    return [figure("grpc_pipelined_vs_cpp", [1 / ratio for ratio in ratios(pipelined, "cpu_us")],
                   "requests per CPU-second of the server, %g s each" % seconds),
            figure("grpc_single_cpu_vs_cpp", ratios(single, "cpu_us"), "%g s each" % seconds),
            figure("grpc_single_p50_vs_cpp", ratios(single, "p50_us"), "%g s each" % seconds),
            figure("grpc_instructions_small",
                   [instructions_each(server_instructions, place, small)],
                   "callgrind, one call in flight")]


whole.figures = ["grpc_pipelined_vs_cpp", "grpc_single_cpu_vs_cpp", "grpc_single_p50_vs_cpp",
                 "grpc_instructions_small"]
