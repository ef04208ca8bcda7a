"""externalscaler.ExternalScaler as KEDA calls it, and what controllers make of the scale signal."""
import time

import pytest

import harness
import jobs
from autoscalers import Keda, Script, turns
from kserve import CODE, refused
from test_sim_serve import SPEED, fixture_begin, fixture_traces, specification  # noqa: F401


def scaled_object(**metadata):
    return harness.Stubs.scaler.ScaledObjectRef(name="pool", namespace="test",
                                                scalerMetadata=metadata)


@pytest.fixture(name="scaled")
def fixture_scaled(start):
    config = {"planner": {"scale_lead_s": 1, "scale_hold_s": 2}}
    return start(["identity_fp32"], config).start()


@pytest.fixture(name="scaler")
def fixture_scaler(scaled):
    return harness.Stubs.scaler_rpc.ExternalScalerStub(scaled.channel())  # over TCP, without a token


def test_both_forms_of_each_number_are_filled(scaled, scaler, tmp_path):
    job = scaled.submit(jobs.digits_job(tmp_path, 10_000_000, devices="2:2"))
    keda = {"scalerAddress": "tidepool:8001", "kind": "cpu", "reasons": "waiting",
            "devicesPerReplica": "2"}
    spec = scaler.GetMetricSpec(scaled_object(**keda), timeout=10).metricSpecs
    assert [(s.targetSize, s.targetSizeFloat) for s in spec] == [(2, 2.0)]

    def metric(**more):
        request = harness.Stubs.scaler.GetMetricsRequest(
            scaledObjectRef=scaled_object(**{**keda, **more}), metricName=spec[0].metricName)
        return scaler.GetMetrics(request, timeout=10).metricValues[0]
    harness.wait_until(lambda: metric().metricValue == 2, 20, "the job's minimum")
    assert metric().metricValueFloat == 2.0 and metric().metricName == spec[0].metricName
    assert metric(devicesElsewhere="1").metricValue == 1
    assert metric(devicesElsewhere="9").metricValue == 0  # never below
    assert metric(kindFromEnv="cpu", reasons="slo,waiting,backlog").metricValue >= 2
    scaled.control().CancelJob(harness.Stubs.control.CancelJobRequest(job=job.id), timeout=10)


def test_activity_is_pushed_when_it_changes(scaled, scaler, tmp_path):
    wish = scaled_object(reasons="waiting")
    assert not scaler.IsActive(wish, timeout=10).result
    stream = scaler.StreamIsActive(wish, timeout=60 * harness.SLOWER)
    assert not next(stream).result
    job = scaled.submit(jobs.digits_job(tmp_path, 10_000_000))
    assert next(stream).result
    assert scaler.IsActive(wish, timeout=10).result
    scaled.control().CancelJob(harness.Stubs.control.CancelJobRequest(job=job.id), timeout=10)
    assert not next(stream).result
    stream.cancel()


def test_streams_end_with_the_server(scaled, scaler):
    stream = scaler.StreamIsActive(scaled_object(), timeout=60 * harness.SLOWER)
    next(stream)
    scaled.process.terminate()
    assert refused(lambda: list(stream)).code() == CODE.UNAVAILABLE


def test_what_is_not_understood_is_refused_by_name(scaled, scaler):
    for metadata, code, words in (
            ({"knd": "cpu"}, CODE.INVALID_ARGUMENT, "unknown key 'knd'; did you mean 'kind'?"),
            ({"kind": "gpu9"}, CODE.NOT_FOUND, "gpu9"),
            ({"reasons": "slo,weather"}, CODE.INVALID_ARGUMENT, "'weather' is none of"),
            ({"devicesPerReplica": "0"}, CODE.INVALID_ARGUMENT, "devicesPerReplica: '0'"),
            ({"devicesPerReplica": "1.5"}, CODE.INVALID_ARGUMENT, "'1.5'"),
            ({"devicesElsewhere": "-1"}, CODE.INVALID_ARGUMENT, "'-1'")):
        for call in (scaler.IsActive, scaler.GetMetricSpec,
                     lambda wish, timeout: list(scaler.StreamIsActive(wish, timeout=timeout))):
            error = refused(call, scaled_object(**metadata), timeout=10)
            assert (error.code(), words in error.details()) == (code, True), error.details()
    request = harness.Stubs.scaler.GetMetricsRequest(scaledObjectRef=scaled_object(), metricName="rps")
    assert refused(scaler.GetMetrics, request, timeout=10).code() == CODE.NOT_FOUND


@pytest.mark.release
def test_keda_does_not_flap_and_a_script_counts_what_comes_once(begin, traces, tmp_path):
    """Bursts of 40 s every 100 s, in virtual time."""
    virtual = begin(*traces)
    control = virtual.stub()
    stub = harness.Stubs.scaler_rpc.ExternalScalerStub(virtual.channels[-1])
    for _ in range(3):  # jobs that want more than there is
        virtual.cli("submit", specification(tmp_path, 100_000))
    keda = Keda(stub, {"reasons": "slo,waiting", "devicesPerReplica": "1"})
    script = Script(control, "cpu", 60)
    began = time.monotonic()
    while (now_s := (time.monotonic() - began) * SPEED) < 330:
        keda.tick(now_s)
        script.tick(now_s)
        time.sleep(0.2)
    assert keda.highest > 4 and keda.replicas > 0
    assert turns(keda.history) <= 1, keda.history
    # Never more than what was desired at once, although nothing of it came for a minute.
    assert keda.replicas <= keda.highest
    coming = [sum(d for second, d in script.orders if now - 60 < second <= now)
              for now, _ in script.orders]
    assert script.orders and max(coming) <= script.shortest, script.orders
