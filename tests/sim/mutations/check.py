#!/usr/bin/python3
"""Breaks the core on purpose, one way at a time, and shows that the tests notice.

    check.py --build BUILD [--part N/M] [NAME …]

A mutation is a file: a comment that says what it breaks, the file, the text to replace (it must be
there exactly once) and what takes its place. One that no longer fits, or that nobody notices, fails
the check. Scenarios come first, then the core's unit tests, then random schedules, each of them
bounded: what is noticed is noticed within seconds.
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
FLAGS = ["-std=gnu17", "-O1", "-ffp-contract=off", "-D_GNU_SOURCE", "-I."]
SECONDS = 60  # one test program; a broken core may hang
RANDOM_EVENTS = 200_000


class Mutation:
    def __init__(self, path):
        self.name = path.stem
        head, rest = path.read_text().split("\nreplace\n", 1)
        self.what, file = head.rsplit("\nfile ", 1)
        self.file = pathlib.Path(file.strip())
        self.old, self.new = rest.split("\nwith\n", 1)
        self.new = self.new.rstrip("\n")
        if "\nwith" == rest[-5:]:
            self.new = ""

    def apply(self, folder):
        """The changed source, beside the headers it includes; None: it does not fit any more."""
        text = self.file.read_text()
        if text.count(self.old) != 1:
            return None
        source = folder / self.file.name
        source.write_text(text.replace(self.old, self.new))
        return source


def programs(build):
    """(name, its objects without the core's), quick ones first."""
    objects = build / "obj"
    rig = [objects / f"{p.with_suffix('')}.o" for p in pathlib.Path("tests/unit/core").glob("*.c")
           if not p.name.startswith("test_")]
    sim = [objects / f"{p.with_suffix('')}.o" for p in pathlib.Path("tests/sim").glob("*.c")
           if not p.name.startswith("test_") and p.name != "hash.c"]
    tests = sorted(pathlib.Path("tests/unit/core").glob("test_*.c"))
    yield "scenarios", [objects / "tests/sim/test_scenarios.o", *sim, *rig]
    for test in tests:
        yield test.stem, [objects / f"{test.with_suffix('')}.o", *rig]
    for name in ("test_ways_out", "test_tide", "test_random"):
        yield name, [objects / f"tests/sim/{name}.o", *sim, *rig]


def build_core(build, mutation, folder):
    """A copy of the core's library with one object replaced; None with the compiler's words."""
    source = mutation.apply(folder)
    if source is None:
        return None, f"'{mutation.file}' does not have its text exactly once"
    compiled = folder / (mutation.file.stem + ".o")
    done = subprocess.run(["cc", *FLAGS, "-c", "-o", compiled, source], capture_output=True, text=True)
    if done.returncode != 0:
        return None, f"does not compile: {done.stderr}"
    library = folder / "libcore.a"
    shutil.copy(build / "lib/libcore.a", library)
    subprocess.run(["ar", "r", library, compiled], check=True, capture_output=True)
    return library, None


def notices(build, name, objects, library, folder):
    """Links and runs one test program; True: it fails."""
    program = folder / name
    subprocess.run(["cc", "-rdynamic", "-o", program, *objects, build / "lib/librecord.a", library,
                    "-lcmocka", "-lz", "-pthread"], check=True)
    environment = dict(os.environ, TIDEPOOL_SIM_EVENTS=str(RANDOM_EVENTS), TIDEPOOL_SIM_SHRINK="no")
    try:
        done = subprocess.run([program], env=environment, timeout=SECONDS,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def check(build, mutation):
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library, trouble = build_core(build, mutation, folder)
        if trouble:
            return False, trouble
        for test, objects in programs(build):
            if notices(build, test, objects, library, folder):
                return True, f"noticed by {test} after {time.monotonic() - began:.1f} s"
        return False, f"not noticed by anything in {time.monotonic() - began:.1f} s"


def sound(build):
    """Nothing fails on the core as it is: else a failure would say nothing."""
    with tempfile.TemporaryDirectory() as name:
        return [test for test, objects in programs(build)
                if notices(build, test, objects, build / "lib/libcore.a", pathlib.Path(name))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--part", default="0/1", help="every M-th mutation, from the N-th on")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    which, parts = (int(text) for text in arguments.part.split("/"))
    paths = sorted(HERE.glob("*.mutation"))
    mutations = [Mutation(path) for path in paths]
    chosen = [m for i, m in enumerate(mutations)
              if (m.name in arguments.names if arguments.names else i % parts == which % parts)]
    misfits = [m.name for m in mutations if m.file.read_text().count(m.old) != 1]
    began = time.monotonic()
    broken = sound(arguments.build)
    if broken:
        sys.exit(f"mutations: {', '.join(broken)} fail on the core as it is")
    missed = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutation, (good, text) in zip(chosen, pool.map(lambda m: check(arguments.build, m), chosen)):
            print(f"  {'ok  ' if good else 'MISS'} {mutation.name}: {text}", flush=True)
            missed += [] if good else [mutation.name]
    print(f"mutations: {len(chosen)} of {len(mutations)} tried, {len(missed)} missed, "
          f"{time.monotonic() - began:.0f} s")
    if misfits:
        print(f"mutations that fit no more: {', '.join(misfits)}")
    if missed or misfits or not chosen:
        sys.exit(1)


if __name__ == "__main__":
    main()
