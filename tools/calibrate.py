#!/usr/bin/env python3
"""Fits the cost model's constants, and says how far its predictions are off on sources that no constant was fitted on.

usage: calibrate.py [--weft BIN] [--fit] [--leave-one-out FILE] [--steps N]

Reads planner/parallelism/calibration.yaml (constants with their physical ranges) and the tables of tests/validation/ and
tests/validation/new/. A row belongs to a source: whoever measured it, whatever tables they wrote; collectives to a cluster.

--fit moves the constants marked `fitted` to lessen the weighted logarithms of predicted over measured, by Gauss-Newton steps
under a loss that grows no more than linearly (SciPy), and writes what is compiled in:
  planner/parallelism/calibration.yaml, planner/parallelism/calibration_defaults.inc
A source counts as at most 12 rows of a kind. Every constant is drawn a little to the middle of its range, so that what the rows
leave open stays off its bounds.
--leave-one-out fits once without each source in turn, prints errors by source (left out beside fitted), the constants with
the intervals that these fits give (jackknife over sources) and how much of each the rows say, and writes FILE (JSON): every
row's measured, fitted and left-out prediction. tools/fidelity_report.py reads it.
Without either the files are only written anew.
"""
import argparse
import csv
import json
import math
import pathlib
import re
import subprocess
import tempfile

import numpy
import scipy.optimize

ROOT = pathlib.Path(__file__).resolve().parent.parent
YAML = ROOT / "planner/parallelism/calibration.yaml"
FOLDERS = (ROOT / "tests/validation", ROOT / "tests/validation/new")
MOST_FITTED = 30
MIXTURES = ("Qwen3-30B", "Qwen3-235B", "DeepSeek", "Mixtral", "GPT-OSS", "Grok", "Llama-4", "Kimi")
MOST_ROWS = 12     # that a source counts as
SCALE = 0.1        # where the loss turns from square to linear
PRIOR = 1.5        # standard deviation of a constant's place in its range, as a logit
STEP = 0.08        # of the finite differences, as a logit

CONSTANT = re.compile(r'- \{name: (\S+), value: (\S+), least: (\S+), most: (\S+), fitted: (\w+), source: "(.*)"\}')


def tables():
    """Never deeper: what is held out is not reached."""
    return sorted(p for folder in FOLDERS for p in folder.glob("*.csv") if p.name != "limits.csv")


def source_of(file, text):
    """Whoever measured: a table can hold several, several tables one; of collectives the cluster."""
    if file in ("collectives.csv", "collectives_clouds.csv"):
        for cluster in ("Polaris", "jacobkahn"):
            if cluster.lower() in text.lower():
                return cluster
        return re.sub(r" ?\(.*| README.*| results_.*| docs/.*", "", text)
    if text.startswith("mlcommons/training_results"):
        return "MLPerf Training"
    return re.split(r"[ ,(]", text)[0]


def read():
    constants = []
    for line in YAML.read_text().splitlines():
        if match := CONSTANT.search(line):
            name, value, least, most, fitted, source = match.groups()
            constants.append({"name": name, "value": float(value), "least": float(least), "most": float(most),
                              "fitted": fitted == "true", "source": source})
    return constants


def yaml_text(constants):
    lines = ["# Constants of the cost model. Written by tools/calibrate.py; ranges and sources are edited here by hand.",
             "version: 1", "constants:"]
    lines += [f'  - {{name: {c["name"]}, value: {c["value"]:.6g}, least: {c["least"]:g}, most: {c["most"]:g}, '
              f'fitted: {"true" if c["fitted"] else "false"}, source: "{c["source"]}"}}' for c in constants]
    return "\n".join(lines) + "\n"


def write(constants):
    YAML.write_text(yaml_text(constants))
    with open(ROOT / "planner/parallelism/calibration_defaults.inc", "w") as out:
        out.write("// Written by tools/calibrate.py from planner/parallelism/calibration.yaml.\n")
        for c in constants:
            out.write(f'CalibrationConstant{{"{c["name"]}", {c["value"]:.6g}, {c["least"]:g}, {c["most"]:g}, '
                      f'{"true" if c["fitted"] else "false"},\n                    "{c["source"]}"}},\n')


def notes():
    """(file, line) -> what the table says beside the columns."""
    found = {}
    for table in tables():
        with open(table, newline="") as file:
            for line, row in enumerate(csv.DictReader(file), 2):
                found[table.name, line] = row.get("notes") or ""
    return found


def kind_of(row):
    """What is fitted and reported together; "" of what no error is taken of."""
    if row["class"] in ("time", "memory"):
        return row["class"]
    if row["class"].startswith("collective"):
        return "collectives" if row["bytes"] >= 1 << 20 else "small collectives"
    return ""


class Model:
    """`weft validate` at many places of the constants' ranges at once."""

    def __init__(self, weft, constants):
        self.weft, self.constants = weft, constants
        self.fitted = [i for i, c in enumerate(constants) if c["fitted"]]
        self.evaluations = 0

    def start(self):
        place = []
        for i in self.fitted:
            c = self.constants[i]
            share = min(0.98, max(0.02, (c["value"] - c["least"]) / (c["most"] - c["least"])))
            place.append(math.log(share / (1 - share)))
        return numpy.array(place)

    def at(self, place):
        constants = [dict(c) for c in self.constants]
        for i, u in zip(self.fitted, place):
            c = constants[i]
            c["value"] = float(f'{c["least"] + (c["most"] - c["least"]) / (1 + math.exp(-u)):.6g}')
        return constants

    def predict(self, places):
        """[place, row] of predictions, and the rows. One place alone is asked for twice: with several the answer is bare."""
        self.evaluations += len(places)
        if len(places) == 1:
            predicted, rows = self.predict([places[0], places[0]])
            return predicted[:1], rows
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for n, place in enumerate(places):
                files.append(f"{folder}/{n}.yaml")
                pathlib.Path(files[-1]).write_text(yaml_text(self.at(place)))
            out = subprocess.run([self.weft, "validate", *map(str, tables()), *(a for f in files for a in ("--calibration", f)),
                                  "--output", "json"],
                                 capture_output=True, text=True, check=True).stdout
        answer = json.loads(out)
        return numpy.array(answer["predicted"], dtype=float), answer["rows"]


class Fit:
    """Weighted logarithms of predicted over measured, and the pull of the ranges' middles."""

    def __init__(self, model):
        self.model = model
        _, rows = model.predict([model.start()])
        self.rows = rows
        self.kinds = [kind_of(r) for r in rows]
        self.sources = [source_of(r["file"], r["source"]) for r in rows]
        self.used = numpy.array([bool(k) and r["measured"] > 0 and math.isfinite(r["predicted"]) and r["predicted"] > 0
                                 for k, r in zip(self.kinds, rows)])
        self.measured = numpy.array([r["measured"] for r in rows], dtype=float)
        groups = list(zip(self.sources, self.kinds))
        size = {g: sum(u and h == g for h, u in zip(groups, self.used)) for g in set(groups)}
        self.weight = numpy.array([math.sqrt(min(size[g], MOST_ROWS) / size[g]) if u else 0 for g, u in zip(groups, self.used)])
        self.prior = numpy.eye(len(model.fitted)) / PRIOR * SCALE

    def logs(self, predicted):
        ratio = numpy.where(self.used, predicted, 1) / numpy.where(self.used, self.measured, 1)
        return numpy.clip(numpy.log(ratio), -3, 3)

    def jacobian(self, place):
        moved = [place] + [place + STEP * e for e in numpy.eye(len(place))]
        logs = numpy.array([self.logs(p) for p in self.model.predict(moved)[0]])
        return logs[0], ((logs[1:] - logs[0]) / STEP).T

    def solve(self, place, logs, slope, left_out=""):
        """Where the rows, taken as linear round `place`, are best met."""
        weight = self.weight * numpy.array([s != left_out for s in self.sources])
        pull = self.prior @ place

        def residuals(step):
            return numpy.concatenate([weight * (logs + slope @ step), self.prior @ step + pull])

        jacobian = numpy.concatenate([weight[:, None] * slope, self.prior])
        found = scipy.optimize.least_squares(residuals, numpy.zeros(len(place)), jac=lambda _: jacobian, loss="soft_l1", f_scale=SCALE,
                                             bounds=(-0.8, 0.8))
        return place + found.x

    def score(self, place):
        logs = self.logs(self.model.predict([place])[0][0])
        z = numpy.concatenate([self.weight * logs, self.prior @ place]) / SCALE
        return float(numpy.sum(2 * (numpy.sqrt(1 + z * z) - 1)))

    def run(self, steps):
        place, best = self.model.start(), None
        for _ in range(steps):
            logs, slope = self.jacobian(place)
            aim = self.solve(place, logs, slope)
            best = self.score(place) if best is None else best
            for share in (1, 0.5, 0.25, 0.1):
                score = self.score(place + share * (aim - place))
                if score < best:
                    break
            else:
                break
            gained, best, place = best - score, score, place + share * (aim - place)
            print(f"score {score:.2f}", flush=True)
            if gained < 1e-3 * score:
                break
        return place


def nearest(errors, share):
    errors = sorted(errors)
    return errors[max(math.ceil(share * len(errors) - 1e-9), 1) - 1] if errors else float("nan")


def summary(errors):
    size = [abs(e) for e in errors]
    return {"rows": len(errors), "median": nearest(size, .5), "p90": nearest(size, .9), "signed": nearest(errors, .5)}


def leave_one_out(fit, place):
    logs, slope = fit.jacobian(place)
    base = fit.solve(place, logs, slope)
    names = sorted({s for s, u in zip(fit.sources, fit.used) if u})
    # What a source moves, by the same linear step with it and without it.
    places = [place + fit.solve(place, logs, slope, left_out=name) - base for name in names]
    fitted, _ = fit.model.predict([place])
    predicted, _ = fit.model.predict(places)
    return names, places, fitted[0], predicted


def print_errors(fit, names, fitted, left_out):
    answer = []
    mixtures = [r["model"].startswith(MIXTURES) for r in fit.rows]
    for kind in ("time", "time of mixtures", "memory", "collectives", "small collectives"):
        print(f"\n{kind:<44} rows   left out: median     p90  signed   fitted: median     p90  signed")
        pooled = [[], []]
        for name in [*names, "all"]:
            chosen = [i for i in range(len(fit.rows)) if fit.used[i] and name in (fit.sources[i], "all") and
                      (fit.kinds[i] == "time" and mixtures[i] if kind == "time of mixtures" else fit.kinds[i] == kind)]
            if not chosen:
                continue
            out = summary([left_out[i] / fit.measured[i] - 1 for i in chosen])
            own = summary([fitted[i] / fit.measured[i] - 1 for i in chosen])
            answer.append({"kind": kind, "source": name, "left_out": out, "fitted": own})
            print(f"{name:<44} {out['rows']:>4}   {out['median']:>16.1%} {out['p90']:>7.1%} {out['signed']:>+7.1%} "
                  f"  {own['median']:>13.1%} {own['p90']:>7.1%} {own['signed']:>+7.1%}")
    return answer


def print_constants(fit, place, places):
    """Jackknife over sources; `said`: the share of a constant's variance under the ranges' pull alone that the rows take away."""
    model, n = fit.model, len(places)
    _, slope = fit.jacobian(place)
    information = (fit.weight[:, None] * slope).T @ (fit.weight[:, None] * slope)
    posterior = numpy.linalg.inv(information + fit.prior.T @ fit.prior)
    spread = numpy.sqrt((n - 1) / n * numpy.sum((numpy.array(places) - numpy.mean(places, axis=0)) ** 2, axis=0))
    answer = []
    print(f"\n{'constant':<36} {'value':>11} {'95 % interval over sources':>28} {'said':>6}")
    for k, i in enumerate(model.fitted):
        values = [model.at(place + d * numpy.eye(len(place))[k])[i]["value"] for d in (0, -1.96 * spread[k], 1.96 * spread[k])]
        said = 1 - posterior[k, k] * (SCALE / PRIOR) ** 2
        answer.append({"name": model.constants[i]["name"], "value": values[0], "low": values[1], "high": values[2], "said": said})
        print(f"{model.constants[i]['name']:<36} {values[0]:>11.4g} {values[1]:>13.4g} to {values[2]:>11.4g} {said:>6.0%}")
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="weft")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--leave-one-out", metavar="FILE")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    constants = read()
    count = sum(c["fitted"] for c in constants)
    if count > MOST_FITTED:
        raise SystemExit(f"{count} fitted constants, expected at most {MOST_FITTED}")
    if options.fit or options.leave_one_out:
        model = Model(options.weft, constants)
        fit = Fit(model)
        place = model.start()
    if options.fit:
        place = fit.run(options.steps)
        constants = model.at(place)
        model.constants = constants
    write(constants)
    if options.leave_one_out:
        names, places, fitted, predicted = leave_one_out(fit, place)
        left_out = numpy.array([predicted[names.index(s), i] if u else fitted[i] for i, (s, u) in enumerate(zip(fit.sources, fit.used))])
        said = notes()
        errors = print_errors(fit, names, fitted, left_out)
        rows = [{"file": r["file"], "line": r["line"], "source": s, "kind": k, "model": r["model"], "measured": r["measured"],
                 "metric": r["metric"], "fitted": fitted[i], "left_out": left_out[i], "unclear": "not stated" in said[r["file"], r["line"]]}
                for i, (r, s, k) in enumerate(zip(fit.rows, fit.sources, fit.kinds)) if fit.used[i]]
        answer = {"errors": errors, "constants": print_constants(fit, place, places), "rows": rows}
        pathlib.Path(options.leave_one_out).write_text(json.dumps(answer, indent=0) + "\n")
        print(f"\n{count} fitted constants, {len(rows)} rows, {len(names)} sources, {model.evaluations} evaluations")


if __name__ == "__main__":
    main()
