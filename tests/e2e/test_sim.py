"""`tidepool sim` needs no server: its options and what it says of wrong ones, its JSON document, equal
runs from equal seeds, the fewest devices."""
import gzip
import json
import os
import subprocess

import pytest

import harness

TOOL = os.path.join(harness.BUILD, "tidepool")
METRICS = """late_fraction harvest_fraction harvest_vs_hindsight idle_bound slices_per_device_hour
handovers_per_device_hour lost_work_fraction goodput_fraction effective_training_fraction
job_wait_p50_s job_wait_p99_s job_completion_mean_s ledger_balanced events wall_s""".split()
POLICIES = ["tidepool", "static", "kill", "keda", "knative", "rayserve", "hindsight", "serve-all"]


def sim(*arguments):
    return subprocess.run([TOOL, "sim", *arguments], capture_output=True, text=True,
                          timeout=60 * harness.SLOWER, check=False)


@pytest.fixture(name="traces")
def fixture_traces(tmp_path):
    """Half an hour of requests, bursts and all, and a few jobs."""
    requests = tmp_path / "requests.csv.gz"
    lines = ["arrival_s,endpoint,input_tokens,output_tokens"]
    for second in range(1800):
        for i in range(6 if second % 300 < 30 else 1):
            lines.append("%.3f,%s,%d,%d" % (second + i / 10, "ab"[i % 2], 500 + second % 700, 40 + i))
    requests.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,submit_s,duration_s,num_gpus,group\n"
                    "1,0,300,1,x\n2,10,200,2,y\n3,600,60,1,x\n")
    return {"requests": str(requests), "jobs": str(jobs)}


def document(*arguments):
    result = sim(*arguments, "--json", "-")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_policy_tells_every_metric(traces):
    told = document("--requests", traces["requests"], "--devices", "4", "--policy", *POLICIES)
    assert [p["policy"] for p in told["policies"]] == POLICIES
    for policy in told["policies"]:
        assert set(METRICS) <= set(policy), policy["policy"]
        assert policy["ledger_balanced"] is True, policy["policy"]
        assert policy["span_s"] == told["duration_s"]
        assert abs(sum(policy["account_s"].values()) - 4 * policy["span_s"]) < 1e-3
        assert policy["harvest_fraction"] <= policy["idle_bound"] + 1e-9
        assert policy["late_fraction"] >= told["late_floor"] - 1e-9
    assert told["policies"][-1]["late_fraction"] == told["late_floor"]
    hindsight = told["policies"][POLICIES.index("hindsight")]
    assert hindsight["harvest_vs_hindsight"] == 1
    assert told["requests"] == 2700 and told["endpoints"] == 2 and told["duration_s"] == 1800


def test_the_same_seed_repeats_a_run_with_faults(traces):
    command = ["--requests", traces["requests"], "--rungs", "freeze", "--device-mtbf-h", "0.5",
               "--device-repair-s", "30", "--slow-share", "0.3", "--late-share", "0.1",
               "--lost-share", "0.01", "--crash-every-h", "0.1"]
    runs = []
    for seed in ("5", "5", "6"):
        told = document(*command, "--seed", seed)
        told["policies"][0].pop("wall_s")
        runs.append(told)
    assert runs[0] == runs[1]
    assert runs[0]["policies"] != runs[2]["policies"]
    assert runs[0]["policies"][0]["faults"] > 0


def test_a_trace_of_jobs_runs_to_its_end(traces):
    told = document("--jobs", traces["jobs"], "--devices", "2", "--until-done", "--policy", "tidepool",
                    "static:serving=0")
    for policy in told["policies"]:
        assert policy["jobs_finished"] == 3
        assert policy["job_completion_mean_s"] > 0
        assert policy["late_fraction"] == 0
        assert policy["span_s"] < told["duration_s"]  # it ended with the last job


def test_the_fewest_devices_are_enough_and_one_less_is_not(traces):
    base = ["--requests", traces["requests"], "--devices", "4", "--policy", "serve-all"]
    found = document(*base, "--find-devices", "--late-budget", "0.01")
    need = found["policies"][0]["devices_needed"]
    assert found["policies"][0]["late_fraction"] <= 0.01
    scale = document(*base)["service_scale"]
    for devices, enough in ((need, True), (need - 1, False)):
        if devices > 0:
            told = document("--requests", traces["requests"], "--scale", str(scale), "--policy",
                            "serve-all", "--devices", str(devices))
            assert (told["policies"][0]["late_fraction"] <= 0.01) == enough


def test_a_smaller_late_budget_is_the_knob_and_files_can_be_shifted(traces):
    told = document("--requests", traces["requests"] + "@1800", traces["requests"], "--late-budget",
                    "0.02")
    assert told["late_budget"] == 0.02
    assert told["requests"] == 5400 and told["duration_s"] == 3600


def test_the_json_file_is_written_beside_the_table(traces, tmp_path):
    path = tmp_path / "out.json"
    result = sim("--requests", traces["requests"], "--json", str(path))
    assert result.returncode == 0
    assert "tidepool" in result.stdout and "harvest" in result.stdout
    assert json.loads(path.read_text())["policies"][0]["policy"] == "tidepool"
    result = sim("--requests", traces["requests"], "--json", str(tmp_path / "no" / "out.json"))
    assert result.returncode == 125 or result.returncode == 122
    assert "open" in result.stderr and "No such file" in result.stderr


WRONG = [
    ([], "nothing to play: give --requests FILE, --jobs FILE, or both"),
    (["--requests"], "--requests wants a value"),
    (["--requests", "nowhere.csv"], "nowhere.csv"),
    (["--requests", "JOBS"], "hold no request"),
    (["--jobs", "REQUESTS"], "hold no job"),
    (["--requests", "REQUESTS", "--until-s", "10", "--from-s", "20"], "--until-s 10 is not after --from-s 20"),
    (["--requests", "REQUESTS", "--rungs", "freze"], "no rung 'freze'; do you mean 'freeze'?"),
    (["--requests", "REQUESTS", "--rungs", ","], "--rungs: names none"),
    (["--requests", "REQUESTS", "--rungs", "freeze,freeze"], "stands there twice"),
    (["--requests", "REQUESTS", "--rungs", "freeze=1"], "TAKE/GIVE in seconds"),
    (["--requests", "REQUESTS", "--rungs", "freeze=1/-1"], "TAKE/GIVE in seconds"),
    (["--requests", "REQUESTS", "--policy", "kedda"], "no policy 'kedda'; do you mean 'keda'?"),
    (["--requests", "REQUESTS", "--policy", "static:serv=1"], "no parameter 'serv'; there are: serving"),
    (["--requests", "REQUESTS", "--policy", "static:serving=x"], "serving of static is a number from 0"),
    (["--requests", "REQUESTS", "--policy", "serve-all:a=1"], "no parameter 'a'; it has none"),
    (["--requests", "REQUESTS", "--policy"] + ["static"] * 33, "at most 32 in one run"),
    (["--requests", "REQUESTS", "--policy", "hindsight", "--find-devices"], "cannot search for hindsight"),
    (["--requests", "REQUESTS", "extra"], "extra"),
    (["--requests", "REQUESTS", "--devicez", "3"], "do you mean --devices?"),
]
RANGES = """devices:0 devices:16385 devices:1.5 gang:-1 slo-ms:0 notice-s:-1 late-budget:1.1 hold-s:-1
seed:-1 scale:-1 time-scale:0 rate-scale:0 rate-rps:-1 from-s:-1 until-s:-1 duration-s:-1
checkpoint-s:-1 restore-s:-1 workload:9 device-mtbf-h:-1 device-repair-s:-1 slow-share:2
slow-factor:0.5 late-share:2 late-by-s:-1 lost-share:-0.1 crash-every-h:-1 crash-down-s:-1""".split()


@pytest.mark.parametrize("arguments,says", WRONG, ids=[says for _, says in WRONG])
def test_a_wrong_command_line_names_the_way_out(traces, arguments, says):
    names = {"REQUESTS": traces["requests"], "JOBS": traces["jobs"]}
    result = sim(*[names.get(a, a) for a in arguments])
    assert result.returncode != 0
    assert says in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("option", RANGES)
def test_a_value_out_of_range_names_its_limits(traces, option):
    name, value = option.split(":")
    result = sim("--requests", traces["requests"], "--" + name, value)
    assert result.returncode == 2
    assert "--%s is a" % name in result.stderr and "'%s'" % value in result.stderr


def test_the_help_names_every_option():
    result = sim("--help")
    assert result.returncode == 0
    for option in RANGES:
        assert "--" + option.split(":")[0] in result.stdout
    for option in ("requests", "jobs", "rungs", "policy", "json", "find-devices", "until-done"):
        assert "--" + option in result.stdout
