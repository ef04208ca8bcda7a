"""What a server costs that nobody calls."""
import time

import process
from figures import figure


def idle(place, rounds, quick):
    server = place.server([], devices=2)
    server.start()
    server.drop_channels()
    time.sleep(1)  # the pages and timers of the start are not idleness
    seconds = 0.3 if quick else 2.0
    percents, sizes = [], []
    for _ in range(rounds):
        before = process.cpu_ns(server.process.pid)
        time.sleep(seconds)
        used = process.cpu_ns(server.process.pid) - before
        percents.append(100 * used / (seconds * 1e9))
        sizes.append(server.rss_bytes() / 2**20)
    maps = server.proc("maps")
    assert "onnxruntime" not in maps, "ONNX Runtime is loaded although no model asks for it"
    return [figure("idle_cpu_percent", percents, "CPU time of all threads in %g s" % seconds),
            figure("idle_rss_mib", sizes, "VmRSS of a server with two devices and no model")]


idle.figures = ["idle_cpu_percent", "idle_rss_mib"]
