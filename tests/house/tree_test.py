#!/usr/bin/env python3
"""The repository's own rules that no compiler looks at hold, and a fault of each kind is found: links in its pages, length
of its files, blanks at line ends, the package list, types that a namespace has twice, shell scripts. Without shellcheck it is skipped when all else holds.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
from processes import skip  # noqa: E402

SHELLCHECK = shutil.which("shellcheck")
CODE = {".cc", ".h", ".py", ".sh", ".cmake"}
TEXT = CODE | {".md", ".txt", ".yaml", ".yml", ".proto", ".jsonnet", ".libsonnet"}
MOST_LINES = 400
REASON = "Long because"  # in the first lines of a file that may be longer
NAMESPACE_OR_TYPE = re.compile(r"^(?:namespace (?P<namespace>[\w:]+)|(?:struct|class|enum|enum class) (?P<type>\w+)(?: final)?(?: : [^;{]*)?) \{", re.M)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders
                      if name not in ("build", "__pycache__") and (name == ".ci" or not name.startswith("."))]
        for name in names:
            yield pathlib.Path(folder, name)


def text_faults(path, name, text):
    lines = text.splitlines()
    if path.suffix in CODE and len(lines) > MOST_LINES and REASON not in "\n".join(lines[:20]):
        yield f"{name}: {len(lines)} lines, expected at most {MOST_LINES} or a line \"{REASON} ...\" at its top"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield f"{name}:{number}: blanks at the end of the line"
        if "\t" in line:
            yield f"{name}:{number}: a tab"
    if text and not text.endswith("\n"):
        yield f"{name}: no newline at its end"
    if path.suffix == ".md":
        for target in LINK.findall(text):
            if "://" not in target and not (path.parent / target).exists():
                yield f"{name}: links to {target}, which is not there"


def package_faults(text):
    for group in text.split("\n\n"):
        packages = [line for line in group.splitlines() if not line.startswith("#")]
        if packages != sorted(packages):
            yield f"deploy/packages.txt: not in order: {' '.join(packages)}"


def script_faults(scripts):
    if not SHELLCHECK:
        return
    done = subprocess.run([SHELLCHECK, "--external-sources", "--format=gcc", *scripts], capture_output=True, text=True,
                          check=False)
    yield from done.stdout.splitlines() + done.stderr.splitlines()


def types_of(text):
    """(namespace, type) of what a header defines at the left margin."""
    namespace = ""
    for match in NAMESPACE_OR_TYPE.finditer(text):
        if match["namespace"]:
            namespace = match["namespace"]
        else:
            yield namespace, match["type"]


def tree_faults(root):
    scripts, defined = [], {}
    for path in files(root):
        if path.suffix not in TEXT and path.suffix != "":
            continue
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        if re.match(r"#!.*\b(ba|da)?sh\b", text):
            scripts.append(path)
        if path.suffix in TEXT:
            yield from text_faults(path, path.relative_to(root), text)
        for key in types_of(text) if path.suffix == ".h" else ():
            first = defined.setdefault(key, path.relative_to(root))
            if first != path.relative_to(root):
                yield f"{path.relative_to(root)}: {key[0]}::{key[1]} is defined in {first} too"
    yield from package_faults((root / "deploy" / "packages.txt").read_text(encoding="utf-8"))
    if scripts:
        yield from script_faults(scripts)


PLANTED = {
    "long.cc": ("int a;\n" * 401, "long.cc: 401 lines"),
    "blank.md": ("a \n", "blank.md:1: blanks at the end"),
    "tab.py": ("if a:\n\tb()\n", "tab.py:2: a tab"),
    "cut.h": ("int a;", "cut.h: no newline"),
    "one.h": ("namespace a::b {\nstruct Same {};\nclass Other : public Same {};\n}\nnamespace c {\nstruct Same {};\n}\n", None),
    "two.h": ("namespace a::b {\nenum class Same : int { k };\nstruct Other::Inner {};\n}\n", "a::b::Same is defined in"),
    "link.md": ("[there](there.md), [not](gone.md#part), [far](https://example.org/)\n", "link.md: links to gone.md"),
    "there.md": ("fine\n", None),
    "reason.cc": ("// Long because it is a table.\n" + "int a;\n" * 401, None),
    "split.sh": ("#!/bin/sh\nrm $1/x\n", "SC2086" if SHELLCHECK else None),
    "deploy/packages.txt": ("# one\nb\n\n# two\na\nd\nc\n", "not in order: a d c"),
}


def planted_faults_are_found():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "deploy").mkdir()
        for name, (text, _) in PLANTED.items():
            (root / name).write_text(text, encoding="utf-8")
        found = list(tree_faults(root))
    expected = [piece for _, piece in PLANTED.values() if piece]
    for piece in expected:
        if sum(piece in fault for fault in found) != 1:
            yield f"a planted fault is not found once: {piece}: {found}"
    if len(found) != len(expected):
        yield f"{len(found)} faults found where {len(expected)} were planted: {found}"


def main():
    faults = list(tree_faults(SOURCE)) + list(planted_faults_are_found())
    for fault in faults:
        print("FAIL:", fault)
    if not faults and not SHELLCHECK:
        skip("shellcheck", "shellcheck is not installed: the scripts are not looked at")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
