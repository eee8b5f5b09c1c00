#!/usr/bin/env python3
"""Jobs under NCCL on a namespace fabric with a real controller: from 3 s after the last start no two of them share a link while
another is free, whether the controller was there before them, came in between, or was restarted in mid-run.

Each job has two hosts under each of two leaves, 2 MiB all-reduces and 150 ms of computation; NCCL opens twelve connections per
job, of which one in each direction carries bytes across the spines. With --jobs 3 the third one is weft-replay's, with idle
communicators as a library's trees, and there are three spines. The judge is what each job takes alone.

usage: loop_test.py [--starts N] [--jobs 2|3] VERSION=LIBRARY=KERNELS ...
"""
import contextlib
import statistics
import time

from nccl_run import check, option, releases
from processes import run_test, wait_until
from weft_cluster import WeftCluster, require_fabric

RATE = "100Mbit/s"
STEPS = ["--step", "compute=150ms", "--step", "world.allreduce=2MiB", "--no-check"]  # two cores are not to be the bottleneck
REPLAY = ["--compute", "150ms", "--bytes", "2MiB", "--bucket", "2MiB", "--idle-communicators", "5"]
SETTLED_S, MEASURED_S = 3, 6
AFTER_RESTART_S = 6  # hosts are to join again, and what their flows carry to be measured
MOST_OVER = 1.10
HOW = ("before the jobs", "restarted in mid-run", "between the jobs")


class NcclJob:
    def __init__(self, nccl, cluster, hosts, name):
        self.job = nccl.start_in(cluster, hosts, name, [*STEPS, "--duration", "600s"])

    def steps(self):
        return self.job.steps()

    def end(self):
        for rank, child in enumerate(self.job.ranks):
            check(child.poll() is None, f"rank {rank} has ended: {(self.job.folder / f'{rank}.err').read_text()[-400:]}")
        self.job.__exit__()


class ReplayJob:
    def __init__(self, _, cluster, hosts, name):
        self.job = cluster.start_job(name, hosts, 10_000, "weft-replay", REPLAY)

    def steps(self):
        return self.job.steps_done()

    def end(self):
        for rank, child in enumerate(self.job.ranks):  # all before the first is killed: the others end then by themselves
            check(child.poll() is None, f"rank {rank} of {self.job.name} has ended")
        for child in self.job.ranks:
            child.kill()
            child.wait()


class Site:
    def __init__(self, nccl, cluster, jobs):
        self.nccl, self.cluster, self.started = nccl, cluster, 0
        self.kinds = [NcclJob, NcclJob, ReplayJob][:jobs]
        self.hosts = [[f"h{first + offset}" for offset in (0, 1, 2 * jobs, 2 * jobs + 1)] for first in range(1, 2 * jobs, 2)]

    @contextlib.contextmanager
    def job(self, index):
        self.started += 1
        job = self.kinds[index](self.nccl, self.cluster, self.hosts[index], f"{'abc'[index]}{self.started}")
        try:
            wait_until(lambda: len(job.steps()) > 1, 90, f"job {index} to train")
            yield job
        finally:
            job.end()


def median_since(job, since):
    """Of the iterations that ended later than so many of its steps."""
    times = [step["iteration_s"] for step in job.steps()[since:]]
    check(len(times) >= 5, f"only {len(times)} iterations")
    return statistics.median(times)


def measure(jobs):
    since = [len(job.steps()) + 1 for job in jobs]
    time.sleep(MEASURED_S)
    return [median_since(job, first) for job, first in zip(jobs, since)]


def alone(site):
    bounds = []
    for index in range(len(site.kinds)):
        with site.job(index) as job:
            time.sleep(SETTLED_S)
            bounds += measure([job])
    return bounds


def together(site, bounds, how):
    with contextlib.ExitStack() as stack:
        listen = site.cluster.controller
        if how == 2:
            site.cluster.kill("controller")
        jobs = [stack.enter_context(site.job(0))]
        if how == 2:
            site.cluster.start_controller(listen)
        jobs += [stack.enter_context(site.job(index)) for index in range(1, len(site.kinds))]
        if how == 1:
            time.sleep(4)
            site.cluster.kill("controller")
            site.cluster.start_controller(listen)
        time.sleep(AFTER_RESTART_S if how == 1 else SETTLED_S)
        over = [took / bound for took, bound in zip(measure(jobs), bounds)]
    print(f"  controller {HOW[how]}: {', '.join(f'{100 * (value - 1):+.1f} %' for value in over)} over alone", flush=True)
    return over


def main():
    require_fabric()
    starts, jobs = option("--starts", 3), option("--jobs", 2)
    for nccl in releases()[-1:]:
        over = []
        with WeftCluster(hosts_per_leaf=2 * jobs, spines=jobs, rate=RATE) as cluster:
            site = Site(nccl, cluster, jobs)
            bounds = alone(site)
            print(f"{nccl}: alone {', '.join(f'{bound:.3f} s' for bound in bounds)}", flush=True)
            for start in range(starts):
                over += together(site, bounds, start % len(HOW))
        within = sum(value <= MOST_OVER for value in over)
        print(f"{nccl}: {within} of {len(over)} within {100 * (MOST_OVER - 1):.0f} % of the bound, worst {100 * (max(over) - 1):+.1f} %")
        check(within == len(over), f"{nccl}: {[round(value, 3) for value in over]}")
    return 0


if __name__ == "__main__":
    run_test(main)
