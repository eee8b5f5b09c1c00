#!/usr/bin/env python3
"""The site's classes end to end, over TCP in a namespace fabric whose switches queue what the controller's file declares: of two flows
over one full port each has its class's share; a switch that changes DSCP (nftables) is found by the probes and named, and is good
again when the rule is gone.
"""
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check, run_test, skip, wait_until  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

SHARES = {26: 75, 0: 25}  # percent
CONFIG = "classes: [{dscp: 26, priority: 3, share: 75%, lossless: on}, {dscp: 0, priority: 0, share: 25%}]\n"
RATE_MBIT = 40
SECONDS = 4
STEPS = 4000


def switch(cluster, name):
    return next(s for s in cluster.fabric["switches"] if s["name"] == name)


def rewrites(cluster):
    """(switches between which a DSCP is changed, DSCP sent, DSCP seen), of all hosts."""
    found = set()
    for host in cluster.ask_any("qos", "verify")["hosts"]:
        for one in host.get("report", {}).get("rewrites", []):
            found.add((one["after"], one["at"], one["dscp"], one["seen"]))
    return found


def a_switch_that_changes_dscp_is_found(cluster):
    job = cluster.start_job("a", cluster.hosts, STEPS, "weft-replay",
                            ["--compute", "100ms", "--bytes", "200000B", "--bucket", "200000B"])
    job.wait_for_step(4)
    wait_until(lambda: all("report" in host for host in cluster.ask_any("qos", "verify")["hosts"]), 30, "reports of all hosts")
    time.sleep(8)  # every hop has been asked for every class: nothing may be named
    check(not rewrites(cluster), f"named without a cause: {rewrites(cluster)}")
    spine = switch(cluster, "spine1")
    rule = ["ip", "netns", "exec", spine["namespace"], "nft"]
    for words in ("add table ip weft", "add chain ip weft out { type filter hook postrouting priority 0 ; }",
                  "add rule ip weft out ip dscp 26 ip dscp set 8"):
        subprocess.run([*rule, words], check=True)
    began = time.monotonic()
    found = wait_until(lambda: rewrites(cluster), 90, "the switch to be named")
    print(f"named after {time.monotonic() - began:.1f} s: {sorted(found)}")
    check(all(after == spine["identity"] and (sent, seen) == (26, 8) for after, _, sent, seen in found),
          f"expected {spine}: {found}")
    verify = cluster.weft("qos", "verify")
    check(verify.returncode == 1 and f"changed there or by {spine['identity']}" in verify.stdout, f"verify: {verify.stdout}")
    explain = cluster.weft("explain", "a").stdout
    check("QoS that is not as declared" in explain and f"changed there or by {spine['identity']}" in explain, f"explain: {explain}")
    subprocess.run([*rule, "delete table ip weft"], check=True)
    wait_until(lambda: not rewrites(cluster), 90, "the mended switch to be forgotten")
    print(f"forgotten {time.monotonic() - began:.1f} s after it began")
    for child in job.ranks:
        child.kill()
        child.wait()


def classes_have_their_shares(cluster):
    """Two iperf3 streams from h1 to h2, one of each class, while every port of the way is full."""
    address = cluster.host["h2"]["data_address"]
    runs, servers = {}, []
    for dscp, port in ((26, 5201), (0, 5202)):
        servers.append(subprocess.Popen(cluster.in_host("h2", ["iperf3", "-s", "-p", port, "-1"]), stdout=subprocess.DEVNULL))
        runs[dscp] = ["iperf3", "-c", address, "-p", port, "-t", SECONDS, "-S", dscp << 2, "-J", "--cport", 41000 + dscp]
    time.sleep(0.5)
    children = {dscp: subprocess.Popen(cluster.in_host("h1", command), stdout=subprocess.PIPE, text=True)
                for dscp, command in runs.items()}
    rates = {}
    for dscp, child in children.items():
        text, _ = child.communicate(timeout=60)
        check(child.returncode == 0, f"iperf3 of DSCP {dscp}: {text[-400:]}")
        rates[dscp] = json.loads(text)["end"]["sum_received"]["bits_per_second"]
    for server in servers:  # each ends after its one client
        server.wait(10)
    part = {dscp: rate / sum(rates.values()) for dscp, rate in rates.items()}
    print(", ".join(f"DSCP {dscp}: {rates[dscp] / 1e6:.1f} Mbit/s, {part[dscp]:.0%} of both, declared {SHARES[dscp]} %"
                    for dscp in rates))
    for dscp, share in SHARES.items():
        check(abs(part[dscp] - share / 100) < 0.1, f"DSCP {dscp} has {part[dscp]:.0%}, declared {share} %")


class Cluster(WeftCluster):
    fabric_options = ["--classes", ",".join(f"{dscp}:{share}%" for dscp, share in SHARES.items())]

    def weft(self, *command):
        return subprocess.run([os.environ["WEFT_BIN"] + "/weft", *command, "--controller", self.controller], capture_output=True,
                              text=True, check=False)

    def ask_any(self, *command):
        """Its JSON, whatever the status."""
        done = self.weft(*command, "--output", "json")
        check(done.stdout, f"weft {' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout)


def main():
    require_fabric()
    for program in ("nft", "iperf3"):
        if shutil.which(program) is None:
            skip("fabric", f"{program} is not installed")
    with Cluster(hosts_per_leaf=1, spines=1, rate=f"{RATE_MBIT}Mbit/s", config=CONFIG) as cluster:
        classes_have_their_shares(cluster)
        a_switch_that_changes_dscp_is_found(cluster)


if __name__ == "__main__":
    run_test(main)
