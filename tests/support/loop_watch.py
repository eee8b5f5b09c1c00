"""What tests of the loop of seeing and moving look at: what the controller has decided and believes of links, and how long iterations are."""

import json
import statistics
import urllib.request

CONFIG = "capacity: {lossy_links: \"on\", recovery_interval: 5s}\n"  # of the controller
COMPUTE_S, BYTES = 0.1, 500_000  # of an iteration
JOB = ["--compute", f"{1e3 * COMPUTE_S:.0f}ms", "--bytes", f"{BYTES}B", "--bucket", f"{BYTES}B"]  # of weft-replay


def state(cluster):
    with urllib.request.urlopen(f"http://{cluster.http}/api/v1/state", timeout=5) as answer:
        return json.loads(answer.read())


def uptime(cluster):
    """The controller's time, in which its decisions are."""
    return state(cluster)["uptime_s"]


def decisions(cluster, kinds, since_s=0.0):
    """Oldest first."""
    return [d for d in state(cluster)["decisions"] if d["kind"] in kinds and d["time_s"] >= since_s]


def counted(cluster, kind):
    """Decisions of a kind, as the controller's metrics have it."""
    with urllib.request.urlopen(f"http://{cluster.http}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f'weft_controller_decisions_total{{kind="{kind}"}}'):
                return float(line.split()[1])
    return 0.0


def believed_whole(links):
    return all(link["available_bps"] >= 0.9 * link["line_rate_bps"] for link in links)


def uplinks(cluster, leaf="leaf1"):
    """Those of a leaf that paths are known over, by the spine's name."""
    names = {each["identity"]: each["name"] for each in cluster.fabric["switches"]}
    return {names[link["to"]]: link for link in state(cluster)["links"]
            if names.get(link["from"]) == leaf and names.get(link["to"], "").startswith("spine")}


def carried_by_spine(cluster, job, leaf="leaf1"):
    """Bytes from a leaf in the job's next iterations, by the spine's name."""
    before = {spine: link["carried_bytes"] for spine, link in uplinks(cluster, leaf).items()}
    job.wait_for_step(len(job.steps_done()) + 5)
    return {spine: link["carried_bytes"] - before.get(spine, 0) for spine, link in uplinks(cluster, leaf).items()}


def median_ms(steps):
    return f"{1e3 * statistics.median(step['iteration_s'] for step in steps):.0f} ms" if steps else "none"
