#!/usr/bin/env python3
"""What the collective table says is what NCCL runs: its own log, for sizes inside and outside of the table.

usage: tuner_test.py VERSION=LIBRARY=KERNELS ...
"""
from nccl_run import check, ran, releases
from processes import run_test

RANKS = 4
TABLE = [("allreduce", 4096, "tree", "simple"), ("allreduce", 65536, "ring", "ll"), ("allreduce", 1 << 20, "tree", "ll"),
         ("allgather", 65536, "ring", "simple"), ("reducescatter", 65536, "ring", "ll")]


def main():
    for nccl in releases():
        entries = ";".join(f"*:{call}:{size}-{size}:{algorithm}:{protocol}:0" for call, size, algorithm, protocol in TABLE)
        steps = [word for call, size, *_ in TABLE for word in ("--step", f"world.{call}={size}B")]
        job = [*steps, "--step", "world.allreduce=320B", "--iterations", "3"]
        tuned = ran(nccl.run(RANKS, job, {"WEFT_COLLECTIVES": f"1;{entries}"}).check_ok(nccl).log())
        plain = ran(nccl.run(RANKS, job).check_ok(nccl).log())
        check(tuned, f"{nccl}: its log says nothing of algorithms")
        for call, size, algorithm, protocol in TABLE:
            whole = call == "allreduce" or nccl.release < (2, 24)
            found = tuned.get((call, size if whole else size // RANKS))
            check(found == {(algorithm, protocol)}, f"{nccl}: {call} of {size} bytes: ran {found}, the table says {algorithm}/{protocol}")
        outside = tuned.get(("allreduce", 320)), plain.get(("allreduce", 320))
        check(outside[0] and outside[0] == outside[1], f"{nccl}: outside of the table NCCL's choice changed: {outside}")
        print(f"{nccl}: {len(TABLE)} entries as the table says, outside {outside[1]}")
    return 0


if __name__ == "__main__":
    run_test(main)
