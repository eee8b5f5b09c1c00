#!/usr/bin/env python3
"""Our net plugin beside others, in turns: sendrecv and a four-rank all-reduce by `weft perf`, medians and paired ratios.

usage: side_by_side.py run WEFT ROUNDS.jsonl --peer NAME=PLUGIN.so ... [--set NAME:VARIABLE=VALUE ...]
                       [--place loopback|veth] [--rounds N] [--seconds S] [--socket-loop PROGRAM] [--cases PIECE]
       side_by_side.py report ROUNDS.jsonl ... [--ours NAME]
       side_by_side.py iperf3 [--place loopback|veth]

`run` appends one line per round, so that a comparison may be made in several quiet moments. In each round every
contestant runs every case once, one after the other, in an order that rotates from case to case and round to round. A
peer without a path (`--peer weft=`) is the plugin that `weft perf` loads by itself. --socket-loop takes the bare loop of
bench/socket_loop.cc along. --place veth needs root: the two ends of one veth pair in two network namespaces, ranks in
turns, so that every hop of a ring crosses it. `report` prints Markdown: the median of each contestant, and the ratio
"best peer's time / our time", paired within rounds, with a 95 % interval (bootstrap over rounds): above 1 we are faster.
"""
import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time

# name, ranks, sizes, options: sizes of one case share the number of runs, which is chosen for a second or less.
CASES = [
    ("latency", 2, "8B,64B,512B,4KiB,32KiB,256KiB", ["--ping-pong", "--iterations", "200", "--warmup", "20"]),
    ("stream", 2, "8B,64B,512B,4KiB", ["--messages", "200", "--iterations", "8", "--warmup", "2"]),
    ("stream", 2, "32KiB,256KiB,1MiB", ["--messages", "32", "--iterations", "6", "--warmup", "1"]),
    ("stream", 2, "4MiB,16MiB,64MiB", ["--messages", "2", "--iterations", "5", "--warmup", "1"]),
    ("allreduce", 4, "8B,512B,4KiB,32KiB,256KiB", ["--iterations", "30", "--warmup", "4"]),
    ("allreduce", 4, "1MiB,4MiB,16MiB,64MiB", ["--iterations", "4", "--warmup", "1"]),
]
INTERFACE = "weft0"  # of both ends of the veth pair
BASE_PORT = 29400


class Place:
    """Where ranks run: all on this host, or in turns in two namespaces."""

    def __init__(self, kind):
        self.kind = kind
        self.port = BASE_PORT + os.getpid() % 500 * 20
        self.names = [f"sbs{os.getpid()}a", f"sbs{os.getpid()}b"]

    def __enter__(self):
        if self.kind == "veth":
            for name in self.names:
                ip("netns", "add", name)
            a, b = self.names
            ip("-n", a, "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", b)
            for i, name in enumerate(self.names):
                ip("-n", name, "addr", "add", f"10.91.0.{i + 1}/24", "dev", INTERFACE)
                ip("-n", name, "link", "set", INTERFACE, "up")
                ip("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_):
        if self.kind == "veth":
            for name in self.names:
                subprocess.run(["ip", "netns", "del", name], check=False)

    def interface(self):
        return "lo" if self.kind == "loopback" else INTERFACE

    def inside(self, side):
        return [] if self.kind == "loopback" else ["ip", "netns", "exec", self.names[side]]

    def perf(self, weft, ranks, options, environment):
        """Rank 0's JSON, or raises with what went wrong."""
        command = [weft, "perf", "--output", "json", "--timeout", "20s", "--pin", *options]
        if self.kind == "loopback":
            run = subprocess.run([*command, "--ranks", str(ranks)], env=environment, capture_output=True, text=True,
                                 timeout=120)
            if run.returncode != 0:
                raise RuntimeError(run.stderr.strip())
            return json.loads(run.stdout)
        self.port = BASE_PORT + (self.port + 1 - BASE_PORT) % 10000
        with ended_together() as processes:
            for rank in range(ranks):
                place = ["--rank", str(rank), "--world", str(ranks), "--rendezvous", f"10.91.0.1:{self.port}"]
                processes.append(subprocess.Popen([*self.inside(rank % 2), *command, *place], env=environment, text=True,
                                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            answers = [process.communicate(timeout=120) for process in processes]
        failed = [err.strip() for process, (_, err) in zip(processes, answers) if process.returncode != 0]
        if failed:
            raise RuntimeError(failed[0])
        return json.loads(answers[0][0])


@contextlib.contextmanager
def ended_together():
    """A list of processes that are gone afterwards: ranks of a failed case would take the cores of those after it."""
    processes = []
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def environment_of(settings, place):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "WEFT_"))}
    environment["NCCL_SOCKET_IFNAME"] = place.interface()
    environment["WEFT_RUN_DIR"] = ""
    environment.update(settings)
    return {name: value.replace("%INTERFACE%", place.interface()) for name, value in environment.items()}


def one_round(number, options, contestants, place):
    """{case: {size: {contestant: [microseconds, CPU seconds per GB]}}} of this round."""
    measured = {}
    for index, (case, ranks, sizes, arguments) in enumerate(CASES):
        if options.cases and options.cases not in case:
            continue
        turn = (number + index) % len(contestants)
        for name, path, settings in contestants[turn:] + contestants[:turn]:
            collective = "allreduce" if case == "allreduce" else "sendrecv"
            command = ["--collective", collective, "--bytes", sizes, *arguments, *(["--plugin", path] if path else [])]
            try:
                answer = place.perf(options.weft, ranks, command, environment_of(settings, place))
            except (RuntimeError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
                print(f"round {number}: {case} {sizes}: {name}: {error}", file=sys.stderr)
                continue
            for row in answer["results"]:
                cell = measured.setdefault(case, {}).setdefault(str(row["bytes"]), {})
                cell[name] = [row["time_us_median"], row["cpu_s_per_gb"]]
    return measured


def bare_loop(program, place, measured):
    """Adds the times of the better of the two loops over one bare socket."""
    for case, mode in (("latency", "pingpong"), ("stream", "stream")):
        sizes = sorted(int(size) for size in measured.get(case, {}))
        if not sizes:
            continue
        places = [] if place.kind == "loopback" else ["--peer-netns", place.names[1], "--address", "10.91.0.1"]
        command = [*place.inside(0), program, *places, mode, "1", ",".join(map(str, sizes))]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if run.returncode != 0:
            print(f"{program}: {run.stderr.strip()}", file=sys.stderr)
            continue
        for line in run.stdout.splitlines():
            words = line.split()
            if words[1:3] in (["bare", "blocking"], ["bare", "polling"]):
                cell = measured[case][words[0]]
                found = [float(words[3]), float(words[6])]
                cell["bare socket"] = min(cell.get("bare socket", found), found)


def run_rounds(options):
    contestants = []
    for peer in options.peer:
        name, _, path = peer.partition("=")
        settings = dict(entry.split(":", 1)[1].split("=", 1) for entry in options.set if entry.startswith(name + ":"))
        contestants.append((name, path, settings))
    done = 0
    with contextlib.suppress(FileNotFoundError):
        done = sum(1 for _ in open(options.rounds_file, encoding="utf-8"))
    begin = time.monotonic()
    with Place(options.place) as place, open(options.rounds_file, "a", encoding="utf-8") as out:
        for number in range(done, done + options.rounds):
            if time.monotonic() - begin > options.seconds:
                break
            measured = one_round(number, options, contestants, place)
            if options.socket_loop:
                bare_loop(options.socket_loop, place, measured)
            out.write(json.dumps({"place": options.place, "cases": measured}) + "\n")
            out.flush()


def bytes_text(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def interval(values):
    """2.5 % and 97.5 % of the median when rounds are drawn anew, 2000 times."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[49], medians[1949]


def ratio_text(rounds, peer, ours, what):
    paired = [cell[peer][what] / cell[ours][what] for cell in rounds if peer in cell and ours in cell]
    if not paired:
        return "", 0
    low, high = interval(paired)
    text = f"{statistics.median(paired):.2f} ({low:.2f} to {high:.2f})"
    return (f"**{text}**" if high < 1 else text), len(paired)


def report_case(case, cells, ours):
    """One table. `cells`: size -> list over rounds of {contestant: [us, CPU]}."""
    names = sorted({name for rounds in cells.values() for cell in rounds for name in cell})
    names.sort(key=lambda name: (name != ours, name == "bare socket", name))
    peers = [name for name in names if name not in (ours, "bare socket")]
    bare = "bare socket" in names
    head = ["bytes", *(f"{name}, us" for name in names), "best peer / ours", *(["bare / ours"] if bare else []),
            *(f"{name}, CPU s/GB" for name in names), "rounds"]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for size in sorted(cells):
        rounds = cells[size]
        median = lambda name, what: statistics.median(cell[name][what] for cell in rounds if name in cell)
        present = [name for name in names if any(name in cell for cell in rounds)]
        best = min((name for name in peers if name in present), key=lambda name: median(name, 0), default=None)
        ratio, pairs = ratio_text(rounds, best, ours, 0) if best else ("", 0)
        row = [bytes_text(size)]
        row += [f"{median(name, 0):.1f}" if name in present else "" for name in names]
        row += [f"{best}: {ratio}" if best else ""]
        row += [ratio_text(rounds, "bare socket", ours, 0)[0]] if bare else []
        row += [f"{median(name, 1):.3f}" if name in present and size >= 4096 else "" for name in names]
        print(f"| {' | '.join([*row, str(pairs)])} |")
    print()


def report(options):
    by_place = {}
    for name in options.files:
        for line in open(name, encoding="utf-8"):
            entry = json.loads(line)
            for case, sizes in entry["cases"].items():
                for size, cell in sizes.items():
                    cells = by_place.setdefault((entry["place"], case), {})
                    cells.setdefault(int(size), []).append(cell)
    for (place, case), cells in sorted(by_place.items()):
        print(f"{case}, {place}:\n")
        report_case(case, cells, options.ours)


def iperf3(options):
    """What TCP gives with one to four streams: for orientation, since it never looks at the data."""
    with Place(options.place) as place:
        address = "127.0.0.1" if options.place == "loopback" else "10.91.0.1"
        for streams in (1, 2, 4):
            with ended_together() as servers:
                servers.append(subprocess.Popen([*place.inside(0), "iperf3", "-s", "-1", "-p", str(place.port)],
                                                stdout=subprocess.DEVNULL))
                time.sleep(0.3)
                client = subprocess.run([*place.inside(1), "iperf3", "-c", address, "-p", str(place.port), "-t", "3",
                                         "-P", str(streams), "--json"], capture_output=True, text=True, check=True)
                servers[0].wait()
            rate = json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"]
            print(f"{options.place}: {streams} streams: {rate / 8e9:.2f} GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("weft")
    run.add_argument("rounds_file")
    run.add_argument("--peer", action="append", required=True, help="NAME=PLUGIN.so, or NAME= for our own")
    run.add_argument("--set", action="append", default=[], help="NAME:VARIABLE=VALUE; %%INTERFACE%% is the interface")
    run.add_argument("--place", choices=["loopback", "veth"], default="loopback")
    run.add_argument("--rounds", type=int, default=10)
    run.add_argument("--seconds", type=float, default=3600, help="begin no round later than this")
    run.add_argument("--cases", default="", help="only cases whose name has this piece")
    run.add_argument("--socket-loop", default="")
    run.set_defaults(function=run_rounds)
    shown = commands.add_parser("report")
    shown.add_argument("files", nargs="+")
    shown.add_argument("--ours", default="weft")
    shown.set_defaults(function=report)
    orientation = commands.add_parser("iperf3")
    orientation.add_argument("--place", choices=["loopback", "veth"], default="loopback")
    orientation.set_defaults(function=iperf3)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
