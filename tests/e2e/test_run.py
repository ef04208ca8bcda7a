"""tidepool run: a program of one's own as if it ran here, whatever becomes of the server meanwhile."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import harness
import outside

TOOL = os.path.join(harness.BUILD, "tidepool")
SECONDS = 60 * harness.SLOWER


@pytest.fixture(name="own")
def fixture_own(start):
    return start([]).start()


def environment(server, **more):
    return dict(os.environ, TIDEPOOL_SERVER="unix:" + server.socket, **more)


def begin(server, *arguments, **keywords):
    keywords.setdefault("env", environment(server))
    return subprocess.Popen([TOOL, "run", *arguments], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.PIPE, cwd=server.directory, **keywords)


def run(server, *arguments, **keywords):
    """(exit code, stdout, stderr) of tidepool run."""
    with begin(server, *arguments, **keywords) as tool:
        out, err = tool.communicate(timeout=SECONDS)
        return tool.returncode, out, err


def sh(script):
    return ["--", "/bin/sh", "-c", script]


def first_line(tool):
    return tool.stdout.readline()


# ---- as if it ran here -----------------------------------------------------------------------


@pytest.mark.threads
def test_output_and_exit_code_are_the_programs_own(own):
    assert run(own, *sh("echo out; echo err >&2; exit 7"))[:2] == (7, "out\nerr\n")
    code, out, err = run(own, "--name", "quiet", *sh("exit 0"))
    assert (code, out) == (0, "")
    assert err.startswith("quiet-2: 1 device; ") and err.count("\n") == 1


def test_a_signal_a_missing_program_and_a_folder_have_their_codes(own):
    code, _, err = run(own, *sh("kill -SEGV $$"))
    assert code == 128 + signal.SIGSEGV and "Segmentation fault" in err
    code, _, err = run(own, "--", "/nonexistent")
    assert code == 127 and "No such file" in err
    code, _, err = run(own, "--", own.directory)
    assert code == 126 and "Permission denied" in err


def test_options_end_at_the_command(own):
    code, out, _ = run(own, "/bin/echo", "--json", "-f", "--", "x")
    assert (code, out) == (0, "--json -f -- x\n")


def test_the_environment_and_the_place_are_the_callers(own):
    script = "pwd; umask; echo $COLOUR; env | grep -c ^TIDEPOOL_SERVER="
    code, out, _ = run(own, *sh(script), env=environment(own, COLOUR="red green"),
                       preexec_fn=lambda: os.umask(0o027))
    folder, mask, colour, inherited = out.split("\n")[:4]
    assert os.path.samefile(folder, own.directory)
    assert int(mask, 8) == 0o027 and colour == "red green"
    assert inherited == "0" and code == 1  # a job inside a job is one of its own


def test_the_last_byte_comes_and_binary_too(own):
    blob = os.urandom(300000)
    with open(os.path.join(own.directory, "blob"), "wb") as file:
        file.write(blob)
    done = subprocess.run([TOOL, "run", "--", "/bin/cat", "blob"], capture_output=True,
                          cwd=own.directory, env=environment(own), timeout=SECONDS, check=True)
    assert done.stdout == blob


def test_json_is_the_job_and_the_output_goes_to_stderr(own):
    code, out, err = run(own, "--json", *sh("echo out; exit 3"))
    job = json.loads(out)
    assert code == 3 and job["exitCode"] == 3 and job["exitClass"] == "EXIT_CLASS_FAILED"
    assert "out\n" in err


def test_output_goes_to_a_file_too(own):
    run(own, "--output", "all.log", *sh("echo first"))
    run(own, "--output", "all.log", *sh("echo second"))
    with open(os.path.join(own.directory, "all.log"), encoding="utf-8") as file:
        assert file.read() == "first\nsecond\n"


@pytest.mark.parametrize("arguments, code, says", [
    (["--devices", "3"], 122, "3"),
    (["--kind", "gpu"], 122, "gpu"),
    (["--team", "no name"], 122, "no name"),
    (["--array", "4"], 2, "--detach"),
    (["--signal", "@"], 2, "USR1@60"),
    (["--signal", "NOPE"], 122, "NOPE"),
    (["--time", "1w"], 2, "--time"),
    (["--devices", "0"], 2, "--devices"),
    (["--name", "a b"], 122, "name"),
])
def test_what_cannot_be_done_is_refused_with_its_reason(own, arguments, code, says):
    found, out, err = run(own, *arguments, "--", "/bin/true")
    assert found == code and out == "" and says in err
    assert not own.control().ListJobs(outside.messages().ListJobsRequest(), timeout=10).jobs


def test_a_job_is_of_the_team_that_is_named(own):
    code, _, _ = run(own, "--team", "vision", *sh("true"))
    teams = own.control().ListTeams(outside.messages().ListTeamsRequest(), timeout=10).teams
    assert code == 0 and [team.name for team in teams] == ["vision"]


def test_a_time_limit_is_124(own):
    code, _, err = run(own, "--time", "0.5", "--notice", "0", *sh("sleep 600"))
    assert code == 124 and "time" in err


# ---- leaving, and coming back ------------------------------------------------------------------


def test_ctrl_c_asks_and_twice_cancels(own):
    with begin(own, *sh("echo begun; sleep 600")) as tool:
        assert first_line(tool) == "begun\n"
        tool.send_signal(signal.SIGINT)
        assert "1 device" in tool.stderr.readline()
        tool.stderr.readline()
        assert "again within" in tool.stderr.readline()
        assert tool.poll() is None
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=SECONDS)
        assert tool.returncode == 128 + signal.SIGINT
    assert outside.exit_class(outside.wait_end(own, "sh-1")) == "CANCELLED"


def test_who_leaves_leaves_the_job_running(own):
    with begin(own, *sh("echo begun; while [ ! -e go ]; do sleep 0.05; done; echo done")) as tool:
        assert first_line(tool) == "begun\n"
        tool.send_signal(signal.SIGTERM)
        _, err = tool.communicate(timeout=SECONDS)
        assert tool.returncode == 128 + signal.SIGTERM and "goes on without this command" in err
    follow = subprocess.Popen([TOOL, "logs", "-f", "sh-1"], stdout=subprocess.PIPE, text=True,
                              env=environment(own))
    assert first_line(follow) == "begun\n"
    with open(os.path.join(own.directory, "go"), "w", encoding="utf-8"):
        pass
    assert follow.communicate(timeout=SECONDS)[0] == "done\n" and follow.returncode == 0
    assert own.cli("wait", "1").returncode == 0


def test_it_follows_over_a_crash_of_the_server(own):
    script = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 5"
    with begin(own, *sh(script)) as tool:
        assert first_line(tool) == "1\n"
        own.kill()
        time.sleep(0.3)  # the program writes on meanwhile
        own.start()
        out, err = tool.communicate(timeout=SECONDS)
        assert [int(line) for line in out.split()] == list(range(2, 61))
        assert tool.returncode == 5 and "the server is away" in err


def test_detached_it_prints_the_id_and_wait_has_the_exit_code(own):
    code, out, _ = run(own, "--detach", *sh("sleep 0.3; exit 9"))
    assert (code, out) == (0, "sh-1\n")
    assert own.cli("wait", "sh-1", check=False).returncode == 9
    assert own.cli("logs", "sh-1").stdout == ""


def test_an_array_is_many_jobs_told_apart_by_their_index(own):
    script = 'echo "$ARRAY_INDEX of $ARRAY_SIZE"'
    code, out, _ = run(own, "--detach", "--array", "5", "--name", "part", "--request-id", "one",
                       *sh(script))
    ids = out.split()
    assert code == 0 and ids == ["part-%d" % number for number in range(1, 6)]
    for index, job in enumerate(ids):
        assert own.cli("wait", job).returncode == 0
        assert own.cli("logs", job).stdout == "%d of 5\n" % index
    code, out, _ = run(own, "--detach", "--array", "5", "--name", "part", "--request-id", "one",
                       "--json", *sh(script))
    assert [job["id"] for job in json.loads(out)["jobs"]] == ids  # the same ones


def test_a_signal_reaches_the_program(own):
    with begin(own, *sh("trap 'echo got; exit 4' USR1; echo begun; "
                        "while true; do sleep 0.05; done")) as tool:
        assert first_line(tool) == "begun\n"
        own.cli("signal", "sh-1", "USR1")
        assert tool.communicate(timeout=SECONDS)[0] == "got\n" and tool.returncode == 4


def test_the_story_tells_what_became_of_it(own):
    run(own, "--name", "tale", *sh("exit 3"))
    story = own.cli("jobs", "tale-1").stdout
    for words in ("tale-1: ", "exit code 3", "/bin/sh -c 'exit 3'", "device-seconds lost",
                  "is granted to job tale-1"):
        assert words in story
    both = json.loads(own.cli("jobs", "tale-1", "--json").stdout)
    assert both["job"]["id"] == "tale-1" and both["explained"]["moves"]


# ---- with the Python package --------------------------------------------------------------------

COUNTER = """
import json, os, time, tidepool
done = json.load(open("count.json")) if os.path.exists("count.json") else 0
run = tidepool.attach()
run.report(step=done, checkpointed_step=done)
for step in run.steps(range(done, 10 ** 9), start=done):
    print(step, flush=True)
    time.sleep(0.02)
    if run.should_stop() or os.path.exists("enough"):
        with tidepool.atomic_file("count.json", "w") as file:
            json.dump(step + 1, file)
        run.report(step=step + 1, checkpointed_step=step + 1)
        run.acknowledge()
        break
"""


def test_a_python_program_saves_when_asked_and_loses_no_step(own):
    with open(os.path.join(own.directory, "count.py"), "w", encoding="utf-8") as file:
        file.write(COUNTER)
    variables = environment(own, PYTHONPATH=os.path.join(harness.ROOT, "clients/python"))
    with begin(own, "--name", "count", "--", sys.executable, "count.py", env=variables) as tool:
        assert first_line(tool) == "0\n"
        outside.wait_for(own, "count-1", lambda job: job.step > 3, 20, "reports its steps")
        own.cli("pause", "count-1")
        paused = outside.wait_state(own, "count-1", "PAUSED")
        assert paused.lost_s < 1 and paused.failures == 0
        own.cli("resume", "count-1")
        assert "completed" not in own.cli("jobs", "count-1").stdout
        again = outside.wait_for(own, "count-1", lambda job: job.runs == 2 and
                                 job.step > paused.step + 3, 20, "goes on")
        assert again.checkpointed_step >= paused.step
        assert "  a step " in own.cli("jobs", "count-1").stdout
        own.kill()
        own.start()
        outside.wait_for(own, "count-1", lambda job: job.step > again.step + 3, 20,
                         "reports to the next server")
        with open(os.path.join(own.directory, "enough"), "w", encoding="utf-8"):
            pass
        out, err = tool.communicate(timeout=SECONDS)
        steps = [int(line) for line in out.split()]
        assert steps == list(range(1, len(steps) + 1)) and tool.returncode == 0, err
        last = own.get_job("count-1")
        assert last.step == last.checkpointed_step == len(steps) + 1


# ---- from inside -------------------------------------------------------------------------------


def test_report_outside_of_a_job_does_nothing(own):
    clean = {name: text for name, text in os.environ.items() if not name.startswith("TIDEPOOL_")}
    done = subprocess.run([TOOL, "report", "--step", "3", "--metric", "loss=0.5"], env=clean,
                          capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = subprocess.run([TOOL, "report", "--step", "3", "--metric", "loss"], env=clean,
                          capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 2 and "NAME=NUMBER" in done.stderr


def played_server(folder, answers):
    """A progress socket that takes one report; prints what it got."""
    script = ("import socket, sys\n"
              "s = socket.socket(socket.AF_UNIX); s.bind(%r); s.listen(1); print('ready')\n"
              "sys.stdout.flush(); c = s.accept()[0]; f = c.makefile('rb')\n"
              "for line in f: print(line.decode(), end='')\n"
              "c.sendall(%r); c.close()\n" % (os.path.join(folder, "progress"), answers))
    played = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert first_line(played) == "ready\n"
    return played


@pytest.mark.parametrize("answer, code", [(b"", 0),
                                          (b'{"error":{"line":"x","text":"no such"}}\n', 122)])
def test_report_tells_the_server_and_says_what_it_refused(tmp_path, answer, code):
    played = played_server(str(tmp_path), answer)
    notice = tmp_path / "notice"
    notice.write_text('{"notice": 3}')
    done = subprocess.run(
        [TOOL, "report", "--checkpointed-step", "7", "--metric", "loss=0.5", "norm=nan",
         "--acknowledge"], capture_output=True, text=True, timeout=SECONDS, check=False,
        env=dict(os.environ, TIDEPOOL_PROGRESS_SOCKET=str(tmp_path / "progress"),
                 TIDEPOOL_NOTICE_FILE=str(notice), RANK="1"))
    lines = [json.loads(line) for line in played.communicate(timeout=SECONDS)[0].splitlines()]
    assert lines[0]["hello"]["rank"] == 1 and "ranks" not in lines[0]["hello"]
    assert lines[1:] == [{"progress": {"step": 7, "checkpointed_step": 7,
                                       "metrics": {"loss": 0.5, "norm": None}}},
                         {"acknowledged": {"notice": 3}}]
    assert done.returncode == code and ("no such" in done.stderr) == (code != 0)
