#!/usr/bin/env python3
"""How long `weft plan` takes, how many strategies it simulates and how many of its answers it proves: 20 questions, half of
them on leaf-spine fabrics of 2:1.

usage: search_cases.py WEFT [--runs N] [--framework NAME]
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

# model, preset, nodes, sequences, tokens of one, and whether a fabric of 2:1 lies under the nodes
CASES = [("gpt3-175b", "dgx-a100", 512, 1536, 2048, fabric) for fabric in (False, True)]
CASES += [("llama3-405b", "dgx-h100", 2048, 2048, 8192, fabric) for fabric in (False, True)]
CASES += [("deepseek-v3", "dgx-h100", 256, 15360, 4096, fabric) for fabric in (False, True)]
CASES += [(model, "dgx-h100", nodes, batch, sequence, fabric)
          for model, nodes, batch, sequence in (("llama3-8b", 4, 512, 8192), ("llama3-70b", 32, 1024, 4096), ("mixtral-8x7b", 16, 512, 4096),
                                                ("mixtral-8x22b", 64, 1024, 4096), ("gpt3-175b", 64, 1024, 2048),
                                                ("deepseek-v3", 128, 4096, 4096), ("llama3-70b", 128, 2048, 8192))
          for fabric in (False, True)]
DEVICES = {"dgx-a100": ("a100-80", "300GB/s", "1.6Tbit/s"), "dgx-h100": ("h100-80", "450GB/s", "3.2Tbit/s")}


def cluster_of(folder, preset, nodes, fabric):
    if not fabric:
        return f"{preset}:{nodes}"
    device, inside, rate = DEVICES[preset]
    leaves = max(2, nodes // 32)
    path = pathlib.Path(folder) / f"{preset}-{nodes}.yaml"
    path.write_text(f"version: 1\nname: {preset}-{nodes}\ngpus_per_node: 8\ndevice: {device}\nintra_node_rate: {inside}\n"
                    f"fabric: {{fabric: leaf-spine, leaves: {leaves}, spines: {max(1, nodes // leaves // 2)}, "
                    f"hosts_per_leaf: {nodes // leaves}, host_rate: {rate}}}\n")
    return str(path)


def ask(weft, cluster, model, batch, sequence, framework):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    done = subprocess.run([weft, "plan", model, "--cluster", cluster, "--global-batch", str(batch), "--seq", str(sequence), "--output", "json",
                           *framework], capture_output=True, text=True, check=False)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{model} on {cluster}: {done.stderr[-400:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--framework")
    options = parser.parse_args()
    framework = ["--framework", options.framework] if options.framework else []
    proved = 0
    print("| model | GPUs | fabric | wall s | processor s | strategies | simulated | iteration s | gap |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for model, preset, nodes, batch, sequence, fabric in CASES:
            runs = [ask(options.weft, cluster_of(folder, preset, nodes, fabric), model, batch, sequence, framework) for _ in range(options.runs)]
            answer = runs[-1][2]
            search, best = answer["search"], answer["plans"][0]
            proved += best["gap"] == 0 and answer["complete"]
            print(f"| {model} | {8 * nodes} | {'2:1' if fabric else 'full'} | {statistics.median(r[0] for r in runs):.2f} | "
                  f"{statistics.median(r[1] for r in runs):.2f} | {search['strategies']} | {search['simulated']} | "
                  f"{best['predicted']['iteration_s']:.3f} | {'proved' if best['gap'] == 0 else format(best['gap'], '.2%')} |", flush=True)
    print(f"\n{proved} of {len(CASES)} proved", file=sys.stderr)


if __name__ == "__main__":
    main()
