"""grpc.health.v1, and the little HTTP beside it."""
import threading

import grpc
import pytest

import harness
from kserve import CODE, refused

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
INFERENCE = "inference.GRPCInferenceService"


def ask(service=""):
    return harness.Stubs.health.HealthCheckRequest(service=service)


def test_check_of_the_server_and_of_the_service(server):
    health = server.health()
    assert health.Check(ask(), timeout=5).status == SERVING
    assert health.Check(ask(INFERENCE), timeout=5).status == SERVING


def test_check_of_an_unknown_name(server):
    assert refused(server.health().Check, ask("nobody"), timeout=5).code() == CODE.NOT_FOUND
    error = refused(server.health().Check, ask("\0nobody"), timeout=5)  # not the server itself
    assert error.code() == CODE.INVALID_ARGUMENT


def test_watch_of_an_unknown_name_stays_open(server):
    watch = server.health().Watch(ask("nobody"), timeout=10)
    assert next(watch).status == SERVICE_UNKNOWN
    watch.cancel()


@pytest.mark.threads
def test_watch_tells_readiness_and_the_end(start):
    """NOT_SERVING while a model loads, SERVING when all are ready, NOT_SERVING at SIGTERM."""
    server = start(["identity_fp32", "slow_load"]).start(ready=False)
    seen, changed = [], threading.Condition()
    watch = server.health().Watch(ask(INFERENCE))

    def take():
        try:
            for answer in watch:
                with changed:
                    seen.append(answer.status)
                    changed.notify_all()
        except grpc.RpcError as error:
            with changed:
                seen.append(error.code())
                changed.notify_all()
    thread = threading.Thread(target=take)
    thread.start()

    def wait_for(status):
        with changed:
            assert changed.wait_for(lambda: status in seen, 120 * harness.SLOWER), seen
    wait_for(NOT_SERVING)
    wait_for(SERVING)
    server.process.terminate()
    with changed:
        assert changed.wait_for(lambda: len(seen) >= 3, 30 * harness.SLOWER), seen
    thread.join(30 * harness.SLOWER)
    assert seen[:3] == [NOT_SERVING, SERVING, NOT_SERVING]
    assert server.process.wait(30 * harness.SLOWER) == 0


def test_live_and_ready_by_http(server):
    assert server.http_status("/v2/health/live") == 200
    assert server.http_status("/v2/health/ready") == 200
    assert server.http_status("/v2/nothing") == 404
