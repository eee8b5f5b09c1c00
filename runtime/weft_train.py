"""Runs weft-train for the system tests: its ranks over loopback, and what rank 0 printed."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))

from processes import Failure, check, free_ports  # noqa: E402

PROGRAM = os.path.join(os.environ["WEFT_BIN"], "weft-train")
PLUGIN = os.path.join(os.environ["WEFT_LIB"], "libnccl-net-weft.so")
EXAMPLES = os.path.join(os.environ["WEFT_SOURCE"], "runtime", "examples")
TEXT = "/usr/share/common-licenses"

SMALL = ["--config", os.path.join(EXAMPLES, "gpt2.json"), "--layers", "2", "--width", "64", "--heads", "4",
         "--data", TEXT, "--seq", "64", "--global-batch", "8", "--bucket", "64KiB", "--output", "json"]


def environment():
    """No agent, loopback only: what a machine without a fabric gives."""
    values = {key: value for key, value in os.environ.items() if not key.startswith(("WEFT_", "NCCL_"))}
    values.update(WEFT_RUN_DIR="", NCCL_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    return values


def start_ranks(processes, name, world, arguments, by_rank=None):
    """Starts `world` ranks, some with further arguments of their own; their children by rank. Rank 0's stdout is a pipe."""
    port = free_ports(1)[0]
    command = [PROGRAM, *arguments, "--world", str(world), "--stall-timeout", "30s"]
    if world > 1:
        command += ["--rendezvous", f"127.0.0.1:{port}", "--plugin", PLUGIN]
    return [processes.start(f"{name}-rank{rank}", [*command, "--rank", str(rank), *(by_rank or {}).get(rank, [])],
                            env=environment(), stdout_pipe=rank == 0) for rank in range(world)]


def train(processes, name, world, arguments, timeout_s=120):
    """Trains to the end; the objects that rank 0 printed."""
    children = start_ranks(processes, name, world, arguments)
    output, _ = children[0].communicate(timeout=timeout_s)
    for rank, child in enumerate(children):
        status = child.wait(timeout_s)
        check(status == 0, f"{name}: rank {rank} ended with {status}: {processes.log(f'{name}-rank{rank}')}")
        if rank > 0:
            log = processes.log(f"{name}-rank{rank}")
            check("{" not in log, f"{name}: rank {rank} printed to stdout: {log}")
        del processes.children[f"{name}-rank{rank}"]
    try:
        return [json.loads(line) for line in output.splitlines()]
    except ValueError as error:
        raise Failure(f"{name}: not one JSON object per line: {error}") from error


def losses(lines):
    return [line["loss"] for line in lines if "step" in line]
