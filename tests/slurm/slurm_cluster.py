"""A real Slurm cluster on loopback: munged, slurmctld and one slurmd per fake node, all in one temporary directory.

Nothing of the machine's own Slurm or munge is touched: own key, sockets, ports, spool directories. The daemons stay in
the foreground, so that they end with the test.
"""

import os
import subprocess

from processes import check, free_ports, wait_until

SLURM_CONF = """\
ClusterName=weft
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
CredType=cred/munge
StateSaveLocation={dir}/state
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldDebug=info
SlurmdSpoolDir={dir}/spool-%n
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmdLogFile={dir}/slurmd-%n.log
SlurmdDebug=info
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
KillWait=2
PlugStackConfig={dir}/plugstack.conf
{extra}
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{node_ports}] CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmCluster:
    """Nodes n1 to nN in a Processes object; `plugstack` and `extra` are configuration lines."""

    def __init__(self, processes, nodes=4, plugstack="", extra=""):
        self.processes = processes
        self.names = [f"n{i + 1}" for i in range(nodes)]
        ctld_port, *node_ports = free_ports(nodes + 1)
        self.conf = processes.write("slurm.conf", SLURM_CONF.format(
            dir=processes.directory, ctld_port=ctld_port, nodes=nodes, extra=extra,
            node_ports=",".join(str(port) for port in node_ports)))
        processes.write("plugstack.conf", plugstack)
        self.environment = {key: value for key, value in os.environ.items()
                            if not key.startswith(("SLURM", "SBATCH", "WEFT_", "NCCL_"))}
        self.environment["SLURM_CONF"] = self.conf

    def start(self):
        processes, directory = self.processes, self.processes.directory
        os.makedirs(processes.path("state"))
        key = processes.path("munge.key")
        with open(key, "wb") as file:
            file.write(os.urandom(1024))
        os.chmod(key, 0o600)
        processes.start("munged", ["munged", "--foreground", "--force", f"--key-file={key}",
                                   f"--socket={directory}/munge.socket", f"--pid-file={directory}/munged.pid",
                                   f"--seed-file={directory}/munged.seed", "--num-threads=2"])
        wait_until(lambda: os.path.exists(processes.path("munge.socket")), 5, "munged's socket")
        processes.start("slurmctld", ["slurmctld", "-D", "-f", self.conf], env=self.environment)
        for name in self.names:
            processes.start(f"slurmd-{name}-stderr", ["slurmd", "-D", "-f", self.conf, "-N", name], env=self.environment)
        wait_until(self._all_idle, 20, f"{len(self.names)} idle nodes")

    def _all_idle(self):
        self.processes.check_alive()
        result = self.run("sinfo", "--noheader", "--Node", "--format=%N %T", check_status=False)
        return result.returncode == 0 and result.stdout.split().count("idle") == len(self.names)

    def run(self, *command, check_status=True, env=None, user=None, timeout_s=30):
        """Runs a Slurm command as root or another user would; its CompletedProcess with text output."""
        result = subprocess.run(command, env={**self.environment, **(env or {})}, text=True, capture_output=True,
                                timeout=timeout_s, cwd=self.processes.directory, check=False, user=user, group=user,
                                extra_groups=None if user is None else [])
        if check_status:
            check(result.returncode == 0, f"{' '.join(command)}: exit {result.returncode}: {result.stderr.strip()}")
        return result

    def submit(self, script, *options, env=None):
        """sbatch; the job's id. Output of the batch script goes to <directory>/job-<id>.out."""
        result = self.run("sbatch", "--parsable", f"--output={self.processes.directory}/job-%j.out", *options, script,
                          env=env)
        return int(result.stdout.strip().split(";")[0])

    def job_state(self, job):
        """Slurm's word for the job's state, e.g. "COMPLETED"; empty when Slurm has forgotten it."""
        result = self.run("scontrol", "show", "job", str(job), check_status=False)
        fields = dict(word.split("=", 1) for word in result.stdout.split() if "=" in word)
        return fields.get("JobState", "")

    def wait_job(self, job, states=("COMPLETED",), timeout_s=20):
        wait_until(lambda: self.job_state(job) in states, timeout_s, f"job {job} to be {' or '.join(states)}")

    def output(self, job):
        with open(self.processes.path(f"job-{job}.out"), encoding="utf-8") as file:
            return file.read()
