"""Triton's load generator against the server.

The package named perf_analyzer holds no program; stock client 2.41 was the last line whose wheel
brought one that runs on Debian 12. It needs two libraries that the wheel lacks: libb64 (Debian)
and libcudart (another wheel). All goes into a folder of its own, made at the first use."""
import glob
import os
import re
import subprocess
import sys

import pytest

import harness

FOLDER = os.path.join(harness.ROOT, "build", "perf-analyzer")
WHEELS = ["tritonclient==2.41.0", "nvidia-cuda-runtime-cu12==12.9.79"]


def run(*command, **keywords):
    subprocess.run(command, check=True, **keywords)


@pytest.fixture(scope="module")
def perf_analyzer():
    ready = os.path.join(FOLDER, ".ready")
    if not os.path.exists(ready):
        os.makedirs(FOLDER, exist_ok=True)
        run(sys.executable, "-m", "venv", os.path.join(FOLDER, "venv"))
        run(os.path.join(FOLDER, "venv/bin/pip"), "install", "-q", "--no-deps",
            "--disable-pip-version-check", *WHEELS)
        run("apt-get", "download", "-q", "libb64-0d", cwd=FOLDER)
        run("dpkg", "-x", glob.glob(os.path.join(FOLDER, "libb64*.deb"))[0], FOLDER)
        open(ready, "w", encoding="utf-8").close()
    libraries = [os.path.dirname(found) for pattern in ("usr/lib/*/libb64.so.0d",
                 "venv/lib/*/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12")
                 for found in glob.glob(os.path.join(FOLDER, pattern))]
    assert len(libraries) == 2
    return (os.path.join(FOLDER, "venv/bin/perf_analyzer"),
            dict(os.environ, LD_LIBRARY_PATH=":".join(libraries)))


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["--concurrency-range", "1"], ["--concurrency-range", "8"],
                                       ["--concurrency-range", "4", "--async", "-b", "4"],
                                       ["--request-rate-range", "200"]],
                         ids=["one", "eight", "async batches", "rate"])
def test_perf_analyzer_measures_the_server(server, perf_analyzer, arguments):
    program, environment = perf_analyzer
    done = subprocess.run([program, "-m", "add_one", "-i", "grpc", "-u", server.address,
                           "-p", "1000", "--stability-percentage", "60", "-r", "5", *arguments],
                          env=environment, capture_output=True, text=True, timeout=120)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert float(re.search(r"Throughput: ([0-9.]+) infer/sec", text).group(1)) > 50, text
    assert int(re.search(r"Inference count: (\d+)", text).group(1)) > 0, text
    assert re.search(r"Avg request latency: \d+ usec", text), text
