"""Mistakes of an operator or a researcher, each with the text that says what to do."""
import errno
import json
import os
import socket
import subprocess

import grpc
import numpy as np
import pytest

import harness
import jobs
import models
from kserve import CODE, identity_request, output, refused, stub


def refused_start(server):
    """The exit code and log of a server that must not start."""
    server.spawn()
    code = server.process.wait(30 * harness.SLOWER)
    server.process = None
    server.check_sanitizer()
    return code, server.log()


def test_an_unknown_key_of_the_configuration_names_the_nearest(start):
    server = start([])
    server.config["model_repositry"] = server.config.pop("model_repository")
    code, log = refused_start(server)
    assert code != 0
    assert "model_repositry" in log and "model_repository" in log


def test_a_value_out_of_range_names_key_and_limits(start):
    server = start([])
    server.config["devices"] = {"cpu_devices": -3}
    code, log = refused_start(server)
    assert code != 0
    assert "cpu_devices" in log and "-3" in log


def test_broken_json_names_line_and_file(start):
    server = start([])
    path = server.write_config()
    with open(path, "a", encoding="utf-8") as file:
        file.write("\n}")
    done = subprocess.run([os.path.join(harness.BUILD, "tidepoold"), "--check", path],
                          capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "config.json" in done.stdout + done.stderr and "line" in done.stdout + done.stderr


def test_check_accepts_a_good_configuration_and_starts_nothing(start):
    server = start(["identity_fp32"])
    done = subprocess.run([os.path.join(harness.BUILD, "tidepoold"), "--check",
                           server.write_config()], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not os.path.exists(server.socket)


def test_a_port_in_use_is_named(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = start([])
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        server.config["listeners"][0]["address"] = address
        code, log = refused_start(server)
    assert code != 0
    assert address in log and "in use" in log


def endpoint(server, name):
    found = [e for e in server.list_endpoints() if e.name == name]
    return found[0] if found else None


def test_a_corrupt_model_fails_alone(start):
    server = start(["identity_fp32", "add_one"])
    with open(os.path.join(server.repository, "add_one/1/model.onnx"), "wb") as file:
        file.write(os.urandom(500))
    server.start(ready=False)
    calls = stub(server)

    def good():
        try:
            return output(calls.ModelInfer(identity_request(), timeout=5)).tolist()
        except grpc.RpcError:
            return None
    assert harness.wait_until(good, 30 * harness.SLOWER, "the good model") == [[0, 1, 2, 3]]
    harness.wait_until(lambda: "add_one" in server.log(), 10, "the log names the model")
    failed = endpoint(server, "add_one")
    assert "not an ONNX model" in failed.reason and failed.path.endswith("add_one")
    error = refused(calls.ModelInfer, identity_request(model="add_one"), timeout=10)
    assert error.code() in (CODE.UNAVAILABLE, CODE.NOT_FOUND)
    assert "add_one" in error.details()


def test_a_missing_model_is_named_with_its_path(start):
    server = start(["identity_fp32"]).start()
    request = harness.Stubs.control.ServeModelRequest(path="/nowhere/model.onnx")
    error = refused(server.control().ServeModel, request, timeout=10)
    assert error.code() == CODE.NOT_FOUND
    assert "/nowhere/model.onnx" in error.details()
    done = server.cli("serve", "/nowhere/model.onnx", check=False)
    assert done.returncode != 0 and "/nowhere/model.onnx" in done.stderr


def test_a_version_folder_without_its_model(start):
    server = start(["identity_fp32"])
    os.makedirs(os.path.join(server.repository, "hollow", "1"))
    server.start(ready=False)
    harness.wait_until(lambda: "hollow" in server.log() and "model.onnx" in server.log(),
                       30 * harness.SLOWER, "the log names model and file")


def test_unhonoured_fields_of_config_pbtxt_are_named_in_one_warning(start):
    server = start(["identity_fp32"])
    path = os.path.join(server.repository, "identity_fp32", "config.pbtxt")
    with open(path, "a", encoding="utf-8") as file:
        file.write('sequence_batching { max_sequence_idle_microseconds: 5 }\n'
                   'response_cache { enable: true }\n')
    server.start()
    warnings = [line for line in server.log().splitlines() if "sequence_batching" in line]
    assert len(warnings) == 1
    assert "response_cache" in warnings[0] and "identity_fp32" in warnings[0]


# ---- jobs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def training(stubs, tmp_path_factory):
    server = harness.Server(tmp_path_factory.mktemp("training"), ["identity_fp32"])
    yield server.start()
    assert server.stop() == 0


def test_an_unknown_key_of_a_job_names_the_nearest(training, tmp_path):
    specification = jobs.digits_job(tmp_path, 10)
    specification["stpes"] = specification.pop("steps")
    error = refused(training.submit, specification)
    assert error.code() == CODE.INVALID_ARGUMENT
    assert "stpes" in error.details() and "steps" in error.details()


def test_a_job_without_its_data_is_refused(training, tmp_path):
    specification = jobs.digits_job(tmp_path, 10)
    specification["data"]["path"] = "/nowhere/features.npy"
    error = refused(training.submit, specification)
    assert "/nowhere/features.npy" in error.details()


def test_data_of_another_width_is_refused(training, tmp_path):
    specification = jobs.digits_job(tmp_path, 10)
    specification["model"]["layers"][0] = 65
    error = refused(training.submit, specification)
    assert "65" in error.details() and "64" in error.details()


def test_labels_of_another_length_are_refused(training, tmp_path):
    specification = jobs.digits_job(tmp_path, 10)
    np.save(specification["data"]["labels"], np.zeros(5, np.int64))
    error = refused(training.submit, specification)
    assert "5" in error.details() and "1797" in error.details()


def test_a_loss_that_is_no_number_stops_the_job_and_keeps_the_checkpoint(training, tmp_path):
    """Without an activation between them the layers diverge: each step is larger than the last."""
    specification = jobs.digits_job(tmp_path, 10_000, optimizer={
        "kind": "sgd", "learning_rate": 100, "momentum": 0.9})
    specification["model"]["activation"] = "none"
    job = training.submit(specification)
    failed = jobs.wait_state(training, job.id, "FAILED", 30 * harness.SLOWER)
    assert "step" in failed.reason and "loss" in failed.reason
    assert "not a number" in failed.reason or "not finite" in failed.reason, failed.reason
    assert stub(training).ModelInfer(identity_request(), timeout=10)


def small_disk(server, size):
    """Gives the server a state folder of `size` on a file system and in a mount namespace of its
    own, which a plain user may have as well."""
    unshare = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
    script = 'mount -t tmpfs -o size=%s tmpfs "$0" && exec "$@"' % size
    server.wrapper = unshare + ["sh", "-c", script, server.state]
    tried = subprocess.run(server.wrapper + ["true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip("no small file system can be mounted here: " + tried.stderr.strip())


def test_a_full_disk_delays_checkpoints_and_not_training(start, tmp_path):
    """Something else fills the state folder; checkpoints are written again when it is gone."""
    server = start(["identity_fp32"])
    small_disk(server, "4m")
    server.start()
    job = server.submit(jobs.digits_job(tmp_path, 10_000_000, hidden=(64,), every_steps=20))
    jobs.wait_step(server, job.id, 20, 30 * harness.SLOWER)
    filler = "/proc/%d/root%s/filler" % (server.process.pid, server.state)
    with open(filler, "wb", buffering=0) as file:
        def filled_and_warned():
            # Again each time: an older checkpoint that goes makes room for the next one.
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC
            return "space" in server.get_job(job.id).warning
        harness.wait_until(filled_and_warned, 30 * harness.SLOWER,
                           "the job warns of the full disk")
    now = server.get_job(job.id)
    jobs.wait_step(server, job.id, now.step + 50, 30 * harness.SLOWER)
    assert server.get_job(job.id).state == harness.Stubs.control.JOB_STATE_RUNNING
    kept = server.get_job(job.id).checkpointed_step
    os.unlink(filler)
    harness.wait_until(lambda: server.get_job(job.id).checkpointed_step > kept,
                       30 * harness.SLOWER, "checkpoints are written again")
    assert server.stop() == 0


def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_used(start, tmp_path):
    server = start([]).start()
    job = server.submit(jobs.digits_job(tmp_path, 10_000_000, every_steps=100))
    harness.wait_until(lambda: server.get_job(job.id).checkpointed_step >= 300,
                       60 * harness.SLOWER, "three checkpoints")
    server.kill()
    folder = os.path.join(server.state)
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names
             if "checkpoint" in os.path.join(path, name) and not name.endswith(".tmp")]
    newest = max(files, key=os.path.getmtime)
    with open(newest, "r+b") as file:
        file.seek(os.path.getsize(newest) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x40]))
    server.start()
    found = jobs.wait_step(server, job.id, 1, 60 * harness.SLOWER)
    assert found.state == harness.Stubs.control.JOB_STATE_RUNNING
    harness.wait_until(lambda: os.path.basename(newest) in server.log(), 10,
                       "the log names the damaged file")


def test_exit_codes_and_json_of_the_command_line(training):
    assert json.loads(training.cli("status", "--json").stdout)
    done = training.cli("why", "no-such-device", check=False)
    assert done.returncode not in (0, 2) and done.stderr != ""
    assert training.cli("nonsense", check=False).returncode == 2
    environment = dict(os.environ, TIDEPOOL_SERVER="unix:/nowhere/tidepool.sock")
    lost = subprocess.run([os.path.join(harness.BUILD, "tidepool"), "status"], env=environment,
                          capture_output=True, text=True, timeout=30)
    assert lost.returncode == 123 and "/nowhere/tidepool.sock" in lost.stderr


def test_the_bytes_of_a_model_outside_the_repository_are_never_read(start):
    server = start(["identity_fp32"])
    outside = os.path.join(server.directory, "outside")
    models.write(outside, ["add_one"])
    os.symlink(os.path.join(outside, "add_one"), os.path.join(server.repository, "linked"))
    server.start(ready=False)
    harness.wait_until(lambda: "linked" in server.log(), 30 * harness.SLOWER, "the log says so")
    error = refused(stub(server).ModelInfer, identity_request(model="linked"), timeout=10)
    assert error.code() in (CODE.UNAVAILABLE, CODE.NOT_FOUND)
