"""A server that is started as root and becomes its own user."""
import os
import pwd
import shutil
import tempfile

import pytest

import harness

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
NOBODY = pwd.getpwnam("nobody")


@pytest.fixture
def open_folder():
    """Where any user may look: pytest's own folders are root's alone."""
    path = tempfile.mkdtemp(prefix="tidepool-user-")
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


def test_the_server_becomes_its_user_and_keeps_nothing_of_root(open_folder):
    server = harness.Server(open_folder, ["identity_fp32"], {"user": "nobody"})
    run = os.path.join(open_folder, "run")
    server.socket = os.path.join(run, "control.sock")
    server.config["listeners"][1]["address"] = "unix:" + server.socket
    os.rmdir(server.state)
    server.start()
    try:
        fields = dict(line.split(":\t", 1) for line in server.proc("status").splitlines())
        assert fields["Uid"].split() == [str(NOBODY.pw_uid)] * 4
        assert fields["Gid"].split() == [str(NOBODY.pw_gid)] * 4
        assert "0" not in fields["Groups"].split()
        assert int(fields["CapPrm"], 16) == 0
        for folder in (server.state, run):
            assert os.stat(folder).st_uid == NOBODY.pw_uid
        assert server.control().ListEndpoints(
            harness.Stubs.control.ListEndpointsRequest()).endpoints[0].name == "identity_fp32"
    finally:
        assert server.stop() == 0


def test_a_state_folder_of_root_that_is_in_use_is_refused_with_the_way_out(open_folder):
    server = harness.Server(open_folder, [], {"user": "nobody"})
    with open(os.path.join(server.state, "file"), "w", encoding="utf-8"):
        pass
    server.spawn()
    assert server.process.wait(30) == 1
    assert "chown -R nobody '%s'" % server.state in server.log()
