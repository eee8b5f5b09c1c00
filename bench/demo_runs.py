#!/usr/bin/env python3
"""The demo's verdict, many times over: N runs in a row, all of them kept, and the table of what they say.

usage: demo_runs.py run WEFT RUNS.jsonl [--runs N] [--disturb [SEED]] [-- OPTIONS OF weft demo ...]
       demo_runs.py report RUNS.jsonl ... [--against QUIET.jsonl] [--promise PERCENT]

`run` appends one line per run, whatever became of it: a run that fails is a line with its status and what it said last.
--disturb keeps a process beside the runs that takes half a core for 5 to 10 s, pauses for 5 to 15 s, and so on (the times
follow from SEED). A case is one job in one phase under Weft: four cases a run. `report` prints Markdown: each case with its
ratio to the bound and the interval, how many lie within the promise by value, how the verdicts fell, and the median of each
case over the runs. Cases of failed runs count as missed. With --against it also says how far each ratio lies from the
median of that case in the other file.
"""
import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time

PHASES = ("weft", "weft_after_fault")
TIMES = {"weft": ("weft_s", "bound_s"), "weft_after_fault": ("weft_after_fault_s", "bound_after_fault_s")}
JOBS = 2  # of a run
BUSY_S, PAUSE_S = (5, 10), (5, 15)
SLICE_S = 0.01  # computes for so long, then sleeps for as long: half a core


def disturb(seed):
    """Takes half a core now and then, until it is told to end."""
    draw = random.Random(seed)
    while True:
        end = time.monotonic() + draw.uniform(*BUSY_S)
        while time.monotonic() < end:
            turn = time.monotonic() + SLICE_S
            while time.monotonic() < turn:
                pass
            time.sleep(SLICE_S)
        time.sleep(draw.uniform(*PAUSE_S))


@contextlib.contextmanager
def disturbance(seed):
    """Such a process beside the body; none where `seed` is None."""
    if seed is None:
        yield
        return
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "disturb", str(seed)], stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def run_once(command, seed):
    """One run as a line of the file."""
    line = {"started": time.strftime("%Y-%m-%dT%H:%M:%S"), "disturbed": seed, "load_before": os.getloadavg()[0]}
    begin = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    line.update(seconds=round(time.monotonic() - begin, 1), status=done.returncode, report=None)
    try:
        line["report"] = json.loads(done.stdout)
    except ValueError:
        line["said"] = done.stderr.strip().splitlines()[-3:]
    return line


def run(options):
    command = [options.weft, "demo", "--output", "json", *options.demo]
    with open(options.file, "a", encoding="utf-8") as out:
        for i in range(options.runs):
            with disturbance(None if options.disturb is None else options.disturb + i):
                line = run_once(command, None if options.disturb is None else options.disturb + i)
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(f"run {i + 1} of {options.runs}: status {line['status']}, {line['seconds']} s", file=sys.stderr)
    return 0


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def cases_of(line):
    """{(job, phase): (ratio, measured, bound)}; empty for a run that gave no report."""
    if line["report"] is None:
        return {}
    return {(job["name"], phase): (job["ratio"][phase], *(job[key] for key in TIMES[phase]))
            for job in line["report"]["jobs"] for phase in PHASES}


def percent(ratio):
    return "-" if ratio is None else f"{(ratio - 1) * 100:+.1f} %"


def medians(lines):
    """The median ratio of each case over the runs that gave one."""
    found = {}
    for line in lines:
        for case, (ratio, _, _) in cases_of(line).items():
            if ratio["value"] is not None:
                found.setdefault(case, []).append(ratio["value"])
    return {case: statistics.median(values) for case, values in found.items()}


def print_cases(lines, quiet):
    away = " from the quiet median |" if quiet else ""
    print(f"| run | load before | took | job | phase | measured | bound | ratio | with 95 % | verdict |{away}")
    print("| --- " * (11 if quiet else 10) + "|")
    for number, line in enumerate(lines, 1):
        head = f"| {number} | {line['load_before']:.1f} | {line['seconds']:.0f} s"
        cases = cases_of(line)
        if not cases:
            print(f"{head} | failed with {line['status']}: {' / '.join(line.get('said', []))} |")
        for (job, phase), (ratio, measured, bound) in cases.items():
            times = " | ".join("-" if value is None else f"{value:.3f} s" for value in (measured, bound))
            known = quiet.get((job, phase)) if quiet else None
            points = "" if not quiet else " - |" if known is None or ratio["value"] is None else \
                f" {(ratio['value'] - known) * 100:+.1f} points |"
            print(f"{head} | {job} | {phase} | {times} | {percent(ratio['value'])} | {percent(ratio['low'])} to "
                  f"{percent(ratio['high'])} | {ratio['verdict']} |{points}")
            head = "| | |"


def print_totals(lines, promise):
    cases = [ratio for line in lines for ratio, _, _ in cases_of(line).values()]
    expected = len(lines) * JOBS * len(PHASES)
    within = sum(ratio["value"] is not None and ratio["value"] <= 1 + promise / 100 for ratio in cases)
    failed = sum(line["report"] is None for line in lines)
    share = f" ({100 * within / expected:.1f} %)" if expected else ""
    print(f"\n{len(lines)} runs, {failed} of them failed; {within} of {expected} cases{share} at most {promise:g} % over the bound")
    verdicts = {}
    for ratio in cases:
        verdicts[ratio["verdict"]] = verdicts.get(ratio["verdict"], 0) + 1
    print("verdicts: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    for (job, phase), median in sorted(medians(lines).items()):
        values = sorted(cases_of(line)[job, phase][0]["value"] or 0 for line in lines if cases_of(line))
        print(f"{job} {phase}: median {percent(median)}, {percent(values[0])} to {percent(values[-1])}")
    if lines:
        print(f"a run took {statistics.median(line['seconds'] for line in lines):.0f} s in the median")


def print_distance(lines, quiet):
    away = [abs(ratio["value"] - quiet[case]) * 100 for line in lines for case, (ratio, _, _) in cases_of(line).items()
            if case in quiet and ratio["value"] is not None]
    if away:
        print(f"{sum(value <= 3 for value in away)} of {len(away)} ratios within 3 points of the quiet runs' median, the "
              f"farthest {max(away):.1f} points")


def report(options):
    lines = [line for path in options.files for line in read(path)]
    quiet = medians(read(options.against)) if options.against else {}
    print_cases(lines, quiet)
    print_totals(lines, options.promise)
    if quiet:
        print_distance(lines, quiet)
    return 0


def main():
    if sys.argv[1:2] == ["disturb"]:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return disturb(int(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("weft")
    runs.add_argument("file")
    runs.add_argument("--runs", type=int, default=20)
    runs.add_argument("--disturb", type=int, nargs="?", const=1, metavar="SEED")
    runs.set_defaults(call=run)
    reports = commands.add_parser("report")
    reports.add_argument("files", nargs="+")
    reports.add_argument("--against")
    reports.add_argument("--promise", type=float, default=10)
    reports.set_defaults(call=report)
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:cut])
    options.demo = arguments[cut + 1:]
    return options.call(options)


if __name__ == "__main__":
    sys.exit(main())
