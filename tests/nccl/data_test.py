#!/usr/bin/env python3
"""Collectives under NCCL over the plugin, every element of every result checked by the job.

usage: data_test.py [--all [--from JOB]] VERSION=LIBRARY=KERNELS ...

Without --all a cut through the whole: each algorithm with each protocol that it has, each type and each reduction, 2 to 8
ranks. With it, all of them together with five types, 8 B to 64 MiB: an hour on two cores. --from goes on after an interrupt.
"""
import itertools
import sys

from nccl_run import check, option, ran, releases
from processes import run_test

CALLS = {"allreduce": ("Ring", "Tree"), "allgather": ("Ring", "PAT"), "reducescatter": ("Ring", "PAT"), "broadcast": ("Ring",),
         "reduce": ("Ring",)}
PROTOCOLS = ("LL", "LL128", "Simple")
TYPES_ALL = ("int8", "bf16", "fp16", "fp32", "int64")
TYPES = ("int8", "int64", "fp16", "bf16", "fp32", "fp64", "uint32")
SIZES = ("8B", "4000B", "64KiB", "1MiB", "5000000B")
SIZES_ALL = ("8B", "256B", "4000B", "64KiB", "1MiB", "5000000B", "64MiB")
REDUCTIONS = ("sum", "prod", "max", "min", "avg")


def run(nccl, ranks, calls, algorithm, protocol, data_type, sizes, reduction="sum", iterations=3):
    steps = [word for call in calls for size in sizes for word in ("--step", f"world.{call}={size}")]
    settings = {"NCCL_ALGO": algorithm, "NCCL_PROTO": protocol} if algorithm else {}
    done = nccl.run(ranks, [*steps, "--iterations", iterations, "--type", data_type, "--op", reduction], settings, timeout_s=1200)
    what = f"{nccl}, {ranks} ranks, {'/'.join(calls)} {algorithm}/{protocol} {data_type} {reduction}"
    done.check_ok(what)
    used, asked = set().union(*ran(done.log()).values()), (algorithm.lower(), protocol.lower())
    if algorithm == "PAT" and nccl.release < (2, 24):  # takes a ring where PAT does not pay for a size, whatever it was asked for
        used -= {("ring", "simple")}
    check(not algorithm or used == {asked}, f"{what}: NCCL ran {used}")
    print(f"ok {what}: {done.summary()['elements_checked']} elements on rank 0, {done.seconds:.1f} s", flush=True)


def protocols_of(algorithm):
    return ("Simple",) if algorithm == "PAT" else PROTOCOLS


def cut(nccl):
    ranks, types = itertools.cycle((2, 3, 4, 8)), itertools.cycle(TYPES)
    for call, algorithms in CALLS.items():
        for algorithm in algorithms:
            for protocol in protocols_of(algorithm):
                run(nccl, next(ranks), [call], algorithm, protocol, next(types), SIZES)
    for reduction in REDUCTIONS[1:]:
        for data_type in ("int32", "fp32", "bf16"):
            run(nccl, 2, ["allreduce", "reducescatter", "reduce"], "", "", data_type, ("64KiB",), reduction)
    for world in (2, 3, 8):
        run(nccl, world, ["alltoall", "sendrecv"], "", "", "fp32", SIZES)


def everything(nccl, first):
    """A job has all calls of one algorithm, protocol, type and number of ranks."""
    jobs = [(data_type, ranks, algorithm, protocol)
            for data_type, ranks, algorithm in itertools.product(TYPES_ALL, range(2, 9), ("Ring", "Tree", "PAT", ""))
            for protocol in (protocols_of(algorithm) if algorithm else ("",))]
    for number, (data_type, ranks, algorithm, protocol) in enumerate(jobs):
        if number < first:
            continue
        print(f"{number} of {len(jobs)}:", end=" ")
        calls = [call for call, algorithms in CALLS.items() if algorithm in algorithms] or ["alltoall", "sendrecv"]
        run(nccl, ranks, calls, algorithm, protocol, data_type, SIZES_ALL, iterations=1)


def main():
    for nccl in releases():
        if "--all" in sys.argv:
            everything(nccl, option("--from", 0))
        else:
            cut(nccl)
    return 0


if __name__ == "__main__":
    run_test(main)
