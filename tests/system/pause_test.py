#!/usr/bin/env python3
"""How long a change of strategy stops training: in memory, and by way of a checkpoint on a host behind the same fabric.

Four ranks on four hosts under two leaves; a fifth host keeps files. Both times training goes from dp=4 zero_stage=3 to dp=2 pp=2
zero_stage=1 between the same two steps. By way of a checkpoint: it is written, the processes end, each host puts its quarter of the
bytes to the fifth host over the fabric and gets its quarter back (under ZeRO that is what its rank keeps: every byte crosses once each
way), and processes start again from what came. The pause is the time from the end of the last step before to the begin of the first
step after. Once on the whole fabric and once with the only spine cut to a tenth, for two sizes of the model.
"""
import filecmp
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from fabric_training import GPT, environment, steps_of, train  # noqa: E402
from processes import check, run_test  # noqa: E402
from weft_cluster import BIN, WeftCluster, require_fabric  # noqa: E402

SEQUENCE, BATCH, SAVED, STEPS = 64, 32, 4, 8
LEAST_RATIO = 5
EXACTLY = "tp=1,micro_batch=2,sharding=uniform,recompute=none,bucket_bytes=1MiB,rank_order=tp-cp-ep-dp-pp"
BEFORE, AFTER = f"dp=4,pp=1,zero_stage=3,{EXACTLY}", f"dp=2,pp=2,zero_stage=1,schedule=1f1b,{EXACTLY}"
MODELS = {"0.2 M parameters": GPT, "0.8 M parameters": {**GPT, "n_embd": 128, "n_inner": 512}}
CLUSTER = """version: 1
name: pause
nodes: 4
gpus_per_node: 1
device: cpu
device_memory: 4GiB
intra_node_rate: 1GB/s
nic_rate: 60Mbit/s
nic_latency: 200us
"""
SERVER = os.path.join(os.environ["WEFT_SOURCE"], "tests", "support", "file_server.py")


class Bench:
    def __init__(self, cluster, model, folder):
        self.cluster, self.folder, self.runs = cluster, folder, 0
        self.ranks, self.keeper = [host for host in cluster.hosts if host not in (cluster.hosts[2], cluster.hosts[5])], cluster.hosts[2]
        self.model = self.write("model.json", json.dumps(MODELS[model]))
        machines = self.write("machines.yaml", CLUSTER)
        self.programs = {}
        for strategy in (BEFORE, AFTER):
            path = self.path(f"program{len(self.programs)}.json")
            subprocess.run([BIN / "weft", "plan", self.model, "--cluster", machines, "--global-batch", str(BATCH), "--seq", str(SEQUENCE),
                            "--gpus", "4", "--precision", "fp32", "--framework", "any", "--fix", strategy, "--program", path, "--output", "json"],
                           check=True, capture_output=True, timeout=120)
            self.programs[strategy] = path

    def path(self, name):
        return self.cluster.processes.path(self.folder, name)

    def write(self, name, text):
        return self.cluster.processes.write(f"{self.folder}/{name}", text)

    def run(self, *arguments):
        self.runs += 1
        return train(self.cluster, f"{self.folder}{self.runs}", self.ranks, ["--config", self.model, "--lr", "0.0003", *arguments], 600)

    def in_memory(self):
        phases = self.write("phases.txt", "".join(f"{step} {os.path.basename(self.programs[strategy])}\n"
                                                  for step, strategy in ((0, BEFORE), (SAVED, AFTER))))
        lines = self.run("--plans", phases, "--steps", str(STEPS))
        change = next(line["reshard"] for line in lines if "reshard" in line)
        check(change["sent_bytes"] == change["planned_bytes"], f"{change}")
        return steps_of(lines), change

    def files(self, way, folder):
        """A quarter by each host of a rank, all at once; the seconds that it took."""
        address = self.cluster.host[self.keeper]["data_address"]
        begin = time.monotonic()
        children = [subprocess.Popen(self.cluster.in_host(host, [sys.executable, SERVER, way, folder, address, 7100, part, len(self.ranks)]),
                                     env=environment()) for part, host in enumerate(self.ranks)]
        for child in children:
            check(child.wait(600) == 0, f"{way}: {child.returncode}")
        return time.monotonic() - begin

    def by_checkpoint(self):
        saved, kept, fetched = (self.path(f"{name}{self.runs}") for name in ("saved", "kept", "fetched"))
        for folder in (kept, fetched):
            os.makedirs(folder)
        address = self.cluster.host[self.keeper]["data_address"]
        self.cluster.processes.start_ready("keeper", self.cluster.in_host(self.keeper, [sys.executable, SERVER, "serve", kept, address, 7100]),
                                           env=environment())
        before = self.run("--plan", self.programs[BEFORE], "--steps", str(SAVED), "--checkpoint", saved, "--checkpoint-every", str(SAVED))
        ended = time.monotonic()
        put, get = self.files("put", saved), self.files("get", fetched)
        started = time.monotonic()
        after = self.run("--plan", self.programs[AFTER], "--steps", str(STEPS), "--resume", fetched)
        self.cluster.processes.stop("keeper")
        name = f"step-{SAVED:08d}"
        same, differ, missing = filecmp.cmpfiles(os.path.join(saved, name), os.path.join(fetched, name), os.listdir(os.path.join(saved, name)),
                                                 shallow=False)
        check(same and not differ and not missing, f"not what was saved came back: {differ} {missing}")
        write = next(line["checkpoint"] for line in before if "checkpoint" in line)
        steps = steps_of(before) + steps_of(after)
        first = steps[SAVED]
        parts = {"bytes": write["bytes"], "write_s": write["took_s"], "end_s": ended - steps[SAVED - 1]["time_s"] - write["took_s"],
                 "put_s": put, "get_s": get, "start_s": first["time_s"] - first["iteration_s"] - started}
        return steps, parts


def pause_of(steps):
    check([step["step"] for step in steps] == list(range(STEPS)), f"steps were lost: {steps}")
    return steps[SAVED]["time_s"] - steps[SAVED]["iteration_s"] - steps[SAVED - 1]["time_s"]


def compare(cluster, model, folder, fabric):
    bench = Bench(cluster, model, folder)
    moved, change = bench.in_memory()
    saved, parts = bench.by_checkpoint()
    worst = max(abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(moved, saved, strict=True))
    check(worst < 1e-4, f"the two ways do not train the same: {worst:.3g}")
    memory, disk = pause_of(moved), pause_of(saved)
    usual = statistics.median(step["iteration_s"] for step in moved[SAVED + 1:])
    print(f"{model}, {fabric}: in memory {memory:.2f} s ({change['sent_bytes']} bytes sent, {change['took_s']:.2f} s in all); by a checkpoint of "
          f"{parts['bytes']} bytes {disk:.2f} s (written in {parts['write_s']:.2f}, processes ended after {parts['end_s']:.2f}, put in "
          f"{parts['put_s']:.2f}, got in {parts['get_s']:.2f}, from the start to the first step {parts['start_s']:.2f}): "
          f"{disk / memory:.1f} times; a step takes {usual:.2f} s; losses within {worst:.1e}", flush=True)
    return disk / memory


def main():
    require_fabric()
    ratios = {}
    for model in MODELS:
        with WeftCluster(hosts_per_leaf=3, spines=1, rate="60Mbit/s", grain_us=250) as cluster:
            ratios[model, "whole"] = compare(cluster, model, "whole", "60 Mbit/s everywhere")
            for leaf in ("leaf1", "leaf2"):
                cluster.set_cable_rate(leaf, "spine1", 6)
            ratios[model, "cut"] = compare(cluster, model, "cut", "the spine cut to 6 Mbit/s")
    print("a change in memory is shorter by " + ", ".join(f"{ratio:.1f}" for ratio in ratios.values()) + f" times; wanted: {LEAST_RATIO}")


if __name__ == "__main__":
    run_test(main)
