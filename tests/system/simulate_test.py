#!/usr/bin/env python3
"""`weft simulate` as a user calls it: every example under docs/, its JSON, trace and plot read back by other parsers; exit
statuses; one line for bad input."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check  # noqa: E402

WEFT = os.path.join(os.environ["WEFT_BIN"], "weft")
EXAMPLES = pathlib.Path(os.environ["WEFT_SOURCE"], "docs", "examples", "scenarios")
SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments):
    return subprocess.run([WEFT, "simulate", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


def check_trace(path, jobs):
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    check(names == jobs, f"{path.name}: tracks of {sorted(names)}, expected {sorted(jobs)}")
    check(any(event["ph"] == "C" and event["args"]["bit/s"] > 0 for event in events), f"{path.name}: no link carries anything")
    check(all(event.get("dur", 0) >= 0 and event.get("ts", 0) >= 0 for event in events), f"{path.name}: time runs backwards")


def check_example(path, folder):
    done = run(path, "--policy", "ecmp,weft", "--evaluations", 40, "--output", "json", "--trace", folder / "t.json",
               "--plot", folder / "p.svg")
    check(done.returncode == 0, f"{path.name}: status {done.returncode}, {done.stderr!r}")
    answer = json.loads(done.stdout)
    for key in ("jobs", "links", "summary", "solver"):
        check(key in answer, f"{path.name}: no {key}")
    jobs = {job["name"] for job in answer["jobs"]}
    by_name = {run_of["policy"]: run_of["summary"] for run_of in answer["policies"]}
    check(by_name["weft"]["mean_slowdown"] <= by_name["ecmp"]["mean_slowdown"] + 1e-9,
          f"{path.name}: weft slows jobs down by {by_name['weft']}, ecmp by {by_name['ecmp']}")
    for policy in ("ecmp", "weft"):
        check_trace(folder / f"t.{policy}.json", jobs)
        root = xml.etree.ElementTree.parse(folder / f"p.{policy}.svg").getroot()
        strips = [group for group in root.iter(SVG + "g") if group.get("data-link")]
        check(0 < len(strips) <= 12, f"{path.name}: {len(strips)} strips in the plot")


def check_statuses(folder):
    example = EXAMPLES / "collision.yaml"
    broken = folder / "broken.yaml"
    broken.write_text(example.read_text().replace("hosts: [h1, h5]", "hosts: [h1, h99]"))
    too_large = folder / "too_large.yaml"
    too_large.write_text((EXAMPLES / "models.yaml").read_text().replace("llama3-8b", "megatron-1008b").replace("4096", "2048"))
    for arguments, status, piece in (
            ((broken,), 2, 'key "jobs[0].hosts": unknown host "h99", expected one of 8 hosts'),
            ((folder / "none.yaml",), 2, "none.yaml: no such file"),
            ((example, "--policy", "best"), 2, '--policy "best": expected ecmp'),
            ((example, "--seed", "-1"), 2, "--seed -1: expected 0 or more"),
            ((example, "--seeds", "1"), 2, "--seeds"),
            ((), 2, "SCENARIO"),
            ((too_large,), 3, "no feasible plan: "),
            ((example, "--trace", folder / "no" / "t.json"), 1, "cannot be written")):
        done = run(*arguments)
        check(done.returncode == status, f"{arguments}: status {done.returncode}, expected {status}: {done.stderr!r}")
        check(piece in done.stderr and done.stdout == "", f"{arguments}: {done.stderr!r}, expected {piece!r}")


def main():
    examples = sorted(EXAMPLES.glob("*.yaml"))
    check(len(examples) >= 3, f"{len(examples)} examples in {EXAMPLES}")
    with tempfile.TemporaryDirectory(prefix="weft-simulate-") as name:
        for path in examples:
            check_example(path, pathlib.Path(name))
        check_statuses(pathlib.Path(name))
    print(f"{len(examples)} examples and 8 wrong calls")


if __name__ == "__main__":
    main()
