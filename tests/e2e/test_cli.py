"""The command line tells scripts the truth: exit codes, stdout for data, stderr for errors, JSON also
on failure, a quiet closed pipe, Ctrl-C."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading

import pytest

import harness
import jobs

TOOL = os.path.join(harness.BUILD, "tidepool")
# Every command with arguments that are right in form.
COMMANDS = [
    ["status"], ["top", "--once"], ["devices"], ["endpoints"], ["jobs"], ["jobs", "--active"],
    ["why"], ["why", "thing"], ["scale"], ["hold", "off"], ["mode", "act"], ["wait", "thing-1"],
    ["cancel", "thing-1"], ["pause", "thing-1"], ["resume", "thing-1"], ["serve", "thing"],
    ["unserve", "thing"], ["infer", "thing", "INPUT"], ["submit", "JOB"], ["jobs", "thing-1"],
    ["signal", "thing-1", "USR1"],
]
READING = [["status"], ["top", "--once"], ["devices"], ["endpoints"], ["jobs"], ["why"], ["scale"]]


def tool(*arguments, server=None, seconds=20, **keywords):
    environment = dict(os.environ)
    environment.pop("TIDEPOOL_SERVER", None)
    environment.pop("TIDEPOOL_TOKEN", None)
    if server is not None:
        environment["TIDEPOOL_SERVER"] = server
    return subprocess.run([TOOL, *arguments], capture_output=True, text=True,
                          timeout=seconds * harness.SLOWER, env=environment, check=False,
                          **keywords)


@pytest.fixture(name="files")
def fixture_files(tmp_path):
    """Files that the commands name."""
    (tmp_path / "input.json").write_text(json.dumps({"inputs": [
        {"name": "INPUT", "datatype": "FP32", "shape": [1, 4], "data": [[0, 1, 2, 3]]}]}))
    (tmp_path / "job.json").write_text("{}")
    return {"INPUT": str(tmp_path / "input.json"), "JOB": str(tmp_path / "job.json")}


def filled(command, files):
    return [files.get(word, word) for word in command]


def check_failure(done, code, json_asked):
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    words = done.stderr.split(": ", 1)
    assert words[0].startswith("tidepool ") and words[1].strip()
    if json_asked:
        error = json.loads(done.stdout)["error"]
        assert error["exitCode"] == code and error["message"] and error["code"]
    else:
        assert done.stdout == ""


def test_doctor_tries_what_the_machine_has(tmp_path):
    done = tool("doctor", "--json", server="unix:%s/none" % tmp_path)
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0
    assert found["server"]["outcome"] == "missing" and "cannot connect" in found["server"]["text"]
    assert found["kernel"]["outcome"] == "works"
    for name, folder in (("cgroup v2", "/sys/fs/cgroup"), ("cgroup v1 freezer", "/sys/fs/cgroup")):
        assert found[name]["outcome"] in ("works", "instead") and found[name]["text"]
        left = subprocess.run(["find", folder, "-name", "tidepool-doctor-*"], capture_output=True,
                              text=True, timeout=60, check=False)
        assert left.stdout == ""
    plain = tool("doctor", server="unix:%s/none" % tmp_path).stdout.splitlines()
    assert len(plain) == len(found)


# ---- without a server ------------------------------------------------------------------------


@pytest.mark.parametrize("json_asked", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_unreachable_server_is_123(command, json_asked, files, tmp_path):
    for address in ("unix:%s/none" % tmp_path, "127.0.0.1:1"):
        extra = ["--json"] if json_asked else []
        done = tool(*filled(command, files), *extra, server=address)
        check_failure(done, 123, json_asked)
        assert "cannot connect to " + address in done.stderr


@contextlib.contextmanager
def listener(answer=None):
    """A port where something listens that never says a word, or says what is not gRPC."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    if answer is not None:
                        connection.sendall(answer)
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield "127.0.0.1:%d" % server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_answer_in_time_is_124(command, files):
    with listener() as address:
        done = tool(*filled(command, files), "--json", "--timeout", "0.2", server=address)
    check_failure(done, 124, True)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_answer_that_is_not_grpc_is_123(command, files):
    with listener(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok") as address:
        done = tool(*filled(command, files), "--json", server=address)
    check_failure(done, 123, True)
    assert "does not speak gRPC" in done.stderr


@pytest.mark.parametrize("arguments, says", [
    (["stauts"], "do you mean 'status'?"),
    (["status", "extra"], "got 1 argument"),
    (["status", "--jsn"], "do you mean --json?"),
    (["status", "--wait"], "takes no option --wait"),
    (["status", "--timeout", "0"], "--timeout"),
    (["serve"], "MODEL"),
    (["serve", "model.onnx"], "model.onnx"),
    (["serve", "m", "--devices", "4:1"], "--devices"),
    (["hold", "maybe"], "'on' or 'off'"),
    (["mode", "fast"], "observe, advise or act"),
    (["submit", "/nonexistent.json"], "/nonexistent.json"),
    (["infer", "m", "/nonexistent.json"], "/nonexistent.json"),
])
@pytest.mark.parametrize("json_asked", [False, True])
def test_a_wrong_command_line_is_2(arguments, says, json_asked):
    done = tool(*arguments, *(["--json"] if json_asked else []), server="127.0.0.1:1")
    check_failure(done, 2, json_asked)
    assert says in done.stderr


@pytest.mark.parametrize("text, says", [
    ("{", "line 1"),
    ("[]", "inputs"),
    ('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1]}]}', "'x'"),
])
def test_input_that_is_no_request_is_2(text, says):
    done = tool("infer", "m", "-", server="127.0.0.1:1", input=text)
    check_failure(done, 2, False)
    assert says in done.stderr


def test_help_lists_every_command_and_exit_code():
    done = tool("help")
    assert done.returncode == 0 and done.stderr == ""
    for command in {command[0] for command in COMMANDS}:
        assert "\n  %s " % command in done.stdout
        own = tool("help", command)
        assert own.returncode == 0 and own.stdout.startswith("usage: tidepool %s" % command)
        assert tool(command, "--help").stdout == own.stdout
    for code in ("0", "1", "2", "121", "122", "123", "124", "125", "128+n"):
        assert "\n  %s " % code in done.stdout
    none = tool()
    assert none.returncode == 2 and none.stdout == "" and "usage" in none.stderr


def test_a_closed_pipe_is_quiet():
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads, from before the first byte
    try:
        done = subprocess.run([TOOL, "help"], stdout=writer, stderr=subprocess.PIPE, timeout=20,
                              check=False)
    finally:
        os.close(writer)
    assert done.stderr == b"" and done.returncode in (-signal.SIGPIPE, 128 + signal.SIGPIPE)


def test_a_full_disk_is_said():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([TOOL, "help"], stdout=full, stderr=subprocess.PIPE, text=True,
                              timeout=20, check=False)
    assert done.returncode == 125 and "No space left" in done.stderr


# ---- against the real server -----------------------------------------------------------------


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_success_is_0_and_stdout_holds_the_data(command, server):
    text = server.cli(*command)
    assert text.stdout.strip() and text.stderr == ""
    assert json.loads(server.cli(*command, "--json").stdout)


def test_json_holds_what_the_api_says(server):
    devices = json.loads(server.cli("devices", "--json").stdout)["devices"]
    assert [d["id"] for d in devices] == [d.id for d in server.list_devices()]
    status = json.loads(server.cli("status", "--json").stdout)
    assert status["devices"] == 2 and status["mode"] == "MODE_ACT"
    assert status["pid"] == server.process.pid


def test_infer_gives_the_result_wherever_it_is_asked(server, files):
    for address in ("unix:" + server.socket, server.address):
        done = tool("infer", "identity_fp32", files["INPUT"], server=address)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert answer["model_name"] == "identity_fp32"
        assert answer["outputs"][0]["data"] == [0, 1, 2, 3]
        assert answer["outputs"][0]["shape"] == [1, 4]


@pytest.mark.parametrize("command", [["wait", "none-1"], ["cancel", "none-1"], ["pause", "none-1"],
                                     ["resume", "none-1"], ["why", "none-1"],
                                     ["unserve", "none"], ["infer", "none", "INPUT"],
                                     ["submit", "JOB"], ["serve", "none"]], ids=" ".join)
@pytest.mark.parametrize("json_asked", [False, True])
def test_a_refusal_of_the_server_is_122(command, json_asked, server, files):
    done = server.cli(*filled(command, files), *(["--json"] if json_asked else []), check=False)
    check_failure(done, 122, json_asked)


def test_changes_over_tcp_want_a_token(server):
    done = tool("hold", "on", server=server.address)
    check_failure(done, 122, False)
    assert not server.get_status().hold


def test_hold_and_mode_change_and_say_what_is(server):
    assert "on hold" in server.cli("hold", "on", "--reason", "maintenance").stdout
    assert server.get_status().hold_reason == "maintenance"
    assert "maintenance" in server.cli("status").stdout
    assert "not on hold" in server.cli("hold", "off").stdout
    assert "observe" in server.cli("mode", "observe").stdout
    assert "act" in server.cli("mode", "act").stdout


def write_job(folder, **changes):
    path = os.path.join(folder, "job.json")
    made = jobs.digits_job(str(folder), changes.pop("steps", 30), **changes)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(made, file)
    return path


@pytest.fixture(name="own")
def fixture_own(start):
    return start([]).start()


def test_wait_passes_on_how_the_job_went(own, tmp_path):
    path = write_job(tmp_path)
    done = own.cli("submit", path, "--wait", "--json", seconds=60)
    assert json.loads(done.stdout)["state"] == "JOB_STATE_FINISHED"
    first = own.cli("submit", path, "--request-id", "x").stdout.strip()
    assert own.cli("submit", path, "--request-id", "x").stdout.strip() == first
    assert own.cli("wait", first, seconds=60).stdout == first + " finished\n"
    # Products of weights that grow without bound: the loss becomes NaN and the job fails.
    folder = tmp_path / "failing"
    folder.mkdir()
    path = write_job(folder, steps=100000, model={"layers": [64, 64, 64, 10], "activation": "none"},
                     optimizer={"kind": "sgd", "learning_rate": 1e6, "momentum": 0.9})
    failed = own.cli("submit", path, "--wait", check=False, seconds=60)
    assert failed.returncode == 1 and " failed" in failed.stderr


def test_pause_resume_and_cancel_a_job(own, tmp_path):
    job = own.cli("submit", write_job(tmp_path, steps=10000000)).stdout.strip()
    jobs.wait_state(own, job, "RUNNING", 30 * harness.SLOWER)
    own.cli("pause", job)
    jobs.wait_state(own, job, "PAUSED", 30 * harness.SLOWER)
    own.cli("resume", job)
    jobs.wait_state(own, job, "RUNNING", 30 * harness.SLOWER)
    assert job in own.cli("jobs", "--active").stdout
    assert job in own.cli("why", job).stdout
    timed_out = own.cli("wait", job, "--timeout", "0.3", check=False)
    assert timed_out.returncode == 124 and "goes on without this command" in timed_out.stderr
    own.cli("cancel", job)
    assert own.cli("wait", job, check=False, seconds=30).returncode == 1


def wait_until_it_waits(process):
    """The command catches signals from just before it watches the job on: the mask says when."""
    def catches():
        with open("/proc/%d/status" % process.pid, encoding="utf-8") as file:
            blocked = [line for line in file if line.startswith("SigBlk:")]
        return int(blocked[0].split()[1], 16) & 1 << (signal.SIGINT - 1)
    harness.wait_until(catches, 10 * harness.SLOWER, "the command waits")


def test_ctrl_c_leaves_the_job_and_says_so(own, tmp_path):
    job = own.cli("submit", write_job(tmp_path, steps=10000000)).stdout.strip()
    with subprocess.Popen([TOOL, "wait", job, "--json", "--server", "unix:" + own.socket],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until_it_waits(process)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert job + " goes on without this command" in errors
    assert json.loads(out)["error"]["exitCode"] == 130
    assert jobs.state(own, job) in jobs.RUNNING
    own.cli("cancel", job)


def test_a_server_that_goes_away_is_123(own, tmp_path):
    job = own.cli("submit", write_job(tmp_path, steps=10000000)).stdout.strip()
    with subprocess.Popen([TOOL, "wait", job, "--server", "unix:" + own.socket],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until_it_waits(process)
        own.kill()
        out, errors = process.communicate(timeout=20)
    assert process.returncode == 123 and out == "" and job in errors
