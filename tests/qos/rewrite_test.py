#!/usr/bin/env python3
"""A switch that takes the DSCP off the packets that pass it, on a namespace fabric: agents' probes see it, `weft qos verify` names the DSCP,
what became of it and the two switches of which one did it, and no more once it has stopped.

nftables on a spine does what such a switch does. Times are printed; an answered question is asked again after 30 s.
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from faults import DscpRewritten  # noqa: E402
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import BIN, WeftCluster, require_fabric  # noqa: E402

CONFIG = "classes:\n  - {dscp: 26, priority: 3}\n  - {dscp: 0, priority: 0}\n"
ASKED_AGAIN_S = 30  # waited for four times that
LEAF2, SPINES = "10.255.1.2", "10.255.2."


def verify(cluster, *options):
    return subprocess.run([BIN / "weft", "qos", "verify", "--controller", cluster.controller, *options], capture_output=True, text=True,
                          timeout=60, check=False)


def rewrites(cluster):
    return [line.strip() for line in verify(cluster).stdout.splitlines() if "arrives as" in line]


def main():
    require_fabric()
    with WeftCluster(hosts_per_leaf=1, spines=2, config=CONFIG) as cluster:
        rewriting = [DscpRewritten(cluster, "leaf1", spine) for spine in ("spine1", "spine2")]  # the job's lanes may take either
        for spine in rewriting:
            spine.begin()
        job = cluster.start_job("a", cluster.hosts, 100_000, "weft-replay", ["--compute", "100ms", "--bytes", "64KiB"])
        job.wait_for_step(4)
        began = time.monotonic()
        wanted = f"arrives as 0 at {LEAF2}: changed there or by {SPINES}"  # until the spine has answered, the host is before the leaf
        named = wait_until(lambda: (lambda lines: lines if all(wanted in line for line in lines) else [])(rewrites(cluster)),
                           4 * ASKED_AGAIN_S, "the rewriting to be named, with both switches")
        print(f"named after {time.monotonic() - began:.1f} s: {named}", flush=True)
        check(all(line.startswith("DSCP 26 from ") or ": DSCP 26 from " in line for line in named), f"{named}")
        check(verify(cluster).returncode != 0, "status 0 though a switch rewrites")
        for spine in rewriting:
            spine.end()
        began = time.monotonic()
        wait_until(lambda: not rewrites(cluster), 4 * ASKED_AGAIN_S, "the rewriting to be over")
        print(f"over after {time.monotonic() - began:.1f} s", flush=True)
        job.kill()


if __name__ == "__main__":
    run_test(main)
