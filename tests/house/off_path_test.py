#!/usr/bin/env python3
"""Every function of planner/ is on the path of some shipped program, as tools/off_path.py sees it (not inline, nor called by name in its own file)."""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BIN"]).parent


def off_path(*without):
    done = subprocess.run([sys.executable, str(SOURCE / "tools" / "off_path.py"), str(BUILD), *without], capture_output=True, text=True, check=True)
    return done.stdout.splitlines(), done.stderr.strip()


def main():
    # Objects of programs that are no longer built would count as shipped.
    subprocess.run(["ninja", "-C", str(BUILD), "-t", "cleandead"], check=True, stdout=subprocess.DEVNULL)
    found, said = off_path()
    faults = [f"{name}: no shipped program reaches it; connect it or delete it" for name in found]
    # The tool sees what it should: without `weft`, nobody simulates a scenario; the controller still chooses paths.
    without_weft, _ = off_path("cli")
    if not any(name.endswith("::Simulate") for name in without_weft) or any("ChoosePaths" in name for name in without_weft):
        faults.append("tools/off_path.py without cli: expected Simulate to be off the path, and ChoosePaths on it")
    print("\n".join(faults) if faults else said)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
