#!/usr/bin/env python3
"""Compares the plans that weft finds with those that were published, model by model.

usage: published_plans.py WEFT [TABLE.csv]

For every row of the table (default: tests/validation/megatron_sc21_table1.csv) whose model is a preset, prices the
published strategy (everything fixed) and the best that the same framework can run, and prints a Markdown table.
Fails if a published plan is predicted to be faster than the plan found.
"""
import csv
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def plan(weft, row, extra):
    model = "megatron-" + row["params_b"].rstrip("0").rstrip(".") + "b"
    nodes = int(row["gpus"]) // int(row["gpus_per_node"])
    command = [weft, "plan", model, "--cluster", f"dgx-a100:{nodes}", "--global-batch", row["global_batch"],
               "--seq", row["seq"], "--precision", "fp16", "--framework", "megatron", "--output", "json", *extra]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode == 2:
        return None, run.stderr.strip()
    answer = json.loads(run.stdout)
    if not answer["plans"]:
        return None, answer["infeasible"][0] if answer["infeasible"] else "infeasible"
    return answer["plans"][0], ""


def published(row):
    chunks = int(row["vpp"] or 1)
    fixed = {"tp": row["tp"], "pp": row["pp"], "dp": row["dp"], "cp": 1, "vpp": chunks, "micro_batch": row["micro_batch"],
             "zero_stage": row["zero_stage"] or 0, "recompute": row["recompute"], "recompute_layers": -1,
             "sequence_parallel": "false", "schedule": "interleaved" if chunks > 1 else "1f1b", "data_sync": "ring",
             "rank_order": "tp-cp-ep-dp-pp"}
    return ",".join(f"{name}={value}" for name, value in fixed.items())


def short(strategy):
    parts = [f"t{strategy['tp']}{'+sp' if strategy['sequence_parallel'] else ''}", f"p{strategy['pp']}",
             f"d{strategy['dp']}", f"b{strategy['micro_batch']}"]
    if strategy["cp"] > 1:
        parts.append(f"c{strategy['cp']}")
    if strategy["vpp"] > 1:
        parts.append(f"v{strategy['vpp']}")
    if strategy["zero_stage"]:
        parts.append(f"ZeRO-{strategy['zero_stage']}")
    parts.append(strategy["recompute"] if strategy["recompute_layers"] < 0 or strategy["recompute"] != "full"
                 else f"full for {strategy['recompute_layers']}")
    return " ".join(parts)


def main():
    weft = sys.argv[1]
    table = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "tests/validation/megatron_sc21_table1.csv"
    worse = 0
    print("| model | GPUs | published | predicted | found | predicted | ratio |\n| --- | --- | --- | --- | --- | --- | --- |")
    for row in csv.DictReader(table.open()):
        found, reason = plan(weft, row, [])
        if found is None:
            print(f"{row['model']}: {reason}", file=sys.stderr)
            continue
        theirs, reason = plan(weft, row, ["--fix", published(row)])
        mine = found["predicted"]["iteration_s"]
        if theirs is None:
            print(f"| {row['model']} | {row['gpus']} | {reason} | | {short(found['strategy'])} | {mine:.2f} s | |")
            continue
        seconds = theirs["predicted"]["iteration_s"]
        worse += mine > seconds * (1 + 1e-9)
        print(f"| {row['model']} | {row['gpus']} | {short(theirs['strategy'])} | {seconds:.2f} s | "
              f"{short(found['strategy'])} | {mine:.2f} s | {seconds / mine:.2f} |")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
