#!/usr/bin/env python3
"""mTLS between the real daemons, with certificates that openssl makes here: who shows the right one is let in, everybody
else is refused with one clear line, and nobody is let in without TLS.
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Processes, check, free_ports, run_test, wait_until  # noqa: E402

BIN = pathlib.Path(os.environ["WEFT_BIN"])
EXAMPLES = BIN / "examples"


class Authority:
    """A certificate authority in a folder of its own."""

    def __init__(self, processes, name):
        self.processes, self.name = processes, name
        os.mkdir(processes.path(name))
        self._openssl("req", "-x509", *self._new_key("ca"), "-out", self.path("ca.pem"), "-subj", f"/CN={name}", "-days", "2")
        self.pem = self.path("ca.pem")

    def path(self, file):
        return self.processes.path(self.name, file)

    @staticmethod
    def _openssl(*command):
        done = subprocess.run(["openssl", *command], capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"openssl {' '.join(command)}: {done.stderr}")

    def _new_key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.path(name + ".key")]

    def issue(self, name, host, days=2, role=""):
        """The paths of a new certificate for a host name or address, and of its key; days < 0: it has expired."""
        kind = "IP" if host[0].isdigit() else "DNS"
        uri = f",URI:weft://{role}" if role else ""
        extension = self.processes.write(f"{self.name}/{name}.ext", f"subjectAltName={kind}:{host}{uri}\n")
        self._openssl("req", *self._new_key(name), "-out", self.path(name + ".csr"), "-subj", f"/CN={name}")
        self._openssl("x509", "-req", "-in", self.path(name + ".csr"), "-CA", self.pem, "-CAkey", self.path("ca.key"),
                      "-CAcreateserial", "-days", str(days), "-extfile", extension, "-out", self.path(name + ".pem"))
        return self.path(name + ".pem"), self.path(name + ".key")


def tls(identity, authority):
    certificate, key = identity
    return ["--tls-certificate", certificate, "--tls-key", key, "--tls-authority", authority]


class Site:
    def __init__(self, processes):
        self.processes = processes
        self.site, self.other = Authority(processes, "site"), Authority(processes, "other")
        self.controller = self.site.issue("controller", "127.0.0.1")
        self.elsewhere = self.site.issue("elsewhere", "controller.example")
        self.agent = self.site.issue("agent-h1", "h1", role="agent/h1")
        self.submitter = self.site.issue("submitter", "login.example", role="submitter/slurm")
        self.expired = self.site.issue("expired", "127.0.0.1", days=-1)
        self.foreign = self.other.issue("submitter", "login.example")
        self.address = ""

    def start_controller(self, options):
        ready = self.processes.start_ready("controller", [BIN / "weft-controller", "--listen", "127.0.0.1:0", "--http",
                                                          "127.0.0.1:0", *options])
        self.address = ready["listen"]

    def weft(self, options, *command):
        return subprocess.run([BIN / "weft", *command, "--controller", self.address, *options], capture_output=True,
                              text=True, timeout=30, check=False)


def expect_refused(site, pieces, options, *command, status=1):
    done = site.weft(options, *(command or ("jobs",)))
    said = f"status {done.returncode}, stdout {done.stdout!r}, stderr {done.stderr!r}"
    check(done.returncode == status and not done.stdout, f"expected status {status} and nothing on stdout: {said}")
    check(len(done.stderr.splitlines()) == 1, f"expected one line: {said}")
    for piece in pieces:
        check(piece in done.stderr, f"expected {piece!r}: {said}")
    print(f"ok {status}: {done.stderr.strip()}")


def start_agent(site, name, options):
    site.processes.start_ready(name, [BIN / "weft-agent", "--host", "h1", "--run-dir", site.processes.path("run-" + name),
                                      "--interfaces", "lo", "--controller", site.address, "--http", "127.0.0.1:0", *options])


def the_right_certificates_are_let_in(site):
    start_agent(site, "agent", tls(site.agent, site.site.pem))
    mine = tls(site.submitter, site.site.pem)
    wait_until(lambda: "connected" in site.weft(mine, "topo").stdout, 10, "the agent at the controller")
    job = site.processes.write("job.yaml", f"version: 1\nname: tls\nmodel: {EXAMPLES}/gpt2.json\nglobal_batch: 8\n"
                               "sequence: 128\ngpus: 1\nprecision: fp32\nhosts: [h1]\n")
    done = site.weft(mine, "submit", job)
    check(done.returncode == 0 and "rank 0 on h1" in done.stdout, f"submit: {done.stdout!r} {done.stderr!r}")
    check("tls" in site.weft(mine, "jobs").stdout, "the job is not listed")
    print("ok 0: agent, submit and jobs")


def other_clients_are_refused(site):
    expect_refused(site, ["not accepted", site.foreign[0]], tls(site.foreign, site.site.pem))
    expect_refused(site, ["not signed by", site.other.pem], tls(site.submitter, site.other.pem))
    expect_refused(site, ["has expired", site.expired[0]], tls(site.expired, site.site.pem))
    expect_refused(site, ["expected the key of", site.submitter[0]], tls((site.submitter[0], site.agent[1]), site.site.pem),
                   status=2)
    expect_refused(site, ["/nowhere.pem"], tls(site.submitter, "/nowhere.pem"), status=2)
    expect_refused(site, ["only some are configured"], tls(site.submitter, site.site.pem)[:4], status=2)
    text = site.processes.write("text.pem", "not a certificate\n")
    expect_refused(site, ["expected a PEM certificate", text], tls((text, site.submitter[1]), site.site.pem), status=2)
    expect_refused(site, ["needed here"], [])
    expect_refused(site, ["no role", "weft://agent/HOST"], tls(site.elsewhere, site.site.pem))


def the_server_judges_for_itself(site):
    """A client that does not look at its own certificate first. TLS 1.2, where the client's handshake waits for the verdict."""
    for identity, accepted in ((site.submitter, True), (site.expired, False), (site.foreign, False)):
        done = subprocess.run(["openssl", "s_client", "-connect", site.address, "-CAfile", site.site.pem, "-alpn", "h2", "-cert",
                               identity[0], "-key", identity[1], "-tls1_2", "-brief"], stdin=subprocess.DEVNULL,
                              capture_output=True, encoding="utf-8", errors="replace", timeout=60, check=False)
        check(("CONNECTION ESTABLISHED" in done.stderr) == accepted, f"{identity[0]}: {done.stderr!r}")
        print(f"ok: openssl with {os.path.basename(identity[0])}: {'accepted' if accepted else 'refused'}")


def other_agents_are_refused(site):
    """They say why, once, and go on without a controller: training does not depend on it."""
    start_agent(site, "foreign-agent", tls(site.foreign, site.site.pem))
    line = wait_until(lambda: [text for text in site.processes.log("foreign-agent").splitlines() if "no session" in text], 10,
                      "the refused agent to say so")
    check(len(line) == 1 and "not accepted there" in line[0], f"it said {line}")
    print(f"ok: {line[0]}")
    site.processes.check_alive()
    site.processes.stop("foreign-agent")
    done = subprocess.run([BIN / "weft-agent", "--host", "h1", "--run-dir", site.processes.path("run-expired"), "--interfaces",
                           "lo", "--controller", site.address, "--http", "127.0.0.1:0", *tls(site.expired, site.site.pem)],
                          capture_output=True, text=True, timeout=30, check=False)
    check(done.returncode == 1 and "has expired" in done.stderr.splitlines()[-1], f"{done.returncode}, {done.stderr!r}")


def wrong_controllers_are_refused(site):
    site.start_controller(tls(site.elsewhere, site.site.pem))
    expect_refused(site, ["for another host", "127.0.0.1"], tls(site.submitter, site.site.pem))
    site.processes.stop("controller")
    site.start_controller([])
    expect_refused(site, ["no TLS is spoken there"], tls(site.submitter, site.site.pem))
    site.processes.stop("controller")
    [port] = free_ports(1)
    done = subprocess.run([BIN / "weft-controller", "--listen", f"127.0.0.1:{port}", "--http", "127.0.0.1:0",
                           *tls(site.expired, site.site.pem)], capture_output=True, text=True, timeout=30, check=False)
    check(done.returncode == 1 and not done.stdout and "has expired" in done.stderr.splitlines()[-1], f"{done}")


def main():
    with Processes("weft-tls-") as processes:
        site = Site(processes)
        site.start_controller(tls(site.controller, site.site.pem))
        the_right_certificates_are_let_in(site)
        other_clients_are_refused(site)
        the_server_judges_for_itself(site)
        other_agents_are_refused(site)
        processes.stop("agent")
        check(processes.stop("controller") == 0, "the controller did not end well")
        wrong_controllers_are_refused(site)
    return 0


if __name__ == "__main__":
    run_test(main)
