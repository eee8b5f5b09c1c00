#!/usr/bin/env python3
"""Debian's Prometheus scrapes a real controller and two real agents on loopback and finds every metric that
docs/metrics.md lists; the dashboard's expressions are accepted. Environment: WEFT_BIN, WEFT_SOURCE.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BIN = pathlib.Path(os.environ["WEFT_BIN"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
sys.path.insert(0, str(SOURCE / "dashboards"))

from daemons import Daemons  # noqa: E402
from processes import Failure, Processes, check, free_ports, skip, wait_until  # noqa: E402
from prometheus_api import ApiError, Prometheus  # noqa: E402

DOCS = SOURCE / "docs" / "metrics.md"
HOSTS = ("h1", "h2")


def start_prometheus(processes, daemons):
    """The server's URL, once it is ready."""
    agents = ", ".join(f"'{daemons.http[host]}'" for host in HOSTS)
    config = processes.write("prometheus.yml", (
        "global:\n  scrape_interval: 250ms\n  scrape_timeout: 250ms\nscrape_configs:\n"
        f"  - job_name: weft-controller\n    static_configs: [{{targets: ['{daemons.http['controller']}']}}]\n"
        f"  - job_name: weft-agent\n    static_configs: [{{targets: [{agents}]}}]\n"))
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    processes.start("prometheus", ["prometheus", f"--config.file={config}", f"--web.listen-address=127.0.0.1:{port}",
                                   f"--storage.tsdb.path={processes.path('prometheus-data')}", "--log.level=warn"])

    def ready():
        processes.check_alive()
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2) as response:
                return response.status == 200
        except (urllib.error.URLError, OSError):
            return False
    wait_until(ready, 20, "Prometheus to be ready")
    return url


def targets_up(prometheus):
    try:
        targets = prometheus.get("targets", state="active")["activeTargets"]
    except ApiError:
        return False
    return len(targets) == 1 + len(HOSTS) and all(target["health"] == "up" for target in targets)


def run(script, *arguments):
    command = [sys.executable, SOURCE / "dashboards" / script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def metrics_follow_the_conventions(daemons):
    for name, address in daemons.http.items():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
            text = response.read()
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
        said = (result.stdout + result.stderr).decode()
        check(result.returncode == 0, f"promtool about {name}: {said}")


def page_and_prometheus_agree(url, processes):
    result = run("check_metrics_page.py", "--prometheus", url, "--docs", DOCS, "--accept-declared", "--save",
                 processes.path("before.json"))
    print(result.stdout, end="")
    check(result.returncode == 0, f"docs/metrics.md and Prometheus disagree: {result.stdout}{result.stderr}")


def missing_metric_is_found_missing(url, processes):
    page = processes.write("page.md", DOCS.read_text(encoding="utf-8") + "\n| `weft_agent_no_such_metric` | gauge |\n")
    result = run("check_metrics_page.py", "--prometheus", url, "--docs", page)
    check(result.returncode == 1 and "MISSING  weft_agent_no_such_metric" in result.stdout, f"said {result.stdout!r}")


def unlisted_metric_is_found(url, processes):
    lines = DOCS.read_text(encoding="utf-8").splitlines()
    page = processes.write("short.md", "\n".join(line for line in lines if "weft_agent_samples_sent_total" not in line))
    result = run("check_metrics_page.py", "--prometheus", url, "--docs", page)
    check(result.returncode == 1 and "UNLISTED weft_agent_samples_sent_total" in result.stdout, result.stdout)


def changes_between_snapshots_are_told(url, processes, prometheus):
    """Agents send samples all the time, and nobody is refused at their sockets."""
    page = processes.write("two.md", "| `weft_agent_samples_sent_total` |\n| `weft_agent_segments_rejected_total` |\n")
    before = processes.path("before.json")

    def sent():
        values = json.loads(pathlib.Path(before).read_text(encoding="utf-8"))["weft_agent_samples_sent_total"]
        return sum(value for _, value in prometheus.query("weft_agent_samples_sent_total")) > sum(values.values())
    wait_until(sent, 20, "agents to send samples")
    for since in (["--changed-since", before], ["--changed-within", "5m"]):
        result = run("check_metrics_page.py", "--prometheus", url, "--docs", page, *since)
        check("changed  weft_agent_samples_sent_total" in result.stdout, f"{since}: {result.stdout}")
        check("STUCK    weft_agent_segments_rejected_total" in result.stdout, f"{since}: {result.stdout}")
        check(result.returncode == 1, f"{since}: a metric that stood still did not fail the check")


def dashboard_is_accepted(url):
    """Without a job some panels are empty; in the demo's test none may be."""
    result = run("check_dashboard.py", "--prometheus", url, "--allow-empty", "--rate-interval", "2s")
    print(result.stdout, end="")
    check(result.returncode == 0, f"the dashboard has expressions that fail: {result.stdout}{result.stderr}")


def wrong_and_empty_expressions_fail(url, processes):
    def verdict(expression):
        panel = {"title": "p", "targets": [{"refId": "A", "expr": expression}]}
        dashboard = processes.write("dashboard.json", json.dumps({"panels": [panel]}))
        result = run("check_dashboard.py", "--prometheus", url, "--dashboard", dashboard)
        return result.returncode, result.stdout
    cases = (("sum(weft_agent_flows)", 0, "ok "), ("sum(weft_agent_flows", 1, "FAIL"),
             ("weft_no_such_metric", 1, "EMPTY"), ("0 / (0 * sum(weft_agent_flows))", 1, "EMPTY"),
             ("rate(weft_agent_flows[$nothing])", 1, "unknown variable"))
    for expression, code, text in cases:
        said = verdict(expression)
        check(said[0] == code and text in said[1], f"{expression}: {said}")


def main():
    if not shutil.which("prometheus"):
        skip("prometheus", "no prometheus: install the packages of deploy/packages.txt")
    with Processes("weft-prometheus-") as processes:
        try:
            daemons = Daemons(processes, BIN)
            daemons.start_controller()
            for host in HOSTS:
                daemons.start_agent(host, processes.path("run", host), "--interfaces", "lo")
            metrics_follow_the_conventions(daemons)
            url = start_prometheus(processes, daemons)
            prometheus = Prometheus(url)
            wait_until(lambda: targets_up(prometheus), 20, "Prometheus to see all targets up")
            page_and_prometheus_agree(url, processes)
            missing_metric_is_found_missing(url, processes)
            unlisted_metric_is_found(url, processes)
            changes_between_snapshots_are_told(url, processes, prometheus)
            dashboard_is_accepted(url)
            wrong_and_empty_expressions_fail(url, processes)
            processes.check_alive()
        except (Failure, ApiError) as failure:
            processes.print_logs()
            print(f"FAIL: {failure}", flush=True)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
