#!/usr/bin/env python3
"""Runs every expression of a Grafana dashboard against a live Prometheus, as Grafana would, and fails where a panel
would stay empty or show an error.

    check_dashboard.py --prometheus http://127.0.0.1:9090 [--dashboard weft.json] [--rate-interval 15s] [--window 60]
                       [--allow-empty]

Exit: 0 every expression has data, 1 some has not, 2 wrong usage or the dashboard cannot be read.
"""

import argparse
import json
import math
import pathlib
import re
import sys

from prometheus_api import ApiError, Prometheus

HERE = pathlib.Path(__file__).resolve().parent


def expressions(dashboard):
    """[(where, expression), ...] of all panels, of panels inside collapsed rows, and of the annotations."""
    found = []

    def walk(panels):
        for panel in panels:
            for target in panel.get("targets", []):
                found.append((f"{panel['title']} [{target['refId']}]", target["expr"]))
            walk(panel.get("panels", []))

    walk(dashboard.get("panels", []))
    for annotation in dashboard.get("annotations", {}).get("list", []):
        if annotation.get("expr"):
            found.append((f"annotation {annotation['name']}", annotation["expr"]))
    return found


def variables(dashboard):
    """[(name, metric, label), ...] of the query variables."""
    found = []
    for variable in dashboard.get("templating", {}).get("list", []):
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+),\s*(\w+)\)", variable["definition"])
            if match is None:
                raise ValueError(f"variable {variable['name']}: {variable['definition']}, expected label_values(...)")
            found.append((variable["name"], match.group(1), match.group(2)))
    return found


def substitute(expression, values):
    """Replaces $name, ${name} and ${name:format}, the longest name first."""
    for name in sorted(values, key=len, reverse=True):
        expression = re.sub(r"\$(?:%s\b|\{%s(?::\w+)?\})" % (name, name), lambda _, n=name: values[n], expression)
    return expression


def ask(prometheus, expression, window):
    """(number of series with a value within the last `window` seconds, error text)"""
    if "$" in expression:
        return 0, f"unknown variable in {expression}"
    try:
        series = prometheus.query_range(expression, window)
        return sum(not all(math.isnan(value) for value in values) for _, values in series), ""
    except ApiError as error:
        return 0, str(error)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--dashboard", default=HERE / "weft.json", type=pathlib.Path)
    parser.add_argument("--rate-interval", default="15s", help="what Grafana would take: four scrape intervals")
    parser.add_argument("--window", default=60.0, type=float, metavar="SECONDS",
                        help="what a panel shows: a series with a value anywhere in it is there")
    parser.add_argument("--allow-empty", action="store_true", help="fail on errors only, and list what is empty")
    arguments = parser.parse_args()
    try:
        dashboard = json.loads(arguments.dashboard.read_text(encoding="utf-8"))
        asked_variables = variables(dashboard)
    except (OSError, ValueError, KeyError) as error:
        print(f"check_dashboard: {arguments.dashboard}: {error}", file=sys.stderr)
        return 2
    interval = arguments.rate_interval
    values = {"__rate_interval": interval, "__interval": interval, "__range": "5m"}
    values.update({name: ".*" for name, _, _ in asked_variables})

    prometheus = Prometheus(arguments.prometheus)
    asked = [(f"variable {name}", f"count by ({label}) ({metric}{{{label}!=\"\"}})" if "{" not in metric else metric)
             for name, metric, label in asked_variables] + expressions(dashboard)
    empty, failed = 0, 0
    for where, expression in asked:
        count, error = ask(prometheus, substitute(expression, values), arguments.window)
        if where.startswith("annotation ") and not error:
            print(f"ok    {count:4d} series  {where} (may be empty: it marks moments): {expression}")
            continue
        state = "FAIL " if error else "ok   " if count else "EMPTY"
        print(f"{state} {count:4d} series  {where}: {error or expression}")
        failed += bool(error)
        empty += not error and not count
    print(f"{len(asked)} expressions: {len(asked) - empty - failed} with data, {empty} empty, {failed} failed")
    return 1 if failed or (empty and not arguments.allow_empty) else 0


if __name__ == "__main__":
    sys.exit(main())
