#!/usr/bin/env python3
"""Real verbs over a kernel's RoCEv2: boots one virtual machine, lets inside.sh run, and judges what it found.

Checked: every collective's numbers; that each queue pair left by the UDP source port that was asked for, data and
credits in their own traffic class, over IPv4 and IPv6; that an all-reduce whose cable was down for longer than its
queue pairs wait is finished and right; that flows whose hosts have another device go on there meanwhile, and come back.
"""
import ipaddress
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
from processes import SKIPPED, skip  # noqa: E402
COLLECTIVES = ("sendrecv", "allreduce", "allgather", "reducescatter", "broadcast", "alltoall")
MACHINE_SECONDS = 400

failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print("FAILED:", text)


def read(share, name):
    path = share / name
    return path.read_text(errors="replace") if path.exists() else ""


def run_machine(share):
    command = [str(SOURCE / "testbed/roce_machine"), "--timeout", str(MACHINE_SECONDS), "--share", str(share), "--",
               "bash", str(SOURCE / "tests/roce/inside.sh"), str(SOURCE / "testbed"),
               os.environ["WEFT_BIN"] + "/weft", os.environ["WEFT_LIB"] + "/libnccl-net-weft.so",
               os.environ["WEFT_BIN"] + "/roce_device_test"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)


def check_perf(share, name):
    """Rank 0's answer: all sizes measured, over RDMA, no element wrong."""
    log = read(share, f"{name}.0.log") + read(share, f"{name}.1.log")
    check(read(share, f"{name}.status").strip() == "0", f"{name}: status {read(share, name + '.status')!r}\n{log}")
    check("RoCE v2, GID" in log, f"{name}: no RDMA device in the log\n{log}")
    try:
        results = json.loads(read(share, f"{name}.0.json"))["results"]
    except (ValueError, KeyError) as error:
        check(False, f"{name}: no answer: {error}")
        return
    check(results and all(r["wrong"] == 0 for r in results), f"{name}: {results}")
    for r in results:
        print(f"{name:14} {r['bytes']:>9} B  {r['time_us_median']:>10.1f} us  wrong {r['wrong']}")


def packets(path):
    """(IP version, source, destination, traffic class, UDP source port, opcode, queue pair) of each RoCEv2 packet."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < 24 or struct.unpack_from("<I", data)[0] != 0xA1B2C3D4:
        return
    offset = 24
    while offset + 16 <= len(data):
        kept = struct.unpack_from("<I", data, offset + 8)[0]
        frame = data[offset + 16:offset + 16 + kept]
        offset += 16 + kept
        kind = struct.unpack_from(">H", frame, 12)[0] if len(frame) > 14 else 0
        if kind == 0x0800 and frame[23] == 17:
            header = 14 + (frame[14] & 15) * 4
            version, traffic_class, addresses = 4, frame[15], (frame[26:30], frame[30:34])
        elif kind == 0x86DD and frame[20] == 17:
            header = 54
            version, traffic_class = 6, (frame[14] & 15) << 4 | frame[15] >> 4
            addresses = (frame[22:38], frame[38:54])
        else:
            continue
        if len(frame) < header + 20:
            continue
        source_port, port = struct.unpack_from(">HH", frame, header)
        if port == 4791:
            yield (version, *(str(ipaddress.ip_address(a)) for a in addresses), traffic_class, source_port,
                   frame[header + 8], struct.unpack_from(">I", frame, header + 12)[0] & 0xFFFFFF)


FLOW = re.compile(r"flow [0-9a-f]+ to rank (\d+) over (\w+):1 connected: (\d+) queue pairs, UDP ports ([\d, ]+), "
                  r"credits from (\d+), traffic class (\d+), of credits (\d+)")


def check_wire(share, name, version, data_class, control_class):
    """The RDMA writes with payload (opcodes 6 to 11) of each flow left by exactly the ports that its log names."""
    seen = list(packets(share / f"{name}.pcap"))
    check(len(seen) > 100, f"{name}: {len(seen)} RoCE packets captured\n{read(share, name + '.tcpdump')}")
    check(all(p[0] == version for p in seen), f"{name}: an IP version other than {version}")
    classes = {p[3] & 0xFC for p in seen}
    check(classes == {data_class & 0xFC, control_class & 0xFC}, f"{name}: traffic classes on the wire {classes}")
    flows = 0
    for rank in (0, 1):
        for found in FLOW.finditer(read(share, f"{name}.{rank}.log")):
            peer, device, count, ports, credit_port, tclass, cclass = found.groups()
            flows += 1
            asked = {int(p) for p in ports.split(",")}
            check(len(asked) == int(count), f"{name}: {count} queue pairs share ports {asked}")
            mine = [p for p in seen if p[4] in asked]
            wrote = {p[4] for p in mine if 6 <= p[5] <= 11}
            check(wrote == asked, f"{name}: rank {rank} to {peer}: asked for UDP ports {asked}, used {wrote}")
            check({p[3] & 0xFC for p in mine} == {data_class & 0xFC}, f"{name}: data of rank {rank} in another class")
            check(len({p[6] for p in mine if 6 <= p[5] <= 11}) == len(asked), f"{name}: not one queue pair per port")
            check(int(tclass) == data_class and int(cclass) == control_class, f"{name}: log says {found.group(0)}")
    check(flows == 2, f"{name}: {flows} flows in the logs")
    # Credits are 64-byte writes of the receiving side: they and their acknowledgements have the control class.
    credits = [p for p in seen if p[3] & 0xFC == control_class & 0xFC and 6 <= p[5] <= 11]
    check(control_class == data_class or len(credits) > 0, f"{name}: no credit in class {control_class}")
    print(f"{name}: {len(seen)} packets, {len({p[4] for p in seen})} UDP source ports, classes {sorted(classes)}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        share = pathlib.Path(folder)
        done = run_machine(share)
        if done.returncode == SKIPPED:
            skip("roce", done.stdout.strip())
        check(done.returncode == 0, f"the machine's command ended with {done.returncode}:\n{done.stdout}")
        check(read(share, "device.status").strip() == "0", "roce_device_test:\n" + read(share, "device.log"))
        for name in COLLECTIVES:
            check_perf(share, name)
        check_perf(share, "wire4")
        check_wire(share, "wire4", 4, 104, 192)
        check_perf(share, "wire6")
        check_wire(share, "wire6", 6, 40, 40)
        check_perf(share, "link")
        log = read(share, "link.0.log") + read(share, "link.1.log")
        check("set up anew" in log, f"the cable that was down broke no queue pair:\n{log}")
        for line in log.splitlines():
            if "anew" in line or "port error" in line or "active" in line:
                print(line)
        check_perf(share, "failover")
        log = read(share, "failover.0.log") + read(share, "failover.1.log")
        steps = read(share, "failover.steps").split("\n")
        check(steps[:3] == ["home", "moved", "home again"], f"the flows' bytes were seen at: {steps}\n{log}")
        print("failover: bytes on", ", ".join(step for step in steps if step))
        for line in log.splitlines():
            if "moves from" in line:
                print(line)
    print("failed:" if failures else "passed", *failures[:1])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
