import threading
import time

import pytest

import server as fake
from tidepool import _run


@pytest.fixture(name="server")
def fixture_server(tmp_path):
    server = fake.Server(tmp_path / "progress")
    yield server
    server.close()


@pytest.fixture(name="attach")
def fixture_attach(server, tmp_path):
    """attach(rank, ranks) → (run, the server's end of its connection); closed after the test."""
    runs = []

    def begin(rank=0, ranks=1, resize=False):
        run = _run.Run(server.path, str(tmp_path / "notice"), rank, ranks, resize)
        runs.append(run)
        return run, server.accept()
    yield begin
    for run in runs:
        run.close()


class Trainer(threading.Thread):
    """Steps in a thread of its own, as many as it is let: `go(n)`."""

    def __init__(self, run, step=None):
        super().__init__(daemon=True)
        self.run_, self.step = run, step or run.step
        self.allowed, self.done, self.changed = 0, 0, threading.Condition()
        self.start()

    def run(self):
        while True:
            with self.changed:
                while self.done >= self.allowed:
                    self.changed.wait()
            self.step()
            with self.changed:
                self.done += 1
                self.changed.notify_all()

    def go(self, steps):
        with self.changed:
            self.allowed += steps
            self.changed.notify_all()

    def wait(self, steps):
        with self.changed:
            assert self.changed.wait_for(lambda: self.done >= steps, fake.SECONDS), self.done


@pytest.fixture
def trainer():
    return Trainer


@pytest.fixture
def until():
    """until(condition): polls, as the client's own thread may take its time."""
    def wait(condition):
        end = time.monotonic() + fake.SECONDS
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.002)
    return wait
