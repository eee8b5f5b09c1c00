#!/usr/bin/env python3
"""What the profiler face costs a collective under NCCL, in instructions of NCCL's own threads.

Rank 0 of two runs under callgrind, with few collectives and with many; the difference, by source line, is what one costs. The
background thread's share, which is no thread of NCCL's, is told apart.

usage: profiler_cost_test.py VERSION=LIBRARY=KERNELS ...
"""
import os
import pathlib
import sys

from nccl_run import PLUGIN, TEMPORARY, check, releases
from processes import run_test

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "netplugin", "testing"))
from overhead_test import self_costs  # noqa: E402

FEW, MANY = 50, 250
FILES = ("netplugin/interfaces/profiler.cc", "netplugin/interfaces/profiler_face.cc", "netplugin/interfaces/profiler_shims.h", "netplugin/interfaces/profiler_unnamed.h",
         "netplugin/interfaces/event_pool.cc", "netplugin/interfaces/event_pool.h", "netplugin/telemetry/observer.cc", "netplugin/telemetry/observer.h")
PROFILER = ("Profil", "EventPool", "StartProfilerEvent", "StopProfilerEvent", "RecordProfilerState")
MOST = 20_000  # a bound against loops, not a promise


def costs(nccl, collectives, level):
    profile = pathlib.Path(TEMPORARY, f"callgrind.{level}.{collectives}")

    def prefix(rank):
        if rank != 0:
            return []
        return ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", "--compress-pos=no", "-q"]

    with nccl.start(2, ["--step", "world.allreduce=8KiB", "--iterations", str(collectives), "--timeout", "300s"],
                    {"WEFT_PROFILE": level}, prefix=prefix) as job:
        job.wait(600).check_ok(nccl)
    return self_costs(profile, PLUGIN.name)


def per_collective(nccl, level):
    few, many = costs(nccl, FEW, level), costs(nccl, MANY, level)
    calls, background = 0, 0
    for key in many.keys() | few.keys():
        function, file, _ = key
        if not file.endswith(FILES) and not any(word in function for word in PROFILER):
            continue
        each = (many[key] - few[key]) / (MANY - FEW)
        if "Sweep" in function or "Finish" in function:
            background += each
        else:
            calls += each
    return calls, background


def main():
    for nccl in releases()[-1:]:
        for level in ("off", "collectives", "steps"):
            calls, background = per_collective(nccl, level)
            print(f"{nccl}, {level}: {calls:.0f} instructions per collective in NCCL's threads, {background:.0f} in ours", flush=True)
            check(calls < MOST, f"{nccl}: {calls:.0f} instructions per collective")
            check(level == "off" or calls > 50, f"{nccl}: the profiler's lines were not found: has the library line tables?")
    return 0


if __name__ == "__main__":
    run_test(main)
