"""Every strategy that weft-train executes learns what one process of plain LibTorch learns, and sends what its program says.

usage: strategy_equality_test.py [--all] [--only TEXT] [--table]

For each case `weft plan` makes the step program and weft-train executes it over the real plugin, 30 steps on the same text, seed and
global batch; losses are compared with LibTorch's autograd in one process (relative 1e-9 in fp64, 1e-4 in fp32), and the bytes that
the ranks handed to the plugin with those of the program, by communicator and operation, exactly. Without --all a part of the cases
runs. --table prints the table of docs/train.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from weft_train import PLUGIN, PROGRAM, TEXT, check, environment, losses, start_ranks, train
from processes import Failure, Processes

WEFT = os.path.join(os.environ["WEFT_BIN"], "weft")
STEPS = 30
TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4}
SEQUENCE, BATCH = 16, 8
TRAINING = ["--data", TEXT, "--steps", str(STEPS), "--lr", "0.003", "--warm-up", "5", "--decay", "30", "--least-lr", "0.0003",
            "--clip", "1", "--output", "json"]

MODELS = {
    "gpt": {"model_type": "gpt2", "n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 64, "vocab_size": 256, "n_inner": 64,
            "activation_function": "gelu_new"},
    "llama": {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 4,
              "intermediate_size": 48, "max_position_embeddings": 64, "vocab_size": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
              "tie_word_embeddings": False},
    "mixtral": {"model_type": "mixtral", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 4,
                "intermediate_size": 48, "max_position_embeddings": 64, "vocab_size": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                "tie_word_embeddings": False, "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02},
}

# What `weft plan` would otherwise choose by itself.
DEFAULTS = {"dp": 1, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "etp": 1, "vpp": 1, "micro_batch": 1, "zero_stage": 0, "shard_group": 0,
            "keep_after_forward": "false", "recompute": "none", "recompute_layers": -1, "sequence_parallel": "false",
            "schedule": "1f1b", "tensor_mode": "1d", "tensor_depth": 1, "context_mode": "ring", "data_sync": "ring",
            "rank_order": "tp-cp-ep-dp-pp", "sharding": "uniform", "gradient_wire": "whole", "local_steps": 1, "bucket_bytes": "16KiB"}


# Machines of which `memory` and `per_node` of a case are told: what operators decide, and sums in levels, depend on them.
MACHINES = """version: 1
name: small
nodes: {nodes}
gpus_per_node: {per_node}
device: cpu
device_memory: {memory}
intra_node_rate: 10GB/s
nic_rate: 1Gbit/s
"""


# Machines that are not alike, in groups.
GROUP = """  - name: group{index}
    nodes: 1
    gpus_per_node: {gpus}
    device: {device}
    intra_node_rate: 300GB/s
    nic_rate: 400Gbit/s
"""


def case(name, model, kind="fp64", quick=False, batch=BATCH, memory="1GiB", per_node=8, **variables):
    return {"name": name, "model": model, "type": kind, "quick": quick, "batch": batch, "memory": memory, "per_node": per_node,
            "variables": {**DEFAULTS, **variables}}


def replicas(name, model, how, **more):
    """Training that is another one with replicas; `how`: what the one process is told of them."""
    made = case(name, model, **more)
    return {**made, "replicas": ["--replicas", str(made["variables"]["dp"]), *how]}


def osdp(name, model, decisions, **more):
    """Sharding per operator; `decisions`: what the plan must have decided, so that the row shows it."""
    return {**case(name, model, zero_stage=3, sharding="osdp", **more), "decisions": decisions}


def unequal(name, model, groups, shares, **more):
    """Groups of machines, each with so many GPUs of a device, and `shares`: how the plan must have cut the batch."""
    made = case(name, model, **more)
    del made["variables"]["dp"]  # each group's own
    return {**made, "groups": groups, "shares": shares}


def through(name, model, groups, layers, **more):
    """One pipeline through groups of machines; `layers`: of their stages."""
    made = case(name, model, **more)
    del made["variables"]["bucket_bytes"]  # the planner's own
    return {**made, "groups": groups, "shares": [made["batch"]] * len(groups), "layers": layers}


CASES = [
    case("one rank", "gpt", quick=True, micro_batch=2),
    case("one rank", "llama", quick=True, micro_batch=8),
    # Each strategy alone.
    case("data parallel", "gpt", quick=True, dp=2, micro_batch=2),
    case("data parallel", "llama", dp=4),
    case("data parallel, one bucket", "gpt", dp=2, bucket_bytes="64MiB"),
    case("ZeRO-1", "gpt", quick=True, dp=3, batch=6, zero_stage=1),
    case("ZeRO-2", "gpt", quick=True, dp=2, zero_stage=2),
    case("ZeRO-2", "llama", dp=4, zero_stage=2),
    case("ZeRO-3", "gpt", quick=True, dp=2, zero_stage=3),
    case("ZeRO-3", "llama", dp=3, batch=6, zero_stage=3),
    case("ZeRO-3, kept", "llama", quick=True, dp=2, zero_stage=3, keep_after_forward="true"),
    case("tensor parallel", "gpt", quick=True, tp=2, micro_batch=2),
    case("tensor parallel", "llama", tp=4, micro_batch=4),
    case("tensor and sequence parallel", "gpt", quick=True, tp=2, micro_batch=2, sequence_parallel="true"),
    case("tensor and sequence parallel", "llama", tp=4, micro_batch=2, sequence_parallel="true"),
    case("GPipe", "gpt", pp=2, schedule="gpipe"),
    case("1F1B", "gpt", quick=True, pp=2, schedule="1f1b"),
    case("1F1B", "llama", pp=4, schedule="1f1b"),
    case("eager 1F1B", "llama", pp=3, schedule="eager-1f1b"),
    case("interleaved", "gpt", quick=True, pp=2, vpp=2, schedule="interleaved"),
    case("ZB-H1", "llama", pp=3, schedule="zb-h1"),
    case("ZB-H2", "gpt", pp=3, schedule="zb-h2"),
    case("ZB-V", "gpt", quick=True, pp=2, vpp=2, schedule="zb-v"),
    case("ZB-V", "llama", pp=2, vpp=2, schedule="zb-v"),
    case("selective recomputation", "gpt", recompute="selective"),
    case("full recomputation", "llama", quick=True, recompute="full"),
    case("full recomputation of 2 layers", "gpt", recompute="full", recompute_layers=2),
    # Compositions.
    case("dp2 tp2 pp2", "gpt", quick=True, dp=2, tp=2, pp=2),
    case("dp2 tp2 pp2", "llama", dp=2, tp=2, pp=2, rank_order="tp-cp-pp-dp"),
    case("dp2 tp2 pp2, sequence parallel", "gpt", dp=2, tp=2, pp=2, sequence_parallel="true"),
    case("dp2 tp2, ZeRO-1, sequence parallel", "llama", dp=2, tp=2, zero_stage=1, sequence_parallel="true"),
    case("dp2 tp2, ZeRO-2", "gpt", dp=2, tp=2, zero_stage=2),
    case("dp2 tp2, ZeRO-3", "llama", dp=2, tp=2, zero_stage=3),
    case("dp4 tp2, ZeRO-3, full recomputation", "gpt", dp=4, tp=2, zero_stage=3, recompute="full"),
    case("dp2 pp2, ZeRO-1", "gpt", dp=2, pp=2, zero_stage=1),
    case("dp2 pp2, ZeRO-2", "llama", dp=2, pp=2, zero_stage=2),
    case("dp2 pp2, ZeRO-3 kept", "gpt", dp=2, pp=2, zero_stage=3, keep_after_forward="true"),
    case("dp2 pp2, ZeRO-2, ZB-H1", "gpt", dp=2, pp=2, zero_stage=2, schedule="zb-h1"),
    case("dp2 pp2, ZeRO-2, interleaved", "llama", dp=2, pp=2, vpp=2, zero_stage=2, schedule="interleaved"),
    case("dp2 pp4, ZeRO-1, ZB-H2", "llama", dp=2, pp=4, zero_stage=1, schedule="zb-h2"),
    case("ZB-V tp2", "llama", quick=True, tp=2, pp=2, vpp=2, schedule="zb-v"),
    case("ZB-V dp2 tp2, sequence parallel", "gpt", dp=2, tp=2, pp=2, vpp=2, schedule="zb-v", sequence_parallel="true"),
    case("tp2 pp2, interleaved, full recomputation", "llama", tp=2, pp=2, vpp=2, schedule="interleaved", recompute="full"),
    case("tp2 pp2, selective recomputation, GPipe", "gpt", tp=2, pp=2, schedule="gpipe", recompute="selective"),
    case("tp4 pp2, sequence parallel, full recomputation", "llama", tp=4, pp=2, micro_batch=2, sequence_parallel="true", recompute="full"),
    # Replicated, kept, sharded, in slices, as each operator's plan says.
    osdp("OSDP", "llama", ["replicated", "kept", "head in 2 slices"], dp=2, per_node=1, memory="700KiB"),
    osdp("OSDP in slices", "llama", ["1 of 4 slices sharded, kept", "4 of 4 slices sharded", "head in 4 slices"], quick=True, dp=2,
         memory="520KiB"),
    osdp("OSDP dp2 pp2", "gpt", ["kept", "sharded"], dp=2, pp=2, memory="410KiB"),
    osdp("OSDP dp2 tp2", "llama", ["kept", "sharded"], dp=2, tp=2, memory="340KiB"),
    # State shared within groups of replicas; sums in levels, and on servers.
    case("shard groups of 2, ZeRO-1", "gpt", dp=4, zero_stage=1, shard_group=2),
    case("shard groups of 2, ZeRO-2", "llama", dp=4, zero_stage=2, shard_group=2),
    case("shard groups of 2, ZeRO-3", "gpt", quick=True, dp=4, zero_stage=3, shard_group=2),
    case("shard groups of 2, ZeRO-3, tp2", "llama", dp=4, tp=2, zero_stage=3, shard_group=2),
    case("shard groups of 2, ZeRO-3 kept, pp2", "gpt", dp=4, pp=2, zero_stage=3, shard_group=2, keep_after_forward="true"),
    {**case("tree all-reduce", "gpt", dp=4, per_node=1, bucket_bytes="1KiB"), "sums": "tree"},
    {**case("tree all-reduce, tp2", "llama", dp=4, tp=2, per_node=2, bucket_bytes="1KiB"), "sums": "tree"},
    case("hierarchical all-reduce", "gpt", dp=4, per_node=2, data_sync="hierarchical"),
    case("hierarchical all-reduce, tp2", "llama", dp=4, tp=2, per_node=4, data_sync="hierarchical"),
    case("2 parameter servers", "gpt", dp=2, data_sync="parameter-server"),
    case("4 parameter servers", "llama", quick=True, dp=4, per_node=1, data_sync="parameter-server"),
    case("2 parameter servers, tp2 pp2", "gpt", dp=2, tp=2, pp=2, data_sync="parameter-server"),
    case("dp2 tp2, ZeRO-2, sequence parallel", "gpt", dp=2, tp=2, zero_stage=2, sequence_parallel="true"),
    case("dp2 tp2, ZeRO-3, sequence parallel", "llama", dp=2, tp=2, zero_stage=3, sequence_parallel="true"),
    case("dp2 tp2, ZeRO-3, sequence parallel, full recomputation", "gpt", dp=2, tp=2, zero_stage=3, sequence_parallel="true", recompute="full"),
    case("dp2 tp2 pp2, ZeRO-2, sequence parallel, interleaved", "gpt", dp=2, tp=2, pp=2, vpp=2, zero_stage=2, sequence_parallel="true",
         schedule="interleaved"),
    # Machines that are not alike have a share of the batch that matches their speed.
    unequal("unequal shares, 2 + 2 replicas", "gpt", [(2, "v100-32"), (2, "cpu")], [8, 4], quick=True, batch=12),
    unequal("unequal shares, 2 + 1 replicas", "llama", [(2, "v100-32"), (1, "cpu")], [10, 2], batch=12),
    unequal("unequal shares, ZeRO-1, tp2", "llama", [(4, "v100-32"), (4, "cpu")], [8, 4], batch=12, tp=2, zero_stage=1),
    unequal("unequal shares, pp2", "gpt", [(4, "v100-32"), (4, "cpu")], [8, 4], batch=12, pp=2),
    through("pipeline through unlike groups", "gpt", [(1, "v100-32"), (1, "cpu")], [[3], [1]], quick=True, pp=2),
    through("pipeline through unlike groups, dp2, ZeRO-1", "llama", [(4, "v100-32"), (2, "cpu")], [[1, 2], [1]], dp=2, pp=3, zero_stage=1),
    through("pipeline through unlike groups, tp2", "gpt", [(2, "v100-32"), (2, "cpu")], [[3], [1]], tp=2, pp=2,
            sequence_parallel="true"),
    # What is not the same training: one process works out what replicas learn.
    replicas("local steps", "gpt", ["--local-steps", "3"], quick=True, dp=2, local_steps=3),
    replicas("local steps, tp2 pp2", "llama", ["--local-steps", "4"], dp=2, tp=2, pp=2, local_steps=4),
    replicas("gossip", "gpt", ["--gossip"], dp=4, per_node=1, data_sync="gossip"),
    replicas("gossip, pp2", "llama", ["--gossip"], dp=3, pp=2, per_node=1, batch=6, data_sync="gossip"),
    replicas("bf16 gradients", "gpt", ["--gradient-wire", "bf16"], quick=True, dp=4, gradient_wire="bf16"),
    replicas("bf16 gradients, tp2 pp2", "llama", ["--gradient-wire", "bf16"], dp=2, tp=2, pp=2, gradient_wire="bf16"),
    {**case("fp8 gradients with error feedback", "gpt", dp=2, gradient_wire="fp8"), "near": 1e-3},
    {**case("fp8 gradients with error feedback, ZeRO-1, tp2", "llama", dp=2, tp=2, zero_stage=1, gradient_wire="fp8"), "near": 1e-3},
    # Mixture of experts.
    case("experts on one rank", "mixtral", micro_batch=2),
    case("expert parallel, ep2", "mixtral", dp=2, ep=2),
    case("expert parallel, ep8", "mixtral", dp=8, ep=8),
    case("ep4 dp8", "mixtral", dp=8, ep=4),
    case("ep4 dp4, micro-batches of 2", "mixtral", dp=4, ep=4, micro_batch=2),
    case("ep2 tp2, experts whole", "mixtral", dp=2, tp=2, ep=2, micro_batch=2),
    case("ep2 etp2 tp2", "mixtral", dp=2, tp=2, ep=2, etp=2),
    case("ep2 etp2 tp2 dp4, sequence parallel", "mixtral", dp=4, tp=2, ep=2, etp=2, sequence_parallel="true"),
    case("ep4 tp2 dp2, sequence parallel", "mixtral", dp=2, tp=2, ep=4, sequence_parallel="true"),
    case("experts split by tensor, dp4 etp2", "mixtral", dp=4, etp=2),
    case("tp2, experts on both ranks", "mixtral", tp=2, micro_batch=2),
    case("ep2 pp2", "mixtral", dp=2, pp=2, ep=2),
    case("ep2 pp2, GPipe", "mixtral", dp=2, pp=2, ep=2, schedule="gpipe"),
    case("ep2 pp2, interleaved", "mixtral", dp=2, pp=2, vpp=2, ep=2, schedule="interleaved"),
    case("ep2 pp2, ZB-H1", "mixtral", dp=2, pp=2, ep=2, schedule="zb-h1"),
    case("ep2 pp2, ZB-V", "mixtral", dp=2, pp=2, vpp=2, ep=2, schedule="zb-v"),
    case("ep2 etp2 tp2 pp2 dp2", "mixtral", quick=True, dp=2, tp=2, pp=2, ep=2, etp=2),
    case("ep2 dp4, ZeRO-1", "mixtral", quick=True, dp=4, ep=2, zero_stage=1),
    case("ep4 dp2 tp2, ZeRO-1, sequence parallel", "mixtral", dp=2, tp=2, ep=4, zero_stage=1, sequence_parallel="true"),
    case("ep2 dp4 pp2, ZeRO-1", "mixtral", dp=4, pp=2, ep=2, zero_stage=1),
    case("ep2 dp4, ZeRO-2", "mixtral", quick=True, dp=4, ep=2, zero_stage=2),
    case("ep2 dp4, ZeRO-3", "mixtral", dp=4, ep=2, zero_stage=3),
    case("ep2 dp4, ZeRO-3, full recomputation", "mixtral", dp=4, ep=2, zero_stage=3, recompute="full"),
    case("ep2 etp2 tp2 dp4, ZeRO-3, sequence parallel", "mixtral", dp=4, tp=2, ep=2, etp=2, zero_stage=3, sequence_parallel="true"),
    case("ep2 tp2 dp2, ZeRO-2", "mixtral", dp=2, tp=2, ep=2, zero_stage=2),
    case("ep2 dp4 pp2, ZeRO-2, interleaved", "mixtral", dp=4, pp=2, vpp=2, ep=2, zero_stage=2, schedule="interleaved"),
    case("ep2 dp4 pp2, ZeRO-3 kept, ZB-V", "mixtral", dp=4, pp=2, vpp=2, ep=2, zero_stage=3, keep_after_forward="true", schedule="zb-v"),
    case("ep2 dp4, full recomputation", "mixtral", dp=4, ep=2, recompute="full"),
    case("ep2 dp2, selective recomputation", "mixtral", dp=2, ep=2, recompute="selective"),
    # Context parallelism.
    case("ring attention", "llama", quick=True, cp=2, micro_batch=2),
    case("ring attention", "gpt", cp=4),
    case("attention with gathered keys", "gpt", quick=True, cp=2, context_mode="all-gather"),
    case("attention with gathered keys", "llama", cp=4, context_mode="all-gather", micro_batch=2),
    case("Ulysses", "llama", quick=True, cp=2, context_mode="ulysses", micro_batch=2),
    case("Ulysses", "gpt", cp=4, context_mode="ulysses"),
    case("cp2 tp2 dp2", "llama", cp=2, tp=2, dp=2),
    case("cp2 tp2 dp2, gathered keys, sequence parallel", "gpt", cp=2, tp=2, dp=2, context_mode="all-gather", sequence_parallel="true"),
    case("cp2 tp2 dp2, Ulysses, sequence parallel", "llama", cp=2, tp=2, dp=2, context_mode="ulysses", sequence_parallel="true"),
    case("cp2 pp2", "gpt", cp=2, pp=2),
    case("cp2 pp2, ZB-V", "llama", cp=2, pp=2, vpp=2, schedule="zb-v"),
    case("cp2 pp2, interleaved, gathered keys, full recomputation", "gpt", cp=2, pp=2, vpp=2, schedule="interleaved",
         context_mode="all-gather", recompute="full"),
    case("cp2 pp2 tp2, Ulysses, selective recomputation", "llama", cp=2, pp=2, tp=2, context_mode="ulysses", recompute="selective"),
    case("cp4, full recomputation", "llama", cp=4, recompute="full"),
    case("cp2 dp2, ZeRO-1", "gpt", cp=2, dp=2, zero_stage=1),
    case("cp2 dp2, ZeRO-2, gathered keys", "llama", cp=2, dp=2, zero_stage=2, context_mode="all-gather"),
    case("cp4 dp2, ZeRO-3", "llama", cp=4, dp=2, zero_stage=3),
    osdp("OSDP dp2 cp2", "llama", ["kept", "sharded"], dp=2, cp=2, memory="450KiB"),
    case("shard groups of 2, ZeRO-3, dp2 cp2", "gpt", dp=2, cp=2, zero_stage=3, shard_group=2),
    case("shard groups of 2, ZeRO-2, dp2 cp4, gathered keys", "llama", dp=2, cp=4, zero_stage=2, shard_group=2, context_mode="all-gather"),
    case("cp2 pp2 dp2, ZeRO-3 kept, Ulysses", "gpt", cp=2, pp=2, dp=2, zero_stage=3, keep_after_forward="true", context_mode="ulysses"),
    case("cp2 dp2 ep4", "mixtral", cp=2, dp=2, ep=4),
    case("cp2 tp2 ep2 pp2", "mixtral", cp=2, tp=2, ep=2, pp=2),
    # Single precision.
    case("cp2 tp2 dp2", "llama", kind="fp32", cp=2, tp=2, dp=2),
    case("ep4 dp8", "mixtral", kind="fp32", dp=8, ep=4),
    case("dp2 tp2 pp2", "gpt", kind="fp32", dp=2, tp=2, pp=2),
    case("dp4, ZeRO-3", "llama", kind="fp32", dp=4, zero_stage=3),
    case("ZB-V tp2", "gpt", kind="fp32", quick=True, tp=2, pp=2, vpp=2, schedule="zb-v"),
]


def ranks_of(one):
    variables = one["variables"]
    if "groups" in one:
        return sum(gpus for gpus, _ in one["groups"])
    return variables["dp"] * variables["tp"] * variables["pp"] * variables["cp"]


def machines_of(one):
    """The cluster file of a case."""
    if "groups" not in one:
        return MACHINES.format(nodes=-(-ranks_of(one) // one["per_node"]), per_node=one["per_node"], memory=one["memory"])
    groups = [GROUP.format(index=index, gpus=gpus, device=device) for index, (gpus, device) in enumerate(one["groups"])]
    return "version: 1\nname: unlike\ngroups:\n" + "".join(groups)


def decisions_of(operators):
    """How operators are held: "replicated", "kept", "sharded", "3 of 4 slices sharded, kept", "head in 2 slices"."""
    decided = set()
    for stage in operators.get("stages", []):
        if stage.get("head_slices", 1) > 1:
            decided.add(f"head in {stage['head_slices']} slices")
        for operator in (run[name] for run in stage["layers"] for name in ("attention", "mlp")):
            rest = next((way for way in ("kept", "replicated") if operator[way] > 0), "")
            if operator["slices"] == 1:
                decided.add(rest or "sharded")
            else:
                decided.add(f"{operator['sharded']} of {operator['slices']} slices sharded" + (f", {rest}" if rest else ""))
    return decided


def plan(folder, one):
    """The case's step program, and what `weft plan` says of the strategy."""
    path = os.path.join(folder, "program.json")
    fix = ",".join(f"{name}={value}" for name, value in one["variables"].items())
    ranks = ranks_of(one)
    cluster = os.path.join(folder, "cluster.yaml")
    with open(cluster, "w", encoding="utf-8") as out:
        out.write(machines_of(one))
    command = [WEFT, "plan", os.path.join(folder, f"{one['model']}.json"), "--cluster", cluster, "--global-batch", str(one["batch"]),
               "--seq", str(SEQUENCE), "--gpus", str(ranks), "--precision", "fp32", "--framework", "any", "--fix", fix,
               "--program", path, "--program-type", one["type"], "--output", "json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    check(ran.returncode == 0, f"{one['name']}: weft plan ended with {ran.returncode}: {ran.stderr}")
    best = json.loads(ran.stdout)["plans"][0]
    shares = [group["sequences"] for group in best.get("groups", [])]
    check(shares == one.get("shares", []), f"{one['name']}: shares of the batch {shares}")
    layers = [group["stage_layers"] for group in best.get("groups", [])]
    check("layers" not in one or layers == one["layers"], f"{one['name']}: stages of {layers} layers")
    decided = decisions_of(best.get("operators", {}))
    if "sums" in one:
        with open(path, encoding="utf-8") as source:
            sums = {of["sums"] for of in json.load(source)["communicators"] if "sums" in of}
        check(sums == {one["sums"]}, f"{one['name']}: sums by {sums}")
    missing = set(one.get("decisions", ())) - decided
    check(not missing, f"{one['name']}: no operator is {sorted(missing)}: {sorted(decided)}")
    return path


def reference(processes, folder, one, path, known):
    """Losses of one process without a program: LibTorch's autograd and optimizer. Experts there drop the tokens that they drop
    under the program at `path`."""
    routed = one["model"] == "mixtral"
    groups = [one["variables"][name] for name in ("micro_batch", "cp", "tp")] if routed else []
    more = one.get("replicas", [])
    key = (one["model"], one["batch"], one["type"], *groups, *more)
    if key not in known:
        arguments = ["--config", os.path.join(folder, f"{one['model']}.json"), "--seq", str(SEQUENCE), "--global-batch", str(one["batch"]),
                     "--type", one["type"], *(["--capacity-of", path] if routed else []), *more, *TRAINING]
        known[key] = losses(train(processes, f"plain-{len(known)}", 1, arguments))
        check(len(known[key]) == STEPS and known[key][-1] < known[key][0] - 0.5, f"the plain run does not learn: {known[key]}")
    return known[key]


def run(processes, folder, index, one, known):
    """One case; its row of the table."""
    path = plan(folder, one)
    expected = reference(processes, folder, one, path, known)
    arguments = ["--config", os.path.join(folder, f"{one['model']}.json"), "--plan", path, *TRAINING]
    world = ranks_of(one)
    lines = train(processes, f"case{index}", world, arguments)
    name = f"{one['name']} ({one['model']}, {one['type']}, {world} ranks)"
    own = losses(lines)
    worst = max(abs(a - b) / abs(b) for a, b in zip(own, expected, strict=True))
    # Scales of fp8 depend on how parameters lie: no process without a program has them, and what it learns is held against the whole.
    tolerance = one.get("near", TOLERANCE[one["type"]])
    check(worst <= tolerance, f"{name}: losses differ by {worst:.3g}, expected at most {tolerance}: {own[:3]} {expected[:3]}")
    summary = lines[-1]["summary"]
    check(world == 1 or summary["volumes"], f"{name}: several ranks sent nothing")
    for volume in summary["volumes"]:
        same = volume["planned_bytes"] == volume["sent_bytes"] and volume["planned_calls"] == volume["calls"]
        check(same, f"{name}: not what the program says: {volume}")
    sent = sum(volume["sent_bytes"] for volume in summary["volumes"])
    row = (one["name"], one["model"], one["type"], world, f"{worst:.1e}", sent // STEPS)
    print(f"{name}: losses within {worst:.1e}, {sent} bytes as planned", flush=True)
    return row


def check_refusals(processes, folder):
    """A program for another model, another world, or not a program at all: one clear line, no hang."""
    path = plan(folder, case("refusals", "gpt"))
    alone = os.path.join(folder, "alone.json")
    os.rename(path, alone)
    path = plan(folder, case("refusals", "gpt", dp=2))
    with open(os.path.join(folder, "broken.json"), "w", encoding="utf-8") as out:
        out.write(open(path, encoding="utf-8").read()[:-100])
    for what, arguments, expected in (
            ("another model", ["--config", os.path.join(folder, "llama.json"), "--plan", alone], "expected the model's"),
            ("another world", ["--config", os.path.join(folder, "gpt.json"), "--plan", path], "made for 2 ranks, this run has 1"),
            ("a cut file", ["--config", os.path.join(folder, "gpt.json"), "--plan", os.path.join(folder, "broken.json")], "parse error"),
            ("no file", ["--config", os.path.join(folder, "gpt.json"), "--plan", os.path.join(folder, "none.json")], "none.json")):
        ran = subprocess.run([PROGRAM, *arguments, *TRAINING], env=environment(), capture_output=True, text=True, timeout=60, check=False)
        lines = ran.stderr.strip().splitlines()
        check(ran.returncode not in (0, None) and len(lines) == 1 and expected in lines[0], f"{what}: {ran.returncode}, {ran.stderr}")


def check_it_notices(processes, folder, known):
    """A list that leaves a small sum out (of the norms' gradients over split rows) learns something else, and the comparison sees it."""
    one = case("left out", "gpt", tp=2, micro_batch=2, sequence_parallel="true")
    path = plan(folder, one)
    with open(path, encoding="utf-8") as source:
        program = json.load(source)
    for ranks in program["classes"]:
        over = [program["communicators"][i["over"]]["kind"] if "over" in i else "" for i in ranks["instructions"]]
        gone = [k for k, i in enumerate(ranks["instructions"]) if "unit" in i and over[k] == "tensor"]
        check(gone, "the norms' gradients are not summed")
        for k in gone:
            ranks["instructions"][k] = {"do": "release", "unit": ranks["instructions"][k]["unit"]}
        for i in ranks["instructions"]:
            i["needs"] = [need for need in i.get("needs", []) if need not in gone]
    with open(path, "w", encoding="utf-8") as out:
        json.dump(program, out)
    lines = train(processes, "left-out", 2, ["--config", os.path.join(folder, "gpt.json"), "--plan", path, *TRAINING])
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses(lines), reference(processes, folder, one, path, known), strict=True))
    check(worst > 1e3 * TOLERANCE["fp64"], f"a sum was left out, and the losses differ by {worst:.3g} only")


def check_ranks_agree(processes, folder):
    """One rank has the list of another schedule: nobody trains, and all say whose program differs."""
    paths = []
    for schedule in ("1f1b", "gpipe"):
        path = plan(folder, case("agree", "gpt", pp=2, schedule=schedule))
        paths.append(os.path.join(folder, f"{schedule}.json"))
        os.rename(path, paths[-1])
    arguments = ["--config", os.path.join(folder, "gpt.json"), *TRAINING]
    children = start_ranks(processes, "agree", 2, arguments, by_rank={rank: ["--plan", paths[rank]] for rank in (0, 1)})
    for rank, child in enumerate(children):
        status, log = child.wait(60), processes.log(f"agree-rank{rank}")
        check(status == 2 and "ranks were started differently" in log and log.count("program ") >= 2, f"rank {rank}: {status}, {log}")


def check_a_rank_dies(processes, folder):
    """kill -9 of one rank of eight: every other one ends with status 1 and a line that names instruction and peer."""
    path = plan(folder, case("dies", "gpt", dp=2, tp=2, pp=2))
    arguments = ["--config", os.path.join(folder, "gpt.json"), "--plan", path, *TRAINING]
    arguments[arguments.index("--steps") + 1] = "1000000"
    children = start_ranks(processes, "dies", 8, arguments)
    for line in children[0].stdout:
        if '"step"' in line:
            break
    children[5].kill()
    begin = time.monotonic()
    for rank, child in enumerate(children):
        if rank == 5:
            continue
        if child.stdout:
            child.stdout.read()
        status, log = child.wait(100), processes.log(f"dies-rank{rank}").strip()
        check(status == 1 and f"weft-train: rank {rank}: step " in log and log.count("rank") >= 2, f"rank {rank}: {status}, {log}")
    print(f"seven ranks ended {time.monotonic() - begin:.1f} s after the eighth was killed")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    check(os.path.exists(PLUGIN), f"{PLUGIN} is not built")
    chosen = [one for one in CASES if (options.all or options.only or one["quick"]) and options.only in f"{one['name']} {one['model']}"]
    rows, known = [], {}
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        for name, config in MODELS.items():
            with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as out:
                json.dump(config, out)
        check_refusals(processes, folder)
        check_ranks_agree(processes, folder)
        check_a_rank_dies(processes, folder)
        check_it_notices(processes, folder, known)
        for index, one in enumerate(chosen):
            rows.append(run(processes, folder, index, one, known))
    if options.table:
        print("\n| strategy | model | type | ranks | largest relative difference of a loss | bytes sent per step, as planned |")
        print("| --- | --- | --- | --- | --- | --- |")
        for row in rows:
            print("| " + " | ".join(map(str, row)) + " |")
    print(f"{len(rows)} strategies learn what one process learns, and send what their programs say")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"strategy_equality_test: {failure}")
