"""Four ranks over the real plugin learn what one process learns, and learn it the same way every time."""

import os
import sys

from weft_train import PLUGIN, SMALL, check, losses, train
from processes import Failure, Processes

STEPS = 30
TOLERANCE = 1e-4


def check_shape(lines, ranks):
    """The contract of the JSON lines."""
    job, steps, summary = lines[0]["job"], lines[1:-1], lines[-1]["summary"]
    check([step["step"] for step in steps] == list(range(STEPS)), f"steps are {[s.get('step') for s in steps]}")
    check(job["ranks"] == summary["ranks"] == ranks, f"ranks: {job['ranks']}, {summary['ranks']}")
    check(job["gradient_bytes"] == 4 * job["parameters"], "gradients are not one float per parameter")
    check("layers 12 -> 2" in job["scaling"], f"the scaling is not said: {job['scaling']}")
    check(summary["final_loss"] == steps[-1]["loss"] and summary["first_loss"] == steps[0]["loss"], "summary's losses")
    check(summary["final_loss"] < summary["first_loss"] - 1, f"the loss does not go down: {summary}")
    for step in steps:
        gap = step["iteration_s"] - step["compute_s"] - step["exposed_s"]
        check(abs(gap) < 1e-6, f"iteration is not compute + exposed: {step}")
    check([s["time_s"] for s in steps] == sorted(s["time_s"] for s in steps), "time does not go forward")


def check_bytes(lines, ranks):
    """A ring sends 2 (n-1)/n of the data per rank; loss, stop flag and barrier are small change."""
    job, summary = lines[0]["job"], lines[-1]["summary"]
    ring = 2 * (ranks - 1) / ranks * job["gradient_bytes"] * STEPS
    check(ring <= summary["bytes_sent"] <= ring * 1.01 + 1000, f"sent {summary['bytes_sent']}, a ring sends {ring}")


def main():
    check(os.path.exists(PLUGIN), f"{PLUGIN} is not built")
    arguments = [*SMALL, "--steps", str(STEPS)]
    with Processes() as processes:
        alone = train(processes, "alone", 1, arguments)
        first = train(processes, "first", 4, arguments)
        again = train(processes, "again", 4, arguments)
        table = ["--collectives", "1;4:allreduce:0-65535:halving-doubling:-:0;4:allreduce:65536-:hierarchical.2:-:0"]
        chosen = train(processes, "chosen", 4, [*arguments, *table])
        chosen_again = train(processes, "chosen-again", 4, [*arguments, *table])
        bounded = train(processes, "bounded", 4, [*SMALL, "--duration", "200ms"])
        least = train(processes, "least", 4, [*SMALL, "--duration", "1ms", "--min-steps", "7"])
    for lines, ranks in ((alone, 1), (first, 4), (again, 4)):
        check_shape(lines, ranks)
    check_bytes(first, 4)
    check(len(first[0]["job"]["bucket_bytes"]) > 2, "too few buckets to test their order")
    worst = max(abs(a - b) for a, b in zip(losses(alone), losses(first), strict=True))
    print(f"worst difference of the loss between 4 ranks and 1 process over {STEPS} steps: {worst:.3g}")
    check(0 < worst, "4 ranks add in another order than 1 process: equal bits mean that one run was compared with itself")
    check(worst <= TOLERANCE, f"worst difference {worst}, expected at most {TOLERANCE}")
    check(losses(first) == losses(again), "two runs of 4 ranks differ")
    check(first[0]["job"]["collectives"] == "" and chosen[0]["job"]["collectives"] != "", "which table was followed is not said")
    check(losses(chosen) == losses(chosen_again), "two runs of 4 ranks with one table differ")
    check(losses(chosen) != losses(first), "the table changes nothing: it was not followed")
    off = max(abs(a - b) for a, b in zip(losses(alone), losses(chosen), strict=True))
    check(off <= TOLERANCE, f"worst difference with a table {off}, expected at most {TOLERANCE}")
    print(f"with halving-doubling and two levels in place of the ring the loss differs by {off:.3g} at most")
    print("two runs of 4 ranks are bit-identical")
    check(len(losses(bounded)) >= 1, "a run with a duration made no step")
    check(len(losses(least)) == 7, f"at least 7 steps in 1 ms: {len(losses(least))} were made")
    print(f"all ranks agreed to stop after step {len(losses(bounded)) - 1} of a run of 200 ms")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"loss_equality_test: {failure}")
