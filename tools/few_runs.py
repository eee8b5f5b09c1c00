#!/usr/bin/env python3
"""What three runs of a site say of its others: each source in turn is a site that nobody has seen.

usage: few_runs.py [--weft BIN] [--runs N] [--draws N] OUT.json

The constants are fitted without the source (tools/calibrate.py), `weft calibrate --runs` learns from N of its rows of time or memory, drawn
at random, and `weft validate` predicts the rest with them. Writes OUT: by kind and source the median errors of the rest before and
after, over all draws. tools/fidelity_report.py reads it.
"""
import argparse
import csv
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import calibrate

SEED = 20


def texts():
    """(file, line) -> the row of a table of training."""
    found = {}
    for table in calibrate.tables():
        with open(table, newline="") as file:
            reader = csv.DictReader(file)
            if "measured_metric" in reader.fieldnames:
                found.update({(table.name, line): row for line, row in enumerate(reader, 2)})
    return found


def write_rows(path, rows):
    with open(path, "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def errors_of(weft, table, constants):
    out = subprocess.run([weft, "validate", table, "--calibration", constants, "--output", "json"], capture_output=True, text=True, check=True)
    return [abs(r["predicted"] / r["measured"] - 1) for r in json.loads(out.stdout)["rows"]]


def learn(weft, folder, base, rows, runs, rng):
    """Errors of what is not drawn, before and after."""
    drawn = set(rng.sample(range(len(rows)), runs))
    write_rows(f"{folder}/runs.csv", [row for k, row in enumerate(rows) if k in drawn])
    write_rows(f"{folder}/rest.csv", [row for k, row in enumerate(rows) if k not in drawn])
    subprocess.run([weft, "calibrate", "--runs", f"{folder}/runs.csv", "--calibration", base, "--out", f"{folder}/learned.yaml"],
                   check=True, stderr=subprocess.DEVNULL)
    return [errors_of(weft, f"{folder}/rest.csv", constants) for constants in (base, f"{folder}/learned.yaml")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--weft", default="weft")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    model = calibrate.Model(options.weft, calibrate.read())
    fit = calibrate.Fit(model)
    names, places, _, _ = calibrate.leave_one_out(fit, model.start())
    found, answer, rng = texts(), [], random.Random(SEED)
    with tempfile.TemporaryDirectory() as folder:
        for name, place in zip(names, places):
            base = f"{folder}/base.yaml"
            pathlib.Path(base).write_text(calibrate.yaml_text(model.at(place)))
            for kind in ("time", "memory"):
                rows = [found[r["file"], r["line"]] for r, s, k, u in zip(fit.rows, fit.sources, fit.kinds, fit.used)
                        if (s, k) == (name, kind) and u]
                if len(rows) <= options.runs:
                    continue
                before, after = [], []
                for _ in range(options.draws):
                    was, now = learn(options.weft, folder, base, rows, options.runs, rng)
                    before, after = before + was, after + now
                answer.append({"kind": kind, "source": name, "rows": len(rows), "runs": options.runs, "draws": options.draws,
                               "before": calibrate.nearest(before, .5), "after": calibrate.nearest(after, .5)})
                print(f"{kind:<7} {name:<44} {len(rows):>4} rows: median {answer[-1]['before']:>6.1%}, after {options.runs} runs "
                      f"{answer[-1]['after']:>6.1%}", flush=True)
    if not answer:
        sys.exit("no source with enough rows")
    for kind in ("time", "memory"):
        own = [a for a in answer if a["kind"] == kind]
        print(f"{kind}: median of {len(own)} sources {calibrate.nearest([a['before'] for a in own], .5):.1%}, after "
              f"{calibrate.nearest([a['after'] for a in own], .5):.1%}; within 5 %: {sum(a['before'] <= .05 for a in own)}, after "
              f"{sum(a['after'] <= .05 for a in own)}")
    pathlib.Path(options.out).write_text(json.dumps(answer, indent=0) + "\n")


if __name__ == "__main__":
    main()
