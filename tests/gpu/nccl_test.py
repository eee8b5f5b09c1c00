#!/usr/bin/env python3
"""The plugin under real NCCL, on a machine with one GPU. Builds nothing: takes a built libnccl-net-weft.so.

Every rank is a process with a host id of its own (NCCL_HOSTID), so that NCCL takes each for a node and uses the network
between them though they share the GPU: a test means, not a way to train. What is shown, each with 2, 4 and 8 ranks:

  values     all-reduce, all-gather and all-to-all through the plugin equal what the CPU says, bit by bit
  speed      bus bandwidth next to NCCL's own Socket transport, runs of both in turns
  tuner      a table in WEFT_COLLECTIVES forces an algorithm and protocol, and the profiler face saw them run
  training   the runtime's GPT for 100 steps: the loss falls, all ranks end with the same weights, Socket agrees

usage: nccl_test.py [--library FILE] [--ranks 2,4,8] [--rounds N] [--bytes LIST] [--text FILE] [--steps N]

Needs PyTorch with CUDA and NCCL 2.23 or later (the profiler face). Exit status: 0 all
was right, 1 something was not, 77 no GPU or no PyTorch.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import telemetry

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
KINDS = ["allreduce", "allgather", "alltoall"]
FORCED = [("tree", "simple"), ("ring", "ll"), ("ring", "simple"), ("tree", "ll")]
TIMEOUT_S = 900


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment_of(rank, world, port, folder, net, extra):
    """NCCL settings of one rank; what the caller has set of NCCL_* and WEFT_* would blur the comparison."""
    values = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "WEFT_"))}
    values.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                  LOCAL_RANK="0", CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
                  NCCL_HOSTID=f"weft-test-{rank}",     # per process, or NCCL refuses the shared GPU
                  NCCL_SOCKET_IFNAME="lo",
                  NCCL_MAX_CTAS="2", NCCL_MAX_NCHANNELS="2",  # all kernels of all ranks must fit the GPU at once
                  NCCL_NET_GDR_LEVEL="LOC", NCCL_MNNVL_ENABLE="0", NCCL_RAS_ENABLE="0",
                  OMP_NUM_THREADS="1")
    if net == "Weft":
        values.update(NCCL_NET_PLUGIN="weft", NCCL_NET="Weft", WEFT_TRANSPORT="tcp",
                      # 2.23 to 2.27 do not look for a profiler in the net plugin's file.
                      NCCL_PROFILER_PLUGIN=str(folder / "libnccl-net-weft.so"),
                      LD_LIBRARY_PATH=f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    else:
        values.update(NCCL_NET="Socket", NCCL_NET_PLUGIN="none", NCCL_TUNER_PLUGIN="none", NCCL_PROFILER_PLUGIN="none")
    values.update(extra)
    return values


def tail(file):
    file.seek(0)
    return file.read()[-4000:]


def run_ranks(world, net, plan, folder, extra=None):
    """Runs one job; what rank 0 said. Raises RuntimeError with the end of what the rank said that failed first."""
    port = free_port()
    outputs, logs, children = [], [], []
    for rank in range(world):
        outputs.append(tempfile.TemporaryFile("w+"))
        logs.append(tempfile.TemporaryFile("w+"))
        children.append(subprocess.Popen([sys.executable, str(HERE / "worker.py"), json.dumps(plan)],
                                         stdout=outputs[rank], stderr=logs[rank],
                                         env=environment_of(rank, world, port, folder, net, extra or {})))
    what = f"{world} ranks over {net}"
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while any(child.poll() is None for child in children):
            failed = [rank for rank, child in enumerate(children) if child.poll()]
            if failed:  # the others wait for it
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{what}: not done after {TIMEOUT_S} s; rank 0 said:\n{tail(logs[0])}")
            time.sleep(0.1)
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
    for rank, child in enumerate(children):
        # What was killed here died of its neighbour.
        if child.wait() not in (0, -signal.SIGKILL):
            raise RuntimeError(f"{what}: rank {rank} ended with {child.returncode}:\n{tail(logs[rank])}")
    if any(child.returncode for child in children):
        raise RuntimeError(f"{what}: killed from outside; rank 0 said:\n{tail(logs[0])}")
    outputs[0].seek(0)
    return [json.loads(line) for line in outputs[0] if line.startswith("{")]


class Report:
    def __init__(self):
        self.failures = 0

    def check(self, right, text):
        print(f"  {'ok' if right else 'WRONG'}  {text}")
        self.failures += not right


def compare_values_and_speed(report, world, options, folder):
    print(f"== {world} ranks: values, and bus bandwidth next to NCCL's Socket transport")
    plan = {"collectives": KINDS, "bytes": options.bytes, "rounds": options.rounds}
    results = {"Weft": {}, "Socket": {}}
    for turn in range(options.turns):
        for net in ("Weft", "Socket") if turn % 2 == 0 else ("Socket", "Weft"):
            for line in run_ranks(world, net, plan, folder):
                if "gpu" in line and turn == 0 and net == "Weft":
                    print(f"  {line['gpu']}, NCCL {line['nccl']}, PyTorch {line['torch']}")
                if "collective" in line:
                    results[net].setdefault((line["collective"], line["bytes"]), []).append(line)
    for key, lines in results["Weft"].items():
        kind, size = key
        report.check(all(line["wrong"] == 0 for line in lines), f"{kind} of {size} bytes equals the CPU's result")
        ours, theirs = (sorted(line["busbw_bps"] for line in results[net][key]) for net in ("Weft", "Socket"))
        ours, theirs = ours[len(ours) // 2], theirs[len(theirs) // 2]
        print(f"      {kind:10} {size:>10} bytes: Weft {ours / 1e9:8.3f} Gbit/s, Socket {theirs / 1e9:8.3f} Gbit/s, "
              f"ratio {ours / theirs:.2f}")


def force_algorithms(report, world, folder):
    print(f"== {world} ranks: what the tuner face asks for is what the profiler face saw")
    for algorithm, protocol in FORCED:
        with tempfile.TemporaryDirectory(prefix="weft-run-") as run_dir:
            agent = telemetry.Agent(run_dir)
            extra = {"WEFT_RUN_DIR": run_dir, "WEFT_PROFILE": "steps",
                     "WEFT_COLLECTIVES": f"1;*:allreduce:1048576-1048576:{algorithm}:{protocol}:2"}
            try:
                run_ranks(world, "Weft", {"collectives": ["allreduce"], "bytes": [1 << 20], "rounds": 10,
                                          "linger_s": 2}, folder, extra)
            finally:
                agent.close()
        found = [c for segment in agent.segments for c in segment.communicators() if c["ranks"] == world]
        records = [r for c in found for r in c["recent"] if r["operation"] == "allreduce" and r["bytes"] == 1 << 20]
        report.check(len(found) >= world and records, f"{algorithm}/{protocol}: every rank reported ({len(found)} "
                                                      f"communicators, {len(records)} all-reduces of 1 MiB)")
        taken = {(r["algorithm"], r["protocol"]) for r in records}
        report.check(taken == {(algorithm, protocol)}, f"{algorithm}/{protocol}: taken were {sorted(taken, key=str)}")
        digests = {c["decision_digest"] for c in found if c["decided"]}
        report.check(len(digests) == 1, f"{algorithm}/{protocol}: all ranks decided alike")
        waits = {w: sum(c["waits_s"][w] for c in found) for w in telemetry.WAITS}
        print("      waited, all ranks: " + ", ".join(f"{w} {s:.3f} s" for w, s in waits.items()))


def train(report, world, options, folder):
    print(f"== {world} ranks: the runtime's GPT, {options.steps} steps")
    plan = {"train": str(options.text), "steps": options.steps}
    ends = {}
    for net in ("Weft", "Socket"):
        line = next(line for line in run_ranks(world, net, plan, folder) if "train" in line)
        ends[net] = line
        print(f"      {net}: loss {line['first_loss']:.4f} to {line['last_loss']:.4f}")
        report.check(line["differing"] == 0, f"{net}: all ranks have the same weights")
    weft, other = ends["Weft"], ends["Socket"]
    report.check(weft["last_loss"] < 0.8 * weft["first_loss"], "Weft: the loss falls")
    # Ring and tree add in another order: losses agree to rounding, which 100 steps let grow.
    report.check(abs(weft["last_loss"] - other["last_loss"]) < 0.02 * other["last_loss"], "both end at the same loss")


def parse_arguments():
    parser = argparse.ArgumentParser(description="the plugin under real NCCL on one GPU")
    parser.add_argument("--library", type=pathlib.Path, default=TOP / "build/release/lib/libnccl-net-weft.so")
    parser.add_argument("--ranks", type=lambda t: [int(n) for n in t.split(",")], default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=20, help="calls timed per size and run")
    parser.add_argument("--turns", type=int, default=4, help="runs of each transport, in turns")
    parser.add_argument("--bytes", type=lambda t: [int(n) for n in t.split(",")],
                        default=[4096, 65536, 1 << 20, 16 << 20, 64 << 20], help="of the full buffer")
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path("/usr/share/common-licenses/GPL-3"))
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


def gpu_is_there():
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() and torch.distributed.is_nccl_available() else 1)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def main():
    options = parse_arguments()
    if not gpu_is_there():
        print("skipped: no PyTorch with a GPU and NCCL")
        return 77
    if not options.library.exists():
        print(f"nccl_test.py: no library \"{options.library}\"; build weft_netplugin or name one with --library",
              file=sys.stderr)
        return 1
    report = Report()
    with tempfile.TemporaryDirectory(prefix="weft-nccl-") as name:
        folder = pathlib.Path(name)
        shutil.copy(options.library, folder / "libnccl-net-weft.so")
        try:
            for world in options.ranks:
                compare_values_and_speed(report, world, options, folder)
                force_algorithms(report, world, folder)
                train(report, world, options, folder)
        except RuntimeError as error:
            report.check(False, str(error))
    print(f"{report.failures} wrong" if report.failures else "all right")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
