"""A namespace fabric with a controller, an agent per host and training jobs, out of the built programs.

    with WeftCluster(hosts_per_leaf=2) as cluster:      # needs root; see require_fabric()
        job = cluster.start_job("a", cluster.hosts, steps=40)
        cluster.kill("agent-h1")
        losses = job.losses()
"""

import json
import os
import pathlib
import signal
import subprocess

from processes import Failure, Processes, check, skip, wait_until

BIN = pathlib.Path(os.environ["WEFT_BIN"])
LIB = pathlib.Path(os.environ["WEFT_LIB"])
PLUGIN = LIB / "libnccl-net-weft.so"
TEXT = "/usr/share/common-licenses"

CONTAINER = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
# Arguments: the folder of the agent's socket on the host, then the command.
INSIDE = """set -e
mount -t tmpfs none /mnt
mkdir /mnt/weft
mount --bind "$1" /mnt/weft
mount -o remount,bind,ro,nosuid,nodev /mnt/weft
shift
exec env WEFT_RUN_DIR=/mnt/weft "$@"
"""


def require_fabric():
    """Ends the test as skipped where namespaces cannot be made, or as failed where WEFT_REQUIRE asks for them."""
    if os.geteuid() == 0 and subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode == 0:
        return
    skip("fabric", "this user cannot make network namespaces, which needs root")


def in_container(run_dir, command):
    """The command in a PID, mount and user namespace of its own, with nothing of the host's but the folder of the agent's socket, mounted
    read-only in another place."""
    return [*CONTAINER, "sh", "-c", INSIDE, "sh", run_dir, *command]


class Job:
    """A weft-train process per rank."""

    def __init__(self, cluster, name, ranks):
        self.cluster, self.name, self.ranks = cluster, name, ranks

    def steps_done(self):
        return [line for line in self._lines() if "step" in line]

    def first_sent_s(self):
        """When the first iteration's bytes were sent, or before: time.monotonic()."""
        first = self.steps_done()[0]
        return first["time_s"] - first["iteration_s"]

    def _lines(self):
        lines = []
        for line in self.cluster.processes.log(f"{self.name}-0.out").splitlines():
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                pass  # the last line, half written
        return lines

    def wait_for_step(self, step, timeout_s=60):
        self.cluster.processes.check_alive()
        return wait_until(lambda: len(self.steps_done()) > step or self._ended(), timeout_s, f"step {step} of {self.name}")

    def _ended(self):
        codes = [child.poll() for child in self.ranks]
        check(not any(codes), f"job {self.name}: ranks ended with {codes}")
        return all(code == 0 for code in codes)

    def kill(self):
        """Ends all ranks at once, in the middle of a step."""
        self._ended()
        for child in self.ranks:
            child.kill()
        for child in self.ranks:
            child.wait()

    def finish(self, timeout_s=180):
        """The losses of all steps, as the texts that rank 0 printed. No rank may fail."""
        for rank, child in enumerate(self.ranks):
            try:
                code = child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise Failure(f"rank {rank} of {self.name} hangs") from None
            check(code == 0, f"rank {rank} of {self.name} ended with {code}: "
                             f"{self.cluster.processes.log(f'{self.name}-{rank}')[-400:]}")
        return [line["loss"] for line in self._lines() if "step" in line]


class WeftCluster:
    fabric_options = []  # of weft-testbed, more

    def __init__(self, hosts_per_leaf=2, spines=2, rate="60Mbit/s", config="", grain_us=None):
        """grain_us: for what lasts a few milliseconds (weft-testbed's --grain)."""
        self.options = (hosts_per_leaf, spines, rate)
        self.rate = rate
        self.grain_us = grain_us
        self.config = config  # of the controller, beside what its options say
        self.processes = Processes()
        self.next_port = 29700

    def __enter__(self):
        self.processes.__enter__()
        try:
            self._start()
        except BaseException:
            self.processes.print_logs()
            self.processes.close()
            raise
        return self

    def __exit__(self, kind, value, traceback):
        # The fabric goes last and by itself: its holder removes it at SIGTERM.
        for name in [name for name in self.processes.children if name != "fabric"]:
            self.processes.children[name].kill()
        if kind is not None and issubclass(kind, Exception):
            print(f"FAIL: {value}", flush=True)  # before the logs, of which reports keep an end only
            self.processes.print_logs()
        self.processes.stop("fabric", signal.SIGTERM, 20)
        self.processes.close()

    def _start(self):
        self.start_fabric()
        self.start_controller()
        for name in self.hosts:
            self.start_agent(name)
        self.wait_for_agents()

    def start_fabric(self):
        hosts_per_leaf, spines, rate = self.options
        fabric = self.processes.start(
            "fabric", [BIN / "weft-testbed", "up", "--hold", "--hosts-per-leaf", str(hosts_per_leaf), "--spines",
                       str(spines), "--rate", rate, "--output", "json", *self.fabric_options,
                       *([] if self.grain_us is None else ["--grain", f"{self.grain_us}us"])], stdout_pipe=True)
        text = ""
        while True:
            line = fabric.stdout.readline()
            check(line, "the fabric did not come up")
            text += line
            if line.startswith("}"):
                break
        self.fabric = json.loads(text)
        self.host = {host["name"]: host for host in self.fabric["hosts"]}
        self.hosts = [host["name"] for host in self.fabric["hosts"]]

    def in_host(self, name, command):
        return ["ip", "netns", "exec", self.host[name]["namespace"], *map(str, command)]

    # --- daemons

    def start_controller(self, listen=None):
        gateway = self.fabric["mgmt_gateway"]
        config = self.processes.write("controller.yaml", "version: 1\n" + self.config)
        ready = self.processes.start_ready(
            "controller", [BIN / "weft-controller", "--config", config, "--listen", listen or f"{gateway}:0", "--http", f"{gateway}:0",
                           "--state-dir", self.processes.path("controller-state"), "--mode", "enforce",
                           "--link-rate", self.rate])
        self.controller, self.http = ready["listen"], ready["http"]

    def agent_command(self, name):
        """The agent's command, without the options of the machine that it runs on."""
        return [BIN / "weft-agent", "--host", name, "--controller", self.controller, "--interfaces", "eth0"]

    def agent_environment(self, _name):
        return None  # this process's own

    def start_agent(self, name):
        command = [*self.agent_command(name), "--run-dir", self.run_dir(name), "--http", f"{self.host[name]['mgmt_address']}:9464"]
        self.processes.start_ready(f"agent-{name}", self.in_host(name, command), env=self.agent_environment(name))

    def run_dir(self, name):
        return self.processes.path("run", name)

    def kill(self, name):
        """kill -9; the child is forgotten, so that it can be started again."""
        child = self.processes.children.pop(name)
        child.kill()
        child.wait()
        if child.stdout:
            child.stdout.close()

    def wait_for_agents(self, timeout_s=20):
        wait_until(lambda: len([h for h in self.ask("topo")["hosts"] if h["connected"]]) == len(self.hosts), timeout_s,
                   "all agents at the controller")

    def ask(self, *command):
        done = subprocess.run([BIN / "weft", *command, "--controller", self.controller, "--output", "json"],
                              capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"weft {' '.join(command)}: {done.stderr}")
        return json.loads(done.stdout)

    def rate_mbit(self):
        return int(self.rate.removesuffix("Mbit/s"))

    def set_cable_rate(self, leaf, spine, mbit):
        """With as little credit as weft-testbed gives (fabric_scripts.cc): what a port may send at once makes a slow cable fast for
        messages that fit into it."""
        rate = f"{mbit}mbit"
        grain_us, least = (5000, 8192) if self.grain_us is None else (self.grain_us, 3072)
        credit = str(min(max(round(mbit / 8 * grain_us), least), 65536))
        for node, device in ((leaf, spine), (spine, leaf)):
            namespace = next(s["namespace"] for s in self.fabric["switches"] if s["name"] == node)
            shown = subprocess.run(["tc", "-n", namespace, "class", "show", "dev", device], capture_output=True,
                                   text=True, check=True).stdout
            for line in shown.splitlines():
                words = line.split()
                parent = ["parent", words[words.index("parent") + 1]] if "parent" in words else ["parent", "1:"]
                guaranteed = rate if "parent" not in words else "1mbit"
                priority = ["prio", words[words.index("prio") + 1]] if "prio" in words else []
                subprocess.run(["tc", "-n", namespace, "class", "change", "dev", device, *parent, "classid", words[2],
                                "htb", *priority, "rate", guaranteed, "ceil", rate, "burst", credit, "cburst", credit, "quantum",
                                "3000"], check=True)

    # --- jobs

    def start_job(self, name, hosts, steps, program="weft-train", arguments=(), contained=False, size=(64, 64, 8)):
        """A rank per entry of `hosts`; `contained`: each in a container. `size` of weft-train's job: width, sequence, global batch."""
        width, sequence, batch = size
        port = self.next_port
        self.next_port += 1
        ranks = []
        for rank, host in enumerate(hosts):
            env = dict(os.environ, NCCL_SOCKET_IFNAME="=eth0", WEFT_RUN_DIR=self.run_dir(host), OMP_NUM_THREADS="1")
            command = [BIN / program, "--job", name, "--rank", rank, "--world", len(hosts), "--rendezvous",
                       f"{self.host[hosts[0]]['mgmt_address']}:{port}", "--plugin", PLUGIN, "--steps", steps, *arguments]
            if program == "weft-train":
                command += ["--config", BIN / "examples" / "gpt2.json", "--data", TEXT, "--layers", 2, "--width", width,
                            "--heads", 4, "--seq", sequence, "--global-batch", batch, "--bucket", "64KiB", "--threads", 1,
                            "--output", "json"]
            if contained:
                command = in_container(self.run_dir(host), command)
            with open(self.processes.path(f"{name}-{rank}.out.log"), "wb") as out, \
                    open(self.processes.path(f"{name}-{rank}.log"), "wb") as err:
                ranks.append(subprocess.Popen(self.in_host(host, command), env=env, stdin=subprocess.DEVNULL, stdout=out,
                                              stderr=err, preexec_fn=self.processes._die_with_parent))
        return Job(self, name, ranks)
