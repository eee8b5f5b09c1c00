#!/usr/bin/env python3
"""What a job's iterations take teaches a controller about its cluster. Nobody has told this one what its processors and network give, so it
is far off at first. A job of weft-train runs on a fabric of network namespaces; once its iterations hold still, the controller learns from
them, and the next job's prediction is nearer to what that one takes. A controller that is killed and started again still knows it.
"""
import math
import os
import re
import statistics
import sys
import time
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "system"))
import reshard_test as reshard  # noqa: E402
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402


def submitted(cluster, name):
    """The job's plan."""
    text = reshard.JOB.format(batch=reshard.BATCH, sequence=reshard.SEQUENCE, hosts=", ".join(cluster.hosts))
    text = text.replace("name: job", f"name: {name}")
    reshard.weft(cluster, "submit", cluster.processes.write(f"{name}.yaml", text))
    return cluster.ask("explain", name)["job"]["plan"]


def learned(cluster, job):
    """What the newest lesson from the job has said."""
    reasons = [d["reason"] for d in cluster.ask("explain", job)["decisions"] if d["kind"] == "learned"]
    return reasons[-1] if reasons else None


def learned_runs(cluster):
    with urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=10) as answer:
        found = re.search(r"^weft_controller_learned_runs ([0-9.e+]+)$", answer.read().decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0


def off(predicted, measured):
    """How many times too much or too little, as a logarithm."""
    return abs(math.log(predicted / measured))


def far(predicted, runs):
    """Both jobs are the same work, and the machine's pace changes from minute to minute: a prediction is judged by all runs, as is the one that
    it is compared with."""
    return statistics.mean(off(predicted, measured) for measured in runs)


def main():
    require_fabric()
    with WeftCluster(hosts_per_leaf=2, spines=1) as cluster:
        model = cluster.processes.write("model.json", reshard.json.dumps(reshard.MODEL))
        first = submitted(cluster, "first")
        begin = time.monotonic()
        job = reshard.start(cluster, first, model)
        said = wait_until(lambda: learned(cluster, "first"), 150, "the controller to learn from the job")
        took = time.monotonic() - begin
        job.finish(300)
        measured = statistics.median(step["iteration_s"] for step in job.steps_done()[10:])
        before, after = (float(x) for x in re.search(r"took ([0-9.]+) % more or less .* and ([0-9.]+) % with", said).groups())
        print(f"{first['strategy']['text']}: predicted {1e3 * first['predicted']['iteration_s']:.0f} ms, takes {1e3 * measured:.0f} ms; {took:.0f} s "
              f"after its start: {said}", flush=True)
        check(after < before, f"nothing was gained: {said}")

        second = submitted(cluster, "second")
        again = reshard.start(cluster, second, model)
        again.finish(300)
        takes = statistics.median(step["iteration_s"] for step in again.steps_done()[10:])
        pace = (measured, takes)
        untaught, taught = (far(plan["predicted"]["iteration_s"], pace) for plan in (first, second))
        print(f"{second['strategy']['text']}: predicted {1e3 * second['predicted']['iteration_s']:.0f} ms, takes {1e3 * takes:.0f} ms; off "
              f"{math.exp(untaught):.2f} times untaught, then {math.exp(taught):.2f}", flush=True)
        check(second["strategy"]["text"] == first["strategy"]["text"], "the jobs differ, so that nothing can be said of the machine")
        learned_from = off(second["predicted"]["iteration_s"], measured)
        check(learned_from < off(first["predicted"]["iteration_s"], measured) / 2,
              f"of the job it has learned from the controller is still {math.exp(learned_from):.2f} times off")
        check(taught < untaught / 2, f"the next job's prediction is off {math.exp(taught):.2f} times, the first one's {math.exp(untaught):.2f}")

        cluster.kill("controller")
        cluster.start_controller(listen=cluster.controller)
        wait_until(lambda: learned_runs(cluster) >= 1, 60, "the controller that was started again to know its runs")
        third = submitted(cluster, "third")["predicted"]["iteration_s"]
        check(far(third, pace) < untaught / 2, f"after a restart {third} s are predicted, {takes} s are taken")
    return 0


run_test(main)
