#!/usr/bin/env python3
"""Every release of NCCL loads each face of the plugin at the newest version that it knows; its own log is the evidence.

usage: faces_test.py VERSION=LIBRARY=KERNELS ...
"""
import re

from nccl_run import FACES, check, releases
from processes import run_test


def loaded(log):
    """Versions by face, as far as the log tells them. Releases before 2.28 name the tuner without its version."""
    found = {}
    for face, pattern in (("net", r"Loaded net plugin Weft \(v(\d+)\)"),
                          ("tuner", r"TUNER/Plugin: Using Weft \(v(\d+)\)"), ("env", r"ENV/Plugin: Using Weft \(v(\d+)\)"),
                          ("profiler", r"PROFILER/Plugin: Loaded Weft \(v(\d+)\)"),
                          ("profiler", r"PROFILER/Plugin: loaded ncclProfiler_v(\d+)")):
        for match in re.finditer(pattern, log):
            found[face] = int(match[1])
    found["tuner named"] = bool(re.search(r"TUNER/Plugin: Using.*Weft", log))
    found["profiler named"] = bool(re.search(r"PROFILER/Plugin: [Ll]oaded Weft|external profiler plugin", log))
    found["env named"] = bool(re.search(r"external env plugin|ENV/Plugin: .*Weft", log))
    return found


def main():
    for nccl in releases():
        expected = FACES[nccl.release]
        done = nccl.run(2, ["--step", "world.allreduce=64KiB", "--iterations", "3"],
                        {"WEFT_PROFILE": "collectives"}).check_ok(nccl)
        log = done.log(0)
        found = loaded(log)
        print(f"{nccl}: {found}")
        check("Using network Weft" in log, f"{nccl} does not use the plugin: {log[-800:]}")
        if expected["net"] > 8:  # 2.23 and before say it of version 7 and below only
            check(found.get("net") == expected["net"], f"{nccl}: net {found.get('net')}, expected v{expected['net']}")
        for face in ("profiler", "tuner", "env"):
            if face in found or nccl.release >= (2, 28):  # those before name some without a version
                check(found.get(face) == expected[face], f"{nccl}: {face} v{found.get(face)}, expected v{expected[face]}")
        check(found["profiler named"] or "profiler" in found or nccl.release < (2, 24), f"{nccl}: no profiler in its log")
        check(found["tuner named"], f"{nccl}: no tuner in its log")
        check(found["env named"] or expected["env"] is None, f"{nccl}: no environment plugin in its log")
    return 0


if __name__ == "__main__":
    run_test(main)
