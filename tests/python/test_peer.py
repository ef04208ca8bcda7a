"""The package against the server's own progress socket (peer.c): ranks as processes of their own."""
import os
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEER = os.path.join(ROOT, os.environ.get("TIDEPOOL_BUILD", "build"), "tests/python/peer")

RANK = """
import os, sys, tidepool
run = tidepool.attach()
print("begun", flush=True)
step = 0
while not run.should_stop():
    step = run.step(loss=0.5)
run.report(checkpointed_step=step)
run.acknowledge()
run.close()
print("ended", step)
"""


class Peer:
    def __init__(self, folder):
        self.process = subprocess.Popen([PEER, folder], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "ready\n"

    def say(self, *words):
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def hear(self, word):
        """The rest of the next line that begins with this word; others are passed over."""
        for line in self.process.stdout:
            words = line.split()
            if words[0] == word:
                return words[1:]
        raise AssertionError("the peer has ended")

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(20) == 0


@pytest.fixture(name="peer")
def fixture_peer(tmp_path):
    peer = Peer(str(tmp_path))
    yield peer
    peer.close()


def ranks_start(folder, count):
    ranks = []
    for rank in range(count):
        variables = dict(os.environ, TIDEPOOL_PROGRESS_SOCKET=os.path.join(folder, "progress"),
                         RANK=str(rank), WORLD_SIZE=str(count),
                         PYTHONPATH=os.path.join(ROOT, "clients/python"))
        ranks.append(subprocess.Popen([sys.executable, "-c", RANK], env=variables, text=True,
                                      stdout=subprocess.PIPE))
    for rank in ranks:
        assert rank.stdout.readline() == "begun\n"
    return ranks


@pytest.mark.parametrize("count", [1, 3])
def test_ranks_pause_resume_and_end(peer, tmp_path, count):
    ranks = ranks_start(str(tmp_path), count)
    seen = set()
    while len(seen) < count:
        seen.add(peer.hear("step")[0])
    for number in range(1, 20, 2):
        # Steps here are quicker than the word of them: the agreed one moves until it is ahead.
        peer.say("pause", number)
        assert peer.hear("stood")[0] == str(number)
        peer.say("resume", number + 1)
        for _ in range(count):
            peer.hear("resumed")
    peer.say("notice", 5, 30)
    assert peer.hear("saved") == ["5", "0"]
    steps = [int(rank.communicate(timeout=20)[0].split()[1]) for rank in ranks]
    assert all(rank.returncode == 0 for rank in ranks) and min(steps) > 0


def test_a_script_that_marks_no_steps_is_asked_for_no_pause(peer, tmp_path):
    script = "import tidepool, time; run = tidepool.attach(); run.should_stop(); print('begun', " \
             "flush=True); input()"
    rank = subprocess.Popen([sys.executable, "-c", script], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            env=dict(os.environ, PYTHONPATH=os.path.join(ROOT, "clients/python"),
                                     TIDEPOOL_PROGRESS_SOCKET=str(tmp_path / "progress")))
    assert rank.stdout.readline() == "begun\n"
    peer.hear("hello")
    peer.say("pause", 1)
    assert "0 of 1 ranks can stop at a step" in " ".join(peer.hear("refused"))
    rank.communicate("\n", timeout=20)
    assert peer.hear("left") == ["0"]
