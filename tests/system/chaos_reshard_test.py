#!/usr/bin/env python3
"""Random faults under two jobs that change their strategies while they run: no step fails or is lost, and what they learn is what one
process learns, in fp64 within 1e-9.

    chaos_reshard_test.py [--faults 20] [--seed 1]

The jobs are planned by the controller with `reshard: on`. An operator asks for changes (`weft reshard`), of one job while a fault lasts, of the other after it; the
controller makes its own where a fault is long enough. The faults are those of tests/support/faults.py, drawn as in chaos_test.py.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402
from chaos_test import CALM_S, GUARD_S, Rounds, further, strike  # noqa: E402
from faulty_cluster import FaultyCluster  # noqa: E402
from processes import check, run_test, wait_until  # noqa: E402
from reshard_test import weft  # noqa: E402
from weft_cluster import BIN, PLUGIN, TEXT, Job, require_fabric  # noqa: E402

MOST_STEPS, SEQUENCE, BATCH = 20_000, 32, 8
MODEL = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "n_positions": SEQUENCE, "vocab_size": 256, "n_inner": 128,
         "activation_function": "gelu_new"}
JOB = """version: 1
name: {name}
model: model.json
global_batch: {batch}
sequence: {sequence}
precision: fp32
hosts: [{hosts}]
framework: weft-train
reshard: on
"""
CONFIG = """
reshard: {cost: 1s, hold: 3s, retry: 5s}
"""
STRATEGIES = ["dp=2", "tp=2", "pp=2", "dp=2,zero_stage=3", "dp=2,zero_stage=1"]
TRAINING = ["--data", TEXT, "--lr", "0.0003", "--clip", "1", "--output", "json", "--threads", "1", "--type", "fp64"]


def start(cluster, name, plan, model, port):
    """A process per rank, with the environment that the plan has for it."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("WEFT_", "NCCL_"))}
    ranks, hosts = [], plan["rank_hosts"]
    for rank, host in enumerate(hosts):
        env = {**own, **plan["environment"], "WEFT_RUN_DIR": cluster.run_dir(host), "NCCL_SOCKET_IFNAME": "=eth0", "OMP_NUM_THREADS": "1"}
        command = [BIN / "weft-train", *env["WEFT_ARGUMENTS"].split(), "--config", model, *TRAINING, "--steps", MOST_STEPS, "--rank", rank, "--world",
                   len(hosts), "--rendezvous", f"{cluster.host[hosts[0]]['mgmt_address']}:{port}", "--plugin", PLUGIN, "--stall-timeout", "300s"]
        out = open(cluster.processes.path(f"{name}-{rank}.out.log"), "wb")  # noqa: SIM115
        err = open(cluster.processes.path(f"{name}-{rank}.log"), "wb")  # noqa: SIM115
        with out, err:
            ranks.append(subprocess.Popen(cluster.in_host(host, command), env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          preexec_fn=cluster.processes._die_with_parent))
    return Job(cluster, name, ranks)


def plain(model, steps):
    """Losses of one process without a plan."""
    ran = subprocess.run([BIN / "weft-train", "--config", model, "--seq", str(SEQUENCE), "--global-batch", str(BATCH), *TRAINING, "--steps",
                          str(steps)], capture_output=True, text=True, timeout=600 + steps, check=False)
    check(ran.returncode == 0, f"one process: {ran.stderr}")
    return [line["loss"] for line in map(json.loads, ran.stdout.splitlines()) if "step" in line]


def changes(job):
    return [line["reshard"] for line in job._lines() if "reshard" in line]


class Operator:
    """Asks for changes. One that cannot be made now is refused with a reason, which is no failure of the job's."""

    def __init__(self, cluster, seed):
        self.cluster, self.random, self.asked, self.refused = cluster, random.Random(f"operator {seed}"), 0, 0

    def ask(self, job):
        wanted = self.random.choice(STRATEGIES)
        try:
            ran = subprocess.run([BIN / "weft", "reshard", job.name, "--strategy", wanted, "--controller", self.cluster.controller, "--hold", "1s"],
                                 capture_output=True, text=True, timeout=5, check=False)
            accepted, said = ran.returncode == 0, ran.stdout + ran.stderr
        except subprocess.TimeoutExpired:
            accepted, said = False, "no answer in 5 s"
        self.asked += accepted
        self.refused += not accepted
        print(f"    {job.name}: {wanted} {'asked for' if accepted else 'refused'}: {said.strip().splitlines()[0][:160] if said.strip() else ''}", flush=True)


def chaos(cluster, jobs, count, rounds, operator):
    done = 0
    while done < count:
        drawn, last_s = rounds.next()
        within, after = rounds.random.sample(jobs, 2)
        print(f"fault {done + 1} of {count}: {' and '.join(map(str, drawn))} for {last_s:.1f} s", flush=True)
        strike(drawn, last_s, lambda job=within: operator.ask(job))
        took_s = further(jobs, GUARD_S)
        print(f"    the next two steps after {took_s:.1f} s", flush=True)
        cluster.processes.check_alive()
        cluster.wait_for_agents(GUARD_S)
        operator.ask(after)
        time.sleep(CALM_S)
        done += len(drawn)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    require_fabric()
    with FaultyCluster(hosts_per_leaf=2, config=CONFIG) as cluster:
        model = cluster.processes.write("model.json", json.dumps(MODEL))
        jobs = []
        for number, hosts in enumerate((cluster.hosts[0::2], cluster.hosts[1::2])):
            name = f"job{number}"
            weft(cluster, "submit", cluster.processes.write(f"{name}.yaml", JOB.format(name=name, batch=BATCH, sequence=SEQUENCE, hosts=", ".join(hosts))))
            plan = cluster.ask("explain", name)["job"]["plan"]
            jobs.append(start(cluster, name, plan, model, 29800 + number))
            cluster.jobs.append(jobs[-1])
            print(f"{name}: {plan['strategy']['text']} on {', '.join(plan['rank_hosts'])}", flush=True)
        further(jobs, GUARD_S)
        wait_until(lambda: len(cluster.ask("jobs")["jobs"]) == 2, GUARD_S, "the controller to know both jobs")
        operator = Operator(cluster, options.seed)
        chaos(cluster, jobs, options.faults, Rounds(cluster, options.seed, faults.ALL), operator)
        further(jobs, GUARD_S)
        found, made = {}, 0
        for job in jobs:
            job.kill()
            steps = job.steps_done()
            check([step["step"] for step in steps] == list(range(len(steps))), f"{job.name}: steps were lost")
            found[job.name] = [step["loss"] for step in steps]
            made += len(changes(job))
            print(f"{job.name}: {len(steps)} steps, changes to {', '.join(change['strategy'] for change in changes(job))}", flush=True)
        check(made >= options.faults // 4, f"{made} changes of strategy were made, {operator.asked} asked for, {operator.refused} refused")
        calm = plain(model, max(map(len, found.values())))
        for name, losses in found.items():
            worst = max(abs(float(a) - float(b)) / abs(float(b)) for a, b in zip(losses, calm))
            print(f"{name}: {len(losses)} losses within {worst:.1e} of one process", flush=True)
            check(worst <= 1e-9, f"{name}: losses differ by {worst:.3g}")
        print(f"{made} changes of strategy", flush=True)


if __name__ == "__main__":
    run_test(main)
