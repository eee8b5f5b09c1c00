#!/usr/bin/env python3
"""An agent that is killed and comes back, a cable that goes down and comes up, under a job of NCCL on a namespace fabric with a
controller: the job goes on, every element is right, and what was lost is known again.

usage: fabric_life_test.py VERSION=LIBRARY=KERNELS ...
"""
import time

from nccl_run import check, releases
from faults import CableDown
from processes import run_test, wait_until
from weft_cluster import WeftCluster, require_fabric

JOB = ["--step", "compute=100ms", "--step", "world.allreduce=512KiB", "--timeout", "60s"]
DOWN_S = 4
MOST_S = 60  # a bound against hangs; what it took is printed


def sent_by(cluster, host):
    """Bytes that the controller knows the host to have sent, from its agent's counters."""
    return sum(int(link["carried_bytes"]) for link in cluster.ask("topo")["links"] if link["from"] == host)


def further(job, steps):
    """Waits for so many more iterations; how long the longest of them took."""
    have = len(job.steps())
    wait_until(lambda: len(job.steps()) >= have + steps or any(child.poll() is not None for child in job.ranks), MOST_S,
               f"{steps} more iterations")
    return max(step["iteration_s"] for step in job.steps()[have:])


def agent_goes_and_comes(nccl, cluster):
    with nccl.start_in(cluster, cluster.hosts, "agentless", [*JOB, "--duration", "20s"]) as job:
        wait_until(lambda: len(job.steps()) > 10 and sent_by(cluster, "h1"), 90, f"{nccl}: the job and what h1 sends")
        cluster.kill("agent-h1")
        further(job, 5)  # the agent's last words have arrived
        known = sent_by(cluster, "h1")
        longest = further(job, 15)
        check(sent_by(cluster, "h1") == known, f"{nccl}: h1's agent is gone, and the controller counts on")
        cluster.start_agent("h1")
        began = time.monotonic()
        wait_until(lambda: sent_by(cluster, "h1") > known, MOST_S, f"{nccl}: what h1 sends to be counted again")
        took = time.monotonic() - began
        done = job.wait(120).check_ok(f"{nccl}, agent killed and back")
    print(f"{nccl}: without an agent the longest of 15 iterations took {longest:.2f} s; what it sends is counted {took:.1f} s after the "
          f"agent came back; {done.summary()['elements_checked']} elements right", flush=True)


def take_cable_down(cluster, down_s):
    """The cable leaf1-spine1, at both ends, for so long; returns how long it really was."""
    cable = CableDown(cluster, "leaf1", "spine1", reroute_s=None)
    began = time.monotonic()
    cable.begin()
    time.sleep(down_s)
    cable.end()
    return time.monotonic() - began


def cable_goes_and_comes(nccl, cluster, net):
    name = f"cable-{net}"
    with nccl.start_in(cluster, cluster.hosts, name, [*JOB, "--duration", "25s"], net=net) as job:
        wait_until(lambda: len(job.steps()) > 10, 90, f"{nccl}: the first iterations")
        before = job.steps()[-1]["time_s"]
        down_s = take_cable_down(cluster, DOWN_S)
        check(down_s < 2 * DOWN_S, f"the cable was down for {down_s:.1f} s: not what this test is of")
        done = job.wait(MOST_S + 60)
        if net == "socket" and any(done.codes):  # NCCL's own transport beside ours: its stall is its own
            print(f"{nccl}, {net}: cable down for {down_s:.1f} s: has not ended within {MOST_S + 60} s", flush=True)
            return
        done.check_ok(f"{nccl}, {net}, cable down and up")
    steps = [line for line in done.lines() if "step" in line]
    longest = max(step["iteration_s"] for step in steps if step["time_s"] > before)
    last = steps[-1]["iteration_s"]
    print(f"{nccl}, {net}: cable down for {down_s:.1f} s: the longest iteration took {longest:.2f} s, the last {last:.2f} s; "
          f"{done.summary()['elements_checked']} elements right", flush=True)


def main():
    require_fabric()
    for nccl in releases()[-1:]:
        with WeftCluster(hosts_per_leaf=2, rate="100Mbit/s") as cluster:
            agent_goes_and_comes(nccl, cluster)
            # No comparison of the times: whether Socket's few connections lie over that cable at all is the kernel's draw.
            for net in ("weft", "socket"):
                cable_goes_and_comes(nccl, cluster, net)
    return 0


if __name__ == "__main__":
    run_test(main)
