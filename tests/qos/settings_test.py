#!/usr/bin/env python3
"""DCB settings of a host, named, set and put back by the real controller, agent and `weft`, with iproute2's `dcb` as the other party: a
library that both are started with (dcb_device.cc) answers for a network interface with DCB, which no kernel here has. What `dcb` sets
Weft must read, what Weft sets `dcb` must show, and the commands that `weft qos verify` prints must do the same as `weft qos apply`.
Untested on hardware.
"""
import json
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from daemons import Daemons  # noqa: E402
from processes import Processes, check, run_test, skip, wait_until  # noqa: E402

BIN, LIB = os.environ["WEFT_BIN"], os.environ["WEFT_LIB"]
PROMISED_S = 10  # asserted with twice its value
CONFIG = """version: 1
classes:
  - {dscp: 26, priority: 3, share: 60%, lossless: on}
  - {dscp: 10, priority: 1, share: 30%}
  - {dscp: 0, priority: 0, share: 10%}
"""


class Site:
    def __init__(self, processes):
        self.processes = processes
        self.state = processes.path("dcb-state")
        self.env = dict(os.environ, LD_PRELOAD=f"{LIB}/dcb_device.so", DCB_DEVICE="lo", DCB_DEVICE_STATE=self.state)
        self.daemons = Daemons(processes, BIN)

    def dcb(self, *words, state=None):
        done = subprocess.run(["dcb", "-j", *words], env=dict(self.env, DCB_DEVICE_STATE=state or self.state), capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"dcb {' '.join(words)}: {done.returncode} {done.stderr}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def start_agent(self, qos):
        run_dir = self.processes.path("run")
        os.makedirs(run_dir, exist_ok=True)
        config = self.processes.write(f"agent-{qos}.yaml", f"version: 1\nqos: {qos}\n")
        self.processes.start_ready("agent", [f"{BIN}/weft-agent", "--config", config, "--host", "h1", "--run-dir", run_dir, "--controller",
                                             self.daemons.listen, "--http", "127.0.0.1:0", "--interfaces", "lo"], env=self.env)
        self.daemons.wait_connected("h1")

    def weft(self, *words):
        return subprocess.run([f"{BIN}/weft", "qos", *words, "--controller", self.daemons.listen], capture_output=True, text=True,
                              timeout=30, check=False)

    def settings(self):
        """The settings that are not as declared, by name; empty: all are."""
        done = self.weft("verify", "--output", "json")
        answer = json.loads(done.stdout)
        host = answer["hosts"][0]
        if "report" not in host:
            return None
        names = sorted({drift["setting"] for drift in host["report"]["drifts"]})
        check((done.returncode == 0) == (not names), f"status {done.returncode} with drifts {names}")
        return names

    def wait_for(self, names, what):
        began = time.monotonic()
        wait_until(lambda: self.settings() == names, 2 * PROMISED_S, what)
        print(f"{what} after {time.monotonic() - began:.1f} s")

    def bytes(self):
        with open(self.state, "rb") as file:
            return file.read()


def shown(site, state=None):
    """What dcb says of the settings that the site declares."""
    app = site.dcb("app", "show", "dev", "lo", state=state)["dscp_prio"]
    ets = site.dcb("ets", "show", "dev", "lo", state=state)
    pfc = site.dcb("pfc", "show", "dev", "lo", state=state)
    priority_class = {int(entry[0]): entry[1] for entry in enumerate(ets["prio_tc"])}
    return {"dscp": sorted(map(tuple, app)), "pfc": pfc["prio_pfc"],
            "shares": {p: (ets["tc_bw"][priority_class[p]], ets["tc_tsa"][priority_class[p]]) for p in (0, 1, 3)}}


EXPECTED = {"dscp": [(0, 0), (10, 1), (26, 3)], "pfc": [False, False, False, True, False, False, False, False],
            "shares": {3: (60, "ets"), 1: (30, "ets"), 0: (10, "ets")}}


def drift_is_named_set_and_put_back(site):
    site.dcb("app", "add", "dev", "lo", "dscp-prio", "26:5")
    site.dcb("pfc", "set", "dev", "lo", "prio-pfc", "5:on")
    ets, pfc = site.dcb("ets", "show", "dev", "lo"), site.dcb("pfc", "show", "dev", "lo")
    before = site.bytes()
    site.start_agent("report")
    site.wait_for(["buffer", "dscp-priority", "ets", "pfc"], "wrong settings named")
    refused = site.weft("apply")
    check(refused.returncode == 1 and "expected qos: apply" in refused.stderr, f"apply without leave: {refused}")
    check(site.bytes() == before, "an agent that may only report has set something")
    site.processes.stop("agent")

    site.start_agent("apply")
    dry = site.weft("apply", "--dry-run")
    check(dry.returncode == 0 and "pfc: priorities 5 -> priorities 3,5" in dry.stdout, f"dry run: {dry.stdout!r} {dry.stderr!r}")
    check(site.bytes() == before, "a dry run has set something")
    # The printed commands, carried out by people on another such port, must lead to the same.
    copy = site.processes.path("dcb-copy")
    shutil.copy(site.state, copy)
    for line in site.weft("verify", "--syntax", "dcb").stdout.splitlines():
        if line.startswith("dcb ") and not line.startswith("dcb buffer"):
            site.dcb(*line.split()[1:], state=copy)
    done = site.weft("apply")
    check(done.returncode == 0, f"apply: {done.stdout!r} {done.stderr!r}")
    expected = dict(EXPECTED, pfc=[False, False, False, True, False, True, False, False])  # 5 is nobody's: it stays
    check(shown(site) == expected, f"dcb shows {shown(site)}, expected {expected}")
    check(shown(site, copy) == expected, f"the printed commands lead to {shown(site, copy)}")
    site.wait_for(["buffer"], "no drift but the buffer, which is left to people,")

    site.dcb("pfc", "set", "dev", "lo", "prio-pfc", "3:off")
    site.wait_for(["buffer", "pfc"], "somebody's change named")
    site.dcb("pfc", "set", "dev", "lo", "prio-pfc", "3:on")
    done = site.weft("revert")
    check(done.returncode == 0 and "as before" in done.stdout, f"revert: {done.stdout!r} {done.stderr!r}")
    check(sorted(shown(site)["dscp"]) == [(26, 5)], f"dcb shows {shown(site)} after revert")
    check(site.dcb("ets", "show", "dev", "lo") == ets and site.dcb("pfc", "show", "dev", "lo") == pfc, "ETS and PFC are not what they were")
    print(done.stdout.strip())


def main():
    if shutil.which("dcb") is None:
        skip("dcb", "iproute2's dcb is not installed")
    with Processes() as processes:
        site = Site(processes)
        site.daemons.start_controller("--config", processes.write("controller.yaml", CONFIG))
        drift_is_named_set_and_put_back(site)


if __name__ == "__main__":
    run_test(main)
