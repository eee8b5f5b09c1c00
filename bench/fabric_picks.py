#!/usr/bin/env python3
"""What the fabric is worth to the choice of a strategy: `weft plan` on several fabrics of 256 nodes, beside the plan that it
makes without looking at them, priced on them.

usage: fabric_picks.py WEFT [MODEL ...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile

LEAVES, HOSTS_PER_LEAF, RATE = 16, 16, "3.2Tbit/s"
MODELS = {"gpt3-175b": (1536, 2048), "llama3-70b": (2048, 4096), "llama3-405b": (2048, 8192), "mixtral-8x22b": (2048, 4096),
          "deepseek-v3": (4096, 4096)}
INSIDE = "version: 1\nname: {name}\ngpus_per_node: 8\ndevice: h100-80\nintra_node_rate: 450GB/s\n"


def leaf_spine(spines):
    return (f"fabric: {{fabric: leaf-spine, leaves: {LEAVES}, spines: {spines}, hosts_per_leaf: {HOSTS_PER_LEAF}, "
            f"host_rate: {RATE}}}\n")


def links(cables, hosts):
    lines = [f"    - {{from: {a}, to: {b}, rate: {rate}}}\n" for a, b, rate in cables]
    return f"fabric:\n  fabric: links\n  hosts: [{', '.join(hosts)}]\n  links:\n{''.join(lines)}"


def fabrics():
    hosts = [f"h{h}" for h in range(1, LEAVES * HOSTS_PER_LEAF + 1)]
    rails = [(host, f"rail{rail}", "400Gbit/s") for host in hosts for rail in range(1, 9)]
    # 2:1, and the first leaf has lost six of its eight uplinks.
    damaged = [(host, f"leaf{index // HOSTS_PER_LEAF + 1}", RATE) for index, host in enumerate(hosts)]
    damaged += [(f"leaf{leaf}", f"spine{spine}", RATE) for leaf in range(1, LEAVES + 1) for spine in range(1, 9)
                if leaf > 1 or spine > 6]
    return {"1:1": leaf_spine(16), "2:1": leaf_spine(8), "4:1": leaf_spine(4), "8:1": leaf_spine(2),
            "rail-only": links(rails, hosts), "2:1, damaged": links(damaged, hosts)}


def plan(weft, model, cluster, *more):
    batch, sequence = MODELS[model]
    done = subprocess.run([weft, "plan", model, "--cluster", cluster, "--global-batch", str(batch), "--seq", str(sequence),
                           "--output", "json", *more], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{model} on {cluster}: {done.stderr[-400:]}")
    return json.loads(done.stdout)["plans"][0]


def short(strategy):
    return " ".join(f"{name}{strategy[name]}" for name in ("dp", "tp", "pp", "cp", "ep") if strategy[name] > 1)


def fixed(strategy):
    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)
    sizes = {"bucket_bytes": "B"}  # an amount wants a unit
    return ",".join(f"{name}={text(value)}{sizes.get(name, '')}" for name, value in strategy.items())


def main():
    weft, models = sys.argv[1], sys.argv[2:] or list(MODELS)
    never_worse = True
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, fabric in {"blind": f"nodes: {LEAVES * HOSTS_PER_LEAF}\nnic_rate: {RATE}\n", **fabrics()}.items():
            path = pathlib.Path(folder) / f"{len(paths)}.yaml"
            path.write_text(INSIDE.format(name=f"f{len(paths)}") + fabric)
            paths[name] = str(path)
        print("| model | fabric | pick | s | pick without looking | s there | costs | outermost tier of data |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for model in models:
            blind = plan(weft, model, paths["blind"])
            for name in list(paths)[1:]:
                own = plan(weft, model, paths[name])
                there = plan(weft, model, paths[name], "--framework", blind["framework"], "--fix", fixed(blind["strategy"]))
                mine, theirs = own["predicted"]["iteration_s"], there["predicted"]["iteration_s"]
                never_worse = never_worse and mine <= theirs * (1 + 1e-9)
                crosses = {use["kind"]: use["crosses"] for use in own["communicators"]}.get("data", "-")
                same = "the same" if own["strategy"] == blind["strategy"] else short(blind["strategy"])
                print(f"| {model} | {name} | {short(own['strategy'])} | {mine:.3f} | {same} | {theirs:.3f} | "
                      f"{100 * (theirs / mine - 1):+.1f} % | {crosses} |", flush=True)
    return 0 if never_worse else 1


if __name__ == "__main__":
    sys.exit(main())
