#!/usr/bin/env python3
"""NCCL over our net plugin beside its own Socket transport and other plugins, in turns: medians and paired ratios.

usage: side_by_side.py run BUILD ROUNDS.jsonl --nccl VERSION=LIBRARY=KERNELS --peer NAME=PLUGIN.so ...
                       [--set NAME:VARIABLE=VALUE ...] [--place loopback|veth] [--rounds N] [--seconds S] [--ranks N ...]
       side_by_side.py report ROUNDS.jsonl ... [--ours NAME] [--least NAME]
       side_by_side.py iperf3 [--place loopback|veth]

BUILD is a build folder with bin/ and lib/. KERNELS is the library of NCCL's kernels on CPUs (docs/nccl.md); empty with GPUs, whose
CUDA runtime is then looked for in LD_LIBRARY_PATH.
`run` appends one line per round, so that a comparison may be made in several quiet moments. In each round every contestant
runs once with each number of ranks as a job of weft-nccl-job, one after the other, in an order that rotates from round to
round. `weft` and `socket` (NCCL's own transport) are always there; --peer adds others, which NCCL finds by --set
NAME:NCCL_NET=.... --place veth needs root: the two ends of one veth pair in two network namespaces, ranks in turns, so that
every hop of a ring crosses it. `report` prints Markdown: the median of each contestant, and the ratio "best peer's time / our
time", paired within rounds, with a 95 % interval (bootstrap over rounds): above 1 we are faster.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "support"))
from processes import Failure, wait_until  # noqa: E402

CALLS = ("allreduce", "allgather", "sendrecv")
RANKS = (2, 4)
# Bytes, and calls in a row: enough that starting and waiting for them is little of their time.
SIZES = (("8B", 60), ("512B", 60), ("4KiB", 60), ("32KiB", 30), ("256KiB", 8), ("1MiB", 4), ("4MiB", 2), ("16MiB", 1), ("64MiB", 1))
ITERATIONS = 3  # the first warms up
INTERFACE = "weft0"  # of both ends of the veth pair
BASE_PORT = 20000  # and 10,000 more: below those that the kernel chooses
TIMEOUT_S = 300


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
            # The kernel says that a cable is there up to a second later, and NCCL takes no interface without one.
            wait_until(lambda: all("state UP" in ip("-n", name, "link", "show", INTERFACE) for name in self.names), 5, "the veth pair")
        return self

    def __exit__(self, *_):
        if self.kind == "veth":
            for name in self.names:
                subprocess.run(["ip", "netns", "del", name], check=False)

    def interface(self):
        return "lo" if self.kind == "loopback" else INTERFACE

    def inside(self, rank):
        return [] if self.kind == "loopback" else ["ip", "netns", "exec", self.names[rank % 2]]

    def rendezvous(self):
        self.port = BASE_PORT + (self.port + 1 - BASE_PORT) % 10000
        return f"{'127.0.0.1' if self.kind == 'loopback' else '10.91.0.1'}:{self.port}"


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def settings_of(name, options, place):
    """What NCCL is told beside what every job is told."""
    settings = {"NCCL_SOCKET_IFNAME": "=" + place.interface(), "WEFT_RUN_DIR": "/nonexistent", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    path = dict(peer.partition("=")[::2] for peer in options.peer).get(name)
    if path:
        settings["NCCL_NET_PLUGIN"] = path
    for entry in options.set:
        of, _, assignment = entry.partition(":")
        variable, _, value = assignment.partition("=")
        if of == name:
            settings[variable] = value.replace("%INTERFACE%", place.interface())
    return settings


def time_calls(nccl, name, ranks, options, place):
    """{call: {bytes: microseconds of one call}}, medians over iterations, from one job: starting NCCL takes longer than they do."""
    steps = [(call, size, calls) for call in CALLS for size, calls in SIZES]
    words = [word for call, size, calls in steps for word in ("--step", f"world.{call}={size}x{calls}")]
    settings = settings_of(name, options, place)
    with nccl.start(ranks, [*words, "--no-check", "--iterations", ITERATIONS], settings, "weft" if name == "weft" else "socket",
                    prefix=place.inside, rendezvous=place.rendezvous()) as job:
        done = job.wait(TIMEOUT_S).check_ok(f"{name}, {ranks} ranks")
    wanted = {"weft": "Weft", "socket": "Socket"}.get(name) or settings["NCCL_NET"]
    if f"Using network {wanted}" not in done.log(0):
        raise RuntimeError(f"NCCL did not use {wanted}")
    times = [line["calls_s"] for line in done.lines() if "calls_s" in line][1:]
    found = {call: {} for call in CALLS}
    for (call, size, _), column in zip(steps, zip(*times)):
        found[call][str(bytes_of(size))] = statistics.median(column) * 1e6
    return found


def check_peers(options):
    """Without its NCCL_NET a peer would be NCCL's own transport under another name."""
    for peer in options.peer:
        name, _, path = peer.partition("=")
        if not path or not any(entry.startswith(f"{name}:NCCL_NET=") for entry in options.set):
            sys.exit(f"--peer {peer}: expected NAME=PLUGIN.so, and --set {name}:NCCL_NET=... as its log names it")


def one_round(nccl, number, options, place):
    """{case: {size: {contestant: microseconds}}} of this round."""
    contestants = ["weft", "socket", *(peer.partition("=")[0] for peer in options.peer)]
    measured = {}
    for index, ranks in enumerate(options.ranks):
        turn = (number + index) % len(contestants)
        for name in contestants[turn:] + contestants[:turn]:
            try:
                found = time_calls(nccl, name, ranks, options, place)
            except (RuntimeError, Failure) as error:  # one contestant's failure ends nothing else
                print(f"round {number}: {ranks} ranks: {name}: {error}", file=sys.stderr)
                continue
            for call, times in found.items():
                for size, microseconds in times.items():
                    measured.setdefault(f"{call}, {ranks} ranks", {}).setdefault(size, {})[name] = microseconds
    return measured


def run_rounds(options):
    check_peers(options)
    source = pathlib.Path(__file__).resolve().parent.parent
    build = pathlib.Path(options.build).resolve()
    os.environ.update(WEFT_SOURCE=str(source), WEFT_BIN=str(build / "bin"), WEFT_LIB=str(build / "lib"))
    sys.path.insert(0, str(source / "tests" / "nccl"))
    import nccl_run
    nccl = nccl_run.Nccl(*options.nccl.split("="))
    done = 0
    with contextlib.suppress(FileNotFoundError):
        done = sum(1 for _ in open(options.rounds_file, encoding="utf-8"))
    begin = time.monotonic()
    with Place(options.place) as place, open(options.rounds_file, "a", encoding="utf-8") as out:
        for number in range(done, done + options.rounds):
            if time.monotonic() - begin > options.seconds:
                break
            measured = one_round(nccl, number, options, place)
            out.write(json.dumps({"place": options.place, "nccl": nccl.version, "cases": measured}) + "\n")
            out.flush()
            print(f"round {number}: {time.monotonic() - begin:.0f} s", file=sys.stderr)


def bytes_of(text):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)):
        if text.endswith(unit):
            return int(text[:-len(unit)]) * factor
    raise ValueError(text)


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


def ratio_text(rounds, peer, ours):
    paired = [cell[peer] / cell[ours] for cell in rounds if peer in cell and ours in cell]
    if len(paired) < 6:  # below six values no interval holds 95 %
        return f"{statistics.median(paired):.2f}" if paired else "", len(paired)
    low, high = interval(paired)
    text = f"{statistics.median(paired):.2f} ({low:.2f} to {high:.2f})"
    return (f"**{text}**" if high < 1 else text), len(paired)


def report_case(cells, ours, named):
    """One table. `cells`: size -> list over rounds of {contestant: us}."""
    names = sorted({name for rounds in cells.values() for cell in rounds for name in cell}, key=lambda name: (name != ours, name))
    peers = [name for name in names if name != ours]
    head = ["bytes", *(f"{name}, us" for name in names), "best peer / ours", *([f"{named} / ours"] if named else []), "rounds"]
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for size in sorted(cells):
        rounds = cells[size]
        medians = {name: statistics.median(cell[name] for cell in rounds if name in cell)
                   for name in names if any(name in cell for cell in rounds)}
        best = min((name for name in peers if name in medians), key=medians.get, default=None)
        ratio, pairs = ratio_text(rounds, best, ours) if best else ("", 0)
        row = [bytes_text(size), *(f"{medians[name]:.1f}" if name in medians else "" for name in names), f"{best}: {ratio}" if best else ""]
        row += [ratio_text(rounds, named, ours)[0]] if named else []
        print(f"| {' | '.join([*row, str(pairs)])} |")
    print()


def report(options):
    by_place = {}
    for name in options.files:
        for line in open(name, encoding="utf-8"):
            entry = json.loads(line)
            for case, sizes in entry["cases"].items():
                for size, cell in sizes.items():
                    by_place.setdefault((entry["nccl"], entry["place"], case), {}).setdefault(int(size), []).append(cell)
    for (nccl, place, case), cells in sorted(by_place.items()):
        print(f"{case}, {place}, NCCL {nccl}:\n")
        report_case(cells, options.ours, options.least)
    # Small messages in the mean: geometric, over all cases.
    small = [statistics.median(cell[options.least] / cell[options.ours] for cell in rounds if options.least in cell and options.ours in cell)
             for cells in by_place.values() for size, rounds in cells.items()
             if size <= 4096 and any(options.least in cell and options.ours in cell for cell in rounds)] if options.least else []
    if small:
        print(f"{options.least} / {options.ours} up to 4 KiB, geometric mean of {len(small)} medians: {statistics.geometric_mean(small):.2f}")


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
    run.add_argument("build", help="folder with bin/ and lib/")
    run.add_argument("rounds_file")
    run.add_argument("--nccl", required=True, help="VERSION=LIBRARY=KERNELS")
    run.add_argument("--peer", action="append", default=[], help="NAME=PLUGIN.so")
    run.add_argument("--set", action="append", default=[], help="NAME:VARIABLE=VALUE; %%INTERFACE%% is the interface")
    run.add_argument("--place", choices=["loopback", "veth"], default="loopback")
    run.add_argument("--rounds", type=int, default=10)
    run.add_argument("--seconds", type=float, default=3600, help="begin no round later than this")
    run.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="of one job each (default: 2 4)")
    run.set_defaults(function=run_rounds)
    shown = commands.add_parser("report")
    shown.add_argument("files", nargs="+")
    shown.add_argument("--ours", default="weft")
    shown.add_argument("--least", default="socket", help="the ratio to this peer has a column too, whether it is the best or not")
    shown.set_defaults(function=report)
    orientation = commands.add_parser("iperf3")
    orientation.add_argument("--place", choices=["loopback", "veth"], default="loopback")
    orientation.set_defaults(function=iperf3)
    options = parser.parse_args()
    options.function(options)


if __name__ == "__main__":
    main()
