"""Teams: weights and quotas of the configuration and of calls; jobs that name them."""
import json
import os

import pytest

import harness
import jobs
from kserve import CODE, refused
from test_adjust import call, messages, overrides, terms


@pytest.fixture(name="served")
def fixture_served(start):
    return start(["identity_fp32"], {"teams": [
        {"name": "vision", "weight": 3, "quota": {"cpu": 1}}, {"name": "speech"}]}).start()


def teams(server):
    return {team.name: team for team in call(server, "ListTeams").teams}


def held(team):
    return {kind.kind: (kind.held, kind.quota) for kind in team.kinds}


def test_a_team_gets_back_what_others_use_of_its_quota(served, tmp_path):
    assert {name: team.weight for name, team in teams(served).items()} == {"vision": 3, "speech": 1}
    lent = served.submit(jobs.digits_job(tmp_path, 10_000_000, name="lent", devices="1:2", team="speech"))
    harness.wait_until(lambda: len(served.get_job(lent.id).devices) == 2, 30, "both devices")
    assert held(teams(served)["speech"]) == {"cpu": (2, 0)}
    own = served.submit(jobs.digits_job(tmp_path, 10_000_000, name="own", devices="1", team="vision"))
    jobs.wait_state(served, own.id, "RUNNING", 30)
    assert len(served.get_job(lent.id).devices) == 1
    found = teams(served)
    assert held(found["vision"]) == {"cpu": (1, 1)} and found["vision"].jobs == 1
    served.kill()
    served.start()  # they are of their teams still
    jobs.wait_state(served, own.id, "RUNNING", 30)
    harness.wait_until(lambda: held(teams(served)["vision"]) == {"cpu": (1, 1)}, 20, "as before")
    for job in (lent, own):
        call(served, "CancelJob", job=job.id)


def test_a_job_may_name_a_team_that_nobody_has_configured(served, tmp_path):
    job = served.submit(jobs.digits_job(tmp_path, 10_000_000, team="new"))
    assert teams(served)["new"].weight == 1
    call(served, "CancelJob", job=job.id)
    error = refused(served.submit, jobs.digits_job(tmp_path, 10, team="no name"))
    assert error.code() == CODE.INVALID_ARGUMENT and "no name" in error.details()


def test_weights_and_quotas_are_changed_and_taken_back(served, tmp_path):
    quota = [messages().Quota(kind="cpu", devices=2)]
    team = call(served, "SetTeam", name="speech", weight=5, quotas=quota, terms=terms()).team
    assert (team.weight, held(team)) == (5, {"cpu": (0, 2)})
    found = overrides(served)
    assert found[("team", "speech", "quota.cpu")].value == "2"
    assert found[("team", "speech", "weight")].configured == "1"
    served.kill()
    served.start()
    assert teams(served)["speech"].weight == 5
    call(served, "DropOverride", object="team", name="speech")
    assert held(teams(served)["speech"]) == {"cpu": (0, 0)}
    would = call(served, "SetTeam", name="fresh", weight=2, terms=terms(validate_only=True)).would
    assert would.refused == "" and "fresh" not in teams(served)
    for fields, code in (({"name": "a b"}, CODE.INVALID_ARGUMENT), ({"weight": 0}, CODE.INVALID_ARGUMENT),
                         ({"quotas": [messages().Quota(kind="gpu9", devices=1)]}, CODE.NOT_FOUND),
                         ({"quotas": [messages().Quota(kind="cpu", devices=10**6)]}, CODE.INVALID_ARGUMENT)):
        assert refused(call, served, "SetTeam", **{"name": "speech", "terms": terms(), **fields}).code() == code
    told = served.cli("teams", "set", "speech", "--weight", "4", "--quota", "cpu=1").stdout
    assert "cpu 0 of 1" in told
    listed = json.loads(served.cli("teams", "--json").stdout)["teams"]
    assert [t["weight"] for t in listed if t["name"] == "speech"] == [4]
    assert "speech" in served.cli("teams").stdout
    assert served.cli("teams", "set", "speech", "--quota", "cpu", check=False).returncode == 2
    told = served.cli("scale", "announce", "2", "--within", "60").stdout
    assert "2 devices" in told
    assert call(served, "GetScaleSignal").kinds[0].pending == 2


def test_a_lost_database_shows_in_the_status(start):
    server = start(["identity_fp32"]).start()
    assert server.get_status().store_warning == ""
    server.kill()
    for name in ("tidepool.db-wal", "tidepool.db-shm"):
        if os.path.exists(os.path.join(server.state, name)):
            os.unlink(os.path.join(server.state, name))
    with open(os.path.join(server.state, "tidepool.db"), "wb") as file:
        file.write(b"not a database at all" * 1000)
    server.start()
    assert "moved to" in server.get_status().store_warning
    assert "moved to" in server.cli("status").stdout
