"""The programs that are measured, where they run, and what their threads have used."""
import contextlib
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import harness  # noqa: E402  (tests/e2e/harness.py)
import jobs     # noqa: E402,F401
import kserve   # noqa: E402,F401
import models   # noqa: E402,F401

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]


def other_core(server):
    """A core that is not the first device's: for the client."""
    device = int(server.list_devices()[0].cores)
    return next(core for core in CORES if core != device)


def pinned(core, command=()):
    """The command, to run on this core. Not by a function after fork: gRPC's threads of this process do
    not always outlive a fork, and would end the child before it has begun."""
    return ["taskset", "--cpu-list", str(core), *command]


def thread_times(pid):
    """{thread name: CPU ns}; threads of one name are added up."""
    times = {}
    for task in os.listdir("/proc/%d/task" % pid):
        base = "/proc/%d/task/%s/" % (pid, task)
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            with open(base + "comm", encoding="utf-8") as file:
                name = file.read().strip()
            with open(base + "schedstat", encoding="utf-8") as file:
                times[name] = times.get(name, 0) + int(file.read().split()[0])
    return times


def cpu_ns(pid, prefix=""):
    return sum(ns for name, ns in thread_times(pid).items() if name.startswith(prefix))


class Place:
    """One folder for all the runs of a benchmark; servers in it end with it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tidepool-bench-")
        self.servers = []
        self.count = 0
        if harness.Stubs.control is None:
            protos = os.path.join(self.folder.name, "protos")
            os.makedirs(protos)
            (harness.Stubs.control, harness.Stubs.control_rpc, harness.Stubs.health,
             harness.Stubs.health_rpc, *_) = harness.compile_protos(protos)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for server in self.servers:
            if kind is not None:
                print("   server: exit %s\n%s" % (server.process.poll(), server.log()[-1500:]))
            server.stop()
        self.folder.cleanup()

    def path(self, name):
        path = os.path.join(self.folder.name, name)
        os.makedirs(path, exist_ok=True)
        return path

    def server(self, model_names=None, config=None, devices=1):
        """A server that is not started yet; add models to server.repository first."""
        self.count += 1
        settings = {"devices": {"cpu_devices": devices, "cores_per_device": 1}}
        settings.update(config or {})
        server = harness.Server(self.path("server%d" % self.count), model_names, settings)
        self.servers.append(server)
        return server

    def stop(self, server):
        server.stop()
        self.servers.remove(server)


class Direct:
    """tests/bench/onnx_direct, kept running between rounds."""

    def __init__(self, model, width, batch, core):
        environment = dict(os.environ)
        environment.setdefault("TIDEPOOL_ONNXRUNTIME", harness.onnxruntime_library())
        self.process = subprocess.Popen(
            [os.path.join(harness.BUILD, "tests/bench/onnx_direct"), model, "INPUT", "OUTPUT",
             str(width), str(batch), str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment)

    def run(self, seconds):
        """(batches per second, CPU ns per batch)."""
        self.process.stdin.write("%g\n" % seconds)
        self.process.stdin.flush()
        batches, wall_ns, used_ns = (int(x) for x in self.process.stdout.readline().split())
        return batches / (wall_ns / 1e9), used_ns / batches

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def dense_for(folder, core, batch, milliseconds, width=512):
    """A dense model whose batch takes about so long on this core: (built model, layers)."""
    def measure(layers):
        models.write_model(folder, "probe", models.dense(width, layers, batch))
        direct = Direct(os.path.join(folder, "probe/1/model.onnx"), width, batch, core)
        direct.run(0.2)
        rate = max(direct.run(0.3)[0] for _ in range(3))
        direct.close()
        return 1e3 / rate
    layers = 1
    for _ in range(6):
        took = measure(layers)
        better = max(1, round(layers * milliseconds / took))
        if abs(better - layers) <= layers * 0.05:
            return layers
        layers = better
    return layers


def rate_of(counter, seconds):
    """How fast a counter grows: difference over the time between its two readings."""
    began, first = time.monotonic(), counter()
    time.sleep(seconds)
    last, ended = counter(), time.monotonic()
    return (last - first) / (ended - began)
