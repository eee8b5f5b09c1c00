#!/usr/bin/env python3
"""What becomes of jobs and communicators under NCCL: split, shrunk, aborted; a rank that is killed, stopped or late; no agent; a
plugin of another version on one rank. Others end with NCCL's error and do not hang.

usage: life_test.py VERSION=LIBRARY=KERNELS ...
"""
import signal
import time

from nccl_run import BIN, LIB, check, releases
from processes import run_test, wait_until

STEPS = ["--step", "compute=20ms", "--step", "world.allreduce=4MiB"]
PROMISED_S = 10


def communicators(nccl):
    """Split in two, one rank fewer, aborted in mid-collective and made anew: every result right."""
    for what, world in (("split", 4), ("shrink", 3), ("abort", 3)):
        if what == "shrink" and nccl.release < (2, 27):
            print(f"{nccl}: no ncclCommShrink before 2.27")
            continue
        if what == "abort" and nccl.release < (2, 25):  # its progress thread ends only when all that was begun is done
            print(f"{nccl}: ncclCommAbort in mid-collective hangs, over NCCL's own transport too")
            continue

        def command(rank, rendezvous, what=what, world=world):
            return [BIN / "weft-nccl-life-calls", what, rank, world, rendezvous, nccl.library]

        with nccl.start_program(world, command) as job:
            done = job.wait(120).check_ok(f"{nccl}, {what}")
        print(f"{nccl}: {what} of {world} ranks, {done.seconds:.1f} s {done.out(1).strip()}", flush=True)
        if what == "abort":
            took = max(line["abort_s"] for rank in range(1, world) for line in done.lines(rank))
            check(took < PROMISED_S, f"{nccl}: ncclCommAbort took {took:.1f} s, promised {PROMISED_S}")


def ends(nccl, job, what, left_out, code=1):
    """All ranks but one end with an error (where not said otherwise not with a signal), in time."""
    began = time.monotonic()
    for rank, child in enumerate(job.ranks):
        if rank != left_out:
            child.wait(max(0.1, began + 6 * PROMISED_S - time.monotonic()))
    took = time.monotonic() - began
    codes = [child.returncode for rank, child in enumerate(job.ranks) if rank != left_out]
    said = (job.folder / "0.err").read_text().strip()
    print(f"{nccl}: {what}, the others ended after {took:.1f} s with {codes}: {said[-200:]}", flush=True)
    check(all(each == code for each in codes), f"{nccl}: {what}: codes {codes}: {said}")
    check(took < PROMISED_S, f"{nccl}: {what}: the others took {took:.1f} s, promised {PROMISED_S}")


def killed_rank(nccl):
    """NCCL before 2.28 forgets what its progress thread is told, over its own transport too; our plugin may end the process."""
    settings = {"WEFT_STALL_ACTION": "abort"} if nccl.release < (2, 28) else {}
    with nccl.start(4, [*STEPS, "--duration", "60s", "--timeout", "30s"], settings) as job:
        wait_until(lambda: len(job.steps()) > 5, 60, f"{nccl}: the first steps")
        job.stop(2, signal.SIGKILL)
        ends(nccl, job, "rank 2 killed", 2, -signal.SIGABRT if settings else 1)


def stopped_rank(nccl):
    """Nobody can know that it never comes back: the job's own timeout ends the others, which abort and do not hang in it. Up to 2.24
    they do hang there, and the plugin may end the process."""
    hangs = nccl.release < (2, 25)
    settings = {"WEFT_STALL_ACTION": "abort", "WEFT_STALL_SECONDS": "2", "WEFT_STALL_ACTION_SECONDS": "4"} if hangs else {}
    with nccl.start(3, [*STEPS, "--duration", "60s", "--timeout", "3s"], settings) as job:
        wait_until(lambda: len(job.steps()) > 5, 60, f"{nccl}: the first steps")
        job.stop(2, signal.SIGSTOP)
        ends(nccl, job, "rank 2 stopped, timeout 3 s", 2, -signal.SIGABRT if hangs else 1)


def other_version(nccl):
    other = LIB / "libnccl-net-weft-other-wire.so"
    check(other.exists(), f"{other} is not built")

    def extra(rank):
        return {"NCCL_NET_PLUGIN": str(other)} if rank == 1 else {}

    with nccl.start(3, [*STEPS, "--iterations", "3", "--timeout", "5s"], extra) as job:
        # 2.24 frees a job twice when its init fails.
        ends(nccl, job, "a plugin of another version on rank 1", None, -signal.SIGABRT if nccl.release == (2, 24) else 1)
        said = "".join(job.log(rank) for rank in range(3))
    check("accept: a rank has another version of this plugin" in said, f"{nccl}: nobody says why: {said[-800:]}")


def no_agent(nccl):
    """Where no agent listens, the job runs as it is."""
    done = nccl.run(3, [*STEPS, "--iterations", "10"], {"WEFT_RUN_DIR": "/nonexistent", "WEFT_JOB_ID": "alone"}).check_ok(nccl)
    check(done.summary()["elements_checked"] > 0, f"{nccl}: nothing was checked")
    print(f"{nccl}: no agent: {done.summary()['elements_checked']} elements right, {done.seconds:.1f} s", flush=True)


def late_rank(nccl):
    done = nccl.run(3, [*STEPS, "--iterations", "20", "--delay", "1:10:1s"])  # in the iteration number 9.check_ok(nccl)
    slow = [line["step"] for line in done.lines() if "step" in line and line["iteration_s"] > 1]
    check(9 in slow, f"{nccl}: nobody waited for the rank that came a second later, iterations over 1 s: {slow}")


def main():
    for nccl in releases():
        for case in (communicators, killed_rank, stopped_rank, other_version, no_agent, late_rank):
            case(nccl)
    return 0


if __name__ == "__main__":
    run_test(main)
