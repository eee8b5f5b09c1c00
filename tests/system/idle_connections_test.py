#!/usr/bin/env python3
"""Two replayed jobs whose ranks have six connections for each that carries bytes, as a library's idle trees and second
directions: on a fabric with two spines the flows that carry come to lie on different ones, stay there, and a restart of the
controller does not move them onto one.

The judge is the switches' own port counters. The promise is 3 s from the last start; what it took is printed, and ten times as
much is a failure.
"""
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

JOBS = {"a": ["h1", "h2", "h5", "h6"], "b": ["h3", "h4", "h7", "h8"]}
# An iteration alone: 100 ms and some 220 ms of communication, so two jobs on one spine cannot keep out of each other's way.
ARGUMENTS = ["--compute", "100ms", "--bytes", "1MiB", "--bucket", "1MiB", "--idle-communicators", "5"]
IDLE_PER_JOB = 5 * 4
LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")
WINDOW_S = 3.0
# Of a leaf's bytes to the spines. Apart: a half and what a window's edges cut off; on one spine: all.
MOST_ON_ONE_SPINE = 0.75
LEAST_BYTES_PER_S = 200e3  # a leaf sends some 9 MB/s
PROMISE_S, WATCHED_S, STARTS = 3, 12, 3
STEPS = 1000  # more than they get


def sent(cluster, leaf, spine):
    """Bytes that `leaf` has sent to `spine`, by its own port's counter."""
    namespace = next(s["namespace"] for s in cluster.fabric["switches"] if s["name"] == leaf)
    shown = subprocess.run(["ip", "-n", namespace, "-j", "-s", "link", "show", "dev", spine], capture_output=True, text=True,
                           check=True).stdout
    return json.loads(shown)[0]["stats64"]["tx"]["bytes"]


def window(cluster, seconds=WINDOW_S):
    """Per leaf the larger part of its bytes that one spine got within so long."""
    ports = [(leaf, spine) for leaf in LEAVES for spine in SPINES]
    before = {port: sent(cluster, *port) for port in ports}
    time.sleep(seconds)
    used = {port: sent(cluster, *port) - before[port] for port in ports}
    for leaf in LEAVES:
        total = sum(used[leaf, spine] for spine in SPINES)
        check(total > LEAST_BYTES_PER_S * seconds, f"{leaf} sent {total} bytes to the spines in {seconds} s: the jobs stand still")
    return {leaf: max(used[leaf, spine] for spine in SPINES) / sum(used[leaf, spine] for spine in SPINES) for leaf in LEAVES}


def apart(parts):
    return max(parts.values()) <= MOST_ON_ONE_SPINE


def watch(cluster, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        parts = window(cluster)
        check(apart(parts), f"{what}: flows that lay on two spines share one: {parts}")


def flows(cluster):
    return {job["spec"]["job_id"]: int(job["flows"]) for job in cluster.ask("jobs")["jobs"]}


def one_start(cluster, number):
    names = {name: f"{name}{number}" for name in JOBS}
    jobs = [cluster.start_job(names[name], hosts, STEPS, "weft-replay", ARGUMENTS) for name, hosts in JOBS.items()]
    for job in jobs:
        job.wait_for_step(1)
    began = time.monotonic()
    wait_until(lambda: apart(window(cluster, 1.0)) and apart(window(cluster)), 10 * PROMISE_S,
               "the flows that carry bytes to lie on different spines")
    took_s = max(0.0, time.monotonic() - began - WINDOW_S - 1)  # when the windows that show it began
    for name in names.values():
        check(flows(cluster).get(name, 0) > IDLE_PER_JOB, f"{flows(cluster)}: no idle connections, so this shows nothing")
    watch(cluster, WATCHED_S, "later")
    listen = cluster.controller
    cluster.kill("controller")
    cluster.start_controller(listen=listen)
    cluster.wait_for_agents()
    watch(cluster, WATCHED_S, "after a restart of the controller")
    print(f"start {number}: apart within {took_s:.1f} s, and through {2 * WATCHED_S} s and a restart", flush=True)
    for job in jobs:
        check(not job._ended(), "a job ended before its time: it has too few steps")
        for rank in job.ranks:
            rank.kill()
            rank.wait()


def main():
    require_fabric()
    with WeftCluster(hosts_per_leaf=4) as cluster:
        for number in range(1, STARTS + 1):
            one_start(cluster, number)


if __name__ == "__main__":
    run_test(main)
