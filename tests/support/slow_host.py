"""A host whose processor is slow, on a namespace fabric: its ranks and its agent run at a twentieth of their speed, by the kernel's quota of a
control group for each; where this user may set none, they are stopped for nine tenths of the time.
"""
import os
import pathlib
import signal
import threading
import time

from faults import HOST, Fault
from processes import check, descendants, wait_until

CGROUP = pathlib.Path("/sys/fs/cgroup")
PERIOD_US, QUOTA_US = 20_000, 1_000  # of every process; short ones, as a slow clock is slow all the time


class QuotaGroup:
    """A control group of version 1 or 2 whose processes have a quota of processor time."""

    def __init__(self, name):
        self.old = (CGROUP / "cpu").is_dir()
        parent = CGROUP / "cpu" if self.old else CGROUP
        if not self.old and "cpu" not in (parent / "cgroup.subtree_control").read_text(encoding="ascii").split():
            (parent / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
        self.parent, self.path = parent, parent / name
        self.path.mkdir()

    def limit(self):
        if not self.old:
            (self.path / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}", encoding="ascii")
            return
        (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US), encoding="ascii")
        (self.path / "cpu.cfs_quota_us").write_text(str(QUOTA_US), encoding="ascii")

    def take(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def throttled(self):
        """Periods in which the quota was used up."""
        return next(int(line.split()[1]) for line in (self.path / "cpu.stat").read_text(encoding="ascii").splitlines()
                    if line.startswith("nr_throttled"))

    def remove(self):
        for pid in (self.path / "cgroup.procs").read_text(encoding="ascii").split():
            try:
                (self.parent / "cgroup.procs").write_text(pid, encoding="ascii")
            except ProcessLookupError:
                pass  # it has ended meanwhile
        wait_until(self._removed, 5, f"{self.path} to be empty")

    def _removed(self):
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True


class HostSlowed(Fault):
    """All that runs on a host: the ranks of `jobs` there, and its agent."""

    area = HOST

    def __init__(self, cluster, jobs, host):
        super().__init__(cluster)
        self.what = host
        inode = os.stat(f"/run/netns/{cluster.host[host]['namespace']}").st_ino
        mine = [child.pid for job in jobs for child in job.ranks] + [cluster.processes.children[f"agent-{host}"].pid]
        mine += [below for pid in mine for below in descendants(pid)]
        self.pids = [pid for pid in mine if os.stat(f"/proc/{pid}/ns/net").st_ino == inode]
        check(len(self.pids) > 1, f"no ranks on {host}")
        self.groups, self.how = [], ""
        self.over, self.thread = threading.Event(), None

    def begin(self):
        try:
            for pid in self.pids:
                self.groups.append(QuotaGroup(f"weft-{self.what}-{pid}"))
                self.groups[-1].limit()
                self.groups[-1].take(pid)
            self.how = f"a quota of {QUOTA_US} us in {PERIOD_US} for each of {len(self.pids)} processes"
        except OSError as why:
            self._remove_groups()
            self.how = f"each of {len(self.pids)} processes stopped for nine tenths of the time, as no quota can be set: {why}"
            self.thread = threading.Thread(target=self._stop_now_and_then)
            self.thread.start()

    def end(self):
        self.over.set()
        if self.thread is not None:
            self.thread.join()
        self._remove_groups()

    def throttled(self):
        """Periods in which a process had used up its quota."""
        return sum(group.throttled() for group in self.groups)

    def _remove_groups(self):
        while self.groups:
            self.groups.pop().remove()

    def _stop_now_and_then(self):
        while not self.over.is_set():
            for number, pause_s in ((signal.SIGSTOP, 0.045), (signal.SIGCONT, 0.005)):
                for pid in self.pids:
                    os.kill(pid, number)
                time.sleep(pause_s)
