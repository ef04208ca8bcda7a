"""clients/examples: what runs without a server runs here; PyTorch is not installed, so of its example
only the form is checked."""
import json
import os
import subprocess
import sys

import numpy
import pytest

import server as fake

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLES = os.path.join(ROOT, "clients/examples")
SECONDS = 120


def environment(**more):
    clean = {name: text for name, text in os.environ.items() if not name.startswith("TIDEPOOL_")}
    return dict(clean, PYTHONPATH=os.path.join(ROOT, "clients/python"), OMP_NUM_THREADS="1", **more)


def numpy_digits(folder, steps, **more):
    return subprocess.Popen([sys.executable, os.path.join(EXAMPLES, "numpy_digits.py"), "--width",
                             "32", "--steps", str(steps)], cwd=folder, env=environment(**more),
                            stdout=subprocess.PIPE, text=True)


def weights(path):
    with numpy.load(path) as saved:
        return int(saved["step"]), saved["first"].tobytes() + saved["second"].tobytes()


def test_numpy_digits_saves_at_a_notice_and_ends_with_the_same_bytes(tmp_path):
    plain, job = tmp_path / "plain", tmp_path / "job"
    plain.mkdir()
    job.mkdir()
    done = numpy_digits(plain, 3000).communicate(timeout=SECONDS)[0]
    assert "step 3000" in done
    server = fake.Server(job / "progress")
    run = numpy_digits(job, 3000, TIDEPOOL_PROGRESS_SOCKET=server.path)
    peer = server.accept()
    peer.hear_until("hello", can=["pause", "notice"])
    peer.say(pause={"request": 7, "step": 0})
    stood = peer.hear("stopped")["step"]
    peer.say(resume={"request": 8})
    peer.hear("resumed")
    peer.say(notice={"notice": 3, "deadline_s": 30.0, "deadline_boottime_ns": 1, "devices": [],
                     "ranks": [0], "reason": "load", "asked": "save and give back"})
    peer.hear("acknowledged")
    assert "saved at step" in run.communicate(timeout=SECONDS)[0] and run.returncode == 0
    assert stood <= weights(job / "numpy_digits.npz")[0] < 3000
    server.close()
    numpy_digits(job, 3000).communicate(timeout=SECONDS)
    assert weights(job / "numpy_digits.npz") == weights(plain / "numpy_digits.npz")


def test_the_shell_job_keeps_its_count_and_goes_at_a_notice(tmp_path):
    tool = tmp_path / "tidepool"  # what it calls at the end
    tool.write_text('#!/bin/sh\necho "$@"\n')
    tool.chmod(0o755)
    path = str(tmp_path) + ":" + os.environ["PATH"]
    notice = tmp_path / "notice"
    script = [os.path.join(EXAMPLES, "shell.sh"), "12"]
    job = subprocess.Popen(script, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                           env=environment(TIDEPOOL_NOTICE_FILE=str(notice), PATH=path))
    assert job.stdout.readline() == "step 1\n"
    notice.write_text(json.dumps({"notice": 3}))
    out = job.communicate(timeout=SECONDS)[0]
    count = int((tmp_path / "shell.count").read_text())
    assert out.endswith("report --checkpointed-step %d --acknowledge\n" % count)
    notice.unlink()
    out = subprocess.run(script, cwd=tmp_path, env=environment(PATH=path), capture_output=True,
                         text=True, timeout=SECONDS, check=True).stdout.split("\n")
    assert out[0] == "step %d" % (count + 1) and out[-2] == "step 12"
    assert not (tmp_path / "shell.count").exists()


def test_the_pytorch_example_has_two_lines_of_ours():
    with open(os.path.join(EXAMPLES, "torch_digits.py"), encoding="utf-8") as file:
        text = file.read()
    compile(text, "torch_digits.py", "exec")
    marked = [line.strip() for line in text.split("\n") if line.rstrip().endswith("line")
              and "#" in line]
    assert [line.split("=")[0].split("(")[0].strip() for line in marked] == ["run", "run.step"]


@pytest.mark.parametrize("name", ["shell.sh", "sweep.sh"])
def test_scripts_are_what_a_shell_can_read(name):
    path = os.path.join(EXAMPLES, name)
    assert os.access(path, os.X_OK)
    assert subprocess.run(["/bin/sh", "-n", path], timeout=20, check=False).returncode == 0
