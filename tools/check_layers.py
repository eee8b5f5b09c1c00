#!/usr/bin/env python3
"""Reads every #include of the tree and fails on an arrow that docs/architecture.md does not allow.

usage: check_layers.py [ROOT]

Four rules:
  1. a folder includes only the folders that ALLOWED names for it;
  2. a header that costs seconds to compile is included only where HEAVY says;
  3. a header that others include holds none of the heavy ones;
  4. what lies in a folder of planner/ that NAMESPACES names is in that folder's namespace.
"""
import pathlib
import re
import sys

# folder -> folders that it may include besides itself. The longest matching prefix counts on both sides.
ALLOWED = {
    "common": [],
    "planner/workload": ["common"],
    "planner/fabric": ["common", "planner/workload"],
    "planner/network": ["common", "planner/fabric"],
    "planner/flows": ["common", "planner/network", "planner/fabric"],
    "planner/collectives": ["common", "planner/flows", "planner/network", "planner/fabric"],
    "planner/tasks": ["common", "planner/workload", "planner/fabric", "planner/collectives", "planner/flows", "planner/network"],
    "planner/parallelism": ["common", "planner/workload", "planner/fabric", "planner/tasks", "planner/collectives",
                            "planner/network"],
    "planner/jobs": ["common", "planner/workload", "planner/fabric", "planner/collectives", "planner/flows", "planner/network"],
    "planner/jobs/simulate": ["common", "planner/workload", "planner/fabric", "planner/collectives", "planner/flows",
                              "planner/network", "planner/jobs", "planner/baselines"],
    "planner/baselines": ["common", "planner/fabric", "planner/flows", "planner/network", "planner/jobs"],
    "planner/plan": ["common", "planner"],
    "planner/search": ["common", "planner"],
    "planner": ["common", "planner"],
    "formats": ["common", "planner"],
    "proto": ["common", "planner/planner.h", "formats"],
    "access": ["common", "proto"],
    "controller": ["common", "proto", "formats", "access", "planner/planner.h", "planner/plan/price_given.h", "planner/plan/change_price.h", "planner/plan/model_profile.h",
                   "planner/collectives", "netplugin/abi"],
    "agent": ["common", "proto", "access", "netplugin/abi"],
    "agent/ask": ["common", "netplugin/abi"],
    "netplugin/abi": [],
    "netplugin": ["netplugin/abi"],
    "collectives": ["common", "planner/collectives", "netplugin/abi"],
    "runtime": ["common", "collectives", "formats", "planner/planner.h", "planner/workload", "planner/tasks/program_state.h",
                "planner/tasks/program_schedule.h", "planner/tasks/program_timeline.h", "planner/tasks/program_memory.h",
                "planner/parallelism/program/program_times.h",
                "planner/tasks/state_change.h", "planner/parallelism/attention_time.h", "planner/parallelism/calibrated_hardware.h",
                "agent/ask"],
    "scheduler": ["common", "proto", "netplugin/abi", "agent/ask"],
    "testbed": ["common", "controller/config_readers.h"],
    "cli": ["common", "proto", "formats", "planner/planner.h", "planner/jobs/simulate/scenario.h", "planner/plan/model_ways.h",
            "planner/fabric/path_catalog.h", "planner/collectives", "planner/tasks/program_schedule.h", "planner/tasks/program_tasks.h",
            "collectives", "runtime/model_scaling.h", "testbed"],
    "tests": None,  # anything
    "bench": None,
}

# include prefix -> the only places that may have it, as path prefixes or exact files.
HEAVY = {
    "grpcpp/": ["proto/credentials.cc", "controller/agent_session.cc", "controller/grpc_answers.cc", "controller/service.cc",
                "controller/service.h", "controller/main.cc",
                "agent/controller_client.cc", "cli/controller_client.cc", "scheduler/slurm/"],
    "torch/": ["runtime/"],
    "ATen/": ["runtime/"],
    "yaml-cpp/": ["formats/", "controller/config", "agent/config.cc"],
    "Eigen/": ["planner/parallelism/learned_constants.cc"],
    "coin/": ["planner/jobs/linear_program.cc"],
    "tinyxml2.h": ["formats/nccl_topology_xml.cc"],
    "CLI/": ["main.cc", "_main.cc"],
    "httplib.h": ["access/http_server.cc", "cli/demo/cluster.cc"],
    "openssl/": ["proto/openssl_owners.cc", "proto/tls_texts.cc", "proto/identity.cc", "proto/pki.cc",
                 "access/tls_server.cc", "access/tokens.cc", "access/wire.cc"],
    "prometheus/": ["controller/metrics", "agent/metrics", "controller/http", "agent/exporter"],
}
HEAVY_IN_HEADERS_ALLOWED = {"runtime/"}

# Folders of planner/ with a namespace of their own, inline in weft::planner; what is left is the front door and what makes its answers.
NAMESPACES = ["workload", "fabric", "network", "flows", "collectives", "tasks", "parallelism", "search", "jobs", "baselines"]

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)


def folder_of(path, keys):
    """The longest key that is a folder (or file) prefix of path."""
    best = None
    for key in keys:
        if path == key or path.startswith(key + "/"):
            if best is None or len(key) > len(best):
                best = key
    return best


def is_test(path):
    return path.name.endswith(("_test.cc", "_test.h", "_benchmark.cc")) or "testing" in path.parts


def check_namespace(root, path):
    """Names of two layers that are alike are two things, or the compiler says that they clash; never one by chance."""
    parts = path.relative_to(root).parts
    if parts[0] != "planner" or len(parts) < 3 or parts[1] not in NAMESPACES:
        return []
    own = f"namespace weft::planner::inline {parts[1]} {{"
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith("namespace weft::planner")]
    others = [line for line in lines if line != own and not re.match(r"namespace weft::planner::(testing|frameworks|bench) \{", line)]
    if not lines and path.suffix in (".h", ".cc"):
        others = ["no namespace"]
    return [f"{'/'.join(parts)}: {line}, expected \"{own}\"" for line in others]


def check_file(root, path):
    relative = path.relative_to(root)
    name = relative.as_posix()
    source = folder_of(name, ALLOWED)
    problems = []
    for quote, target in INCLUDE.findall(path.read_text(errors="replace")):
        for heavy, places in HEAVY.items():
            if not target.startswith(heavy) or is_test(relative) or source in ("tests", "bench"):
                continue
            if not any(name.startswith(p) or (p.endswith("main.cc") and name.endswith(p)) for p in places):
                problems.append(f"{name}: includes <{target}>, allowed only in {', '.join(places)}")
            elif name.endswith(".h") and not any(name.startswith(p) for p in HEAVY_IN_HEADERS_ALLOWED):
                if not (name == "controller/service.h"):
                    problems.append(f"{name}: a header includes <{target}>; hide it in a source file")
        if quote != '"' or "/" not in target:
            continue
        top = target.split("/")[0]
        if not (root / top).is_dir() or ALLOWED.get(source, None) is None or is_test(relative):
            continue
        own = target == source or target.startswith(source + "/")
        # A folder's own prefix does not include sub-folders that have a row of their own.
        own = own and folder_of(target, ALLOWED) == source
        if own or any(target == a or target.startswith(a + "/") for a in ALLOWED[source]):
            continue
        problems.append(f"{name}: {source} must not include \"{target}\"")
    return problems


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    problems, files, heavy_files = [], 0, {}
    for top in sorted({key.split("/")[0] for key in ALLOWED}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cc", ".c"):
                continue
            files += 1
            problems += check_file(root, path) + check_namespace(root, path)
            for _, target in INCLUDE.findall(path.read_text(errors="replace")):
                for heavy in HEAVY:
                    if target.startswith(heavy):
                        heavy_files.setdefault(heavy, set()).add(path)
    for problem in problems:
        print(problem)
    counts = ", ".join(f"{heavy} {len(paths)}" for heavy, paths in sorted(heavy_files.items()))
    print(f"{files} files, {len(problems)} forbidden includes or namespaces; sources that see: {counts}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
