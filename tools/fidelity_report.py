#!/usr/bin/env python3
"""Writes docs/fidelity.md, tests/validation/limits.csv and the errors that intervals and risks are made of
(planner/parallelism/*_errors.inc) from `weft validate` and what tools/calibrate.py --leave-one-out and tools/few_runs.py left.

usage: fidelity_report.py --leave-one-out FILE --few-runs FILE [--weft BIN]
       fidelity_report.py --leave-one-out FILE --coverage

--coverage writes nothing: it makes intervals from one half of the sources and checks them on the other, over many halves.
"""
import argparse
import collections
import csv
import json
import math
import pathlib
import platform
import random
import re
import subprocess

from calibrate import MIXTURES

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = (ROOT / "tests/validation", ROOT / "tests/validation/new")
KINDS = ("time", "time of mixtures", "memory", "collectives", "small collectives")
MOST_ROWS = 12     # that a source counts as
LEVELS = 200       # quantiles that are compiled in
HALVES = 200
TARGETS = {"time": (.08, .20), "time of mixtures": (.12, None), "memory": (.08, .20), "collectives": (.12, .35), "small collectives": (.25, None)}


# What is known of the sources that are far off.
CAUSES = """### Causes

- Nanotron: the source's own repetitions of one setting lie apart by a factor of 4.7 (8.86B on 16 GPUs, tp=8, dp=2: 19.0 and 88.9 s), and
  neighbouring settings by up to 50. Its launch script loads no network plugin for EFA: some of the runs are no faster than sockets. A
  model of a healthy system is not to reproduce them. Its memory figures do not say whether they are allocated or reserved.
- InternEvo's memory: the table says neither the sequence length nor what was measured.
- Megatron-DeepSpeed's long sequences: the table does not say of which model and batch it is; those of the shipped script are taken.
- DeepSeek-V3 in its own paper (arXiv 2412.19437): its pipeline (DualPipe) and its overlap of experts are not in this stack's table of facts.
- dgxc's DeepSeek-V3 on GB200: four times as slow per sequence as later releases in fp8; recomputation is not stated.
- MoE-ModelZoo: routing that is not forced to balance takes 9 to 25 % longer than forced in its own pairs of runs; imbalance is not modelled.
- MoE-ModelZoo's one run of ZeRO-3 (Qwen3-235B, 256 GPUs) is 55 % too slow since experts are gathered over the ranks that have the same
  ones, as they are, and not over all replicas (26 % before, by 8 GPUs' NICs for what one GPU gathers). The run hides nearly all of it.
- BLOOM: too fast by 12 %, unexplained; the 32B row of Megatron-LM's H100 table is too slow by 70 %, unexplained.
- issue 290 of nccl-tests reports a third of the line's rate; one GPU with four NICs (issue 232) reaches more of its slot than is priced.
- Polaris' all-gathers over 256 and more nodes: 80 us and more a step where the model has 40; the 540-node runs slow down further.
""".splitlines() + [""]


def percent(value):
    return "" if value is None else f"{100 * value:.1f} %"


def up(value, step):
    return math.ceil(value / step - 1e-9) * step


def nearest(values, share):
    values = sorted(values)
    return values[max(math.ceil(share * len(values) - 1e-9), 1) - 1]


def interval_kind(row):
    """Of memory what the allocator or the driver measured, where the source says of which setting and which of the two."""
    if row["kind"] == "memory" and (row["unclear"] or not row["metric"].startswith("peak_memory")):
        return ""
    return "mixtures" if row["kind"] == "time" and row["model"].startswith(MIXTURES) else row["kind"]


def weighted(rows):
    """[(measured over predicted, weight)], ascending: a source counts as at most MOST_ROWS rows."""
    size = collections.Counter(r["source"] for r in rows)
    return sorted((r["measured"] / r["left_out"], min(size[r["source"]], MOST_ROWS) / size[r["source"]]) for r in rows)


def quantile(pairs, share):
    target, below = share * sum(w for _, w in pairs), 0
    for value, weight in pairs:
        below += weight
        if below >= target - 1e-9:
            return value
    return pairs[-1][0]


def write_errors(rows):
    names = {"time": "iteration", "mixtures": "mixture", "memory": "memory", "collectives": "collective",
             "small collectives": "small_collective"}
    for kind, name in names.items():
        pairs = weighted([r for r in rows if interval_kind(r) == kind])
        values = [quantile(pairs, (i + .5) / LEVELS) for i in range(LEVELS)]
        (ROOT / f"planner/parallelism/{name}_errors.inc").write_text(
            "// Written by tools/fidelity_report.py: measured over predicted, each by constants fitted without its source; ascending, each\n"
            "// value stands for the same share, and a source for no more than twelve rows.\n" + "".join(f"{v:.4f},\n" for v in values))


def coverage(rows):
    """kind -> share -> [covered in each half], and the median width of the 90 % interval."""
    random.seed(20)
    sources = sorted({r["source"] for r in rows})
    covered = collections.defaultdict(lambda: collections.defaultdict(list))
    widths = collections.defaultdict(list)
    for _ in range(HALVES):
        half = set(random.sample(sources, len(sources) // 2))
        for kind in ("time", "mixtures", "memory", "collectives", "small collectives"):
            own = [r for r in rows if interval_kind(r) == kind]
            made, checked = [r for r in own if r["source"] in half], [r for r in own if r["source"] not in half]
            if not made or not checked:
                continue
            made, checked = weighted(made), weighted(checked)
            for share in (.5, .9):
                low, high = quantile(made, (1 - share) / 2), quantile(made, (1 + share) / 2)
                inside = sum(w for v, w in checked if low <= v <= high) / sum(w for _, w in checked)
                covered[kind][share].append(inside)
                if share == .9:
                    widths[kind].append((high - low) / 2)
    return covered, widths


def coverage_lines(rows):
    covered, widths = coverage(rows)
    lines = ["(Memory: of sources that state the setting and whether the figure is the allocator's or the driver's.)", "",
             "| interval of | 50 % covers | 90 % covers | half its width, median |", "| --- | --- | --- | --- |"]
    for kind in covered:
        def cell(share):
            values = covered[kind][share]
            mean = sum(values) / len(values)
            return f"{100 * mean:.0f} % (sd {100 * math.sqrt(sum((v - mean) ** 2 for v in values) / len(values)):.0f})"
        lines.append(f"| {kind} | {cell(.5)} | {cell(.9)} | ±{100 * nearest(widths[kind], .5):.0f} % |")
    return lines


def few_run_lines(few):
    runs, draws = few[0]["runs"], few[0]["draws"]
    lines = ["## After a few runs", "",
             f"`weft calibrate --runs` learns a site's constants from its own runs. Here each source is the site: {runs} of its rows, drawn {draws} times,",
             "beside constants fitted without it, say what its others take (tools/few_runs.py). How far constants may move was chosen on the same",
             "sources, all together (planner/parallelism/learned_constants.cc).", ""]
    for kind in ("time", "memory"):
        own = [f for f in few if f["kind"] == kind]
        middle = [nearest([f[when] for f in own], .5) for when in ("before", "after")]
        lines.append(f"- {kind}: in the median of {len(own)} sources {percent(middle[0])} before, {percent(middle[1])} after (target 5 %); within 5 % "
                     f"{sum(f['before'] <= .05 for f in own)} before, {sum(f['after'] <= .05 for f in own)} after.")
    lines += ["", "| kind | source | rows | median before | after |", "| --- | --- | --- | --- | --- |"]
    return lines + [f"| {f['kind']} | {f['source']} | {f['rows']} | {percent(f['before'])} | {percent(f['after'])} |" for f in few] + [""]


def source_lines(errors, kind):
    lines = [f"### {kind[0].upper()}{kind[1:]}", "",
             "| source | rows | left out: median | 90th percentile | signed median | fitted: median | 90th percentile | signed median |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    own = [e for e in errors if e["kind"] == kind]
    for e in [*[e for e in own if e["source"] == "all"], *sorted((e for e in own if e["source"] != "all"), key=lambda e: -e["left_out"]["median"])]:
        out, fit = e["left_out"], e["fitted"]
        name = "**all**" if e["source"] == "all" else e["source"]
        lines.append(f"| {name} | {out['rows']} | {percent(out['median'])} | {percent(out['p90'])} | {100 * out['signed']:+.1f} % "
                     f"| {percent(fit['median'])} | {percent(fit['p90'])} | {100 * fit['signed']:+.1f} % |")
    return lines + [""]


def headline(errors):
    lines = ["| | rows | sources | left out: median | 90th percentile | signed median | target | fitted: median | 90th percentile |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for kind in KINDS:
        own = [e for e in errors if e["kind"] == kind]
        e = next(e for e in own if e["source"] == "all")
        target = " / ".join(f"{100 * t:.0f} %" for t in TARGETS[kind] if t is not None)
        lines.append(f"| {kind} | {e['left_out']['rows']} | {len(own) - 1} | {percent(e['left_out']['median'])} | {percent(e['left_out']['p90'])} "
                     f"| {100 * e['left_out']['signed']:+.1f} % | {target} | {percent(e['fitted']['median'])} | {percent(e['fitted']['p90'])} |")
    return lines


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
            "A sweep is a set of settings of one model on the same number of GPUs with the same batch, sequence, precision and software;",
            "repetitions of a setting count once. Two settings suffice.", "",
            f"The setting that is predicted best is the measured best, or within 3 % of it, in {summary['sweeps_within_3_percent']} of "
            f"{summary['sweeps']} sweeps; regret {percent(summary['regret'])} in the mean.",
            f"Kendall's tau of all pairs is {summary['kendall_tau']:.2f}; over pairs measured more than 2 % apart "
            f"(of which {summary['sweeps_distinct']} sweeps have some) {summary['kendall_tau_distinct']:.2f} in the mean.", "",
            "| table | sweep (software, model, GPU, GPUs, batch, sequence, metric, precision) | settings | tau | tau, pairs > 2 % apart | "
            "regret | picked, best (rows) |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for s in sorted(sweeps, key=lambda s: (-s["regret"], s["kendall_tau"], s["file"], s["sweep"])):
        distinct = "" if s["kendall_tau_distinct"] is None else f"{s['kendall_tau_distinct']:.2f}"
        text.append(f"| {s['file']} | {s['sweep'].strip()} | {s['settings']} | {s['kendall_tau']:.2f} | {distinct} | {percent(s['regret'])} | "
                    f"{s['picked_line']}, {s['best_line']} |")
    return text + [""]


def feasibility_lines(rows):
    fits = [r for r in rows if r["class"] == "fits"]
    runs = [r for r in rows if r["class"] == "time" and r["metric"] not in ("layer_forward_time", "layer_backward_time")]
    failed, ran = [r for r in fits if r["measured"] == 0], [r for r in fits if r["measured"] != 0]
    caught = sum(not r["feasible"] for r in failed)
    text = ["## Feasibility", "", "Asked as `weft plan` asks it: the predicted memory of the process (fragmentation, context and communicators included)",
            "times the 95 % quantile of how far such predictions were off has to fit the device (`--risk 0.05`).", "",
            f"Of {len(failed)} reports of running out of memory {caught} are called infeasible; of {len(ran)} reports of settings that then ran "
            f"{sum(r['feasible'] for r in ran)} are called feasible.", "", "| report | model | measured | called |", "| --- | --- | --- | --- |"]
    text += [f"| {r['file']}:{r['line']} ({r['source']}) | {r['model']} | {'ran' if r['measured'] else 'out of memory'} | "
             f"{'feasible' if r['feasible'] else 'infeasible'} |" for r in fits]
    share = sum(r["feasible"] for r in runs) / max(1, len(runs))
    text += ["", f"Of {len(runs)} measured runs {percent(share)} are called feasible (target 85 %).", "",
             "| table | runs | called feasible |", "| --- | --- | --- |"]
    for file in sorted({r["file"] for r in runs}):
        own = [r for r in runs if r["file"] == file]
        text.append(f"| {file} | {len(own)} | {sum(r['feasible'] for r in own)} |")
    return text


def constant_lines(known):
    constants = re.findall(r"- \{name: (\S+), value: (\S+), least: (\S+), most: (\S+), fitted: (\w+), source: \"(.*)\"\}",
                           (ROOT / "planner/parallelism/calibration.yaml").read_text())
    fitted = sum(c[4] == "true" for c in constants)
    text = ["", "## Constants", "",
            f"{fitted} fitted constants (at most 30), {len(constants) - fitted} from documents; each of a generation of devices, a kind of link, or",
            "physics, none of a program, a table or a model. Intervals: jackknife over sources, 95 %. Said: the share of a constant's variance under",
            "the pull to its range's middle alone that the rows take away; less than a half means that the rows hardly say it.", "",
            "| constant | value | interval | range | said | what, or from where |", "| --- | --- | --- | --- | --- | --- |"]
    of = {c["name"]: c for c in known}
    for name, value, least, most, is_fitted, source in constants:
        c = of.get(name) if is_fitted == "true" else None
        text.append(f"| {name} | {value} | {'' if c is None else '{:.3g} to {:.3g}'.format(c['low'], c['high'])} | {least} to {most} | "
                    f"{'' if c is None else '{:.0f} %'.format(100 * c['said'])} | {source} |")
    return text


def limit_rows(answer, errors):
    summary = answer["summary"]
    limits = [["file", "class", "rows", "median", "p90", "kendall_tau", "regret"],
              ["all", "time", summary["rows"], f"{up(summary['median'], .005):.3f}", f"{up(summary['p90'], .005):.3f}",
               f"{math.floor(summary['kendall_tau'] * 50) / 50:.2f}", f"{up(summary['regret'], .005):.3f}"]]
    for e in answer["by_file"]:
        limits.append([e["file"], e["class"], e["rows"], f"{up(e['median'], .005):.3f}", f"{up(e['p90'], .005):.3f}", "", ""])
    return limits


def report(answer, left, few):
    rows, errors = answer["rows"], left["errors"]
    text = ["# Fidelity: predictions against published measurements", "",
            "Written by `tools/fidelity_report.py`; do not edit. The tables are in `tests/validation/` and `tests/validation/new/` with their",
            "sources. A row is predicted or skipped with a reason. Errors are |predicted / measured - 1|; percentiles by nearest rank.", "",
            "## On sources that no constant was fitted on", "",
            "Each source (each cluster, of collectives) is predicted by constants fitted without it. Beside it the constants as they are compiled in,",
            "fitted on all.", "", *headline(errors), ""]
    for kind in KINDS:
        text += source_lines(errors, kind)
    text += CAUSES
    text += ["## Intervals", "", "`weft plan` says where a measured value is to be expected: quantiles of the left-out errors, every source alike. Made from one half",
             f"of the sources and checked on the other, the mean of {HALVES} halves (tools/fidelity_report.py --coverage):", "", *coverage_lines(left["rows"]), ""]
    text += few_run_lines(few) + sweep_lines(answer) + feasibility_lines(rows)
    text += ["", "## Worst rows, left out", "", "| row | source | model | measured s | predicted s | error |", "| --- | --- | --- | --- | --- | --- |"]
    worst = sorted((r for r in left["rows"] if r["kind"] == "time"), key=lambda r: -abs(math.log(r["left_out"] / r["measured"])))[:25]
    text += [f"| {r['file']}:{r['line']} | {r['source']} | {r['model']} | {r['measured']:.4g} | {r['left_out']:.4g} | "
             f"{100 * (r['left_out'] / r['measured'] - 1):+.0f} % |" for r in worst]
    text += ["", "## Defaults for what rows do not say", "", "| default | rows |", "| --- | --- |"]
    counts = collections.Counter(re.sub(r"=\d+:", ":", d) for r in rows for d in r["defaults"])
    text += [f"| {name} | {count} |" for name, count in sorted(counts.items())]
    text += constant_lines(left["constants"])
    text += ["", f"## Rows not predicted ({len(answer['skipped'])})", "", "| row | reason |", "| --- | --- |", *skipped_lines(answer["skipped"])]
    return text + ["", f"Machine: {platform.machine()}; the figures do not depend on it."]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="weft")
    parser.add_argument("--leave-one-out", required=True)
    parser.add_argument("--few-runs")
    parser.add_argument("--coverage", action="store_true")
    options = parser.parse_args()
    left = json.loads(pathlib.Path(options.leave_one_out).read_text())
    if options.coverage:
        print("\n".join(coverage_lines(left["rows"])))
        return
    if not options.few_runs:
        parser.error("expected --few-runs FILE, as tools/few_runs.py writes it")
    few = json.loads(pathlib.Path(options.few_runs).read_text())
    tables = sorted(p for folder in FOLDERS for p in folder.glob("*.csv") if p.name != "limits.csv")
    run = subprocess.run([options.weft, "validate", *map(str, tables), "--output", "json"], capture_output=True, text=True, check=True)
    answer = json.loads(run.stdout)
    write_errors(left["rows"])
    (ROOT / "docs/fidelity.md").write_text("\n".join(report(answer, left, few)) + "\n")
    with open(FOLDERS[0] / "limits.csv", "w", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows(limit_rows(answer, left["errors"]))


if __name__ == "__main__":
    main()
