#!/usr/bin/env python3
"""kill -9 of agent and controller while a job trains: no step fails, losses are bit-identical to an undisturbed run, and
the daemons rejoin and go on.

Killed: the agent of one host in mid-training; the controller in mid-training; both at the moment at which a re-plan has
been decided (a cable was slowed); and the agent of one host before a job starts there.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import check, run_test, wait_until  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

STEPS = 100


def job_of(cluster, name):
    jobs = [job for job in cluster.ask("jobs")["jobs"] if job["spec"]["job_id"] == name]
    return jobs[0] if jobs else None


def flows_of(cluster, name):
    job = job_of(cluster, name)
    return int(job["flows"]) if job else 0


def wait_for_flows(cluster, name):
    wait_until(lambda: flows_of(cluster, name) == len(cluster.hosts), 15, f"the controller to know the flows of {name}")


def undisturbed(cluster):
    job = cluster.start_job("calm", cluster.hosts, STEPS)
    return job.finish()


def kill_in_mid_training(cluster):
    job = cluster.start_job("mid", cluster.hosts, STEPS)
    job.wait_for_step(5)
    wait_for_flows(cluster, "mid")
    cluster.kill("agent-h1")
    done = len(job.steps_done())
    job.wait_for_step(done + 3)  # training goes on without it
    cluster.start_agent("h1")
    cluster.wait_for_agents()
    wait_for_flows(cluster, "mid")
    before = int(job_of(cluster, "mid")["policy_epoch"])
    address = cluster.controller
    cluster.kill("controller")
    done = len(job.steps_done())
    job.wait_for_step(done + 3)
    cluster.start_controller(listen=address)
    cluster.wait_for_agents()
    wait_for_flows(cluster, "mid")
    check(int(job_of(cluster, "mid")["policy_epoch"]) >= before, "a restarted controller went back to an older epoch")
    check(len(job.steps_done()) < STEPS, "the job ended before both daemons were back: train more steps")
    return job.finish()


def epoch_of(cluster, name):
    job = job_of(cluster, name)
    return int(job["policy_epoch"]) if job else 0


def busiest_spine(cluster):
    """The spine over which most of what leaf1 sends goes now."""
    def used():
        return {link["to"]: link["used_bps"] for link in cluster.ask("topo")["links"]
                if link["from"] == "10.255.1.1" and link["to"].startswith("10.255.2.")}
    wait_until(lambda: max(used().values(), default=0) > 0, 10, "bytes from leaf1 to a spine")
    rates = used()
    return "spine" + max(rates, key=rates.get).rsplit(".", 1)[1]


def kill_in_a_replan(cluster):
    job = cluster.start_job("replan", cluster.hosts, STEPS)
    job.wait_for_step(3)
    wait_for_flows(cluster, "replan")
    spine = busiest_spine(cluster)
    epoch = epoch_of(cluster, "replan")
    cluster.set_cable_rate("leaf1", spine, 8)
    # The first sign of it: the controller has decided, its policies are on their way, some hosts may have them.
    wait_until(lambda: epoch_of(cluster, "replan") > epoch or len(job.steps_done()) > STEPS // 2, 40, "a re-plan")
    address = cluster.controller
    cluster.kill("controller")
    cluster.kill("agent-h1")
    check(len(job.steps_done()) < STEPS // 2, "no re-plan came after a cable on the job's way was slowed to an eighth")
    done = len(job.steps_done())
    job.wait_for_step(done + 2)
    cluster.set_cable_rate("leaf1", spine, 60)
    cluster.start_controller(listen=address)
    cluster.start_agent("h1")
    cluster.wait_for_agents()
    wait_for_flows(cluster, "replan")
    # They go on: the next trouble is found and planned around too.
    spine = busiest_spine(cluster)
    epoch = epoch_of(cluster, "replan")
    cluster.set_cable_rate("leaf1", spine, 8)
    wait_until(lambda: epoch_of(cluster, "replan") > epoch or len(job.steps_done()) == STEPS, 60, "a second re-plan")
    check(len(job.steps_done()) < STEPS, "the daemons came back and planned nothing")
    cluster.set_cable_rate("leaf1", spine, 60)
    return job.finish()


def agent_dead_before_start(cluster):
    cluster.kill("agent-h2")
    job = cluster.start_job("early", cluster.hosts, STEPS)
    job.wait_for_step(STEPS // 4)
    check(flows_of(cluster, "early") < len(cluster.hosts), "flows of a host without agent are known")
    cluster.start_agent("h2")
    cluster.wait_for_agents()
    wait_for_flows(cluster, "early")  # it finds the processes that were there before it
    check(len(job.steps_done()) < STEPS, "the job ended before its agent was back: train more steps")
    return job.finish()


def main():
    require_fabric()
    with WeftCluster(hosts_per_leaf=2) as cluster:
        reference = undisturbed(cluster)
        check(len(reference) == STEPS, f"{len(reference)} steps, expected {STEPS}")
        check(reference[-1] < reference[0], "the loss does not go down")
        for scenario in (kill_in_mid_training, kill_in_a_replan, agent_dead_before_start):
            losses = scenario(cluster)
            check(losses == reference, f"{scenario.__name__}: losses differ from the undisturbed run, first at step "
                                       f"{next((i for i, (a, b) in enumerate(zip(losses, reference)) if a != b), '?')}")
            print(f"{scenario.__name__}: {len(losses)} losses bit-identical", flush=True)
    return 0


if __name__ == "__main__":
    run_test(main)
