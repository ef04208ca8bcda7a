"""tidepool.attach(): outside Tidepool, progress, pauses, notices, a server that goes and comes."""
import json
import math
import os
import time

import pytest

import tidepool
from tidepool import _link, _run


# ---- outside ---------------------------------------------------------------------------------


def test_outside_tidepool_nothing_happens(monkeypatch):
    monkeypatch.delenv("TIDEPOOL_PROGRESS_SOCKET", raising=False)
    monkeypatch.delenv("TIDEPOOL_NOTICE_FILE", raising=False)
    monkeypatch.setattr(_run, "_attached", None)
    run = tidepool.attach()
    assert not run.attached and tidepool.attach() is run
    assert [element for element in run.steps("abc")] == ["a", "b", "c"]
    assert run.step() == 4 and run.step(10) == 10
    assert not run.should_stop() and not run.should_pause() and not run.should_checkpoint()
    assert run.notice is None
    run.report(step=3, loss=1.0)
    run.acknowledge()
    run.extend(5)
    run.close()


def test_the_environment_says_where_and_which_rank(monkeypatch, server):
    for name, value in {"TIDEPOOL_PROGRESS_SOCKET": server.path, "RANK": "1",
                        "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_run, "_attached", None)
    run = tidepool.attach(resize=True)
    assert server.accept().hear("hello") == {"rank": 1, "ranks": 4, "pid": os.getpid(),
                                             "can": ["resize"]}
    run.close()


def test_a_rank_that_is_none_is_refused():
    with pytest.raises(ValueError, match="rank 2 is none of 2 ranks"):
        _run.Run(None, None, 2, 2)


# ---- progress --------------------------------------------------------------------------------


def test_steps_are_reported_with_their_times(attach):
    run, peer = attach()

    def slow_loader():
        for number in range(3):
            time.sleep(0.03)  # as real data would take
            yield number
    assert list(run.steps(slow_loader())) == [0, 1, 2]
    last = peer.hear_until("progress", step=3)
    assert 0.02 < last["waiting_s"] < 5 and 0.02 < last["step_s"] < 5


def test_pausing_is_offered_only_by_who_marks_steps(attach):
    run, peer = attach()
    assert peer.hear("hello")["can"] == []
    run.step()
    assert peer.hear("hello")["can"] == ["pause"]
    assert not run.should_stop()
    assert peer.hear("hello")["can"] == ["pause", "notice"]


def test_quick_steps_are_told_together(attach):
    run, peer = attach()
    peer.hear("hello")
    for _ in range(20000):
        run.step(waiting_s=0.0001)
    run.flush()
    told, waiting = 0, 0.0
    while True:
        progress = peer.hear("progress")
        told += 1
        waiting += progress.get("waiting_s", 0.0)
        if progress["step"] == 20000:
            break
    assert told < 2000
    assert waiting == pytest.approx(2.0)


def test_each_of_several_ranks_tells_each_step(attach):
    run, peer = attach(0, 2)
    for number in range(1, 51):
        run.step()
        assert peer.hear_until("progress", step=number)


def test_metrics_are_numbers_or_null(attach):
    run, peer = attach()

    class Tensor:
        def __float__(self):
            return 0.5
    run.report(step=1, loss=Tensor(), norm=math.nan, top=math.inf, text="no", **{"x" * 64: 1})
    assert peer.hear_until("progress", step=1)["metrics"] == {"loss": 0.5, "norm": None,
                                                              "top": None}
    run.report(step=2, loss=0.4)  # too soon to read a tensor again
    run.flush()
    assert "metrics" not in peer.hear_until("progress", step=2)


def test_a_checkpoint_is_told_at_once(attach):
    run, peer = attach()
    run.step(41)
    run.step(42)
    run.report(checkpointed_step=42)
    assert peer.hear_until("progress", checkpointed_step=42)["step"] == 42


# ---- pauses ----------------------------------------------------------------------------------


def test_it_stands_still_at_the_agreed_step_and_goes_on(attach, trainer, until):
    run, peer = attach()
    moved = []
    run.on_pause(lambda: moved.append("off"), lambda: moved.append("back"))
    steps = trainer(run)
    steps.go(2)
    steps.wait(2)
    peer.say(pause={"request": 7, "step": 4})
    until(run.should_pause)
    steps.go(10)
    assert peer.hear("stopped") == {"request": 7, "step": 4}
    assert steps.done == 3 and moved == ["off"]  # inside the fourth call
    peer.say(resume={"request": 8})
    assert peer.hear("resumed") == {"request": 8}
    steps.wait(12)
    assert moved == ["off", "back"] and not run.should_pause()


def test_a_single_rank_stops_at_the_next_step_when_it_was_quicker(attach, trainer):
    run, peer = attach()
    steps = trainer(run)
    steps.go(10)
    steps.wait(10)
    peer.say(pause={"request": 7, "step": 4})
    steps.go(1000000)
    stopped = peer.hear("stopped")
    assert stopped["request"] == 7 and stopped["step"] > 10
    peer.say(resume={"request": 8})
    peer.hear("resumed")


def test_one_of_several_ranks_that_has_begun_the_step_says_so(attach, trainer, until):
    run, peer = attach(1, 2)
    steps = trainer(run)
    steps.go(5)
    steps.wait(5)
    peer.say(pause={"request": 7, "step": 5})
    assert peer.hear("late") == {"request": 7, "step": 5}
    peer.say(pause={"request": 7, "step": 8})
    until(run.should_pause)
    steps.go(3)
    assert peer.hear("stopped") == {"request": 7, "step": 8}
    peer.say(pause={"request": 7, "step": 10})  # another rank was late: on to there
    steps.go(2)
    assert peer.hear("stopped") == {"request": 7, "step": 10}
    peer.say(resume={"request": 9})
    peer.hear("resumed")
    steps.wait(10)


def test_a_resume_before_the_step_has_come_is_answered_too(attach, until):
    run, peer = attach()
    run.step()
    peer.say(pause={"request": 7, "step": 100})
    until(run.should_pause)
    peer.say(resume={"request": 8})
    assert peer.hear("resumed") == {"request": 8}
    assert run.step() == 2


def test_twenty_pauses_lose_no_step(attach, trainer):
    run, peer = attach()
    steps = trainer(run)
    steps.go(10 ** 9)
    for number in range(20):
        peer.say(pause={"request": 2 * number + 1, "step": 0})
        stood = peer.hear_until("stopped", request=2 * number + 1)["step"]
        assert steps.done == stood - 1
        peer.say(resume={"request": 2 * number + 2})
        peer.hear_until("resumed", request=2 * number + 2)
    steps.allowed = 0


# ---- notices ---------------------------------------------------------------------------------

NOTICE = {"notice": 3, "deadline_s": 29.5, "deadline_boottime_ns": 1, "devices": ["cpu:0-3"],
          "ranks": [0], "reason": "endpoint 'vision' is late", "asked": "save and give back"}


def test_a_notice_is_seen_acknowledged_and_over(attach, until):
    run, peer = attach()
    heard = []
    run.on_notice(heard.append)
    assert not run.should_stop()
    peer.say(notice=NOTICE)
    until(run.should_stop)
    assert run.should_checkpoint()
    notice = run.notice
    assert heard == [notice]
    assert (notice.number, notice.devices, notice.ranks) == (3, ("cpu:0-3",), (0,))
    assert 28 < notice.seconds_left <= 29.5 and notice.reason == "endpoint 'vision' is late"
    run.extend(20)
    assert peer.hear("extend") == {"notice": 3, "seconds": 20.0}
    peer.say(notice_over={"notice": 3, "result": "extended", "deadline_s": 49.0})
    until(lambda: run.notice.seconds_left > 40)
    run.acknowledge()
    assert peer.hear("acknowledged") == {"notice": 3}
    assert run.should_stop() and not run.should_checkpoint()
    peer.say(notice_over={"notice": 2, "result": "withdrawn"})  # another one
    peer.say(notice_over={"notice": 3, "result": "withdrawn"})
    until(lambda: not run.should_stop())
    assert len(heard) == 1


def test_what_is_saved_is_told_before_the_acknowledgement(attach, until):
    run, peer = attach()
    run.step(5)
    peer.say(notice=NOTICE)
    until(run.should_stop)
    run.report(step=6, waiting_s=0.1)
    run.acknowledge()
    kinds = []
    while "acknowledged" not in kinds:
        kinds.append(next(iter(peer.lines.get(timeout=20))))
    assert kinds[-2:] == ["progress", "acknowledged"]


def test_without_a_server_the_file_tells(tmp_path, until):
    path = tmp_path / "notice"
    run = _run.Run(str(tmp_path / "nobody"), str(path))
    assert not run.should_stop()
    deadline = int((time.clock_gettime(time.CLOCK_BOOTTIME) + 10) * 1e9)
    path.write_text(json.dumps(dict(NOTICE, deadline_boottime_ns=deadline)))
    until(run.should_stop)
    assert 5 < run.notice.seconds_left <= 10  # by the clock, however old the file is
    path.write_text("half a rec")
    until(lambda: not run.should_stop())
    path.unlink()
    assert not run.should_stop()
    run.close()


# ---- a server that goes and comes --------------------------------------------------------------


def test_it_connects_again_and_says_where_it_is(attach, server):
    run, peer = attach()
    run.step(7)
    peer.hear_until("hello", can=["pause"])
    server.close()
    run.step(8)
    run.report(checkpointed_step=8)
    server.open()
    again = server.accept()
    assert again.hear()["can"] == ["pause"]  # hello comes first
    assert again.hear("progress")["step"] == 8
    run.step(9)
    run.flush()
    assert again.hear_until("progress", step=9)


def test_a_pause_outlives_the_server(attach, server, trainer, until):
    run, peer = attach()
    steps = trainer(run)
    steps.go(1)
    steps.wait(1)
    peer.say(pause={"request": 7, "step": 2})
    until(run.should_pause)
    steps.go(5)
    peer.hear("stopped")
    server.close()
    server.open()
    again = server.accept()
    assert again.hear("stopped") == {"request": 7, "step": 2}
    assert steps.done == 1
    again.say(pause={"request": 7, "step": 2})  # the same again is answered again
    assert again.hear("stopped") == {"request": 7, "step": 2}
    again.say(resume={"request": 1})
    assert again.hear("resumed") == {"request": 1}
    steps.wait(6)


def test_an_acknowledgement_is_told_to_the_next_server(attach, server, until):
    run, peer = attach()
    assert not run.should_stop()
    peer.say(notice=NOTICE)
    until(run.should_stop)
    run.acknowledge()
    peer.hear("acknowledged")
    server.close()
    server.open()
    assert server.accept().hear("acknowledged") == {"notice": 3}


def test_what_is_not_understood_is_passed_over(attach, until):
    run, peer = attach()
    run.should_stop()
    peer.socket.sendall(b"no\n[]\n{}\n\xff\n" + b'{"pause":{}}\n{"notice":{"notice":"x"}}\n'
                        b'{"fly":{"high":1}}\n{"resume":7}\n')
    peer.say(notice=NOTICE)
    until(run.should_stop)
    assert not run.should_pause()


def test_a_server_that_does_not_read_holds_up_nothing(server):
    run = _run.Run(server.path, None, 0, 2)
    silent, _ = server.listener.accept()
    began = time.monotonic()
    for _ in range(30000):
        run.step()
    assert time.monotonic() - began < 20
    assert len(run._link._outbox) < 1000  # the rest of one line: newer progress replaces older
    silent.close()
    run.close()


def test_a_forked_child_is_not_the_run(attach):
    run, peer = attach()
    run.step(5)
    peer.hear_until("progress", step=5)
    child = os.fork()
    if child == 0:
        run.step(99)
        run.flush()
        os._exit(0 if not run.attached else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.step(6)
    run.flush()
    assert peer.hear("progress")["step"] == 6  # not 99, and the connection is whole


def test_a_path_of_any_length_will_do(tmp_path):
    import server as fake
    folder = tmp_path / ("d" * 200)
    folder.mkdir()
    here = os.getcwd()
    os.chdir(folder)
    try:
        server = fake.Server("progress")
        run = _run.Run(str(folder / "progress"))
        assert server.accept().hear("hello")["rank"] == 0
        run.close()
        server.close()
    finally:
        os.chdir(here)
