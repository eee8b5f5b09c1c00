#!/usr/bin/env python3
"""weft profile: TorchScript files of known sizes become MODEL files with exactly their parameters and FLOPs, and are planned as
their config.json is."""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

BIN = pathlib.Path(os.environ["WEFT_BIN"])
BATCH, SEQUENCE = 2, 64
TOKENS = BATCH * SEQUENCE
GPT = {"model_type": "gpt2", "n_layer": 3, "n_embd": 128, "n_head": 4, "n_positions": 256, "vocab_size": 512,
       "activation_function": "gelu_new"}
LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2,
         "intermediate_size": 320, "vocab_size": 640, "max_position_embeddings": SEQUENCE, "tie_word_embeddings": False}
MOE = {**LLAMA, "model_type": "mixtral", "num_hidden_layers": 2, "intermediate_size": 192, "num_local_experts": 4,
       "num_experts_per_tok": 2, "sliding_window": None}


def run(*arguments, status=0, limit=None):
    """With at most so many bytes of addresses."""
    few = None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    done = subprocess.run([str(BIN / arguments[0]), *map(str, arguments[1:])], capture_output=True, text=True, timeout=120,
                          check=False, preexec_fn=few)
    if done.returncode != status:
        raise AssertionError(f"{' '.join(map(str, arguments))}: ended with {done.returncode}: {done.stderr}")
    return done


def attention(hidden, key_values):
    """FLOPs of a layer's projections and core, whole; parameters of the projections."""
    matrices = 2 * hidden * hidden + hidden * key_values
    return 2 * TOKENS * matrices + 4 * BATCH * SEQUENCE * SEQUENCE * hidden, matrices


def gpt():
    h, core = 128, attention(128, 256)
    parameters = 3 * (12 * h * h + 13 * h) + (512 + 256) * h + 2 * h
    return parameters, 3 * (core[0] + 2 * TOKENS * 8 * h * h) + 2 * TOKENS * h * 512


def llama():
    h, core = 128, attention(128, 64)
    parameters = 4 * (core[1] + 3 * h * 320 + 2 * h) + 2 * 640 * h + h
    return parameters, 4 * (core[0] + 2 * TOKENS * 3 * h * 320) + 2 * TOKENS * h * 640


def moe():
    h, core = 128, attention(128, 64)
    parameters = 2 * (core[1] + 4 * h + 4 * 3 * h * 192 + 2 * h) + 2 * 640 * h + h
    return parameters, 2 * (core[0] + 2 * TOKENS * (4 * h + 2 * 3 * h * 192)) + 2 * TOKENS * h * 640


def cnn():
    """Of one image of 3 x 36 x 36: the stem leaves 32 x 32, the pooling 16 x 16, the stride 8 x 8."""
    kernels = {"stem": 3 * 16 * 25, "conv1": 16 * 32 * 9, "conv2": 32 * 32 * 9, "shortcut": 16 * 32, "depthwise": 32 * 9,
               "pointwise": 32 * 48}
    norms = 2 * (16 + 32 + 32 + 32 + 32 + 48)
    flops = 2 * 32 * 32 * kernels["stem"] + 2 * 64 * sum(size for name, size in kernels.items() if name != "stem") + 2 * 48 * 10
    return sum(kernels.values()) + norms + 48 * 10 + 10, BATCH * flops


def plans(model, sequence):
    cluster = "dgx-a100:1"
    done = run("weft", "plan", model, "--cluster", cluster, "--global-batch", 64, "--seq", sequence, "--precision", "fp32",
               "--top", 3, "--framework", "any", "--output", "json")
    assert "weft_profile" not in done.stderr, f"{model}: read back it is not what was profiled: {done.stderr}"
    answer = json.loads(done.stdout)["plans"]
    assert answer, f"{model}: no plan"
    return [{key: plan[key] for key in ("strategy", "predicted", "lower_bound_s")} for plan in answer]


def check_file(folder, name, expected, config, more):
    out = folder / f"{name}.profiled.json"
    said = run("weft", "profile", folder / f"{name}.pt", "--batch", BATCH, *more, "--out", out).stderr
    account = json.loads(out.read_text())["weft_profile"]
    parameters, flops = expected
    assert account["parameters"] == parameters, f"{name}: {account['parameters']} parameters, expected {parameters}"
    error = account["forward_flops"] / flops - 1
    assert abs(error) < 0.01, f"{name}: {account['forward_flops']} FLOPs, expected {flops}"
    assert account["parameter_bytes"] == 4 * parameters and account["activation_bytes"] > 0, name
    assert f"{parameters} parameters" in said and "assumed:" in said, said
    print(f"{name}: {parameters} parameters, FLOPs {error:+.2%}, {len(account['groups'])} groups")
    if config is None:
        plans(out, 1)
        return account
    theirs = folder / f"{name}.json"
    theirs.write_text(json.dumps(config))
    assert plans(out, SEQUENCE) == plans(theirs, SEQUENCE), f"{name}: planned otherwise than its config.json"
    again = folder / f"{name}.again.json"
    run("weft", "profile", theirs, "--batch", BATCH, "--seq", SEQUENCE, "--out", again)
    counted = json.loads(again.read_text())["weft_profile"]
    assert counted["parameters"] == parameters, f"{name}: its config.json has {counted['parameters']} parameters"
    # Of narrow layers biases, which the account of a config.json counts as rows, are up to 1 / 128.
    assert abs(counted["forward_flops"] / flops - 1) < 0.01, f"{name}: its config.json makes {counted['forward_flops']} FLOPs"
    assert plans(again, SEQUENCE) == plans(theirs, SEQUENCE), f"{name}: its profile is planned otherwise"
    return account


def check_layers(account, name, count):
    counts = [group["count"] for group in account["groups"] if group["name"] == name]
    assert counts == [count], f"{name}: {counts}, expected one group of {count}"


def check_edited(folder):
    """An account that is not the model's any more is said to be so, and the model planned."""
    config = json.loads((folder / "gpt.profiled.json").read_text())
    config["n_layer"] = 4
    edited = folder / "edited.json"
    edited.write_text(json.dumps(config))
    said = run("weft", "plan", edited, "--cluster", "dgx-a100:1", "--global-batch", 64, "--seq", 64).stderr
    assert "weft_profile.parameters" in said, said


def check_refused(folder):
    (folder / "broken.pt").write_bytes(b"PK\x03\x04 and nothing else")
    cases = [((folder / "broken.pt",), "LibTorch does not load it"),
             ((folder / "cnn.pt",), "--input"),
             ((folder / "cnn.pt", "--input", "1x3x"), "1x3x224x224"),
             ((folder / "gpt.pt", "--seq", 300), "forward() does not take"),
             ((folder / "missing.pt",), "no such file"),
             ((folder / "gpt.json", "--input", "1x2"), "--input")]
    for arguments, piece in cases:
        said = run("weft", "profile", *arguments, status=2).stderr
        assert piece in said and len(said.splitlines()) == 1, f"{arguments}: {said}"
    said = run("weft", "profile", folder / "forked.pt", "--input", "4x16", status=1).stderr
    assert "torch.jit.fork" in said and len(said.splitlines()) == 1, said
    # 32 GB of tokens.
    said = run("weft", "profile", folder / "gpt.pt", "--batch", 4096, "--seq", 1 << 20, status=1, limit=16 << 30).stderr
    assert "out of memory" in said and len(said.splitlines()) == 1, said


def main():
    if not (BIN / "weft-torch").exists() or not (BIN / "torchscript_models").exists():
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run("torchscript_models", folder)
        tokens = ("--seq", SEQUENCE)
        check_layers(check_file(folder, "gpt", gpt(), GPT, tokens), "h.#", 3)
        check_layers(check_file(folder, "llama", llama(), LLAMA, tokens), "h.#", 4)
        check_layers(check_file(folder, "moe", moe(), MOE, tokens), "h.#", 2)
        check_file(folder, "cnn", cnn(), None, ("--input", f"{BATCH}x3x36x36"))
        check_edited(folder)
        check_refused(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
