"""What weft-train says when it cannot train: one line with the cause, the promised exit status, nothing left behind."""

import json
import os
import signal
import subprocess
import sys

from weft_train import EXAMPLES, PLUGIN, PROGRAM, SMALL, TEXT, check, environment, start_ranks
from processes import Failure, Processes

GPT2 = os.path.join(EXAMPLES, "gpt2.json")


def check_refused(arguments, pieces):
    """Wrong input: status 2, nothing on stdout, one line on stderr with all pieces."""
    done = subprocess.run([PROGRAM, *arguments], env=environment(), capture_output=True, text=True, timeout=30, check=False)
    lines = done.stderr.splitlines()
    check(done.returncode == 2, f"{arguments}: ended with {done.returncode}: {done.stderr}")
    check(len(lines) == 1, f"{arguments}: not one line: {done.stderr}")
    check(done.stdout == "", f"{arguments}: printed {done.stdout}")
    for piece in pieces:
        check(piece in lines[0], f"{arguments}: no {piece!r} in {lines[0]!r}")


def wrong_input(processes):
    malformed = processes.write("malformed.json", '{"model_type": "gpt2", ')
    empty = processes.write("empty.txt", "")
    base = ["--config", GPT2, "--data", TEXT]
    four = [*base, "--world", "4", "--rendezvous", "127.0.0.1:1"]
    cases = [
        (["--data", TEXT], ["--config", "required"]),
        (["--config", "/nonexistent/config.json", "--data", TEXT], ["/nonexistent/config.json"]),
        (["--config", malformed, "--data", TEXT], [malformed, "line 1"]),
        (["--config", GPT2, "--data", "/nonexistent/text"], ["/nonexistent/text", "no such file"]),
        (["--config", GPT2, "--data", empty], [empty, "no bytes"]),
        ([*base, "--seq", "2000"], ["sequence 2000", "1 to 1024"]),
        ([*base, "--width", "100"], ["width 100", "12 equal heads"]),
        ([*base, "--global-batch", "8", "--world", "3"], ["global batch 8", "world 3"]),
        ([*base, "--rank", "4", "--world", "4"], ["rank 4 of world 4"]),
        ([*base, "--world", "4"], ["needs --plugin"]),
        ([*base, "--world", "4", "--plugin", PLUGIN], ["needs --rendezvous"]),
        ([*four, "--plugin", "/nonexistent/plugin.so"], ["/nonexistent/plugin.so"]),
        ([*base, "--world", "4", "--plugin", PLUGIN, "--rendezvous", "nowhere"], ["nowhere"]),
        ([*base, "--bucket", "17"], ["--bucket", '"17"', "KiB"]),
        ([*base, "--duration", "10"], ["--duration", '"10"']),
        ([*base, "--communication", "maybe"], ["--communication", "maybe", "on or off"]),
        ([*base, "--steps", "0"], ["steps 0"]),
        ([*base, "--duration", "1s", "--min-steps", "0"], ["min steps 0"]),
        ([*base, "--min-steps", "3"], ["--min-steps", "--duration"]),
        ([*base, "--type", "fp64", "--duration", "1s"], ["--type fp64", "--duration"]),
        ([*base, "--replicas", "2", "--duration", "1s"], ["--replicas", "--duration"]),
        ([*base, "--gossip"], ["--gossip", "without --replicas"]),
        ([*base, "--replicas", "3", "--global-batch", "8"], ["3 replicas of a batch of 8", "even share"]),
        ([*base, "--replicas", "2", "--gossip", "--local-steps", "2"], ["gossip true", "at most"]),
        ([*base, "--warm-up=-1"], ["--warm-up", "at least 0"]),
        ([*base, "--plan", "program.json", "--seq", "8"], ["--plan", "--seq"]),
        ([*base, "--plan", "program.json", "--bucket", "1MiB"], ["--plan", "--bucket"]),
        ([*base, "--strategy", "dp=1", "--plan", "program.json"], ["--strategy", "--plan"]),
        ([*base, "--strategy", "dp=1", "--bucket", "1MiB"], ["--strategy", "--bucket"]),
        ([*base, "--sums", "ring"], ["--sums", "--strategy"]),
        ([*base, "--strategy", "dp=2,tq=2"], ["--strategy", 'fix "tq=2"', "unknown name"]),
        ([*base, "--strategy", "dp=2,tp=5"], ["--strategy", "heads: tp=5 does not divide 12 heads"]),
        ([*base, "--strategy", "dp=2"], ["made for 2 ranks, this run has 1"]),
        ([*base, "--strategy", "dp=1", "--program-digest", "0"], ["--program-digest 0", "another config.json"]),
        ([*base, "--strategy", "dp=1", "--seq", "2000"], ["sequence 2000", "1024 positions"]),
        ([*base, "--bogus", "1"], ["--bogus"]),
    ]
    for arguments, pieces in cases:
        check_refused(arguments, pieces)
    print(f"{len(cases)} wrong inputs are refused with one line each")


def wait_for_step(child):
    """Reads rank 0's lines until a step is done."""
    for line in child.stdout:
        if "step" in json.loads(line):
            return
    raise Failure("rank 0 ended before its first step")


def ended(processes, name, children, skip=()):
    """Waits for the ranks; [(status, log)]."""
    found = []
    for rank, child in enumerate(children):
        if rank in skip:
            continue
        if child.stdout:
            child.stdout.read()
        status = child.wait(40)
        found.append((rank, status, processes.log(f"{name}-rank{rank}").strip()))
    return found


def a_rank_dies(processes):
    """kill -9 of one rank: every other one ends by itself, with status 1 and one line that names a peer."""
    children = start_ranks(processes, "dies", 4, [*SMALL, "--duration", "60s"])
    wait_for_step(children[0])
    children[2].kill()
    children[2].wait(10)
    for rank, status, log in ended(processes, "dies", children, skip=(2,)):
        check(status == 1, f"rank {rank} ended with {status}: {log}")
        last = log.splitlines()[-1] if log else ""
        check(last.startswith(f"weft-train: rank {rank}: step ") and last.count("rank") >= 2,
              f"rank {rank} does not say in its last line which peer failed: {log!r}")
        print(last)


def ranks_differ(processes):
    """Another seed on one rank: nobody trains, and all say what differs."""
    children = start_ranks(processes, "differ", 2, [*SMALL, "--steps", "3"], by_rank={1: ["--seed", "2"]})
    for rank, status, log in ended(processes, "differ", children):
        check(status == 2, f"rank {rank} ended with {status}: {log}")
        check("ranks were started differently" in log and "seed 1" in log and "seed 2" in log, f"rank {rank}: {log!r}")
    print("ranks that were started differently refuse to train")


def a_signal_ends_it(processes):
    for number in (signal.SIGTERM, signal.SIGINT):
        name = f"signal{int(number)}"
        children = start_ranks(processes, name, 1, [*SMALL, "--duration", "60s"])
        wait_for_step(children[0])
        children[0].send_signal(number)
        (_, status, log), = ended(processes, name, children)
        check(status == 128 + number, f"signal {number}: ended with {status}")
        check(log == "weft-train: rank 0: stopped by a signal", f"signal {number}: {log!r}")
    print("SIGTERM and SIGINT end it with 143 and 130")


def main():
    with Processes() as processes:
        wrong_input(processes)
        a_signal_ends_it(processes)
        ranks_differ(processes)
        a_rank_dies(processes)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"bad_input_test: {failure}")
