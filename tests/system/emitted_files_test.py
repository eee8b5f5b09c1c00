#!/usr/bin/env python3
"""What `weft plan --emit` prints is read by the parsers of its targets: sh, TOML, JSON, KEY=VALUE lines, and Megatron-LM's
rules for option words and pipeline layouts. Broken models and clusters are one line on stderr and status 2."""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check  # noqa: E402

WEFT = os.path.join(os.environ["WEFT_BIN"], "weft")
MIXTRAL = {"model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 7,
           "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
           "num_local_experts": 8, "num_experts_per_tok": 2}


def run(*arguments):
    return subprocess.run([WEFT, "plan", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120)


def emitted(target, model, cluster, *more):
    done = run(model, "--cluster", cluster, "--global-batch", 64, "--seq", 1024, "--emit", target, "--output", "json", *more)
    check(done.returncode == 0, f"{model} on {cluster} for {target}: status {done.returncode}, {done.stderr!r}")
    answer = json.loads(done.stdout)
    return answer["plans"][0]["strategy"], answer["emitted"][target]


def megatron(text):
    """Options with their values; every option once, as argparse keeps the last and hides a mistake."""
    options, name = {}, None
    for word in shlex.split(text, comments=True):
        if word.startswith("--"):
            name = word[2:]
            check(name not in options, f"--{name} twice")
            options[name] = []
        else:
            options[name].append(word)
    return options


def check_megatron(strategy, text):
    options = megatron(text)
    for option, key in (("tensor-model-parallel-size", "tp"), ("pipeline-model-parallel-size", "pp"),
                        ("context-parallel-size", "cp"), ("micro-batch-size", "micro_batch")):
        check(options[option] == [str(strategy[key])], f"--{option} {options[option]}, strategy {strategy}")
    if "pipeline-model-parallel-layout" in options:
        layout = re.sub(r"(.)\*(\d+)", lambda m: m[1] * int(m[2]), options["pipeline-model-parallel-layout"][0])
        check(layout.count("|") + 1 == strategy["pp"] * strategy["vpp"], layout)
        check(layout.replace("|", "") == "E" + "t" * int(options["num-layers"][0]) + "L", layout)


def check_files(model, cluster):
    strategy, text = emitted("megatron", model, cluster)
    check_megatron(strategy, text)
    check_megatron(*emitted("megatron", model, cluster, "--fix", "pp=2"))
    strategy, text = emitted("torchtitan", "llama3-8b", cluster)  # neither GPT-2 nor Mixtral is a model of it
    parallelism = tomllib.loads(text)["parallelism"]
    check(parallelism["data_parallel_replicate_degree"] * parallelism["data_parallel_shard_degree"] == strategy["dp"], text)
    strategy, text = emitted("deepspeed", model, cluster)
    config = json.loads(text)
    check(config["train_batch_size"] == config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] *
          strategy["dp"], text)
    _, text = emitted("torchrun", model, cluster)
    check(subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0, text)
    _, text = emitted("nccl", model, cluster)
    check(all(re.fullmatch(r"#.*|[A-Z_]+=\S+", line) for line in text.splitlines()), text)
    print(f"ok: {model} on {cluster}")


def check_refused(path, text, *pieces):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    model, cluster = ("gpt2", path) if path.endswith(".yaml") else (path, "dgx-a100:1")
    done = run(model, "--cluster", cluster, "--global-batch", 8, "--seq", 1024)
    check(done.returncode == 2 and done.stdout == "", f"{path}: status {done.returncode}, {done.stderr!r}")
    check(len(done.stderr.splitlines()) == 1 and len(done.stderr) < 600, f"expected one line: {done.stderr!r}")
    for piece in (path, *pieces):
        check(piece in done.stderr, f"expected {piece!r}: {done.stderr!r}")
    print(f"ok: {done.stderr.strip()}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump(MIXTRAL, file)
        check_files("gpt2", "dgx-a100:2")
        check_files(config, "dgx-h100:1")
        broken = os.path.join(folder, "broken.json")
        check_refused(broken, "[" * (10 << 20), "parse error")
        check_refused(broken, json.dumps({**MIXTRAL, "num_attention_heads": 7}), "num_key_value_heads", "4", "divisor")
        check_refused(broken, json.dumps({**MIXTRAL, "num_local_experts": -8}), "num_local_experts", "-8")
        cluster = os.path.join(folder, "cluster.yaml")
        check_refused(cluster, "version: 1\nname: x\nnodes: 2\ngpus_per_node: 8\ndevice: a100-80\nintra_node_rate: 1GB/s\n",
                      "nic_rate", "missing", "expected a rate")


main()
