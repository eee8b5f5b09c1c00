"""Predicted against measured: strategies of small models on a fabric of network namespaces whose links are slow.

usage: prediction_test.py [--all [--every N [--first K]]] [--only TEXT] [--table] [--keep FOLDER]

The strategies are those of strategy_cases.py, with larger models. For each `weft plan` makes the program, `weft-train --calibrate` times its
computations in one process, and `weft-train --predict` says at which rate of the links, of those that `weft perf` has measured, the ranks
would wait for 30 to 60 % of the time. Then weft-train runs it, a rank on each host, with every computation stretched to a multiple of what
it takes alone: two cores run eight ranks, and a waiting rank would lend its core to another and hide every bubble. Compared are the median
iteration, the peak of tensors' memory on each rank, the bubbles of pipelines, and bytes. --table prints what docs/train.md has.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import strategy_cases
from weft_train import PLUGIN, PROGRAM, TEXT, check, environment
from processes import Failure, Processes, run_test, skip

BIN = os.environ["WEFT_BIN"]
WEFT, TESTBED = os.path.join(BIN, "weft"), os.path.join(BIN, "weft-testbed")
FABRIC, HOSTS = "prediction", 8
STEPS, SEQUENCE = 9, 64
RATES = [25, 50, 100, 200, 400, 800]  # Mbit/s of the links
SHARE = (0.3, 0.6)                    # of a step that ranks are to wait
NEAR, FAR, MEMORY_NEAR, BUBBLE_NEAR = 0.10, 0.20, 0.05, 0.15

MODELS = {
    "gpt": {**strategy_cases.MODELS["gpt"], "n_layer": 8, "n_embd": 128, "n_head": 8, "n_inner": 512},
    "llama": {**strategy_cases.MODELS["llama"], "num_hidden_layers": 8, "hidden_size": 128, "intermediate_size": 320},
    "mixtral": {**strategy_cases.MODELS["mixtral"], "hidden_size": 128, "intermediate_size": 192},
    "cnn": {"model_type": "weft-cnn3d", "input": {"channels": 2, "extent": [32, 16, 16]},
            "layers": [{"type": "convolution", "channels": 16, "kernel": 3}, {"type": "convolution", "channels": 16, "kernel": 3},
                       {"type": "pooling", "kernel": 2, "stride": 2},
                       {"type": "convolution", "channels": 32, "kernel": 3}, {"type": "convolution", "channels": 64, "kernel": 3},
                       {"type": "global_pooling"}, {"type": "dense", "channels": 256}]},
}
CLUSTER = """version: 1
name: prediction
nodes: {nodes}
gpus_per_node: 1
nics_per_node: 1
device: cpu
device_memory: {memory}
intra_node_rate: 10GB/s
nic_rate: {rate}bit/s
nic_latency: {latency}us
"""
# Each of so many layers and parameters more than strategy_cases.py's models that what operators decide needs other machines.
MEMORY = {"OSDP": "22MiB", "OSDP in slices": "18MiB", "OSDP dp2 pp2": "14MiB", "OSDP dp2 tp2": "10MiB", "OSDP dp2 cp2": "11MiB"}
LIMIT = "22MiB"
MEMORY |= {f"OSDP under {LIMIT}": LIMIT, f"ZeRO-3 under {LIMIT}": LIMIT, f"data parallel under {LIMIT}": LIMIT}
QUICK = {"data parallel", "ZeRO-3", "tensor and sequence parallel", "GPipe", "1F1B", "ZB-H1"}


def pipeline(name, **variables):
    """Four stages at a rate at which what lasts is the bubble of the schedule, and not the messages."""
    return {**strategy_cases.case(f"{name}, 4 stages", "gpt", pp=4, **variables), "rate": 400, "bubble": True}


def limited(name, **variables):
    """Two ranks that have LIMIT of memory."""
    return {**strategy_cases.case(f"{name} under {LIMIT}", "llama", dp=2, zero_stage=3, **variables), "rate": 100}


def cases():
    """Those of machines that are alike; each strategy once."""
    alike = [one for one in strategy_cases.CASES if "groups" not in one and one["type"] == "fp64"]
    return [*alike, *SCHEDULES, *LIMITED]


SCHEDULES = [pipeline("GPipe", schedule="gpipe"), pipeline("1F1B", schedule="1f1b"),
             pipeline("interleaved", schedule="interleaved", vpp=2), pipeline("ZB-H1", schedule="zb-h1"),
             pipeline("ZB-V", schedule="zb-v", vpp=2)]
LIMITED = [limited("OSDP", sharding="osdp"), limited("ZeRO-3")]


def call(command, what, **more):
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)
    check(ran.returncode == 0, f"{what} ended with {ran.returncode}: {ran.stderr[-600:]}")
    return ran.stdout


def sequence_of(one):
    return 1 if one["model"] == "cnn" else SEQUENCE  # a volume is one sample


def ranks_of(one):
    variables = one["variables"]
    return variables["dp"] * variables["tp"] * variables["pp"] * variables["cp"]


def stretch_of(world):
    """So that two cores are at most 60 % busy, communication included, and next to no computation takes longer."""
    return 16 if world <= 2 else 40 if world <= 4 else 80


class Fabric:
    """One leaf that blocks nobody, and a host for each rank. Ports serve hosts in turn, as the prediction has communicators share them."""

    def __init__(self):
        self.rate, self.hosts, self.links = None, [], {}

    def set(self, rate):
        if self.rate == rate:
            return
        self.down()
        command = [TESTBED, "up", "--id", FABRIC, "--leaves", "1", "--spines", "1", "--hosts-per-leaf", str(HOSTS), "--rate",
                   f"{rate}Mbit/s", "--grain", "250us", "--fair", "--output", "json"]
        self.hosts = json.loads(call(command, "weft-testbed up"))["hosts"]
        self.rate = rate

    def down(self):
        if self.rate is not None:
            subprocess.run([TESTBED, "down", FABRIC], capture_output=True, timeout=60, check=False)
        self.rate = None

    def inside(self, host, command):
        return ["ip", "netns", "exec", self.hosts[host]["namespace"], *command]

    def environment(self):
        return {**environment(), "NCCL_SOCKET_IFNAME": "=eth0"}

    def link(self, rate):
        """The link's curve: bytes per second of a long message, and what a short one takes. A middling one would not say: a part of it
        is what the port may send at once."""
        if rate not in self.links:
            self.set(rate)
            rendezvous = f"{self.hosts[0]['mgmt_address']}:29400"
            command = [WEFT, "perf", "--collective", "sendrecv", "--bytes", "8B,256KiB,1MiB", "--iterations", "15", "--world", "2",
                       "--rendezvous", rendezvous, "--plugin", PLUGIN, "--output", "json"]
            other = subprocess.Popen(self.inside(1, [*command, "--rank", "1"]), env=self.environment(), stdout=subprocess.DEVNULL)
            text = call(self.inside(0, [*command, "--rank", "0"]), "weft perf", env=self.environment())
            check(other.wait(60) == 0, f"weft perf of rank 1 ended with {other.returncode}")
            times = [row["time_us_median"] * 1e-6 for row in json.loads(text)["results"]]
            bytes_per_second = (2**20 - 2**18) / (times[2] - times[1])
            self.links[rate] = {"latency": times[0], "rate": 8 * bytes_per_second}
            print(f"{rate} Mbit/s: {8e-6 * bytes_per_second:.1f} Mbit/s of payload, {1e3 * self.links[rate]['latency']:.2f} ms", flush=True)
        return self.links[rate]


def write_cluster(path, one, link):
    with open(path, "w", encoding="utf-8") as out:
        out.write(CLUSTER.format(nodes=ranks_of(one), memory=MEMORY.get(one["name"], "4GiB"), rate=round(link["rate"]),
                                 latency=round(link["latency"] * 1e6, 1)))


def prepare(folder, index, one, fabric):
    """Program, calibration and cluster of a case, and the rate of its links."""
    paths = {name: os.path.join(folder, f"{index}-{name}.{kind}")
             for name, kind in (("program", "json"), ("calibration", "yaml"), ("cluster", "yaml"), ("trace", "json"))}
    paths["model"] = os.path.join(folder, f"{one['model']}.json")
    world = ranks_of(one)
    write_cluster(paths["cluster"], one, fabric.link(one.get("rate", RATES[-1])))
    fix = ",".join(f"{name}={value}" for name, value in {**one["variables"], "bucket_bytes": "1MiB"}.items())
    call([*planning(one, paths, fix), "--program", paths["program"]], f"{one['name']}: weft plan")
    call([PROGRAM, "--config", paths["model"], "--data", TEXT, "--plan", paths["program"], "--calibrate", paths["calibration"],
          "--steps", "12"], f"{one['name']}: calibrate", env=environment())
    # What was measured is what payload gets.
    with open(paths["calibration"], "a", encoding="utf-8") as out:
        out.write('  - {name: link.nic.efficiency, value: 1, least: 0.5, most: 1, fitted: true, source: "weft perf gives payload"}\n')
    return paths, rate_of(one, paths, fabric)


def planning(one, paths, fix):
    # What operators decide is searched for among what can be run.
    framework = "weft-train" if "sharding" in one["variables"] else "any"
    return [WEFT, "plan", paths["model"], "--cluster", paths["cluster"], "--global-batch", str(one["batch"]), "--seq",
            str(sequence_of(one)), "--gpus", str(ranks_of(one)), "--precision", "fp32", "--framework", framework, "--fix", fix, "--output", "json"]


def check_data_parallelism_does_not_fit(folder):
    """Under the limit under which OSDP and ZeRO-3 run."""
    one = {**limited("data parallel"), "model": "llama"}
    paths = {"model": os.path.join(folder, "llama.json"), "cluster": os.path.join(folder, "limited.yaml")}
    write_cluster(paths["cluster"], one, {"rate": 1e8, "latency": 1e-3})
    ran = subprocess.run(planning(one, paths, "dp=2,zero_stage=0"), capture_output=True, text=True, timeout=60, check=False)
    check(ran.returncode == 3 and "memory" in ran.stderr, f"data parallelism under {LIMIT}: {ran.returncode}, {ran.stderr}")


def predicted_share(one, paths, fabric, rate):
    """Of the step, mean of the ranks, that they would wait."""
    write_cluster(paths["cluster"], one, fabric.link(rate))
    line = call([*training(one, paths), "--predict"], f"{one['name']}: predict", env=environment())
    ranks = json.loads(line)["prediction"]["ranks"]
    return statistics.mean((r["exposed_communication_s"] + r["bubble_s"]) / r["iteration_s"] for r in ranks)


def rate_of(one, paths, fabric):
    """The rate at which the share is nearest the middle of what is asked for."""
    if "rate" in one or ranks_of(one) == 1:
        return one.get("rate", RATES[-1])
    middle = sum(SHARE) / 2
    return min(RATES, key=lambda rate: abs(predicted_share(one, paths, fabric, rate) - middle))


def training(one, paths):
    world = ranks_of(one)
    return [PROGRAM, "--config", paths["model"], "--data", TEXT, "--plan", paths["program"], "--steps", str(STEPS), "--output", "json",
            "--calibration", paths["calibration"], "--cluster", paths["cluster"],
            *(["--stretch", str(stretch_of(world))] if world > 1 else [])]


def run(processes, one, paths, rate, fabric):
    write_cluster(paths["cluster"], one, fabric.link(rate))
    fabric.set(rate)
    world = ranks_of(one)
    command = [*training(one, paths), "--world", str(world), "--stall-timeout", "60s", "--plugin", PLUGIN, "--trace", paths["trace"]]
    if world > 1:
        command += ["--rendezvous", f"{fabric.hosts[0]['mgmt_address']}:29401"]
    name = re.sub("[^a-z0-9]", "", one["name"].lower())
    children = [processes.start(f"{name}-rank{rank}", fabric.inside(rank, [*command, "--rank", str(rank)]), env=fabric.environment(),
                                stdout_pipe=rank == 0) for rank in range(world)]
    output, _ = children[0].communicate(timeout=300)
    for rank, child in enumerate(children):
        status = child.wait(60)
        check(status == 0, f"{one['name']}: rank {rank} ended with {status}: {processes.log(f'{name}-rank{rank}')}")
        del processes.children[f"{name}-rank{rank}"]
    return facts(one, world, rate, [json.loads(line) for line in output.splitlines()])


def facts(one, world, rate, lines):
    summary = lines[-1]["summary"]
    for volume in summary["volumes"]:
        check(volume["planned_bytes"] == volume["sent_bytes"], f"{one['name']}: not what the program says: {volume}")
    ranks = summary["ranks"]
    measured = statistics.median(line["iteration_s"] for line in lines[3:] if "step" in line)
    planned = ranks[0]["planned"]["iteration_s"]

    def mean(side, key):
        return statistics.mean(rank[side][key] for rank in ranks)

    waits = mean("planned", "exposed_communication_s") + mean("planned", "bubble_s")
    return {"name": one["name"], "model": one["model"], "world": world, "rate": f"{rate} Mbit/s", "measured": measured, "planned": planned,
            "error": planned / measured - 1,
            "memory": max((rank["planned"]["peak_bytes"] / rank["measured"]["peak_bytes"] - 1 for rank in ranks), key=abs),
            "peak": max(rank["measured"]["peak_bytes"] for rank in ranks),
            "bubble": mean("measured", "bubble_s"), "planned_bubble": mean("planned", "bubble_s"),
            "exposed": mean("measured", "exposed_communication_s"), "planned_exposed": mean("planned", "exposed_communication_s"),
            "busy": sum(rank["measured"]["busy"] for rank in ranks) / min(world, os.cpu_count()),
            "overruns": max(rank["measured"]["overruns"] for rank in ranks), "share": waits / planned,
            "is_bubble": one.get("bubble", False)}


def text_of(row):
    return (f"{row['name']} ({row['model']}, {row['world']} ranks, {row['rate']}): {1e3 * row['measured']:.1f} ms, predicted "
            f"{1e3 * row['planned']:.1f} ({100 * row['error']:+.1f} %); bubble {1e3 * row['bubble']:.1f} ms, predicted "
            f"{1e3 * row['planned_bubble']:.1f}; exposed {1e3 * row['exposed']:.1f} ms, predicted {1e3 * row['planned_exposed']:.1f}; peak "
            f"{row['peak']} bytes ({100 * row['memory']:+.1f} %); cores {100 * row['busy']:.0f} % busy, overruns {100 * row['overruns']:.1f} %")


def judge(rows, whole):
    """Facts about memory hold always; those about time are asserted with the whole list alone, which is run on a quiet machine."""
    for row in rows:
        check(abs(row["memory"]) <= MEMORY_NEAR, f"{row['name']}: peak memory is off by {row['memory']:+.3f}")
    if not whole:
        return
    several = [row for row in rows if row["world"] > 1]
    near = sum(abs(row["error"]) <= NEAR for row in rows)
    within = sum(SHARE[0] <= row["share"] <= SHARE[1] for row in several)
    print(f"{near} of {len(rows)} iterations within {NEAR}; ranks wait for {SHARE[0]} to {SHARE[1]} of the step in {within} of {len(several)}; "
          f"overruns of more than 1 % in {sum(row['overruns'] > 0.01 for row in several)}; "
          f"cores more than 60 % busy in {sum(row['busy'] > 0.6 for row in several)}")
    check(within >= 0.8 * len(several), f"only {within} of {len(several)} runs wait for {SHARE[0]} to {SHARE[1]} of the step")
    check(near >= 0.9 * len(rows), f"{near} of {len(rows)} iterations are within {NEAR}, expected nine of ten")
    for row in rows:
        check(abs(row["error"]) <= FAR, f"{row['name']}: the iteration is off by {row['error']:+.3f}")
        if row["is_bubble"]:
            off = row["planned_bubble"] / row["bubble"] - 1
            check(abs(off) <= BUBBLE_NEAR, f"{row['name']}: its bubble is off by {off:+.3f}")
    osdp, zero3 = (next(row for row in rows if row["name"] == one["name"]) for one in LIMITED)
    check(osdp["measured"] < zero3["measured"], f"OSDP takes {osdp['measured']:.3f} s, ZeRO-3 {zero3['measured']:.3f} s")
    gpipe, plain, interleaved, h1, v = (row["bubble"] / row["measured"] for row in rows if row["is_bubble"])
    check(min(gpipe, plain) > max(interleaved, h1) and min(interleaved, h1) > v,
          f"bubbles of {[row['name'] for row in rows if row['is_bubble']]} are not in the published order: {(gpipe, plain, interleaved, h1, v)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="with --all: every so many")
    parser.add_argument("--first", type=int, default=0, help="with --every: from this one on, so that runs one after the other have all of them")
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--keep", default="")
    options = parser.parse_args()
    if os.geteuid() != 0:
        skip("fabric", "network namespaces need root")
    chosen = [one for one in cases() if options.only in one["name"] and (options.all or options.only or one["name"] in QUICK)]
    chosen = [one for index, one in enumerate(chosen) if index % options.every == options.first or one in [*SCHEDULES, *LIMITED]]
    fabric = Fabric()
    rows, failures = {}, []
    with Processes() as processes, tempfile.TemporaryDirectory() as folder:
        folder = options.keep or folder
        for name, config in MODELS.items():
            with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as out:
                json.dump(config, out)
        try:
            check_data_parallelism_does_not_fit(folder)
            ready = []
            for index, one in enumerate(chosen):
                with going_on(failures, processes):
                    paths, rate = prepare(folder, index, one, fabric)
                    ready.append((rate, index, one, paths))
                    print(f"{index + 1} of {len(chosen)} prepared: {one['name']} ({one['model']}) at {rate} Mbit/s", flush=True)
            for rate, index, one, paths in sorted(ready, key=lambda each: each[:2]):
                with going_on(failures, processes):
                    rows[index] = run(processes, one, paths, rate, fabric)
                    print(text_of(rows[index]), flush=True)
        finally:
            fabric.down()
    rows = [rows[index] for index in sorted(rows)]
    if options.table:
        print_table(rows)
    check(not failures, f"{len(failures)} of {len(chosen)} did not run: {'; '.join(failures)}")
    judge(rows, options.all and not options.only)
    return 0


@contextlib.contextmanager
def going_on(failures, processes):
    """One case that fails does not take an hour's other measurements with it: its ranks are ended, and the test fails at its end."""
    try:
        yield
    except (Failure, subprocess.TimeoutExpired) as failure:
        failures.append(str(failure))
        print(f"failed: {failure}", flush=True)
        for child in processes.children.values():
            child.kill()
            child.wait()
        processes.children.clear()


def print_table(rows):
    print("\n| strategy | model | ranks | links | iteration, measured | predicted | waits | bubble | predicted | exposed | predicted | peak, predicted |"
          " cores busy | overruns |")
    print("| --- " * 14 + "|")
    for r in rows:
        print(f"| {r['name']} | {r['model']} | {r['world']} | {r['rate']} | {1e3 * r['measured']:.1f} ms | {100 * r['error']:+.1f} % | "
              f"{100 * r['share']:.0f} % | {1e3 * r['bubble']:.1f} ms | {1e3 * r['planned_bubble']:.1f} | {1e3 * r['exposed']:.1f} ms | "
              f"{1e3 * r['planned_exposed']:.1f} | {100 * r['memory']:+.1f} % | {100 * r['busy']:.0f} % | {100 * r['overruns']:.1f} % |")


if __name__ == "__main__":
    sys.exit(run_test(main))
