#!/usr/bin/env python3
"""A rank that begins its 50th collective a second late is named by `weft explain`, with communicator and number.

usage: straggler_test.py VERSION=LIBRARY=KERNELS ...
"""
import re
import time

from nccl_run import check, releases
from processes import run_test, wait_until
from weft_cluster import WeftCluster, require_fabric

LATE, CALL, DELAY_S = 2, 50, 1.0
PROMISED_S = 10
JOB = ["--step", "compute=50ms", "--step", "world.allreduce=256KiB", "--no-check", "--duration", "40s", "--delay",
       f"{LATE}:{CALL}:{DELAY_S:g}s"]


def named(cluster):
    reasons = [decision["reason"] for decision in cluster.ask("explain", "late")["decisions"] if decision["kind"] == "straggler"]
    return reasons[0] if reasons else None


def one(nccl):
    with WeftCluster(hosts_per_leaf=2, rate="100Mbit/s") as cluster:
        with nccl.start_in(cluster, cluster.hosts, "late", JOB, {"WEFT_PROFILE": "collectives"}) as job:
            wait_until(lambda: any(step["iteration_s"] > DELAY_S for step in job.steps()[5:]), 90, f"{nccl}: the delay")
            began = time.monotonic()
            reason = wait_until(lambda: named(cluster), 10 * PROMISED_S, f"{nccl}: somebody to be named")
            took = time.monotonic() - began
            print(f"{nccl}: {took:.1f} s after the delay: {reason}", flush=True)
    match = re.search(r"rank (\d+) \(rank (\d+) of the job, (\w+)\) came ([\d.]+) s late to allreduce number (\d+) of communicator (\S+)",
                      reason)
    check(match, f"{nccl}: {reason}")
    check((int(match[1]), int(match[2]), match[3]) == (LATE, LATE, cluster.hosts[LATE]), f"{nccl}: names another rank: {reason}")
    check(int(match[5]) in (CALL - 1, CALL), f"{nccl}: another collective (NCCL counts from 0): {reason}")
    check(0.5 * DELAY_S < float(match[4]) < 2 * DELAY_S, f"{nccl}: another delay: {reason}")
    check(nccl.release < (2, 27) or match[6] == "world0", f"{nccl}: the communicator's name is not {match[6]}")
    check(took < PROMISED_S, f"{nccl}: {took:.1f} s, promised {PROMISED_S}")


def main():
    require_fabric()
    for nccl in releases():
        one(nccl)
    return 0


if __name__ == "__main__":
    run_test(main)
