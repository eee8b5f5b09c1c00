#!/usr/bin/env python3
"""Fits the cost model's constants to a few published rows and writes them where they are compiled in.

usage: calibrate.py [--weft BIN] [--fit] [--leave-one-out] [--rounds N]

Reads planner/parallelism/calibration.yaml: constants with their physical ranges, and the rows to fit on. With --fit it
moves the constants marked `fitted` one at a time (a coordinate search in steps that halve) to lessen the mean absolute
logarithm of predicted over measured on those rows, plus a small pull towards the start of the range's middle for what the
rows leave open. Without it the files are only written anew:
  planner/parallelism/calibration.yaml, planner/parallelism/calibration_defaults.inc, formats/calibration_rows.inc
--leave-one-out fits without each table's rows in turn and reports the error on that table: constants that only its rows
determine go back to the general ones, the others that move its predictions are fitted anew from where they are.
"""
import argparse
import json
import math
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
YAML = ROOT / "planner/parallelism/calibration.yaml"
TABLES = sorted(p for p in (ROOT / "tests/validation").glob("*.csv") if p.name != "limits.csv")

CONSTANT = re.compile(r'- \{name: (\S+), value: (\S+), least: (\S+), most: (\S+), fitted: (\w+), source: "(.*)"\}')
ROW = re.compile(r"- \{file: (\S+), line: (\d+), value: (\S+)\}")


def read():
    constants, rows = [], []
    for line in YAML.read_text().splitlines():
        if match := CONSTANT.search(line):
            name, value, least, most, fitted, source = match.groups()
            constants.append({"name": name, "value": float(value), "least": float(least), "most": float(most),
                              "fitted": fitted == "true", "source": source})
        elif match := ROW.search(line):
            rows.append((match[1], int(match[2]), float(match[3])))
    return constants, rows


def yaml_text(constants, rows):
    lines = ["# Constants of the cost model. Written by tools/calibrate.py; ranges, sources and rows are edited here by hand.",
             "version: 1", "constants:"]
    for c in constants:
        lines.append(f'  - {{name: {c["name"]}, value: {c["value"]:.6g}, least: {c["least"]:g}, most: {c["most"]:g}, '
                     f'fitted: {"true" if c["fitted"] else "false"}, source: "{c["source"]}"}}')
    lines.append("rows:")
    lines += [f"  - {{file: {file}, line: {line}, value: {value:g}}}" for file, line, value in rows]
    return "\n".join(lines) + "\n"


def write(constants, rows):
    YAML.write_text(yaml_text(constants, rows))
    note = "// Written by tools/calibrate.py from planner/parallelism/calibration.yaml.\n"
    with open(ROOT / "planner/parallelism/calibration_defaults.inc", "w") as out:
        out.write(note)
        for c in constants:
            out.write(f'CalibrationConstant{{"{c["name"]}", {c["value"]:.6g}, {c["least"]:g}, {c["most"]:g}, '
                      f'{"true" if c["fitted"] else "false"},\n                    "{c["source"]}"}},\n')
    with open(ROOT / "formats/calibration_rows.inc", "w") as out:
        out.write(note)
        for file, line, value in rows:
            out.write(f'CalibrationRow{{"{file}", {line}, {value:g}}},\n')


class Model:
    def __init__(self, weft):
        self.weft = weft
        self.file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)

    def predict(self, constants):
        """{(file, line): (measured, predicted, class, complete)}"""
        pathlib.Path(self.file.name).write_text(yaml_text(constants, []))
        out = subprocess.run([self.weft, "validate", *map(str, TABLES), "--calibration", self.file.name, "--output", "json"],
                             capture_output=True, text=True, check=True).stdout
        return {(r["file"], r["line"]): (r["measured"], r["predicted"], r["class"], r["complete"])
                for r in json.loads(out)["rows"]}


def loss(predictions, rows):
    total, count = 0.0, 0
    for file, line in rows:
        measured, predicted, kind, _ = predictions.get((file, line), (0, 0, "", False))
        if kind not in ("time", "memory") or measured <= 0 or predicted <= 0:
            continue
        error = abs(math.log(predicted / measured))
        total += error + 2 * error * error
        count += 1
    return total / max(count, 1)


def pull(constants, start):
    return sum(0.002 * abs(c["value"] - s) / (c["most"] - c["least"]) for c, s in zip(constants, start) if c["fitted"])


def fit(model, constants, rows, rounds, share=0.16):
    constants = [dict(c) for c in constants]
    start = [c["value"] for c in constants]
    score = lambda: loss(model.predict(constants), rows) + pull(constants, start)
    best = score()
    for _ in range(rounds):
        before = best
        for c in constants:
            if not c["fitted"]:
                continue
            for sign in (1, -1):
                while True:
                    old = c["value"]
                    step = share * (c["most"] - c["least"]) if c["least"] <= 0 and old < share * (c["most"] - c["least"]) else share * max(old, 0.05 * c["most"])
                    c["value"] = min(c["most"], max(c["least"], old + sign * step))
                    if c["value"] == old:
                        break
                    now = score()
                    if now < best - 1e-7:
                        best = now
                        continue
                    c["value"] = old
                    break
        if before - best < 2e-4:
            share /= 2
            if share < 0.004:
                break
    return constants, best


def percentile(errors, share):
    errors = sorted(errors)
    return errors[max(math.ceil(share * len(errors)), 1) - 1] if errors else float("nan")


def parent(constants, name):
    """The constant that stands in for `name` when nobody measured it: stack.gemm for stack.x.h100.gemm."""
    known = {c["name"]: c for c in constants}
    *path, last = name.split(".")
    while len(path) > 1:
        path = path[:-1]
        if found := known.get(".".join(path + [last])):
            return found["value"]
    return None


def influences(model, constants):
    """name -> the tables whose predictions it moves."""
    base = model.predict(constants)
    moved = {}
    for c in constants:
        if not c["fitted"]:
            continue
        old, c["value"] = c["value"], min(c["most"], c["value"] * 1.1) if c["value"] < c["most"] else c["value"] * 0.9
        moved[c["name"]] = {file for (file, line), p in model.predict(constants).items() if p[1] != base[(file, line)][1]}
        c["value"] = old
    return moved


def leave_one_out(model, constants, rows, rounds):
    """A constant that only the table's own rows determine goes back to what its parent says; the others are fitted anew."""
    moved = influences(model, constants)
    pooled, used = [], {(f, n) for f, n, _ in rows}
    for table in TABLES:
        kept = [(f, n) for f, n, _ in rows if f != table.name]
        fitted = constants
        if len(kept) < len(rows):
            fitted = [dict(c) for c in constants]
            for c in fitted:
                calibrating = {f for f, _ in kept} & moved.get(c["name"], set())
                if c["fitted"] and not calibrating and (general := parent(constants, c["name"])) is not None:
                    c["value"] = general
                c["fitted"] = c["fitted"] and bool(calibrating) and table.name in moved[c["name"]]
            fitted, _ = fit(model, fitted, kept, rounds, share=0.04)
        errors = [abs(p / m - 1) for (f, n), (m, p, kind, complete) in model.predict(fitted).items()
                  if f == table.name and kind == "time" and complete and (f, n) not in used]
        if errors:
            pooled += errors
            print(f"{table.name:<28} {len(errors):>4} {percentile(errors, .5):>7.1%} {percentile(errors, .9):>7.1%}", flush=True)
    print(f"{'all':<28} {len(pooled):>4} {percentile(pooled, .5):>7.1%} {percentile(pooled, .9):>7.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="weft")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--leave-one-out", action="store_true")
    parser.add_argument("--rounds", type=int, default=14)
    options = parser.parse_args()
    constants, rows = read()
    if sum(c["fitted"] for c in constants) > 60:
        raise SystemExit("more than 60 fitted constants")
    model = Model(options.weft)
    if options.leave_one_out:
        leave_one_out(model, constants, rows, options.rounds)
        return
    if options.fit:
        constants, score = fit(model, constants, [(f, n) for f, n, _ in rows], options.rounds)
        print(f"{sum(c['fitted'] for c in constants)} constants on {len(rows)} rows: score {score:.4f}")
    write(constants, rows)


if __name__ == "__main__":
    main()
