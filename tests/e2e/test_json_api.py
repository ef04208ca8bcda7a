"""The control API as JSON over HTTP: the same calls by the same handlers, and who is kept out."""
import http.client
import json
import threading

import pytest

import harness
import jobs
from test_cli import tool


@pytest.fixture(name="served")
def fixture_served(start, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-secret-of-some-length\n")
    token.chmod(0o600)
    return start(["identity_fp32"], {"token_file": str(token), "http_hosts": ["pool.example"]}).start()


class Asker:
    """One connection; each call gives (status, the answer as it was read from JSON)."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.ports["json"],
                                                     timeout=20 * harness.SLOWER)

    def __call__(self, method, path, body=None, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()
                   if value is not None}
        data = None
        if body is not None:
            data = body if isinstance(body, (str, bytes)) else json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        self.connection.request(method, "/tidepool/v1/" + path, data, headers)
        reply = self.connection.getresponse()
        text = reply.read().decode()
        assert reply.getheader("Content-Type") == "application/json", text
        return reply.status, json.loads(text)

    def post(self, call, **fields):
        return self("POST", call, fields, Authorization="Bearer a-secret-of-some-length")


@pytest.fixture(name="ask")
def fixture_ask(served):
    asker = Asker(served)
    yield asker
    asker.connection.close()


def test_calls_answer_as_by_grpc(served, ask, tmp_path):
    status, answer = ask("GET", "GetStatus")
    assert (status, answer["version"], answer["devices"]) == (200, served.status.version, 2)
    assert answer["mode"] == "MODE_ACT" and answer["pid"] == served.process.pid
    # What the command line prints is the same message.
    by_cli = json.loads(tool("devices", "--json", server="unix:" + served.socket).stdout)
    assert [d["id"] for d in ask("POST", "ListDevices", {})[1]["devices"]] == \
        [d["id"] for d in by_cli["devices"]]
    specification = jobs.digits_job(tmp_path, 10_000_000, export=None)
    specification = {key: value for key, value in specification.items() if value is not None}
    status, job = ask.post("SubmitJob", specJson=json.dumps(specification), requestId="once")
    assert status == 200, job
    assert ask.post("SubmitJob", specJson=json.dumps(specification), requestId="once")[1]["id"] == job["id"]
    assert ask("GET", "ListJobs?activeOnly=true")[1]["jobs"][0]["id"] == job["id"]
    assert ask("GET", "GetJob?job=" + job["number"])[1]["specJson"] == job["specJson"]
    assert ask.post("CancelJob", job=job["id"])[0] == 200
    status, answer = ask.post("SetHold", hold=True, reason="a näme")
    assert (status, answer["hold"], answer["holdReason"]) == (200, True, "a näme")
    assert served.get_status().hold
    status, answer = ask("POST", "DryRun", {"setMode": {"mode": "MODE_OBSERVE"}, "horizonS": 10})
    assert (status, answer["refused"]) == (200, "")


def test_errors_have_code_and_text(ask):
    for (method, path, body), status, code, words in (
            (("GET", "GetJob?job=99", None), 404, "NOT_FOUND", "99"),
            (("GET", "Nothing", None), 404, "NOT_FOUND", "no call 'Nothing'"),
            (("POST", "DryRun", {}), 400, "INVALID_ARGUMENT", "the change is missing"),
            (("POST", "DryRun", {"setMod": {}}), 400, "INVALID_ARGUMENT", "did you mean 'setMode'?"),
            (("POST", "DryRun", "{"), 400, "INVALID_ARGUMENT", "line 1"),
            (("POST", "ListJobs", '{"activeOnly":true,"activeOnly":true}'), 400, "INVALID_ARGUMENT", "activeOnly"),
            (("GET", "ListJobs?activeOnly=perhaps", None), 400, "INVALID_ARGUMENT", "activeOnly: must be true or false"),
            (("GET", "ListJobs?activeOnly=true&activeOnly=true", None), 400, "INVALID_ARGUMENT", "twice"),
            (("GET", "SetHold?hold=true", None), 405, "INVALID_ARGUMENT", "POST"),
            (("DELETE", "GetStatus", None), 405, "INVALID_ARGUMENT", "GET, or POST"),
            (("POST", "ServeModel", {"path": "x"}), 403, "PERMISSION_DENIED", "authorization")):
        got, answer = ask(method, path, body)
        assert (got, answer["error"]["code"]) == (status, code), answer
        assert words in answer["error"]["message"], answer


def test_strangers_are_kept_out(served, ask):
    for headers, status in (({"Host": "evil.example"}, 403), ({"Host": "evil.example:80"}, 403),
                            ({"Host": "127.0.0.1.evil.example"}, 403), ({"Host": "127.1@evil"}, 403),
                            ({"Host": "localhost"}, 200), ({"Host": "LOCALHOST:8000"}, 200),
                            ({"Host": "[::1]:8000"}, 200), ({"Host": "127.0.0.1"}, 200),
                            ({"Host": "pool.example:9"}, 200),
                            ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, 200),
                            ({"Host": "localhost:8000", "Origin": "http://localhost:3000"}, 403),
                            ({"Host": "localhost:8000", "Origin": "https://evil.example"}, 403),
                            ({"Host": "localhost:8000", "Origin": "null"}, 403)):
        got, answer = ask("GET", "GetStatus", **headers)
        assert got == status, (headers, answer)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp"):
        assert ask("POST", "ListJobs", "{}", Content_Type=kind)[0] == 415
    assert ask("POST", "ListJobs", "{}", Content_Type="Application/JSON; charset=utf-8")[0] == 200
    # Without the token, and with a wrong one, nothing changes.
    for token in (None, "Bearer wrong", "a-secret-of-some-length"):
        status, answer = ask("POST", "SetHold", {"hold": True}, Authorization=token)
        assert (status, answer["error"]["code"]) == (403, "PERMISSION_DENIED")
    assert not served.get_status().hold


def test_large_bodies_are_refused(served, ask):
    assert ask("POST", "ListJobs", '{"activeOnly":' + " " * 1_000_000 + "true}")[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", served.ports["json"], timeout=20)
    connection.putrequest("POST", "/tidepool/v1/ListJobs")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(100_000_000))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.threads
def test_watch_is_one_object_a_line_until_the_server_stops(served, ask):
    connection = http.client.HTTPConnection("127.0.0.1", served.ports["json"], timeout=30 * harness.SLOWER)
    connection.request("GET", "/tidepool/v1/Watch?intervalMs=100")
    reply = connection.getresponse()
    assert reply.getheader("Content-Type") == "application/x-ndjson"
    first = []
    while not first or "synced" not in first[-1]:
        first.append(json.loads(reply.readline()))
    assert {key for change in first for key in change} >= {"revision", "status", "device", "endpoint"}
    ask.post("SetHold", hold=True, reason="seen")
    held = harness.wait_until(lambda: [c for c in [json.loads(reply.readline())]
                                       if c.get("status", {}).get("holdReason") == "seen"], 20, "the change")
    # It goes on from there, on another connection; and from nowhere it does not.
    after = int(held[0]["revision"])
    again = http.client.HTTPConnection("127.0.0.1", served.ports["json"], timeout=30 * harness.SLOWER)
    again.request("POST", "/tidepool/v1/Watch", json.dumps({"afterRevision": str(after)}),
                  {"Content-Type": "application/json"})
    assert "revision" in json.loads(again.getresponse().readline())
    status, answer = ask("GET", "Watch?afterRevision=1")
    assert (status, answer["error"]["code"]) == (400, "OUT_OF_RANGE")
    again.close()  # a client that goes away is forgotten
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(reply.read().decode().splitlines()))
    reader.start()
    assert served.stop() == 0
    reader.join(20 * harness.SLOWER)
    assert json.loads(lines[-1])["error"]["code"] == "UNAVAILABLE"
    connection.close()
