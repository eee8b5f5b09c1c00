#!/usr/bin/env python3
"""Compares docs/metrics.md with a live Prometheus: every metric of the page must exist there, and every weft metric
that exists must be on the page.

    check_metrics_page.py --prometheus URL [--docs docs/metrics.md] [--save SNAPSHOT] [--changed-since SNAPSHOT]
                          [--changed-within TIME] [--accept-declared]

A metric of jobs or links has series only while there are jobs or links; --accept-declared is content with its TYPE line.
--save keeps the present values. --changed-since says which metrics have changed since such a snapshot, and fails for
one that has not unless its row on the page says why: "constant ...", or a cell that begins with "no: ".
--changed-within does the same over all scrapes of the last TIME ("30m"): it also sees what rose and fell again.

Exit: 0 the page and Prometheus agree, 1 they do not, 2 wrong usage or a file cannot be read.
"""

import argparse
import json
import pathlib
import sys

from prometheus_api import ApiError, Prometheus, documented_metrics, series_names

HERE = pathlib.Path(__file__).resolve().parent
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def snapshot(prometheus, names):
    """name -> {labels as text: value}"""
    values = {}
    for name in names:
        values[name] = {json.dumps(labels, sort_keys=True): value for labels, value in prometheus.query(name)}
    return values


def base_name(name, documented):
    for part in HISTOGRAM_PARTS:
        if name.endswith(part) and name[: -len(part)] in documented:
            return name[: -len(part)]
    return name


def compare_presence(metrics, known, declared):
    """Prints what is missing on either side; the number of disagreements. `declared` counts as present."""
    documented = {name for name, _ in metrics}
    without_series = sorted(name for name in documented if not series_names(name, known))
    missing = [name for name in without_series if name not in declared]
    exported = {base_name(name, documented) for name in known | declared if name.startswith("weft_")}
    unknown = sorted(exported - documented)
    for name in without_series:
        if name in declared:
            print(f"DECLARED {name}: no series yet")
    for name in missing:
        print(f"MISSING  {name}: on the page, not in Prometheus")
    for name in unknown:
        print(f"UNLISTED {name}: in Prometheus, not on the page")
    print(f"{len(documented)} metrics on the page, {len(documented) - len(missing)} in Prometheus")
    return len(missing) + len(unknown)


def differs(before, after):
    """Whether a series has another value. One that was not there counts as 0: to appear is no change in itself."""
    return any(before.get(series, 0) != after.get(series, 0) for series in before.keys() | after.keys())


def moved_within(prometheus, metrics, known, window):
    """The names of all series that had two different values in the window."""
    names = [part for name, _ in metrics for part in series_names(name, known)]
    return {name for name in names
            if any(value > 0 for _, value in prometheus.query(f"max_over_time({name}[{window}]) - "
                                                              f"min_over_time({name}[{window}])"))}


def compare_values(metrics, known, changed_part):
    """Prints which metrics changed, given which series did; the number that did not and should have."""
    stuck = 0
    for name, row in sorted(metrics):
        names = series_names(name, known)
        changed = any(changed_part(part) for part in names)
        constant = "constant" in row or any(cell.strip().startswith("no: ") for cell in row.split("|"))
        state = "changed " if changed else "constant" if constant else "STUCK   "
        stuck += not changed and not constant
        print(f"{state} {name}")
    return stuck


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--docs", default=HERE.parent / "docs" / "metrics.md", type=pathlib.Path)
    parser.add_argument("--accept-declared", action="store_true")
    parser.add_argument("--save", type=pathlib.Path, metavar="SNAPSHOT")
    parser.add_argument("--changed-since", type=pathlib.Path, metavar="SNAPSHOT")
    parser.add_argument("--changed-within", metavar="TIME")
    arguments = parser.parse_args()
    prometheus = Prometheus(arguments.prometheus)
    try:
        metrics = documented_metrics(arguments.docs.read_text(encoding="utf-8"))
        before = json.loads(arguments.changed_since.read_text(encoding="utf-8")) if arguments.changed_since else None
        if not metrics:
            raise ValueError("no table row that starts with a `weft_...` metric")
    except (OSError, ValueError) as error:
        print(f"check_metrics_page: {arguments.docs}: {error}", file=sys.stderr)
        return 2
    try:
        known = prometheus.metric_names()
        declared = prometheus.declared_names() if arguments.accept_declared else set()
        names = [part for name, _ in metrics for part in series_names(name, known)]
        wanted = before is not None or arguments.save is not None
        after = snapshot(prometheus, names) if wanted else {}
        moved = moved_within(prometheus, metrics, known, arguments.changed_within) if arguments.changed_within else None
    except ApiError as error:
        print(f"check_metrics_page: {error}", file=sys.stderr)
        return 1
    if arguments.save is not None:
        arguments.save.write_text(json.dumps(after), encoding="utf-8")
    disagreements = compare_presence(metrics, known, declared)
    if before is not None:
        disagreements += compare_values(metrics, known,
                                        lambda part: differs(before.get(part, {}), after.get(part, {})))
    if moved is not None:
        disagreements += compare_values(metrics, known, lambda part: part in moved)
    return 1 if disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
