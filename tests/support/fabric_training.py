"""Runs of weft-train on the hosts of a WeftCluster that no agent and no controller know of: a rank on each, over the fabric."""

import json
import os

from processes import check
from weft_cluster import BIN, PLUGIN, TEXT

GPT = {"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 8, "n_positions": 64, "vocab_size": 256, "n_inner": 256,
       "activation_function": "gelu_new"}


def environment():
    values = {key: value for key, value in os.environ.items() if not key.startswith(("WEFT_", "NCCL_"))}
    return {**values, "WEFT_RUN_DIR": "", "NCCL_SOCKET_IFNAME": "=eth0", "OMP_NUM_THREADS": "1"}


def train(cluster, name, hosts, arguments, timeout_s=300):
    """What rank 0 printed, one object a line; it ends when all ranks have."""
    processes = cluster.processes
    cluster.next_port += 1
    command = [BIN / "weft-train", *arguments, "--data", TEXT, "--output", "json", "--threads", 1, "--world", len(hosts), "--rendezvous",
               f"{cluster.host[hosts[0]]['mgmt_address']}:{cluster.next_port}", "--plugin", PLUGIN, "--stall-timeout", "120s"]
    children = [processes.start(f"{name}-rank{rank}", cluster.in_host(host, [*command, "--rank", rank]), env=environment(),
                                stdout_pipe=rank == 0) for rank, host in enumerate(hosts)]
    output, _ = children[0].communicate(timeout=timeout_s)
    for rank, child in enumerate(children):
        status = child.wait(60)
        check(status == 0, f"{name}: rank {rank} ended with {status}: {processes.log(f'{name}-rank{rank}')}")
        del processes.children[f"{name}-rank{rank}"]
    return [json.loads(line) for line in output.splitlines()]


def steps_of(lines):
    return [line for line in lines if "step" in line]
