#!/usr/bin/env python3
"""Ranks that start in network namespaces whose interfaces have no carrier yet find each other when they have.

    carrier_test.py        WEFT_BIN and WEFT_LIB name the folders of the programs and of the plugin
"""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
from processes import Processes, check, run_test  # noqa: E402
from weft_cluster import require_fabric  # noqa: E402

NAMESPACES = [f"weft-carrier-{os.getpid()}-{rank}" for rank in range(2)]
NO_CARRIER_S = 0.7  # the plugin waits for 2 s


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def namespaces():
    try:
        for name in NAMESPACES:
            ip("netns", "add", name)
        first, second = NAMESPACES
        ip("link", "add", "x0", "netns", first, "type", "veth", "peer", "name", "x0", "netns", second)
        for number, name in enumerate(NAMESPACES):
            ip("-n", name, "addr", "add", f"10.77.0.{number + 1}/24", "dev", "x0")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in NAMESPACES:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def perf(rank):
    binaries, libraries = os.environ["WEFT_BIN"], os.environ["WEFT_LIB"]
    return ["ip", "netns", "exec", NAMESPACES[rank], f"{binaries}/weft", "perf", "--collective", "sendrecv", "--bytes", "1KiB",
            "--iterations", "5", "--check", "--rank", str(rank), "--world", "2", "--rendezvous", "10.77.0.1:7777",
            "--plugin", f"{libraries}/libnccl-net-weft.so"]


def main():
    require_fabric()
    # No filter: loopback is there, and must not do.
    environment = {**os.environ, "NCCL_SOCKET_IFNAME": "", "WEFT_RUN_DIR": ""}
    with namespaces(), Processes() as processes:
        ip("-n", NAMESPACES[1], "link", "set", "x0", "up")  # its other end is down: up, and no carrier
        ranks = [processes.start("rank1", perf(1), env=environment)]
        time.sleep(NO_CARRIER_S)
        ip("-n", NAMESPACES[0], "link", "set", "x0", "up")
        ranks.append(processes.start("rank0", perf(0), env=environment))
        for process in ranks:
            check(process.wait(timeout=60) == 0, f"a rank ended with {process.returncode}")


if __name__ == "__main__":
    run_test(main)
