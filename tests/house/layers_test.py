#!/usr/bin/env python3
"""The rules of includes and namespaces hold in the tree, and the checker fails on a breach of each kind."""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
CHECKER = SOURCE / "tools" / "check_layers.py"

FORBIDDEN = {
    "planner/network/bad.h": '#include "planner/flows/path_choice.h"\n',
    "planner/flows/bad.cc": '#include "agent/loop.h"\n',
    "netplugin/bad.cc": '#include "common/result.h"\n',
    "common/bad.cc": '#include "proto/job.pb.h"\n',
    "agent/bad.cc": "#include <grpcpp/grpcpp.h>\n",
    "cli/bad.cc": "#include <CLI/CLI.hpp>\n",
    "controller/bad.h": "#include <httplib.h>\n",
    "planner/search/bad.cc": "#include <torch/torch.h>\n",
    "planner/tasks/bad.cc": "namespace weft::planner {\n}\n",
    "planner/tasks/bad.h": "namespace weft::planner::inline flows {\n}\n",
    "planner/fabric/bad.h": "int free_of_all();\n",
}


def run(root):
    return subprocess.run([sys.executable, CHECKER, root], capture_output=True, text=True)


def main():
    failures = []
    tree = run(SOURCE)
    print(tree.stdout, end="")
    if tree.returncode != 0:
        failures.append("the tree breaks the include rules")
    for name, text in FORBIDDEN.items():
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for top in ("common", "planner/flows", "agent", "proto", "netplugin"):
                (root / top).mkdir(parents=True, exist_ok=True)
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            result = run(root)
            if result.returncode != 1 or name not in result.stdout:
                failures.append(f"the checker accepts {name}: {text.strip()}")
    for failure in failures:
        print("FAIL:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
