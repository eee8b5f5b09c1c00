#!/usr/bin/env python3
"""Strategies of a small job on a fabric whose only spine is cut to a tenth, run one after another, against the one that is chosen there.

usage: best_strategy_test.py [--only TEXT] [--steps N]

The job and the fabric are those of reshard_test.py, in which a controller changes the strategy of the running job by itself. Here `weft
calibrate` measures the processor, and `weft plan` chooses on the same fabric, as the controller's search does. Then weft-train runs, a rank on
each of four hosts: the choice, and every split of four ranks into replicas, tensor ranks and stages with every schedule, order of ranks
and stage of ZeRO (0 and 1 with a pipeline), each with the micro-batch that the planner gives it. Printed are a table of what is predicted
and measured, Kendall's tau of both, and how far the choice is from the fastest: within 10 %, or in the median of three paired runs.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from fabric_training import GPT, steps_of, train  # noqa: E402
from processes import check, run_test  # noqa: E402
from weft_cluster import BIN, WeftCluster, require_fabric  # noqa: E402

SEQUENCE, BATCH = 64, 32
NEAR = 0.10
MACHINES = """version: 1
name: cut
gpus_per_node: 1
nics_per_node: 1
device: cpu
intra_node_rate: 1GB/s
intra_latency: 20us
nic_latency: 200us
calibration: calibration.yaml
fabric: {fabric: leaf-spine, leaves: 2, spines: 1, hosts_per_leaf: 2, host_rate: 60Mbit/s, fabric_rate: 6Mbit/s}
"""


def call(command, what, timeout_s=600):
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout_s, check=False)
    check(ran.returncode == 0, f"{what}: {ran.stderr[-600:]}")
    return ran.stdout


def planning(cluster, model, *more):
    return [BIN / "weft", "plan", model, "--cluster", cluster.processes.path("machines.yaml"), "--global-batch", BATCH, "--seq", SEQUENCE,
            "--gpus", 4, "--precision", "fp32", "--framework", "weft-train", *more]


def kinds():
    """As --fix has them."""
    for dp, tp, pp in ((4, 1, 1), (2, 2, 1), (1, 4, 1), (2, 1, 2), (1, 2, 2), (1, 1, 4)):
        schedules = [("1f1b", 1)] if pp == 1 else [(name, 1) for name in ("gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2")]
        schedules += [("interleaved", 2), ("zb-v", 2)] if pp == 2 else []
        for schedule, vpp in schedules:
            for order in ("tp-cp-ep-dp-pp", "tp-cp-pp-dp")[:2 if dp > 1 and pp > 1 else 1]:
                for zero in [0] if dp == 1 else [0, 1] if pp > 1 else [0, 1, 2, 3]:
                    yield (f"dp={dp},tp={tp},pp={pp},schedule={schedule},vpp={vpp},rank_order={order},zero_stage={zero},cp=1,sharding=uniform,"
                           "recompute=none,data_sync=ring")


def text_of(strategy):
    """What distinguishes it, for people."""
    names = ("dp", "tp", "pp", "schedule", "rank_order", "zero_stage", "micro_batch")
    return " ".join(f"{name}={strategy[name]}" for name in names if not (name in ("schedule", "rank_order") and strategy["pp"] == 1))


def planned(cluster, model, *more):
    """The best of what is asked for, and its prediction; None: there is none."""
    ran = subprocess.run(list(map(str, planning(cluster, model, *more, "--output", "json"))), capture_output=True, text=True, timeout=60,
                         check=False)
    check(ran.returncode in (0, 3), f"weft plan {more}: {ran.stderr}")
    if ran.returncode == 3:
        return None
    best = json.loads(ran.stdout)["plans"][0]
    return best["strategy"], best["predicted"]["iteration_s"]


def chosen(cluster, model, options):
    """The choice first."""
    cluster.processes.write("machines.yaml", MACHINES)
    call([BIN / "weft", "calibrate", "--duration", "10s", "--out", cluster.processes.path("calibration.yaml")], "weft calibrate")
    found = [planned(cluster, model)]
    for kind in kinds():
        one = planned(cluster, model, "--fix", kind) if options.only in kind else None
        if one and text_of(one[0]) not in [text_of(strategy) for strategy, _ in found]:
            found.append(one)
    return found


def words_of(cluster, model, strategy):
    def word(name, value):
        return f"{value}B" if name == "bucket_bytes" else str(value).lower() if isinstance(value, bool) else str(value)

    text = ",".join(f"{name}={word(name, value)}" for name, value in strategy.items())
    lines = call(planning(cluster, model, "--fix", text, "--emit", "weft-train"), f"weft plan --fix {text}").splitlines()
    return " ".join(line for line in lines if not line.startswith("#")).split()


def tau(pairs):
    """Kendall's, over all pairs."""
    agree = [(a[0] - b[0]) * (a[1] - b[1]) for k, a in enumerate(pairs) for b in pairs[:k]]
    return sum((x > 0) - (x < 0) for x in agree) / max(len(agree), 1)


def measured(cluster, model, words, steps):
    lines = train(cluster, "run", cluster.hosts, ["--config", model, "--lr", "0.0003", "--clip", "1", "--steps", steps, *words], 600)
    return statistics.median(step["iteration_s"] for step in steps_of(lines)[2:])


def judge(rows, again):
    """`again`: measures a row's strategy once more."""
    pick, best = rows[0], min(rows, key=lambda row: row["measured"])
    print("\n| strategy | predicted | measured |\n| --- | --- | --- |")
    for row in sorted(rows, key=lambda row: row["measured"]):
        print(f"| {row['text']} | {row['predicted']:.2f} s | {row['measured']:.2f} s |")
    behind = pick["measured"] / best["measured"] - 1
    if behind > NEAR:
        behind = statistics.median(again(pick) / again(best) for _ in range(3)) - 1
    found = tau([(row["predicted"], row["measured"]) for row in rows])
    print(f"{len(rows)} strategies; the choice, {pick['text']}, takes {pick['measured']:.2f} s (predicted {pick['predicted']:.2f}), the fastest, "
          f"{best['text']}, {best['measured']:.2f} s: {100 * behind:+.1f} %; tau {found:.2f}", flush=True)
    check(behind <= NEAR, f"the choice is {100 * behind:.1f} % behind the fastest")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    require_fabric()
    with WeftCluster(hosts_per_leaf=2, spines=1, rate="60Mbit/s", grain_us=250) as cluster:
        model = cluster.processes.write("model.json", json.dumps(GPT))
        for leaf in ("leaf1", "leaf2"):
            cluster.set_cable_rate(leaf, "spine1", 6)
        runs = chosen(cluster, model, options)
        print(f"{len(runs)} strategies", flush=True)
        def run(strategy):
            return measured(cluster, model, words_of(cluster, model, strategy), options.steps)

        rows = []
        for strategy, predicted in runs:
            rows.append({"text": text_of(strategy), "strategy": strategy, "predicted": predicted, "measured": run(strategy)})
            print(f"{rows[-1]['text']}: {rows[-1]['measured']:.3f} s, predicted {predicted:.3f}", flush=True)
        judge(rows, lambda row: run(row["strategy"]))


if __name__ == "__main__":
    run_test(main)
