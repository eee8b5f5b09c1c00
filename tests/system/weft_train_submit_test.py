#!/usr/bin/env python3
"""Jobs of weft-train from `weft submit` to their last step: the controller searches or prices a strategy, four ranks start with
what the launch environment hands them, and learn what one process without a plan learns; what is sent is what the program says.
What weft-train does not run is refused with its reason, and what was planned for another model by every rank.
"""
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Processes, check, free_ports, run_test, wait_until  # noqa: E402

BIN = pathlib.Path(os.environ["WEFT_BIN"])
PLUGIN = os.path.join(os.environ["WEFT_LIB"], "libnccl-net-weft.so")
TEXT = "/usr/share/common-licenses"
HOSTS = ["h1", "h2", "h3", "h4"]
STEPS, SEQUENCE, BATCH = 6, 16, 8
LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 4,
         "intermediate_size": 48, "max_position_embeddings": 64, "vocab_size": 256, "rms_norm_eps": 1e-6, "hidden_act": "silu",
         "tie_word_embeddings": False}
MODELS = {
    "llama": LLAMA,
    "gpt": {"model_type": "gpt2", "n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 64, "vocab_size": 256, "n_inner": 64,
            "activation_function": "gelu_new"},
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.02},
}
JOB = """version: 1
name: {name}
model: {model}.json
global_batch: {batch}
sequence: {sequence}
precision: {precision}
hosts: [{hosts}]
ranks_per_host: {ranks}
framework: weft-train
"""
TRAINING = ["--data", TEXT, "--steps", str(STEPS), "--lr", "0.003", "--clip", "1", "--output", "json"]


class Site:
    def __init__(self, processes):
        self.processes = processes
        for name, config in MODELS.items():
            processes.write(f"{name}.json", json.dumps(config))
        config = processes.write("controller.yaml", "version: 1\ncluster: {preset: dgx-h100}\n")
        self.address = processes.start_ready("controller", [
            BIN / "weft-controller", "--config", config, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--state-dir",
            processes.path("state")])["listen"]
        for host in HOSTS:
            processes.start_ready(f"agent-{host}", [
                BIN / "weft-agent", "--host", host, "--run-dir", processes.path("run", host), "--interfaces", "lo", "--controller",
                self.address, "--http", "127.0.0.1:0"])
        wait_until(lambda: len([h for h in self.ask("topo")["hosts"] if h["connected"]]) == len(HOSTS), 20, "all agents")
        self.known = {}

    def weft(self, *command, status=0, online=True):
        """What the command printed to stdout, or to stderr if it is to fail."""
        address = ["--controller", self.address] if online else []
        ran = subprocess.run([BIN / "weft", *map(str, command), *address], capture_output=True, text=True, timeout=120, check=False)
        check(ran.returncode == status, f"weft {' '.join(map(str, command))}: status {ran.returncode}, expected {status}: "
                                        f"{ran.stdout}{ran.stderr}")
        return ran.stderr if status else ran.stdout

    def ask(self, *command):
        return json.loads(self.weft(*command, "--output", "json"))

    def job(self, name, model="llama", keys="", hosts=None, ranks=1, batch=BATCH, precision="fp32"):
        return self.processes.write(f"{name}.yaml", JOB.format(name=name, model=model, batch=batch, sequence=SEQUENCE, ranks=ranks,
                                                               precision=precision, hosts=", ".join(hosts or HOSTS)) + keys)

    def submitted(self, name, **job):
        """The plan of a job, as a batch system gets it."""
        self.weft("submit", self.job(name, **job))
        plan = self.ask("explain", name)["job"]["plan"]
        check(plan["environment"]["WEFT_ARGUMENTS"].split() == plan["arguments"], f"{name}: {plan['environment']}")
        check(not any(line.startswith("not enforced") for line in plan["why"]), f"{name}: {plan['why']}")
        return plan

    def start(self, name, plan, model):
        """A process per rank, on the host and with the environment that the plan has for it."""
        own = {key: value for key, value in os.environ.items() if not key.startswith(("WEFT_", "NCCL_"))}
        port, children, hosts = free_ports(1)[0], [], plan["rank_hosts"]
        for rank, host in enumerate(hosts):
            environment = {**own, **plan["environment"], "WEFT_RUN_DIR": self.processes.path("run", host), "NCCL_SOCKET_IFNAME": "lo",
                           "OMP_NUM_THREADS": "1"}
            command = [BIN / "weft-train", *environment["WEFT_ARGUMENTS"].split(), "--config", self.processes.path(f"{model}.json"),
                       *TRAINING, "--rank", rank, "--world", len(hosts), "--rendezvous", f"127.0.0.1:{port}", "--plugin", PLUGIN,
                       "--stall-timeout", "60s"]
            children.append(self.processes.start(f"{name}-rank{rank}", list(map(str, command)), env=environment, stdout_pipe=rank == 0))
        return children

    def trained(self, name, plan, model):
        """What rank 0 printed, once all ranks are through."""
        children = self.start(name, plan, model)
        output, _ = children[0].communicate(timeout=240)
        for rank, child in enumerate(children):
            status = child.wait(240)
            check(status == 0, f"{name}: rank {rank} ended with {status}: {self.processes.log(f'{name}-rank{rank}')}")
            del self.processes.children[f"{name}-rank{rank}"]
        return [json.loads(line) for line in output.splitlines()]

    def plain(self, model):
        """Losses of one process without a plan."""
        if model not in self.known:
            ran = subprocess.run([BIN / "weft-train", "--config", self.processes.path(f"{model}.json"), "--seq", str(SEQUENCE),
                                  "--global-batch", str(BATCH), *TRAINING], capture_output=True, text=True, timeout=240, check=False)
            check(ran.returncode == 0, f"plain {model}: {ran.stderr}")
            self.known[model] = [line["loss"] for line in map(json.loads, ran.stdout.splitlines()) if "step" in line]
        return self.known[model]


def expect(text, *pieces):
    for piece in pieces:
        check(piece in text, f"expected {piece!r} in:\n{text}")


def run_job(site, name, model="llama", keys="", same=True, **job):
    plan = site.submitted(name, model=model, keys=keys, **job)
    lines = site.trained(name, plan, model)
    losses = [line["loss"] for line in lines if "step" in line]
    check(len(losses) == STEPS, f"{name}: {len(losses)} steps")
    if same:
        worst = max(abs(a - b) / abs(b) for a, b in zip(losses, site.plain(model), strict=True))
        check(worst < 1e-4, f"{name}: losses differ by {worst:.3g}: {losses} {site.plain(model)}")
    volumes = lines[-1]["summary"]["volumes"]
    for volume in volumes:
        check(volume["planned_bytes"] == volume["sent_bytes"] and volume["planned_calls"] == volume["calls"], f"{name}: {volume}")
    check(lines[0]["job"]["strategy"] == plan["strategy"]["text"], f"{name}: {lines[0]['job']} runs, planned {plan['strategy']}")
    site.weft("release", name)
    return plan


def searched_jobs_train(site):
    for model in ("llama", "gpt"):
        plan = run_job(site, f"searched-{model}", model)
        check(plan["origin"] == "search", plan["origin"])
    # Experts drop tokens by the plan's groups: only what is sent is compared.
    run_job(site, "searched-mixtral", "mixtral", same=False)


def strategies_of_ones_own_train(site):
    for name, keys in (("tp-pp", "strategy: {tp: 2, pp: 2}\n"), ("zero", "strategy: {dp: 2, tp: 2, zero_stage: 3}\n"),
                       ("zb", "strategy: {pp: 4, schedule: zb-h1}\n"), ("osdp", "strategy: {dp: 4, zero_stage: 3, sharding: osdp}\n")):
        plan = run_job(site, name, keys=keys)
        check(plan["origin"] == "given", plan["origin"])
    run_job(site, "pair", keys="strategy: {pp: 2}\n", hosts=["h2", "h3"])
    run_job(site, "experts", "mixtral", keys="strategy: {dp: 4, ep: 4, micro_batch: 2}\n", same=False)
    run_job(site, "experts-zero", "mixtral", keys="strategy: {dp: 4, ep: 2, zero_stage: 3, micro_batch: 2}\n", same=False)


def arguments_are_those_of_emit(site):
    command = ("plan", site.processes.path("llama.json"), "--cluster", "dgx-h100:4", "--global-batch", "64", "--seq", SEQUENCE, "--precision",
               "fp32", "--framework", "weft-train")
    emitted = site.weft(*command, "--emit", "weft-train", online=False)
    words = " ".join(line for line in emitted.splitlines() if not line.startswith("#")).split()
    plan = site.submitted("wide", ranks=8, batch=64)
    check(plan["arguments"] == words, f"emitted {words}, submitted {plan['arguments']}")
    site.weft("release", "wide")


def what_is_not_run_is_refused(site):
    refused = site.weft("submit", site.job("bad", "mixtral", "strategy: {dp: 2, tp: 2, zero_stage: 2}\n"), status=2)
    expect(refused, "weft-train 0.1 does not run it: zero_stage=2: not executed with ep=1 and etp=1, expected together at least tp=2")
    expect(site.weft("submit", site.job("half", precision="bf16")), "managed, not planned", "precision bf16: not executed, expected fp32")
    site.weft("release", "half")
    site.processes.write("words.json", json.dumps({**LLAMA, "vocab_size": 512}))
    expect(site.weft("submit", site.job("words", "words")), "managed, not planned", "a vocabulary of 512, expected 256")
    site.weft("release", "words")


def another_model_is_refused_by_every_rank(site):
    plan = site.submitted("other", keys="strategy: {tp: 2, pp: 2}\n")
    site.processes.write("deeper.json", json.dumps({**LLAMA, "num_hidden_layers": 6}))
    for rank, child in enumerate(site.start("other", plan, "deeper")):
        status = child.wait(60)
        log = site.processes.log(f"other-rank{rank}")
        check(status == 2 and "another config.json, batch, sequence or type" in log, f"rank {rank}: {status}: {log}")
        del site.processes.children[f"other-rank{rank}"]
    site.weft("release", "other")


def main():
    with Processes() as processes:
        site = Site(processes)
        for fact in (searched_jobs_train, strategies_of_ones_own_train, arguments_are_those_of_emit, what_is_not_run_is_refused,
                     another_model_is_refused_by_every_rank):
            fact(site)
            print(f"ok {fact.__name__}", flush=True)
    return 0


if __name__ == "__main__":
    run_test(main)
