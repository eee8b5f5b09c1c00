#!/usr/bin/env python3
"""real-fabric leaves nothing in its folder for temporary files, whether a signal ends it or its experiment crashes.

    interrupted_test.py REAL_FABRIC

Skipped (77) where real-fabric itself skips.
"""

import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 30


def experiment_of(pid):
    """The child that runs the experiment, or None while there is none."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
        found = children.read().split()
    return int(found[0]) if found else None


def run_and_end(program, end, folder):
    """Starts `program` with its temporary files in `folder`, calls `end` with its process once its agents listen, and
    returns its exit status.
    """
    process = subprocess.Popen([program], env=os.environ | {"TMPDIR": folder}, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and not glob.glob(f"{folder}/weft-real-*/*"):
            if time.monotonic() > deadline:
                sys.exit(f"no file in the folder of the experiment after {PATIENCE_S} s")
            time.sleep(0.02)
        if process.poll() == 77:
            print("skipped: no fabric can be built here")
            sys.exit(77)
        end(process)
        return process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()


def main():
    program = sys.argv[1]
    cases = [
        ("SIGTERM", lambda process: process.send_signal(signal.SIGTERM), 128 + signal.SIGTERM),
        ("SIGINT", lambda process: process.send_signal(signal.SIGINT), 128 + signal.SIGINT),
        ("crash", lambda process: os.kill(experiment_of(process.pid), signal.SIGKILL), 1),
    ]
    for name, end, expected in cases:
        # One of its own, since another checkout's run may have folders beside ours.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            status = run_and_end(program, end, folder)
            left = os.listdir(folder)
        if status != expected:
            sys.exit(f"{name}: exit status {status}, expected {expected}")
        if left:
            sys.exit(f"{name}: left behind {left}")
        print(f"{name}: status {status}, nothing left behind")


if __name__ == "__main__":
    main()
