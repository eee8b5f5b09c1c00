#!/usr/bin/env python3
"""Ranks in containers: each in a PID, mount and user namespace of its own, with nothing of the host's but the folder of the
agent's socket, mounted read-only in another place.

They attach, each process 1 to itself and all apart to the agent; what they send is counted, and the controller's policy
reaches them. Another user's process is refused, and so is one whose user the agent cannot tell from others.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check, run_test, skip, wait_until  # noqa: E402
from weft_cluster import BIN, CONTAINER, PLUGIN, WeftCluster, in_container, require_fabric  # noqa: E402

OTHER_USER = 12345
ATTACHED = re.compile(r"process attached pid=(\d+) own_pid=(\d+) uid=(\d+) job=(\S+)")


def require_containers():
    require_fabric()
    tried = subprocess.run([*CONTAINER, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        skip("fabric", f"no user namespaces with mounts of their own: {tried.stderr.strip()}")
    if not shutil.which("setpriv"):
        skip("fabric", "no setpriv (package util-linux), with which to become another user")


class Site:
    """The programs where every user can reach them, and the containers that run them."""

    def __init__(self, cluster):
        self.cluster, self.processes = cluster, cluster.processes
        self.replay = shutil.copy(BIN / "weft-replay", self.processes.path("weft-replay"))
        self.plugin = shutil.copy(PLUGIN, self.processes.path("libnccl-net-weft.so"))

    def rank(self, name, job, run_dir, *options, prefix=(), contained=True, interface="eth0"):
        """Starts one; its log is that of `name`. `prefix`: what runs it, on the host's side."""
        command = [self.replay, "--plugin", self.plugin, "--job", job, "--compute", "50ms", "--bytes", "256KiB", "--bucket",
                   "64KiB", *options]
        if contained:
            command = in_container(run_dir, command)
        env = dict(os.environ, NCCL_DEBUG="INFO", NCCL_SOCKET_IFNAME=f"={interface}", WEFT_RUN_DIR=run_dir)
        return self.processes.start(name, list(map(str, [*prefix, *command])), env=env)

    def wait_for_line(self, log, piece):
        wait_until(lambda: piece in self.processes.log(log), 20, f"\"{piece}\" in the log of {log}")

    def attached(self, agent, job):
        """(pid, the pid that it says itself, uid) of the job's processes that have come to an agent."""
        return [tuple(map(int, match[:3])) for match in ATTACHED.findall(self.processes.log(agent)) if match[3] == job]


def metric(cluster, host, pattern):
    """The sum of the agent's series whose lines match."""
    url = f"http://{cluster.host[host]['mgmt_address']}:9464/metrics"
    text = urllib.request.urlopen(url, timeout=10).read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))


def job_of(cluster, name):
    return next((job for job in cluster.ask("jobs")["jobs"] if job["spec"]["job_id"] == name), None)


def check_apart(processes):
    """Two processes of one host: the kernel's numbers differ though both call themselves 1."""
    check([own for _, own, _ in processes] == [1, 1], f"expected two that call themselves process 1: {processes}")
    check(processes[0][0] != processes[1][0], f"one pid for both: {processes}")
    for pid, _, uid in processes:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        check(re.search(r"^NSpid:.*\t1$", status, re.M), f"process {pid} is not 1 in its namespace:\n{status}")
        check(uid == 0, f"process {pid} is of uid {uid}, and root has started it")


def ranks_attach(site):
    """Two on each of two hosts, one job; they stay until the other tests are done."""
    cluster = site.cluster
    rendezvous = f"{cluster.host['h1']['mgmt_address']}:29790"
    names = []
    for rank in range(4):
        host = cluster.hosts[rank // 2]
        site.rank(f"rank{rank}", "boxed", cluster.run_dir(host), "--rank", rank, "--world", 4, "--rendezvous", rendezvous,
                  "--duration", "300s", prefix=cluster.in_host(host, []))
        names.append(f"rank{rank}")
    for host in cluster.hosts:
        wait_until(lambda host=host: len(site.attached(f"agent-{host}", "boxed")) == 2, 30, f"two ranks at the agent of {host}")
        check_apart(site.attached(f"agent-{host}", "boxed"))
    for name in names:
        site.wait_for_line(name, "process 1\n")
        site.wait_for_line(name, "connected to the agent at /mnt/weft/agent.sock")
        site.wait_for_line(name, "attached: the agent reads")
    print("four ranks attached, two on each host, all of them process 1", flush=True)
    return names


def telemetry_and_policy_pass(site, names):
    cluster = site.cluster
    wait_until(lambda: (job_of(cluster, "boxed") or {}).get("flows") in (4, "4"), 20, "the controller to know the four flows")
    wait_until(lambda: int(job_of(cluster, "boxed")["policy_epoch"]) > 0, 30, "a policy")
    for name in names:
        site.wait_for_line(name, "policy in force: epoch ")
    for host in cluster.hosts:
        sent = r'weft_agent_flow_bytes_total\{direction="send",weft_job="boxed"\}'
        before = metric(cluster, host, sent)
        wait_until(lambda host=host, before=before: metric(cluster, host, sent) > before > 0, 10, f"bytes of {host} to be counted")
        wait_until(lambda host=host: metric(cluster, host, r'weft_agent_policy_epoch\{weft_job="boxed"\}') > 0, 10,
                   f"the policy at the agent of {host}")
        check(metric(cluster, host, "weft_agent_processes_attached ") == 2, f"processes at the agent of {host}")
    print("their bytes are counted, the policy is in force", flush=True)


def another_user_is_refused(site):
    """By the kernel's word for who it is: to itself it is root, as all are in their containers."""
    cluster = site.cluster
    prefix = [*cluster.in_host("h1", []), "setpriv", "--reuid", OTHER_USER, "--regid", OTHER_USER, "--clear-groups"]
    alone = ["--rank", 0, "--world", 1, "--duration", "300s"]
    site.rank("intruder", "boxed", cluster.run_dir("h1"), *alone, prefix=prefix)
    site.wait_for_line("intruder", 'the agent refused this process: job "boxed" belongs to uid 0 on this host, not to uid '
                                   f"{OTHER_USER}; working with default settings")
    site.rank("neighbour", "theirs", cluster.run_dir("h1"), *alone, prefix=prefix)
    wait_until(lambda: site.attached("agent-h1", "theirs"), 20, "that user's own job")
    check(site.attached("agent-h1", "theirs")[0][1:] == (1, OTHER_USER), f"{site.attached('agent-h1', 'theirs')}")
    check(len(site.attached("agent-h1", "boxed")) == 2, "the intruder was let in")
    site.processes.check_alive()
    print("another user's process is refused, and trains on", flush=True)


def an_agent_in_a_container(site):
    """It sees no pid of those outside, which is no obstacle; users that are not mapped there look all alike, and are refused."""
    cluster = site.cluster
    run_dir = site.processes.path("run", "boxed-agent")
    site.processes.start_ready(
        "agent-boxed", [*CONTAINER, str(BIN / "weft-agent"), "--host", "boxed", "--run-dir", run_dir, "--controller",
                        cluster.controller, "--http", "127.0.0.1:0", "--interfaces", "lo"])
    site.wait_for_line("agent-boxed", "runs in a user namespace that does not map all users")
    alone = ["--rank", 0, "--world", 1, "--duration", "300s"]
    site.rank("mapped", "one", run_dir, *alone, contained=False, interface="lo")
    wait_until(lambda: site.attached("agent-boxed", "one"), 20, "a process whose pid the agent cannot see")
    pid, own, uid = site.attached("agent-boxed", "one")[0]
    check((pid, uid) == (0, 0) and own == site.processes.children["mapped"].pid, f"pid {pid}, own pid {own}, uid {uid}")
    user = ["setpriv", "--reuid", OTHER_USER, "--regid", OTHER_USER, "--clear-groups"]
    site.rank("unmapped", "two", run_dir, *alone, prefix=user, contained=False, interface="lo")
    site.wait_for_line("unmapped", "is not mapped into the agent's user namespace")
    check(not site.attached("agent-boxed", "two"), "a user who could be anybody was let in")
    print("an agent in a container serves those whom it can tell apart", flush=True)


def main():
    require_containers()
    with WeftCluster(hosts_per_leaf=1) as cluster:
        site = Site(cluster)
        names = ranks_attach(site)
        telemetry_and_policy_pass(site, names)
        another_user_is_refused(site)
        an_agent_in_a_container(site)
        site.processes.check_alive()
    return 0


if __name__ == "__main__":
    run_test(main)
