#!/usr/bin/env python3
"""A job's own strategy with the built programs: `weft plan` finds one for Megatron, `weft submit --plan` gives it, `jobs`,
`explain` and `release` call the job what it is, over a restart too; an illegal one is refused with its reason; a job without
any is managed and called so.
"""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Processes, check, run_test, wait_until  # noqa: E402

BIN = pathlib.Path(os.environ["WEFT_BIN"])
HOSTS = ["h1", "h2", "h3", "h4"]
JOB = """version: 1
name: {name}
model: llama3-70b
global_batch: 128
sequence: 4096
hosts: [h1, h2, h3, h4]
ranks_per_host: 8
framework: megatron
"""


class Site:
    def __init__(self, processes):
        self.processes = processes
        self.config = processes.write("controller.yaml", "version: 1\ncluster: {preset: dgx-h100}\n")
        self.start_controller()
        for host in HOSTS:
            processes.start_ready(f"agent-{host}", [
                BIN / "weft-agent", "--host", host, "--run-dir", processes.path("run", host), "--interfaces", "lo",
                "--controller", self.address, "--http", "127.0.0.1:0"])
        self.wait_for_agents()

    def start_controller(self, listen="127.0.0.1:0"):
        ready = self.processes.start_ready("controller", [
            BIN / "weft-controller", "--config", self.config, "--listen", listen, "--http", "127.0.0.1:0", "--state-dir",
            self.processes.path("state")])
        self.address = ready["listen"]

    def wait_for_agents(self):
        wait_until(lambda: len([h for h in self.ask("topo")["hosts"] if h["connected"]]) == len(HOSTS), 20, "all agents")

    def weft(self, *command, online=True):
        address = ["--controller", self.address] if online else []
        return subprocess.run([BIN / "weft", *map(str, command), *address], capture_output=True, text=True, timeout=120,
                              check=False)

    def done(self, *command, status=0, online=True):
        """What the command printed to stdout, or to stderr if it is to fail."""
        ran = self.weft(*command, online=online)
        check(ran.returncode == status, f"weft {' '.join(map(str, command))}: status {ran.returncode}, expected {status}: "
                                        f"{ran.stdout}{ran.stderr}")
        return ran.stderr if status else ran.stdout

    def ask(self, *command):
        return json.loads(self.done(*command, "--output", "json"))

    def job(self, name, keys="", framework="megatron"):
        return self.processes.write(f"{name}.yaml", JOB.format(name=name).replace("megatron", framework) + keys)


def expect(text, *pieces):
    for piece in pieces:
        check(piece in text, f"expected {piece!r} in:\n{text}")


def line_of(text, start):
    found = [line for line in text.splitlines() if line.startswith(start)]
    check(len(found) == 1, f"expected one line that starts with {start!r} in:\n{text}")
    return found[0]


def plan_of_the_planner_is_taken(site):
    plans = site.done("plan", "llama3-70b", "--cluster", "dgx-h100:4", "--global-batch", "128", "--seq", "4096", "--framework",
                      "megatron", "--fix", "tp=8,pp=4", "--output", "json", online=False)
    path = site.processes.write("plan.json", plans)
    best = json.loads(plans)["plans"][0]
    out = site.done("submit", site.job("own"), "--plan", path)
    expect(out, "your own strategy: dp=1 tp=8 pp=4", "fits", "WEFT_JOB_ID=own", "NCCL_NET=Weft")
    expect(line_of(out, "arguments: "), "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4")
    expect(line_of(site.done("jobs"), "own "), " planned ", " plan own ")
    listed = [job for job in site.ask("jobs")["jobs"] if job["spec"]["job_id"] == "own"][0]
    check(listed["plan"]["origin"] == "given", f"origin {listed['plan']['origin']}")
    price = listed["plan"]["predicted"]["iteration_s"]
    check(abs(price - best["predicted"]["iteration_s"]) < 1e-9 * price, f"priced {price}, planned {best['predicted']}")
    explained = site.done("explain", "own")
    expect(explained, "given by the job's user (plan.json, plan 0): dp=1 tp=8 pp=4", "memory ", "fits",
           "no bound and no runner-up", "traffic: paths, classes and windows follow what is measured")
    check("runner-up " not in explained, f"a runner-up of what was not searched:\n{explained}")
    check("already" in site.done("submit", site.job("own"), "--plan", path, status=1), "submitted twice")


def a_program_that_is_named_is_searched(site):
    """What weft plan chooses for Megatron-LM on these hosts, with the arguments that it emits."""
    command = ("plan", "llama3-70b", "--cluster", "dgx-h100:4", "--global-batch", "128", "--seq", "4096", "--framework", "megatron")
    strategy = json.loads(site.done(*command, "--output", "json", online=False))["plans"][0]["strategy"]
    emitted = site.done(*command, "--emit", "megatron", online=False)
    words = " ".join(line for line in emitted.splitlines() if not line.startswith("#")).replace('"', "").split()
    out = site.done("submit", site.job("searched"))
    check(line_of(out, "arguments: ").split()[1:] == words, f"emitted {words}, submitted\n{out}")
    expect(out, "enforced: the strategy, where Megatron-LM core_v0.19.0 reads")
    plan = site.ask("explain", "searched")["job"]["plan"]
    for name in ("dp", "tp", "pp", "cp", "vpp", "micro_batch", "zero_stage"):
        check(int(plan["strategy"].get(name, 0)) == strategy[name], f"{name}: {plan['strategy']}, planned {strategy}")
    check(plan["environment"]["WEFT_ARGUMENTS"].split() == words, f"{plan['environment']}")
    site.done("release", "searched")


def it_survives_a_restart(site):
    listen = site.address
    site.processes.stop("controller")
    site.start_controller(listen)
    expect(line_of(site.done("jobs"), "own "), " planned ", " plan own ")
    expect(site.done("explain", "own"), "given by the job's user (plan.json, plan 0): dp=1 tp=8 pp=4")
    site.wait_for_agents()
    site.done("release", "own")
    expect(line_of(site.done("jobs"), "own "), " released ")


def illegal_ones_are_refused_with_the_reason(site):
    refused = site.done("submit", site.job("bad", "strategy: {tp: 8, pp: 2}\n"), status=2)
    expect(refused, 'job "bad": given strategy (bad.yaml, key strategy): gpus: dp=1 x tp=8 x cp=1 x pp=2 = 16, expected the job\'s 32')
    refused = site.done("submit", site.job("bad", "strategy: {tp: 8, dp: 4, zero_stage: 3}\n"), status=2)
    expect(refused, "Megatron-LM core_v0.19.0 does not run it: zero_stage=3, expected 0 or 1", "weft plan --framework megatron")
    refused = site.done("submit", site.job("bad"), "--plan", site.processes.write("bad.json", '{"plans": 1}'), status=2)
    expect(refused, "bad.json: key \"plans\"", "as weft plan --output json prints it")
    check(len(refused.splitlines()) == 1, f"expected one line: {refused}")
    check("bad" not in site.done("jobs"), "a refused job is listed")


def one_that_does_not_fit_is_taken_with_a_warning(site):
    out = site.done("submit", site.job("large", "strategy: {tp: 8, dp: 4}\n"))
    expect(out, "does not fit", "warning: memory: ", "predicted not to fit")
    site.done("release", "large")


def without_one_the_job_is_managed(site):
    out = site.done("submit", site.job("bare", framework="torchrun"))  # data parallelism, which would not fit
    expect(out, "not enforced: how your script splits the model")
    expect(out, "job bare is managed, not planned", "not planned: no strategy fits: ", "weft submit JOB.yaml --plan plan.json",
           "WEFT_JOB_ID=bare")
    check("arguments:" not in out, f"arguments without a plan:\n{out}")
    expect(line_of(site.done("jobs"), "bare "), " managed ", " plan none ")
    explained = site.done("explain", "bare")
    expect(explained, "none: managed, not planned", "not planned: no strategy fits: ", "weft submit JOB.yaml --plan plan.json")
    check("was not submitted" not in explained, explained)
    # It may still be given one.
    expect(site.done("submit", site.job("bare"), "--plan", site.processes.path("plan.json")), "your own strategy: ")
    expect(line_of(site.done("jobs"), "bare "), " planned ", " plan own ")
    site.done("release", "bare")
    expect(line_of(site.done("jobs"), "bare "), " released ")


def main():
    with Processes() as processes:
        site = Site(processes)
        for fact in (plan_of_the_planner_is_taken, a_program_that_is_named_is_searched, it_survives_a_restart, illegal_ones_are_refused_with_the_reason,
                     one_that_does_not_fit_is_taken_with_a_warning, without_one_the_job_is_managed):
            fact(site)
            print(f"ok {fact.__name__}", flush=True)
    return 0


if __name__ == "__main__":
    run_test(main)
