"""A WeftCluster that can have all faults of faults.py."""
import glob
import os
import subprocess

from processes import skip
from weft_cluster import WeftCluster


class FaultyCluster(WeftCluster):
    """The controller's state is on a file system of its own, one agent's clock can be set."""

    def __init__(self, **options):
        super().__init__(**options)
        self.jobs = []

    def _start(self):
        found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
        if not found:
            skip("fabric", "no faketime (package faketime), with which a clock is set")
        self.faketime, self.clock = found[0], self.processes.write("clock", "+0\n")
        state = self.processes.path("controller-state")
        os.makedirs(state)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", state], check=True)
        try:
            super()._start()
        except BaseException:
            self._unmount()
            raise

    def _unmount(self):
        subprocess.run(["umount", "-l", self.processes.path("controller-state")], check=False)

    def __exit__(self, kind, value, traceback):
        self._unmount()
        super().__exit__(kind, value, traceback)

    @property
    def clock_host(self):
        return self.hosts[-1]

    def agent_environment(self, name):
        if name != self.clock_host:
            return super().agent_environment(name)
        return {**os.environ, "LD_PRELOAD": self.faketime, "FAKETIME_TIMESTAMP_FILE": self.clock, "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def set_clock(self, by_s):
        self.processes.write("clock", f"{by_s:+d}\n")

    def start_job(self, *args, **options):
        job = super().start_job(*args, **options)
        self.jobs.append(job)
        return job
