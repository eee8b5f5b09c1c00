#!/usr/bin/env python3
"""The loop of measuring, advising and changing, closed: a job of weft-train runs on a fabric of network namespaces with the strategy that
the controller has searched for it; the only spine is cut to a tenth in mid-run; the controller finds out, finds another strategy that pays
for the pause, and the ranks go over to it in memory. No step is lost, nobody restarts anything, and what is learnt is what one process
learns (fp32, relative 1e-4). Times are printed, not asserted.

A controller that is killed and started again afterwards knows what the job runs. Then the spine is mended, and an operator has the job go
back to what it ran before (`weft reshard --back`).
"""
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import BIN, PLUGIN, TEXT, Job, WeftCluster, require_fabric  # noqa: E402

STEPS, SEQUENCE, BATCH = 150, 64, 32
CUT_AFTER = 40
MODEL = {"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 8, "n_positions": 64, "vocab_size": 256, "n_inner": 256,
         "activation_function": "gelu_new"}
JOB = """version: 1
name: job
model: model.json
global_batch: {batch}
sequence: {sequence}
precision: fp32
hosts: [{hosts}]
framework: weft-train
reshard: on
"""
CONFIG = """
reshard: {cost: 2s, hold: 5s, retry: 600s}
"""
TRAINING = ["--data", TEXT, "--steps", str(STEPS), "--lr", "0.0003", "--clip", "1", "--output", "json", "--threads", "1"]


def weft(cluster, *command):
    ran = subprocess.run([BIN / "weft", *map(str, command), "--controller", cluster.controller], capture_output=True, text=True, timeout=60,
                         check=False)
    check(ran.returncode == 0, f"weft {command}: {ran.stdout}{ran.stderr}")
    return ran.stdout


def start(cluster, plan, model):
    """A process per rank, with the environment that the plan has for it."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("WEFT_", "NCCL_"))}
    ranks, hosts = [], plan["rank_hosts"]
    for rank, host in enumerate(hosts):
        env = {**own, **plan["environment"], "WEFT_RUN_DIR": cluster.run_dir(host), "NCCL_SOCKET_IFNAME": "=eth0", "OMP_NUM_THREADS": "1"}
        command = [BIN / "weft-train", *env["WEFT_ARGUMENTS"].split(), "--config", model, *TRAINING, "--rank", rank, "--world", len(hosts),
                   "--rendezvous", f"{cluster.host[hosts[0]]['mgmt_address']}:29800", "--plugin", PLUGIN, "--stall-timeout", "120s"]
        with open(cluster.processes.path(f"job-{rank}.out.log"), "wb") as out, open(cluster.processes.path(f"job-{rank}.log"), "wb") as err:
            ranks.append(subprocess.Popen(cluster.in_host(host, command), env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          preexec_fn=cluster.processes._die_with_parent))
    return Job(cluster, "job", ranks)


def plain(model):
    """Losses of one process without a plan."""
    ran = subprocess.run([BIN / "weft-train", "--config", model, "--seq", str(SEQUENCE), "--global-batch", str(BATCH), *TRAINING],
                         capture_output=True, text=True, timeout=600, check=False)
    check(ran.returncode == 0, f"one process: {ran.stderr}")
    return [line["loss"] for line in map(json.loads, ran.stdout.splitlines()) if "step" in line]


def change_of(cluster):
    return cluster.ask("explain", "job")["job"]["plan"].get("change", {})


def operator_goes_back(cluster, first):
    """The spine is mended; somebody has the job run again as it did, which the controller would not do for ten minutes (`retry`)."""
    for leaf in ("leaf1", "leaf2"):
        cluster.set_cable_rate(leaf, "spine1", 60)
    def asked(*words):
        return subprocess.run([BIN / "weft", "reshard", "job", *words, "--controller", cluster.controller], capture_output=True, text=True,
                              timeout=60, check=False)

    # The controller that was started again hears of rank 0 with its next question.
    wait_until(lambda: asked("--back", "--dry-run").returncode == 0, 60, "rank 0 to say what it runs")
    refused = asked("--strategy", "dp=3")
    check(refused.returncode == 2 and "expected the job's 4" in refused.stderr, f"dp=3: {refused}")
    said = weft(cluster, "reshard", "job", "--back", "--hold", "1h")
    check(f"-> {first}" in said and "the controller makes no other change by itself for" in said, said)
    back = wait_until(lambda: (lambda c: c if c.get("state") == "followed" and c["asked_by"] else None)(change_of(cluster)), 120,
                      "the change that was asked for")
    decided = [d["reason"] for d in cluster.ask("explain", "job")["decisions"] if d["kind"] == "reshard"]
    check("asked for by" in decided[-1] and f"run as {first} from now on" in decided[-1], f"{decided}")
    return back


def median(steps):
    return statistics.median(step["iteration_s"] for step in steps)


def main():
    require_fabric()
    with WeftCluster(hosts_per_leaf=2, spines=1, rate="60Mbit/s", grain_us=250, config=CONFIG) as cluster:
        model = cluster.processes.write("model.json", json.dumps(MODEL))
        weft(cluster, "submit", cluster.processes.write("job.yaml", JOB.format(batch=BATCH, sequence=SEQUENCE, hosts=", ".join(cluster.hosts))))
        plan = cluster.ask("explain", "job")["job"]["plan"]
        check(plan["environment"].get("WEFT_RESHARD") == "on", f"{plan['environment']}")
        first = plan["strategy"]["text"]
        job = start(cluster, plan, model)
        job.wait_for_step(CUT_AFTER, 180)
        check(not change_of(cluster), f"a word before anything had changed: {change_of(cluster)}")
        before = job.steps_done()[10:]
        for leaf in ("leaf1", "leaf2"):
            cluster.set_cable_rate(leaf, "spine1", 6)
        cut = len(job.steps_done())
        print(f"{first}: {1e3 * median(before):.0f} ms; the spine is cut to a tenth before step {cut}", flush=True)
        change = wait_until(lambda: (lambda c: c if c.get("state") == "followed" else None)(change_of(cluster)), 240, "the change of strategy")
        explained = weft(cluster, "explain", "job")
        check("change of strategy" in explained and "followed" in explained, explained)
        changed = next(line["reshard"] for line in job._lines() if "reshard" in line)
        job.wait_for_step(changed["before_step"] + 10, 120)
        cluster.kill("controller")
        cluster.start_controller(listen=cluster.controller)
        cluster.wait_for_agents()
        again = cluster.ask("explain", "job")["job"]["plan"]
        check(again["strategy"]["text"] == changed["strategy"] == change["strategy"], f"{again['strategy']} after a restart, {changed} runs")
        wanted = operator_goes_back(cluster, first)
        losses = job.finish(300)
        steps = job.steps_done()
        check([step["step"] for step in steps] == list(range(STEPS)), "steps were lost")
        changes = [line["reshard"] for line in job._lines() if "reshard" in line]
        check([c["strategy"] for c in changes] == [changed["strategy"], first], f"changes: {changes}")
        check(all(c["sent_bytes"] == c["planned_bytes"] for c in changes), f"changes: {changes}")
        check(int(wanted["moved_bytes"]) == changes[1]["sent_bytes"], f"{wanted} was foretold, {changes[1]} moved")
        check(changed["strategy"] != first, f"{changed}")
        during, after = steps[cut + 1:changed["before_step"]], steps[changed["before_step"] + 2:changes[1]["before_step"]]
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, plain(model), strict=True))
        print(f"before: {first}, {1e3 * median(before):.0f} ms; cut: {1e3 * median(during):.0f} ms for {len(during)} steps; after: "
              f"{changed['strategy']}, {1e3 * median(after):.0f} ms; the change took {1e3 * changed['took_s']:.0f} ms (foretold "
              f"{change['pause_s']:.1f} s), {changed['sent_bytes']} bytes moved (foretold {change['moved_bytes']}); it was to be "
              f"{change['iteration_then_s']:.2f} s in place of {change['iteration_now_s']:.2f} s; losses within {worst:.1e}", flush=True)
        check(worst < 1e-4, f"losses differ by {worst:.3g}")
        check(int(change["moved_bytes"]) == changed["sent_bytes"], f"{change} was foretold, {changed} moved")


if __name__ == "__main__":
    run_test(main)
