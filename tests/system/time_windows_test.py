#!/usr/bin/env python3
"""Two replayed jobs over one spine of a namespace fabric: the controller measures them, gives them time windows, their gates
hold bursts back, and every sum is right. First with windows switched off, then on; the controller is replaced in
between and the jobs go on. No fact is about time: iteration times are printed for people.
"""
import json
import os
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Failure, check, run_test, wait_until  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

# Alone each sends for 36 % of an iteration, on a link that both share.
JOBS = {"a": (["h1", "h3"], "550ms", "1100000B"), "b": (["h2", "h4"], "560ms", "1070000B")}
# Whether the jobs keep out of each other's way by themselves is chance: windows are to be tried in any case.
OFF, ON = "joint: {time_shifts: off}\n", "joint: {time_shifts: on, shift_gain: -0.1}\n"
BEFORE_S, AFTER_S = 30, 15  # windows, were they given while they are off, would be there after 16 to 27 s
STEPS = 400  # more than they get


def read(url):
    with urllib.request.urlopen(f"http://{url}", timeout=5) as answer:
        return answer.read().decode()


def shifts(cluster):
    return [d for d in json.loads(read(f"{cluster.http}/api/v1/state"))["decisions"] if d["kind"] == "shift"]


def wait_for_windows(cluster, seconds):
    """The decisions that gave them. Where none comes, what the controller says of each job is part of the failure."""
    try:
        return wait_until(lambda: [d for d in shifts(cluster) if "bursts may begin" in d["reason"]], seconds, "windows")
    except Failure as failure:
        found = [(job["job_id"], job["iteration_s"], job["joint"]) for job in
                 json.loads(read(f"{cluster.http}/api/v1/state"))["jobs"]]
        raise Failure(f"{failure}; the jobs as the controller sees them: {json.dumps(found)}") from None


def gates_held_s(cluster):
    """By the gates of all hosts, as their agents count."""
    total = 0.0
    for name in cluster.hosts:
        for line in read(f"{cluster.host[name]['mgmt_address']}:9464/metrics").splitlines():
            if line.startswith("weft_agent_flow_wait_seconds_total") and 'side="window"' in line:
                total += float(line.rsplit(" ", 1)[1])
    return total


def pause(seconds):
    """Waits while the jobs go on."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, seconds + 10, "the measured time")


def means(jobs, seconds):
    """Mean iteration of the last `seconds`, by job."""
    found = {}
    for name, job in jobs.items():
        steps = job.steps_done()
        newest = steps[-1]["time_s"]
        recent = [step["iteration_s"] for step in steps if step["time_s"] > newest - seconds]
        found[name] = sum(recent) / len(recent)
    return found


def text(found):
    return ", ".join(f"{name} {1e3 * mean:.0f} ms" for name, mean in found.items())


def main():
    require_fabric()
    with WeftCluster(hosts_per_leaf=2, spines=1, rate="30Mbit/s", config=OFF) as cluster:
        jobs = {name: cluster.start_job(name, hosts, STEPS, "weft-replay",
                                        ["--compute", compute, "--bytes", size, "--bucket", size])
                for name, (hosts, compute, size) in JOBS.items()}
        for job in jobs.values():
            job.wait_for_step(4)
        pause(BEFORE_S)
        check(not shifts(cluster), "windows were given while they are switched off")
        check(gates_held_s(cluster) == 0, "a gate held a burst without a window")
        without = means(jobs, BEFORE_S)
        address = cluster.controller
        cluster.kill("controller")
        cluster.config = ON
        cluster.start_controller(listen=address)
        cluster.wait_for_agents()
        given = wait_for_windows(cluster, 160)
        check({d["job_id"] for d in given} == set(JOBS), f"windows for {given}, expected for both jobs")
        pause(AFTER_S)
        with_windows = means(jobs, AFTER_S * 2 / 3)
        held = wait_until(lambda: gates_held_s(cluster), 100, "a gate to hold a burst while windows are in force")
        print(f"without windows: {text(without)}")
        print(f"with windows:    {text(with_windows)}; gates held bursts for {held:.1f} s")
        for decision in shifts(cluster):
            print(f"{decision['time_s']:.1f} s {decision['job_id']}: {decision['reason']}")
        for job in jobs.values():
            check(not job._ended(), "a job ended before its time: it has too few steps")


if __name__ == "__main__":
    run_test(main)
