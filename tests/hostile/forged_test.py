#!/usr/bin/env python3
"""A tenant whose job spans two hosts of a fabric, beside another tenant's on the same two: his processes say in their telemetry, on both
hosts, that their bytes wait and hardly arrive, that nothing is acknowledged and all is lost, and that they have sent what no NIC has.
He is heard for his own flows only: no link that the other job uses is planned with less, none of its flows is moved, both hosts' sessions
stand, and what NICs refute is named and counted. How long the other job's iterations are in rounds with and without forging, in turn, is
printed; what they may differ by at most here leaves room for a busy machine.

Real processes of two users in network namespaces: who runs it must be root.
"""
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "gpu"))
from faults import segment_of  # noqa: E402
from loop_watch import CONFIG, believed_whole, decisions, state, uptime  # noqa: E402
from processes import check, run_test, skip, wait_until  # noqa: E402
from telemetry import Segment  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

BIN, LIB = pathlib.Path(os.environ["WEFT_BIN"]), pathlib.Path(os.environ["WEFT_LIB"])
VICTIM, FORGER = 20001, 20002
HOSTS = ("h1", "h3")          # one behind each leaf
JOBS = {"victim": (VICTIM, "256KiB"), "forger": (FORGER, "64KiB")}
ROUNDS, ROUND_S = 2, 3        # of each kind of forgery, each with as long a quiet one before it
MOST_LONGER = 0.25            # promised are 2 %, which a machine that does other work as well cannot show
LANES_AT, LANE_BYTES, LANES, SILENT_AT = 1984, 56, 8, 2448  # of a flow's slot (netplugin/abi/segment.h)
SENDS, RECEIVES = 0, 1
# Kinds of decisions that name him. Nothing is said of silence, since the links that he says are silent carry others' bytes.
HEARD_AS = {"backlog": "capacity", "claims": "claims"}


class Forging:
    """Writes into the segments of some processes, which are their user's own, until it is ended. Numbers only grow, so that what the
    plugin itself writes in between is passed by."""

    def __init__(self, pids, kind):
        self.kind, self.over = kind, threading.Event()
        self.memories = [Memory(pid) for pid in pids]
        self.bases = {}
        self.thread = threading.Thread(target=self._forge)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _forge(self):
        began_s = time.monotonic()
        while not self.over.wait(0.02):
            for memory in self.memories:
                for at in memory.slots:
                    if memory.get("<I", at) == 1:
                        self._forge_slot(memory, at, time.monotonic() - began_s)

    def _forge_slot(self, memory, at, passed_s):
        direction = memory.get("<I", at + 24)
        for number in range(LANES):
            lane = at + LANES_AT + number * LANE_BYTES
            if memory.get("<I", lane) != 2:
                continue
            if self.kind == "backlog" and direction == RECEIVES:  # always waiting, and 1 Mbit/s comes
                self._add(memory, lane + 40, 1e9 * passed_s)
                self._add(memory, lane + 48, 1e6 / 8 * passed_s)
            if self.kind == "silence" and direction == SENDS:
                self._add(memory, lane + 24, 5_000 * passed_s)
                memory.put("<I", at + SILENT_AT + 4 * number, 5_000)
            if self.kind == "claims" and direction == SENDS:  # 200 Mbit/s over a port of 60
                self._add(memory, lane + 8, 25e6 * passed_s)
                self._add(memory, lane + 16, 25e6 * passed_s)

    def _add(self, memory, at, much):
        base = self.bases.setdefault((memory, at), memory.get("<Q", at))
        memory.put("<Q", at, base + int(much))


class Memory:
    """The telemetry of a process where the process itself writes it, and where its flows are: nobody else may map it to write."""

    def __init__(self, pid):
        self.base = segment_of(pid)[0][0]
        self.file = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(entry).startswith("/memfd:weft-telemetry"):
                with open(entry, "rb") as shared:
                    self.slots = Segment(shared.fileno()).slots()

    def get(self, form, at):
        self.file.seek(self.base + at)
        return struct.unpack(form, self.file.read(struct.calcsize(form)))[0]

    def put(self, form, at, value):
        self.file.seek(self.base + at)
        self.file.write(struct.pack(form, value))


class Site:
    def __init__(self, cluster):
        self.cluster, self.processes = cluster, cluster.processes
        self.replay = shutil.copy(BIN / "weft-replay", self.processes.path("weft-replay"))
        self.plugin = shutil.copy(LIB / "libnccl-net-weft.so", self.processes.path("libnccl-net-weft.so"))

    def start_job(self, name, port):
        uid, size = JOBS[name]
        for rank, host in enumerate(HOSTS):
            env = dict(os.environ, NCCL_SOCKET_IFNAME="=eth0", WEFT_RUN_DIR=self.cluster.run_dir(host), WEFT_TRANSPORT="tcp")
            self.processes.start(f"{name}{rank}", self.cluster.in_host(host, [
                "setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", self.replay, "--plugin", self.plugin, "--job", name, "--rank", rank,
                "--world", len(HOSTS), "--rendezvous", f"{self.cluster.host[HOSTS[0]]['mgmt_address']}:{port}", "--compute", "50ms",
                "--bytes", size, "--bucket", size, "--duration", "500s"]), env=env)

    def iterations(self):
        return [float(match) for match in re.findall(r'"iteration_s":([0-9.e-]+)', self.processes.log("victim0"))]

    def round(self):
        """The victim's median iteration in the next seconds."""
        first = len(self.iterations())
        time.sleep(ROUND_S)
        self.processes.check_alive()
        during = self.iterations()[first:]
        check(len(during) >= 5, f"{len(during)} iterations of the victim in {ROUND_S} s")
        return statistics.median(during)

    def sessions(self):
        with urllib.request.urlopen(f"http://{self.cluster.http}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return text, {each["host"]: (each["connected"], each["incarnation"]) for each in self.cluster.ask("topo")["hosts"]}


def fallen(cluster, least):
    """Notes the least that each link was seen to be planned with."""
    for link in state(cluster)["links"]:
        key = f'{link["from"]}->{link["to"]}'
        least[key] = min(least.get(key, 1), link["available_bps"] / link["line_rate_bps"])


def watch(cluster, least, over):
    while not over.wait(0.2):
        fallen(cluster, least)


def moves_of_victim(cluster, since_s):
    return [each["reason"] for each in decisions(cluster, ["place", "replan"], since_s)
            if re.search(r"of job victim \([^)]*\): [^;]* -> ", each["reason"])]


def check_links(cluster, kind, least, since_s):
    """No link was planned with less, unless the victim's own lanes found it to be slow, on a busy machine; then with what those found."""
    low = {link: part for link, part in least.items() if part < 0.9}
    found = [each["reason"] for each in decisions(cluster, ["capacity"], since_s)]
    for link, part in low.items():
        own = [reason for reason in found if f"link {link} gave" in reason and "of job victim" in reason]
        check(own and part > 0.25, f"{kind}: link {link} planned with {100 * part:.0f} %: {found}")


def forge(site, kind):
    """Rounds without and with this forgery: the victim's medians of both, and what else was seen."""
    cluster = site.cluster
    wait_until(lambda: believed_whole(state(cluster)["links"]), 90, "all links to be believed whole")
    began_s, least, over, times = uptime(cluster), {}, threading.Event(), {True: [], False: []}
    watcher = threading.Thread(target=watch, args=(cluster, least, over))
    watcher.start()
    try:
        for _ in range(ROUNDS):
            times[False].append(site.round())
            with Forging([site.processes.children[f"forger{rank}"].pid for rank in range(len(HOSTS))], kind):
                times[True].append(site.round())
    finally:
        over.set()
        watcher.join()
    check(not moves_of_victim(cluster, began_s), f"{kind}: {moves_of_victim(cluster, began_s)}")
    check_links(cluster, kind, least, began_s)
    heard = [each["reason"] for each in decisions(cluster, [HEARD_AS.get(kind)], began_s) if f"uid {FORGER}" in each["reason"]]
    check(heard or kind not in HEARD_AS, f"{kind}: no decision says that uid {FORGER} said so")
    change = statistics.median(times[True]) / statistics.median(times[False]) - 1
    print(f"{kind}: the victim's iterations {1e3 * statistics.median(times[False]):.1f} ms, while it is forged "
          f"{1e3 * statistics.median(times[True]):.1f}: {100 * change:+.1f} %; no link planned with less than {100 * min(least.values()):.0f} %, "
          f"nothing of it moved; heard: {heard[0] if heard else None}", flush=True)
    return change


def main():
    require_fabric()
    if not shutil.which("setpriv"):
        skip("fabric", "no setpriv (package util-linux): processes of other users cannot be started")
    with WeftCluster(hosts_per_leaf=2, spines=2, rate="60Mbit/s", config=CONFIG) as cluster:
        site = Site(cluster)
        for number, name in enumerate(JOBS):
            site.start_job(name, 29800 + number)
        wait_until(lambda: len(site.iterations()) > 20, 60, "iterations of the victim")
        jobs = {job["spec"]["job_id"]: int(job.get("flows", 0)) for job in cluster.ask("jobs")["jobs"]}
        check(all(jobs.get(name, 0) >= 2 for name in JOBS), f"flows that the controller knows: {jobs}")
        wait_until(lambda: len(state(cluster)["links"]) >= 6, 30, "paths between the two hosts")
        time.sleep(8)  # both jobs have been placed
        _, before = site.sessions()
        changes = [forge(site, kind) for kind in ("backlog", "silence", "claims")]
        metrics, after = site.sessions()
        check(before == after and all(connected for connected, _ in after.values()), f"sessions before {before}, after {after}")
        counted = re.search(r'weft_controller_decisions_total\{kind="claims"\} ([0-9.]+)', metrics)
        check(counted and float(counted[1]) >= 1, f"claims that were refuted are not counted: {counted}")
        print(json.dumps({"change_percent": {"most": round(100 * max(changes), 2), "median": round(100 * statistics.median(changes), 2)}}), flush=True)
        check(statistics.median(changes) <= MOST_LONGER, f"the victim's iterations are longer by {changes}")
    return 0


if __name__ == "__main__":
    run_test(main)
