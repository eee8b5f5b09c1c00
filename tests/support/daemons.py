"""A real weft-controller and real weft-agents on loopback, with ports chosen free by themselves."""

import json
import os
import signal
import subprocess

from processes import check, wait_until


class Daemons:
    """Keeps the controller and the agents of one test; `binaries` is the folder of the built programs."""

    def __init__(self, processes, binaries):
        self.processes = processes
        self.binaries = binaries
        self.listen = ""  # HOST:PORT of the controller's gRPC service
        self.http = {}    # name of the daemon -> HOST:PORT of its HTTP server

    def start_controller(self, *options):
        ready = self.processes.start_ready(
            "controller", [f"{self.binaries}/weft-controller", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                           *options])
        self.listen = ready["listen"]
        self.http["controller"] = ready["http"]

    def stop_controller(self, number=signal.SIGTERM):
        return self.processes.stop("controller", number)

    def start_agent(self, host, run_dir, *options):
        os.makedirs(run_dir, exist_ok=True)
        ready = self.processes.start_ready(
            f"agent-{host}", [f"{self.binaries}/weft-agent", "--host", host, "--run-dir", run_dir, "--controller",
                              self.listen, "--http", "127.0.0.1:0", *options])
        self.http[host] = ready["http"]

    def stop_agent(self, host, number=signal.SIGTERM):
        return self.processes.stop(f"agent-{host}", number)

    def ask(self, *command):
        """An online command of weft; its JSON."""
        result = subprocess.run([f"{self.binaries}/weft", *command, "--controller", self.listen, "--output", "json"],
                                capture_output=True, text=True, timeout=30, check=False)
        check(result.returncode == 0, f"weft {' '.join(command)}: exit {result.returncode}: {result.stderr.strip()}")
        return json.loads(result.stdout)

    def job(self, job_id):
        """The controller's status of a job, None if it does not list it."""
        for job in self.ask("jobs").get("jobs", []):
            if job["spec"]["job_id"] == job_id:
                return job
        return None

    def wait_connected(self, *hosts):
        """Until the controller has a session with the agent of each host."""
        def connected():
            known = self.ask("topo").get("hosts", [])
            return {host["host"] for host in known if host["connected"]} >= set(hosts)
        wait_until(connected, 10, f"the controller to know {', '.join(hosts)}")
