#!/usr/bin/env python3
"""Fails when predictions of the published rows get worse than tests/validation/limits.csv says.

The limits are the errors reached, rounded up; tools/fidelity_report.py writes them together with docs/fidelity.md.
"""
import csv
import json
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
TABLES = SOURCE / "tests/validation"


def main():
    limits = list(csv.DictReader(open(TABLES / "limits.csv", newline="")))
    tables = sorted(p for folder in (TABLES, TABLES / "new") for p in folder.glob("*.csv") if p.name != "limits.csv")
    run = subprocess.run([os.environ["WEFT_BIN"] + "/weft", "validate", *map(str, tables), "--output", "json"],
                         capture_output=True, text=True, check=True)
    answer = json.loads(run.stdout)
    reached = {(entry["file"], entry["class"]): entry for entry in answer["by_file"]}
    reached[("all", "time")] = answer["summary"]
    failures = []
    for limit in limits:
        entry = reached.get((limit["file"], limit["class"]))
        if entry is None:
            failures.append(f'{limit["file"]} {limit["class"]}: no such rows any more')
            continue
        if entry["rows"] < int(limit["rows"]):
            failures.append(f'{limit["file"]} {limit["class"]}: {entry["rows"]} rows, expected {limit["rows"]}')
        for what in ("median", "p90"):
            if entry[what] > float(limit[what]):
                failures.append(f'{limit["file"]} {limit["class"]}: {what} {entry[what]:.4f}, expected {limit[what]} at most')
        for what, worse in (("kendall_tau", -1), ("regret", 1)):
            if limit[what] and worse * (entry[what] - float(limit[what])) > 0:
                failures.append(f'{limit["file"]} {limit["class"]}: {what} {entry[what]:.4f}, limit {limit[what]}')
    training = {t.name for t in tables if "measured_metric" in open(t).readline()}
    rows = sum(1 for entry in answer["rows"] + answer["skipped"] if entry["file"] in training)
    expected = sum(max(0, len(list(csv.reader(open(t, newline="")))) - 1) for t in tables if t.name in training)
    if rows != expected:
        failures.append(f"{rows} rows predicted or skipped with a reason, the tables have {expected}")
    for failure in failures:
        print(failure)
    print(f"{len(limits)} limits, {len(failures)} exceeded; {len(answer['rows'])} rows predicted")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
