"""What strategy_equality_test.py runs: models, machines, and a case for every row of the table in docs/train.md."""

BATCH = 8

MODELS = {
    "gpt": {"model_type": "gpt2", "n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 64, "vocab_size": 256, "n_inner": 64,
            "activation_function": "gelu_new"},
    "llama": {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 4,
              "intermediate_size": 48, "max_position_embeddings": 64, "vocab_size": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
              "tie_word_embeddings": False},
    "mixtral": {"model_type": "mixtral", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 4,
                "intermediate_size": 48, "max_position_embeddings": 64, "vocab_size": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                "tie_word_embeddings": False, "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02},
    "cnn": {"model_type": "weft-cnn3d", "input": {"channels": 2, "extent": [16, 8, 8]},
            "layers": [{"type": "convolution", "channels": 8, "kernel": 3},
                       {"type": "pooling", "kernel": 2, "stride": 2},
                       {"type": "convolution", "channels": 16, "kernel": 3, "stride": 2},
                       {"type": "convolution", "channels": 16, "kernel": [3, 1, 3], "bias": False},
                       {"type": "global_pooling"}, {"type": "dense", "channels": 256}]},
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
    # Tensor ranks in grids.
    case("2D tensor parallel, tp4", "gpt", quick=True, tp=4, micro_batch=2, tensor_mode="2d"),
    case("2D tensor parallel, tp4", "llama", tp=4, micro_batch=4, tensor_mode="2d"),
    case("2D tp4 dp2, ZeRO-1, full recomputation", "gpt", dp=2, tp=4, micro_batch=2, tensor_mode="2d", zero_stage=1, recompute="full"),
    case("2D tp4 dp2, ZeRO-3", "llama", dp=2, tp=4, micro_batch=2, tensor_mode="2d", zero_stage=3),
    case("2D tp4 pp2", "gpt", tp=4, pp=2, micro_batch=2, tensor_mode="2d"),
    case("2D tp4 pp2, ZB-H1, selective recomputation", "llama", tp=4, pp=2, micro_batch=2, tensor_mode="2d", schedule="zb-h1",
         recompute="selective"),
    case("2.5D tensor parallel, tp8 of depth 2", "gpt", tp=8, micro_batch=4, tensor_mode="2.5d", tensor_depth=2),
    case("2.5D tensor parallel, tp8 of depth 2", "llama", quick=True, tp=8, micro_batch=4, tensor_mode="2.5d", tensor_depth=2),
    case("3D tensor parallel, tp8", "gpt", quick=True, tp=8, micro_batch=4, tensor_mode="3d"),
    case("3D tensor parallel, tp8", "llama", tp=8, micro_batch=8, tensor_mode="3d", recompute="full"),
    # A 3D CNN, whose tensor ranks have a slab of every volume.
    case("one rank", "cnn", quick=True, micro_batch=2),
    case("data parallel", "cnn", quick=True, dp=2, micro_batch=2),
    case("data parallel", "cnn", dp=8),
    case("ZeRO-1", "cnn", dp=4, zero_stage=1),
    case("ZeRO-2", "cnn", dp=2, zero_stage=2),
    case("ZeRO-3", "cnn", quick=True, dp=3, batch=6, zero_stage=3),
    case("ZeRO-3, kept", "cnn", dp=2, zero_stage=3, keep_after_forward="true"),
    case("halo exchange", "cnn", quick=True, tp=2, micro_batch=2),
    case("halo exchange", "cnn", tp=4, micro_batch=4),
    case("halo exchange, GPipe", "cnn", tp=2, schedule="gpipe"),
    case("halo exchange, tp2 dp2", "cnn", quick=True, tp=2, dp=2, micro_batch=2),
    case("halo exchange, tp2 dp4, ZeRO-1", "cnn", tp=2, dp=4, zero_stage=1),
    case("halo exchange, tp4 dp2, hierarchical all-reduce", "cnn", tp=4, dp=2, per_node=4, data_sync="hierarchical"),
    case("halo exchange, tp2 dp2, 4 parameter servers", "cnn", tp=2, dp=2, data_sync="parameter-server"),
    replicas("bf16 gradients", "cnn", ["--gradient-wire", "bf16"], dp=4, gradient_wire="bf16"),
    case("halo exchange, tp2 dp2", "cnn", kind="fp32", quick=True, tp=2, dp=2, micro_batch=2),
    case("halo exchange", "cnn", kind="fp32", tp=4),
]
