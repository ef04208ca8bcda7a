"""Throughput of an endpoint against ONNX Runtime itself, and its tail beside training."""
import os

import load
import models
import process
import training
from figures import figure, steadier


def onnx_throughput(place, rounds, quick):
    """Server and direct loop each have the same core; the client has the other one. A request
    carries a whole batch, so both sides run the same batch size. Where a process's memory lies
    decides some percent of its speed for all its life, so each round has new processes."""
    found = []
    for name, milliseconds, width in (("5ms", 5, 512), ("200us", 0.2, 256)):
        batch, turns, seconds = 8, 2 if quick else 6, 0.2
        layers = process.dense_for(place.path("probe"), process.SERVER_CORE, batch, milliseconds,
                                   width)
        server = place.server([])
        models.write_model(server.repository, "dense", models.dense(width, layers, batch))
        server.wrapper = process.pinned(process.SERVER_CORE)
        by_clock, by_cpu, used = [], [], []
        for index in range(rounds):
            theirs, ours = throughput_round(server, batch, width, turns, seconds, index % 2)
            by_clock.append(ours[0] / theirs[0])
            by_cpu.append(theirs[1] / ours[1])
            used.append(theirs[1] / 1e6)
        place.stop(server)
        found.append(steadier(
            "onnx_throughput_vs_direct_" + name, by_clock, by_cpu,
            "new processes, %d turns of %g s each; batches of %d rows of %.2f ms; 4 requests in flight; "
            % (turns, seconds, batch, sorted(used)[len(used) // 2]), "batches per second",
            "batches per CPU-second of all the server's threads and of the loop's"))
    return found


def throughput_round(server, batch, width, turns, seconds, ours_first):
    """(batches per second, CPU ns per batch) of the loop and of the server, sums over all turns."""
    server.start()
    direct = process.Direct(os.path.join(server.repository, "dense/1/model.onnx"), width, batch,
                            process.SERVER_CORE)
    client = load.Closed(server, "dense", batch, width, 4, process.CLIENT_CORE)
    sides = [lambda: direct.run(seconds), lambda: served(server, client, seconds)]
    order = [1, 0] if ours_first else [0, 1]
    got = [[], []]
    for side in order:
        sides[side]()
    for _ in range(turns):
        for side in order:
            got[side].append(sides[side]())
    stats = process.kserve.statistics(server, "dense")
    assert process.kserve.batches(stats).get(batch, 0) > 0.99 * stats.execution_count
    client.close()
    direct.close()
    server.stop()
    return [(sum(rate for rate, _ in side) / turns,
             sum(rate * cpu for rate, cpu in side) / sum(rate for rate, _ in side))
            for side in got]


def served(server, client, seconds):
    """Requests per second, and CPU ns of the whole server for each."""
    before = process.cpu_ns(server.process.pid)
    done = client.requests
    rate = client.run(seconds)
    return rate, (process.cpu_ns(server.process.pid) - before) / (client.requests - done)


onnx_throughput.figures = ["onnx_throughput_vs_direct_5ms", "onnx_throughput_vs_direct_200us"]


def tail(place, rounds, quick):
    """The same arrivals with and without a job on the device; 30 % load."""
    found = []
    for name, milliseconds in (("ratio", 10), ("extra_ms", 1)):
        width = 512
        layers = process.dense_for(place.path("probe"), process.SERVER_CORE, 1, milliseconds, width)
        server = place.server([])
        models.write_model(server.repository, "dense", models.dense(width, layers, 1))
        models.write_json(server.repository, "dense", {"max_batch": 1})
        server.start()
        job = training.submit(place, server, "beside", hidden=(1024, 1024), micro_batch=64)
        training.wait_busy(server, job)
        rate, seconds = 300 / milliseconds, 1 if quick else 3
        values = []
        for index in range(rounds):
            p99 = {}
            for beside in ((True, False) if index % 2 == 0 else (False, True)):
                server.cli("resume" if beside else "pause", job.id)
                training.jobs.wait_state(server, job.id, "RUNNING" if beside else "PAUSED", 30)
                p99[beside] = load.play(server, "dense", rate, seconds, seed=index)["latency_ms"]["p99"]
            values.append(p99[True] / p99[False] if name == "ratio" else p99[True] - p99[False])
        place.stop(server)
        found.append(figure("serve_p99_beside_training_" + name, values,
                            "the same %g s of Poisson arrivals at %g/s with and without training "
                            "in each round" % (seconds, rate)))
    return found


tail.figures = ["serve_p99_beside_training_ratio", "serve_p99_beside_training_extra_ms"]
