#!/usr/bin/env python3
"""Random sequences of path faults, one after another and two at once, under two jobs over TCP on a namespace fabric of four spines.
Promised of each, from when the controller has found it (its own decision's time): within 5 s both jobs are back at 10 % over the bound of
their iteration, and no flow has been moved more than twice. A fault that is not found counts from when it began. Every sum is right.

    sequence_test.py [--sequences 20] [--seed 1]

Each sequence has a fabric and a seed of its own: `--sequences 1 --seed N` repeats the one of seed N. Drawn are kinds, leaves, rates and
ends; struck is one of the spines that carry something, which are not always the same. Promises are asserted with twice their value.
"""
import argparse
import collections
import dataclasses
import os
import random
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from faults import BlackHole, CableDown, CableFlaps, CableLosesPackets, CableSlow  # noqa: E402
from loop_watch import (BYTES, COMPUTE_S, CONFIG, JOB, believed_whole, carried_by_spine, decisions, median_ms, state,  # noqa: E402
                        uplinks, uptime)
from processes import check, run_test  # noqa: E402
from weft_cluster import WeftCluster, require_fabric  # noqa: E402

PROMISED_S, PROMISED_MOVES, WITHIN = 5, 2, 1.1
KINDS = [CableSlow, CableDown, CableLosesPackets, BlackHole, CableFlaps]
LEAVES, SPINES, MBIT = ["leaf1", "leaf2"], 4, 60
JOBS = {"a": ["h1", "h3"], "b": ["h2", "h4"]}  # a host of each leaf
SAVED_UP_S = 0.005  # of its rate, that a port which was idle sends at once (testbed/fabric_scripts.cc)
FIND_S, BACK_S, CALM_S = 30, 60, 240  # until a fault counts as not found, a job as not back, the fabric as spoilt
STEPS_AFTER = 20  # with the fault still there once the jobs are back
QUIET_S = 6  # without a move before the next fault: longer than from one plan of all jobs to the next
POLL_S = 0.2  # all times are taken from what the controller and the jobs say
TROUBLE = re.compile(r" gave .* was expected|answers nobody|loses segments|nothing was acknowledged")
MOVE = re.compile(r"(flow [0-9a-f]+ of job \S+) \(\S+ to \S+\): [^;]* -> ")


def bound_s(spines_left):
    """Of an iteration. An all-reduce over a ring of n = 2 ranks sends 2 (n - 1) / n = once its bytes from each rank to the other, all through
    the one cable that its host has. A segment of 1448 bytes is 1514 on the wire. Each job has one flow in each direction between the
    leaves, and these share the spines' cables: two spines are enough, and then the host's cable is what bounds."""
    rate = 1e6 * MBIT * min(1, spines_left / len(JOBS))
    return COMPUTE_S + (8 * BYTES * 1514 / 1448 - SAVED_UP_S * 1e6 * MBIT) / rate


@dataclasses.dataclass
class Drawn:
    """A fault before its place is known."""
    kind: type
    leaf: str   # whose packets it strikes, on their way to the other
    near: bool  # of the way's two cables it is this leaf's
    mbit: int
    pick: float  # which of the spines that carry something

    @classmethod
    def of(cls, draw):
        kind, near = draw.choice(KINDS), draw.random() < 0.5
        # Around a cable of its own that goes down a leaf goes at once, and a spine's black hole is on its way to the other leaf.
        near = kind is CableLosesPackets or kind is CableSlow and near
        return cls(kind, draw.choice(LEAVES), near, draw.choice([5, 10, 20]), draw.random())


@dataclasses.dataclass
class Row:
    kind: str
    back_s: float  # after it was found; None: not within BACK_S
    moves: int     # of the flow with the most

    def keeps(self, times):
        return [self.back_s is not None and self.back_s <= times * PROMISED_S, self.moves <= times * PROMISED_MOVES]


class Sequence:
    def __init__(self, cluster, rows):
        self.cluster, self.rows = cluster, rows
        self.jobs = [cluster.start_job(name, hosts, 100_000, "weft-replay", JOB) for name, hosts in JOBS.items()]
        self.struck = []  # spines
        self.ahead_s = time.monotonic() - uptime(cluster)  # of the controller's time, or some milliseconds more: the jobs' clock

    def first(self, condition, timeout_s):
        """What condition() returns that is not None, while all processes live; None if that takes too long."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            self.cluster.processes.check_alive()
            for job in self.jobs:
                check(not job._ended(), f"job {job.name} ended before its time")
            found = condition()
            if found is not None:
                return found
            time.sleep(POLL_S)
        return None

    def steps(self, job):
        """With the controller's time."""
        return [{**step, "time_s": step["time_s"] - self.ahead_s} for step in job.steps_done()]

    def calm(self):
        """All paths are known, all links believed whole, nothing has moved lately, and both jobs are at their bound."""
        restless = []

        def is_calm():
            seen = state(self.cluster)
            quiet_since_s = seen["uptime_s"] - QUIET_S
            known = {leaf: sorted(uplinks(self.cluster, leaf)) for leaf in LEAVES}
            restless[:] = [f"{leaf} knows {spines}" for leaf, spines in known.items() if len(spines) != SPINES]
            restless.extend(f"{link['from']}->{link['to']} is planned with {link['available_bps'] / 1e6:.1f} Mbit/s"
                            for link in seen["links"] if not believed_whole([link]))
            restless.extend(f"{each['kind']} {seen['uptime_s'] - each['time_s']:.1f} s ago: {each['reason'][:300]}" for each in seen["decisions"]
                            if each["kind"] in ("place", "replan", "rollback") and each["time_s"] > quiet_since_s)
            restless.extend(f"{job.name} takes {median_ms(job.steps_done()[-5:])}, bound {1e3 * bound_s(SPINES):.0f} ms" for job in self.jobs
                            if self.back_s(job, bound_s(SPINES), len(job.steps_done()) - 5, 0) is None)
            return None if restless else True

        check(self.first(is_calm, CALM_S), f"not at rest after {CALM_S} s: {'; '.join(restless)}")

    def undisturbed(self):
        check(self.first(lambda: decisions(self.cluster, ["place", "replan"]) or None, CALM_S), "no lanes were placed")
        self.calm()
        for job in self.jobs:
            job.wait_for_step(len(job.steps_done()) + STEPS_AFTER)
            ratio = statistics.median(step["iteration_s"] for step in job.steps_done()[-STEPS_AFTER:]) / bound_s(SPINES)
            print(f"  {job.name}: undisturbed {ratio:.3f} of the bound of {1e3 * bound_s(SPINES):.1f} ms", flush=True)
            check(0.97 <= ratio <= WITHIN, f"{job.name}: undisturbed {ratio:.3f} of the bound: nothing can be said of faults")

    def back_s(self, job, bound, first, since_s):
        """After since_s: when the first of five iterations began whose median is near enough to the bound, from number `first` on. So are the
        median of all since, and that first one itself: one that stood still may be among four good ones."""
        steps, most_s = self.steps(job), WITHIN * bound
        for at in range(max(0, first), len(steps) - 4):
            since = [step["iteration_s"] for step in steps[at:]]
            good = steps[at]["time_s"] > since_s and since[0] <= most_s and statistics.median(since[:5]) <= most_s
            if good and statistics.median(since) <= most_s:
                return max(0.0, steps[at]["time_s"] - since[0] - since_s)
        return None

    def found(self, began_s):
        """The decision that says something is wrong, other than on the spines struck before."""
        others = [each["identity"] for each in self.cluster.fabric["switches"] if each["name"] in self.struck[:-1]]
        for each in decisions(self.cluster, ["capacity", "silent"], began_s):
            if TROUBLE.search(each["reason"]) and not any(re.search(rf"\b{re.escape(name)}\b", each["reason"]) for name in others):
                return each
        return None

    def moves(self, since_s):
        """How often each flow was moved. A re-plan names those it moves; one that is taken back moves them once more."""
        counts, last = collections.Counter(), []
        for each in decisions(self.cluster, ["replan", "rollback"], since_s):
            if each["kind"] == "replan":
                last = MOVE.findall(each["reason"])
                check(last and not re.search(r"; and \d+ more", each["reason"]), f"a re-plan does not name its flows: {each['reason']}")
            counts.update(last)
        return counts

    def placed(self, drawn):
        carried = carried_by_spine(self.cluster, self.jobs[0], drawn.leaf)
        left = [spine for spine in sorted(carried) if spine not in self.struck]
        busy = [spine for spine in left if 4 * carried[spine] >= max(carried[other] for other in left)]
        other = LEAVES[1 - LEAVES.index(drawn.leaf)]
        where = (self.cluster, drawn.leaf if drawn.near else other, busy[int(drawn.pick * len(busy))])
        fault = drawn.kind(*where, reroute_s=2) if drawn.kind is CableDown else drawn.kind(*where)
        if drawn.kind is CableSlow:
            fault.mbit = drawn.mbit
            fault.what += f", {drawn.mbit} Mbit/s"
        return fault

    def strike(self, todo, together):
        """The next fault; with `together` so many more begin before it ends."""
        fault = self.placed(todo.pop(0))
        first, began_s = [len(job.steps_done()) for job in self.jobs], uptime(self.cluster)
        self.struck.append(fault.spine)
        fault.begin()
        try:
            found = self.first(lambda: self.found(began_s), FIND_S)
            is_back = self.judge(fault, began_s, found, first)
            if together and is_back:
                self.strike(todo, together - 1)
        finally:
            fault.end()
            self.struck.pop()

    def judge(self, fault, began_s, found, first):
        """Whether both jobs come back while the fault lasts."""
        since_s, bound = found["time_s"] if found else began_s, bound_s(SPINES - len(self.struck))

        def back():
            each = [self.back_s(job, bound, at, since_s) for job, at in zip(self.jobs, first)]
            return None if None in each else each

        back_s = self.first(back, BACK_S)
        if back_s:
            for job in self.jobs:
                job.wait_for_step(len(job.steps_done()) + STEPS_AFTER, CALM_S)
            back_s = self.first(back, BACK_S)  # and stay so
        moves = self.moves(began_s)
        row = Row(type(fault).__name__, max(back_s) if back_s else None, max(moves.values(), default=0))
        self.rows.append(row)
        seen = f"found after {found['time_s'] - began_s:.2f} s ({found['reason']})" if found else f"not found in {FIND_S} s"
        back_text = f"back after {row.back_s:.2f} s{' more' if found else ''}" if back_s else f"not back in {BACK_S} s"
        moved = ", ".join(f"{flow} {count}" for flow, count in moves.items()) or "none"
        print(f"  {fault}: {seen}; {back_text}; moves: {moved}{'' if all(row.keeps(1)) else '; MISSED'}", flush=True)
        if not all(row.keeps(1)):
            for each in decisions(self.cluster, ["silent", "capacity", "place", "replan", "rollback"], began_s):
                print(f"    {each['time_s'] - began_s:6.2f} s {each['kind']}: {each['reason'][:600]}", flush=True)
        for job, at, after_s in zip(self.jobs, first, back_s or [float("inf")] * len(self.jobs)):
            before, steps = job.steps_done()[:at][-10:], self.steps(job)[at:]
            until = [step for step in steps if step["time_s"] <= since_s + after_s]
            print(f"    {job.name}: {median_ms(before)} before, {median_ms(until)} until back, {median_ms(steps[len(until):])} after, "
                  f"bound {1e3 * bound:.0f} ms", flush=True)
        return back_s is not None

    def run(self, seed):
        draw = random.Random(seed)
        todo = [Drawn.of(draw) for _ in range(draw.choice([2, 3]))]
        together = int(draw.random() < 1 / 3)  # the first two; of which one takes routes along at most, as each brings back those that it saw
        while together and all(issubclass(drawn.kind, CableDown) for drawn in todo[:2]):
            todo[1] = Drawn.of(draw)
        self.undisturbed()
        while todo:
            self.calm()
            self.strike(todo, together)
            together = 0
        self.calm()
        print(f"  {' and '.join(str(len(job.steps_done())) for job in self.jobs)} steps, every sum right", flush=True)
        for job in self.jobs:
            job.kill()


def print_table(rows):
    print(f"{'':17}  faults  back in {PROMISED_S} s  in {2 * PROMISED_S} s  longest  moves <= {PROMISED_MOVES}  <= {2 * PROMISED_MOVES}  most")
    for kind in [*(kind.__name__ for kind in KINDS), "all"]:
        of = [row for row in rows if kind in (row.kind, "all")]
        back, moves = ([sum(row.keeps(times)[promise] for row in of) for times in (1, 2)] for promise in (0, 1))
        longest_s = max((float("inf") if row.back_s is None else row.back_s for row in of), default=0)
        most = max((row.moves for row in of), default=0)
        print(f"{kind:17}  {len(of):6}  {back[0]:11}  {back[1]:7}  {longest_s:5.1f} s  {moves[0]:10}  {moves[1]:4}  {most:4}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sequences", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    require_fabric()
    rows = []
    try:
        for seed in range(options.seed, options.seed + options.sequences):
            print(f"sequence {seed - options.seed + 1} of {options.sequences}, seed {seed}", flush=True)
            with WeftCluster(hosts_per_leaf=2, spines=SPINES, rate=f"{MBIT}Mbit/s", config=CONFIG) as cluster:
                Sequence(cluster, rows).run(seed)
    finally:
        print_table(rows)
    missed = [row for row in rows if not all(row.keeps(2))]
    check(not missed, f"{len(missed)} of {len(rows)} faults miss a promise by more than twice: {missed}")


if __name__ == "__main__":
    run_test(main)
