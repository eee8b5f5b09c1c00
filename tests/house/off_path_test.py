#!/usr/bin/env python3
"""No function of planner/ is off every shipped program's path but those of tests/house/off_path.txt, and those still are."""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BIN"]).parent


def main():
    done = subprocess.run([sys.executable, str(SOURCE / "tools" / "off_path.py"), str(BUILD)], capture_output=True, text=True, check=True)
    found = set(done.stdout.split("\n")) - {""}
    lines = (SOURCE / "tests" / "house" / "off_path.txt").read_text().split("\n")
    known = {line for line in lines if line and not line.startswith("#")}
    whole = {line.removesuffix(" *") for line in known if line.endswith(" *")}
    faults = [f"{name}: no shipped program reaches it; connect it or delete it" for name in sorted(found - known)
              if name.split(" ")[0] not in whole]
    files = {name.split(" ")[0] for name in found}
    faults += [f"{line}: of tests/house/off_path.txt, but it is reached or gone; take it off the list" for line in sorted(known)
               if line not in found and line.removesuffix(" *") not in files]
    faults += [f"{line}: of tests/house/off_path.txt, but it is reached or gone; take it off the list" for line in sorted(known)
               if not line.endswith(" *") and line not in found and line.split(" ")[0] in files]
    # The tool sees what it should: this is reached by nothing but tests, and that by all.
    if not any(name.startswith("planner/") for name in found) or any("ChoosePaths" in name for name in found):
        faults.append(f"tools/off_path.py found {len(found)} names, expected some, and ChoosePaths not among them")
    print("\n".join(faults))
    print(f"{len(found)} functions off the path, all of them on the list" if not faults else f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
