"""What goes wrong in a cluster's life, one class each: begin() does it to a WeftCluster, end() undoes it.

Every one is real: processes are killed or stopped, cables taken down and slowed, packets dropped by the switches' or hosts' own kernel,
file systems filled, clocks set. `area` says what it strikes, so that a test can have two of different areas at once.
"""
import json
import os
import re
import signal
import subprocess
import threading
import time

from processes import check, descendants

NETWORK, CONTROL, HOST = "network", "control", "host"


def in_namespace(namespace, *words, batch=""):
    """A command in a network namespace. Not `ip -n`: that mounts and unmounts, which has waited up to a minute for the kernel beside busy
    jobs, with the fault open for as long."""
    return subprocess.run(["nsenter", f"--net=/run/netns/{namespace}", *words], check=True, capture_output=True, text=True,
                          input=batch).stdout


def ip(namespace, *words, batch=""):
    return in_namespace(namespace, "ip", *words, batch=batch)


def switch(cluster, name):
    return next(each["namespace"] for each in cluster.fabric["switches"] if each["name"] == name)


def routes(namespace):
    """Each route, those that others go over first, without what the kernel says of its state (it sees a carrier up to a second late)."""
    text = re.sub(r" (dead|linkdown)\b", "", ip(namespace, "route", "show"))
    lines = text.replace("\n\t", " ").splitlines()  # a way of several is a line of its own
    return sorted(lines, key=lambda line: " via " in line)


class Fault:
    area = NETWORK

    def __init__(self, cluster):
        self.cluster = cluster

    def __str__(self):
        return f"{type(self).__name__}({self.what})"

    def begin(self):
        raise NotImplementedError

    def end(self):
        raise NotImplementedError


class Cable(Fault):
    """Of a leaf and a spine."""

    def __init__(self, cluster, leaf, spine):
        super().__init__(cluster)
        self.leaf, self.spine = leaf, spine
        self.what = f"{leaf}-{spine}"

    @classmethod
    def drawn(cls, cluster, random):
        names = [each["name"] for each in cluster.fabric["switches"]]
        return cls(cluster, *(random.choice([name for name in names if name.startswith(kind)]) for kind in ("leaf", "spine")))


class CableDown(Cable):
    """Both ends, and with `reroute_s` the other leaves go around it so much later, as a routing protocol has them do. A device that goes
    down takes routes along: its switch gets them again."""

    def __init__(self, cluster, leaf, spine, reroute_s=0.3):
        super().__init__(cluster, leaf, spine)
        self.reroute_s = reroute_s

    def begin(self):
        self.ends = [(switch(self.cluster, self.leaf), self.spine), (switch(self.cluster, self.spine), self.leaf)]
        others = [each["namespace"] for each in self.cluster.fabric["switches"]
                  if each["name"].startswith("leaf") and each["name"] != self.leaf]
        towards = next(line.split()[0] for line in routes(self.ends[1][0]) if f"dev {self.leaf}" in line and " via " in line)
        self.again = [f"link set {device} up\n" + "".join(f"route replace {line}\n" for line in routes(namespace))
                      for namespace, device in self.ends]
        self.before = {namespace: [line for line in routes(namespace) if line.split()[0] == towards] for namespace in others}
        for namespace, device in self.ends:
            ip(namespace, "link", "set", device, "down")
        if self.reroute_s is None:
            return
        time.sleep(self.reroute_s)
        for namespace, lines in self.before.items():
            around = [re.sub(rf"nexthop via \S+ dev {self.spine} weight \d+\s*", "", line) for line in lines]
            ip(namespace, "-batch", "-", batch="".join(f"route replace {line}\n" for line in around if "nexthop" in line))

    def end(self):
        for (namespace, _), lines in zip(self.ends, self.again):
            ip(namespace, "-batch", "-", batch=lines)
        for namespace, lines in self.before.items():
            ip(namespace, "-batch", "-", batch="".join(f"route replace {line}\n" for line in lines))


class CableFlaps(CableDown):
    """Down and up three times, faster than any routing protocol."""

    def __init__(self, cluster, leaf, spine):
        super().__init__(cluster, leaf, spine, reroute_s=None)

    def begin(self):
        for _ in range(2):
            super().begin()
            time.sleep(0.3)
            super().end()
            time.sleep(0.2)
        super().begin()
        time.sleep(0.3)


class CableSlow(Cable):
    mbit = 10

    @classmethod
    def drawn(cls, cluster, random):
        fault = super().drawn(cluster, random)
        fault.mbit = random.choice([5, 10, 20, 30])
        return fault

    def begin(self):
        self.cluster.set_cable_rate(self.leaf, self.spine, self.mbit)

    def end(self):
        self.cluster.set_cable_rate(self.leaf, self.spine, self.cluster.rate_mbit())


class CableLosesPackets(Cable):
    """So many of a thousand packets that the spine gets from the leaf."""

    per_mille = 50

    def begin(self):
        self.table = f"weft_loss_{self.leaf}"
        in_namespace(switch(self.cluster, self.spine), "nft", "-f", "-", batch=(
            f"add table inet {self.table}\nadd chain inet {self.table} forward {{ type filter hook forward priority 0; }}\n"
            f"add rule inet {self.table} forward iifname {self.leaf} numgen random mod 1000 < {self.per_mille} drop\n"))

    def end(self):
        in_namespace(switch(self.cluster, self.spine), "nft", "delete", "table", "inet", self.table)


class DscpRewritten(Cable):
    """The spine gives all packets from the leaf DSCP 0, as a switch does whose ports trust nobody."""

    def begin(self):
        in_namespace(switch(self.cluster, self.spine), "nft", "-f", "-", batch=(
            "add table ip weft_dscp\nadd chain ip weft_dscp forward { type filter hook forward priority mangle; }\n"
            f"add rule ip weft_dscp forward iifname {self.leaf} ip dscp set 0\n"))

    def end(self):
        in_namespace(switch(self.cluster, self.spine), "nft", "delete", "table", "ip", "weft_dscp")


class BlackHole(Cable):
    """The spine's route to the leaf's hosts drops what takes it, without a word to the sender."""

    def begin(self):
        self.namespace = switch(self.cluster, self.spine)
        there = [host["data_address"] for host in self.cluster.fabric["hosts"] if host["leaf"] == self.leaf]
        for address in there:
            found = json.loads(ip(self.namespace, "-j", "route", "get", address))[0].get("dev")
            check(found == self.leaf, f"{self.spine} reaches {address} over {found}, expected {self.leaf}")
        self.targets = [address + "/32" for address in there]
        ip(self.namespace, "-batch", "-", batch="".join(f"route replace blackhole {target}\n" for target in self.targets))

    def end(self):
        ip(self.namespace, "-batch", "-", batch="".join(f"route del blackhole {target}\n" for target in self.targets))


class Host(Fault):
    area = CONTROL

    def __init__(self, cluster, host):
        super().__init__(cluster)
        self.host = self.what = host

    @classmethod
    def drawn(cls, cluster, random):
        return cls(cluster, random.choice(cluster.hosts))


class AgentKilled(Host):
    def begin(self):
        self.cluster.kill(f"agent-{self.host}")

    def end(self):
        self.cluster.start_agent(self.host)


class AgentHangs(Host):
    """Stopped, with its connections open."""

    def begin(self):
        self.cluster.processes.children[f"agent-{self.host}"].send_signal(signal.SIGSTOP)

    def end(self):
        self.cluster.processes.children[f"agent-{self.host}"].send_signal(signal.SIGCONT)


class PartitionSilent(Host):
    """Between an agent and the controller, whose packets are dropped."""

    verdict = "drop"

    def begin(self):
        port = self.cluster.controller.rsplit(":", 1)[1]
        in_namespace(self.cluster.host[self.host]["namespace"], "nft", "-f", "-", batch=(
            "add table inet weft_partition\nadd chain inet weft_partition output { type filter hook output priority 0; }\n"
            f"add rule inet weft_partition output tcp dport {port} {self.verdict}\n"))

    def end(self):
        in_namespace(self.cluster.host[self.host]["namespace"], "nft", "delete", "table", "inet", "weft_partition")


class PartitionReset(PartitionSilent):
    """Or answered with a reset."""

    verdict = "reject with tcp reset"


class SecondAgentOfAName(Host):
    """An agent says that it is a host which has one, from another machine."""

    def begin(self):
        other = next(each for each in self.cluster.hosts if each != self.host)
        self.what = f"{self.host} from {other}"
        self.name = f"second-{self.host}"
        run_dir = self.cluster.processes.path("run", self.name)
        self.cluster.processes.start(self.name, self.cluster.in_host(other, [
            *self.cluster.agent_command(self.host), "--run-dir", run_dir, "--http", f"{self.cluster.host[other]['mgmt_address']}:9465"]))

    def end(self):
        self.cluster.kill(self.name)


class RankSlowed(Fault):
    """A rank of a job gets the processor for a fifth of the time only: its host has other work."""

    area = HOST

    def __init__(self, cluster, job, rank):
        super().__init__(cluster)
        self.child = job.ranks[rank]
        self.what = f"rank {rank} of {job.name}"
        self.over = threading.Event()

    def _slow(self):
        while not self.over.is_set():
            self.child.send_signal(signal.SIGSTOP)
            time.sleep(0.04)
            self.child.send_signal(signal.SIGCONT)
            self.over.wait(0.01)

    def begin(self):
        self.thread = threading.Thread(target=self._slow)
        self.thread.start()

    def end(self):
        self.over.set()
        self.thread.join()


class ControllerKilled(Fault):
    area, what = CONTROL, "controller"

    @classmethod
    def drawn(cls, cluster, _random):
        return cls(cluster)

    def begin(self):
        self.address = self.cluster.controller
        self.cluster.kill("controller")

    def end(self):
        self.cluster.start_controller(listen=self.address)


class ControllerHangs(ControllerKilled):
    def begin(self):
        self.cluster.processes.children["controller"].send_signal(signal.SIGSTOP)

    def end(self):
        self.cluster.processes.children["controller"].send_signal(signal.SIGCONT)


class ControllersDiskFull(ControllerKilled):
    """The cluster's state directory must be a file system of its own (faulty_cluster.py)."""

    def begin(self):
        self.filler = os.path.join(self.cluster.processes.path("controller-state"), "filler")
        with open(self.filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(65536))
            except OSError:
                pass

    def end(self):
        os.remove(self.filler)


class ClockJumps(Fault):
    """Of an agent, by up to a day either way; faulty_cluster.py starts it with a clock that can be set."""

    area = HOST

    def __init__(self, cluster, by_s):
        super().__init__(cluster)
        self.by_s = by_s
        self.what = f"{cluster.clock_host}, {by_s:+d} s"

    @classmethod
    def drawn(cls, cluster, random):
        return cls(cluster, random.choice([-86400, -3600, -2, 2, 3600, 86400]))

    def begin(self):
        self.cluster.set_clock(self.by_s)

    def end(self):
        self.cluster.set_clock(0)


class SegmentCorrupted(Fault):
    """A process of a job writes noise over the counters that it shares with the agent."""

    area = HOST

    def __init__(self, cluster, random):
        super().__init__(cluster)
        self.random = random
        self.what = "no process yet"

    @classmethod
    def drawn(cls, cluster, random):
        return cls(cluster, random)

    def begin(self):
        ranks = [child.pid for job in self.cluster.jobs for child in job.ranks if child.poll() is None]
        pids = [pid for rank in ranks for pid in (rank, *descendants(rank)) if segment_of(pid)]
        check(pids, "no process has a segment")
        pid = self.random.choice(pids)
        begin, end = self.random.choice(segment_of(pid))
        self.what = f"pid {pid}"
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for _ in range(16):
                memory.seek(self.random.randrange(begin, end - 64))
                memory.write(self.random.randbytes(64))

    def end(self):
        pass


def segment_of(pid):
    """Where a process has its telemetry mapped."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            spans = [line.split()[0].split("-") for line in maps if "memfd:weft-telemetry" in line and " rw-" in line]
    except OSError:
        return []
    return [(int(begin, 16), int(end, 16)) for begin, end in spans]


# Those that are drawn: of what a host, a cable or the controller may do at any time.
ALL = [CableDown, CableFlaps, CableSlow, CableLosesPackets, BlackHole, AgentKilled, AgentHangs, PartitionSilent, PartitionReset,
       SecondAgentOfAName, ControllerKilled, ControllerHangs, ControllersDiskFull, ClockJumps, SegmentCorrupted]
