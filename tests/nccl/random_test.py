#!/usr/bin/env python3
"""Random sequences of grouped, overlapping calls on four communicators of four ranks, while every flow's policy (lanes, weights,
class, pacing, window) changes every 10 ms and the profiler follows every step: no element wrong.

usage: random_test.py [--sequences N] [--seed S] [--policies-every MILLISECONDS] VERSION=LIBRARY=KERNELS ...
"""
import contextlib
import json
import pathlib
import subprocess

import nccl_run
from nccl_run import BIN, check, option, releases
from processes import run_test


@contextlib.contextmanager
def changing_policies(every_ms, seed):
    """Where plugins find an agent that changes its policies, and a function that ends it and says what it did."""
    run_dir = pathlib.Path(nccl_run.TEMPORARY) / "agent"
    with subprocess.Popen([BIN / "weft-nccl-change-policies", run_dir, str(seed), str(every_ms)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as agent:
        try:
            check(agent.stderr.readline() == "ready\n", "weft-nccl-change-policies does not listen")

            def end():
                agent.terminate()
                out, err = agent.communicate(timeout=30)
                check(agent.returncode == 0, f"weft-nccl-change-policies ended with {agent.returncode}: {err}")
                return json.loads(out)

            yield str(run_dir), end
        finally:
            agent.kill()


def main():
    sequences, seed, world = option("--sequences", 300), option("--seed", 1), 4
    every_ms = option("--policies-every", 10)
    for nccl in releases():
        def command(rank, rendezvous, library=nccl.library):
            return [BIN / "weft-nccl-random-calls", rank, world, rendezvous, seed, sequences, library]
        with changing_policies(every_ms, seed) as (run_dir, end):
            settings = {"NCCL_DEBUG": "WARN", "WEFT_RUN_DIR": run_dir, "WEFT_JOB_ID": "random", "WEFT_PROFILE": "steps"}
            with nccl.start_program(world, command, settings) as job:
                done = job.wait(60 + sequences).check_ok(f"{nccl}, seed {seed}")
            policies = end()
        print(f"{nccl}: {done.lines()[0]}, {done.seconds:.1f} s, {policies}")
        check(policies["processes"] == world, f"{policies['processes']} processes had an agent, expected {world}")
        check(policies["entries"] > 10 * policies["policies"], f"{policies['entries']} entries in {policies['policies']} policies")
        check(policies["refused"] == 0, f"{policies['refused']} entries were refused, though none is wrong")
        # The plugin looks every 25 ms, less often on busy cores.
        check(policies["epoch_read"] > policies["policies"] - 100, f"epoch {policies['epoch_read']} of {policies['policies']} was read")
    return 0


if __name__ == "__main__":
    run_test(main)
