#!/usr/bin/env python3
"""RoCEv2 flows of two classes over one slow port: two virtual machines, one on each leaf of a fabric with one spine, whose port to it is
slowed. Two flows at once in one class share it evenly; with one of them raised they share it as the classes are declared, as the port's own
counters say for as long as both have something to send.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import two_machines_test as machines  # noqa: E402
from roce_test import check, failures, read  # noqa: E402
from processes import SKIPPED, skip  # noqa: E402

SHARE = 75  # percent of the raised class
RATE_MBIT = 8
FABRIC = ["--spine-rate", f"{RATE_MBIT}Mbit/s", "--classes", f"26:{SHARE}%", f"0:{100 - SHARE}%", "--queue", "4MiB"]
EVERY_S = 0.1
LEAST_WAITING = 30  # packets of a class: in the time from one look to the next its queue hardly runs empty and fills again
MACHINE_SECONDS = 300
CLASS = re.compile(r"class htb 1:(10|20) .*?Sent (\d+) bytes.*?backlog \S+ (\d+)p", re.DOTALL)


class Port(threading.Thread):
    """What the port to the spine has sent of each class, every tenth of a second."""

    def __init__(self, netns):
        super().__init__()
        self.netns, self.over, self.looks = netns, threading.Event(), []

    def run(self):
        while not self.over.wait(EVERY_S):
            said = machines.run("ip", "netns", "exec", self.netns, "tc", "-s", "class", "show", "dev", "spine1")
            of = {number: (int(sent), int(waits)) for number, sent, waits in CLASS.findall(said)}
            self.looks.append((of["10"], of["20"]))

    def raised_share(self):
        """Of what it sent between looks at which packets of both classes waited."""
        waiting = [all(waits >= LEAST_WAITING for _, waits in look) for look in self.looks]
        sent = [[after[i][0] - before[i][0] for i in (0, 1)] for before, after, was, still
                in zip(self.looks, self.looks[1:], waiting, waiting[1:]) if was and still]
        check(len(sent) >= 30, f"only {len(sent)} times {EVERY_S} s in which packets of both classes waited")
        return sum(each[0] for each in sent) / max(1, sum(map(sum, sent))), len(sent)


def speed(folder, phase, flow):
    """Bytes per second, by the sender."""
    text = read(folder / "0", f"{phase}.{flow}.json")
    try:
        return 65536 / (json.loads(text)["results"][0]["time_us_median"] * 1e-6)
    except (ValueError, KeyError, IndexError):
        check(False, f"{phase}, {flow}: {text!r}\n{read(folder / '0', f'{phase}.{flow}.log')}")
        return 0.0


def judge(folder, port):
    speeds = [speed(folder, "one", flow) for flow in ("raised", "other")]
    ended = [speed(folder, "two", flow) for flow in ("raised", "other")]  # between its runs a flow has nothing to send: no figure of the port's
    if not all(speeds + ended):
        return
    of_port, looks = port.raised_share()
    print(f"in one class: {speeds[0] / 1e6:.2f} and {speeds[1] / 1e6:.2f} MB/s")
    print(f"in two: the port sent {100 * of_port:.1f} % in the raised class in {looks} times {EVERY_S} s in which packets of both waited, "
          f"{SHARE} % declared")
    check(abs(speeds[0] / sum(speeds) - 0.5) <= 0.15, "two flows of one class do not share evenly")
    check(abs(of_port - SHARE / 100) <= 0.03, "the port does not share as declared")


def main():
    ready = subprocess.run([str(machines.SOURCE / "testbed/roce_machine"), "--prepare"], capture_output=True, text=True, check=False)
    if ready.returncode == SKIPPED:
        skip("roce", ready.stderr.strip())
    running, port = [], None
    try:
        leaves = machines.namespaces("400Mbit/s", *FABRIC, spines=1)
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            port = Port(leaves["leaf1"])
            port.start()
            for rank in (0, 1):
                (folder / str(rank)).mkdir()
                machines.add_tap(leaves[f"leaf{rank + 1}"], rank + 1)
            for rank in (0, 1):
                running.append(machines.start_machine(rank, leaves[f"leaf{rank + 1}"], folder / str(rank), "inside_classes.sh",
                                                      f"10.{2 - rank}.250.2", seconds=MACHINE_SECONDS))
            for rank, machine in enumerate(running):
                said, _ = machine.communicate()
                check(machine.returncode == 0, f"machine {rank}: status {machine.returncode}: {said}")
            port.over.set()
            port.join()
            judge(folder, port)
    finally:
        if port:
            port.over.set()
        for process in running:
            if process.poll() is None:
                process.terminate()
                process.wait()
        subprocess.run([machines.TESTBED, "down", machines.FABRIC], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
