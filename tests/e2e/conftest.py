"""Fixtures of the end-to-end tests, and the account of the shared cases at the end of a run."""
import pytest

import cases
import harness
import kserve
import outside

STANDARD = ["identity_fp32", "identity_fp64", "identity_int8", "identity_int16", "identity_int32",
            "identity_int64", "identity_uint8", "identity_uint16", "identity_uint32",
            "identity_uint64", "identity_bool", "identity_fp16", "identity_bf16", "identity_bytes",
            "add_one", "row_sums", "gather_fails", "two_inputs", "shrinking_rows", "loop"]
SINGLE = ["identity_fp32", "delay_50ms", "delay_0", "loop", "gather_fails"]


def pytest_configure(config):
    config.addinivalue_line("markers", "case(row): the test shows this row of cases.py")
    config.addinivalue_line("markers", "threads: also run on the ThreadSanitizer build")
    config.addinivalue_line("markers", "release: only on the release build: the server's part "
                            "in it is shown by other tests on the others")
    config.addinivalue_line("markers", "long: only in the long runs")


def pytest_collection_modifyitems(config, items):
    shown = set()
    for item in items:
        for mark in item.iter_markers("case"):
            shown.update(mark.args)
    unknown = shown - {row.name for row in cases.ROWS if row.status == cases.TESTED}
    if unknown:
        raise pytest.UsageError("cases.py has no tested rows " + ", ".join(sorted(unknown)))
    missing = {row.name for row in cases.ROWS if row.status == cases.TESTED} - shown
    whole = not config.getoption("keyword") and not config.getoption("markexpr") and all(
        "::" not in argument and not argument.endswith(".py") for argument in config.args)
    if whole and missing:
        raise pytest.UsageError("no test shows " + ", ".join(sorted(missing)))
    if harness.VARIANT == "tsan":
        keep(config, items, lambda item: item.get_closest_marker("threads"))
    if harness.VARIANT != "release":
        keep(config, items, lambda item: not item.get_closest_marker("release"))
    if not harness.LONG:
        keep(config, items, lambda item: not item.get_closest_marker("long"))


def keep(config, items, wanted):
    dropped = [item for item in items if not wanted(item)]
    items[:] = [item for item in items if wanted(item)]
    config.hook.pytest_deselected(items=dropped)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("shared cases")
    later = [row for row in cases.ROWS if row.status == cases.LATER]
    tested = len(cases.ROWS) - len(later)
    terminalreporter.write_line("%d rows tested, %d later:" % (tested, len(later)))
    for row in later:
        terminalreporter.write_line("  later  %-12s %s (%s)" % (row.name, row.what, row.why))


@pytest.fixture(scope="session", autouse=True)
def stubs(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("protos"))
    made = harness.compile_protos(folder)
    (harness.Stubs.control, harness.Stubs.control_rpc, harness.Stubs.health,
     harness.Stubs.health_rpc, harness.Stubs.scaler, harness.Stubs.scaler_rpc) = made


def shared(tmp_path_factory, name, model_names, config=None):
    server = harness.Server(tmp_path_factory.mktemp(name), model_names, config)
    server.start()
    # Whatever grows at first use (pools, threads of libraries) has grown after this.
    for _ in range(3):
        kserve.stub(server).ModelInfer(kserve.identity_request(), timeout=10 * harness.SLOWER)
    server.metrics()
    return server


@pytest.fixture(scope="session")
def shared_server(stubs, tmp_path_factory):
    server = shared(tmp_path_factory, "server", STANDARD)
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="session")
def shared_single(stubs, tmp_path_factory):
    server = shared(tmp_path_factory, "single", SINGLE,
                    {"devices": {"cpu_devices": 1, "cores_per_device": 1}})
    yield server
    assert server.stop() == 0


def checked(server):
    before = server.quiet()
    yield server
    assert kserve.output(kserve.stub(server).ModelInfer(
        kserve.identity_request(), timeout=10 * harness.SLOWER)).tolist() == [[0, 1, 2, 3]]
    server.check_after(before)


@pytest.fixture
def server(shared_server):
    """Two devices of one core each, the standard models; checked after the test."""
    yield from checked(shared_server)


@pytest.fixture
def single(shared_single):
    """One device of one core; checked after the test."""
    yield from checked(shared_single)


@pytest.fixture
def start(stubs, tmp_path):
    """start(models, config) → a server of the test's own; stopped and checked at its end."""
    servers = []

    def begin(model_names=None, config=None, name="own", **keywords):
        server = harness.Server(tmp_path / name, model_names, config, **keywords)
        servers.append(server)
        return server
    yield begin
    for server in servers:
        outside.end_all(server)
        server.stop()


@pytest.fixture
def calls(server):
    return kserve.stub(server)


