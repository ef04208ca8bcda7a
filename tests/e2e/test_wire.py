"""gRPC on the wire: pings, over-size messages, compression, failed calls (GW-1 to GW-4)."""
import gzip
import os
import threading
import time
import zlib

import numpy as np
import pytest

import harness
import raw
from kserve import CODE, array_request, identity_request, output, pb, refused, request, stub, tensor

MESSAGE_LIMIT = 64 << 20
GOOD = identity_request().SerializeToString()


@pytest.fixture
def connection(server):
    made = raw.Connection(server.connect())
    yield made
    made.close()


def assert_good(reply):
    assert reply.status == 0
    assert output(pb.ModelInferResponse.FromString(reply.body())).tolist() == [[0, 1, 2, 3]]


# ---- GW-1 ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pinged(stubs, tmp_path_factory):
    """The ping floor scaled down, unless the long version takes its time."""
    limits = {} if harness.LONG else {"limits": {"ping_interval_ms": 200}}
    server = harness.Server(tmp_path_factory.mktemp("pinged"), ["identity_fp32", "loop"], limits)
    yield server.start()
    assert server.stop() == 0


FLOOR_S = harness.scale(0.2, 5)
PINGS = harness.scale(10, 12)


def ping_at_the_floor(connection):
    for index in range(PINGS):
        payload = b"ping%04d" % index
        connection.ping(payload)
        sent = time.monotonic()
        assert connection.wait(lambda payload=payload: payload in connection.pings, 5)
        connection.wait(lambda: False, max(0, FLOOR_S * 1.05 - (time.monotonic() - sent)))
    assert connection.goaways == [] and not connection.closed


@pytest.mark.case("GW-1 a")
def test_pings_at_the_floor_keep_a_quiet_connection(pinged):
    connection = raw.Connection(pinged.connect())
    ping_at_the_floor(connection)
    assert_good(connection.call(GOOD))
    connection.close()


@pytest.mark.case("GW-1 b")
def test_pings_at_the_floor_beside_a_long_call(pinged):
    connection = raw.Connection(pinged.connect())
    rounds = harness.scale(60000, 1500000)
    message = request("loop", [tensor("COUNT", "INT64", [1, 1], {"int64_contents": [rounds]})])
    stream = connection.headers()
    connection.data(stream, raw.frame(message.SerializeToString()))
    ping_at_the_floor(connection)
    assert not connection.replies[stream].ended, "the call was not long enough for this test"
    connection.cancel(stream)
    assert_good(connection.call(GOOD))
    connection.close()


@pytest.mark.case("GW-1 c")
def test_a_thousand_pings_end_the_connection_and_no_other(server, connection):
    other = raw.Connection(server.connect())
    stream = connection.headers()
    connection.data(stream, raw.frame(GOOD))
    assert_good(connection.finish(stream))
    rss = server.rss_bytes()
    for index in range(1000):
        connection.h2.ping(b"p%07d" % index)
    connection.flush()
    connection.wait(lambda: connection.closed, 10)
    assert connection.closed
    assert connection.goaways and connection.goaways[-1][0] == 11
    assert connection.goaways[-1][1] == stream
    assert connection.goaways[-1][2] == b"too_many_pings"
    assert_good(other.call(GOOD))
    other.close()
    if harness.MEASURES_MEMORY:
        assert server.rss_bytes() - rss < 4 << 20


# ---- GW-2 ---------------------------------------------------------------------------------------


@pytest.mark.case("GW-2 a")
def test_one_byte_over_the_limit_is_resource_exhausted(server):
    message = array_request("identity_fp32", np.zeros((1, 16), np.float32))
    small = message.ByteSize()
    message.parameters["filler"].string_param = "x" * (MESSAGE_LIMIT + 1 - small - 64)
    message.id = "y" * (MESSAGE_LIMIT + 1 - message.ByteSize() - 2)
    assert message.ByteSize() == MESSAGE_LIMIT + 1
    calls = stub(server)
    error = refused(calls.ModelInfer, message, timeout=60 * harness.SLOWER)
    assert error.code() == CODE.RESOURCE_EXHAUSTED
    assert str(MESSAGE_LIMIT) in error.details() and str(MESSAGE_LIMIT + 1) in error.details()
    assert output(calls.ModelInfer(identity_request(), timeout=10)).tolist() == [[0, 1, 2, 3]]


@pytest.mark.case("GW-2 b")
def test_an_announced_giant_is_refused_from_its_prefix(server, connection):
    rss = server.rss_bytes()
    stream = connection.headers()
    connection.h2.send_data(stream, raw.frame(b"0123456789", length=0xFFFFFFFF))
    connection.flush()
    reply = connection.finish(stream)
    assert reply.status == 8
    assert str(0xFFFFFFFF) in reply.message and str(MESSAGE_LIMIT) in reply.message
    assert reply.reset in (None, 0)
    if harness.MEASURES_MEMORY:
        assert server.rss_bytes() - rss < 1 << 20
    assert_good(connection.call(GOOD))


@pytest.mark.case("GW-2 e")
def test_a_response_over_the_send_limit_ends_with_a_status(server):
    """A request just under the limit whose answer is just over it: it names the version too."""
    message = array_request("identity_fp32", np.zeros((1, 16), np.float32))
    room = MESSAGE_LIMIT - message.ByteSize() - 16
    array = np.zeros((1, room // 4), np.float32)
    message = array_request("identity_fp32", array)
    message.id = "i" * (MESSAGE_LIMIT - message.ByteSize() - 2)
    assert message.ByteSize() == MESSAGE_LIMIT
    error = refused(stub(server).ModelInfer, message, timeout=60 * harness.SLOWER)
    assert error.code() == CODE.RESOURCE_EXHAUSTED
    assert str(MESSAGE_LIMIT) in error.details()


# ---- GW-3 ---------------------------------------------------------------------------------------


@pytest.mark.case("GW-3 a")
def test_gzip_only_advertised(connection):
    assert_good(connection.call(GOOD, extra=[("grpc-accept-encoding", "gzip")]))


@pytest.mark.case("GW-3 b")
def test_unknown_encoding_names_the_known_ones(connection):
    reply = connection.call(GOOD, extra=[("grpc-encoding", "snappy")], flag=1)
    assert reply.status == 12
    known = reply.get("grpc-accept-encoding").replace(" ", "").split(",")
    assert {"identity", "gzip", "deflate"} >= set(known) >= {"gzip", "deflate"}


@pytest.mark.case("GW-3 c")
@pytest.mark.parametrize("extra", [[], [("grpc-encoding", "identity")]], ids=["none", "identity"])
def test_compressed_flag_without_an_encoding(connection, extra):
    assert connection.call(gzip.compress(GOOD), extra=extra, flag=1).status == 13
    assert_good(connection.call(GOOD))


def gzip_bomb(size):
    """Zeros, 1 MiB at a time: a block after a full flush can be repeated as it is."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    return head + block * (size >> 20) + packer.flush()


@pytest.mark.case("GW-3 d")
def test_a_gzip_bomb_stops_at_the_message_limit(server, connection):
    bomb = gzip_bomb(1 << 30)
    assert len(bomb) < 2 << 20
    before, peak, stop = server.rss_bytes(), [0], threading.Event()

    def watch():
        while not stop.wait(0.002):
            peak[0] = max(peak[0], server.rss_bytes())
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        reply = connection.call(bomb, extra=[("grpc-encoding", "gzip")], flag=1)
    finally:
        stop.set()
        watcher.join()
    assert reply.status == 8
    assert str(MESSAGE_LIMIT) in reply.message
    if harness.MEASURES_MEMORY:
        assert peak[0] - before < 2 * MESSAGE_LIMIT
    assert_good(connection.call(GOOD))


@pytest.mark.case("GW-3 e")
@pytest.mark.parametrize("damage", ["cut", "flipped", "noise", "tail missing", "empty"])
def test_damaged_gzip_is_an_error_status(connection, damage):
    good = gzip.compress(GOOD)
    payload = {"cut": good[:len(good) // 2], "flipped": good[:20] + bytes([good[20] ^ 0xFF])
               + good[21:], "noise": os.urandom(64), "tail missing": good[:-8],
               "empty": b""}[damage]
    reply = connection.call(payload, extra=[("grpc-encoding", "gzip")], flag=1)
    assert reply.status == 13
    assert_good(connection.call(GOOD))


@pytest.mark.parametrize("encoding,packed", [("gzip", gzip.compress(GOOD)),
                                             ("deflate", zlib.compress(GOOD))])
def test_good_compressed_messages_and_plain_ones_beside_them(connection, encoding, packed):
    assert_good(connection.call(packed, extra=[("grpc-encoding", encoding)], flag=1))
    assert_good(connection.call(GOOD, extra=[("grpc-encoding", encoding)], flag=0))


@pytest.mark.case("GW-3 f")
def test_flag_byte_seven(connection):
    assert connection.call(GOOD, flag=7).status == 13
    assert_good(connection.call(GOOD))


# ---- GW-4 ---------------------------------------------------------------------------------------


@pytest.mark.case("GW-4 a")
@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/Nothing", "/no.Service/ModelInfer",
                                  "/", "/nothing", "/a/b/c/d"])
def test_unknown_methods_get_a_trailers_only_reply(connection, path):
    reply = connection.call(GOOD, path=path)
    assert reply.trailers_only
    assert reply.get(":status") == "200"
    assert reply.get("content-type").startswith("application/grpc")
    assert reply.status == 12
    assert_good(connection.call(GOOD))


@pytest.mark.case("GW-4 b")
def test_any_text_in_a_message_is_percent_encoded(server, connection):
    name = 'é\n"x"%'
    message = identity_request(model=name).SerializeToString()
    reply = connection.call(message)
    assert reply.status in (3, 5)
    assert all(0x20 <= ord(c) <= 0x7E for c in reply.raw_message)
    assert "é" in reply.message
    error = refused(stub(server).ModelInfer, identity_request(model=name), timeout=10)
    assert "é" in error.details()

    long = request("identity_fp32", [tensor("ü" * 4096, "FP32", [1, 4])], [bytes(16)])
    reply = connection.call(long.SerializeToString())
    assert reply.status == 3
    assert len(reply.raw_message) <= 4096
    assert all(0x20 <= ord(c) <= 0x7E for c in reply.raw_message)
    assert "ü" in reply.message  # and decodes strictly: it was cut at a whole character
    assert refused(stub(server).ModelInfer, long, timeout=10).code() == CODE.INVALID_ARGUMENT


@pytest.mark.case("GW-4 c")
def test_other_content_types_are_415(connection):
    for content_type in ("text/plain", "application/grpc-web", "application/json"):
        reply = connection.call(GOOD, replace={"content-type": content_type})
        assert reply.get(":status") == "415"
    for content_type in ("application/grpc", "application/grpc+proto", "application/grpc;x=1"):
        assert_good(connection.call(GOOD, replace={"content-type": content_type}))


@pytest.mark.case("GW-4 d")
def test_no_message_at_all_is_an_error_status(connection):
    stream = connection.headers(end_stream=True)
    reply = connection.finish(stream)
    assert reply.status in (12, 13)
    stream = connection.headers()
    connection.h2.end_stream(stream)
    connection.flush()
    assert connection.finish(stream).status in (12, 13)
    assert_good(connection.call(GOOD))


# ---- framing ------------------------------------------------------------------------------------


def test_a_message_in_frames_of_one_byte(connection):
    stream = connection.headers()
    for byte in raw.frame(GOOD):
        connection.h2.send_data(stream, bytes([byte]))
        connection.flush()
    connection.h2.end_stream(stream)
    connection.flush()
    assert_good(connection.finish(stream))


@pytest.mark.parametrize("payload,statuses", [
    (raw.frame(GOOD) + b"\0", (12, 13)), (raw.frame(GOOD) + raw.frame(GOOD), (12, 13)),
    (raw.frame(GOOD)[:-1], (13,)), (raw.frame(GOOD)[:3], (13,)), (raw.frame(b"\xff\xff\xff"), (13,))],
    ids=["stray byte", "two messages", "cut message", "cut prefix", "no protobuf"])
def test_broken_framing_is_an_error_status(connection, payload, statuses):
    stream = connection.headers()
    connection.data(stream, payload)
    assert connection.finish(stream).status in statuses
    assert_good(connection.call(GOOD))


def test_many_streams_of_one_connection(connection):
    streams = [connection.headers() for _ in range(100)]
    for stream in streams:
        connection.data(stream, raw.frame(GOOD))
    for stream in streams:
        assert_good(connection.finish(stream))


def test_clients_that_vanish_with_calls_open_leave_nothing(server):
    for _ in range(20):
        connection = raw.Connection(server.connect())
        for _ in range(5):
            stream = connection.headers()
            connection.data(stream, raw.frame(GOOD))
        connection.headers()
        connection.close()


def test_garbage_instead_of_http2_is_closed(server):
    for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(256)):
        sock = server.connect()
        sock.sendall(garbage)
        sock.settimeout(15)
        try:
            while sock.recv(4096):
                pass
        except ConnectionResetError:
            pass
        sock.close()
