"""The calls of Prometheus' HTTP API that the checks need, and the list of metrics that docs/metrics.md promises."""

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request


class ApiError(Exception):
    """Prometheus could not be asked, or did not accept the question."""


class Prometheus:
    """`url` is the server's root, e.g. http://127.0.0.1:9090."""

    def __init__(self, url, timeout_s=10):
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s

    def get(self, path, **parameters):
        """The `data` of an API answer."""
        address = f"{self.url}/api/v1/{path}"
        if parameters:
            address += "?" + urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(address, timeout=self.timeout_s) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            try:
                message = json.load(error).get("error", str(error))
            except ValueError:
                message = str(error)
            raise ApiError(message) from None
        except (OSError, ValueError) as error:
            raise ApiError(f"{address}: {error}") from None
        if answer.get("status") != "success":
            raise ApiError(answer.get("error", "no success"))
        return answer["data"]

    def query(self, expression):
        """Instant query: [(labels, value), ...]; a scalar has no labels."""
        data = self.get("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def query_range(self, expression, seconds):
        """[(labels, [value, ...]), ...] of the last so many seconds, 31 moments of them."""
        end = time.time()
        data = self.get("query_range", query=expression, start=end - seconds, end=end, step=seconds / 30)
        return [(series["metric"], [float(value) for _, value in series["values"]]) for series in data["result"]]

    def metric_names(self):
        """Names with series."""
        return set(self.get("label/__name__/values"))

    def declared_names(self):
        """Names that scraped targets announce by a TYPE line, with series or without."""
        return set(self.get("metadata"))


def documented_metrics(page):
    """[(name, whole row), ...]: the metrics in the first cells of the page's tables."""
    metrics = []
    for line in page.splitlines():
        if not line.lstrip().startswith("|"):
            continue
        first_cell = line.strip().strip("|").split("|")[0]
        for name in re.findall(r"`(weft_[a-z0-9_]+)(?:\{[^}`]*\})?`", first_cell):
            metrics.append((name, line.strip()))
    return metrics


def series_names(name, known):
    """The names under which Prometheus keeps a documented metric: a histogram has three. Empty if it has none."""
    if name in known:
        return [name]
    parts = [name + suffix for suffix in ("_bucket", "_sum", "_count")]
    return parts if all(part in known for part in parts[1:]) else []
