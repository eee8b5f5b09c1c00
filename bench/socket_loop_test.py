#!/usr/bin/env python3
"""Neither process of socket_loop outlives the other, whichever dies first, wherever the other waits.

    socket_loop_test.py SOCKET_LOOP
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from processes import check, descendants, run_test, wait_until  # noqa: E402

PATIENCE_S = 30


def child_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(children[0]) if children else None


def run_and_kill(program, victim):
    """Kills what `victim` picks of (first, second) as soon as both are there; returns the first's status and stderr."""
    process = subprocess.Popen([program, "stream", "1000000", "8"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
    try:
        second = wait_until(lambda: child_of(process.pid), PATIENCE_S, "the second process")
        os.kill((process.pid, second)[victim], signal.SIGKILL)
        _, error = process.communicate(timeout=PATIENCE_S)  # the pipe ends when both are gone
        return process.returncode, error
    finally:
        for pid in [*descendants(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def main():
    status, error = run_and_kill(sys.argv[1], 1)
    check(status == 1, f"second process killed: exit status {status}, expected 1: {error}")
    check("the second process was killed" in error, f"second process killed: nothing says so: {error}")
    status, _ = run_and_kill(sys.argv[1], 0)
    check(status == -signal.SIGKILL, f"first process killed: exit status {status}")


if __name__ == "__main__":
    run_test(main)
