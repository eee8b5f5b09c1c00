"""Every strategy that weft-train executes learns what one process of plain LibTorch learns, and sends what its program says.

usage: strategy_equality_test.py [--all] [--only TEXT] [--table]

For each case `weft plan` makes the step program and weft-train executes it over the real plugin, 30 steps on the same text, seed and
global batch; losses are compared with LibTorch's autograd in one process (relative 1e-9 in fp64, 1e-4 in fp32), and the bytes that
the ranks handed to the plugin with those of the program, by communicator and operation, exactly. Of the CNN also the peak of its
tensors' memory with the program's account, within 5 %. Without --all a part of the cases
runs. --table prints the table of docs/train.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from strategy_cases import CASES, GROUP, MACHINES, MODELS, case
from weft_train import PLUGIN, PROGRAM, TEXT, check, environment, losses, start_ranks, train
from processes import Failure, Processes

WEFT = os.path.join(os.environ["WEFT_BIN"], "weft")
STEPS = 30
TOLERANCE = {"fp64": 1e-9, "fp32": 1e-4}
SEQUENCE = 16
MEMORY_NEAR = 0.05
TRAINING = ["--data", TEXT, "--steps", str(STEPS), "--lr", "0.003", "--warm-up", "5", "--decay", "30", "--least-lr", "0.0003",
            "--clip", "1", "--output", "json"]


def ranks_of(one):
    variables = one["variables"]
    if "groups" in one:
        return sum(gpus for gpus, _ in one["groups"])
    return variables["dp"] * variables["tp"] * variables["pp"] * variables["cp"]


def sequence_of(one):
    return 1 if one["model"] == "cnn" else SEQUENCE  # a volume is one sample


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
               "--seq", str(sequence_of(one)), "--gpus", str(ranks), "--precision", "fp32", "--framework", "any", "--fix", fix,
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
        arguments = ["--config", os.path.join(folder, f"{one['model']}.json"), "--seq", str(sequence_of(one)),
                     "--global-batch", str(one["batch"]), "--type", one["type"], *(["--capacity-of", path] if routed else []), *more, *TRAINING]
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
    off = max((rank["planned"]["peak_bytes"] / rank["measured"]["peak_bytes"] - 1 for rank in summary["ranks"]), key=abs)
    near = one["model"] != "cnn" or abs(off) <= MEMORY_NEAR
    check(near, f"{name}: the program's account of the peak is off by {off:+.3f}: {summary['ranks']}")
    sent = sum(volume["sent_bytes"] for volume in summary["volumes"])
    row = (one["name"], one["model"], one["type"], world, f"{worst:.1e}", sent // STEPS)
    print(f"{name}: losses within {worst:.1e}, {sent} bytes as planned, peaks within {100 * off:+.2f} %", flush=True)
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


def check_it_notices_halos(processes, folder, known):
    """Slabs that have their own planes in place of their neighbours', forward or backward, learn something else."""
    one = case("no halos", "cnn", tp=2, micro_batch=2)
    expected = reference(processes, folder, one, "", known)
    for backward in (False, True):
        path = plan(folder, one)
        with open(path, encoding="utf-8") as source:
            program = json.load(source)
        for ranks in program["classes"]:
            writer = {value: i for i in ranks["instructions"] for value in i.get("writes", [])}
            halos = [i for i in ranks["instructions"]
                     if i["do"] == "halo" and (writer[i["reads"][0]]["do"] == "data-gradient") == backward]
            check(halos, "no planes are exchanged")
            own = {i["writes"][0]: i["reads"][0] for i in halos}
            for i in halos:
                i.clear()
                i.update({"do": "release", "unit": 0})
            for i in ranks["instructions"]:
                if "reads" in i:
                    i["reads"] = [own.get(value, value) for value in i["reads"]]
        with open(path, "w", encoding="utf-8") as out:
            json.dump(program, out)
        arguments = ["--config", os.path.join(folder, "cnn.json"), "--plan", path, *TRAINING]
        lines = train(processes, f"no-halos-{backward}", 2, arguments)
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses(lines), expected, strict=True))
        check(worst > 1e3 * TOLERANCE["fp64"],
              f"planes were not exchanged (backward: {backward}), and the losses differ by {worst:.3g} only")


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
        check_it_notices_halos(processes, folder, known)
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
