#!/usr/bin/env python3
"""What goes wrong in a job, under NCCL: a rank that is killed, and no agent at all. Others end with NCCL's error and do not hang.

usage: life_test.py VERSION=LIBRARY=KERNELS ...
"""
import signal
import time

from nccl_run import check, clean_up, releases
from processes import run_test, wait_until

STEPS = ["--step", "compute=20ms", "--step", "world.allreduce=4MiB"]
PROMISED_S = 10


def killed_rank(nccl):
    with nccl.start(4, [*STEPS, "--duration", "60s", "--timeout", "30s"]) as job:
        wait_until(lambda: len(job.steps()) > 5, 60, f"{nccl}: the first steps")
        job.stop(2, signal.SIGKILL)
        began = time.monotonic()
        done = job.wait(6 * PROMISED_S)
        took = time.monotonic() - began
    print(f"{nccl}: rank 2 killed, the others ended after {took:.1f} s with {done.codes}: {done.err(0).strip()[-200:]}")
    check(all(code == 1 for rank, code in enumerate(done.codes) if rank != 2), f"{nccl}: codes {done.codes}: {done.err(0)}")
    check(took < PROMISED_S, f"{nccl}: the others took {took:.1f} s, promised {PROMISED_S}")


def late_rank(nccl):
    done = nccl.run(3, [*STEPS, "--iterations", "20", "--delay", "1:10:1s"]).check_ok(nccl)
    slowest = max(line["iteration_s"] for line in done.lines() if "step" in line)
    check(slowest > 1, f"{nccl}: nobody waited for the rank that came a second later ({slowest:.2f} s)")


def main():
    for nccl in releases():
        killed_rank(nccl)
        late_rank(nccl)
    clean_up()
    return 0


if __name__ == "__main__":
    run_test(main)
