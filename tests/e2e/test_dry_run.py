"""Forecasts and dry runs: when a job will start, what a change would bring; nothing moves by asking."""
import json
import math

import pytest

import harness
import jobs
from kserve import CODE, refused
from test_cli import write_job

STEPS = 10_000_000


def dry_run(server, **fields):
    return server.control().DryRun(harness.Stubs.control.DryRunRequest(**fields), timeout=10)


def wish(message, **fields):
    return getattr(harness.Stubs.control, message)(**fields)


def granted(answer):
    return [(move.after_s, move.move.device) for move in answer.moves
            if move.move.what == "grant" and not move.anyway]


@pytest.fixture(name="own")
def fixture_own(start):
    return start(["identity_fp32"]).start()


@pytest.fixture(name="crowded")
def fixture_crowded(own, tmp_path):
    """A job that runs on both devices, and one that waits for them."""
    first = own.submit(jobs.digits_job(tmp_path, STEPS, devices="2:2"))
    jobs.wait_state(own, first.id, "RUNNING", 30 * harness.SLOWER)
    second = own.submit(jobs.digits_job(tmp_path, STEPS, devices="2:2"))
    jobs.wait_state(own, second.id, "WAITING", 30 * harness.SLOWER)
    return own, first.id, second.id


def test_a_job_that_would_fit_starts_at_once_and_is_not_submitted(own, tmp_path):
    path = write_job(tmp_path, steps=STEPS)
    told = own.cli("submit", path, "--dry-run").stdout
    assert told.startswith("would start at once\n") and "is granted to job (the new job)" in told
    made = json.loads(own.cli("submit", path, "--dry-run", "--json").stdout)
    assert made["startsAfterS"] == 0 and len(made["moves"]) >= 2
    path = write_job(tmp_path, steps=STEPS, devices="3:4")
    assert own.cli("submit", path, "--dry-run").stdout.startswith("would be refused: ")
    assert json.loads(own.cli("jobs", "--json").stdout).get("jobs", []) == []


def test_who_waits_is_told_and_what_would_help_too(crowded):
    own, first, second = crowded
    assert math.isnan(own.get_job(second).expected_wait_s)  # no run has ended yet: cannot be told
    assert 0 <= own.get_job(first).revoke_fraction <= 1
    told = own.cli("cancel", first, "--dry-run").stdout
    assert "granted to job " + second in told
    answer = dry_run(own, cancel_job=wish("CancelJobRequest", job=first))
    assert len(granted(answer)) == 2 and all(after < 60 for after, _ in granted(answer))
    answer = dry_run(own, pause_job=wish("PauseJobRequest", job=first))
    assert len(granted(answer)) == 2
    answer = dry_run(own, add_devices=wish("AddDevices", kind="cpu", devices=2))
    assert {device for _, device in granted(answer)} == {"(a new device)"}
    assert jobs.state(own, first) == "JOB_STATE_RUNNING"
    assert jobs.state(own, second) == "JOB_STATE_WAITING"


def test_every_change_can_be_tried(crowded):
    own, first, second = crowded
    devices = own.list_devices()
    gone = dry_run(own, remove_device=wish("RemoveDevice", device=devices[0].id))
    assert any(move.move.device == devices[0].id and not move.anyway for move in gone.moves)
    later = dry_run(own, remove_device=wish("RemoveDevice", device=devices[0].id, within_s=30))
    assert any(move.move.what == "revoke" and move.after_s <= 30 for move in later.moves)
    held = dry_run(own, set_hold=wish("SetHoldRequest", hold=True), horizon_s=5)
    assert held.horizon_s == 5
    dry_run(own, set_mode=wish("SetModeRequest", mode=harness.Stubs.control.MODE_OBSERVE))
    dry_run(own, stop_serving=wish("StopServingRequest", name="identity_fp32"))
    dry_run(own, change_endpoint=wish("ChangeEndpoint", name="identity_fp32", devices_min=2))
    own.cli("pause", second)
    jobs.wait_state(own, second, "PAUSED", 30 * harness.SLOWER)
    answer = dry_run(own, resume_job=wish("ResumeJobRequest", job=second))
    assert math.isnan(answer.starts_after_s) and granted(answer) == []
    assert not own.get_status().hold
    assert [device.id for device in own.list_devices()] == [device.id for device in devices]
    assert jobs.state(own, first) == "JOB_STATE_RUNNING"


def test_nonsense_is_refused_with_its_limits(own):
    for fields, code in (
            ({}, CODE.INVALID_ARGUMENT),
            ({"set_mode": wish("SetModeRequest")}, CODE.INVALID_ARGUMENT),
            ({"submit_job": wish("SubmitJobRequest", spec_json="{")}, CODE.INVALID_ARGUMENT),
            ({"cancel_job": wish("CancelJobRequest", job="nobody-1")}, CODE.NOT_FOUND),
            ({"add_devices": wish("AddDevices", kind="abacus", devices=1)}, CODE.NOT_FOUND),
            ({"add_devices": wish("AddDevices", kind="cpu", devices=65)}, CODE.INVALID_ARGUMENT),
            ({"set_hold": wish("SetHoldRequest"), "horizon_s": 3601}, CODE.INVALID_ARGUMENT),
            ({"set_hold": wish("SetHoldRequest"), "horizon_s": math.nan},
             CODE.INVALID_ARGUMENT)):
        assert refused(dry_run, own, **fields).code() == code, fields
