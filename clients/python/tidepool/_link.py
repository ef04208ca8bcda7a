"""The connection to the server: JSON lines over the progress socket. It comes and goes as the server
does; the training thread never waits for it."""
from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from typing import Any, Callable, Dict, Optional

LINE_MAX = 64 << 10
OUTBOX_MAX = 4 * LINE_MAX  # of a server that does not read
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
IDLE_MS = 500

Message = Dict[str, Any]


class Link:
    """One daemon thread that connects, reads and connects again.

    ``on_connect`` is called in that thread whenever a connection is there: what it sends goes first.
    ``on_message`` is called in that thread for each line, ``on_idle`` twice a second when there is
    none. All may send.
    """

    def __init__(self, path: str, on_connect: Callable[[], None],
                 on_message: Callable[[Message], None], on_idle: Callable[[], None]) -> None:
        self._path = path
        self._on_connect, self._on_message, self._on_idle = on_connect, on_message, on_idle
        self._lock = threading.RLock()
        self._socket: Optional[socket.socket] = None
        self._outbox = b""
        self._closed = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="tidepool", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def send(self, message: Message, may_wait: bool = False) -> bool:
        """Sends, or keeps what the socket does not take now. False: nobody is there to hear it; or
        others wait already, and this one may come later as part of a newer one."""
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self._lock:
            if self._socket is None or len(self._outbox) + len(line) > OUTBOX_MAX:
                return False
            if self._outbox and may_wait:
                return False
            if self._outbox:
                self._outbox += line
                return True
            try:
                sent = self._socket.send(line)
            except BlockingIOError:
                sent = 0
            except OSError:
                return False  # the reading thread sees it too
            if sent < len(line):
                self._outbox = line[sent:]
                self._wake()
            return True

    def close(self) -> None:
        """Ends the connection; the thread, whose it is, closes it and ends."""
        self._closed.set()
        with self._lock, contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._lock = threading.RLock()  # the parent's thread may have held it
        self._closed.set()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket, self._outbox = None, b""

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"x")

    # -- the thread

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            connection = connect(self._path)
            if connection is None:
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                continue
            pause_s = FIRST_PAUSE_S
            with self._lock:
                self._socket, self._outbox = connection, b""
            self._on_connect()
            self._read(connection)
            with self._lock:
                if self._socket is connection:
                    self._hang_up()
            self._closed.wait(FIRST_PAUSE_S)  # one that hangs up at once is not pressed

    def _read(self, connection: socket.socket) -> None:
        rest = b""
        while not self._closed.is_set():
            data = self._receive(connection)
            if data is None:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._take(line)
            if len(rest) > LINE_MAX:
                return  # not our server

    def _receive(self, connection: socket.socket) -> Optional[bytes]:
        """What has come, perhaps nothing; None: the connection is over."""
        poll = select.poll()
        try:
            poll.register(connection, select.POLLIN | (select.POLLOUT if self._outbox else 0))
            poll.register(self._wake_read, select.POLLIN)
            if not poll.poll(IDLE_MS):
                self._on_idle()
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
            self._flush()
            data = connection.recv(LINE_MAX)
            return data if data else None
        except BlockingIOError:
            return b""
        except (OSError, ValueError):  # ValueError: closed meanwhile
            return None

    def _flush(self) -> None:
        with self._lock:
            if self._socket is not None and self._outbox:
                with contextlib.suppress(BlockingIOError):
                    self._outbox = self._outbox[self._socket.send(self._outbox):]

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if isinstance(message, dict):
            self._on_message(message)


def connect(path: str) -> Optional[socket.socket]:
    """A connection to the socket, however long its path is; None: nobody is there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = -1
    try:
        folder = os.open(os.path.dirname(path) or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        connection.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
        connection.setblocking(False)
        return connection
    except OSError:
        connection.close()
        return None
    finally:
        if folder >= 0:
            os.close(folder)
