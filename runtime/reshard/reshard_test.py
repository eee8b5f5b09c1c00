"""Changes of strategy in a run of weft-train: no step is lost, and what is learnt is what one process learns.

usage: reshard_test.py [--pause]

One run of 200 steps changes thirteen times between strategies of four ranks; others have ranks that join and leave at a boundary.
Losses against one process of plain LibTorch (relative 1e-9 in fp64); the bytes that ranks handed to the plugin for each change are
those that were planned, of which planner/tasks/state_change_test.cc shows that they are the least. --pause: how long a change
takes, beside saving, starting again and loading.
"""

import argparse
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "checkpoint"), os.path.join(HERE, "..")]

import strategy_equality_test as strategies  # noqa: E402
from checkpoint_test import BATCH, Bench, case, same  # noqa: E402
from processes import Failure, Processes  # noqa: E402
from weft_train import TEXT, check, losses, start_ranks, train  # noqa: E402

STEPS, EVERY = 200, 14
# Gentler than elsewhere: there, 200 steps make 1e-7 of the last bit that two orders of adding differ by, also without a change.
TRAINING = ["--data", TEXT, "--steps", str(STEPS), "--lr", "0.001", "--warm-up", "20", "--decay", "200", "--least-lr", "0.0001",
            "--clip", "1", "--output", "json"]
FOUR = [dict(dp=2, tp=2), dict(dp=4, zero_stage=3), dict(tp=4, micro_batch=2), dict(dp=2, pp=2, zero_stage=1), dict(tp=2, pp=2),
        dict(dp=2, pp=2, vpp=2, schedule="zb-v"), dict(dp=4, zero_stage=1), dict(dp=2, tp=2, zero_stage=2),
        dict(pp=4, schedule="zb-h1"), dict(dp=2, tp=2, sequence_parallel="true", zero_stage=1),
        dict(dp=4, zero_stage=3, shard_group=2),
        dict(dp=4), dict(dp=2, tp=2, zero_stage=3), dict(dp=2, tp=2, pp=1)]


def plans(bench, model, phases):
    """A file of programs: [(step, variables)]."""
    path = bench.path(f"plans{bench.runs}.txt")
    with open(path, "w", encoding="utf-8") as out:
        for step, variables in phases:
            out.write(f"{step} {os.path.basename(bench.program(case(model, **variables)))}\n")
    return path


def arguments(bench, model, path, steps, *more):
    given = ["--config", bench.path(f"{model}.json"), "--plans", path, *TRAINING, *more]
    given[given.index("--steps") + 1] = str(steps)
    return given


def reference(bench, model, steps):
    given = ["--config", bench.path(f"{model}.json"), "--seq", str(strategies.SEQUENCE), "--global-batch", str(BATCH), "--type",
             "fp64", *TRAINING]
    given[given.index("--steps") + 1] = str(steps)
    return losses(train(bench.processes, bench.name(), 1, given))


def changed(what, lines, expected, phases, steps):
    """All steps in order, as one process has them; one change per phase, with the bytes that were planned."""
    check([line["step"] for line in lines if "step" in line] == list(range(steps)), f"{what}: steps were lost")
    worst = same(what, losses(lines), expected)
    changes = [line["reshard"] for line in lines if "reshard" in line]
    check([c["before_step"] for c in changes] == [step for step, _ in phases[1:]], f"{what}: changed at {changes}")
    for change in changes:
        check(change["sent_bytes"] == change["planned_bytes"], f"{what}: not what was planned: {change}")
    check(any(change["sent_bytes"] > 0 for change in changes), f"{what}: nothing was sent")
    for volume in lines[-1]["summary"]["volumes"]:
        check(volume["planned_bytes"] == volume["sent_bytes"] and volume["planned_calls"] == volume["calls"], f"{what}: {volume}")
    moved = sum(change["sent_bytes"] for change in changes)
    print(f"{what}: {len(changes)} changes, losses within {worst:.1e}, {moved} bytes as planned, {statistics(changes)}", flush=True)
    return changes


def statistics(changes):
    took = sorted(change["took_s"] for change in changes)
    return f"median {1e3 * took[len(took) // 2]:.0f} ms"


def many_changes(bench, expected):
    phases = [(k * EVERY, variables) for k, variables in enumerate(FOUR)]
    check(len(phases) > 10, "fewer than ten changes")
    lines = train(bench.processes, bench.name(), 4, arguments(bench, "gpt", plans(bench, "gpt", phases), STEPS), timeout_s=600)
    return changed("four ranks", lines, expected, phases, STEPS)


def joins_and_leaves(bench):
    expected = reference(bench, "llama", 40)
    phases = [(0, dict(dp=2, tp=2, zero_stage=1)), (10, dict(dp=3, tp=2, zero_stage=2)), (20, dict(dp=3, zero_stage=3)),
              (30, dict(tp=2, pp=2))]
    path = plans(bench, "llama", phases)
    changes = changed("four, six, three and four ranks",
                      train(bench.processes, bench.name(), 6, arguments(bench, "llama", path, 40), timeout_s=300), expected,
                      phases, 40)
    check([change["ranks"] for change in changes] == [6, 3, 4], f"ranks: {changes}")
    return expected


def checkpoints_on_the_way(bench, expected):
    """Saved under a later program of one run, and resumed within another's."""
    folder = bench.path("on-the-way")
    path = plans(bench, "llama", [(0, dict(dp=2)), (6, dict(dp=4, zero_stage=3)), (25, dict(pp=4))])
    given = ["--checkpoint", folder, "--checkpoint-every", "10"]
    train(bench.processes, bench.name(), 4, arguments(bench, "llama", path, 20, *given))
    lines = train(bench.processes, bench.name(), 4, arguments(bench, "llama", path, 40, *given, "--resume", "latest"))
    check([line["reshard"]["before_step"] for line in lines if "reshard" in line] == [25], f"changes after resuming: {lines}")
    same("resumed between changes", losses(lines), expected[20:])


def ranks_differ(bench):
    """Two files of programs: nobody trains, and all say so."""
    name = bench.name()
    one, other = (plans(bench, "gpt", [(0, dict(dp=2)), (5, second)]) for second in (dict(tp=2), dict(pp=2)))
    os.rename(other, other + ".other")
    one = plans(bench, "gpt", [(0, dict(dp=2)), (5, dict(tp=2))])
    given = arguments(bench, "gpt", one, 10)
    at = given.index("--plans")
    by_rank = {rank: ["--plans", path] for rank, path in ((0, one), (1, other + ".other"))}
    children = start_ranks(bench.processes, name, 2, given[:at] + given[at + 2:], by_rank=by_rank)
    for rank, child in enumerate(children):
        status, log = child.wait(60), bench.processes.log(f"{name}-rank{rank}")
        check(status == 2 and "ranks were started differently" in log, f"rank {rank}: {status}, {log}")


def state_would_be_lost(bench):
    """Replicas that differ have more than one copy of the model: refused before anybody trains."""
    name, path = bench.name(), plans(bench, "gpt", [(0, dict(dp=2, local_steps=2)), (5, dict(tp=2))])
    for rank, child in enumerate(start_ranks(bench.processes, name, 2, arguments(bench, "gpt", path, 10))):
        if child.stdout:
            child.stdout.read()
        status, log = child.wait(60), bench.processes.log(f"{name}-rank{rank}")
        check(status == 2 and "would be lost, expected a run without a program after it" in log, f"rank {rank}: {status}, {log}")


def pause(bench):
    """A change in memory beside the same by way of a checkpoint: saved, all ranks started again, loaded, up to the first step."""
    before, after = dict(dp=2, tp=2, zero_stage=1), dict(pp=2, dp=2)
    lines = train(bench.processes, bench.name(), 4, arguments(bench, "gpt", plans(bench, "gpt", [(0, before), (10, after)]), 20))
    change = next(line["reshard"] for line in lines if "reshard" in line)
    folder = bench.path("pause")
    saved = bench.train(case("gpt", **before), "--checkpoint", folder, "--checkpoint-every", "10", steps=10)
    begin = time.monotonic()
    resumed = bench.train(case("gpt", **after), "--resume", folder, steps=11)
    first = next(line for line in resumed if "step" in line)
    write = next(line["checkpoint"]["took_s"] for line in saved if "checkpoint" in line)
    restart = first["time_s"] - begin - first["iteration_s"]
    print(f"a change takes {1e3 * change['took_s']:.0f} ms ({1e3 * change['moving_s']:.0f} ms of it for the bytes); a checkpoint "
          f"{1e3 * write:.0f} ms to write and {1e3 * restart:.0f} ms from there to the first step")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pause", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        bench = Bench(folder, processes)
        if options.pause:
            return pause(bench)
        ranks_differ(bench)
        state_would_be_lost(bench)
        many_changes(bench, reference(bench, "gpt", STEPS))
        checkpoints_on_the_way(bench, joins_and_leaves(bench))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"reshard_test: {failure}")
