"""From the arrival of a request at a device that trains to the start of its batch."""
import random
import time

import process
import training
from figures import figure, pooled
from kserve import identity_request, statistics, stub


def settled_slices(server):
    """The device's count of slices, once the control thread has taken its newest sample."""
    time.sleep(0.25)
    return server.list_devices()[0].slices


def handover(place, rounds, quick):
    """Sequential requests at random times; the server's own statistics tell each one's time in
    the queue (arrival to start of the batch), and `slices` whether training was interrupted."""
    server = place.server(["identity_fp32"])
    server.start()
    job = training.submit(place, server, "wide", hidden=(4096, 4096, 4096), micro_batch=64)
    training.wait_busy(server, job)
    calls = stub(server)
    order = random.Random(3)
    samples, shares = [], []
    for _ in range(rounds):
        waits, slices = [], settled_slices(server)
        for _ in range(10 if quick else 80):
            time.sleep(order.uniform(0.005, 0.045))
            before = statistics(server, "identity_fp32").inference_stats.queue
            calls.ModelInfer(identity_request(), timeout=10)
            after = statistics(server, "identity_fp32").inference_stats.queue
            assert after.count == before.count + 1
            waits.append((after.ns - before.ns) / 1e6)
        samples.append(waits)
        shares.append((settled_slices(server) - slices) / len(waits))
    how = "%d requests one by one at random times in each round, time in the queue from " \
          "ModelStatistics; the quantile of all of them" % len(samples[0])
    return [pooled("handover_yield_p50_ms", samples, 0.5, how),
            pooled("handover_yield_p99_ms", samples, 0.99, how),
            figure("handover_inside_share", shares, "batches that stopped a micro-batch ÷ "
                   "requests, by the device's count of slices")]


handover.figures = ["handover_yield_p50_ms", "handover_yield_p99_ms", "handover_inside_share"]
