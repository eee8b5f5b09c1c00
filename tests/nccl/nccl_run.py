"""Jobs of weft-nccl-job under NCCL on this machine, over the stand-in for the CUDA runtime.

    for nccl in releases():                      # one per built tree of NCCL; ends the test as skipped where there is none
        done = nccl.run(4, ["--step", "world.allreduce=1MiB", "--iterations", "5"], {"NCCL_ALGO": "Ring"})
        done.check_ok()
        done.log(0)                              # what NCCL said to rank 0

Each rank is a process with a host id and a device address of its own, so that all traffic goes over the net plugin.
"""

import atexit
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Failure, check, free_ports, skip  # noqa: E402

BIN, LIB = pathlib.Path(os.environ["WEFT_BIN"]), pathlib.Path(os.environ["WEFT_LIB"])
PLUGIN = LIB / "libnccl-net-weft.so"
STAND_IN = LIB / "cuda-stand-in"

# What NCCL is to load of our plugin, by release: the newest version that it knows. A face that it lacks is None.
FACES = {
    (2, 23): {"net": 8, "tuner": 3, "profiler": 1, "env": None},
    (2, 24): {"net": 9, "tuner": 4, "profiler": 2, "env": None},
    (2, 25): {"net": 9, "tuner": 4, "profiler": 2, "env": None},
    (2, 26): {"net": 10, "tuner": 4, "profiler": 3, "env": None},
    (2, 27): {"net": 10, "tuner": 4, "profiler": 4, "env": None},
    (2, 28): {"net": 11, "tuner": 5, "profiler": 5, "env": 1},
    (2, 29): {"net": 11, "tuner": 5, "profiler": 6, "env": 1},
    (2, 30): {"net": 12, "tuner": 6, "profiler": 6, "env": 2},
}


ALGORITHMS = {"0": "tree", "1": "ring", "6": "pat", "TREE": "tree", "RING": "ring", "PAT": "pat"}
PROTOCOLS = {"0": "ll", "1": "ll128", "2": "simple", "LL": "ll", "LL128": "ll128", "SIMPLE": "simple"}


def ran(log):
    """{(function, bytes): {(algorithm, protocol)}} by NCCL's own lines, which count a rank's share of what is gathered or scattered
    (2.23: all of it)."""
    found = {}
    for match in re.finditer(r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)", log):
        key = match[1].lower(), int(match[2])
        found.setdefault(key, set()).add((ALGORITHMS.get(match[3]), PROTOCOLS.get(match[4])))
    return found


def log_of(folder, rank):
    """What NCCL wrote to its debug file."""
    return "".join(path.read_text(errors="replace") for path in sorted(folder.glob(f"nccl-{rank}.*")))


@dataclasses.dataclass
class Done:
    """A job that has ended."""
    codes: list
    folder: pathlib.Path
    seconds: float

    def out(self, rank=0):
        return (self.folder / f"{rank}.out").read_text()

    def err(self, rank=0):
        return (self.folder / f"{rank}.err").read_text()

    def log(self, rank=0):
        return log_of(self.folder, rank)

    def lines(self, rank=0):
        return [json.loads(line) for line in self.out(rank).splitlines() if line.startswith("{")]

    def summary(self):
        return next(line["summary"] for line in self.lines() if "summary" in line)

    def check_ok(self, what=""):
        for rank, code in enumerate(self.codes):
            check(code == 0, f"{what}: rank {rank} ended with {code}: {self.err(rank)[-600:]}\n{self.log(rank)[-1200:]}")
        return self


class Nccl:
    def __init__(self, version, library, kernels):
        self.version, self.library, self.kernels = version, pathlib.Path(library), kernels

    def __str__(self):
        return f"NCCL {self.version}"

    @property
    def release(self):
        return tuple(int(part) for part in self.version.split(".")[:2])

    def environment(self, rank, net, folder, extra):
        values = {k: v for k, v in os.environ.items() if not k.startswith(("NCCL_", "WEFT_"))}
        folders = [self.library.parent, LIB, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        if self.kernels:
            folders.insert(0, STAND_IN)
            values.update(WEFT_NCCL_KERNELS=self.kernels, WEFT_CUDA_BUS=f"{rank + 1:x}")
        values.update(
            LD_LIBRARY_PATH=":".join(map(str, folders)),
            NCCL_HOSTID=f"host-{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_RAS_ENABLE="0",
            NCCL_CUMEM_ENABLE="0", NCCL_CUMEM_HOST_ENABLE="0",  # memory that the driver maps, which is not there
            NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ENV,NET,TUNING,COLL", NCCL_DEBUG_FILE=str(folder / f"nccl-{rank}.%p"))
        if self.release == (2, 28):  # forgets the plugin's name with its last communicator, and then loads libnccl-net.so
            values["LD_LIBRARY_PATH"] += f":{LIB / 'nccl'}"
        # Where the build is instrumented a report ends the rank. NCCL itself leaks memory and threads.
        values.setdefault("ASAN_OPTIONS", "detect_leaks=0:exitcode=66")
        values.setdefault("TSAN_OPTIONS", f"exitcode=66:report_thread_leaks=0:suppressions={pathlib.Path(__file__).parent / 'tsan.supp'}")
        if net == "weft":
            values.update(NCCL_NET="Weft", NCCL_NET_PLUGIN=str(PLUGIN), WEFT_TRANSPORT="tcp")
            if self.release < (2, 28):
                values["NCCL_PROFILER_PLUGIN"] = str(PLUGIN)
            else:
                values["NCCL_ENV_PLUGIN"] = str(PLUGIN)
        else:
            values.update(NCCL_NET="Socket", NCCL_NET_PLUGIN="none")
        values.update(extra)
        return values

    def start(self, world, arguments, extra=None, net="weft", prefix=lambda rank: [], rendezvous=None):
        """`extra`: settings, or a function of the rank; `prefix`: of the rank's command; `rendezvous`: HOST:PORT."""
        return Job(self, world, arguments, extra or {}, net, prefix, rendezvous)

    def start_program(self, world, command, extra=None):
        """`command`: of the rank and the rendezvous, in place of weft-nccl-job."""
        return Job(self, world, command, extra or {}, "weft", lambda rank: [], None)

    def start_in(self, cluster, hosts, name, arguments, extra=None, net="weft"):
        """A job of the cluster's controller, one rank on each of the hosts (weft_cluster.py)."""
        def of_rank(rank):
            return {"NCCL_SOCKET_IFNAME": "=eth0", "WEFT_RUN_DIR": str(cluster.run_dir(hosts[rank])), "WEFT_JOB_ID": name,
                    "WEFT_RANK": str(rank), "WEFT_WORLD": str(len(hosts)), **(extra or {})}

        cluster.next_port += 1
        return self.start(len(hosts), arguments, of_rank, net, prefix=lambda rank: cluster.in_host(hosts[rank], []),
                          rendezvous=f"{cluster.host[hosts[0]]['mgmt_address']}:{cluster.next_port}")

    def run(self, world, arguments, extra=None, net="weft", timeout_s=120):
        with self.start(world, arguments, extra, net) as job:
            return job.wait(timeout_s)


class Job:
    """Running ranks. Leaving the block ends them; the folder of their logs goes with the test's process."""

    def __init__(self, nccl, world, arguments, extra, net, prefix, rendezvous):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir=TEMPORARY))
        rendezvous = rendezvous or f"127.0.0.1:{free_ports(1)[0]}"
        self.began = time.monotonic()
        self.ranks = []
        for rank in range(world):
            of_rank = extra(rank) if callable(extra) else extra
            command = arguments(rank, rendezvous) if callable(arguments) else [
                *prefix(rank), BIN / "weft-nccl-job", "--rank", rank, "--world", world, "--rendezvous", rendezvous,
                "--nccl", nccl.library, *arguments]
            with open(self.folder / f"{rank}.out", "wb") as out, open(self.folder / f"{rank}.err", "wb") as err:
                self.ranks.append(subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                                   env=nccl.environment(rank, net, self.folder, of_rank)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.ranks:
            if child.poll() is None:
                child.kill()
            child.wait()

    def wait(self, timeout_s=120):
        end = time.monotonic() + timeout_s
        for rank, child in enumerate(self.ranks):
            try:
                child.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Failure(f"rank {rank} hangs after {timeout_s} s: {(self.folder / f'{rank}.err').read_text()[-400:]}") from None
        return Done([child.returncode for child in self.ranks], self.folder, time.monotonic() - self.began)

    def steps(self):
        """What rank 0 has said of its iterations so far."""
        text = (self.folder / "0.out").read_text()
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines() if line.startswith('{"step"')]

    def log(self, rank=0):
        return log_of(self.folder, rank)

    def stop(self, rank, number=signal.SIGKILL):
        self.ranks[rank].send_signal(number)


TEMPORARY = tempfile.mkdtemp(prefix="weft-nccl-test-")


atexit.register(shutil.rmtree, TEMPORARY, ignore_errors=True)


def releases():
    """What the build was given (WEFT_NCCL), one "version=library=kernels" per argument of the test."""
    found = [Nccl(*argument.split("=")) for argument in sys.argv[1:] if argument.count("=") == 2]
    if not found:
        skip("nccl", "no build of NCCL; configure with -DWEFT_NCCL=FOLDER (docs/nccl.md)")
    return sorted(found, key=lambda nccl: nccl.release)


def option(name, otherwise):
    """The whole number after `name` among the test's arguments."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else otherwise
