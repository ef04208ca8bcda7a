"""A server that speaks the progress protocol (docs/jobs.md) as a test tells it to."""
import json
import os
import queue
import socket
import threading

SECONDS = 20  # far more than anything here takes


class Connection:
    """One client. Lines that it sends wait in a queue."""

    def __init__(self, connection):
        self.socket = connection
        self.lines = queue.Queue()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        with self.socket.makefile("rb") as file:
            for line in file:
                self.lines.put(json.loads(line))
        self.lines.put(None)

    def say(self, **message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, *kinds):
        """The fields of the next line that is one of these kinds (any, without), others passed over."""
        while True:
            line = self.lines.get(timeout=SECONDS)
            assert line is not None, "the connection is over"
            (kind, fields), = line.items()
            if not kinds or kind in kinds:
                return fields

    def hear_until(self, kind, **wanted):
        while True:
            fields = self.hear(kind)
            if all(fields.get(name) == value for name, value in wanted.items()):
                return fields

    def quiet(self):
        """Nothing that was sent by now is left."""
        return self.lines.empty()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(SECONDS)
        self.socket.close()


class Server:
    """Listens until it is closed; may begin again at the same place."""

    def __init__(self, path):
        self.path = str(path)
        self.connections = []
        self.open()

    def open(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(16)
        self.listener.settimeout(SECONDS)

    def accept(self):
        connection = Connection(self.listener.accept()[0])
        self.connections.append(connection)
        return connection

    def close(self):
        self.listener.close()
        os.unlink(self.path)
        for connection in self.connections:
            connection.close()
        self.connections = []
