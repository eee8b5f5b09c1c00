#!/usr/bin/env python3
"""demo_runs.py keeps every run, failed ones too, and counts as its head says. In place of `weft` stands a program that
prints a report at once."""
import os
import stat
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "demo_runs.py")

# The first run answers with 2 and 4 % over the bound, and 12 % in one case of four; the second fails.
WEFT = '''#!{python}
import json, os, sys
assert sys.argv[1:] == ["demo", "--output", "json", "--draws", "1"], sys.argv
first = not os.path.exists({flag!r})
open({flag!r}, "w").close()
if not first:
    print("weft demo: no core left", file=sys.stderr)
    sys.exit(3)
def ratio(value, verdict):
    return {{"value": value, "low": value - 0.01, "high": value + 0.01, "blocks": 9, "verdict": verdict}}
def job(name, calm, fault, verdict):
    return {{"name": name, "weft_s": 1.0, "bound_s": 1.0, "weft_after_fault_s": 1.2, "bound_after_fault_s": 1.2,
            "ratio": {{"weft": ratio(calm, "within"), "weft_after_fault": ratio(fault, verdict)}}}}
print(json.dumps({{"jobs": [job("moe", 1.02, 1.04, "within"), job("pipeline", 1.02, 1.12, "fell short")]}}))
'''


def call(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as folder:
        weft, runs = os.path.join(folder, "weft"), os.path.join(folder, "runs.jsonl")
        with open(weft, "w", encoding="utf-8") as file:
            file.write(WEFT.format(python=sys.executable, flag=os.path.join(folder, "ran")))
        os.chmod(weft, os.stat(weft).st_mode | stat.S_IXUSR)
        call("run", weft, runs, "--runs", "2", "--disturb", "--", "--draws", "1")
        text = call("report", runs, "--against", runs)
    for piece in ("failed with 3: weft demo: no core left",
                  "2 runs, 1 of them failed; 3 of 8 cases (37.5 %) at most 10 % over the bound",
                  "verdicts: 1 fell short, 3 within",
                  "pipeline weft_after_fault: median +12.0 %",
                  "+12.0 % | +11.0 % to +13.0 % | fell short | +0.0 points |",
                  "4 of 4 ratios within 3 points of the quiet runs' median, the farthest 0.0 points"):
        assert piece in text, f"no {piece!r} in\n{text}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
