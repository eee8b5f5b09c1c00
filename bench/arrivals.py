#!/usr/bin/env python3
"""A day of arrivals: jobs that wait for hosts, under first-come, best-alone and Weft.

usage: arrivals.py WEFT [--seed N ...] [--hours H] [--jobs N] [--write FOLDER]

Every seed gives one cluster of eight-GPU servers and jobs that arrive at random over the day, two thirds in working hours, each with a range of sizes, and half with a
deadline. Compute times of what happens are off by up to 20 %, which no policy sees. `layers-apart` is first-come: in order of arrival, each in its
largest size. `vertical` is best-alone: each that fits, in the size that is fastest alone.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

POLICIES = ["layers-apart", "vertical", "horizontal", "weft"]
# Model, fewest and most hosts, tokens per sequence, sequences per step.
MODELS = [("gpt2", 1, 4, 1024, 512), ("llama3-8b", 1, 8, 8192, 128), ("megatron-18.4b", 2, 8, 2048, 256), ("megatron-39.1b", 4, 8, 2048, 256),
          ("mixtral-8x7b", 4, 8, 4096, 256)]
# GPU seconds of one iteration on an A100, roughly: jobs are drawn by the hours that they take.
WORK = {"gpt2": 0.6, "llama3-8b": 430, "megatron-18.4b": 330, "megatron-39.1b": 690, "mixtral-8x7b": 540}


def scenario(seed, hours, count):
    """SCENARIO.yaml of a seed."""
    rng = random.Random(seed)
    jobs = []
    for number in range(1, count + 1):
        model, least, most, sequence, batch = rng.choice(MODELS)
        least_gpus, most_gpus = 8 * least, 8 * rng.randint(least, most)
        alone_hours = min(hours / 4, rng.lognormvariate(-0.3, 0.8))
        iterations = max(20, int(alone_hours * 3600 * most_gpus / WORK[model]))
        arrival = 3600 * (rng.uniform(hours / 3, 2 * hours / 3) if rng.random() < 0.66 else rng.uniform(0, 0.9 * hours))
        deadline = f", deadline: {alone_hours * 3600 * rng.uniform(1.2, 5):.0f}s" if rng.random() < 0.5 else ""
        jobs.append((arrival, f"min_gpus: {least_gpus}, max_gpus: {most_gpus}, model: {model}, global_batch: {batch}, "
                              f"sequence: {sequence}, iterations: {iterations}, arrival: {arrival:.0f}s{deadline}"))
    jobs.sort()
    lines = "\n".join(f"  - {{name: j{n}, {job}}}" for n, (_, job) in enumerate(jobs, 1))
    return (f"version: 1\nname: day-{seed}\nduration: {hours:g}h\nseed: {seed}\nprofile_error: 0.2\n"
            f"cluster: {{fabric: leaf-spine, leaves: 6, spines: 4, hosts_per_leaf: 4, fabric_rate: 400Gbit/s, server: dgx-a100}}\n"
            f"jobs:\n{lines}\n")


def simulate(weft, path):
    done = subprocess.run([weft, "simulate", str(path), "--policy", ",".join(POLICIES), "--evaluations", "300", "--output", "json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr[-600:]}")
    return {run["policy"]: run for run in json.loads(done.stdout)["policies"]}


def figures(run):
    jobs, summary = run["jobs"], run["summary"]
    done = [job for job in jobs if job["end_s"] is not None]
    return {"done": len(done), "throughput": 100 * summary["throughput"], "wait": summary["mean_wait_s"] / 60,
            "blocked": sum(1 for job in jobs if job["begin_s"] is None or job["begin_s"] > job["arrival_s"] + 60),
            "response": statistics.fmean((job["end_s"] - job["arrival_s"]) / 60 for job in done) if done else 0,
            "due": sum(1 for job in jobs if "deadline_s" in job), "late": summary["late"], "bound_late": summary["bound_late"]}


HEADER = (f"{'policy':14} {'through':>8} {'throughput':>11} {'waited > 1 min':>15} {'mean wait':>10} {'arrival to end':>15} "
          f"{'deadlines':>10} {'missed':>7} {'at least':>9}")


def row(policy, all_figures):
    mean = {key: statistics.fmean(one[key] for one in all_figures) for key in all_figures[0]}
    return (f"{policy:14} {mean['done']:8.1f} {mean['throughput']:9.2f} % {mean['blocked']:15.1f} {mean['wait']:6.1f} min {mean['response']:11.1f} min "
            f"{mean['due']:10.1f} {mean['late']:7.1f} {mean['bound_late']:9.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--write", metavar="FOLDER", help="write the scenarios there, simulate nothing")
    options = parser.parse_args()
    seeds = options.seed or [1, 2, 3]
    runs = {policy: [] for policy in POLICIES}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.write or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            path = folder / f"day-{seed}.yaml"
            path.write_text(scenario(seed, options.hours, options.jobs))
            if options.write:
                continue
            found = simulate(options.weft, path)
            print(f"seed {seed}\n{HEADER}", flush=True)
            for policy in POLICIES:
                runs[policy].append(figures(found[policy]))
                print(row(policy, runs[policy][-1:]), flush=True)
    if not options.write and len(seeds) > 1:
        print(f"\nmean of {len(seeds)}\n{HEADER}")
        for policy in POLICIES:
            print(row(policy, runs[policy]))


if __name__ == "__main__":
    main()
