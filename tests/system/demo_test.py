#!/usr/bin/env python3
"""The demo as users run it, with the real Prometheus: the loop closes, every dashboard query has data, every documented
metric is there and changes unless its page says why not, and nothing is left behind. The measured figures are printed,
for the record."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Failure, check, run_test  # noqa: E402
from weft_cluster import require_fabric  # noqa: E402

SOURCE, BIN = os.environ["WEFT_SOURCE"], os.environ["WEFT_BIN"]

LEAST_SHARE = 0.35  # of an iteration that is communication
DEFAULT_MBIT = 20


def namespaces():
    shown = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in shown.splitlines() if line.startswith("weft-")}


def check_ratios(job):
    """Each ratio to the bound says how sure it is, and what follows."""
    for phase, ratio in job["ratio"].items():
        print(f"  {phase}: {ratio}")
        if ratio["low"] is not None:
            check(ratio["low"] <= ratio["value"] <= ratio["high"], f"{job['name']} {phase}: {ratio}")
        if phase in ("weft", "weft_after_fault"):
            check(ratio["verdict"] in ("within", "fell short", "cannot tell"), f"{job['name']} {phase}: {ratio}")
            check(ratio["blocks"] > 0, f"{job['name']} {phase}: no block")


def check_gain(jobs, total):
    """Default ECMP collides, and Weft is faster."""
    # A draw collides in neither direction with a chance of 1 in 4: all six do not with one of 1 in 4096 (three: 1 in 64).
    worst = max(sum(job["default_draws_s"][d] for job in jobs) for d in range(6))
    check(worst > 1.05 * total["alone_s"], f"default ECMP did not collide in six draws: {total}")
    # In seconds, or, where the machine has slowed down between the phases, over the bounds that compute timed in each gives.
    over = {phase: sum(job["ratio"][phase]["value"] or 0 for job in jobs) for phase in ("default", "weft")}
    check(total["weft_s"] < total["default_s"] or 0 < over["weft"] < over["default"],
          f"Weft is slower than default ECMP: {total}, over the bound {over}")


def check_report(report):
    for job in report["jobs"]:
        print(f"{job['name']}: compute {job['compute_s']:.3f}  alone {job['alone_s']:.3f}  default {job['default_s']:.3f} "
              f"(draws {', '.join(f'{d:.3f}' for d in job['default_draws_s'])})  Weft {job['weft_s']:.3f}  bound "
              f"{job['bound_s']:.3f}  |  after faults {job['weft_after_fault_s']:.3f}  bound "
              f"{job['bound_after_fault_s']:.3f}  |  communication {job['communication_share'] * 100:.0f} %  loss "
              f"{job['first_loss']:.3f} -> {job['final_loss']:.3f}")
        check_ratios(job)
        check(job["final_loss"] < job["first_loss"], f"{job['name']}: the loss does not go down")
        check(len(job["default_draws_s"]) >= 3, f"{job['name']}: fewer than three draws of kernel-chosen ports")
        check(job["weft_s"] > 0 and job["weft_after_fault_s"] > 0, f"{job['name']}: not measured")
        # Which way is better is a matter of fact, by how much is reported above.
        check(job["weft_after_fault_s"] < 1.5 * job["bound_after_fault_s"], f"{job['name']}: did not recover")
    total = {key: sum(job[key] for job in report["jobs"]) for key in ("alone_s", "default_s", "weft_s")}
    check_gain(report["jobs"], total)
    check(report["controller"]["replans_after_fault"] >= 1, "no re-plan moved a live connection after the faults")
    check(report["link_disagreement"] is not None, f"link use was not compared: {report['links_not_compared']}")
    check(report["link_disagreement"] <= 0.025,
          f"link use is {report['link_disagreement'] * 100:.1f} % of the line rate off the switches' counters, promised 2.5 %")
    check(report["metrics_scraped"] > 20, f"{report['metrics_scraped']} metrics scraped")
    for line in report["shortfalls"]:
        print("fell short:", line)


def run_demo(mbit, at_end):
    command = [os.path.join(BIN, "weft"), "demo", "--output", "json", "--draws", "6", "--link-rate", f"{mbit}Mbit/s", "--at-end", at_end]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1200, check=False)
    check(done.returncode == 0, f"weft demo ended with {done.returncode}")
    return json.loads(done.stdout)


def main():
    require_fabric()
    before = namespaces()
    python = sys.executable
    at_end = (f"{python} {SOURCE}/dashboards/check_dashboard.py --prometheus $WEFT_PROMETHEUS && "
              f"{python} {SOURCE}/dashboards/check_metrics_page.py --prometheus $WEFT_PROMETHEUS "
              f"--docs {SOURCE}/docs/metrics.md --changed-within 30m")
    report = run_demo(DEFAULT_MBIT, at_end)
    share = min(job["communication_share"] for job in report["jobs"])
    if share < LEAST_SHARE:  # a machine too slow for these links: what computations vary by is more than a collision costs
        rate = round(DEFAULT_MBIT * share / (1 - share) * 1.2, 1)
        print(f"communication is {100 * share:.0f} % of an iteration, the demo wants 40 to 70 %: again with links of {rate} Mbit/s", flush=True)
        report = run_demo(rate, at_end)
    check(report["fabric"]["namespaces"], f"no fabric: {report['not_shown']}")
    check_report(report)
    left = namespaces() - before
    if left:
        raise Failure(f"namespaces left behind: {sorted(left)}")
    return 0


if __name__ == "__main__":
    run_test(main)
