"""Outside jobs: any program, under tidepool-shim, on devices that the server grants and takes."""
import os
import random
import signal
import threading
import time

import grpc
import pytest

import harness
import models
import outside
from kserve import refused, request, stub, tensor

CODE = grpc.StatusCode


def test_a_shell_job_runs_to_its_end_with_its_exit_code(start, tmp_path):
    server = start([]).start()
    good = outside.submit(server, "echo out; echo err >&2; pwd", name="good")
    done = outside.wait_end(server, good.id)
    assert (outside.state(done), outside.exit_class(done), done.exit_code) == \
        ("FINISHED", "COMPLETED", 0)
    assert done.runs == 1 and not done.devices and done.command.name == "good"
    assert not done.command.environment and not done.spec_json
    assert outside.output(server, good.id) == b"out\nerr\n%s\n" % server.directory.encode()
    bad = outside.submit(server, "exit 7", retries=0)
    done = outside.wait_end(server, bad.id)
    assert (outside.state(done), outside.exit_class(done), done.exit_code) == \
        ("FAILED", "FAILED", 7)
    assert "exit code 7" in done.reason and done.name == "sh"


def test_what_cannot_be_executed_is_told_as_that(start):
    server = start([]).start()
    for arguments, code in ((["/no/such/program"], 127), (["/etc/passwd"], 126)):
        job = outside.submit(server, "", arguments=arguments)
        done = outside.wait_end(server, job.id)
        assert (outside.state(done), outside.exit_class(done), done.exit_code) == \
            ("FAILED", "NOT_STARTED", code)
        assert arguments[0] in done.reason and done.runs == 1
    job = outside.submit(server, "true", working_directory="/no/such/folder")
    assert "/no/such/folder" in outside.wait_end(server, job.id).reason


def test_a_job_that_fails_runs_again_and_then_no_more(start, tmp_path):
    server = start([]).start()
    counted = tmp_path / "runs"
    job = outside.submit(server, "echo $TIDEPOOL_RESTART_COUNT >> %s; exit 3" % counted, retries=1)
    done = outside.wait_end(server, job.id)
    assert outside.lines(counted) == ["0", "1"]
    assert (done.runs, done.failures, done.exit_code) == (2, 2, 3)
    assert [(run, ended) for run, _, _, ended in outside.logs(server, job.id)] == \
        [(1, True), (2, True)]


def test_the_environment_is_the_clients_and_the_contracts(start, tmp_path):
    server = start([]).start()
    job = outside.submit(server, "env; taskset -p $$ 2>/dev/null; cat $TIDEPOOL_TOKEN_FILE",
                         environment=["PATH=" + os.environ["PATH"], "MINE=1"], devices_min=2)
    outside.wait_end(server, job.id)
    text = outside.output(server, job.id).decode()
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    ids = [device.id for device in server.list_devices()]
    assert found["MINE"] == "1" and found["TIDEPOOL_JOB"] == job.id
    assert found["TIDEPOOL_DEVICES"] == ",".join(ids) and found["TIDEPOOL_GANG_SIZE"] == "2"
    assert found["OMP_NUM_THREADS"] == "2" and found["PET_NPROC_PER_NODE"] == "2"
    assert int(found["MASTER_PORT"]) > 0 and found["TIDEPOOL_RESTART_COUNT"] == "0"
    assert "HOME" not in found and "TIDEPOOL_NOTICE_FILE" in found
    assert text.splitlines()[-1].startswith("%d." % server.status.store_epoch)


@pytest.mark.parametrize("fields, text", [
    ({"arguments": []}, "names no program"),
    ({"working_directory": "relative"}, "absolute"),
    ({"environment": ["TIDEPOOL_JOB=x"]}, "TIDEPOOL_"),
    ({"environment": ["novalue"]}, "NAME=value"),
    ({"devices_min": 99}, "99"),
    ({"kind": "gpu"}, "gpu"),
    ({"notice_signal": "KILL"}, "KILL"),
    ({"name": "a/b"}, "a/b"),
    ({"nice": 40}, "nice"),
])
def test_what_makes_no_sense_is_refused_with_its_name(start, shared_server, fields, text):
    error = refused(outside.submit, shared_server, "true", **fields)
    assert error.code() == CODE.INVALID_ARGUMENT and text in error.details()


@pytest.mark.threads
def test_a_job_is_signalled_paused_resumed_and_cancelled(start, tmp_path):
    server = start([]).start()
    said = tmp_path / "said"
    job = outside.submit(server, "trap 'echo usr1 >> %s' USR1; echo up >> %s; "
                         "while true; do sleep 0.05; done" % (said, said), notice_s=1)
    harness.wait_until(lambda: outside.lines(said) == ["up"], 20 * harness.SLOWER, "it is up")
    running = outside.wait_state(server, job.id, "RUNNING")
    server.control().SignalJob(outside.messages().SignalJobRequest(job=job.id, signal="USR1"),
                               timeout=10)
    harness.wait_until(lambda: outside.lines(said) == ["up", "usr1"], 20 * harness.SLOWER, "usr1")
    error = refused(server.control().SignalJob,
                    outside.messages().SignalJobRequest(job=job.id, signal="STOP"), timeout=10)
    assert error.code() == CODE.INVALID_ARGUMENT
    server.control().PauseJob(outside.messages().PauseJobRequest(job=job.id), timeout=10)
    paused = outside.wait_state(server, job.id, "PAUSED")
    assert not paused.devices and not outside.alive(running.pid)
    server.control().ResumeJob(outside.messages().ResumeJobRequest(job=job.id), timeout=10)
    harness.wait_until(lambda: outside.lines(said)[2:] == ["up"], 20 * harness.SLOWER, "up again")
    again = outside.wait_state(server, job.id, "RUNNING")
    assert again.runs == 2 and again.failures == 0
    server.control().CancelJob(outside.messages().CancelJobRequest(job=job.id), timeout=10)
    done = outside.wait_end(server, job.id)
    assert outside.state(done) == "CANCELLED" and not outside.alive(again.pid)
    assert server.get_status().ledger_balanced


@pytest.mark.threads
def test_logs_are_followed_into_the_next_run_and_go_on_where_they_were_cut(start, tmp_path):
    server = start([]).start()
    script = "echo begin $TIDEPOOL_RESTART_COUNT; sleep 0.3; echo end; " \
             "test $TIDEPOOL_RESTART_COUNT -ge 1"
    job = outside.submit(server, script, retries=3)
    chunks = outside.logs(server, job.id, follow=True)
    assert b"".join(data for _, _, data, _ in chunks) == b"begin 0\nend\nbegin 1\nend\n"
    assert [run for run, _, _, ended in chunks if ended] == [1, 2]
    assert outside.output(server, job.id, run=2, offset=6) == b"1\nend\n"
    assert outside.output(server, job.id, tail_bytes=4) == b"end\n"
    in_process = refused(outside.logs, server, "nobody-9")
    assert in_process.code() == CODE.NOT_FOUND


def test_a_notice_is_a_file_and_a_job_that_ignores_it_and_term_is_killed(start, tmp_path):
    server = start([], {"planner": {"kill_bound_s": 2}}).start()
    seen = tmp_path / "seen"
    script = "trap '' TERM USR1; while true; do if test -e $TIDEPOOL_NOTICE_FILE; then " \
             "cat $TIDEPOOL_NOTICE_FILE > %s; fi; sleep 0.05; done" % seen
    job = outside.submit(server, script, notice_s=1, notice_signal="USR2")
    running = outside.wait_state(server, job.id, "RUNNING")
    outside.wait_for(server, job.id, lambda job: job.pid, 20, "has a process")
    asked = time.monotonic()
    server.control().PauseJob(outside.messages().PauseJobRequest(job=job.id), timeout=10)
    noticed = outside.wait_for(server, job.id, lambda job: job.notice_deadline_wall_ns, 5,
                               "is asked")
    assert noticed.notice_reason
    harness.wait_until(lambda: seen.exists() and seen.read_text(), 20 * harness.SLOWER, "notice")
    assert '"deadline_boottime_ns"' in seen.read_text()
    done = outside.wait_state(server, job.id, "PAUSED")
    assert time.monotonic() - asked >= 1
    assert done.exit_signal == signal.SIGKILL and not outside.alive(running.pid)
    assert not any(device.job for device in server.list_devices())


ROUNDS = 57  # of the loop: about 4 ms on one core
ONE = {"devices": {"cpu_devices": 1, "cores_per_device": 1}}


def serving(start, config, slo_ms=100, devices="0:1"):
    """A server with an endpoint of some ms a request."""
    server = start(["identity_fp32"], config)
    built, _ = models.slow_load(ROUNDS)
    models.write_model(server.repository, "wide", (built, None))
    models.write_json(server.repository, "wide", {"max_batch": 1, "slo": {"latency_ms": slo_ms},
                                                  "devices": devices})
    models.write_json(server.repository, "identity_fp32", {"devices": devices})
    return server.start()


def press(server, until, threads=2):
    """Requests one after the other, from some threads, while until() is false."""
    calls, latencies, stop = stub(server), [], threading.Event()

    def one():
        while not stop.is_set():
            began = time.monotonic()
            calls.ModelInfer(request("wide", [tensor("COUNT", "INT64", [1, 1],
                                                     {"int64_contents": [1]})]),
                             timeout=60 * harness.SLOWER)
            latencies.append(time.monotonic() - began)
    running = [threading.Thread(target=one) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        harness.wait_until(until, 60 * harness.SLOWER, "what the load is for")
    finally:
        stop.set()
        for thread in running:
            thread.join()
    return latencies


@pytest.mark.threads
def test_a_burst_on_its_device_freezes_a_job_which_then_goes_on(start, tmp_path):
    server = serving(start, ONE)
    path = tmp_path / "count"
    job = outside.submit(server, outside.counter(path))
    outside.wait_state(server, job.id, "RUNNING")
    harness.wait_until(lambda: len(outside.lines(path)) > 5, 20 * harness.SLOWER, "it counts")
    frozen = []

    def stopped():
        frozen.append((time.monotonic(), len(outside.lines(path))))
        if server.list_devices()[0].state != outside.messages().DEVICE_STATE_SUSPENDED:
            frozen.clear()
        return frozen and frozen[-1][0] - frozen[0][0] > 0.3
    latencies = press(server, stopped)
    assert frozen[0][1] == frozen[-1][1], "it ran on while it was frozen"
    assert len(latencies) > 5
    again = outside.wait_state(server, job.id, "RUNNING")
    assert again.suspended_s >= 0.3 and again.runs == 1 and again.preemptions == 0
    count = len(outside.lines(path))
    harness.wait_until(lambda: len(outside.lines(path)) > count + 5, 20 * harness.SLOWER,
                       "it goes on")
    numbers = [int(line) for line in outside.lines(path)]
    assert numbers == list(range(1, len(numbers) + 1))
    status = server.get_status()
    assert status.ledger_balanced
    assert next(r.count for r in status.handovers if r.rung == "freeze") >= 1


# ---- the server goes, the job stays --------------------------------------------------------------


def counting(start, tmp_path, name="own", **fields):
    server = start([], name=name).start()
    path = tmp_path / "count"
    job = outside.submit(server, outside.counter(path), request_id="once", **fields)
    outside.wait_for(server, job.id, lambda job: job.pid, 20, "has a process")
    harness.wait_until(lambda: outside.lines(path), 20 * harness.SLOWER, "it counts")
    return server, server.get_job(job.id), path


def goes_on(path):
    count = len(outside.lines(path))
    harness.wait_until(lambda: len(outside.lines(path)) > count + 3, 20 * harness.SLOWER,
                       "it counts on")


def check_is_the_same(server, job, path):
    """The process of before counts on, and the server knows what it holds."""
    goes_on(path)
    now = outside.wait_for(server, job.id, lambda now: now.pid == job.pid, 20, "is found again")
    assert (outside.state(now), now.runs, list(now.devices)) == ("RUNNING", 1, list(job.devices))
    assert outside.alive(job.pid)
    held = [device.id for device in server.list_devices() if device.job == job.id]
    assert held == list(job.devices)
    numbers = [int(line) for line in outside.lines(path)]
    assert numbers == list(range(1, len(numbers) + 1))


def cancel(server, job):
    server.control().CancelJob(outside.messages().CancelJobRequest(job=job.id), timeout=10)
    done = outside.wait_end(server, job.id)
    assert outside.state(done) == "CANCELLED" and not outside.alive(job.pid)


@pytest.mark.threads
def test_kill_9_of_the_server_leaves_a_job_at_work_and_known(start, tmp_path):
    server, job, path = counting(start, tmp_path)
    for _ in range(harness.scale(5, 200)):
        server.kill()
        goes_on(path)
        server.start()
        check_is_the_same(server, job, path)
    assert outside.submit(server, "true", request_id="once").id == job.id
    cancel(server, job)
    # Its end was noted: the next server does not look for it any more.
    server.kill()
    server.start()
    assert outside.state(server.get_job(job.id)) == "CANCELLED"


def test_a_stop_of_the_server_leaves_jobs_running(start, tmp_path):
    server, job, path = counting(start, tmp_path)
    assert server.stop() == 0
    goes_on(path)
    server.start()
    check_is_the_same(server, job, path)
    cancel(server, job)


def test_a_job_that_ended_while_there_was_no_server_is_told_its_end(start, tmp_path):
    server = start([]).start()
    ends = {}
    for code in (0, 5):
        job = outside.submit(server, "echo up; while ! test -e %s/go; do sleep 0.02; done; exit %d"
                             % (tmp_path, code), retries=0)
        ends[job.id] = code
        outside.wait_for(server, job.id, lambda job: job.pid, 20, "has a process")
    pids = [server.get_job(job_id).pid for job_id in ends]
    server.kill()
    (tmp_path / "go").touch()
    harness.wait_until(lambda: not any(map(outside.alive, pids)), 20 * harness.SLOWER, "they end")
    server.start()
    for job_id, code in ends.items():
        done = outside.wait_end(server, job_id)
        assert (done.exit_code, done.runs) == (code, 1)
        assert outside.output(server, job_id) == b"up\n"


def test_what_a_lost_store_knew_of_running_jobs_is_read_from_their_shims(start, tmp_path):
    server, job, path = counting(start, tmp_path, priority=7)
    server.kill()
    for name in os.listdir(server.state):
        if name.startswith("tidepool.db"):
            os.unlink(os.path.join(server.state, name))
    server.start()
    check_is_the_same(server, job, path)
    assert server.get_job(job.id).priority == 7
    assert outside.submit(server, "true").number > job.number
    cancel(server, job)


def test_a_cancel_and_a_notice_hold_over_kill_9(start, tmp_path):
    server = start([], {"planner": {"kill_bound_s": 1}}).start()
    script = "trap '' TERM; while true; do sleep 0.05; done"
    gone = outside.submit(server, script)
    noticed = outside.submit(server, script, notice_s=2)
    for job in (gone, noticed):
        outside.wait_for(server, job.id, lambda job: job.pid, 20, "has a process")
    pids = {job.id: server.get_job(job.id).pid for job in (gone, noticed)}
    server.control().PauseJob(outside.messages().PauseJobRequest(job=noticed.id), timeout=10)
    outside.wait_for(server, noticed.id, lambda job: job.notice_deadline_wall_ns, 10, "is asked")
    server.control().CancelJob(outside.messages().CancelJobRequest(job=gone.id), timeout=10)
    server.kill()
    assert all(map(outside.alive, pids.values()))
    server.start()
    done = outside.wait_end(server, gone.id)
    assert outside.state(done) == "CANCELLED" and not outside.alive(pids[gone.id])
    paused = outside.wait_state(server, noticed.id, "PAUSED")
    assert not outside.alive(pids[noticed.id]) and paused.runs == 1
    server.control().ResumeJob(outside.messages().ResumeJobRequest(job=noticed.id), timeout=10)
    outside.wait_for(server, noticed.id, lambda job: job.runs == 2 and job.pid, 20, "runs again")
    cancel(server, server.get_job(noticed.id))


def test_a_job_whose_shim_is_killed_is_gone_with_it_and_runs_again(start, tmp_path):
    server, job, path = counting(start, tmp_path)
    with open("/proc/%d/stat" % job.pid, encoding="ascii", errors="replace") as file:
        shim = int(file.read().rsplit(")", 1)[1].split()[1])
    os.kill(shim, signal.SIGKILL)
    again = outside.wait_for(server, job.id, lambda job: job.runs == 2 and job.pid, 30,
                             "runs again")
    assert outside.exit_class(again) == "LOST" or again.failures == 1
    assert not outside.alive(job.pid)
    goes_on(path)
    cancel(server, again)


# ---- jobs that take part -------------------------------------------------------------------------

TAKES_PART = """
import os, sys, time
sys.path.insert(0, %r)
import tidepool
run = tidepool.attach()
path = sys.argv[1]
step = int(open(path).read()) if os.path.exists(path) else 0
for step in run.steps(range(step, 1000000)):
    time.sleep(0.02)
    with open("steps", "a") as file:
        print(step, file=file)
    if run.should_stop():
        with tidepool.atomic_file(path) as file:
            file.write(str(step + 1).encode())
        run.report(checkpointed_step=step + 1, loss=1 / (step + 1))
        run.acknowledge()
        time.sleep(float(sys.argv[2]))
        break
"""


def taking_part(server, stays=0, **fields):
    script = TAKES_PART % os.path.join(harness.ROOT, "clients", "python")
    fields.setdefault("environment", ["PATH=" + os.environ["PATH"], "PYTHONPATH="])
    job = outside.submit(server, "", arguments=["/usr/bin/python3", "-c", script, "saved",
                                                str(stays)], **fields)
    outside.wait_for(server, job.id, lambda job: job.step > 3, 30, "reports its steps")
    return job


def steps_of(server):
    return [int(line) for line in outside.lines(os.path.join(server.directory, "steps"))]


@pytest.mark.parametrize("stays", [0, 100])
def test_a_job_that_saves_on_a_notice_gives_its_devices_back_at_once_and_loses_nothing(start,
                                                                                       stays):
    server = start([]).start()
    job = taking_part(server, stays, notice_s=60)
    asked = time.monotonic()
    server.control().PauseJob(outside.messages().PauseJobRequest(job=job.id), timeout=10)
    outside.wait_state(server, job.id, "PAUSED", seconds=30)
    assert time.monotonic() - asked < 20 * harness.SLOWER
    server.control().ResumeJob(outside.messages().ResumeJobRequest(job=job.id), timeout=10)
    again = outside.wait_for(server, job.id, lambda job: job.runs == 2 and job.pid, 20, "again")
    assert again.failures == 0
    count = len(steps_of(server))
    harness.wait_until(lambda: len(steps_of(server)) > count + 3, 20 * harness.SLOWER, "goes on")
    numbers = steps_of(server)
    assert numbers == list(range(len(numbers))), "steps were lost or done twice"
    cancel(server, server.get_job(job.id))


@pytest.mark.threads
def test_a_job_that_must_not_be_frozen_stops_at_a_step_for_a_burst(start):
    server = serving(start, ONE, slo_ms=3000)
    job = taking_part(server, no_freeze=True)
    stood = []

    def stands():
        stood.append((time.monotonic(), len(steps_of(server))))
        if server.list_devices()[0].state != outside.messages().DEVICE_STATE_SUSPENDED:
            stood.clear()
        return stood and stood[-1][0] - stood[0][0] > 0.3
    press(server, stands)
    assert stood[0][1] == stood[-1][1], "it went on while it was paused"
    count = len(steps_of(server))
    harness.wait_until(lambda: len(steps_of(server)) > count + 3, 30 * harness.SLOWER, "goes on")
    numbers = steps_of(server)
    assert numbers == list(range(len(numbers)))
    assert next(r.count for r in server.get_status().handovers if r.rung == "pause") >= 1
    assert server.get_job(job.id).runs == 1
    cancel(server, server.get_job(job.id))


@pytest.mark.threads
def test_the_ranks_of_a_found_job_come_back_to_the_next_server(start):
    server = start([]).start()
    job = taking_part(server)
    server.kill()
    server.start()
    step = outside.wait_for(server, job.id, lambda job: job.step > 0, 30, "reports again").step
    outside.wait_for(server, job.id, lambda job: job.step > step, 30, "goes on")
    assert server.get_job(job.id).runs == 1
    cancel(server, server.get_job(job.id))


# ---- as a plain user, without control groups ------------------------------------------------------


@pytest.fixture
def plain(start):
    """A server of a user without privileges."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    server = start([], ONE)
    server.wrapper = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    folder = server.directory
    os.chmod(folder, 0o777)
    while folder != "/tmp" and folder != "/":
        os.chmod(folder, os.stat(folder).st_mode | 0o711)
        folder = os.path.dirname(folder)
    for path in (server.state, server.repository):
        os.chown(path, 65534, 65534)
    return server.start()


def parent_of(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def test_a_plain_user_has_jobs_too_and_what_cannot_be_verified_is_quarantined(plain):
    server = plain
    path = os.path.join(server.directory, "count")
    job = outside.submit(server, outside.counter(path), retries=0)
    running = outside.wait_for(server, job.id, lambda job: job.pid, 20, "has a process")
    assert running.keeper == "processes" and os.stat("/proc/%d" % running.pid).st_uid == 65534
    harness.wait_until(lambda: outside.lines(path), 20 * harness.SLOWER, "it counts")
    server.kill()
    goes_on(path)
    server.start()
    assert outside.wait_for(server, job.id, lambda job: job.pid, 20, "is found").pid == running.pid
    # Nobody can say whether all that its shim kept is gone.
    os.kill(parent_of(running.pid), signal.SIGKILL)
    done = outside.wait_end(server, job.id)
    assert outside.exit_class(done) == "LOST" and not outside.alive(running.pid)
    device = harness.wait_until(
        lambda: next((d for d in server.list_devices()
                      if d.state == outside.messages().DEVICE_STATE_QUARANTINED), None),
        20 * harness.SLOWER, "the device is quarantined")
    assert "control group" in device.reason
    waits = outside.submit(server, "true")
    outside.wait_state(server, waits.id, "WAITING")
    server.control().RecoverDevice(
        outside.messages().RecoverDeviceRequest(device=device.id), timeout=10)
    assert outside.state(outside.wait_end(server, waits.id)) == "FINISHED"


# ---- any moment -----------------------------------------------------------------------------------


def test_kill_9_at_any_moment_forgets_nothing_and_grants_nothing_twice(start, tmp_path):
    """Jobs that come, save, are paused and cancelled, and a server that is killed all the while."""
    seed = int(os.environ.get("TIDEPOOL_SEED", str(time.time_ns() % 1_000_000)))
    print("TIDEPOOL_SEED=%d" % seed)
    chance = random.Random(seed)
    server = start([], {"planner": {"kill_bound_s": 1}}).start()
    counters = {}
    for number in range(3):
        path = tmp_path / ("count%d" % number)
        job = outside.submit(server, outside.counter(path), request_id="r%d" % number, notice_s=1)
        counters[job.id] = path
    accepted = dict.fromkeys(counters)
    for turn in range(harness.scale(6, 200)):
        end = time.monotonic() + chance.uniform(0, 0.4)
        try:
            while time.monotonic() < end:
                act(server, chance, counters, accepted, turn)
        except grpc.RpcError as error:
            assert error.code() == CODE.FAILED_PRECONDITION, error.details()
        server.kill()
        server.start()
        check_nothing_is_lost(server, counters, accepted)
    for job_id, path in counters.items():
        numbers = [int(line) for line in outside.lines(path)]
        assert numbers == sorted(numbers), "two runs of one job at once"
        job = server.get_job(job_id)
        if outside.state(job) not in outside.ENDED:
            server.control().CancelJob(outside.messages().CancelJobRequest(job=job_id), timeout=10)
            outside.wait_end(server, job_id)
    assert server.get_status().ledger_balanced


def act(server, chance, counters, accepted, turn):
    messages, job = outside.messages(), chance.choice(list(counters))
    what = chance.randrange(4)
    if what == 0:
        server.control().PauseJob(messages.PauseJobRequest(job=job), timeout=10)
    elif what == 1:
        server.control().ResumeJob(messages.ResumeJobRequest(job=job), timeout=10)
    elif what == 2:
        request_id = "short-%d-%d" % (turn, len(accepted))
        accepted[outside.submit(server, "exit 0", request_id=request_id).id] = request_id
    time.sleep(chance.uniform(0, 0.1))


def check_nothing_is_lost(server, counters, accepted):
    jobs = {job_id: server.get_job(job_id) for job_id in accepted}
    for job_id, job in jobs.items():
        assert outside.state(job) != "FAILED", job.reason
        assert job.failures == 0, job.reason
        if accepted[job_id]:
            assert outside.submit(server, "exit 0", request_id=accepted[job_id]).id == job_id
    held = [device.job for device in server.list_devices() if device.job]
    assert len(held) == len(set(held)) <= 2
    for job_id in counters:
        assert outside.state(jobs[job_id]) not in outside.ENDED


def test_a_job_whose_device_fails_goes_on_elsewhere(start, tmp_path):
    server, job, path = counting(start, tmp_path)
    lost = job.devices[0]
    server.control().InjectDeviceFault(
        outside.messages().InjectDeviceFaultRequest(device=lost), timeout=10)
    again = outside.wait_for(server, job.id, lambda job: job.runs == 2 and job.pid, 30,
                             "runs again")
    assert outside.exit_class(again) in ("LOST_DEVICE", "UNSPECIFIED") and again.failures == 0
    assert list(again.devices) != [lost] and not outside.alive(job.pid)
    goes_on(path)
    server.control().RecoverDevice(outside.messages().RecoverDeviceRequest(device=lost),
                                   timeout=10)
    harness.wait_until(lambda: all(d.state != outside.messages().DEVICE_STATE_FAILED
                                   for d in server.list_devices()), 10 * harness.SLOWER, "back")
    cancel(server, again)


def test_a_job_ends_at_its_time_limit_over_a_restart_too(start, tmp_path):
    server, job, _ = counting(start, tmp_path, time_s=2, notice_s=0)
    server.kill()
    server.start()
    done = outside.wait_end(server, job.id)
    assert (outside.state(done), outside.exit_class(done)) == ("FAILED", "TIME_LIMIT")
    assert not outside.alive(job.pid)


EXTENDS = """
import sys, time
sys.path.insert(0, %r)
import tidepool
run = tidepool.attach()
for step in run.steps(range(1000000)):
    time.sleep(0.02)
    if run.should_stop():
        began = time.monotonic()
        run.extend(10)
        while time.monotonic() < began + 3:  # longer than the notice was
            time.sleep(0.1)
        run.acknowledge()
        print("saved after its notice would have been over", flush=True)
        break
"""


def test_a_job_may_ask_once_for_more_time(start):
    server = start([]).start()
    script = EXTENDS % os.path.join(harness.ROOT, "clients", "python")
    job = outside.submit(server, "", arguments=["/usr/bin/python3", "-c", script], notice_s=1.5)
    outside.wait_for(server, job.id, lambda job: job.step > 3, 30, "reports its steps")
    server.control().PauseJob(outside.messages().PauseJobRequest(job=job.id), timeout=10)
    outside.wait_state(server, job.id, "PAUSED", seconds=30)
    assert b"saved after" in outside.output(server, job.id)
