"""A real tidepoold for a test: its files, its start and stop, and what every test checks of it.

TIDEPOOL_BUILD    folder with the binaries (default: build)
TIDEPOOL_VARIANT  release, asan or tsan: how the binaries were built (default: release)
TIDEPOOL_LONG     1: the long versions of the tests
"""
import contextlib
import glob
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import grpc
import pytest
from grpc_tools import protoc
from prometheus_client.parser import text_string_to_metric_families

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests"))
import models  # noqa: E402  (tests/models.py)

BUILD = os.path.join(ROOT, os.environ.get("TIDEPOOL_BUILD", "build"))
VARIANT = os.environ.get("TIDEPOOL_VARIANT", "release")
LONG = os.environ.get("TIDEPOOL_LONG") == "1"
# How much longer things may take than on a release build.
SLOWER = {"release": 1, "asan": 4, "tsan": 10}[VARIANT]
# Sanitizers keep freed memory for a while: sizes of the process mean nothing there.
MEASURES_MEMORY = VARIANT == "release"


def scale(short, long):
    return long if LONG else short


def wait_until(condition, seconds, what):
    """Polls until `condition()` is true and returns its value; fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail("%s: not within %.1f s" % (what, seconds))
        time.sleep(0.01)


def onnxruntime_library():
    """The library inside the Python package, for servers whose build folder has none."""
    import onnxruntime
    folder = os.path.join(os.path.dirname(onnxruntime.__file__), "capi")
    return sorted(glob.glob(os.path.join(folder, "libonnxruntime.so*")))[0]


# ---- generated stubs -------------------------------------------------------------------------


def compile_protos(folder):
    """Compiles the services' own files; the inference messages come from the stock client."""
    proto = os.path.join(ROOT, "proto")
    sys.path.insert(0, folder)

    def compiled(root, name):
        if protoc.main(["", "-I" + root, "--python_out=" + folder, "--grpc_python_out=" + folder,
                        os.path.join(root, name + ".proto")]) != 0:
            raise RuntimeError("protoc refused %s.proto" % name)
        module = name.replace("/", ".")
        return (importlib.import_module(module + "_pb2"),
                importlib.import_module(module + "_pb2_grpc"))
    control, control_rpc = compiled(proto, "tidepool/v1/control")
    # From its own folder: a Python package `grpc.health` would hide behind the library's `grpc`.
    health, health_rpc = compiled(os.path.join(proto, "grpc/health/v1"), "health")
    scaler, scaler_rpc = compiled(proto, "externalscaler")
    return control, control_rpc, health, health_rpc, scaler, scaler_rpc


class Stubs:
    """Filled by conftest.py once for the whole run."""
    control = control_rpc = health = health_rpc = scaler = scaler_rpc = None


# ---- the process -----------------------------------------------------------------------------


def sanitizer_environment(directory):
    log = "log_path=" + os.path.join(directory, "sanitizer")
    here = os.path.dirname(os.path.abspath(__file__))
    return {
        "ASAN_OPTIONS": log + ":detect_leaks=1:detect_stack_use_after_return=1",
        "LSAN_OPTIONS": "suppressions=%s:print_suppressions=0" % os.path.join(here, "lsan.supp"),
        "UBSAN_OPTIONS": log + ":print_stacktrace=1",
        # Libraries that were not built with it (ONNX Runtime, OpenBLAS) cannot be judged.
        "TSAN_OPTIONS": log + ":ignore_noninstrumented_modules=1:second_deadlock_stack=1",
    }


class Server:
    """One tidepoold with its own folders; start() and kill() may follow each other."""

    def __init__(self, directory, model_names=None, config=None, arguments=()):
        self.directory = str(directory)
        self.state = os.path.join(self.directory, "state")
        self.repository = os.path.join(self.directory, "repository")
        self.socket = os.path.join(self.directory, "control.sock")
        self.log_path = os.path.join(self.directory, "server.log")
        self.arguments = list(arguments)
        self.wrapper = []  # a command that ends by exec'ing its arguments
        self.process = None
        self.channels = []
        os.makedirs(self.state, exist_ok=True)
        os.makedirs(self.repository, exist_ok=True)
        if model_names is not None:
            models.write(self.repository, model_names)
        self.config = self.base_config()
        self.config.update(config or {})

    def base_config(self):
        return {
            "model_repository": self.repository,
            "state": self.state,
            "testing": True,
            "listeners": [
                {"address": "127.0.0.1:0", "services": ["inference", "health", "control"]},
                {"address": "unix:" + self.socket, "services": ["control"]},
                {"address": "127.0.0.1:0", "services": ["http", "json"]},
                {"address": "127.0.0.1:0", "services": ["metrics"]},
            ],
            "devices": {"cpu_devices": 2, "cores_per_device": 1},
        }

    # -- life

    def write_config(self):
        path = os.path.join(self.directory, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.config, file, indent=1)
        return path

    def spawn(self):
        environment = dict(os.environ, **sanitizer_environment(self.directory))
        if not os.path.exists(os.path.join(BUILD, "onnxruntime")):
            environment.setdefault("TIDEPOOL_ONNXRUNTIME", onnxruntime_library())
        command = self.wrapper + [os.path.join(BUILD, "tidepoold"), "--config",
                                  self.write_config()]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command + self.arguments, stdout=log, stderr=log,
                                            env=environment)

    def start(self, ready=True):
        self.spawn()
        self.status = wait_until(self.first_status, 30 * SLOWER, "start of tidepoold")
        self.ports = {}
        for listener in self.status.listeners:
            if not listener.address.startswith("unix:"):
                for service in listener.services:
                    self.ports[service] = int(listener.address.rsplit(":", 1)[1])
        self.address = "127.0.0.1:%d" % self.ports["inference"]
        if ready:
            wait_until(self.is_ready, 60 * SLOWER, "readiness of tidepoold")
        return self

    def first_status(self):
        self.check_alive()
        if not os.path.exists(self.socket):
            return None
        try:
            return self.control().GetStatus(Stubs.control.GetStatusRequest(), timeout=1)
        except grpc.RpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                self.drop_channels()
                return None
            raise

    def is_ready(self):
        self.check_alive()
        return self.http_status("/v2/health/ready") == 200

    def check_alive(self):
        code = self.process.poll()
        if code is not None:
            pytest.fail("tidepoold ended with %d:\n%s%s" % (code, self.log()[-6000:],
                                                            self.sanitizer_report()))

    def stop(self, seconds=20):
        """SIGTERM; returns the exit code. Anything a sanitizer said fails the test."""
        self.drop_channels()
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds * SLOWER)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            self.process.wait()
            pytest.fail("tidepoold did not stop within %d s:\n%s"
                        % (seconds * SLOWER, self.log()[-3000:]))
        self.process = None
        self.check_sanitizer()
        return code

    def kill(self):
        """kill -9, as a crash would."""
        self.drop_channels()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    # -- what it says

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def sanitizer_report(self):
        text = ""
        for path in sorted(glob.glob(os.path.join(self.directory, "sanitizer.*"))):
            with open(path, encoding="utf-8", errors="replace") as file:
                text += "\n== %s\n%s" % (path, file.read()[:12000])
        return text

    def check_sanitizer(self):
        report = self.sanitizer_report()
        if report or "runtime error:" in self.log():
            pytest.fail("sanitizer report:" + (report or self.log()[-6000:]))

    def proc(self, name):
        with open("/proc/%d/%s" % (self.process.pid, name), encoding="utf-8") as file:
            return file.read()

    def rss_bytes(self):
        for line in self.proc("status").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("no VmRSS")

    def thread_count(self):
        return len(os.listdir("/proc/%d/task" % self.process.pid))

    def descriptor_count(self):
        return len(os.listdir("/proc/%d/fd" % self.process.pid))

    # -- clients

    def channel(self, target=None, options=()):
        channel = grpc.insecure_channel(target or self.address, options=list(options) + [
            ("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1)])
        self.channels.append(channel)
        return channel

    def drop_channels(self):
        for channel in self.channels:
            channel.close()
        self.channels = []
        self.control_stub = self.statistics_stub = None

    control_stub = statistics_stub = None

    def control(self):
        if self.control_stub is None:
            self.control_stub = Stubs.control_rpc.ControlStub(self.channel("unix:" + self.socket))
        return self.control_stub

    def health(self, options=()):
        return Stubs.health_rpc.HealthStub(self.channel(options=options))

    def connect(self):
        sock = socket.create_connection(("127.0.0.1", self.ports["inference"]), timeout=20)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def http(self, path, service="http"):
        """(status, headers, body) of a GET."""
        url = "http://127.0.0.1:%d%s" % (self.ports[service], path)
        try:
            with urllib.request.urlopen(url, timeout=10 * SLOWER) as reply:
                return reply.status, dict(reply.headers), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def http_status(self, path):
        return self.http(path)[0]

    def metrics(self):
        return Metrics(self.http("/metrics", "metrics")[2].decode("utf-8"))

    # -- the control API in one word each

    def get_status(self):
        return self.control().GetStatus(Stubs.control.GetStatusRequest(), timeout=10)

    def list_devices(self):
        return list(self.control().ListDevices(Stubs.control.ListDevicesRequest(),
                                               timeout=10).devices)

    def list_endpoints(self):
        return list(self.control().ListEndpoints(Stubs.control.ListEndpointsRequest(),
                                                 timeout=10).endpoints)

    def get_job(self, job):
        return self.control().GetJob(Stubs.control.GetJobRequest(job=job), timeout=10)

    def submit(self, specification, request_id=""):
        request = Stubs.control.SubmitJobRequest(spec_json=json.dumps(specification),
                                                 request_id=request_id)
        return self.control().SubmitJob(request, timeout=10)

    def explain(self, **what):
        return self.control().Explain(Stubs.control.ExplainRequest(**what), timeout=10)

    def timeline(self):
        return self.control().GetTimeline(Stubs.control.GetTimelineRequest(), timeout=10)

    def cli(self, *arguments, check=True, seconds=20):
        """Runs the command line against this server; returns the completed process."""
        done = subprocess.run([os.path.join(BUILD, "tidepool"), *arguments], capture_output=True,
                              text=True, timeout=seconds * SLOWER,
                              env=dict(os.environ, TIDEPOOL_SERVER="unix:" + self.socket))
        if check and done.returncode != 0:
            pytest.fail("tidepool %s: exit %d\n%s%s" % (" ".join(arguments), done.returncode,
                                                        done.stdout, done.stderr))
        return done

    # -- what must hold after every case

    def quiet(self):
        """A level to compare with: what an idle server holds, this harness's channels closed."""
        self.drop_channels()
        return {"pid": self.process.pid, "threads": self.thread_count(),
                "descriptors": self.descriptor_count()}

    def check_after(self, before):
        self.check_alive()
        assert self.process.pid == before["pid"]
        assert self.http_status("/v2/health/live") == 200
        assert self.http_status("/v2/health/ready") == 200
        self.check_gauges()
        self.drop_channels()

        def back():
            return (self.thread_count() <= before["threads"]
                    and self.descriptor_count() <= before["descriptors"])
        end = time.monotonic() + 5 * SLOWER
        while not back() and time.monotonic() < end:
            time.sleep(0.02)
        assert self.thread_count() <= before["threads"], "threads left over"
        assert self.descriptor_count() <= before["descriptors"], "descriptors left over: %s" % [
            os.readlink(p) for p in glob.glob("/proc/%d/fd/*" % self.process.pid)]
        self.check_sanitizer()

    def check_gauges(self):
        def idle():
            pending = self.metrics().all("nv_inference_pending_request_count")
            return all(value == 0 for _, value in pending)
        wait_until(idle, 10 * SLOWER, "pending requests back to 0")
        by_state = self.metrics().all("tidepool_devices")
        assert sum(value for _, value in by_state) == self.status.devices


class Metrics:
    """One scrape, parsed by the official parser."""

    def __init__(self, text):
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {}
        for family in self.families.values():
            for sample in family.samples:
                self.samples.setdefault(sample.name, []).append((sample.labels, sample.value))

    def all(self, name):
        """[(labels, value)]; a name that is not there is a failure, not an empty list."""
        for candidate in (name, name + "_total"):
            if candidate in self.samples:
                return self.samples[candidate]
        raise AssertionError("no metric %s" % name)

    def sum(self, name, **labels):
        return sum(value for found, value in self.all(name)
                   if all(found.get(key) == text for key, text in labels.items()))


@contextlib.contextmanager
def running(directory, *arguments, **keywords):
    """A server for one test, stopped and checked at its end."""
    server = Server(directory, *arguments, **keywords)
    try:
        yield server.start()
    finally:
        server.stop()
