"""Every thread is where it belongs: cores and scheduling class."""
import os

import pytest

import harness
import jobs

SCHED_OTHER, SCHED_IDLE = 0, 5


def threads(server):
    """[(name, cores, scheduling policy, nice)] of the server's process."""
    found = []
    base = "/proc/%d/task" % server.process.pid
    for task in sorted(os.listdir(base), key=int):
        with open("%s/%s/comm" % (base, task), encoding="utf-8") as file:
            name = file.read().strip()
        with open("%s/%s/stat" % (base, task), encoding="utf-8") as file:
            fields = file.read().rsplit(") ", 1)[1].split()
        found.append((name, os.sched_getaffinity(int(task)), int(fields[38]), int(fields[16])))
    return found


def parse_cores(text):
    cores = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


@pytest.mark.parametrize("config", [
    {"cpu_devices": 2, "cores_per_device": 1}, {"cpu_devices": 1, "cores_per_device": 2}],
    ids=["two devices of one core", "one device of two cores"])
def test_threads_are_pinned_and_in_their_class(start, tmp_path, config):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    server = start(["identity_fp32", "dense"], {"devices": config}).start()
    job = server.submit(jobs.digits_job(tmp_path, 10_000_000, devices="1:%d" % config["cpu_devices"]))
    jobs.wait_step(server, job.id, 5, 30 * harness.SLOWER)
    devices = {d.index: parse_cores(d.cores) for d in server.list_devices()}
    found = threads(server)
    for name, cores, policy, nice in found:
        print("%-16s cores %s policy %d nice %d" % (name, sorted(cores), policy, nice))
    for index, cores in devices.items():
        serving = [t for t in found if t[0] == "serve-%d" % index]
        training = [t for t in found if t[0].startswith("train-%d" % index)]
        assert serving and training
        for _, own, policy, _ in serving:
            assert own == cores and policy == SCHED_OTHER
        for _, own, policy, nice in training:
            assert own <= cores
            assert policy == SCHED_IDLE or nice == 19


def test_the_server_asks_for_large_pages_where_the_kernel_waits_to_be_asked(start):
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="utf-8") as file:
        asked_for = "[madvise]" in file.read()
    if os.environ.get("GLIBC_TUNABLES") is not None or not asked_for:
        pytest.skip("large pages are not the server's to ask for here")
    server = start(["identity_fp32"]).start()
    assert server.proc("comm") == "tidepoold\n"
    assert server.proc("environ").split("\0").count("GLIBC_TUNABLES=glibc.malloc.hugetlb=1") == 1
    assert server.log().count("main: started") == 1
