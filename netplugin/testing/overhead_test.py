#!/usr/bin/env python3
"""Counts what policy and telemetry cost a message, in instructions, and fails above the promise of 100.

Two runs under callgrind, with few and with many messages: the difference is what a message costs, without set-up. The
library's line tables say which source line an instruction is of, inlined ones too. Counted are, separately for the
sending and the receiving side: all of the files that are policy or telemetry and nothing else, the reading of the clock,
every atomic access, and in the files that move the data each line that names one of their parts (CALLS). The clock's own
instructions, in the vDSO, are not the plugin's and are not in it.

usage: overhead_test.py PROGRAM LIBRARY SOURCE_DIRECTORY
"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROMISE = 100
FEW, MANY, BYTES = 200, 1200, 4096
OURS = ("netplugin/telemetry/telemetry.h", "netplugin/telemetry/telemetry.cc", "netplugin/policy/policy.h", "netplugin/policy/policy.cc",
        "netplugin/tcp/send_policy.cc", "netplugin/abi/seqlock.h", "netplugin/abi/segment.h", "netplugin/comm.h",
        "netplugin/policy/gate.h", "netplugin/policy/gate.cc", "netplugin/telemetry/arrival_meter.h", "netplugin/telemetry/arrival_meter.cc", "netplugin/tcp/socket.h",
        "bits/atomic_base.h", "include/c++/12/atomic")
MOVERS = ("netplugin/tcp/send_comm.cc", "netplugin/tcp/recv_comm.cc", "netplugin/net.cc")
CALLS = re.compile(r"recorder_|telemetry|policies|mapping|epoch|attention|Policy|gate_|NowNs|[mM]eter|awaited|posted_ns|in_flight|"
                   r"GivenUp|const uint64_t size = slot")


def calling_lines(path):
    return {i + 1 for i, line in enumerate(path.read_text().splitlines()) if CALLS.search(line)}


def self_costs(profile, library):
    """{(function, file, line): instructions} of the library's code, calls not included."""
    names, costs = {}, collections.Counter()
    state = {"ob": "", "fl": "", "fn": ""}
    line, skip = 0, False

    def resolve(kind, text):
        match = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if not match:
            return text
        kind = "fl" if kind in ("fi", "fe", "cfi", "cfl") else {"cob": "ob", "cfn": "fn"}.get(kind, kind)
        if match.group(2) is not None:
            names[kind, match.group(1)] = match.group(2)
        return names[kind, match.group(1)]

    for text in profile.read_text().splitlines():
        field = re.match(r"(ob|fl|fi|fe|fn|cob|cfi|cfl|cfn)=(.*)$", text)
        if field:
            kind, value = field.group(1), resolve(field.group(1), field.group(2))
            if kind == "ob" or kind == "fn":
                state[kind] = value
            elif kind in ("fl", "fi", "fe"):
                state["fl"] = value
        elif text.startswith("calls="):
            skip = True
        elif re.match(r"[+\-*\d]", text):
            at, *cost = text.split()
            line = line if at == "*" else line + int(at) if at[0] in "+-" else int(at)
            if not skip and cost and state["ob"].endswith(library):
                costs[state["fn"], state["fl"], line] += int(cost[0])
            skip = False
    return costs


def run(program, library, messages, folder):
    output = folder / f"callgrind.{messages}"
    environment = dict(os.environ, NCCL_SOCKET_IFNAME="lo", WEFT_RUN_DIR="", WEFT_TRANSPORT="tcp")
    subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--compress-pos=no", "-q",
                    program, library, str(messages), str(BYTES)], check=True, env=environment, timeout=300)
    return self_costs(output, os.path.basename(library))


def main():
    program, library, source = sys.argv[1], os.path.realpath(sys.argv[2]), pathlib.Path(sys.argv[3])
    if not shutil.which("valgrind"):
        print("skipped: valgrind is not installed")
        return 77
    calls = {file: calling_lines(source / file) for file in MOVERS}
    with tempfile.TemporaryDirectory(prefix="weft-overhead-") as folder:
        few, many = (run(program, library, n, pathlib.Path(folder)) for n in (FEW, MANY))
    sides = {"send": collections.Counter(), "receive": collections.Counter()}
    everything = collections.Counter()
    for key in many.keys() | few.keys():
        function, file, line = key
        each = (many[key] - few[key]) / (MANY - FEW)
        # Calls that both sides share (test) name neither class: half for each.
        if "SendComm" in function or "SendBytes" in function:
            shares = {"send": each}
        elif "RecvComm" in function or "ReceiveBytes" in function:
            shares = {"receive": each}
        elif "Background" in function or "Sweep" in function:
            continue  # the background thread's, not a message's
        else:
            shares = {"send": each / 2, "receive": each / 2}
        ours = file.endswith(OURS) or any(file.endswith(f) and line in lines for f, lines in calls.items())
        for side, cost in shares.items():
            everything[side] += cost
            if ours:
                sides[side]["/".join(file.split("/")[-2:])] += cost
    failed = False
    for side, files in sides.items():
        total = sum(files.values())
        print(f"{side}: {total:.1f} instructions per message for policy and telemetry, promise {PROMISE}; "
              f"{everything[side]:.0f} in the library for all of it")
        for file, cost in files.most_common():
            print(f"  {cost:7.1f}  {file}")
        if not any("telemetry.h" in file for file in files) or total < 10:
            print(f"{side}: the counters were not found: has the library line tables?")
            failed = True
        failed = failed or total > PROMISE
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
