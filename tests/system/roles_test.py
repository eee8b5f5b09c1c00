#!/usr/bin/env python3
"""Roles: certificates of `weft pki`, the real daemons, and callers that want more than their certificate gives them: each is refused,
logged and counted. A certificate that is revoked while its session stands loses it; one that is issued anew works without a restart of
the controller, of its agent, and for the controller itself.
"""
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Processes, check, run_test, wait_until  # noqa: E402

BIN = pathlib.Path(os.environ["WEFT_BIN"])
EXAMPLES = BIN / "examples"


class Site:
    def __init__(self, processes):
        self.processes = processes
        self.folder = processes.path("pki")
        self.pki("init", "--site", "test")
        for words in (("controller", "c1", "--address", "127.0.0.1"), ("agent", "h1"), ("agent", "h2"), ("submitter", "slurm"), ("submitter", "other"),
                      ("operator", "ann"), ("viewer", "wall")):
            self.pki("issue", *words)
        self.revoked = processes.write("pki/revoked.txt", "# nobody yet\n")
        config = processes.write("controller.yaml", f"version: 1\nclasses: [26, 0]\nqos: {{roce_tos: 104}}\ntls: {{certificate: {self.folder}/controller-c1.pem, key: "
                                 f"{self.folder}/controller-c1.key, authority: {self.folder}/ca.pem, revoked: {self.revoked}}}\n")
        ready = processes.start_ready("controller", [BIN / "weft-controller", "--config", config, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        self.address, self.http = ready["listen"], ready["http"]

    def pki(self, *words, status=0):
        done = subprocess.run([BIN / "weft", "pki", words[0], "--folder", self.folder, *words[1:]], capture_output=True, text=True, check=False)
        check(done.returncode == status, f"weft pki {words}: {done}")
        return done

    def tls(self, who):
        return ["--tls-certificate", f"{self.folder}/{who}.pem", "--tls-key", f"{self.folder}/{who}.key", "--tls-authority", f"{self.folder}/ca.pem"]

    def weft(self, who, *words):
        return subprocess.run([BIN / "weft", *words, "--controller", self.address, *self.tls(who)], capture_output=True, text=True, timeout=30, check=False)

    def may(self, who, *words):
        done = self.weft(who, *words)
        check(done.returncode == 0, f"{who} may {words}: {done}")
        return done.stdout

    def may_not(self, who, piece, *words):
        done = self.weft(who, *words)
        check(done.returncode not in (0, -6, -11) and piece in done.stderr, f"{who} may not {words}, expected {piece!r}: {done}")
        print(f"ok: {done.stderr.strip()}")

    def start_agent(self, name, host, who):
        self.processes.start_ready(name, [BIN / "weft-agent", "--host", host, "--run-dir", self.processes.path("run-" + name), "--interfaces", "lo",
                                          "--controller", self.address, "--http", "127.0.0.1:0", *self.tls(who)])

    def shown_serial(self):
        """Of the certificate that the controller shows to who calls now."""
        shown = subprocess.run(["openssl", "s_client", "-connect", self.address, "-CAfile", f"{self.folder}/ca.pem", "-alpn", "h2", "-cert",
                                f"{self.folder}/operator-ann.pem", "-key", f"{self.folder}/operator-ann.key"], stdin=subprocess.DEVNULL,
                               capture_output=True, timeout=30, check=False).stdout
        said = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=shown, capture_output=True, check=False).stdout.decode()
        return said.strip().removeprefix("serial=")

    def ask_http(self, path):
        context = ssl.create_default_context(cafile=f"{self.folder}/ca.pem")
        context.load_cert_chain(f"{self.folder}/operator-ann.pem", f"{self.folder}/operator-ann.key")
        with urllib.request.urlopen(f"https://{self.http}{path}", timeout=5, context=context) as answer:
            return answer.read().decode()

    def refused(self, why):
        for line in self.ask_http("/metrics").splitlines():
            if line.startswith(f'weft_controller_calls_refused_total{{why="{why}"}}'):
                return float(line.split()[1])
        return 0.0


def certificates_are_sound(site):
    for name in ("controller-c1", "agent-h1", "operator-ann"):
        done = subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", f"{site.folder}/ca.pem", f"{site.folder}/{name}.pem"], capture_output=True,
                              text=True, check=False)
        check(done.returncode == 0, f"openssl verify {name}: {done}")
        check(os.stat(f"{site.folder}/{name}.key").st_mode & 0o777 == 0o600, f"{name}.key is readable for others")
    check(os.stat(f"{site.folder}/ca.key").st_mode & 0o777 == 0o600, "ca.key is readable for others")
    check("is there already" in site.pki("init", status=1).stderr, "a second authority took the first one's place")
    check("expected --address" in site.pki("issue", "controller", "c2", status=2).stderr, "a controller without an address")
    check("expected agent" in site.pki("issue", "root", "x", status=2).stderr, "an unknown role")
    check("expected 1 to 255" in site.pki("issue", "agent", "h1,URI:weft:", status=2).stderr, "a name that brings another role along")


def each_role_does_its_own(site):
    site.start_agent("agent", "h1", "agent-h1")
    wait_until(lambda: "connected" in site.weft("viewer-wall", "topo").stdout, 10, "the agent at the controller")
    job = site.processes.write("job.yaml", f"version: 1\nname: mine\nmodel: {EXAMPLES}/gpt2.json\nglobal_batch: 8\nsequence: 128\ngpus: 1\n"
                               "precision: fp32\nhosts: [h1]\n")
    site.may_not("viewer-wall", 'viewer "wall" may not do this: expected a submitter or operator', "submit", job)
    site.may_not("agent-h1", 'agent "h1" may not do this', "submit", job)
    site.may_not("agent-h1", "expected a viewer, submitter or operator", "jobs")
    site.may("submitter-slurm", "submit", job)
    check("mine" in site.may("viewer-wall", "jobs"), "the job is not listed")
    site.may_not("viewer-wall", "expected a submitter or operator", "release", "mine")
    site.may_not("submitter-other", 'job "mine" is not one of submitter "other"', "release", "mine")
    for who in ("viewer-wall", "submitter-slurm"):
        site.may_not(who, "expected an operator", "qos", "apply", "--dry-run")
        site.may_not(who, "expected an operator", "reshard", "mine", "--back")
    site.may("operator-ann", "qos", "apply", "--dry-run")
    site.may_not("operator-ann", 'job "mine": no strategy that the controller has searched for weft-train', "reshard", "mine", "--back")
    site.may("submitter-slurm", "release", "mine")
    site.may("submitter-slurm", "submit", site.processes.write("job2.yaml", open(job, encoding="utf-8").read().replace("mine", "second")))
    site.may("operator-ann", "release", "second")
    check(site.refused("role") >= 6, f"{site.refused('role')} refusals for roles are counted")
    check(site.refused("owner") == 1, f"{site.refused('owner')} refusals for the owner are counted")
    check("refused a call" in site.processes.log("controller"), "refusals are not logged")


def an_agent_speaks_for_its_host_only(site):
    site.start_agent("thief", "h1", "agent-h2")
    said = wait_until(lambda: [line for line in site.processes.log("thief").splitlines() if "no session" in line], 10, "the refused agent to say so")
    check("may not speak for host" in said[0], said[0])
    site.processes.stop("thief")
    check(site.refused("host") >= 1, "refusals for hosts are not counted")
    site.start_agent("submitting", "h1", "submitter-slurm")
    said = wait_until(lambda: [line for line in site.processes.log("submitting").splitlines() if "no session" in line], 10, "the refused agent to say so")
    check("expected an agent" in said[0], said[0])
    site.processes.stop("submitting")
    check("h1               connected" in site.may("viewer-wall", "topo"), "the host's own session does not stand any more")
    print(f"ok: {said[0][-120:]}")


def revoked_certificates_count_no_more(site):
    site.pki("revoke", f"{site.folder}/agent-h1.pem")
    site.pki("revoke", f"{site.folder}/viewer-wall.pem")
    site.may_not("viewer-wall", 'the certificate of viewer "wall" is revoked', "jobs")
    wait_until(lambda: "lost" in site.may("operator-ann", "topo"), 10, "the revoked agent's session to end")
    check(site.refused("revoked") >= 2, "refusals of revoked ones are not counted")
    site.pki("issue", "viewer", "wall")
    site.may("viewer-wall", "jobs")
    print("ok: revoked, and issued anew")


def half_a_rotation(site):
    """The new certificate with the old key: no new calls of gRPC, and what stands goes on. Where the new key is, is returned."""
    key, new_key = f"{site.folder}/controller-c1.key", site.processes.path("new.key")
    old_key = shutil.copy2(key, site.processes.path("old.key"))
    site.pki("issue", "controller", "c1", "--address", "127.0.0.1")
    os.replace(key, new_key)
    os.replace(old_key, key)
    wait_until(lambda: site.shown_serial() == "", 30, "the controller to see that certificate and key do not fit")
    hosts = json.loads(site.ask_http("/api/v1/state"))["hosts"]
    check([host["connected"] for host in hosts if host["host"] == "h1"] == [True], f"the session that stood is gone: {hosts}")
    return new_key


def certificates_are_replaced_without_a_restart(site):
    """The agent's was revoked above, its process runs on. Then the controller's own, while the agent's session stands."""
    site.pki("issue", "agent", "h1")
    wait_until(lambda: "h1               connected" in site.may("operator-ann", "topo"), 60, "the agent to come with its new certificate")
    joined = site.processes.log("agent").count("joined controller")
    old = site.shown_serial()
    new_key = half_a_rotation(site)
    os.replace(new_key, f"{site.folder}/controller-c1.key")
    new = wait_until(lambda: site.shown_serial() not in ("", old) and site.shown_serial(), 30, "the controller to show its new certificate")
    check("h1               connected" in site.may("operator-ann", "topo"), "the session that stood is gone")
    check(site.processes.log("agent").count("joined controller") == joined, "the agent had to join again")
    site.pki("revoke", f"{site.folder}/agent-h1.pem")
    wait_until(lambda: "lost" in site.may("operator-ann", "topo"), 10, "the revoked agent's session to end")
    site.processes.check_alive()
    print(f"ok: serial number {old}, then {new}")


def main():
    with Processes("weft-roles-") as processes:
        site = Site(processes)
        certificates_are_sound(site)
        each_role_does_its_own(site)
        an_agent_speaks_for_its_host_only(site)
        revoked_certificates_count_no_more(site)
        certificates_are_replaced_without_a_restart(site)
        processes.stop("agent")
        check(processes.stop("controller") == 0, "the controller did not end well")
    return 0


if __name__ == "__main__":
    run_test(main)
