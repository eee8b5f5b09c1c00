#!/usr/bin/env python3
"""A spine that takes packets and forwards none, in a namespace fabric, under a job over TCP: nothing errors, no counter of a link
tells. The path loses its weight within the promised time, other paths are taken, and when the spine forwards again the job goes on and
every sum is right. Times are the controller's own, of its decisions.
"""
import json
import os
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

PROMISED_S = 3  # asserted with twice its value
STEPS = 150


def state(cluster):
    with urllib.request.urlopen(f"http://{cluster.http}/api/v1/state", timeout=5) as answer:
        return json.loads(answer.read())


def uptime(cluster):
    with urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("weft_controller_uptime_seconds "):
                return float(line.split()[1])
    raise AssertionError("no uptime")


def decisions(cluster, kind, since_s=0.0):
    return [d for d in state(cluster)["decisions"] if d["kind"] == kind and d["time_s"] >= since_s]


def carried(cluster):
    """Bytes from leaf1 to each spine, by the spine's name."""
    return {"spine" + link["to"].rsplit(".", 1)[1]: int(link["carried_bytes"]) for link in cluster.ask("topo")["links"]
            if link["from"] == "10.255.1.1" and link["to"].startswith("10.255.2.")}


class BlackHole:
    """The spine's route to the second leaf's hosts drops what takes it, without a word to the sender."""

    def __init__(self, cluster, spine):
        self.namespace = next(s["namespace"] for s in cluster.fabric["switches"] if s["name"] == spine)
        there = cluster.host[cluster.hosts[-1]]["data_address"]
        shown = subprocess.run(["ip", "-n", self.namespace, "-j", "route", "get", there], capture_output=True, text=True, check=True).stdout
        check(json.loads(shown)[0].get("dev"), f"no way from {spine} to {there}: {shown}")
        self.target = there + "/32"

    def open(self):
        subprocess.run(["ip", "-n", self.namespace, "route", "replace", "blackhole", self.target], check=True)

    def close(self):
        subprocess.run(["ip", "-n", self.namespace, "route", "del", "blackhole", self.target], check=True)


def main():
    require_fabric()
    with WeftCluster(hosts_per_leaf=1, spines=2, rate="60Mbit/s") as cluster:
        job = cluster.start_job("a", cluster.hosts, STEPS, "weft-replay", ["--compute", "100ms", "--bytes", "500000B", "--bucket", "500000B"])
        job.wait_for_step(4)
        wait_until(lambda: len(carried(cluster)) == 2 and max(carried(cluster).values()) > 1_000_000, 30, "paths over both spines")
        wait_until(lambda: decisions(cluster, "place") or decisions(cluster, "replan"), 20, "lanes on both spines")
        before = carried(cluster)
        done = len(job.steps_done())
        job.wait_for_step(done + 5)
        after = carried(cluster)
        spine = max(after, key=lambda name: after[name] - before[name])
        hole = BlackHole(cluster, spine)
        opened_s = uptime(cluster)
        hole.open()
        silent = wait_until(lambda: decisions(cluster, "silent", opened_s), 30, "the silent path to be named")[0]
        moved = wait_until(lambda: decisions(cluster, "replan", silent["time_s"]), 30, "its weight to go elsewhere")[0]
        print(f"silent after {silent['time_s'] - opened_s:.2f} s: {silent['reason']}")
        print(f"moved after {moved['time_s'] - opened_s:.2f} s: {moved['reason']}")
        check(moved["time_s"] - opened_s <= 2 * PROMISED_S, f"moved {moved['time_s'] - opened_s:.2f} s after the spine fell silent")
        check("0 % over" not in moved["reason"].split("->")[-1] or "100 % over" in moved["reason"].split("->")[-1], moved["reason"])
        number = spine.removeprefix("spine")

        def available():
            links = {(link["from"], link["to"]): link for link in cluster.ask("topo")["links"]}
            return links[("10.255.1.1", f"10.255.2.{number}")]["available_bps"]

        # Acknowledgements are dropped as well: the lane that sends the other way may be named first.
        wait_until(lambda: available() < 0.1 * 60e6, 2 * PROMISED_S, "the silent link to be planned with less")
        hole.close()
        for rank, child in enumerate(job.ranks):
            check(child.wait(120) == 0, f"rank {rank} failed: {cluster.processes.log(f'a-{rank}')[-400:]}")
        check(len(job.steps_done()) == STEPS, f"{len(job.steps_done())} steps, expected {STEPS}")
        print(f"{STEPS} steps, every sum right")


if __name__ == "__main__":
    run_test(main)
