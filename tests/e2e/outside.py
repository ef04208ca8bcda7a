"""Outside jobs for the tests: shell commands under tidepool-shim, their output and their end."""
import os

import grpc

import harness

ENDED = ("FINISHED", "FAILED", "CANCELLED")


def messages():
    return harness.Stubs.control


def submit(server, script, request_id="", **fields):
    """A job that runs `script` in a shell."""
    fields.setdefault("working_directory", server.directory)
    fields.setdefault("environment", ["PATH=" + os.environ["PATH"]])
    fields.setdefault("arguments", ["/bin/sh", "-c", script])
    command = messages().Command(**fields)
    request = messages().SubmitJobRequest(command=command, request_id=request_id)
    return server.control().SubmitJob(request, timeout=10 * harness.SLOWER)


def state(job):
    return messages().JobState.Name(job.state)[len("JOB_STATE_"):]


def exit_class(job):
    return messages().ExitClass.Name(job.exit_class)[len("EXIT_CLASS_"):]


def wait_for(server, job_id, condition, seconds, what):
    def reached():
        server.check_alive()
        job = server.get_job(job_id)
        return job if condition(job) else None
    return harness.wait_until(reached, seconds * harness.SLOWER, "job %s %s" % (job_id, what))


def wait_state(server, job_id, *wanted, seconds=20):
    return wait_for(server, job_id, lambda job: state(job) in wanted, seconds,
                    "is one of %s" % (wanted,))


def wait_end(server, job_id, seconds=30):
    return wait_state(server, job_id, *ENDED, seconds=seconds)


def logs(server, job_id, seconds=20, **fields):
    """[(run, offset, bytes, run_ended)]"""
    stream = server.control().GetLogs(messages().GetLogsRequest(job=job_id, **fields),
                                      timeout=seconds * harness.SLOWER)
    return [(chunk.run, chunk.offset, chunk.data, chunk.run_ended) for chunk in stream]


def output(server, job_id, **fields):
    return b"".join(data for _, _, data, _ in logs(server, job_id, **fields))


def lines(path):
    """The whole lines of a file that may still grow; none when it is not there yet."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


def counter(path, seconds=0.02):
    """A shell script that appends a growing number to a file, on and on."""
    return ("i=$(tail -n 1 %s 2>/dev/null || echo 0); i=${i:-0}; while true; do i=$((i+1)); "
            "echo $i >> %s; sleep %s; done" % (path, path, seconds))


def end_all(server):
    """Jobs outlive their server, but not their test."""
    if server.process is None or server.process.poll() is not None:
        return
    try:
        end_active(server)
    except grpc.RpcError:  # a server whose test leaves it unable to answer
        pass


def end_active(server):
    jobs = [job for job in server.control().ListJobs(
        messages().ListJobsRequest(active_only=True), timeout=10).jobs if job.command.arguments]
    for job in jobs:
        server.control().CancelJob(messages().CancelJobRequest(job=job.id), timeout=10)
    for job in jobs:
        wait_end(server, job.id)


def alive(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
