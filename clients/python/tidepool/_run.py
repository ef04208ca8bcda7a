"""The run: what a training script tells Tidepool, and what it hears."""
from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, TypeVar

from ._link import Link, Message
from ._notice import Notice, notice_file, notice_of

T = TypeVar("T")
Callback = Callable[[], object]

TELL_EVERY_S = 0.02  # of one rank whose steps are quicker than that; several ranks tell each step
METRICS_EVERY_S = 0.5  # reading a number from a GPU waits for it
FILE_EVERY_S = 0.5
METRICS_MAX, NAME_BYTES_MAX = 32, 63


class Run:
    """One process of a job. Made by :func:`attach`.

    Outside Tidepool (``attached`` is False) every method does nothing and answers as if nothing were
    asked, so that a script is the same everywhere.
    """

    def __init__(self, socket_path: Optional[str] = None, notice_path: Optional[str] = None,
                 rank: int = 0, ranks: int = 1, resize: bool = False) -> None:
        if not 0 <= rank < ranks:
            raise ValueError("tidepool: rank %d is none of %d ranks" % (rank, ranks))
        self.rank, self.ranks = rank, ranks
        self.attached = socket_path is not None or notice_path is not None
        self._notice_path, self._file_due = notice_path, 0.0
        self._abilities = ["resize"] if resize else []
        self._changed = threading.Condition(threading.RLock())
        self._on_pause: List[Callback] = []
        self._on_resume: List[Callback] = []
        self._on_notice: List[Callable[[Notice], None]] = []
        # All below under the condition's lock.
        self._done = 0  # steps
        self._step_began: Optional[float] = None
        self._progress: Message = {}  # not told yet
        self._told_at = self._metrics_at = -math.inf
        self._notice: Optional[Notice] = None
        self._acknowledged: Optional[int] = None
        self._request: Optional[int] = None  # the pause that is asked for, and its step
        self._request_step = 0
        self._stands_at: Optional[int] = None  # at the end of this step; says so once it is quiet
        self._quiet = False
        self._resume: Optional[int] = None
        self._link = (Link(socket_path, self._connected, self._heard, self.flush)
                      if socket_path else None)
        if self._link is not None:
            self._link.start()
            _watch(self)

    # -- how far it is

    def report(self, step: Optional[int] = None, *, checkpointed_step: Optional[int] = None,
               waiting_s: Optional[float] = None, step_s: Optional[float] = None,
               **metrics: Any) -> None:
        """Tells how far the run is; never waits.

        ``step``: steps done (default: as last told). ``checkpointed_step``: the run can go on from
        there after a loss. ``waiting_s``: seconds spent waiting for data or a peer since the last
        report. ``step_s``: seconds that a step takes. ``metrics``: numbers, for example
        ``loss=0.3``; what ``float()`` takes. They are read at most twice a second, since reading a
        tensor waits for its GPU; of more than 32 the first ones count.
        """
        if not self.attached:
            return
        with self._changed:
            if step is not None:
                self._done = int(step)
            self._progress["step"] = self._done
            self._gather(checkpointed_step, waiting_s, step_s, metrics)
            self._tell(now=checkpointed_step is not None)

    def step(self, step: Optional[int] = None, *, waiting_s: Optional[float] = None,
             **metrics: Any) -> int:
        """The end of a step: reports it, and stands still here while Tidepool asks for it.

        Call it once a step from the training thread, with the steps done by now (default: one more
        than before). With several ranks all must call it after the same steps, outside of
        collectives: then all stand still before the same step. Returns the steps done.
        """
        if not self.attached:
            self._done = self._done + 1 if step is None else int(step)
            return self._done
        self._able("pause")
        with self._changed:
            now = time.monotonic()
            step_s = None if self._step_began is None else now - self._step_began
            self._done = self._done + 1 if step is None else int(step)
            self._progress["step"] = self._done
            self._gather(None, waiting_s, step_s, metrics)
            self._tell(now=self.ranks > 1)
            stands = self._stand_begin()
        while stands:
            stands = self._stand()
        self._step_began = time.monotonic()
        return self._done

    def steps(self, iterable: Iterable[T], start: Optional[int] = None) -> Iterator[T]:
        """Each element of ``iterable`` (a data loader) as one step.

        Reports each step, how long it took and how long it waited for its element; stands still
        between two steps while Tidepool asks for it. ``start``: steps done before the first
        (default: as last told, 0 at first).
        """
        if start is not None:
            with self._changed:
                self._done = int(start)
        iterator = iter(iterable)
        self.step(self._done)
        while True:
            began = time.monotonic()
            try:
                element = next(iterator)
            except StopIteration:
                self.flush()
                return
            waited = time.monotonic() - began
            yield element
            self.step(waiting_s=waited)

    def flush(self) -> None:
        """Tells at once what was reported and not told yet."""
        with self._changed:
            self._tell(now=True)

    # -- what is asked

    @property
    def notice(self) -> Optional[Notice]:
        """The notice that stands: devices are to be given back; None: nothing is asked."""
        if not self.attached:
            return None
        self._able("notice")
        with self._changed:
            self._look_into_file()
            return self._notice

    def should_stop(self) -> bool:
        """Save, :meth:`acknowledge`, and end: devices are to be given back.

        Of several ranks some may see it a step earlier than others: agree on it before anyone stops
        (``tidepool.torch`` does).
        """
        return self.notice is not None

    def should_checkpoint(self) -> bool:
        """Save now: a notice stands that was not acknowledged yet."""
        notice = self.notice
        return notice is not None and notice.number != self._acknowledged

    def should_pause(self) -> bool:
        """A pause is asked for: :meth:`step` will stand still at its step."""
        if not self.attached:
            return False
        with self._changed:
            return self._request is not None

    def acknowledge(self) -> None:
        """What must be kept is saved: the notice's devices may be taken now, before its deadline.
        Nothing stands: nothing happens."""
        with self._changed:
            if self.attached and self._notice is not None:
                self._acknowledged = self._notice.number
                self._tell(now=True)
                self._send({"acknowledged": {"notice": self._notice.number}})

    def extend(self, seconds: float) -> None:
        """Asks, once per notice, for ``seconds`` more; the answer shows in :attr:`notice`."""
        if not seconds > 0:
            raise ValueError("tidepool: extend by %r seconds" % seconds)
        with self._changed:
            if self.attached and self._notice is not None:
                self._send({"extend": {"notice": self._notice.number, "seconds": float(seconds)}})

    def on_notice(self, callback: Callable[[Notice], None]) -> None:
        """``callback(notice)`` for each new notice, in the thread that reads: keep it short."""
        self._on_notice.append(callback)
        self._able("notice")

    def on_pause(self, before: Callback, after: Callback) -> None:
        """``before()`` when the run is about to stand still, for example to move tensors off the
        device; ``after()`` before it goes on. Both in the training thread, inside :meth:`step`."""
        self._on_pause.append(before)
        self._on_resume.insert(0, after)

    def close(self) -> None:
        """Tells what is left and ends the connection. A script need not call it."""
        if self._link is not None:
            self.flush()
            self._link.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- telling (the lock is held)

    def _gather(self, checkpointed_step: Optional[int], waiting_s: Optional[float],
                step_s: Optional[float], metrics: Dict[str, Any]) -> None:
        progress = self._progress
        if checkpointed_step is not None:
            progress["checkpointed_step"] = int(checkpointed_step)
        if waiting_s is not None:
            progress["waiting_s"] = progress.get("waiting_s", 0.0) + max(0.0, float(waiting_s))
        if step_s is not None:
            progress["step_s"] = max(0.0, float(step_s))
        now = time.monotonic()
        if metrics and now - self._metrics_at >= METRICS_EVERY_S:
            self._metrics_at = now
            progress["metrics"] = _numbers(metrics)

    def _tell(self, now: bool) -> None:
        if not self._progress or self._link is None:
            return
        at = time.monotonic()
        if (now or at - self._told_at >= TELL_EVERY_S) and self._link.send(
                {"progress": self._progress}, may_wait=True):
            self._told_at, self._progress = at, {}

    def _send(self, message: Message) -> None:
        if self._link is not None:
            self._link.send(message)

    def _hello(self) -> None:
        self._send({"hello": {"rank": self.rank, "ranks": self.ranks, "pid": os.getpid(),
                              "can": self._abilities}})

    def _able(self, ability: str) -> None:
        """Says what the script does, from the first time on that it does it: what nobody would
        answer is not to be asked."""
        if self.attached and ability not in self._abilities:
            with self._changed:
                self._abilities = self._abilities + [ability]
                self._hello()

    # -- standing still (the training thread)

    def _stand_begin(self) -> bool:
        self._stands_at = self._done if self._due() else None
        return self._stands_at is not None

    def _stand(self) -> bool:
        """One stop, and on again. True: a later step was agreed while it was under way, and that has
        come, too."""
        for callback in self._on_pause:
            callback()
        with self._changed:
            self._quiet = True
            if self._due():
                self._say_stopped()
            while self._due():
                self._changed.wait()
            self._quiet = False
        for callback in self._on_resume:
            callback()
        with self._changed:
            if self._resume is not None:
                self._send({"resumed": {"request": self._resume}})
                self._resume = None
            return self._stand_begin()

    def _due(self) -> bool:
        return self._request is not None and self._done >= self._request_step

    def _say_stopped(self) -> None:
        self._send({"stopped": {"request": self._request, "step": self._stands_at}})

    # -- hearing (the link's thread)

    def _connected(self) -> None:
        with self._changed:
            self._hello()
            if "pause" in self._abilities or self._done > 0:
                self._progress.setdefault("step", self._done)
            self._tell(now=True)
            if self._quiet and self._request is not None:
                self._say_stopped()
            if self._notice is not None and self._acknowledged == self._notice.number:
                self._send({"acknowledged": {"notice": self._acknowledged}})

    def _heard(self, message: Message) -> None:
        for kind, take in (("pause", self._take_pause), ("resume", self._take_resume),
                           ("notice", self._take_notice), ("notice_over", self._take_over)):
            fields = message.get(kind)
            if isinstance(fields, dict):
                try:
                    take(fields)
                except (KeyError, TypeError, ValueError):
                    return  # not what is agreed: as if it had not come

    def _take_pause(self, fields: Message) -> None:
        request, step = int(fields["request"]), int(fields["step"])
        with self._changed:
            if self._stands_at is None and self.ranks > 1 and self._done >= step:
                # Stopping only now could leave others inside a collective.
                self._send({"late": {"request": request, "step": self._done}})
                return
            self._request, self._request_step, self._resume = request, step, None
            if self._quiet and self._due():
                self._say_stopped()
            self._changed.notify_all()

    def _take_resume(self, fields: Message) -> None:
        with self._changed:
            self._resume = int(fields["request"])
            self._request = None
            if self._stands_at is None:
                self._send({"resumed": {"request": self._resume}})
                self._resume = None
            self._changed.notify_all()

    def _take_notice(self, fields: Message) -> None:
        notice = notice_of(fields)
        with self._changed:
            new = self._notice is None or self._notice.number != notice.number
            self._notice = notice
        if new:
            for callback in self._on_notice:
                callback(notice)

    def _take_over(self, fields: Message) -> None:
        with self._changed:
            if self._notice is None or self._notice.number != int(fields["notice"]):
                return
            if fields["result"] != "extended":
                self._notice = None
            elif "deadline_s" in fields:
                old = self._notice
                self._notice = Notice(old.number, time.monotonic() + float(fields["deadline_s"]),
                                      old.devices, old.ranks, old.reason, old.asked)

    def _look_into_file(self) -> None:
        """Without a connection the file tells; looked at twice a second."""
        now = time.monotonic()
        if now >= self._file_due and (self._link is None or not self._link.connected):
            self._file_due = now + FILE_EVERY_S
            self._notice = notice_file(self._notice_path)

    # -- the process

    def _forget(self) -> None:
        """A forked child (a data loader's worker) is not the run."""
        self.attached = False
        self._changed = threading.Condition(threading.RLock())
        if self._link is not None:
            self._link.forget()
            self._link = None


def _numbers(metrics: Dict[str, Any]) -> Dict[str, Optional[float]]:
    """What is not finite becomes null: JSON has no other word for it."""
    numbers: Dict[str, Optional[float]] = {}
    for name, value in list(metrics.items())[:METRICS_MAX]:
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if len(name.encode()) <= NAME_BYTES_MAX:
            numbers[name] = number if math.isfinite(number) else None
    return numbers


def _watch(run: Run) -> None:
    """At a fork and at the process's end, for as long as the run is there."""
    reference = weakref.ref(run)

    def in_child() -> None:
        found = reference()
        if found is not None:
            found._forget()

    def at_end() -> None:
        found = reference()
        if found is not None:
            found.close()
    os.register_at_fork(after_in_child=in_child)
    atexit.register(at_end)


_attached: Optional[Run] = None
_attach_lock = threading.Lock()


def attach(rank: Optional[int] = None, ranks: Optional[int] = None, resize: bool = False) -> Run:
    """The run of this process; the same one each time. Outside Tidepool one that does nothing.

    ``rank``, ``ranks``: which process of how many this is (default: RANK and WORLD_SIZE, as torchrun
    sets them, else 0 of 1). ``resize``: the script can go on with another number of devices when it
    is started again. Raises ``ValueError`` for a rank that is none.
    """
    global _attached
    with _attach_lock:
        if _attached is None:
            _attached = Run(os.environ.get("TIDEPOOL_PROGRESS_SOCKET") or None,
                            os.environ.get("TIDEPOOL_NOTICE_FILE") or None,
                            _number("RANK", 0) if rank is None else rank,
                            _number("WORLD_SIZE", 1) if ranks is None else ranks, resize)
        return _attached


def _number(name: str, standard: int) -> int:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return standard
