#!/usr/bin/env python3
"""Names the functions of planner/ that no shipped program reaches.

usage: off_path.py BUILD_FOLDER [FOLDER]     as if what is built of FOLDER (cli, say) were not shipped

Reads the objects of a build. Every function of a shipped program's own objects (cli, controller, agent, formats, proto, testbed,
scheduler, runtime, collectives, common) counts as reached; from there it follows relocations, function by function, through the planner's objects. What it
then has not met, of the planner's functions with external linkage that are not inline, is printed, one per line, with its file. A function
that its own file calls by name counts as reached with it: the compiler may have put it into its callers.
"""
import collections
import pathlib
import re
import subprocess
import sys

SHIPPED = ("cli", "controller", "agent", "formats", "proto", "testbed", "scheduler", "runtime", "collectives", "common")
NOT_SHIPPED = re.compile(r"(_test|_benchmark|testing|real|fire|bench)[./]|/tests/|/bench/")
SPECIAL = re.compile(r"\b(\w+)::~?\1\(|::operator=\(")  # the compiler uses some of these in pairs, or in part
SYMBOL = re.compile(r"^\s*\d+: ([0-9a-f]+)\s+(\S+) (\w+)\s+(\w+)\s+\w+(?: \[[^]]*\])?\s+(\S+)(?: (\S+))?$")
RELOCATION = re.compile(r"^([0-9a-f]+)\s+[0-9a-f]+ \S+\s+(?:[0-9a-f]+ )?(\S+?)(?: ([+-]) ([0-9a-f]+))?$")


def lines_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def plain_name(name):
    return lines_of("c++filt", name)[0].replace("weft::planner::", "")


class Object:
    """What one object defines, and what each of its functions refers to."""

    def __init__(self, path):
        self.path = path
        self.sections = {}                               # index -> name
        self.functions = collections.defaultdict(list)   # section -> [(begin, end, name)]
        self.globals = {}                                # name -> section, of functions that are not inline
        self.locals = []                                 # functions that nobody else can call
        self.local_data = {}
        for line in lines_of("readelf", "-SW", str(path)):
            if match := re.match(r"^\s*\[\s*(\d+)\] (\S+)", line):
                self.sections[match[1]] = match[2]
        for line in lines_of("readelf", "-sW", str(path)):
            match = SYMBOL.match(line)
            if not match or match[5] not in self.sections or not match[6]:
                continue
            begin, size, kind, bind, index, name = int(match[1], 16), int(match[2], 0), match[3], match[4], match[5], match[6]
            if kind != "FUNC":
                if kind == "OBJECT":
                    self.local_data[name] = self.sections[index]
                continue
            self.functions[self.sections[index]].append((begin, begin + max(size, 1), name))
            if bind == "GLOBAL":
                self.globals[name] = self.sections[index]
            elif bind == "LOCAL":
                self.locals.append(name)
        for spans in self.functions.values():
            spans.sort()
        self.refers = collections.defaultdict(set)       # function, or section of data -> names it refers to
        self.read_relocations()

    def find_called_here(self, build, source):
        """Functions that others could call and that this object's own file calls by name."""
        file = "planner/" + str(self.path.relative_to(build / "planner/CMakeFiles/weft_planner.dir"))[: -len(".o")]
        self.file = file if (source / file).exists() else None
        text = (source / file).read_text() if self.file else ""
        self.called_here = []
        for name in self.globals:
            word = re.search(r"([\w~]+)(?:\[abi:\w+\])?\(", plain_name(name))
            if word and len(re.findall(rf"\b{re.escape(word[1])}\(", text)) > 1:
                self.called_here.append(name)

    def at(self, section, address):
        for begin, end, name in self.functions.get(section, ()):
            if begin <= address < end:
                return name
        return section

    def read_relocations(self):
        section = None
        for line in lines_of("readelf", "-rW", str(self.path)):
            if match := re.match(r"^Relocation section '\.rela(\S+)'", line):
                section = match[1]
                continue
            match = RELOCATION.match(line)
            if section is None or not match or section.startswith((".debug", ".eh_frame")):
                continue
            target, addend = match[2], int(match[4] or "0", 16) * (-1 if match[3] == "-" else 1)
            if target.startswith("."):  # of the section itself: a function or datum of this file
                target = self.at(target, addend + 4) if target.startswith(".text") else target
            self.refers[self.at(section, int(match[1], 16))].add(self.local_data.get(target, target))


def main():
    if len(sys.argv) not in (2, 3) or (len(sys.argv) == 3 and sys.argv[2] not in SHIPPED):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    source = pathlib.Path(__file__).resolve().parent.parent
    objects = [p for p in build.rglob("*.o") if not NOT_SHIPPED.search(str(p.relative_to(build)))]
    planner = [Object(p) for p in objects if p.is_relative_to(build / "planner/CMakeFiles/weft_planner.dir")]
    if not planner:
        sys.exit(f"{build}: no objects of the planner, expected a build")
    definers = collections.defaultdict(list)
    for o in planner:
        o.find_called_here(build, source)
        for spans in o.functions.values():
            for _, _, name in spans:
                definers[name].append(o)
    wanted = set()
    for p in objects:
        if p.relative_to(build).parts[0] in SHIPPED and p.relative_to(build).parts[0] not in sys.argv[2:]:
            wanted |= {line.split()[-1] for line in lines_of("nm", "-u", str(p)) if line.split()}
    reached, open_nodes = set(), [(o, name) for name in wanted for o in definers.get(name, ())]
    while open_nodes:
        node = open_nodes.pop()
        if node in reached:
            continue
        reached.add(node)
        o, name = node
        # Calls within a file leave no relocation: its own functions count as called with any of it.
        open_nodes += [(o, local) for local in [*o.locals, *o.called_here]]
        for target in o.refers.get(name, ()):
            own = target in o.refers or any(name == target for spans in o.functions.values() for _, _, name in spans)
            open_nodes += [(o, target)] if own else [(d, target) for d in definers.get(target, ())]
    found = []
    for o in planner:
        for name in o.globals:
            if o.file is None or (o, name) in reached:  # None: an object of a file that is gone
                continue
            plain = plain_name(name)
            if not SPECIAL.search(plain):
                found.append(f"{o.file}: {plain.split('(')[0]}")
    print("".join(f"{name}\n" for name in sorted(set(found))), end="")
    print(f"{sum(len(o.globals) for o in planner)} functions, {len(set(found))} off the path", file=sys.stderr)


if __name__ == "__main__":
    main()
