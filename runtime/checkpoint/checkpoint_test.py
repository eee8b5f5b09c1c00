"""Checkpoints of weft-train: any strategy's is any other's, also when the run was killed or the disk was full.

usage: checkpoint_test.py [--kills N] [--full-disk FOLDER]

Saved under one strategy and resumed under several others with other numbers of ranks: the losses are those of the unbroken run (relative
1e-9 in fp64). Models of Hugging Face load, and what is saved is read by code of their layout (hf_reference.py). --kills: so many
runs are killed at random moments, and resumed. --full-disk: what the test calls in a mount namespace of its own.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import hf_reference  # noqa: E402
import strategy_cases  # noqa: E402
import strategy_equality_test as strategies  # noqa: E402
from processes import Failure, Processes  # noqa: E402
from weft_train import TEXT, check, losses, start_ranks, train  # noqa: E402

BATCH, STEPS, SAVED = 12, 30, 20
TOLERANCE = 1e-9
END_S = 10  # a rank says what is wrong within this


def case(model, **variables):
    return strategies.case("checkpoint", model, batch=BATCH, **variables)


SAVED_UNDER = {"gpt": case("gpt", dp=2, tp=2, zero_stage=1), "llama": case("llama", dp=2, pp=2, zero_stage=2),
               "cnn": case("cnn", dp=2, tp=2, zero_stage=1)}
RESUMED = {
    "gpt": [case("gpt"), case("gpt", tp=4, micro_batch=2), case("gpt", dp=3, zero_stage=3), case("gpt", pp=2, vpp=2, schedule="zb-v"),
            case("gpt", dp=2, tp=2, pp=2)],
    "llama": [case("llama"), case("llama", tp=2, sequence_parallel="true"), case("llama", dp=3, zero_stage=1),
              case("llama", dp=4, zero_stage=3), case("llama", tp=2, pp=4), case("llama", dp=4, zero_stage=3, shard_group=2),
              strategy_cases.osdp("checkpoint", "llama", ["4 of 4 slices sharded"], batch=BATCH, dp=2, memory="520KiB")],
    "cnn": [case("cnn"), case("cnn", tp=4, micro_batch=2), case("cnn", dp=3, zero_stage=3)],
}


class Bench:
    """Folder, programs and the runs of this test."""

    def __init__(self, folder, processes):
        self.folder, self.processes, self.programs, self.runs = folder, processes, {}, 0
        for name, config in strategies.MODELS.items():
            with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as out:
                json.dump(config, out)

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, one):
        key = json.dumps(one, sort_keys=True)
        if key not in self.programs:
            path = self.path(f"program{len(self.programs)}.json")
            os.rename(strategies.plan(self.folder, one), path)
            self.programs[key] = path
        return self.programs[key]

    def arguments(self, one, *more, steps=STEPS):
        training = list(strategies.TRAINING)
        training[training.index("--steps") + 1] = str(steps)
        for option in set(training) & set(more):  # given anew
            if option.startswith("--"):
                del training[training.index(option):training.index(option) + 2]
        return ["--config", self.path(f"{one['model']}.json"), "--plan", self.program(one), *training, *more]

    def name(self):
        self.runs += 1
        return f"run{self.runs}"

    def train(self, one, *more, steps=STEPS):
        return train(self.processes, self.name(), strategies.ranks_of(one), self.arguments(one, *more, steps=steps),
                     timeout_s=600)

    def start(self, one, *more, steps=STEPS):
        name = self.name()
        return name, start_ranks(self.processes, name, strategies.ranks_of(one), self.arguments(one, *more, steps=steps))

    def ends(self, one, pieces, *more, steps=STEPS):
        """All ranks end by themselves, with one line each that has one of `pieces`."""
        begin = time.monotonic()
        name, children = self.start(one, *more, steps=steps)
        for rank, child in enumerate(children):
            if child.stdout:
                child.stdout.read()
            status, log = child.wait(100), self.processes.log(f"{name}-rank{rank}").strip()
            said = [line for line in log.splitlines() if line.startswith(f"weft-train: rank {rank}: ")]
            check(status not in (0, None) and len(said) == 1, f"{pieces}: rank {rank}: {status}, {log}")
            check(any(piece in said[0] for piece in pieces), f"{pieces}: rank {rank}: {log}")
        took = time.monotonic() - begin
        check(took < 10 * END_S, f"{pieces}: took {took:.1f} s")
        return took


def digest(folder):
    """Of all files of a folder, with their names."""
    total = hashlib.sha256()
    for path in sorted(os.path.join(root, name) for root, _, names in os.walk(folder) for name in names):
        total.update(path.encode())
        with open(path, "rb") as source:
            total.update(source.read())
    return total.hexdigest()


def same(what, own, expected):
    worst = max(abs(a - b) / abs(b) for a, b in zip(own, expected, strict=True))
    check(worst <= TOLERANCE, f"{what}: losses differ by {worst:.3g}: {own} {expected}")
    return worst


def resumes_under_others(bench):
    unbroken = {}
    for model, one in SAVED_UNDER.items():
        unbroken[model] = losses(bench.train(one))
        check(unbroken[model][-1] < unbroken[model][0] - 0.5, f"{model} does not learn: {unbroken[model]}")
        folder = bench.path(f"saved-{model}")
        first = bench.train(one, "--checkpoint", folder, "--checkpoint-every", "10", "--checkpoint-file", "64KiB", steps=SAVED)
        same(f"{model} with checkpoints", losses(first), unbroken[model][:SAVED])
        check([line["checkpoint"]["step"] for line in first if "checkpoint" in line] == [10, 20], f"checkpoints: {first}")
        before = digest(folder)
        for other in RESUMED[model]:
            lines = bench.train(other, "--resume", folder)
            steps = [line["step"] for line in lines if "step" in line]
            check(steps == list(range(SAVED, STEPS)), f"resumed steps: {steps}")
            worst = same(f"{model} resumed", losses(lines), unbroken[model][SAVED:])
            names = {k: v for k, v in other["variables"].items() if v != strategy_cases.DEFAULTS[k]}
            print(f"{model}: saved under {strategies.ranks_of(one)} ranks, resumed under {names or 'one rank'}: within {worst:.1e}")
        check(digest(folder) == before, "resuming has changed the checkpoint")
    return unbroken


def refusals(bench):
    """What is not as it should be: one line on every rank, and the checkpoint stays."""
    folder = bench.path("saved-gpt")
    two = case("gpt", dp=2)
    before = digest(folder)
    step = os.path.join(folder, "step-00000020")
    damages = (("a flipped bit", lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:], ["is not what was written"]),
               ("a truncated file", lambda data: data[:-5], ["bytes, expected the"]),
               ("a header that lies", lambda data: data[:8] + data[8:].replace(b"[32,64]", b"[64,32]").replace(b"F64", b"F32", 1),
                ["expected the"]))
    for what, damage, pieces in damages:
        copy = bench.path("damaged")
        shutil.copytree(step, copy)
        name = sorted(name for name in os.listdir(copy) if name.startswith("model-"))[-1]
        with open(os.path.join(copy, name), "rb") as source:
            data = source.read()
        with open(os.path.join(copy, name), "wb") as out:
            out.write(damage(data))
        took = bench.ends(two, pieces, "--resume", copy)
        shutil.rmtree(copy)
        print(f"{what}: both ranks ended after {took:.1f} s")
    bench.ends(two, ["no checkpoint"], "--resume", bench.path("nowhere"))
    bench.ends(two, ["saved with seed 1, this run has 2"], "--resume", folder, "--seed", "2")
    bench.ends(strategies.case("batch", "gpt", batch=8, dp=2), ["saved with global batch 12"], "--resume", folder)
    bench.ends(two, ["are done"], "--resume", folder, steps=20)
    bench.ends(two, ["has a checkpoint of step 20 already"], "--checkpoint", folder, "--checkpoint-every", "5")
    for one in (case("gpt", dp=2, local_steps=2), case("gpt", dp=2, gradient_wire="fp8")):
        bench.ends(one, ["would be lost, expected a run without --checkpoint"], "--checkpoint", bench.path("lost"), "--checkpoint-every", "5")
    bench.ends(case("llama", dp=2), ["no tensor model.embed_tokens.weight"], "--resume", folder)
    check(digest(folder) == before, "a refused run has changed the checkpoint")


def loss_is_no_number(bench):
    one, folder = case("gpt", dp=2, tp=2), bench.path("nan")
    took = bench.ends(one, ["the loss is nan", "the loss is -nan", "the loss is inf"], "--checkpoint", folder, "--checkpoint-every", "1", "--lr", "1e160")
    steps = sorted(os.listdir(folder))
    check(steps and all(name.startswith("step-") for name in steps), f"after a loss that is no number: {steps}")
    print(f"a loss that is no number: four ranks ended after {took:.1f} s, {steps} stay")


def killed(bench, kills, expected):
    """kill -9 of all ranks at a random moment of a run that saves after every step; then the last checkpoint is resumed."""
    one, other = case("gpt", dp=2, zero_stage=1), case("gpt")
    folder, chance, within = bench.path("killed"), random.Random(1), 0
    for _ in range(kills):
        shutil.rmtree(folder, ignore_errors=True)
        name, children = bench.start(one, "--checkpoint", folder, "--checkpoint-every", "1", "--checkpoint-file", "16KiB")
        for line in children[0].stdout:
            if '"checkpoint"' in line:
                break
        time.sleep(chance.uniform(0, 0.6))
        for child in children:
            child.kill()
        for rank, child in enumerate(children):
            child.wait(10)
            del bench.processes.children[f"{name}-rank{rank}"]
        children[0].stdout.read()
        left = os.listdir(folder)
        within += any(entry.startswith(".") for entry in left)
        done = max(int(entry.removeprefix("step-")) for entry in left if entry.startswith("step-"))
        if done == STEPS:
            continue
        lines = bench.train(other, "--checkpoint", folder, "--checkpoint-every", "100", "--resume", "latest", steps=min(done + 2, STEPS))
        first = next(line["step"] for line in lines if "step" in line)
        check(first == done, f"resumed at step {first}, expected {done}: {left}")
        same("after a kill", losses(lines), expected[done:min(done + 2, STEPS)])
    print(f"{kills} runs were killed, {within} within writing: the last good checkpoint was resumed each time")
    check(kills < 20 or within > 0, "no run was killed while it wrote")


def full_disk(folder):
    """In a mount namespace of its own: a file system with room for one checkpoint and no more."""
    disk = os.path.join(folder, "disk")
    os.makedirs(disk)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1600k", "tmpfs", disk], check=True)
    with Processes() as processes:
        bench = Bench(folder, processes)
        one = case("gpt", dp=2, tp=2, zero_stage=1)
        lines_before = bench.train(one, "--checkpoint", disk, "--checkpoint-every", "5", steps=5)
        check(any("checkpoint" in line for line in lines_before), "nothing was saved")
        before = digest(disk)
        took = bench.ends(one, ["No space left on device"], "--checkpoint", disk, "--checkpoint-every", "5", "--resume", "latest")
        check(os.listdir(disk) == ["step-00000005"] and digest(disk) == before, f"the good checkpoint was touched: {os.listdir(disk)}")
        resumed = losses(bench.train(case("gpt", tp=2), "--resume", disk, steps=8))
        same("after a full disk", resumed, losses(bench.train(one, steps=8))[5:])
    print(f"a full disk: four ranks ended after {took:.1f} s, the checkpoint before stays")


SMALL = {
    "gpt": {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "n_positions": 16, "vocab_size": 256, "n_inner": 12,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
    "llama": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": 12, "max_position_embeddings": 64, "vocab_size": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
              "tie_word_embeddings": False, "attention_bias": False},
}


def mix(z):
    mask = 2 ** 64 - 1
    z = (z + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def samples(text, seed, step, count, sequence):
    """As runtime/text_data.h says."""
    of_step = mix(mix(seed) ^ step)
    starts = [mix(of_step ^ i) % (len(text) - sequence) for i in range(count)]
    return [text[start:start + sequence + 1] for start in starts]


def random_tensors(model, dtype, chance):
    """A checkpoint as its users have it: names, layouts and buffers."""
    config, tensors = SMALL[model], {}

    def add(name, *shape, mean=0.0, kind=None):
        count = 1
        for size in shape:
            count *= size
        tensors[name] = (kind or dtype, list(shape), [chance.gauss(mean, 0.3) for _ in range(count)])

    if model == "gpt":
        h, f = config["n_embd"], config["n_inner"]
        add("wte.weight", 50257, h)
        add("wpe.weight", config["n_positions"], h)
        for layer in range(config["n_layer"]):
            name = f"h.{layer}."
            tensors[name + "attn.bias"] = ("U8", [1, 1, 4, 4], [1] * 16)
            for norm in ("ln_1", "ln_2"):
                add(name + norm + ".weight", h, mean=1.0), add(name + norm + ".bias", h)
            for matrix, inputs, outputs in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, f), ("mlp.c_proj", f, h)):
                add(name + matrix + ".weight", inputs, outputs), add(name + matrix + ".bias", outputs)
        add("ln_f.weight", h, mean=1.0), add("ln_f.bias", h)
        return tensors
    h, f, kv = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // 2
    add("model.embed_tokens.weight", 32000, h)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        tensors[name + "self_attn.rotary_emb.inv_freq"] = ("F32", [2], [1.0, 0.01])
        add(name + "input_layernorm.weight", h, mean=1.0), add(name + "post_attention_layernorm.weight", h, mean=1.0)
        for matrix, outputs, inputs in (("self_attn.q", h, h), ("self_attn.k", kv, h), ("self_attn.v", kv, h), ("self_attn.o", h, h),
                                        ("mlp.gate", f, h), ("mlp.up", f, h), ("mlp.down", h, f)):
            add(f"{name}{matrix}_proj.weight", outputs, inputs)
    add("model.norm.weight", h, mean=1.0)
    add("lm_head.weight", 32000, h)
    return tensors


def byte_rows(model):
    """Tokens of the bytes: GPT-2's table of printable ones first; Llama's <0x00> is token 3."""
    if model == "llama":
        return [byte + 3 for byte in range(256)]
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    order = printable + [b for b in range(256) if b not in printable]
    return [order.index(byte) for byte in range(256)]


def of_bytes(model, tensors):
    """The same model with a vocabulary of bytes."""
    small, tokens = dict(tensors), byte_rows(model)
    for name in ("wte.weight", "model.embed_tokens.weight", "lm_head.weight"):
        if name in small:
            table = hf_reference.rows(small[name])
            small[name] = (small[name][0], [256, small[name][1][1]], [v for token in tokens for v in table[token]])
    return small


def models_of_hugging_face(bench):
    """Generated files of their layout load under any strategy: the first loss is that of hf_reference.py; and back."""
    with open(bench.path("text.txt"), "wb") as out:
        out.write("".join(f"{i} ways to méasure a loss, {i * i} more. " for i in range(60)).encode())
    with open(bench.path("text.txt"), "rb") as source:
        text = source.read()
    sequence, batch, chance = 6, 2, random.Random(3)
    for model, dtype, files, variables in (("gpt", "F32", 1, {}), ("gpt", "BF16", 1, {"tp": 2}), ("llama", "BF16", 2, {"pp": 2}),
                                           ("llama", "F32", 1, {"dp": 2, "zero_stage": 3})):
        one = strategies.case("hf", f"small-{model}", batch=batch, **variables)
        with open(bench.path(f"small-{model}.json"), "w", encoding="utf-8") as out:
            json.dump(SMALL[model], out)
        folder = bench.path(f"hf-{model}-{dtype}")
        os.makedirs(folder)
        tensors = random_tensors(model, dtype, chance)
        prefix = "transformer." if model == "gpt" and dtype == "BF16" else ""
        names, index = list(tensors), {}
        for k in range(files):
            name = "model.safetensors" if files == 1 else f"model-{k + 1:05}-of-{files:05}.safetensors"
            hf_reference.write(os.path.join(folder, name), {prefix + n: tensors[n] for n in names[k::files]})
            index.update({n: name for n in names[k::files]})
        if files > 1:
            with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as out:
                json.dump({"metadata": {}, "weight_map": index}, out)
        stored = {}
        for name in sorted(set(index.values())):
            read = hf_reference.read(os.path.join(folder, name))
            stored.update({n.removeprefix("transformer."): tensor for n, tensor in read.items()})
        path = bench.path("hf-program.json")
        os.rename(strategies_plan(bench, one, sequence), path)
        saved = bench.path(f"hf-saved-{model}-{dtype}")
        arguments = ["--config", bench.path(f"small-{model}.json"), "--plan", path, "--data", bench.path("text.txt"), "--steps", "1",
                     "--lr", "1e-300", "--output", "json", "--load", folder, "--checkpoint", saved, "--checkpoint-every", "1"]
        own = losses(train(bench.processes, bench.name(), strategies.ranks_of(one), arguments))[0]
        small = of_bytes(model, stored)
        of_sample = hf_reference.gpt2_loss if model == "gpt" else hf_reference.llama_loss
        rows = samples(text, 1, 0, batch, sequence)
        expected = sum(of_sample(SMALL[model], small, list(row[:-1]), list(row[1:])) for row in rows) / batch
        check(abs(own - expected) <= 1e-9 * abs(expected), f"{model} {dtype}: loss {own}, its published code has {expected}")
        back = hf_reference.read(os.path.join(saved, "step-00000001", "model.safetensors"))
        learnt = {name: tensor for name, tensor in small.items() if not name.endswith((".attn.bias", ".inv_freq"))}
        check(back.keys() == learnt.keys(), f"saved {sorted(back)}, expected {sorted(learnt)}")
        for name, (_, shape, values) in learnt.items():
            check(back[name][1] == shape and back[name][2] == values, f"{name} is not what was loaded")
        print(f"{model} of Hugging Face in {dtype}, {files} file(s), under {variables or 'one rank'}: loss {own:.6f}, as its published code; saved as it was")


def strategies_plan(bench, one, sequence):
    known, strategies.SEQUENCE = strategies.SEQUENCE, sequence
    try:
        return strategies.plan(bench.folder, one)
    finally:
        strategies.SEQUENCE = known


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--full-disk")
    options = parser.parse_args()
    if options.full_disk:
        return full_disk(options.full_disk)
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        bench = Bench(folder, processes)
        unbroken = resumes_under_others(bench)
        models_of_hugging_face(bench)
        refusals(bench)
        loss_is_no_number(bench)
        killed(bench, options.kills, unbroken["gpt"])
        inner = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), sys.executable, os.path.abspath(__file__),
                 "--full-disk", os.path.join(folder, "full")]
        subprocess.run(inner, check=True, timeout=300)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"checkpoint_test: {failure}")
