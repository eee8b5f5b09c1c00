#!/usr/bin/env python3
"""Two jobs that train at once on one fabric, under four policies: measured next to what the simulation that decided says.

usage: joint_test.py [--all] [--phase TIME] [--rate MBITS] [--moe FIX] [--policy NAMES] [--keep FOLDER]

A Mixtral with expert parallelism and a Llama in a pipeline, four hosts each, on two leaves and two spines at 2:1. Each has
hosts below both leaves, in an order that has looked at no switch. Models and stretch are those of prediction_test.py.

The links are measured (`weft perf`) and the machine (`weft calibrate`); `real-fabric --train` does the rest, as
tests/real/training.h says, and asserts what is no time: bytes as planned, policies in force, jobs side by side.
--all measures all four policies for long, prints what docs/train.md has, and holds times against predictions: for a quiet
machine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from prediction_test import BIN, Fabric, MODELS, NEAR, SEQUENCE, WEFT, call, stretch_of
from weft_train import check
from processes import run_test, skip

POLICIES = ["layers-apart", "vertical", "horizontal", "weft"]
BATCH, RANKS = 16, 8
TIE = 0.01  # of goodput: what policies that decide alike may be apart
BUSY = 0.6  # of the cores
SCENARIO = """version: 1
name: joint
duration: 300s
classes: 2
windows: none
cluster: {{fabric: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4, host_rate: {rate}bit/s, network_efficiency: 1,
          nic_latency: {latency}us, device: cpu}}
jobs:
  - {{name: moe, hosts: [h1, h5, h2, h6], model: mixtral.json, fix: "{moe}", global_batch: {batch}, sequence: {sequence},
     precision: fp32, framework: weft-train}}
  - {{name: pipe, hosts: [h3, h7, h4, h8], model: llama.json, fix: "pp=4", global_batch: {batch}, sequence: {sequence},
     precision: fp32, framework: weft-train}}
"""


def prepare(folder, options):
    """Models, scenario and this machine's constants."""
    fabric = Fabric()
    try:
        link = fabric.link(options.rate)
    finally:
        fabric.down()
    for name in ("mixtral", "llama"):
        with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as out:
            json.dump(MODELS[name], out)
    with open(os.path.join(folder, "joint.yaml"), "w", encoding="utf-8") as out:
        out.write(SCENARIO.format(rate=round(link["rate"]), latency=round(link["latency"] * 1e6, 1), batch=BATCH,
                                  sequence=SEQUENCE, moe=options.moe))
    call([WEFT, "calibrate", "--out", os.path.join(folder, "machine.yaml"), "--threads", "1", "--duration",
          "8s" if options.all else "3s"],
         "weft calibrate")


def measure(folder, options):
    """What real-fabric says of each policy. Its own words about facts that do not hold go to stdout."""
    command = [os.path.join(BIN, "real-fabric"), "--train", os.path.join(folder, "joint.yaml"), "--calibration",
               os.path.join(folder, "machine.yaml"), "--link-rate", f"{options.rate}Mbit/s", "--stretch", str(stretch_of(RANKS)),
               "--phase", options.phase, "--policy", options.policy]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = list(process.stdout)
    rest = [line for line in lines if not line.startswith("{")]
    check(process.returncode == 0, f"real-fabric ended with {process.returncode}: {' '.join(rest)}")
    return [json.loads(line) for line in lines if line.startswith("{")]


def error(job):
    return job["predicted_s"] / job["median_s"] - 1


def print_table(outcomes):
    print("| policy | job | strategy | hosts | class | alone | predicted | measured | error | overruns | goodput, predicted |"
          " measured |")
    print("| --- " * 12 + "|")
    for one in outcomes:
        for job in one["jobs"]:
            print(f"| {one['policy']} | {job['name']} | {job['strategy']} | {' '.join(job['hosts'])} | {job['class']} | "
                  f"{job['alone_s']:.3f} s | {job['predicted_s']:.3f} s | {job['median_s']:.3f} s | {100 * error(job):+.1f} % | "
                  f"{100 * job['overruns']:.1f} % | {100 * one['predicted_goodput']:.1f} % | {100 * one['goodput']:.1f} % |")
        busy = sum(job["cores_busy"] for job in one["jobs"])
        print(f"{one['policy']}: {busy:.2f} cores busy, {[job['iterations'] for job in one['jobs']]} iterations", flush=True)


def judge(outcomes):
    goodput = {one["policy"]: one["goodput"] for one in outcomes}
    best = max(value for name, value in goodput.items() if name != "weft")
    check(goodput["weft"] > goodput["layers-apart"], f"weft is no better than layers apart: {goodput}")
    check(goodput["weft"] >= best * (1 - TIE), f"weft is not the best: {goodput}")
    for one in outcomes:
        busy = sum(job["cores_busy"] for job in one["jobs"])
        check(busy <= BUSY * os.cpu_count(), f"{one['policy']}: {busy:.2f} cores busy: ranks may wait for one")
        for job in one["jobs"]:
            check(abs(error(job)) <= NEAR, f"{one['policy']}, {job['name']}: the iteration is off by {error(job):+.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--phase", default="")
    parser.add_argument("--policy", default="")
    parser.add_argument("--rate", type=int, default=40)
    parser.add_argument("--moe", default="ep=4,zero_stage=1", help="what is fixed of the Mixtral's strategy")
    parser.add_argument("--keep", default="")
    options = parser.parse_args()
    if options.all and options.policy:
        parser.error("--policy: --all compares all policies; give one of the two")
    options.phase = options.phase or ("30s" if options.all else "10s")
    options.policy = options.policy or (",".join(POLICIES) if options.all else "weft")
    if os.geteuid() != 0:
        skip("fabric", "network namespaces need root")
    with tempfile.TemporaryDirectory() as folder:
        folder = options.keep or folder
        prepare(folder, options)
        outcomes = measure(folder, options)
    names = [one["policy"] for one in outcomes]
    check(names == options.policy.split(","), f"measured {names}, expected {options.policy}")
    print_table(outcomes)
    if options.all:
        judge(outcomes)
    return 0


if __name__ == "__main__":
    sys.exit(run_test(main))
