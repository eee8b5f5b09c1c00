#!/usr/bin/env python3
"""The Slurm hooks against a real Slurm cluster, a real controller and one real agent per node, all on loopback.

Needs root (munged, slurmd). Environment: WEFT_BIN, WEFT_LIB (where the programs and spank_weft.so were built).
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))

from daemons import Daemons  # noqa: E402
from processes import Failure, Processes, check, skip, wait_until  # noqa: E402
from slurm_cluster import SlurmCluster  # noqa: E402

BIN = pathlib.Path(os.environ["WEFT_BIN"])
LIB = pathlib.Path(os.environ["WEFT_LIB"])
LAUNCH_BOUND_S = 3.0
NOBODY = 65534

MODEL = {"model_type": "gpt2", "n_layer": 4, "n_embd": 128, "n_head": 4, "n_positions": 128, "vocab_size": 256}

# Prints each task's environment and stays until the test says so.
JOB = """\
#!/bin/bash
srun --ntasks-per-node=1 bash -c 'env | sort > {dir}/task-$SLURM_JOB_ID-$SLURM_PROCID.env; \
mv {dir}/task-$SLURM_JOB_ID-$SLURM_PROCID.env {dir}/task-$SLURM_JOB_ID-$SLURM_PROCID' || exit
until [ -e {dir}/go ]; do read -t 0.05 < {dir}/never; done
exit 0  # not the status of the last read, which is 142 where its time ran out just before the test said so
"""


class Site:
    """The cluster with Weft installed on it."""

    def __init__(self, processes):
        self.processes = processes
        self.directory = processes.directory
        self.hook_log = processes.path("hooks.txt")
        self.model = processes.write("config.json", json.dumps(MODEL, indent=1))
        self.script = processes.write("job.sh", JOB.format(dir=self.directory), mode=0o755)
        os.mkfifo(processes.path("never"))
        self.never = os.open(processes.path("never"), os.O_RDWR)  # keeps readers waiting instead of at end of file
        self.daemons = Daemons(processes, BIN)
        self.daemons.start_controller()
        hooks = {}
        for hook in ("prolog", "epilog"):  # Slurm passes no arguments, and a site's /etc/weft is not ours
            hooks[hook] = processes.write(f"{hook}.sh", f"#!/bin/sh\nexec {BIN}/weft-slurm-{hook} "
                                          f"--config {self.directory}/weft-slurm.conf\n", mode=0o755)
        processes.write("weft-slurm.conf", f'controller = "{self.daemons.listen}"\nlog = "{self.hook_log}"\n')
        self.slurm = SlurmCluster(processes, nodes=4,
                                  plugstack=f"required {LIB}/spank_weft.so run_dir={self.directory}/run/%n\n",
                                  extra=f"PrologSlurmctld={hooks['prolog']}\nEpilogSlurmctld={hooks['epilog']}")
        for name in self.slurm.names:
            self.daemons.start_agent(name, processes.path("run", name))
        self.slurm.start()
        self.daemons.wait_connected(*self.slurm.names)

    def hook_lines(self, job):
        if not os.path.exists(self.hook_log):
            return []
        with open(self.hook_log, encoding="utf-8") as file:
            return [line for line in file.read().splitlines() if f"job {job} " in line]

    def task_environment(self, job, rank):
        path = self.processes.path(f"task-{job}-{rank}")
        wait_until(lambda: os.path.exists(path), 20, f"task {rank} of job {job}")
        with open(path, encoding="utf-8") as file:
            return dict(line.split("=", 1) for line in file.read().splitlines() if "=" in line)

    def finish_jobs(self, *jobs):
        go = self.processes.write("go", "")
        for _ in jobs:
            os.write(self.never, b"\n")
        for job in jobs:
            self.slurm.wait_job(job)
        os.remove(go)


def planned_job_gets_its_environment(site):
    """The tasks on every host see the plan's variables, and the controller lists the job until its epilog."""
    job = site.slurm.submit(site.script, "-N4", f"--weft-model={site.model}", "--weft-batch=8", "--weft-seq=128",
                            "--job-name=planned")
    environments = [site.task_environment(job, rank) for rank in range(4)]
    for rank, environment in enumerate(environments):
        check(environment["SLURMD_NODENAME"] == f"n{rank + 1}", f"rank {rank} ran on {environment['SLURMD_NODENAME']}")
        check(environment.get("WEFT_JOB_ID") == str(job), f"rank {rank}: WEFT_JOB_ID={environment.get('WEFT_JOB_ID')}")
        check(environment.get("NCCL_NET_PLUGIN"), f"rank {rank} has no NCCL_NET_PLUGIN")
        run_dir = site.processes.path("run", f"n{rank + 1}")
        check(environment.get("WEFT_RUN_DIR") == run_dir, f"rank {rank}: WEFT_RUN_DIR={environment.get('WEFT_RUN_DIR')}")
        del environment["WEFT_RUN_DIR"]
    plans = {tuple(sorted((k, v) for k, v in e.items() if k.startswith(("WEFT_", "NCCL_")))) for e in environments}
    check(len(plans) == 1, f"ranks disagree about the plan: {plans}")

    listed = site.daemons.job(str(job))
    check(listed, f"the controller does not list job {job}")
    check(listed["spec"]["hosts"] == ["n1", "n2", "n3", "n4"], f"hosts {listed['spec']['hosts']}")
    check(int(listed["spec"]["global_batch"]) == 8, f"batch {listed['spec']['global_batch']}")
    site.finish_jobs(job)
    wait_until(lambda: (site.daemons.job(str(job)) or {"state": "released"})["state"] == "released", 5,
               f"the controller to release job {job}")
    lines = wait_until(lambda: len(site.hook_lines(job)) == 2 and site.hook_lines(job), 5, "both hooks' lines")
    check(" is planned: dp=" in lines[0] and " hosts=4 " in lines[0] and " is released" in lines[1], f"hook log: {lines}")
    check("launched unchanged" not in site.slurm.output(job), site.slurm.output(job))


def own_strategy_is_managed(site):
    """A plan of the user's goes from the submit host to the controller; one that is not legal leaves the job as it is."""
    options = ["-N2", f"--weft-model={site.model}", "--weft-batch=8", "--weft-seq=128", "--weft-framework=megatron"]
    plan = site.processes.write("plan.json", json.dumps({"plans": [{"strategy": {"tp": 2, "bucket_bytes": 1048576}}]}))
    job = site.slurm.submit(site.script, *options, f"--weft-plan={plan}")
    check(site.task_environment(job, 1).get("WEFT_JOB_ID") == str(job), "no WEFT_JOB_ID in the job")
    listed = site.daemons.job(str(job))
    check(listed and listed["plan"]["origin"] == "given", f"the controller has {listed}")
    check(listed["plan"]["strategy"]["text"].startswith("dp=1 tp=2 "), f"strategy {listed['plan']['strategy']}")
    check(listed["spec"]["framework"] == "megatron", f"framework {listed['spec']['framework']}")
    check(listed["spec"]["given_strategy"]["source"] == "--weft-plan=plan.json", f"{listed['spec']['given_strategy']}")
    site.finish_jobs(job)
    lines = wait_until(lambda: len(site.hook_lines(job)) == 2 and site.hook_lines(job), 5, "both hooks' lines")
    check(" is managed with its own strategy: dp=1 tp=2 " in lines[0], f"hook log: {lines}")

    plan = site.processes.write("illegal.json", json.dumps({"plans": [{"strategy": {"tp": 4}}]}))
    job = site.slurm.submit(site.script, *options, f"--weft-plan={plan}")
    check("WEFT_JOB_ID" not in site.task_environment(job, 0), "an illegal strategy changed the job")
    site.finish_jobs(job)
    lines = wait_until(lambda: site.hook_lines(job), 5, "the prolog's line")
    check("launched unchanged" in lines[0] and "(--weft-plan=illegal.json): tp=4, expected 1 to the job's 2 GPUs" in lines[0],
          f"hook log: {lines}")
    check("the log of weft-slurm-prolog says why" in site.slurm.output(job), site.slurm.output(job))


def named_program_gets_its_arguments(site):
    """A job of Megatron-LM's is searched for Megatron-LM, and srun's tasks have the arguments and variables that its plan has; one of
    weft-train's has the words of which each rank makes its program."""
    for program, title, argument in (("megatron", "Megatron-LM", "--tensor-model-parallel-size"), ("weft-train", "weft-train", "--program-digest")):
        job = site.slurm.submit(site.script, "-N2", f"--weft-model={site.model}", "--weft-batch=8", "--weft-seq=128",
                                f"--weft-framework={program}")
        environments = [site.task_environment(job, rank) for rank in range(2)]
        plan = site.daemons.job(str(job))["plan"]
        check(plan["origin"] == "search", f"the controller has {plan}")
        check(argument in plan["arguments"], f"arguments {plan['arguments']}")
        for rank, environment in enumerate(environments):
            check(environment.get("WEFT_ARGUMENTS", "").split(" ") == plan["arguments"], f"rank {rank}: {environment.get('WEFT_ARGUMENTS')}")
            for name, value in plan["environment"].items():
                check(name == "WEFT_RUN_DIR" or environment.get(name) == value, f"rank {rank}: {name}={environment.get(name)}, planned {value}")
        check(any(line.startswith(f"enforced: the strategy, where {title}") for line in plan["why"]), f"why {plan['why']}")
        site.finish_jobs(job)
        check(" is planned: dp=" in wait_until(lambda: site.hook_lines(job), 5, "the prolog's line")[0], f"hook log: {site.hook_lines(job)}")


def file_of_a_program_is_handed_over(site):
    """What a program reads from a file travels as text that printf writes back, whatever the site's default is."""
    before = pathlib.Path(site.processes.path("weft-slurm.conf")).read_text(encoding="utf-8")
    site.processes.write("weft-slurm.conf", before + 'framework = "deepspeed"\n')
    try:
        job = site.slurm.submit(site.script, "-N2", f"--weft-model={site.model}", "--weft-batch=8", "--weft-seq=128")
        environment = site.task_environment(job, 1)
        check(site.daemons.job(str(job))["spec"]["framework"] == "deepspeed", f"{site.daemons.job(str(job))['spec']}")
        written = subprocess.run(["bash", "-c", "printf '%b' \"$WEFT_FILE_DEEPSPEED_JSON\""], env=environment, capture_output=True,
                                 text=True, timeout=30, check=True).stdout
        check(json.loads(written)["train_batch_size"] == 8, f"deepspeed.json: {written!r}")
        site.finish_jobs(job)
    finally:
        site.processes.write("weft-slurm.conf", before)


def job_without_a_strategy_is_managed(site):
    """What the planner has no strategy for is called so and gets its environment all the same."""
    job = site.slurm.submit(site.script, "-N2", f"--weft-model={site.model}", "--weft-batch=7", "--weft-seq=128")
    check(site.task_environment(job, 1).get("WEFT_JOB_ID") == str(job), "no WEFT_JOB_ID in the job")
    check(site.daemons.job(str(job))["state"] == "managed", f"state {site.daemons.job(str(job))['state']}")
    site.finish_jobs(job)
    lines = wait_until(lambda: site.hook_lines(job), 5, "the prolog's line")
    check(" is managed, not planned: no strategy fits: batch: " in lines[0], f"hook log: {lines}")


def own_settings_win(site):
    """A variable that the user set keeps its value everywhere, and the job's output says so once."""
    job = site.slurm.submit(site.script, "-N2", f"--weft-model={site.model}", "--weft-batch=8",
                            env={"NCCL_NET_PLUGIN": "mine"})
    for rank in range(2):
        environment = site.task_environment(job, rank)
        check(environment["NCCL_NET_PLUGIN"] == "mine", f"rank {rank}: {environment['NCCL_NET_PLUGIN']}")
        check(environment["WEFT_JOB_ID"] == str(job), f"rank {rank}: WEFT_JOB_ID={environment.get('WEFT_JOB_ID')}")
    site.finish_jobs(job)
    said = [line for line in site.slurm.output(job).splitlines() if "your own setting wins" in line]
    check(len(said) == 1 and "NCCL_NET_PLUGIN" in said[0], f"the output has {said}")


def settings_of_an_outer_job_do_not_leak(site):
    """What the hook set in an outer job is nobody's own setting in a job submitted from inside it."""
    outer = {"WEFT_SLURM_LAUNCH": "999:WEFT_JOB_ID,WEFT_OLD", "WEFT_JOB_ID": "999", "WEFT_OLD": "1"}
    planned = site.slurm.submit(site.script, "-N2", f"--weft-model={site.model}", "--weft-batch=8", env=outer)
    plain = site.slurm.submit(site.script, "-N1", env=outer)
    check(site.task_environment(planned, 1)["WEFT_JOB_ID"] == str(planned), "the outer job's WEFT_JOB_ID won")
    for job in (planned, plain):
        check("WEFT_OLD" not in site.task_environment(job, 0), f"job {job} still has the outer job's WEFT_OLD")
    check("WEFT_JOB_ID" not in site.task_environment(plain, 0), "the plain job has the outer job's WEFT_JOB_ID")
    site.finish_jobs(planned, plain)


def plain_jobs_are_left_alone(site):
    """A job without Weft's options has no variable of ours, no line in its output and no call of the controller."""
    job = site.slurm.submit(site.script, "-N1")
    environment = site.task_environment(job, 0)
    ours = [name for name in environment if name.startswith(("WEFT_", "NCCL_"))]
    check(not ours, f"variables {ours}")
    check(site.daemons.job(str(job)) is None, "the controller lists it")
    site.finish_jobs(job)
    check("weft" not in site.slurm.output(job), site.slurm.output(job))
    check(not site.hook_lines(job), f"hook log: {site.hook_lines(job)}")


def other_users_srun_without_a_batch_script_is_planned_too(site):
    """The agent's socket is open to job owners, and a model file is read with its submitter's rights."""
    result = site.slurm.run("srun", "-N2", f"--weft-model={site.model}", "--weft-batch=8", "bash", "-c",
                            "echo $SLURM_JOB_ID $WEFT_JOB_ID", user=NOBODY)
    for line in result.stdout.splitlines():
        check(len(line.split()) == 2 and len(set(line.split())) == 1, f"srun printed {result.stdout!r}")
    check(len(result.stdout.splitlines()) == 2, f"srun printed {result.stdout!r}")
    secret = site.processes.write("secret.json", "{}", mode=0o600)
    refused = site.slurm.run("srun", f"--weft-model={secret}", "true", user=NOBODY, check_status=False)
    check(refused.returncode != 0 and "Permission denied" in refused.stderr, f"srun said {refused.stderr!r}")


def bad_values_are_rejected(site):
    """The command fails at once, with a message that names option, value and what was expected."""
    not_json = site.processes.write("notes.txt", "hello\n")
    no_plan = site.processes.write("no-plan.json", "{}")
    cases = (
        (["--weft-model=/nonexistent/config.json"], "--weft-model=/nonexistent/config.json: read the model file: No such"),
        ([f"--weft-model={not_json}"], "not a JSON object"),
        ([f"--weft-model={site.model}", "--weft-batch=eight"], "--weft-batch=eight: expected a whole number"),
        ([f"--weft-model={site.model}", "--weft-batch=0"], "--weft-batch=0: expected a whole number"),
        (["--weft-batch=8"], "--weft-batch: needs --weft-model too"),
        ([f"--weft-plan={no_plan}"], 'key "plans": no plan in it, expected what weft plan --output json prints'),
        ([f"--weft-model={site.model}", "--weft-plan=/nonexistent.json"], "--weft-plan=/nonexistent.json: read the plan: No such"),
        (["--weft-framework=megatron"], "--weft-framework: needs --weft-model too"),
        ([f"--weft-model={site.model}", "--weft-framework=a b"], "--weft-framework=a b: expected a name such as megatron"),
    )
    for command in (("sbatch",), ("srun",)):
        for options, message in cases:
            result = site.slurm.run(*command, *options, site.script, check_status=False)
            check(result.returncode != 0, f"{command[0]} {options} was accepted")
            check(message in result.stderr, f"{command[0]} {options}: {result.stderr.strip()!r}")
    queue = site.slurm.run("squeue", "--noheader")
    check(not queue.stdout.strip(), f"a rejected job is in the queue: {queue.stdout}")
    usage = site.slurm.run("sbatch", "--help").stdout
    check("--weft-model=PATH" in usage and "--weft-batch=N" in usage, "the options are not in sbatch --help")


class AgentWithAnOrder:
    """In place of a host's agent: answers every hook with a plan that orders the hosts. Only where probes have seen leaf
    switches does the controller order hosts, and loopback has none."""

    HEADER = struct.Struct("=IHHII")  # netplugin/abi/agent_socket.h
    MAGIC, VERSION, REQUEST, REPLY, TEXT_BYTES = 0x54465741, 1, 4, 5, 8184

    def __init__(self, run_dir, order):
        self.order = order
        path = os.path.join(run_dir, "agent.sock")
        if os.path.exists(path):
            os.remove(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        os.chmod(path, 0o666)
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return  # closed
            with peer:
                request = peer.recv(65536)
                magic, _, kind, _, _ = self.HEADER.unpack_from(request)
                if magic != self.MAGIC or kind != self.REQUEST:
                    continue
                job = request[self.HEADER.size:self.HEADER.size + 64].split(b"\0", 1)[0].decode()
                text = f"WEFT_JOB_ID={job}\nWEFT_HOST_ORDER={','.join(self.order)}\n".encode()
                body = struct.pack("=II", 1, len(text)) + text.ljust(self.TEXT_BYTES, b"\0")
                peer.send(self.HEADER.pack(self.MAGIC, self.VERSION, self.REPLY, len(body), 0) + body)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


def ranks_land_on_the_planned_hosts(site):
    """Rank r runs on the plan's r-th host where the job fixes its tasks per node, and nothing but the order changes."""
    order = ["n1", "n4", "n2", "n3"]
    site.daemons.stop_agent("n1")
    agent = AgentWithAnOrder(site.processes.path("run", "n1"), order)
    options = ["-N4", f"--weft-model={site.model}", "--weft-batch=8"]
    cases = ((["--ntasks-per-node=1"], None, order, "ranks are on n1,n4,n2,n3 in this order"),
             (["--ntasks=4"], None, order, "ranks are on n1,n4,n2,n3 in this order"),
             ([], None, sorted(order), "ranks keep Slurm's order: the job does not fix its tasks per node"),
             (["--ntasks-per-node=1"], {"WEFT_RANK_ORDER": "off"}, sorted(order), None),
             (["--ntasks-per-node=1", "--distribution=cyclic"], None, sorted(order), "your own setting wins"))
    for further, environment, hosts, line in cases:
        job = site.slurm.submit(site.script, *options, *further, env=environment)
        ran = [site.task_environment(job, rank)["SLURMD_NODENAME"] for rank in range(4)]
        check(ran == hosts, f"{further} {environment}: ranks 0 to 3 ran on {ran}, expected {hosts}")
        check(not os.path.exists(site.processes.path(f"task-{job}-4")), f"{further}: more than four tasks started")
        site.finish_jobs(job)
        said = [text for text in site.slurm.output(job).splitlines() if "weft:" in text]
        check((line is None and not said) or (len(said) == 1 and line in said[0]), f"{further}: the output has {said}")
        wait_until(lambda: not os.path.exists(f"/tmp/weft-ranks-{job}"), 5, f"job {job}'s host file to go")
    agent.close()
    site.daemons.start_agent("n1", site.processes.path("run", "n1"))


def missing_agent_leaves_the_job_unchanged(site):
    """The batch host's agent is away: no rank gets the plan, so that no two ranks disagree."""
    site.daemons.stop_agent("n1", signal.SIGKILL)
    job = site.slurm.submit(site.script, "-N2", "-w", "n1,n2", f"--weft-model={site.model}", "--weft-batch=8")
    for rank in range(2):
        check("WEFT_JOB_ID" not in site.task_environment(job, rank), f"rank {rank} has the plan")
    site.finish_jobs(job)
    said = [line for line in site.slurm.output(job).splitlines() if "launched unchanged" in line]
    check(len(said) == 1 and "agent.sock" in said[0] and "on n1" in said[0], f"the output has {said}")
    site.daemons.start_agent("n1", site.processes.path("run", "n1"))


def dead_controller_leaves_the_job_unchanged(site):
    """Within the bound of 3 s, with one line in the hook's log and one in the job's output."""
    site.daemons.stop_controller(signal.SIGKILL)
    started = time.monotonic()
    environment = {"SLURM_JOB_ID": "4242", "SLURM_JOB_NODELIST": "n1", "SPANK_WEFT_MODEL_JSON": json.dumps(MODEL)}
    hook = subprocess.run([site.processes.path("prolog.sh")], env=environment, capture_output=True, text=True,
                          timeout=30, check=False)
    check(hook.returncode == 0, f"prolog: exit {hook.returncode}")
    check("job 4242 is launched unchanged: controller " in hook.stderr, f"prolog: {hook.stderr!r}")
    check(time.monotonic() - started < LAUNCH_BOUND_S, f"prolog took {time.monotonic() - started:.1f} s")

    job = site.slurm.submit(site.script, "-N2", f"--weft-model={site.model}", "--weft-batch=8")
    for rank in range(2):
        environment = site.task_environment(job, rank)
        check("WEFT_JOB_ID" not in environment and "NCCL_NET_PLUGIN" not in environment, f"rank {rank} was changed")
    site.finish_jobs(job)
    said = [line for line in site.slurm.output(job).splitlines() if "launched unchanged" in line]
    check(len(said) == 1, f"the output has {said}")
    lines = wait_until(lambda: len(site.hook_lines(job)) == 2 and site.hook_lines(job), 5, "both hooks' lines")
    check("launched unchanged" in lines[0] and "is not released" in lines[1], f"hook log: {lines}")


FACTS = (
    bad_values_are_rejected,
    planned_job_gets_its_environment,
    own_strategy_is_managed,
    named_program_gets_its_arguments,
    file_of_a_program_is_handed_over,
    job_without_a_strategy_is_managed,
    own_settings_win,
    settings_of_an_outer_job_do_not_leak,
    plain_jobs_are_left_alone,
    other_users_srun_without_a_batch_script_is_planned_too,
    ranks_land_on_the_planned_hosts,
    missing_agent_leaves_the_job_unchanged,
    dead_controller_leaves_the_job_unchanged,
)


def main():
    if os.geteuid() != 0:
        skip("slurm", "a loopback Slurm cluster needs root")
    for program in ("munged", "slurmctld", "slurmd", "sbatch"):
        if not shutil.which(program):
            skip("slurm", f"no {program}: install the packages of deploy/packages.txt")
    started = time.monotonic()
    with Processes("weft-slurm-") as processes:
        try:
            site = Site(processes)
            print(f"cluster up after {time.monotonic() - started:.1f} s", flush=True)
            for fact in FACTS:
                fact_started = time.monotonic()
                fact(site)
                print(f"ok {fact.__name__} ({time.monotonic() - fact_started:.1f} s)", flush=True)
        except Failure as failure:
            processes.print_logs()
            print(f"FAIL after {time.monotonic() - started:.1f} s: {failure}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
