#!/usr/bin/env python3
"""Random faults, one after another and two at once, under two jobs that train: no step fails, and what they learn is bit-identical to the
undisturbed run. One of the jobs runs in containers.

    chaos_test.py [--faults 20] [--seed 1] [--only CableDown,ControllerKilled]

The faults are those of tests/support/faults.py. What each was, when it began and ended, and how long the jobs stood still is printed; the
same seed draws the same faults. Times are printed, not asserted: a fault may hold a job for as long as it lasts and the transport's own
repeats take, and a limit of a minute after its end guards against hangs.
"""
import argparse
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
import faults  # noqa: E402
from faulty_cluster import FaultyCluster  # noqa: E402
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import require_fabric  # noqa: E402

MOST_STEPS = 20_000
CALM_S, GUARD_S = 1, 60
JOB = ["--stall-timeout", "300s"]


class Rounds:
    """What is drawn of a seed: faults of different areas, one or two at once."""

    def __init__(self, cluster, seed, kinds):
        self.cluster, self.random, self.kinds = cluster, random.Random(seed), kinds

    def next(self):
        first = self.random.choice(self.kinds)
        others = [kind for kind in self.kinds if kind.area != first.area]
        kinds = [first, self.random.choice(others)] if others and self.random.random() < 0.4 else [first]
        return [kind.drawn(self.cluster, self.random) for kind in kinds], self.random.uniform(0.5, 4)


def further(jobs, timeout_s):
    """Waits until each job has made two more steps; how long that took."""
    began = time.monotonic()
    for job in jobs:
        job.wait_for_step(len(job.steps_done()) + 1, timeout_s)
    return time.monotonic() - began


def strike(drawn, last_s, half_way=lambda: None):
    """All of them begin, last, and end; those that have begun also where the next one can't."""
    begun = []
    try:
        for fault in drawn:
            fault.begin()
            begun.append(fault)
        time.sleep(last_s / 2)
        half_way()
        time.sleep(last_s / 2)
    finally:
        for fault in reversed(begun):
            fault.end()


def chaos(cluster, jobs, count, rounds):
    done = 0
    while done < count:
        drawn, last_s = rounds.next()
        steps = [len(job.steps_done()) for job in jobs]
        strike(drawn, last_s)
        print(f"fault {done + 1} of {count}: {' and '.join(map(str, drawn))} for {last_s:.1f} s", flush=True)
        within = [len(job.steps_done()) - before for job, before in zip(jobs, steps)]
        took_s = further(jobs, GUARD_S)
        print(f"    {' and '.join(map(str, within))} steps within, the next two after {took_s:.1f} s", flush=True)
        cluster.processes.check_alive()
        cluster.wait_for_agents(GUARD_S)
        time.sleep(CALM_S)
        done += len(drawn)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="names of faults, with commas")
    options = parser.parse_args()
    require_fabric()
    only = options.only.split(",") if options.only else []
    kinds = [kind for kind in faults.ALL if not only or kind.__name__ in only]
    check(kinds and len(kinds) >= len(only), f"--only {options.only}: expected names of {', '.join(kind.__name__ for kind in faults.ALL)}")
    with FaultyCluster(hosts_per_leaf=2) as cluster:
        hosts = {"plain": cluster.hosts[0::2], "boxed": cluster.hosts[1::2]}
        jobs = [cluster.start_job(name, at, MOST_STEPS, arguments=JOB, contained=name == "boxed") for name, at in hosts.items()]
        further(jobs, GUARD_S)
        wait_until(lambda: len(cluster.ask("jobs")["jobs"]) == 2, GUARD_S, "the controller to know both jobs")
        chaos(cluster, jobs, options.faults, Rounds(cluster, options.seed, kinds))
        wait_until(lambda: len(cluster.ask("jobs")["jobs"]) == 2, GUARD_S, "the controller to know both jobs still")
        further(jobs, GUARD_S)
        losses = {}
        for job in jobs:
            job.kill()
            losses[job.name] = [step["loss"] for step in job.steps_done()]
        longest = max(map(len, losses.values()))
        calm = cluster.start_job("calm", hosts["plain"], longest, arguments=JOB).finish(600 + longest)
        for name, found in losses.items():
            first = next((step for step, (a, b) in enumerate(zip(found, calm)) if a != b), None)
            check(first is None, f"{name}: the loss of step {first} is {found[first or 0]}, undisturbed {calm[first or 0]}")
            print(f"{name}: {len(found)} losses bit-identical to the undisturbed run", flush=True)


if __name__ == "__main__":
    run_test(main)
