#!/usr/bin/env python3
"""One user's processes that take all they can of an agent, beside another user's job on the same host: connections, idle ones among
them, segments, flows, places to probe, the job's own id, the end of one of its flows. Each is refused, logged and counted, the host's
session with the controller stands, and the job goes on; how long its iterations were before and meanwhile is printed.

Real processes under three users: who runs it must be root.
"""
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "gpu"))
from daemons import Daemons  # noqa: E402
from processes import Processes, check, free_ports, run_test, skip, wait_until  # noqa: E402
from telemetry import Segment  # noqa: E402

BIN, LIB = pathlib.Path(os.environ["WEFT_BIN"]), pathlib.Path(os.environ["WEFT_LIB"])
VICTIM, HOSTILE = 20001, 20002
QUOTAS = {"segments": 8, "memory_mib": 512, "flows": 600, "destinations": 64}
SLOTS = 4096     # flows of one segment
STEPS = 40       # whose lengths are compared


class Site:
    def __init__(self, processes):
        self.processes = processes
        self.daemons = Daemons(processes, BIN)
        self.replay = shutil.copy(BIN / "weft-replay", processes.path("weft-replay"))
        self.hostile = shutil.copy(BIN / "weft-hostile", processes.path("weft-hostile"))
        self.plugin = shutil.copy(LIB / "libnccl-net-weft.so", processes.path("libnccl-net-weft.so"))
        self.run_dir = processes.path("run")
        self.daemons.start_controller()
        quotas = ", ".join(f"{key}: {value}" for key, value in QUOTAS.items())
        config = processes.write("agent.yaml", f"version: 1\nquotas: {{{quotas}}}\n")
        self.daemons.start_agent("h1", self.run_dir, "--config", config, "--interfaces", "lo")
        self.daemons.wait_connected("h1")

    @staticmethod
    def user(uid):
        return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]

    def start_job(self):
        [port] = free_ports(1)
        env = dict(os.environ, NCCL_SOCKET_IFNAME="=lo", WEFT_RUN_DIR=self.run_dir, WEFT_TRANSPORT="tcp", NCCL_DEBUG="INFO")
        for rank in range(2):
            self.processes.start(f"rank{rank}", [*self.user(VICTIM), self.replay, "--plugin", self.plugin, "--job", "victim", "--rank", str(rank),
                                                 "--world", "2", "--rendezvous", f"127.0.0.1:{port}", "--compute", "50ms", "--bytes", "1MiB",
                                                 "--duration", "250s"], env=env)
        wait_until(lambda: self.processes.log("agent-h1").count('job=victim') >= 2, 20, "both ranks at the agent")
        wait_until(lambda: int((self.daemons.job("victim") or {}).get("flows", 0)) == 2, 20, "the controller to know both flows")

    def start_hostile(self, name, *words):
        return self.processes.start_ready(name, [*self.user(HOSTILE), self.hostile, f"{self.run_dir}/agent.sock", *map(str, words)], timeout_s=30)

    def metric(self, series):
        with urllib.request.urlopen(f"http://{self.daemons.http['h1']}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(series + " "):
                    return float(line.rsplit(" ", 1)[1])
        return 0.0

    def iterations(self):
        """Seconds of every iteration of the job so far."""
        return [float(match) for match in re.findall(r'"iteration_s":([0-9.e-]+)', self.processes.log("rank0"))]

    def next_iterations(self):
        """The median of the next ones."""
        first = len(self.iterations())
        wait_until(lambda: len(self.iterations()) >= first + STEPS, 60, f"{STEPS} more iterations of the job")
        return statistics.median(self.iterations()[first:first + STEPS])

    def flow_of_victim(self):
        """The number of one of its flows, which only root can read: its segment is its own."""
        pid = self.processes.children["rank0"].pid
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if not os.readlink(entry).startswith("/memfd:"):
                continue
            with open(entry, "rb") as file:
                try:
                    segment = Segment(file.fileno())
                except (ValueError, struct.error):
                    continue
                for slot in segment.slots():
                    state, _, flow = struct.unpack_from("<IIQ", segment.memory, slot)
                    direction = struct.unpack_from("<I", segment.memory, slot + 24)[0]
                    if state == 1 and direction == 0:
                        return flow
        raise AssertionError(f"no segment with an open flow in process {pid}")

    def check_unharmed(self, what):
        host = next(host for host in self.daemons.ask("topo")["hosts"] if host["host"] == "h1")
        check(host["connected"], f"{what}: the host's session is gone")
        check(int(self.daemons.job("victim")["flows"]) == 2, f"{what}: {self.daemons.job('victim')}")
        self.processes.check_alive()


def rejected(reason):
    return f'weft_agent_segments_rejected_total{{reason="{reason}"}}'


def over(what):
    return f'weft_agent_over_quota_total{{what="{what}"}}'


def expect(site, name, words, series, least, log, refused=""):
    """Starts a hostile process; what it wants is refused with these words, counted and logged. Returns how much longer the job's iterations
    are while it runs, as a fraction of what they are just before and after."""
    before = site.metric(series)
    quiet = [site.next_iterations()]
    said = site.start_hostile(name, *words)["refused"]
    check(refused in said if refused else not said, f"{name} {words}: refused with {said!r}, expected {refused!r}")
    wait_until(lambda: site.metric(series) >= before + least, 30, f"{series} to grow by {least} for {name}")
    check(re.search(log, site.processes.log("agent-h1")), f"{name}: nothing like {log!r} in the agent's log")
    site.check_unharmed(name)
    during = site.next_iterations()
    site.processes.stop(name)
    quiet.append(site.next_iterations())
    change = 2 * during / sum(quiet) - 1
    print(f"{name}: refused, counted {site.metric(series) - before:.0f} times and logged; the job's iteration {during * 1e3:.2f} ms, "
          f"{quiet[0] * 1e3:.2f} before and {quiet[1] * 1e3:.2f} after: {100 * change:+.1f} %", flush=True)
    return change


def main():
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        skip("fabric", "no root, or no setpriv: processes of other users cannot be started")
    with Processes("weft-hostile-") as processes:
        site = Site(processes)
        site.start_job()
        site.next_iterations()
        # Refusals for quotas have 20 lines a minute together: the one for segments comes before those for connections.
        changes = [expect(site, "segments", ("segments", 20, "theirs"), rejected("quota"), 1, f"uid {HOSTILE} has 8 telemetry segments",
                          f"uid {HOSTILE} has 8 telemetry segments"),
                   expect(site, "connections", ("connections", 700), rejected("quota"), 700 - 512, f"refused peer .*uid={HOSTILE}.*has 512 connections"),
                   expect(site, "idle", ("connections", 20), rejected("idle"), 20, f"refused peer .*uid={HOSTILE}.*nothing said for 10 s"),
                   expect(site, "flows", ("flows", 4, "theirs"), over("flow"), 4 * SLOTS - QUOTAS["flows"], f"what=flow uid={HOSTILE}"),
                   expect(site, "destinations", ("flows", 1, "theirs"), over("destination"),
                          QUOTAS["flows"] - QUOTAS["destinations"],
                          f"what=destination uid={HOSTILE}"),
                   expect(site, "thief", ("segments", 1, "victim"), rejected("identity"), 1, f"job .*victim.* belongs to uid {VICTIM}",
                          f"belongs to uid {VICTIM} on this host, not to uid {HOSTILE}"),
                   expect(site, "ender", ("close", site.flow_of_victim(), "theirs"), over("number"), 1,
                          f"numbers of another user's and are not followed uid={HOSTILE}")]
        print(json.dumps({"change_percent": {"most": round(100 * max(changes), 2), "median": round(100 * statistics.median(changes), 2)}}),
              flush=True)
        site.check_unharmed("all of them")
    return 0


if __name__ == "__main__":
    run_test(main)
