#!/usr/bin/env python3
"""Mixes of jobs on clusters drawn from seeds: what deciding strategies and flows of all jobs together is worth.

usage: job_mixes.py WEFT [--set train|test] [--seed N ...] [--write FOLDER [--miniature]]

Every seed gives one cluster: leaves and spines at 2:1 to 8:1, servers of eight GPUs, and dense, MoE and long-context jobs that
start together on hosts which earlier jobs have left in pieces. The policies were written while looking at TRAIN; TEST is run when they are done.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

TRAIN = [101, 102, 103, 104, 105, 106, 107, 108, 109, 110]
TEST = [201, 202, 203, 204, 205, 206, 207, 208, 209, 210]
POLICIES = ["layers-apart", "crux", "cassini", "vertical", "horizontal", "weft"]

# Servers, Gbit/s of each of their eight NICs.
SERVERS = [("dgx-a100", 200), ("dgx-h100", 400)]
# Model, hosts, tokens per sequence, sequences per GPU and iteration.
DENSE = [("llama3-8b", (2, 4, 8), 8192, (0.25, 0.5, 1)), ("megatron-18.4b", (2, 4, 8), 2048, (0.5, 1, 2)),
         ("megatron-39.1b", (4, 8), 2048, (0.5, 1, 2)), ("llama3-70b", (8,), 4096, (0.5, 1))]
MOE = [("mixtral-8x7b", (4, 8), 4096, (0.5, 1, 2)), ("mixtral-8x22b", (8,), 4096, (0.5, 1))]
LONG = [("llama3-8b", (2, 4, 8), 65536, (0.125, 0.25)), ("llama3-8b", (4, 8), 131072, (0.125,)),
        ("llama3-70b", (8,), 32768, (0.125, 0.25))]


def scenario(seed):
    """SCENARIO.yaml of a seed."""
    rng = random.Random(seed)
    server, nic = rng.choice(SERVERS)
    ratio = rng.choice([2, 4, 8])
    leaves, hosts_per_leaf, spines = rng.choice([4, 6, 8]), 4, 4
    hosts = [f"h{h}" for h in range(1, leaves * hosts_per_leaf + 1)]
    # What earlier jobs have left: every host has a place in an order that keeps some neighbours together.
    order = sorted(hosts, key=lambda host: (rng.random() < 0.3, rng.random()))
    jobs = []
    while order:
        kind = rng.choice([DENSE, DENSE, MOE, LONG])
        fits = [(m, [n for n in sizes if n <= len(order)], s, b) for m, sizes, s, b in kind]
        fits = [job for job in fits if job[1]]
        if not fits:
            if len(order) < 2:
                break
            continue
        model, sizes, sequence, per_gpu = rng.choice(fits)
        count = rng.choice(sizes)
        mine, order = sorted(order[:count], key=lambda h: int(h[1:])), order[count:]
        batch = max(1, int(8 * count * rng.choice(per_gpu)))
        jobs.append(f"  - {{name: j{len(jobs) + 1}, hosts: [{', '.join(mine)}], model: {model}, global_batch: {batch}, "
                    f"sequence: {sequence}}}")
    up = hosts_per_leaf * 8 * nic / ratio / spines
    return (f"version: 1\nname: mix-{seed}\nduration: 1200s\nseed: {seed}\nprofile_error: 0.2\n"
            f"cluster: {{fabric: leaf-spine, leaves: {leaves}, spines: {spines}, hosts_per_leaf: {hosts_per_leaf}, "
            f"fabric_rate: {up:g}Gbit/s, server: {server}}}\njobs:\n" + "\n".join(jobs) + "\n")


def miniature(seed):
    """SCENARIO.yaml of the same kind for a fabric of namespaces: two leaves, plain hosts, every job on two of them."""
    rng = random.Random(seed)
    server, nic = rng.choice(SERVERS)
    ratio = rng.choice([2, 4, 8])
    device, inside = {"dgx-a100": ("a100-80", 2400), "dgx-h100": ("h100-80", 3600)}[server]
    order = [f"h{h}" for h in range(1, 9)]
    rng.shuffle(order)
    jobs = []
    while order:
        kind = rng.choice([DENSE, DENSE, MOE, LONG])
        model, _, sequence, per_gpu = rng.choice([job for job in kind if job[0] in ("llama3-8b", "megatron-18.4b", "mixtral-8x7b") and job[2] <= 65536])
        mine, order = order[:2], order[2:]
        jobs.append(f"  - {{name: j{len(jobs) + 1}, hosts: [{', '.join(mine)}], model: {model}, global_batch: {max(1, int(16 * rng.choice(per_gpu)))}, "
                    f"sequence: {sequence}}}")
    return (f"version: 1\nname: small-mix-{seed}\nduration: 120s\nseed: {seed}\n"
            f"cluster: {{fabric: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4, host_rate: {8 * nic}Gbit/s, "
            f"fabric_rate: {4 * 8 * nic / ratio / 2:g}Gbit/s, device: {device}, gpus_per_host: 8, intra_node_rate: {inside}Gbit/s}}\njobs:\n"
            + "\n".join(jobs) + "\n")


def simulate(weft, text, folder, seed):
    path = pathlib.Path(folder) / f"mix-{seed}.yaml"
    path.write_text(text)
    done = subprocess.run([weft, "simulate", str(path), "--policy", ",".join(POLICIES), "--output", "json"],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr[-600:]}")
    return {run["policy"]: run for run in json.loads(done.stdout)["policies"]}


def other_ways(run):
    """Weft's own lines about jobs that do not run in the way that is best alone, and what all of them in it would come to."""
    return [line.strip() for line in run["decisions"] if " in place of " in line or "every job in the way that is best alone" in line]


def row(name, summaries):
    def mean(key):
        return statistics.fmean(summary[key] for summary in summaries)
    return (f"{name:14} {100 * mean('goodput'):8.2f} % {100 * mean('bound_goodput'):8.2f} % {mean('mean_slowdown'):8.3f} "
            f"{mean('p99_slowdown'):8.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--set", choices=["train", "test"], default="train")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--write", metavar="FOLDER", help="write the scenarios there, simulate nothing")
    parser.add_argument("--miniature", action="store_true", help="write those for real-fabric --scenario")
    options = parser.parse_args()
    seeds = options.seed or (TRAIN if options.set == "train" else TEST)
    if options.write:
        pathlib.Path(options.write).mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            (pathlib.Path(options.write) / f"mix-{seed}.yaml").write_text(miniature(seed) if options.miniature else scenario(seed))
        return
    header = f"{'policy':14} {'goodput':>10} {'bound':>10} {'slow-down':>8} {'p99':>8}"
    runs = {policy: [] for policy in POLICIES}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            found = simulate(options.weft, scenario(seed), folder, seed)
            print(f"seed {seed}\n{header}", flush=True)
            for policy in POLICIES:
                runs[policy].append(found[policy]["summary"])
                print(row(policy, runs[policy][-1:]), flush=True)
            print("".join(f"  {line}\n" for line in other_ways(found["weft"])), end="", flush=True)
    print(f"\nmean of {len(seeds)}\n{header}")
    for policy in POLICIES:
        print(row(policy, runs[policy]))


if __name__ == "__main__":
    main()
