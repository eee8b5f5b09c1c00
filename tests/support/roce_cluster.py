"""A WeftCluster whose hosts are two virtual machines with an RDMA device each, one on each leaf, and whose jobs run over RoCEv2. The
fabric, the controller and all that faults do are as in WeftCluster; the fabric's own hosts are not used.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from processes import SKIPPED, check, skip, wait_until
from weft_cluster import BIN, Job, WeftCluster

sys.path.insert(0, str(pathlib.Path(os.environ["WEFT_SOURCE"]) / "tests" / "roce"))
import two_machines_test as machines  # noqa: E402

BOOT_S = 120
HOST_SPINES = 4  # a machine's cable carries as much as so many spines'
LIFE_S = 1500  # of a machine


class RoceJob(Job):
    """A weft-replay process per machine."""

    def _lines(self):
        lines = []
        for line in self.cluster.shared(0, f"{self.name}.out").splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                pass  # the last line, half written
        return lines

    def first_sent_s(self):
        return self.seen_s - self.steps_done()[0]["iteration_s"]

    def _ended(self):
        self.cluster.processes.check_alive()
        return False

    def kill(self):
        """A job of few steps ends by itself: rdma_rxe has brought machines down whose processes died with work posted."""
        if self.steps < 1000:
            self.wait_for_step(self.steps - 1)
            return
        for rank in (0, 1):
            self.cluster.share(rank, f"{self.name}.stop", "")


class RoceCluster(WeftCluster):
    fabric_options = ["--queue", "4MiB"]  # nobody slows a sender down: what a message holds must fit

    def __init__(self, spines=2, rate="16Mbit/s", config=""):
        super().__init__(hosts_per_leaf=1, spines=spines, rate=rate, config=config)

    def _start(self):
        ready = subprocess.run([str(machines.SOURCE / "testbed/roce_machine"), "--prepare"], capture_output=True, text=True, check=False)
        if ready.returncode == SKIPPED:
            skip("roce", ready.stderr.strip())
        self.start_fabric()
        self.fabric["hosts"] = [{"name": f"h{leaf}", "leaf": f"leaf{leaf}", "data_address": f"10.{leaf}.250.2"} for leaf in (1, 2)]
        self.hosts = [host["name"] for host in self.fabric["hosts"]]
        ends = [(f"h{rank + 1}", self._leaf(rank)["identity"]) for rank in (0, 1)]
        self.config += "links:\n" + "".join(f"- {{from: {one}, to: {other}, rate: {HOST_SPINES * self.rate_mbit()}Mbit/s}}\n"
                                            for pair in ends for one, other in (pair, pair[::-1]))
        self.start_controller()
        for rank in (0, 1):
            self._attach(rank)
            os.mkdir(self.processes.path(f"share{rank}"))
            self.processes.children[f"machine-{rank}"] = machines.start_machine(
                rank, self._leaf(rank)["namespace"], self.processes.path(f"share{rank}"), "inside_loop.sh", self.controller, seconds=LIFE_S)
        self.wait_for_agents(BOOT_S)

    def __exit__(self, kind, value, traceback):
        for rank in (0, 1):
            self.share(rank, "end", "")
        for rank in (0, 1):
            child = self.processes.children.get(f"machine-{rank}")
            try:
                said, _ = child.communicate(timeout=20) if child else ("", None)
            except subprocess.TimeoutExpired:
                said = "did not end"
            if kind is not None:
                print(f"--- machine {rank}: {said}", *(self.shared(rank, f"{log}.log")[-4000:] for log in ("agent", "a")), sep="\n", flush=True)
        super().__exit__(kind, value, traceback)

    def _leaf(self, rank):
        return next(each for each in self.fabric["switches"] if each["name"] == f"leaf{rank + 1}")

    def _attach(self, rank):
        """A machine's cable, slowed towards it, with answers under the switch's own name; and the leaf's port to the
        management network, where the controller is."""
        netns, leaf = self._leaf(rank)["namespace"], rank + 1
        gateway = self.fabric["mgmt_gateway"]
        bridge = json.loads(machines.run("ip", "-j", "route", "get", gateway.rsplit(".", 1)[0] + ".11"))[0]["dev"]
        own = f"{gateway.rsplit('.', 1)[0]}.{1 + leaf}"
        port = f"{netns[-10:]}m"
        for command in ("tuntap add roce0 mode tap", f"addr add 10.{leaf}.250.1/24 dev roce0 noprefixroute", "link set roce0 up",
                        f"route add 10.{leaf}.250.0/24 dev roce0 src {self._leaf(rank)['identity']}"):
            machines.run("ip", "-n", netns, *command.split())
        machines.run("tc", "-n", netns, "qdisc", "add", "dev", "roce0", "root", "tbf", "rate", f"{HOST_SPINES * self.rate_mbit()}mbit", "burst", "10000",
                     "limit", "4194304")
        machines.run("ip", "link", "add", "name", port, "type", "veth", "peer", "name", "manage0", "netns", netns)
        machines.run("ip", "link", "set", port, "master", bridge, "up")
        machines.run("ip", "-n", netns, "addr", "add", f"{own}/24", "dev", "manage0")
        machines.run("ip", "-n", netns, "link", "set", "manage0", "up")
        # What ends say to each other over TCP takes the management network, as where NCCL_SOCKET_IFNAME names an interface of its own:
        # flows that begin anew need it, also when the fabric is what fails. Probes and the ranks' meeting go over the fabric.
        other = f"10.{3 - leaf}.250.0/24"
        machines.run("ip", "-n", netns, "rule", "add", "ipproto", "tcp", "sport", "32768-60999", "dport", "32768-60999", "to", other,
                     "lookup", "60")
        machines.run("ip", "-n", netns, "route", "add", other, "via", f"{gateway.rsplit('.', 1)[0]}.{4 - leaf}", "dev", "manage0", "table", "60")
        machines.run("ip", "route", "replace", f"10.{leaf}.250.0/24", "via", own, "dev", bridge)  # goes with the bridge

    # --- files that a machine sees, too

    def share(self, rank, name, text):
        path = self.processes.path(f"share{rank}", name)
        if not os.path.isdir(os.path.dirname(path)):
            return
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".new", path)

    def shared(self, rank, name):
        try:
            with open(self.processes.path(f"share{rank}", name), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def start_job(self, name, hosts, steps, program="weft-replay", arguments=(), contained=False):
        """`arguments` may begin with variables of the environment, NAME=VALUE."""
        check(program == "weft-replay" and not contained and list(hosts) == self.hosts, "a job of another kind than machines run")
        port = self.next_port
        self.next_port += 1
        variables = [argument for argument in arguments if re.match("[A-Z_]+=", str(argument))]
        arguments = [argument for argument in arguments if argument not in variables]
        line = " ".join([*variables, "--rendezvous", f"10.1.250.2:{port}", "--steps", str(steps), *map(str, arguments)])
        for rank in (0, 1):
            self.share(rank, f"{name}.start", line + "\n")
        job = RoceJob(self, name, [])
        wait_until(lambda: job.steps_done(), 60, f"the first step of {name}")
        job.steps = steps
        job.seen_s = time.monotonic()  # the machines have clocks of their own
        return job
