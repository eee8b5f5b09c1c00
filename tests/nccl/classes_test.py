#!/usr/bin/env python3
"""Two communicators of one job on one slowed port: the one whose class the port serves first gets through as if it were alone, by
the DSCP of the packets on the wire; marked with a code that the port does not know it shares evenly.

usage: classes_test.py VERSION=LIBRARY=KERNELS ...
"""
import pathlib
import statistics
import struct
import subprocess
import time

from nccl_run import TEMPORARY, check, releases
from processes import run_test, wait_until
from weft_cluster import WeftCluster, require_fabric

RAISED, UNKNOWN = 0x68, 0x20  # TOS bytes; the fabric's ports serve the first before all others (testbed/fabric.h)
MARKED_BYTES, OTHER_BYTES = 1 << 20, 2 << 20
SLOWED = 20  # Mbit/s
SETTLED_S, CAPTURED_S = 4, 12
PAUSE_S = 0.1  # without a marked packet: the next iteration's come later
LEAST_RAISED, MOST_EVEN = 0.7, 0.65


def packets(path):
    """(time, TOS, bytes of IP) of every IPv4 packet in a capture."""
    data = pathlib.Path(path).read_bytes()
    check(struct.unpack_from("<I", data)[0] == 0xA1B2C3D4, f"{path}: not a capture")
    at, found = 24, []
    while at + 16 <= len(data):
        seconds, fraction, length, _ = struct.unpack_from("<IIII", data, at)
        frame = data[at + 16:at + 16 + length]
        at += 16 + length
        if len(frame) >= 34 and frame[12:14] == b"\x08\x00":
            found.append((seconds + fraction * 1e-6, frame[15] & 0xFC, struct.unpack_from(">H", frame, 16)[0]))
    return found


def shares(captured, tos):
    """The part of the port's bytes that the marked ones had, from the first to the last of them, for every iteration."""
    marked = [packet for packet in captured if packet[1] == tos]
    bursts, result = [], []
    for packet in marked:
        if not bursts or packet[0] - bursts[-1][-1][0] > PAUSE_S:
            bursts.append([])
        bursts[-1].append(packet)
    for burst in bursts[1:-1]:  # whole ones
        mine = sum(size for _, _, size in burst)
        all_of_it = sum(size for at, _, size in captured if burst[0][0] <= at <= burst[-1][0])
        if mine > MARKED_BYTES / 2:
            result.append(mine / all_of_it)
    return result


def one(nccl, cluster, tos):
    leaf = next(switch["namespace"] for switch in cluster.fabric["switches"] if switch["name"] == "leaf1")
    arguments = ["--step", "compute=300ms", "--step", f"dp.allreduce={OTHER_BYTES}B", "--step", f"world.allreduce={MARKED_BYTES}B",
                 "--no-check", "--duration", "40s", "--traffic-class", f"world={tos}"]
    capture = pathlib.Path(TEMPORARY, f"capture-{tos}.pcap")
    with nccl.start_in(cluster, cluster.hosts, f"classes-{tos}", arguments) as job:
        wait_until(lambda: len(job.steps()) > 2, 90, f"{nccl}: the first iterations")
        time.sleep(SETTLED_S)
        subprocess.run(["timeout", str(CAPTURED_S), "ip", "netns", "exec", leaf, "tcpdump", "-i", "spine1", "-Q", "out", "-s", "64",
                        "-w", capture, "--time-stamp-precision=micro", "-Z", "root", "ip"], check=False, capture_output=True)
    found = shares(packets(capture), tos)
    check(len(found) >= 3, f"{nccl}: only {len(found)} whole iterations with TOS {tos:#x} in the capture")
    print(f"{nccl}: TOS {tos:#x}: {100 * statistics.median(found):.0f} % of the port while it sends, in {len(found)} iterations "
          f"({100 * min(found):.0f} to {100 * max(found):.0f} %)", flush=True)
    return statistics.median(found)


def main():
    require_fabric()
    for nccl in releases():
        if nccl.release < (2, 27):
            print(f"{nccl}: its configuration names no class (2.27)")
            continue
        with WeftCluster(hosts_per_leaf=1, spines=1, rate="100Mbit/s") as cluster:
            cluster.set_cable_rate("leaf1", "spine1", SLOWED)
            raised, even = one(nccl, cluster, RAISED), one(nccl, cluster, UNKNOWN)
        check(raised >= LEAST_RAISED, f"{nccl}: raised, it got {100 * raised:.0f} % of the port")
        check(even <= MOST_EVEN, f"{nccl}: not raised, it got {100 * even:.0f} % of the port: this shows nothing")
    return 0


if __name__ == "__main__":
    run_test(main)
