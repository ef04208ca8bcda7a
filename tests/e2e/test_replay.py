"""The server's log of events: `tidepool sim --replay` repeats its decisions byte for byte, tries other
settings, and says what is wrong with a log; what keeps the log from being written never stops the
server."""
import glob
import json
import os
import subprocess

import pytest

import harness
import jobs
from kserve import identity_request, output, stub

TOOL = os.path.join(harness.BUILD, "tidepool")


def replay(path, *arguments):
    return subprocess.run([TOOL, "sim", "--replay", str(path), *arguments], capture_output=True,
                          text=True, timeout=60 * harness.SLOWER, check=False)


def document(path, *arguments):
    done = replay(path, *arguments, "--json", "-")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def logs(server):
    return sorted(glob.glob(os.path.join(server.state, "events", "events-*.log")))


def infer(server, count):
    calls = stub(server)
    for _ in range(count):
        answer = calls.ModelInfer(identity_request(), timeout=20 * harness.SLOWER)
        assert output(answer).tolist() == [[0.0, 1.0, 2.0, 3.0]]


def held_s(course):
    return sum(course["account_s"][name] for name in ("training", "waiting", "restore", "lost"))


def hashes(path):
    return json.loads(replay(path, "--json", "-").stdout)["hashes"]


def live_a_little(server, folder):
    """Some requests beside a job that comes, is paused, goes on and is cancelled."""
    job = server.submit(jobs.digits_job(folder, 10_000_000))
    jobs.wait_state(server, job.id, "RUNNING", 30 * harness.SLOWER)
    infer(server, 20)
    server.cli("pause", job.id)
    jobs.wait_state(server, job.id, "PAUSED", 30 * harness.SLOWER)
    server.cli("resume", job.id)
    jobs.wait_state(server, job.id, "RUNNING", 30 * harness.SLOWER)
    infer(server, 20)
    server.cli("cancel", job.id)
    jobs.wait_state(server, job.id, "CANCELLED", 30 * harness.SLOWER)


@pytest.fixture(name="lived")
def fixture_lived(start, tmp_path):
    """A server that ran twice, and was ended both times: the logs of both runs."""
    server = start(["identity_fp32"], name="recorded").start()
    live_a_little(server, tmp_path)
    # A log can be read while it is written: one hash a second.
    harness.wait_until(lambda: hashes(logs(server)[0]) >= 2, 20 * harness.SLOWER, "two hashes")
    assert server.stop() == 0
    server.start()
    live_a_little(server, tmp_path)
    assert server.stop() == 0
    assert "events are recorded no more" not in server.log()
    return logs(server)


@pytest.mark.threads
def test_both_runs_repeat_byte_for_byte_and_meet_other_settings(lived):
    assert len(lived) == 2
    for path in lived:
        assert os.stat(path).st_mode & 0o077 == 0
        told = document(path)
        assert told["same"] is True and told["torn_bytes"] == 0
        assert told["hashes"] >= 1 and "other" not in told
        assert told["recorded"]["events"] > 20 and told["recorded"]["grants"] >= 2
        # What one program decided, another build of the same source decides too, each time.
        again = document(path)
        assert again["recorded"] == told["recorded"]
    # Observed only, the same requests and the same job get nothing.
    told = document(lived[0], "--set", "mode=0")
    assert told["same"] is True
    assert told["recorded"]["grants"] >= 2 and told["other"]["grants"] == 0
    assert held_s(told["other"]) == 0 and held_s(told["recorded"]) > 0
    assert told["other"]["hash"] != told["recorded"]["hash"]
    said = replay(lived[0], "--set", "mode=0").stdout
    assert "the same actions" in said and "recorded" in said and "other" in said


def test_a_log_that_is_cut_or_damaged_is_repeated_up_to_there(lived, tmp_path):
    whole = document(lived[0])
    size = os.path.getsize(lived[0])
    with open(lived[0], "rb") as file:
        content = file.read()
    cut, damaged = str(tmp_path / "cut.log"), str(tmp_path / "damaged.log")
    with open(cut, "wb") as file:
        file.write(content[:size - 5])
    with open(damaged, "wb") as file:
        file.write(content[:size - 40] + bytes([content[size - 40] ^ 0x55]) + content[size - 39:])
    for path in (cut, damaged):
        told = document(path)
        assert told["same"] is True and 0 < told["torn_bytes"] < size
        assert told["recorded"]["events"] < whole["recorded"]["events"]
        assert told["hashes"] == whole["hashes"] - 1
        assert "are cut or damaged and left out" in replay(path).stdout


def test_what_is_no_log_is_named(lived, tmp_path):
    with open(lived[0], "rb") as file:
        content = file.read()
    files = {"empty": b"", "head": content[:10], "text": b"arrival_s,endpoint\n" * 50,
             "broken": content[:20] + b"\0\0\0\0" + content[24:]}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        done = replay(tmp_path / name)
        assert done.returncode not in (0, 1), name
        assert "is no log of events, or its head is damaged" in done.stderr, name
        assert done.stdout == ""
    done = replay(tmp_path / "nowhere.log")
    assert done.returncode not in (0, 1)
    assert "nowhere.log" in done.stderr and "No such file" in done.stderr
    done = replay(lived[0], "--set", "mood=1")
    assert done.returncode == 2 and "no setting of this name" in done.stderr
    done = replay(lived[0], "--set", "moves_per_hour=many")
    assert done.returncode == 2 and "'many' is no such number" in done.stderr


def disk_is_full(server):
    os.makedirs(os.path.join(server.state, "events"))
    os.symlink("/dev/full", os.path.join(server.state, "events", "events-00000001-000000.log"))


def folder_is_a_file(server):
    with open(os.path.join(server.state, "events"), "w", encoding="utf-8") as file:
        file.write("not a folder")


NOT_WRITTEN = {"No space left on device": disk_is_full, "Not a directory": folder_is_a_file}


@pytest.mark.parametrize("reason", NOT_WRITTEN)
def test_what_cannot_be_recorded_is_said_and_stops_nothing(start, tmp_path, reason):
    server = start(["identity_fp32"])
    NOT_WRITTEN[reason](server)
    server.start()
    live_a_little(server, tmp_path)
    assert server.get_status().ledger_balanced
    assert server.stop() == 0
    said = [line for line in server.log().splitlines() if "events are recorded no more" in line]
    assert len(said) == 1 and reason in said[0]


def test_recording_is_off_where_the_configuration_says_so(start):
    server = start(["identity_fp32"], {"record": {"enabled": False}}).start()
    infer(server, 3)
    assert server.stop() == 0
    assert not os.path.exists(os.path.join(server.state, "events"))
