"""Autoscaling controllers as the tests play them: KEDA with a horizontal pod autoscaler, and a script.
Both count in seconds of the clock that they are given and remember what they did."""
import math

import harness


class Keda:
    """KEDA's poll (30 s) and the autoscaler's sync (15 s) with its window for going down (300 s)."""

    POLL_S, SYNC_S, DOWN_S = 30, 15, 300

    def __init__(self, stub, metadata, replicas_min=0, replicas_max=100):
        messages = harness.Stubs.scaler
        self.stub = stub
        self.object = messages.ScaledObjectRef(name="pool", namespace="test", scalerMetadata=metadata)
        spec = stub.GetMetricSpec(self.object, timeout=20).metricSpecs[0]
        self.metric = spec.metricName
        self.target = spec.targetSizeFloat if spec.targetSizeFloat > 0 else spec.targetSize
        self.replicas_min, self.replicas_max = replicas_min, replicas_max
        self.replicas, self.active = replicas_min, False
        self.polled_s = self.synced_s = -math.inf
        self.recommended = []  # (second, replicas)
        self.history = []      # (second, replicas) at each change
        self.highest = 0

    def value(self):
        request = harness.Stubs.scaler.GetMetricsRequest(scaledObjectRef=self.object,
                                                         metricName=self.metric)
        found = self.stub.GetMetrics(request, timeout=20).metricValues[0]
        assert found.metricName == self.metric
        assert found.metricValueFloat == found.metricValue  # both are read, by old and new versions
        self.highest = max(self.highest, found.metricValue)
        return found.metricValueFloat if found.metricValueFloat > 0 else found.metricValue

    def tick(self, now_s):
        if now_s - self.polled_s >= self.POLL_S:
            self.polled_s = now_s
            self.value()
            self.active = self.stub.IsActive(self.object, timeout=20).result
        if now_s - self.synced_s >= self.SYNC_S:
            self.synced_s = now_s
            self.sync(now_s)

    def sync(self, now_s):
        wanted = math.ceil(self.value() / self.target)
        wanted = min(max(wanted, 1 if self.active else self.replicas_min), self.replicas_max)
        self.recommended.append((now_s, wanted))
        recent = max(wish for second, wish in self.recommended if second > now_s - self.DOWN_S)
        if wanted > self.replicas:
            fastest = self.replicas + max(4, self.replicas)  # in one sync
            self.set(now_s, min(wanted, fastest))
        elif recent < self.replicas:
            self.set(now_s, recent)

    def set(self, now_s, replicas):
        self.replicas = replicas
        self.history.append((now_s, replicas))


class Script:
    """Orders what is desired and neither there nor on its way, and says so."""

    def __init__(self, control, kind, lead_s):
        self.control, self.kind, self.lead_s = control, kind, lead_s
        self.orders = []  # (second, devices)
        self.shortest = 0

    def tick(self, now_s):
        messages = harness.Stubs.control
        kinds = self.control.GetScaleSignal(messages.GetScaleSignalRequest(), timeout=20).kinds
        signal = [kind for kind in kinds if kind.kind == self.kind][0]
        short = signal.desired_total - signal.ready
        self.shortest = max(self.shortest, short)
        need = short - signal.pending
        if need > 0:
            self.orders.append((now_s, need))
            coming = sum(devices for second, devices in self.orders if second > now_s - self.lead_s)
            self.control.AnnounceDevices(messages.AnnounceDevicesRequest(
                provider="script", kind=self.kind, devices=coming,
                arrives_in_ns=int(self.lead_s * 1e9), lead_ns=int(self.lead_s * 1e9)), timeout=20)

    def ordered(self):
        return sum(devices for _, devices in self.orders)


def turns(history):
    """How often a series changed its direction."""
    steps = [b[1] - a[1] for a, b in zip(history, history[1:]) if b[1] != a[1]]
    return sum((a > 0) != (b > 0) for a, b in zip(steps, steps[1:]))
