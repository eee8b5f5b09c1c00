#!/usr/bin/env python3
"""A host gets a network interface after its agent has started, and loses it again: the controller hears of its addresses."""
import os
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from faults import ip  # noqa: E402
from loop_watch import state  # noqa: E402
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

ADDRESS = "10.99.0.1"
LOOKED_AT_S = 5  # waited for four times that


class AllInterfaces(WeftCluster):
    def agent_command(self, name):
        words = [str(word) for word in super().agent_command(name)]
        at = words.index("--interfaces")
        return words[:at] + words[at + 2:]


def addresses(cluster):
    return {host["host"]: host["addresses"] for host in state(cluster)["hosts"]}


def main():
    require_fabric()
    with AllInterfaces(hosts_per_leaf=1, spines=1) as cluster:
        namespace = cluster.host["h1"]["namespace"]
        before = addresses(cluster)
        check(ADDRESS not in before["h1"], f"{before}")
        ip(namespace, "link", "add", "extra", "type", "veth", "peer", "name", "extra-peer")
        ip(namespace, "-batch", "-", batch=f"addr add {ADDRESS}/24 dev extra\nlink set extra up\nlink set extra-peer up\n")
        wait_until(lambda: ADDRESS in addresses(cluster)["h1"], 4 * LOOKED_AT_S, "the new address to be known")
        check(addresses(cluster)["h2"] == before["h2"], "h2 has changed")
        ip(namespace, "link", "del", "extra")
        wait_until(lambda: addresses(cluster)["h1"] == before["h1"], 4 * LOOKED_AT_S, "the address to be gone")
        print("an interface came and went", flush=True)


if __name__ == "__main__":
    run_test(main)
