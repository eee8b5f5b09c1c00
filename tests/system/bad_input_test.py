#!/usr/bin/env python3
"""Bad input to every program: one clear line on stderr that names the cause, the promised exit status, nothing left."""
import glob
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Processes, check, descendants, free_ports, run_test, wait_until  # noqa: E402

BIN = os.environ["WEFT_BIN"]
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+ (debug|info|warn) ")
PLUGIN = os.path.join(os.environ["WEFT_LIB"], "libnccl-net-weft.so")


def run(*command, env=None, timeout=60):
    return subprocess.run([os.path.join(BIN, command[0]), *map(str, command[1:])], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=env, timeout=timeout, check=False)


def expect(status, pieces, *command, lines=1):
    done = run(*command)
    said = [line for line in done.stderr.splitlines() if line.strip()]
    shown = f"{' '.join(map(str, command))}: status {done.returncode}, stderr {done.stderr!r}"
    check(done.returncode == status, f"expected status {status}: {shown}")
    check(len(said) <= lines, f"expected one line: {shown}")
    for piece in pieces:
        check(piece in done.stderr, f"expected {piece!r}: {shown}")
    print(f"ok {status}: {said[-1] if said else ''}")


def weft(processes):
    malformed = processes.write("malformed.json", '{"model_type": "gpt2", "n_layer": }')
    unknown = processes.write("unknown.yaml", "version: 1\nname: x\nnodes: 1\ngpus_per_node: 1\ndevice: cpu\n"
                              "intra_node_rate: 1GB/s\nnic_rate: 1Gbit/s\nspeling: 1\n")
    port = free_ports(1)[0]
    plan = ["--cluster", "dgx-a100:1", "--global-batch", "8", "--seq", "128"]
    expect(2, ["no-such-model"], "weft", "plan", "no-such-model", *plan)
    expect(2, [malformed], "weft", "plan", malformed, *plan)
    expect(2, ["dgx-x:1"], "weft", "plan", "gpt2", "--cluster", "dgx-x:1", "--global-batch", "8", "--seq", "128")
    expect(2, [unknown, "speling"], "weft", "plan", "gpt2", "--cluster", unknown, "--global-batch", "8", "--seq", "128")
    expect(2, ["64", "size"], "weft", "perf", "--bytes", "64")
    expect(2, ["/nowhere.so"], "weft", "perf", "--plugin", "/nowhere.so")
    expect(2, ["quicksort"], "weft", "perf", "--algorithm", "quicksort")
    expect(2, ["--no-such-flag"], "weft", "perf", "--no-such-flag")
    expect(1, [f"127.0.0.1:{port}", "cannot be reached"], "weft", "jobs", "--controller", f"127.0.0.1:{port}")
    expect(2, ["10"], "weft", "demo", "--duration", "10")
    expect(2, ["frob"], "weft", "frob")
    expect(2, ['"foo"', "expected HOST:PORT"], "weft", "links", "--controller", "foo")
    expect(2, ["weft-testbed: ", "frob"], "weft-testbed", "frob")
    expect(2, ["weft-testbed: ", "--leaves"], "weft-testbed", "up", "--leaves", "many")
    expect(2, ["weft-testbed: ", "--id"], "weft-testbed", "down")
    for option in ("--id", None):
        expect(2, ["weft-testbed: ", "nosuch"], "weft-testbed", "down", *filter(None, [option]), "nosuch")


def daemons(processes):
    bad = processes.write("controller.yaml", "version: 1\nlink_rat: 1Gbit/s\n")
    expect(2, [bad, "link_rat"], "weft-controller", "--config", bad, "--check-config")
    expect(2, ["/nowhere.yaml"], "weft-agent", "--config", "/nowhere.yaml", "--check-config")
    expect(2, ["/nowhere.pem"], "weft-controller", "--check-config", "--link-rate", "1Gbit/s",
           *(f"--tls-{part}=/nowhere.pem" for part in ("certificate", "key", "authority")), lines=2)  # one: what it assumes
    agent = ["weft-agent", "--check-config", "--host", "h", "--run-dir", "/tmp", "--controller", "127.0.0.1:1"]
    expect(2, ["nosuch0"], *agent, "--interfaces", "nosuch0", lines=2)  # one: the configuration
    expect(2, ["/nowhere.pem"], *agent, *(f"--tls-{part}=/nowhere.pem" for part in ("certificate", "key", "authority")), lines=2)


def expect_refused(pieces, *command):
    """Status 1, one line besides the log's, which names the cause; nothing on stdout, for nothing is ready."""
    done = run(*command)
    said = [line for line in done.stderr.splitlines() if not LOG_LINE.match(line)]
    shown = f"{' '.join(map(str, command))}: status {done.returncode}, stdout {done.stdout!r}, stderr {done.stderr!r}"
    check(done.returncode == 1 and not done.stdout, f"expected status 1 and no ready line: {shown}")
    check(len(said) == 1 and " error " not in done.stderr, f"expected one line: {shown}")
    for piece in pieces:
        check(piece in said[0], f"expected {piece!r}: {shown}")
    print(f"ok 1: {said[0]}")


def ports_in_use(processes):
    """Of every port that a daemon or rank 0 listens at. What was refused holds nothing that a second try would need."""
    state, run_dir = processes.path("state"), processes.path("run")
    controller = ["weft-controller", "--state-dir", state]
    agent = ["weft-agent", "--host", "h", "--interfaces", "lo", "--run-dir", run_dir, "--controller", "127.0.0.1:1"]
    for bound in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as taken:
            taken.bind((bound, 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            in_use = [address, "no other program listens at", "ss -ltnp"]
            expect_refused([*in_use, "gRPC"], *controller, "--listen", address, "--http", "127.0.0.1:0")
            expect_refused([*in_use, "HTTP"], *controller, "--listen", "127.0.0.1:0", "--http", address)
            expect_refused([*in_use, "HTTP"], *agent, "--http", address)
            check(not os.path.exists(os.path.join(run_dir, "agent.sock")), "the refused agent left its socket")
            ranks = ["--rank", "0", "--world", "2", "--rendezvous", address, "--plugin", PLUGIN]
            in_use = [address, "in use"]
            expect_refused(in_use, "weft-replay", *ranks, "--duration", "1s")
            expect_refused(in_use, "weft", "perf", "--collective", "allreduce", "--bytes", "1KiB", *ranks)
            expect_refused([*in_use, "rank 0"], "weft-train", *ranks, "--config", os.path.join(BIN, "examples", "gpt2.json"),
                           "--data", "/usr/share/common-licenses", "--layers", "1", "--width", "64", "--heads", "4",
                           "--steps", "1")
    ready = processes.start_ready("controller", [os.path.join(BIN, controller[0]), *controller[1:], "--listen",
                                                 "127.0.0.1:0", "--http", "127.0.0.1:0"])
    expect_refused([state], *controller, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    expect_refused([ready["listen"]], *controller[:1], "--listen", ready["listen"], "--http", "127.0.0.1:0")
    processes.start_ready("agent", [os.path.join(BIN, agent[0]), *agent[1:], "--http", "127.0.0.1:0"])
    expect_refused([run_dir, "another agent"], *agent, "--http", "127.0.0.1:0")
    processes.check_alive()
    for name in ("agent", "controller"):
        check(processes.stop(name) == 0, f"the {name} did not end well")


def training(processes):
    config = os.path.join(BIN, "examples", "gpt2.json")
    malformed = processes.write("bad-config.json", "{")
    common = ["--data", "/usr/share/common-licenses", "--steps", "1"]
    expect(2, ["/nowhere.json"], "weft-train", "--config", "/nowhere.json", *common)
    expect(2, [malformed], "weft-train", "--config", malformed, *common)
    expect(2, ["/nowhere-text"], "weft-train", "--config", config, "--data", "/nowhere-text", "--steps", "1")


def rank_that_dies(processes):
    """The other ranks end with one line that names the rank; nothing is left behind."""
    env = dict(os.environ, NCCL_SOCKET_IFNAME="lo", WEFT_RUN_DIR=processes.path("no-agent"))
    port = free_ports(1)[0]
    ranks = []
    for rank in range(3):
        with open(processes.path(f"replay-{rank}.log"), "wb") as log:
            ranks.append(subprocess.Popen(
                [os.path.join(BIN, "weft-replay"), "--rank", str(rank), "--world", "3", "--rendezvous", f"127.0.0.1:{port}",
                 "--plugin", PLUGIN, "--compute", "20ms", "--bytes", "1MiB", "--duration", "60s"], env=env,
                stdin=subprocess.DEVNULL, stdout=log if rank else subprocess.PIPE, stderr=log))
    check(json.loads(ranks[0].stdout.readline()), "no first step")
    ranks[1].send_signal(signal.SIGKILL)
    ranks[1].wait()
    began = time.monotonic()
    for rank in (0, 2):
        check(ranks[rank].wait(60) == 1, f"rank {rank} ended with {ranks[rank].returncode}, expected 1")
        said = processes.log(f"replay-{rank}").strip().splitlines()
        check("rank" in said[-1] or "peer" in said[-1], f"rank {rank} does not name the cause: {said}")
        print(f"ok 1: {said[-1]} ({time.monotonic() - began:.1f} s)")
    ranks[0].stdout.close()


def main():
    before = set(glob.glob("/tmp/weft-*"))
    with Processes() as processes:
        weft(processes)
        daemons(processes)
        ports_in_use(processes)
        training(processes)
        rank_that_dies(processes)
        wait_until(lambda: not descendants(os.getpid()), 5, "no process left")
    left = set(glob.glob("/tmp/weft-*")) - before
    check(not left, f"left behind: {sorted(left)}")
    return 0


if __name__ == "__main__":
    run_test(main)
