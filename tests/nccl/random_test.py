#!/usr/bin/env python3
"""Random sequences of grouped, overlapping calls on four communicators of four ranks: no element wrong.

usage: random_test.py [--sequences N] [--seed S] VERSION=LIBRARY=KERNELS ...
"""
import sys

from nccl_run import BIN, clean_up, releases
from processes import run_test


def option(name, otherwise):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else otherwise


def main():
    sequences, seed, world = option("--sequences", 300), option("--seed", 1), 4
    for nccl in releases():
        def command(rank, rendezvous, library=nccl.library):
            return [BIN / "weft-nccl-random-calls", rank, world, rendezvous, seed, sequences, library]
        with nccl.start_program(world, command, {"NCCL_DEBUG": "WARN"}) as job:
            done = job.wait(60 + sequences).check_ok(f"{nccl}, seed {seed}")
        print(f"{nccl}: {done.lines()[0]}, {done.seconds:.1f} s")
    clean_up()
    return 0


if __name__ == "__main__":
    run_test(main)
