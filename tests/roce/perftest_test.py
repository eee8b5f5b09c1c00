#!/usr/bin/env python3
"""Weft's RDMA transport beside perftest (Debian's), in the same two virtual machines over rdma_rxe, in turns: ib_send_bw and ib_send_lat
against `weft perf`. Figures are printed, none is asserted; the machines' processors are emulated, so that only the ratios mean something.

    perftest_test.py [--rounds 7]
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import two_machines_test as machines  # noqa: E402
from roce_test import check, failures, read  # noqa: E402
from processes import SKIPPED, skip  # noqa: E402

SECONDS_A_ROUND = 240
MESSAGES = {"bandwidth": lambda bytes_, program: 2**24 // bytes_, "latency": lambda bytes_, program: 400 if program == "perftest" else 420}
SIZES = {"bandwidth": (65536, 1048576), "latency": (8, 4096)}


def figure(kind, text, program, bytes_):
    """Bytes per second, or seconds of half a round trip: a median."""
    if program == "weft":
        seconds = json.loads(text)["results"][0]["time_us_median"] * 1e-6
        return bytes_ / seconds if kind == "bandwidth" else seconds
    numbers = [line.split() for line in text.splitlines() if re.match(rf"\s*{bytes_}\s+\d+\s", line)][-1]
    return float(numbers[3]) * 2**20 if kind == "bandwidth" else float(numbers[4]) * 1e-6  # MiB/s on average; t_typical in us


def packets(folder, kind, bytes_, program, rounds):
    """Sent and received by the first machine for a message of its own, a median: the connection's few are among them."""
    each = []
    for one in range(rounds):
        before_sent, before_received, sent, received = map(int, read(folder, f"{one}.{kind}.{bytes_}.{program}.packets").split())
        count = MESSAGES[kind](bytes_, program)
        each.append(((sent - before_sent) / count, (received - before_received) / count))
    return tuple(statistics.median(column) for column in zip(*each))


def judge(folder, rounds):
    for kind, sizes in SIZES.items():
        for bytes_ in sizes:
            pairs = []
            for each in range(rounds):
                texts = {program: read(folder, f"{each}.{kind}.{bytes_}.{program}") for program in ("perftest", "weft")}
                try:
                    pair = tuple(figure(kind, text, program, bytes_) for program, text in texts.items())
                    if not all(pair):
                        raise ValueError("a figure of 0")
                    pairs.append(pair)
                except (ValueError, KeyError, IndexError):
                    check(False, f"round {each}, {kind} of {bytes_} bytes: {texts}")
            if not pairs:
                continue
            ratios = sorted(ours / theirs for theirs, ours in pairs)
            theirs, ours = (statistics.median(column) for column in zip(*pairs))
            counts = ", ".join("{} {:.2f} and {:.2f}".format(program, *packets(folder, kind, bytes_, program, rounds))
                               for program in ("perftest", "weft"))
            unit, scale = ("MB/s", 1e-6) if kind == "bandwidth" else ("us", 1e6)
            print(f"{kind} of {bytes_} bytes: perftest {theirs * scale:.1f} {unit}, weft {ours * scale:.1f} {unit}; ratio "
                  f"{statistics.median(ratios):.3f} (of {len(ratios)}: {ratios[0]:.3f} to {ratios[-1]:.3f}); packets sent and received per message: {counts}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    if not shutil.which("ib_send_bw"):
        skip("roce", "no ib_send_bw (package perftest)")
    ready = subprocess.run([str(machines.SOURCE / "testbed/roce_machine"), "--prepare"], capture_output=True, text=True, check=False)
    if ready.returncode == SKIPPED:
        skip("roce", ready.stderr.strip())
    running = []
    try:
        leaves = machines.namespaces("10Gbit/s")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for rank in (0, 1):
                (folder / str(rank)).mkdir()
                machines.add_tap(leaves[f"leaf{rank + 1}"], rank + 1)
            for rank in (0, 1):
                running.append(machines.start_machine(rank, leaves[f"leaf{rank + 1}"], folder / str(rank), "inside_perftest.sh",
                                                      f"10.{2 - rank}.250.2", str(rounds), seconds=60 + SECONDS_A_ROUND * rounds))
            for rank, machine in enumerate(running):
                said, _ = machine.communicate()
                check(machine.returncode == 0, f"machine {rank}: status {machine.returncode}: {said}\n" + read(folder / str(rank), "log"))
            judge(folder / "0", rounds)
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait()
        subprocess.run([machines.TESTBED, "down", machines.FABRIC], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
