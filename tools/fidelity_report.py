#!/usr/bin/env python3
"""Writes docs/fidelity.md, tests/validation/limits.csv and planner/parallelism/memory_errors.inc from one run of
`weft validate` over tests/validation.

usage: fidelity_report.py [--weft BIN] [--leave-one-out FILE]

FILE: the output of tools/calibrate.py --leave-one-out.
"""
import argparse
import collections
import csv
import json
import math
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests/validation"

TARGETS = {  # file -> half of calculon's median absolute error on the same rows, or a figure set beforehand
    "megatron_sc21_table1.csv": 0.072, "nemo_a100_launcher.csv": 0.122, "bloom_a100.csv": 0.158,
}


def percent(value):
    return "" if value is None else f"{100 * value:.1f} %"


def up(value, step):
    return math.ceil(value / step - 1e-9) * step


def nearest(errors, share):
    errors = sorted(errors)
    return errors[max(math.ceil(share * len(errors)), 1) - 1]


def group_lines(rows):
    def of(name, select):
        errors = [abs(r["error"]) for r in rows if select(r) and not r["calibration"]]
        if not errors:
            return None
        mean = sum(errors) / len(errors)
        return f"| {name} | {len(errors)} | {percent(nearest(errors, .5))} | {percent(nearest(errors, .9))} | {percent(mean)} |"
    schedule = lambda r: r["setting"].split()[-1]
    lines = [
        of("zero_bubble, 1F1B (target 8.2 %)", lambda r: r["file"] == "zero_bubble.csv" and r["class"] == "time" and schedule(r) == "1"),
        of("zero_bubble, interleaved (target 8.2 %)", lambda r: r["file"] == "zero_bubble.csv" and r["class"] == "time" and schedule(r) == "3"),
        of("megascale, Megatron rows (target 5 %)", lambda r: r["file"] == "megascale.csv" and "megatron-2023" in r["setting"]),
        of("korthikanti_time, iterations (target: mean 3 %)", lambda r: r["file"] == "korthikanti_time.csv" and r["metric"] == "iteration_time"),
        of("peak memory, all sources (target 7 %)", lambda r: r["metric"].startswith("peak_memory")),
        of("state and activation closed forms (target 1 %)", lambda r: r["file"] == "korthikanti_memory.csv"),
    ]
    return [line for line in lines if line]


def skipped_lines(skipped):
    """Neighbouring rows of one reason share a line."""
    runs = []
    for s in skipped:
        if runs and (runs[-1]["file"], runs[-1]["reason"], runs[-1]["last"] + 1) == (s["file"], s["reason"], s["row"]):
            runs[-1]["last"] = s["row"]
        else:
            runs.append({"file": s["file"], "reason": s["reason"], "first": s["row"], "last": s["row"]})
    return [f"| {r['file']}:{r['first']}{'' if r['first'] == r['last'] else ' to {}'.format(r['last'])} | {r['reason']} |" for r in runs]


def sweep_lines(answer):
    """The table of sweeps, worst first."""
    summary, sweeps = answer["summary"], answer["sweeps"]
    text = ["## Sweeps", "",
            f"The setting that is predicted best is the measured best, or within 3 % of it, in {summary['sweeps_within_3_percent']} of "
            f"{summary['sweeps']} sweeps.",
            "Tau of all pairs counts measurements that differ by less than their own repetitions do; over pairs measured more than 2 %",
            f"apart (of which {summary['sweeps_distinct']} sweeps have some) it is {summary['kendall_tau_distinct']:.2f} in the mean.", "",
            "| table | sweep (software, model, GPU, GPUs, batch, sequence, metric, precision) | settings | tau | tau, pairs > 2 % apart | "
            "regret | picked, best (rows) |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for s in sorted(sweeps, key=lambda s: (-s["regret"], s["kendall_tau"], s["file"], s["sweep"])):
        distinct = "" if s["kendall_tau_distinct"] is None else f"{s['kendall_tau_distinct']:.2f}"
        text.append(f"| {s['file']} | {s['sweep'].strip()} | {s['settings']} | {s['kendall_tau']:.2f} | {distinct} | {percent(s['regret'])} | "
                    f"{s['picked_line']}, {s['best_line']} |")
    return text + [""]


def write_memory_errors(rows):
    """Measured over predicted peak memory of the rows that no constant was fitted on; repetitions of a setting count once."""
    settings = collections.defaultdict(list)
    for r in rows:
        if r["metric"].startswith("peak_memory") and not r["calibration"]:
            settings[r["file"], r["model"], r["setting"]].append(r["measured"] / r["predicted"])
    errors = sorted(sum(ratios) / len(ratios) for ratios in settings.values())
    (ROOT / "planner/parallelism/memory_errors.inc").write_text(
        "// Written by tools/fidelity_report.py: measured over predicted peak memory of published runs that no constant was fitted\n"
        "// on, ascending; repetitions of a setting count once.\n" + "".join(f"{error:.4f},\n" for error in errors))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="weft")
    parser.add_argument("--leave-one-out")
    options = parser.parse_args()
    tables = sorted(p for p in TABLES.glob("*.csv") if p.name != "limits.csv")
    run = subprocess.run([options.weft, "validate", *map(str, tables), "--output", "json"], capture_output=True, text=True, check=True)
    answer = json.loads(run.stdout)
    rows, summary = answer["rows"], answer["summary"]
    calibration = [r for r in rows if r["calibration"]]
    write_memory_errors(rows)
    text = ["# Fidelity: predictions against published measurements", "",
            "Written by `tools/fidelity_report.py`; do not edit. The tables are in `tests/validation/` with their sources.",
            "A row is predicted or skipped with a reason. Rows that constants were fitted on (`calibration.yaml`) are in no figure",
            "below but their own table. Errors are |predicted / measured - 1|; percentiles by nearest rank.", ""]
    text += ["## All rows that state tp, pp, dp, micro-batch, global batch, sequence, layers and hidden width", "",
             "| | reached | target |", "| --- | --- | --- |",
             f"| rows | {summary['rows']} (and {sum(r['complete'] for r in calibration)} used for calibration) | |",
             f"| median | {percent(summary['median'])} | 8 % |", f"| 90th percentile | {percent(summary['p90'])} | 20 % |",
             f"| mean | {percent(summary['mape'])} | |", f"| worst | {percent(summary['worst'])} | |",
             f"| Kendall's tau, mean over {summary['sweeps']} sweeps | {summary['kendall_tau']:.2f} | 0.85 |",
             f"| regret, mean over sweeps | {percent(summary['regret'])} | 3 % |",
             f"| sweeps whose pick is within 3 % of the measured best | {summary['sweeps_within_3_percent']} of {summary['sweeps']} | all |", ""]
    text += ["A sweep is a set of settings of one model on the same number of GPUs with the same batch, sequence, precision and software;",
             "repetitions of a setting count once. Two settings suffice.", ""]
    text += sweep_lines(answer)
    text += ["## By table", "", "| table | class | rows | median | 90th percentile | worst | tau | regret | target (median) |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    limits = [["file", "class", "rows", "median", "p90", "kendall_tau", "regret"]]
    limits.append(["all", "time", summary["rows"], f"{up(summary['median'], .005):.3f}", f"{up(summary['p90'], .005):.3f}",
                   f"{math.floor(summary['kendall_tau'] * 50) / 50:.2f}", f"{up(summary['regret'], .005):.3f}"])
    for entry in answer["by_file"]:
        tau = "" if entry["kendall_tau"] is None else f"{entry['kendall_tau']:.2f}"
        text.append(f"| {entry['file']} | {entry['class']} | {entry['rows']} | {percent(entry['median'])} | {percent(entry['p90'])} | "
                    f"{percent(entry['worst'])} | {tau} | {percent(entry['regret'])} | {percent(TARGETS.get(entry['file']) if entry['class'] == 'time' else None)} |")
        limits.append([entry["file"], entry["class"], entry["rows"], f"{up(entry['median'], .005):.3f}", f"{up(entry['p90'], .005):.3f}", "", ""])
    text += ["", "| part of a table | rows | median | 90th percentile | mean |", "| --- | --- | --- | --- | --- |", *group_lines(rows), ""]
    fits = [r for r in rows if r["class"] == "fits"]
    # A run whose memory was measured, or whose recomputation is stated, did fit as the row says it.
    runs = [r for r in rows if r["class"] == "time" and r["metric"] not in ("layer_forward_time", "layer_backward_time")]
    infeasible = [r for r in runs if not r["feasible"]]
    text += ["## Feasibility", "", "Asked as `weft plan` asks it: the predicted memory of the process (fragmentation, context and communicators included)",
             "times the 95 % quantile of how far such predictions were off has to fit the device (`--risk 0.05`).", ""]
    text += [f"- out of memory was reported: {r['file']}:{r['line']} {r['model']}, called {'feasible' if r['feasible'] else 'infeasible'}"
             for r in fits if r["measured"] == 0]
    share = 1 - len(infeasible) / max(1, len(runs))
    text += ["", f"Of {len(runs)} measured runs {percent(share)} are called feasible (target 85 %).", "",
             "| table | runs | called feasible |", "| --- | --- | --- |"]
    for file in sorted({r["file"] for r in runs}):
        own = [r for r in runs if r["file"] == file]
        text.append(f"| {file} | {len(own)} | {sum(r['feasible'] for r in own)} |")
    text += ["", "## Worst rows", "", "| row | model | measured s | predicted s | error |", "| --- | --- | --- | --- | --- |"]
    worst = sorted((r for r in rows if r["class"] == "time" and not r["calibration"]), key=lambda r: -abs(r["error"]))[:20]
    text += [f"| {r['file']}:{r['line']} | {r['model']} | {r['measured']:.4g} | {r['predicted']:.4g} | {100 * r['error']:+.0f} % |" for r in worst]
    text += ["", "## Defaults for what rows do not say", "", "| default | rows |", "| --- | --- |"]
    counts = collections.Counter(re.sub(r"=\d+:", ":", d) for r in rows for d in r["defaults"])
    text += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
    text += ["", "## Constants", ""]
    constants = re.findall(r"- \{name: (\S+), value: (\S+), least: (\S+), most: (\S+), fitted: (\w+), source: \"(.*)\"\}",
                           (ROOT / "planner/parallelism/calibration.yaml").read_text())
    fitted = [c for c in constants if c[4] == "true"]
    text += [f"{len(fitted)} fitted constants (at most 60), {len(constants) - len(fitted)} from documents; per GPU family, link, precision and",
             "software stack, never per model or row. `tools/calibrate.py --fit` fits them on the rows of the next table.", "",
             "| constant | value | range | from |", "| --- | --- | --- | --- |"]
    text += [f"| {n} | {v} | {a} to {b} | {'fitted: ' if f == 'true' else ''}{s} |" for n, v, a, b, f, s in constants]
    text += ["", f"## Calibration rows ({len(calibration)})", "", "| row | model | metric | error after the fit |", "| --- | --- | --- | --- |"]
    text += [f"| {r['file']}:{r['line']} | {r['model']} | {r['metric']} | {100 * r['error']:+.1f} % |" for r in calibration]
    if options.leave_one_out:
        text += ["", "## Leave one table out", "", "Constants fitted without a table's rows, error on that table (rows, median, 90th percentile). A stack's own",
                 "constants then keep their starting values.", "", "```", pathlib.Path(options.leave_one_out).read_text().rstrip(), "```"]
    text += ["", f"## Rows not predicted ({len(answer['skipped'])})", "", "| row | reason |", "| --- | --- |"]
    text += skipped_lines(answer["skipped"])
    text += ["", f"Machine: {platform.machine()}; the figures do not depend on it."]
    (ROOT / "docs/fidelity.md").write_text("\n".join(text) + "\n")
    with open(TABLES / "limits.csv", "w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows(limits)


if __name__ == "__main__":
    main()
