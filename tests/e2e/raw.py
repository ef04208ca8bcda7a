"""gRPC by hand: HTTP/2 frames from the h2 package on a plain socket, nothing checked on the way."""
import struct
import time
import urllib.parse

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

INFER = "/inference.GRPCInferenceService/ModelInfer"


def frame(message, flag=0, length=None):
    """The length-prefixed message; `length` lies about it."""
    return struct.pack(">BI", flag, len(message) if length is None else length) + message


class Reply:
    """What came back on one stream."""

    def __init__(self):
        self.header_blocks = []  # list of lists of (bytes, bytes), in order
        self.data = b""
        self.ended = False
        self.reset = None  # error code of an RST_STREAM
        self.end_on_headers = False

    def get(self, name, default=None):
        wanted = name.encode()
        for block in self.header_blocks:
            for key, value in block:
                if key == wanted:
                    return value.decode("latin-1")
        return default

    @property
    def status(self):
        """grpc-status as a number; None when there is none."""
        text = self.get("grpc-status")
        return None if text is None else int(text)

    @property
    def raw_message(self):
        return self.get("grpc-message", "")

    @property
    def message(self):
        return urllib.parse.unquote(self.raw_message, encoding="utf-8", errors="strict")

    @property
    def trailers_only(self):
        return len(self.header_blocks) == 1 and not self.data and self.end_on_headers

    def body(self):
        """The one message of a unary reply."""
        flag, length = struct.unpack(">BI", self.data[:5])
        assert flag == 0 and len(self.data) == 5 + length
        return self.data[5:]


class Connection:
    def __init__(self, sock, window=16 << 20):
        self.sock = sock
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=False,
            normalize_outbound_headers=False, validate_inbound_headers=False))
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.increment_flow_control_window(window)
        self.replies = {}
        self.pings = []
        self.goaways = []  # (error code, last stream, debug data)
        self.closed = False
        self.flush()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            try:
                self.sock.sendall(data)
            except OSError:
                self.closed = True

    def headers(self, path=INFER, extra=(), replace=None, end_stream=False):
        """Opens a stream and returns its id."""
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "test",
                  "te": "trailers", "content-type": "application/grpc"}
        fields.update(replace or {})
        stream = self.h2.get_next_available_stream_id()
        self.replies[stream] = Reply()
        self.h2.send_headers(stream, [(k, v) for k, v in fields.items() if v is not None]
                             + list(extra), end_stream=end_stream)
        self.flush()
        return stream

    def data(self, stream, payload, end_stream=True):
        """Sends all of it, as the windows allow; stops when the server has ended the stream."""
        view = memoryview(payload)
        while len(view) > 0:
            reply = self.replies[stream]
            if reply.ended or reply.reset is not None or self.closed:
                return
            size = min(len(view), self.h2.local_flow_control_window(stream),
                       self.h2.max_outbound_frame_size)
            if size == 0:
                self.read_once()
                continue
            self.h2.send_data(stream, bytes(view[:size]), end_stream=False)
            self.flush()
            view = view[size:]
        if end_stream:
            self.h2.end_stream(stream)
            self.flush()

    def call(self, message, path=INFER, extra=(), replace=None, flag=0, length=None):
        """One unary call with an already encoded message."""
        stream = self.headers(path, extra, replace)
        self.data(stream, frame(message, flag, length))
        return self.finish(stream)

    def cancel(self, stream):
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self.flush()

    def ping(self, payload):
        self.h2.ping(payload)
        self.flush()

    def read_once(self, seconds=20):
        """Reads what there is (waiting for at most `seconds`); False: nothing came or closed."""
        self.sock.settimeout(seconds)
        try:
            data = self.sock.recv(1 << 18)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return False
        for event in self.h2.receive_data(data):
            self.take(event)
        self.flush()
        return True

    def take(self, event):
        reply = self.replies.get(getattr(event, "stream_id", None))
        if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
            reply.header_blocks.append([(bytes(k), bytes(v)) for k, v in event.headers])
            reply.end_on_headers = event.stream_ended is not None
        elif isinstance(event, h2.events.DataReceived):
            reply.data += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            reply.ended = True
        elif isinstance(event, h2.events.StreamReset):
            reply.reset = int(event.error_code)
        elif isinstance(event, h2.events.PingAckReceived):
            self.pings.append(bytes(event.ping_data))
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaways.append((int(event.error_code), event.last_stream_id,
                                 bytes(event.additional_data or b"")))

    def wait(self, condition, seconds=20):
        """Reads until `condition()`; False when the time is over or the connection closed."""
        end = time.monotonic() + seconds
        while not condition():
            left = end - time.monotonic()
            if self.closed or left <= 0:
                return condition()
            self.read_once(left)
        return True

    def finish(self, stream, seconds=20):
        """The stream's reply, when it is complete; a hang is a failure."""
        reply = self.replies[stream]
        done = self.wait(lambda: reply.ended or reply.reset is not None, seconds)
        assert done, "stream %d: no end of the reply (closed %s, goaways %s)" % (
            stream, self.closed, self.goaways)
        return reply

    def close(self):
        self.sock.close()
