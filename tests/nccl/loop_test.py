#!/usr/bin/env python3
"""Two jobs under NCCL on a namespace fabric with a real controller: from 3 s after the last start no two flows share a link
while another is free, and a restart of the controller in mid-run makes nothing worse.

Each job has two hosts under each of two leaves, 2 MiB all-reduces and 150 ms of computation; NCCL opens twelve connections per
job, of which one in each direction carries bytes across the spines. The bound is what the job takes alone.

usage: loop_test.py [--starts N] VERSION=LIBRARY=KERNELS ...
"""
import statistics
import sys
import time

from nccl_run import check, clean_up, releases
from processes import run_test, wait_until
from weft_cluster import WeftCluster, require_fabric

RATE = "100Mbit/s"
STEPS = ["--step", "compute=150ms", "--step", "world.allreduce=2MiB", "--no-check"]  # two cores are not to be the bottleneck
HOSTS = {"a": ["h1", "h2", "h5", "h6"], "b": ["h3", "h4", "h7", "h8"]}
SETTLED_S, MEASURED_S = 3, 6
MOST_OVER = 1.10


def start(cluster, nccl, name, duration_s):
    hosts = HOSTS[name]

    def extra(rank):
        return {"NCCL_SOCKET_IFNAME": "=eth0", "WEFT_RUN_DIR": str(cluster.run_dir(hosts[rank])), "WEFT_JOB_ID": name,
                "WEFT_RANK": str(rank), "WEFT_WORLD": str(len(hosts))}

    return nccl.start(len(hosts), [*STEPS, "--duration", f"{duration_s}s"], extra,
                      prefix=lambda rank: cluster.in_host(hosts[rank], []),
                      rendezvous=f"{cluster.host[hosts[0]]['mgmt_address']}:{29300 + ord(name)}")


def median_of(done, after_s):
    """Of the iterations that ended later than so long after the first."""
    lines = [line for line in done.lines() if "step" in line]
    times = [line["iteration_s"] for line in lines if line["time_s"] > lines[0]["time_s"] + after_s]
    check(len(times) >= 5, f"only {len(times)} iterations")
    return statistics.median(times)


def alone(cluster, nccl):
    with start(cluster, nccl, "a", MEASURED_S) as job:
        return median_of(job.wait(120).check_ok("alone"), 1)


def both(cluster, nccl, bound, restart):
    length = SETTLED_S + MEASURED_S + (8 if restart else 0)
    with start(cluster, nccl, "a", length + 2) as a, start(cluster, nccl, "b", length) as b:
        wait_until(lambda: a.steps() and b.steps(), 90, "both jobs to train")
        if restart:
            time.sleep(4)
            listen = cluster.controller
            cluster.kill("controller")
            cluster.start_controller(listen)
        medians = [median_of(job.wait(180).check_ok("job"), SETTLED_S + (6 if restart else 0)) for job in (a, b)]
    over = [median / bound for median in medians]
    print(f"  {'restart' if restart else 'start'}: {medians[0]:.3f} and {medians[1]:.3f} s, "
          f"{100 * (over[0] - 1):+.1f} and {100 * (over[1] - 1):+.1f} % over alone ({bound:.3f} s)", flush=True)
    return over


def main():
    require_fabric()
    starts = int(sys.argv[sys.argv.index("--starts") + 1]) if "--starts" in sys.argv else 3
    for nccl in releases()[-1:]:
        over = []
        with WeftCluster(hosts_per_leaf=4, rate=RATE) as cluster:
            bound = alone(cluster, nccl)
            for i in range(starts):
                over += both(cluster, nccl, bound, restart=i % 2 == 1)
        within = sum(value <= MOST_OVER for value in over)
        print(f"{nccl}: {within} of {len(over)} within {100 * (MOST_OVER - 1):.0f} % of the bound")
        check(within == len(over), f"{nccl}: {[round(value, 3) for value in over]}")
    clean_up()
    return 0


if __name__ == "__main__":
    run_test(main)
