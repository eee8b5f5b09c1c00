#!/usr/bin/env python3
"""cma_roce_tos of real RDMA devices (rdma_rxe): a wrong one is named by `weft qos verify`, mended by `weft qos apply` after its dry run
and put back by `weft qos revert`; what the packets of rdma_cm's queue pairs carry is read from captures, what is set from the kernel.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests/support"))
sys.path.insert(0, str(SOURCE / "tests/roce"))
from processes import SKIPPED, check, run_test, skip  # noqa: E402
from roce_test import packets, read  # noqa: E402

PROMISED_S = 10  # asserted with twice its value
MACHINE_SECONDS = 400


def dscp_of(share, name):
    """The DSCP of the data packets (not the connection manager's, which go to queue pair 1) of both directions."""
    seen = [p for p in packets(share / f"{name}.pcap") if p[6] != 1]
    check(len(seen) > 10, f"{name}: {len(seen)} packets captured: {read(share, name + '.client')} {read(share, name + '.tcpdump')}")
    found = {p[3] >> 2 for p in seen}
    print(f"{name}: {len(seen)} packets with DSCP {sorted(found)}, the kernel's settings {read(share, name + '.tos').strip()}")
    return found


def judge(share):
    wrong = read(share, "wrong.out")
    for device in ("rxe0", "rxe1"):
        check(f"cma_roce_tos -d {device} -p 1 -t 104" in wrong, f"no command for {device} in {wrong}")
    check(": roce-tos: 0 (DSCP 0), expected 104 (DSCP 26)" in wrong, wrong)
    check(dscp_of(share, "before") == {0}, "packets are marked before anything was set")

    dry = read(share, "dry.out")
    check(read(share, "dry.status").strip() == "0" and dry.count("roce-tos: 0 (DSCP 0) -> 104 (DSCP 26)") == 2,
          f"dry run: {dry} {read(share, 'dry.err')}")
    check(read(share, "dry.tos").split() == ["0", "0"], "a dry run has set something")

    check(read(share, "apply.status").strip() == "0", f"apply: {read(share, 'apply.out')} {read(share, 'apply.err')}")
    check(": roce-tos: " not in read(share, "good.out"), f"after apply: {read(share, 'good.out')}")
    check(dscp_of(share, "applied") == {26}, "packets do not carry what was applied")
    check(read(share, "applied.tos").split() == ["104", "104"], "the kernel has not what was applied")

    check("h1 rdma0: roce-tos: 40 (DSCP 10), expected 104 (DSCP 26)" in read(share, "other.out"),
          f"another's change: {read(share, 'other.out')}")
    check(read(share, "revert.status").strip() == "0", f"revert: {read(share, 'revert.out')} {read(share, 'revert.err')}")
    check(dscp_of(share, "reverted") == {0}, "packets do not carry what was there before")
    check(read(share, "reverted.tos").split() == ["0", "0"], "the kernel has not what was there before")
    for line in read(share, "named.seconds").splitlines():
        began, named = map(float, line.split())
        print(f"named after {named - began:.1f} s")
        check(named - began <= 2 * PROMISED_S, f"named after {named - began:.1f} s")


def main():
    with tempfile.TemporaryDirectory() as folder:
        share = pathlib.Path(folder)
        done = subprocess.run([str(SOURCE / "testbed/roce_machine"), "--timeout", str(MACHINE_SECONDS), "--share", str(share),
                               "--", "bash", str(SOURCE / "tests/qos/inside_roce.sh"), str(SOURCE / "testbed"),
                               os.environ["WEFT_BIN"]],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode == SKIPPED:
            skip("roce", done.stdout.strip())
        try:
            check(done.returncode == 0, f"the machine's command ended with {done.returncode}:\n{done.stdout}")
            judge(share)
        except Exception:
            print(read(share, "agent.log")[-3000:], read(share, "controller.log")[-2000:], sep="\n")
            raise


if __name__ == "__main__":
    run_test(main)
