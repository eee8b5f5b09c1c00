#!/usr/bin/env python3
"""RoCEv2 across a leaf-spine fabric: two virtual machines, one on each leaf, all-reduce over eight queue pairs.

Checked: the numbers; that each UDP source port that a flow asked for takes the one uplink of its leaf that the leaf's
own routing names for it, and that all of it is in the traffic class that was asked for.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
sys.path.insert(0, str(SOURCE / "tests/roce"))
from processes import SKIPPED, skip  # noqa: E402
from roce_test import FLOW, check, failures, packets, read  # noqa: E402

TESTBED = os.environ["WEFT_BIN"] + "/weft-testbed"
FABRIC = f"roce{os.getpid() % 100000}"
MACHINE_SECONDS = 180


def run(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def namespaces(rate, *options, spines=2):
    """leaf -> namespace of the fabric that is made here."""
    made = subprocess.run([TESTBED, "up", "--id", FABRIC, "--leaves", "2", "--spines", str(spines), "--hosts-per-leaf", "1",
                           "--rate", rate, "--output", "json", *options], capture_output=True, text=True)
    if made.returncode != 0:
        skip("fabric", made.stderr.strip())
    return {switch["name"]: switch["namespace"] for switch in json.loads(made.stdout)["switches"]}


def add_tap(netns, leaf):
    for command in ("tuntap add roce0 mode tap", f"addr add 10.{leaf}.250.1/24 dev roce0", "link set roce0 up"):
        run("ip", "-n", netns, *command.split())


def start_capture(netns, uplink, path):
    capture = subprocess.Popen(["ip", "netns", "exec", netns, "tcpdump", "-i", uplink, "-Q", "out", "--immediate-mode",
                                "-U", "-s", "128", "-w", str(path), "udp", "port", "4791"], stderr=subprocess.PIPE,
                               text=True)
    for line in capture.stderr:  # returns when it listens, or ended
        if "listening" in line:
            break
    return capture


def start_machine(rank, netns, share, script, *arguments, seconds=MACHINE_SECONDS):
    """The script gets the rank, the machine's address and its gateway's, then the arguments, then the programs."""
    leaf = rank + 1
    command = [str(SOURCE / "testbed/roce_machine"), "--timeout", str(seconds), "--processors", "1", "--share",
               str(share), "--netns", netns, "--tap", f"roce0,52:54:00:00:00:0{leaf}", "--", "bash",
               str(SOURCE / "tests/roce" / script), str(rank), f"10.{leaf}.250.2", f"10.{leaf}.250.1",
               *arguments, os.environ["WEFT_BIN"] + "/weft", os.environ["WEFT_LIB"] + "/libnccl-net-weft.so"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)


def uplink_of(netns, port):
    """Ground truth: what the leaf's kernel answers for this source port."""
    udp = "17"  # its name is in /etc/protocols, which a minimal system does not have
    said = run("ip", "-n", netns, "route", "get", "10.2.250.2", "from", "10.1.250.2", "iif", "roce0", "ipproto", udp,
               "sport", str(port), "dport", "4791").split()
    return said[said.index("dev") + 1]


def judge(folder, leaf1):
    answer = read(folder / "0", "answer.json")
    try:
        results = json.loads(answer)["results"]
        check(results and all(r["wrong"] == 0 for r in results), f"wrong elements: {results}")
        print(f"all-reduce of 2 MiB: {results[0]['time_us_median']:.0f} us")
    except (ValueError, KeyError):
        check(False, f"no answer: {answer!r}")
    asked = set()
    for found in FLOW.finditer(read(folder / "0", "log")):
        asked = {int(port) for port in found.group(4).split(",")}
    check(len(asked) == 8, f"rank 0 asked for UDP ports {asked}")
    used = {}
    for uplink in ("spine1", "spine2"):
        seen = [p for p in packets(folder / f"{uplink}.pcap") if p[1] == "10.1.250.2"]
        check({p[3] & 0xFC for p in seen} <= {104}, f"{uplink}: traffic classes {({p[3] for p in seen})}")
        used[uplink] = {p[4] for p in seen if 6 <= p[5] <= 11} & asked
        print(f"{uplink}: {len(seen)} packets of rank 0, data from UDP ports {sorted(used[uplink])}")
    for uplink in used:
        expected = {port for port in asked if uplink_of(leaf1, port) == uplink}
        check(used[uplink] == expected, f"{uplink}: ports {used[uplink]}, the leaf's routing says {expected}")


def main():
    ready = subprocess.run([str(SOURCE / "testbed/roce_machine"), "--prepare"], capture_output=True, text=True)
    if ready.returncode == SKIPPED:
        skip("roce", ready.stderr.strip())
    running = []
    try:
        leaves = namespaces("400Mbit/s")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            machines = []
            for rank in (0, 1):
                (folder / str(rank)).mkdir()
                add_tap(leaves[f"leaf{rank + 1}"], rank + 1)
            captures = [start_capture(leaves["leaf1"], uplink, folder / f"{uplink}.pcap")
                        for uplink in ("spine1", "spine2")]
            running += captures
            for rank in (0, 1):
                machines.append(start_machine(rank, leaves[f"leaf{rank + 1}"], folder / str(rank), "inside_node.sh", "10.1.250.2:9000"))
            running += machines
            for rank, machine in enumerate(machines):
                said, _ = machine.communicate()
                check(machine.returncode == 0, f"machine {rank}: status {machine.returncode}: {said}\n"
                      + read(folder / str(rank), "log"))
            for capture in captures:
                capture.terminate()
                capture.communicate()
            judge(folder, leaves["leaf1"])
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait()
        subprocess.run([TESTBED, "down", FABRIC], stdin=subprocess.DEVNULL, capture_output=True)
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
