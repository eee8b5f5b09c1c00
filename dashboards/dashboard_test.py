#!/usr/bin/env python3
"""The committed dashboard is what its source makes, says what it shows, and names only metrics that the docs list."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "tests" / "support"))

from check_dashboard import expressions, variables  # noqa: E402
from processes import Failure, check, skip  # noqa: E402
from prometheus_api import documented_metrics  # noqa: E402

SOURCES = ["weft.jsonnet", "config.libsonnet", "lib/dashboard.libsonnet"]
METRIC = re.compile(r"\bweft_(?:agent|controller)_[a-z0-9_]+")


def run(*command):
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)


def generated_file_is_current(_dashboard):
    made = run("jsonnet", "weft.jsonnet")
    check(made.returncode == 0, f"jsonnet: {made.stderr}")
    committed = (HERE / "weft.json").read_text(encoding="utf-8")
    check(made.stdout == committed, "weft.json is not what weft.jsonnet makes: jsonnet weft.jsonnet -o weft.json")


def sources_are_formatted(_dashboard):
    for source in SOURCES:
        result = run("jsonnetfmt", "--test", "-n", "2", source)
        check(result.returncode == 0, f"{source} is not formatted: jsonnetfmt -i -n 2 {source}")


def every_panel_says_what_it_shows(dashboard):
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    check(rows == ["Jobs", "Fabric", "Decisions", "Daemons"], f"rows {rows}, expected from symptom to cause")
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        where = f"panel \"{panel['title']}\""
        check(len(panel["description"]) > 20, f"{where} has no description")
        check(panel["fieldConfig"]["defaults"].get("unit"), f"{where} has no unit")
        check(panel["targets"], f"{where} has no query")
        for target in panel["targets"]:
            check(target["legendFormat"], f"{where} [{target['refId']}] has no legend")
            check(target["datasource"]["uid"] == "$datasource", f"{where} does not follow the data source variable")


def positions_do_not_overlap(dashboard):
    taken = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        check(place["x"] + place["w"] <= 24, f"{panel['title']} sticks out")
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                check(other is panel["title"], f"{panel['title']} lies on {other}")
    ids = [panel["id"] for panel in dashboard["panels"]]
    check(len(set(ids)) == len(ids), "panel ids are not unique")


def metrics_are_documented(dashboard):
    page = (HERE.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    documented = {name for name, _ in documented_metrics(page)}
    check(len(documented) > 10, f"docs/metrics.md lists {len(documented)} metrics")
    texts = expressions(dashboard) + [(f"variable {name}", metric) for name, metric, _ in variables(dashboard)]
    for where, text in texts:
        names = METRIC.findall(text)
        check(names, f"{where} asks for no metric of Weft: {text}")
        for name in names:
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            check(name in documented or base in documented, f"{where} uses {name}, which docs/metrics.md does not list")


def labels_of_prometheus_are_not_used(dashboard):
    """`job` and `instance` are Prometheus' own: a metric's label of that name would arrive as exported_job. Only to
    join two metrics of one target is `instance` the right word."""
    for where, text in expressions(dashboard):
        text = text.replace("on (instance)", "")
        check(not re.search(r"\b(exported_)?(job|instance)\b", text), f"{where} uses the label job or instance: {text}")


def every_variable_is_used(dashboard):
    text = json.dumps([target for target in expressions(dashboard)])
    for name, _, _ in variables(dashboard):
        check(f"${name}" in text, f"variable {name} is not used")


def example_configuration_is_valid(_dashboard):
    result = run("promtool", "check", "config", "--syntax-only", "prometheus.yml")  # its certificates are elsewhere
    check(result.returncode == 0, f"promtool: {result.stdout}{result.stderr}")


def alerts_fire_when_they_should(_dashboard):
    result = run("promtool", "test", "rules", "alerts_test.yml")
    check(result.returncode == 0, f"promtool: {result.stdout}{result.stderr}")


FACTS = (
    generated_file_is_current,
    sources_are_formatted,
    every_panel_says_what_it_shows,
    positions_do_not_overlap,
    metrics_are_documented,
    labels_of_prometheus_are_not_used,
    every_variable_is_used,
    example_configuration_is_valid,
    alerts_fire_when_they_should,
)


def main():
    for program in ("jsonnet", "jsonnetfmt", "promtool"):
        if not shutil.which(program):
            skip("prometheus", f"no {program}: install the packages of deploy/packages.txt")
    dashboard = json.loads((HERE / "weft.json").read_text(encoding="utf-8"))
    failed = 0
    for fact in FACTS:
        try:
            fact(dashboard)
            print(f"ok   {fact.__name__}")
        except Failure as failure:
            print(f"FAIL {fact.__name__}: {failure}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
