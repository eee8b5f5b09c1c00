"""Processes of a system test: started together, ended together, also when the test fails or is interrupted.

    with Processes() as processes:                     # owns a temporary directory, processes.directory
        child = processes.start("munged", [...])       # stdout and stderr go to <directory>/munged.log
        wait_until(lambda: ..., 5, "munged's socket")

Everything that a child leaves behind (daemons that fork, job steps) becomes a child of the test itself and is ended too.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SKIPPED = 77


class Failure(Exception):
    """A fact that does not hold; its text says which."""


def skip(capability, why):
    """Ends the test as skipped, or as failed where WEFT_REQUIRE (a list with commas) names the capability."""
    if capability in os.environ.get("WEFT_REQUIRE", "").split(","):
        print(f"FAIL: WEFT_REQUIRE asks for {capability}: {why}")
        sys.exit(1)
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def run_test(main):
    """Runs main() and ends the program with its result; one line says which fact does not hold."""
    try:
        sys.exit(main())
    except Exception as failure:  # also what a broken fact made fail
        print(f"FAIL: {failure}")
        sys.exit(1)


def check(condition, message):
    if not condition:
        raise Failure(message)


def wait_until(condition, timeout_s, what):
    """Returns the first true value of condition(); fails naming `what` after timeout_s."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"waited {timeout_s} s for {what}")
        time.sleep(0.02)


def free_ports(count):
    """Ports that are free on loopback now; all were bound at once, so no two are equal."""
    sockets = []
    for _ in range(count):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        sockets.append(listener)
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def _children_of(pid):
    children = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            children += [int(child) for child in file.read().split()]
    return children


def descendants(pid):
    found = []
    try:
        for child in _children_of(pid):
            found += [child] + descendants(child)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


class Processes:
    """The children of one test and its temporary directory."""

    def __init__(self, prefix="weft-test-"):
        self.directory = tempfile.mkdtemp(prefix=prefix)
        os.chmod(self.directory, 0o755)  # munge refuses a socket that others cannot reach
        self.children = {}
        self._libc = ctypes.CDLL(None, use_errno=True)

    def __enter__(self):
        self._libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._interrupted)
        return self

    def __exit__(self, kind, value, traceback):
        if kind is not None and issubclass(kind, Exception):
            self.print_logs()
        self.close()

    @staticmethod
    def _interrupted(number, _frame):
        raise SystemExit(128 + number)

    def _die_with_parent(self):
        self._libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def start(self, name, command, env=None, stdout_pipe=False):
        """Starts a daemon in the foreground; its log is <directory>/<name>.log."""
        with open(self.path(name + ".log"), "ab") as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env, start_new_session=True,
                                     stdout=subprocess.PIPE if stdout_pipe else log, stderr=log,
                                     preexec_fn=self._die_with_parent, text=stdout_pipe)
        self.children[name] = child
        return child

    def start_ready(self, name, command, env=None, timeout_s=10):
        """Starts a daemon that prints one JSON line when it is ready, and returns that line's object."""
        child = self.start(name, command, env=env, stdout_pipe=True)
        timer = threading.Timer(timeout_s, child.kill)
        timer.start()
        line = child.stdout.readline()
        timer.cancel()
        check(line.strip(), f"{name} ended or printed no ready line within {timeout_s} s")
        return json.loads(line)

    def stop(self, name, number=signal.SIGTERM, timeout_s=10):
        """Sends a signal and waits for the end; the exit status as subprocess gives it."""
        child = self.children.pop(name)
        if child.poll() is None:
            child.send_signal(number)
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise Failure(f"{name} did not end within {timeout_s} s of signal {number}") from None

    def check_alive(self):
        for name, child in self.children.items():
            check(child.poll() is None, f"{name} ended with status {child.returncode}")

    def log(self, name):
        try:
            with open(self.path(name + ".log"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def print_logs(self, lines=12):
        for name in sorted(entry for entry in os.listdir(self.directory) if entry.endswith(".log")):
            tail = [line for line in self.log(name[:-4]).splitlines() if line.strip()][-lines:]
            print(f"--- {name}", *tail, sep="\n", flush=True)

    def close(self):
        """Ends every child, what they left behind, and removes the directory."""
        for number, wait_s in ((signal.SIGTERM, 3), (signal.SIGKILL, 5)):
            for pid in descendants(os.getpid()):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            end = time.monotonic() + wait_s
            while descendants(os.getpid()) and time.monotonic() < end:
                self._reap()
                time.sleep(0.01)
        for child in self.children.values():
            if child.stdout:
                child.stdout.close()
        self.children.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _reap(self):
        for child in self.children.values():
            child.poll()
        known = {child.pid for child in self.children.values()}
        for pid in _children_of(os.getpid()):
            if pid not in known:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass
