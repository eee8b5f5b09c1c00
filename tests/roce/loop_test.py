#!/usr/bin/env python3
"""The rows of tests/system/loop_test.py over RoCEv2: two virtual machines on a leaf-spine fabric, agents and a job over queue pairs in them.
A cable that is slowed, one that goes down (by hand also a switch that forwards nothing, and one that loses packets): each is found,
the queue pairs' bytes leave it within the promised time, and every sum is right. Two jobs on one spine are taken apart.

    loop_test.py [--only CableSlow]
"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "system"))
import loop_test as over_tcp  # noqa: E402
from faults import BlackHole, CableDown, CableLosesPackets, CableSlow  # noqa: E402
from loop_watch import CONFIG, decisions, state, uplinks  # noqa: E402
from processes import check, run_test, wait_until  # noqa: E402
from roce_cluster import RoceCluster  # noqa: E402

RATE_MBIT = 16
JOB = ["--compute", "100ms", "--bytes", "250KB", "--bucket", "250KB"]
ROWS = {CableSlow: ["capacity"], CableDown: ["silent"]}
# Found and left in time, but then the job may stand still for a minute (docs/performance.md): by hand only.
BY_HAND = {BlackHole: ["silent"], CableLosesPackets: ["capacity", "silent"]}


def collision():
    """A job starts whose one queue pair the kernel puts on the spine that another job's is on."""
    with RoceCluster(rate=f"{RATE_MBIT}Mbit/s", config=CONFIG) as cluster:
        over_tcp.take_apart(cluster, cluster.hosts, cluster.hosts, ["NCCL_IB_QPS_PER_CONNECTION=1", *JOB], steps=60)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="the name of a fault")
    only = parser.parse_args().only
    if only == "collision":
        collision()
        return
    CableSlow.mbit = RATE_MBIT // 4  # less makes a message wait for a second, which is a silence
    began = time.monotonic()
    with RoceCluster(rate=f"{RATE_MBIT}Mbit/s", config=CONFIG) as cluster:
        print(f"machines up after {time.monotonic() - began:.0f} s", flush=True)
        job = cluster.start_job("a", cluster.hosts, 100_000, "weft-replay", JOB)
        job.wait_for_step(4)
        check("RDMA" in cluster.shared(0, "a.log") or "rxe0" in cluster.shared(0, "a.log"), "the job does not run over RDMA")
        wait_until(lambda: len(uplinks(cluster)) == 2, 60, "paths over both spines")
        wait_until(lambda: decisions(cluster, ["place", "replan"]), 60, "lanes on both spines")
        missed = []
        for kind, found_by in (ROWS | BY_HAND).items():
            if only == kind.__name__ or (not only and kind in ROWS):
                missed += over_tcp.row(cluster, job, kind, found_by, names_link=False)  # whose acknowledgements get lost is not known
        job.wait_for_step(len(job.steps_done()) + 2)
        print(f"{len(job.steps_done())} steps, every sum right", flush=True)
        job.kill()
        check(not missed, f"{missed}")
    if not only:
        collision()


if __name__ == "__main__":
    run_test(main)
