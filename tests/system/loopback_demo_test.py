#!/usr/bin/env python3
"""The demo for a user who may not make namespaces: it falls back to loopback, says so, shows what is left with the same
keys, and leaves nothing behind, also when it is interrupted. Started as root, the test becomes nobody first.
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Processes, check, run_test, wait_until  # noqa: E402

NOBODY = 65534
PROGRAMS = ("weft", "weft-controller", "weft-agent", "weft-train")
KEYS = {"fabric", "jobs", "links", "link_disagreement", "events", "decisions", "controller", "metrics_scraped",
        "not_shown", "shortfalls"}
JOB_KEYS = {"name", "ranks", "model", "alone_s", "default_s", "weft_s", "bound_s", "steps", "bytes_sent", "final_loss"}

# While both jobs train: says where the daemons are, and waits until the test has read their metrics.
AT_END = 'echo "$WEFT_HTTP $WEFT_AGENTS" > {out}/new && mv {out}/new {out}/urls; until [ -e {out}/go ]; do sleep 0.1; done'


def install(processes):
    """The built programs where another user can reach them, in the layout that they expect."""
    for folder in ("bin", "lib"):
        os.mkdir(processes.path(folder), 0o755)
    for program in PROGRAMS:
        shutil.copy(os.path.join(os.environ["WEFT_BIN"], program), processes.path("bin", program))
    shutil.copytree(os.path.join(os.environ["WEFT_BIN"], "examples"), processes.path("bin", "examples"))
    shutil.copy(os.path.join(os.environ["WEFT_LIB"], "libnccl-net-weft.so"), processes.path("lib"))
    os.mkdir(processes.path("out"))
    os.chmod(processes.path("out"), 0o777)


def start(processes, *arguments):
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.Popen([processes.path("bin", "weft"), "demo", *arguments], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **user)


def running(processes):
    """Processes of the programs that this test has installed."""
    found = []
    for path in glob.glob("/proc/[0-9]*/exe"):
        try:
            if os.readlink(path).startswith(processes.path("bin")):
                found.append(path)
        except OSError:
            pass  # gone meanwhile
    return found


def folders():
    return set(glob.glob("/tmp/weft-demo-*"))


def check_nothing_left(processes, before):
    wait_until(lambda: not running(processes), 5, "no process of the demo left")
    check(folders() <= before, f"folders left behind: {sorted(folders() - before)}")


def series(text, name):
    """The values of all series of a metric."""
    return [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith((name + "{", name + " "))]


def scrape(urls):
    """The metrics of all daemons, one after another."""
    with open(urls, encoding="utf-8") as file:
        daemons = file.read().split()
    return "\n".join(urllib.request.urlopen(f"{url}/metrics", timeout=10).read().decode() for url in daemons)


def check_metrics(text):
    check(max(series(text, "weft_controller_hosts_connected")) == 8, "not every agent has a session")
    # Of two jobs: from each of four ranks to the three others, for gradients, and for norms and losses.
    flows = 2 * 4 * 3 * 2
    check(max(series(text, "weft_controller_flows")) == flows, f"flows: {series(text, 'weft_controller_flows')}, expected {flows}")
    sending = series(text, "weft_controller_job_send_bytes_per_second")
    check(sum(value > 0 for value in sending) == 2, f"the controller sees jobs send {sending}, expected two above 0")
    attached = series(text, "weft_agent_processes_attached")
    check(attached == [1.0] * 8, f"processes attached to the agents: {attached}")
    counted = series(text, "weft_agent_flow_bytes_total")
    check(sum(value > 0 for value in counted) >= 2 * 8, f"bytes counted by the agents, both ways: {counted}")


def check_report(report):
    check(KEYS <= report.keys(), f"keys missing: {KEYS - report.keys()}")
    check(report["fabric"]["namespaces"] is False and report["fabric"]["hosts"] == 8, f"fabric {report['fabric']}")
    check("must be 0 (root)" in report["not_shown"][0], f"not_shown: {report['not_shown']}")
    check(any("collisions" in line for line in report["not_shown"]), f"not_shown: {report['not_shown']}")
    check(report["controller"]["replans"] is None, "re-plans are claimed where nothing can be re-planned")
    check(report["links"] == [] and report["link_disagreement"] is None, "links are claimed where there are none")
    check(len(report["jobs"]) == 2, f"{len(report['jobs'])} jobs")
    for job in report["jobs"]:
        check(JOB_KEYS <= job.keys(), f"keys missing: {JOB_KEYS - job.keys()}")
        print(f"{job['name']}: compute {job['compute_s']:.3f} s, alone {job['alone_s']:.3f} s, together "
              f"{job['default_s']:.3f} s, {job['steps']} steps, loss {job['first_loss']:.3f} -> {job['final_loss']:.3f}")
        check(0 < job["compute_s"] and 0 < job["alone_s"] and 0 < job["default_s"], f"{job['name']}: not measured")
        check(job["weft_s"] is None and job["bound_s"] is None, f"{job['name']}: what is not shown has a number")
        check(job["bytes_sent"] > 0 and job["final_loss"] < job["first_loss"], f"{job['name']}: did not train")
    check({"plan"} <= {decision["kind"] for decision in report["decisions"]}, f"decisions {report['decisions']}")
    check(len(report["events"]) == 2 and all("24 flows" in line for line in report["events"]), f"{report['events']}")
    check(report["metrics_scraped"] > 20, f"{report['metrics_scraped']} metrics scraped")


def runs_to_its_end(processes):
    before = folders()
    demo = start(processes, "--jobs", "data-parallel", "--duration", "30s", "--output", "json", "--at-end",
                 AT_END.format(out=processes.path("out")))
    urls = processes.path("out", "urls")
    wait_until(lambda: os.path.exists(urls) or demo.poll() is not None, 240, "both jobs to train")
    if demo.poll() is None:
        check_metrics(scrape(urls))
        processes.write("out/go", "")
    out, err = demo.communicate(timeout=120)
    check(demo.returncode == 0, f"weft demo ended with {demo.returncode}: {err[-600:]}")
    check("falling back to loopback" in err, f"stderr does not say that it falls back: {err[:300]}")
    check_report(json.loads(out))
    check_nothing_left(processes, before)


def interrupted_leaves_nothing(processes):
    before = folders()
    demo = start(processes, "--duration", "30s")
    # By then controller, agents and the first ranks are there.
    for line in demo.stderr:
        if ": alone" in line:
            break
    demo.send_signal(signal.SIGINT)
    _, err = demo.communicate(timeout=30)
    check(demo.returncode == 1 and err.count("\n") == 1 and "interrupted" in err,
          f"interrupted, it ended with {demo.returncode} and said {err!r}")
    check_nothing_left(processes, before)


def main():
    with Processes("weft-loopback-") as processes:
        install(processes)
        interrupted_leaves_nothing(processes)
        runs_to_its_end(processes)
    return 0


if __name__ == "__main__":
    run_test(main)
