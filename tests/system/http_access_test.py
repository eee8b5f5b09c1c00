#!/usr/bin/env python3
"""HTTP of the controller and of an agent over TLS, asked by curl and scraped by Prometheus: certificates and tokens of viewers read,
operators may change what there is to change, and everybody else is refused, logged and counted. A certificate that is replaced is shown
without a restart; without TLS all is as open as before, and said so.
"""
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "dashboards"))
from processes import Processes, check, free_ports, run_test, skip, wait_until  # noqa: E402
from prometheus_api import Prometheus  # noqa: E402

BIN = pathlib.Path(os.environ["WEFT_BIN"])


class Site:
    def __init__(self, processes):
        self.processes = processes
        self.folder = processes.path("pki")
        self.pki("init", "--site", "test")
        for words in (("controller", "c1", "--address", "127.0.0.1,localhost"), ("agent", "localhost"), ("submitter", "slurm"), ("operator", "ann"),
                      ("viewer", "prometheus"), ("viewer", "gone")):
            self.pki("issue", *words)
        self.revoked = processes.write("pki/revoked.txt", "# nobody yet\n")
        self.viewer, self.operator = secrets.token_hex(32), secrets.token_hex(32)
        self.viewer_file = processes.write("viewer.tokens", f"# of the wall\n{self.viewer}\n", 0o600)
        self.operator_file = processes.write("operator.tokens", self.operator + "\n", 0o600)
        config = processes.write("controller.yaml", "version: 1\n" + self.tls("controller-c1", f"revoked: {self.revoked}, "
                                 f"viewer_tokens: {self.viewer_file}, operator_tokens: {self.operator_file}"))
        self.command = [BIN / "weft-controller", "--config", config, "--listen", "127.0.0.1:0"]
        ready = processes.start_ready("controller", [*self.command, "--http", "127.0.0.1:0"])
        self.http = {"controller": f"https://{ready['http']}"}
        agent = processes.write("agent.yaml", "version: 1\n" + self.tls("agent-localhost", f"revoked: {self.revoked}, viewer_tokens: {self.viewer_file}"))
        ready = processes.start_ready("agent", [BIN / "weft-agent", "--config", agent, "--host", "localhost", "--run-dir", processes.path("run"), "--interfaces",
                                                "lo", "--controller", ready["listen"], "--http", "127.0.0.1:0"])
        self.http["agent"] = "https://localhost:" + ready["http"].rsplit(":", 1)[1]

    def pki(self, *words):
        done = subprocess.run([BIN / "weft", "pki", words[0], "--folder", self.folder, *words[1:]], capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"weft pki {words}: {done}")

    def tls(self, who, more):
        return f"tls: {{certificate: {self.folder}/{who}.pem, key: {self.folder}/{who}.key, authority: {self.folder}/ca.pem, {more}}}\n"

    def curl(self, daemon, path, *options, who=""):
        """(status of HTTP, 0 without one; exit status of curl; the answer)."""
        certificate = ["--cert", f"{self.folder}/{who}.pem", "--key", f"{self.folder}/{who}.key"] if who else []
        done = subprocess.run(["curl", "--silent", "--max-time", "20", "--cacert", f"{self.folder}/ca.pem", "--write-out", "\n%{http_code}", *certificate,
                               *options, self.http[daemon] + path], capture_output=True, text=True, check=False)
        body, _, status = done.stdout.rpartition("\n")
        return int(status or 0), done.returncode, body

    def expect(self, status, daemon, path, *options, who="", piece=""):
        got = self.curl(daemon, path, *options, who=who)
        check(got[0] == status and piece in got[2], f"{daemon}{path} {options} as {who or 'nobody'}: expected {status} and {piece!r}: {got}")

    def refused(self, daemon, why):
        name = "weft_controller_calls_refused_total" if daemon == "controller" else "weft_agent_http_refused_total"
        text = self.curl(daemon, "/metrics", who="operator-ann")[2]
        return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith(f'{name}{{why="{why}"}}'))

    def shown_serial(self, daemon):
        shown = subprocess.run(["openssl", "s_client", "-connect", self.http[daemon].removeprefix("https://"), "-CAfile", f"{self.folder}/ca.pem"],
                               stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False).stdout
        said = subprocess.run(["openssl", "x509", "-noout", "-serial"], input=shown, capture_output=True, check=False).stdout.decode()
        return said.strip().removeprefix("serial=")


def bearer(token):
    return ["--header", f"Authorization: Bearer {token}"]


def viewers_read(site):
    for daemon in site.http:
        for who in ("viewer-prometheus", "operator-ann", "submitter-slurm"):
            site.expect(200, daemon, "/metrics", who=who, piece="# TYPE weft_")
        site.expect(200, daemon, "/metrics", *bearer(site.viewer), piece="# TYPE weft_")
        site.expect(200, daemon, "/healthz", piece="ok")
    for path, piece in (("/", "<title>Weft controller</title>"), ("/api/v1/state", '"cluster":"weft"')):
        site.expect(200, "controller", path, who="viewer-prometheus", piece=piece)
        site.expect(200, "controller", path, "--user", f"ann:{site.viewer}", piece=piece)
        site.expect(200, "controller", path, *bearer(site.operator), piece=piece)
    print("viewers read: by certificate, by token and by a browser's password")


def others_do_not(site):
    site.pki("revoke", f"{site.folder}/viewer-gone.pem")
    for daemon in site.http:
        site.expect(401, daemon, "/metrics", piece="or a token")
        site.expect(401, daemon, "/metrics", *bearer(secrets.token_hex(32)), piece="the token is nobody's")
        site.expect(403, daemon, "/metrics", who="agent-localhost", piece="expected a viewer, submitter or operator")
        site.expect(403, daemon, "/metrics", who="viewer-gone", piece="is revoked")
        before = site.refused(daemon, "size")
        site.expect(413, daemon, "/metrics", "--data-binary", "@" + site.processes.write("body", "x" * 10_000), who="operator-ann")
        # Of a long body nobody reads the rest: the connection ends, at times before curl has read the answer.
        got = site.curl(daemon, "/metrics", "--data-binary", "@" + site.processes.write("large", "x" * (1 << 20)), who="operator-ann")
        check(got[0] == 413 or (got[0] == 0 and got[1] in (52, 55, 56)), f"{daemon}: a long body: {got}")
        check(site.refused(daemon, "size") == before + 2, f"{daemon}: a body each was refused, and counted {site.refused(daemon, 'size') - before} times")
        for why in ("identity", "token", "role", "revoked", "size"):
            check(site.refused(daemon, why) >= 1, f"{daemon}: refusals for {why} are not counted")
        said = site.processes.log(daemon)
        for piece in ("no certificate was shown", "the token is nobody's", "is revoked", "a request with a body"):
            check(re.search(f"refused a call .*{piece}", said), f"{daemon}: {piece!r} is not in the log")
    print("nobody, a wrong token, a wrong role, a revoked certificate and a body are refused, logged and counted")


def changes_need_an_operator(site):
    for options in ([*bearer(site.viewer)], []):
        site.expect(403, "controller", "/api/v1/state", "--request", "POST", *options, who="" if options else "viewer-prometheus", piece="expected an operator")
    for options in ([*bearer(site.operator)], []):
        site.expect(405, "controller", "/api/v1/state", "--request", "DELETE", *options, who="" if options else "operator-ann", piece="use weft")
    print("whoever changes something is an operator")


def certificates_are_judged(site):
    """One that has expired, one of another authority, and plain HTTP: no connection comes about."""
    extension = site.processes.write("expired.ext", "subjectAltName=URI:weft://viewer/expired\n")
    key, request, expired = (site.processes.path("pki", f"expired.{kind}") for kind in ("key", "csr", "pem"))
    for command in (["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=expired"],
                    ["x509", "-req", "-in", request, "-CA", f"{site.folder}/ca.pem", "-CAkey", f"{site.folder}/ca.key", "-CAcreateserial", "-days", "-1",
                     "-extfile", extension, "-out", expired]):
        done = subprocess.run(["openssl", *command], capture_output=True, text=True, check=False)
        check(done.returncode == 0, f"openssl {command}: {done}")
    other = site.processes.path("other")
    for words in (("init", "--site", "other"), ("issue", "viewer", "stranger")):
        subprocess.run([BIN / "weft", "pki", words[0], "--folder", other, *words[1:]], capture_output=True, check=True)
    for daemon in site.http:
        before = site.refused(daemon, "handshake")
        for certificate, own_key in ((expired, key), (f"{other}/viewer-stranger.pem", f"{other}/viewer-stranger.key")):
            got = site.curl(daemon, "/metrics", "--cert", certificate, "--key", own_key)
            check(got[0] == 0 and got[1] != 0, f"{daemon} lets {certificate} in: {got}")
        plain = subprocess.run(["curl", "--silent", "--max-time", "20", site.http[daemon].replace("https", "http") + "/metrics"], capture_output=True, check=False)
        check(plain.returncode != 0 and not plain.stdout, f"{daemon} answers in plain text: {plain}")
        wait_until(lambda daemon=daemon, before=before: site.refused(daemon, "handshake") >= before + 3, 10, f"{daemon} to count three handshakes")
        check("certificate has expired" in site.processes.log(daemon), f"{daemon}: an expired certificate is not in the log")
    print("an expired certificate, a stranger's and plain HTTP are refused, logged and counted")


def certificates_are_replaced_without_a_restart(site):
    for daemon, words in (("controller", ("controller", "c1", "--address", "127.0.0.1,localhost")), ("agent", ("agent", "localhost"))):
        old = site.shown_serial(daemon)
        site.pki("issue", *words)
        new = site.shown_serial(daemon)
        check(new and new != old, f"{daemon} shows {new!r} after {old!r}")
        site.expect(200, daemon, "/metrics", who="viewer-prometheus")
    print("replaced certificates are shown without a restart")


def tokens_are_replaced_without_a_restart(site):
    old, site.viewer = site.viewer, secrets.token_hex(32)
    site.processes.write("viewer.tokens", f"{site.viewer}\n", 0o600)
    for daemon in site.http:
        site.expect(401, daemon, "/metrics", *bearer(old))
        site.expect(200, daemon, "/metrics", *bearer(site.viewer))
    os.chmod(site.viewer_file, 0o644)
    site.expect(401, "controller", "/metrics", *bearer(site.viewer))
    done = subprocess.run([*site.command, "--http", "127.0.0.1:0"], capture_output=True, text=True, timeout=30, check=False)
    check(done.returncode != 0 and "mode 0644, expected 0600 or less" in done.stderr, f"it starts with tokens that all can read: {done}")
    os.chmod(site.viewer_file, 0o600)
    print("replaced tokens count without a restart, and those that others can read do not")


def prometheus_scrapes(site):
    if not shutil.which("prometheus"):
        print("no prometheus: its scrape over TLS is not tried")
        return
    text = (pathlib.Path(os.environ["WEFT_SOURCE"]) / "dashboards" / "prometheus.yml").read_text(encoding="utf-8")
    for old, new in (("controller.example:7080", site.http["controller"].removeprefix("https://")), ("scrape_interval: 5s", "scrape_interval: 250ms"),
                     ("'host-1.example:9464', 'host-2.example:9464'", f"'{site.http['agent'].removeprefix('https://')}'"),
                     ("/etc/prometheus/weft/", f"{site.folder}/")):
        check(old in text, f"dashboards/prometheus.yml has no {old!r} any more")
        text = text.replace(old, new)
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    site.processes.start("prometheus", ["prometheus", f"--config.file={site.processes.write('prometheus.yml', text)}",
                                        f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={site.processes.path('data')}", "--log.level=warn"])

    def healths():
        try:
            targets = Prometheus(url).get("targets", state="active")["activeTargets"]
        except Exception:  # it is starting
            return False
        return [target["health"] for target in targets] == ["up", "up"] or False
    wait_until(healths, 40, "Prometheus to scrape both over TLS")
    site.processes.stop("prometheus")
    print("Prometheus scrapes both with the example's configuration")


def without_tls_it_is_open_and_says_so(site):
    ready = site.processes.start_ready("open", [BIN / "weft-controller", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"])
    port = ready["http"].rsplit(":", 1)[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        check(answer.status == 200, "plain HTTP does not answer")
    check("tls is not set: who reaches 0.0.0.0:0 may read everything" in site.processes.log("open"), site.processes.log("open"))
    site.processes.stop("open")
    print("without TLS everybody reads, and the log says so")


def main():
    if not shutil.which("curl"):
        skip("curl", "no curl: install the packages of deploy/packages.txt")
    with Processes("weft-http-") as processes:
        site = Site(processes)
        viewers_read(site)
        others_do_not(site)
        changes_need_an_operator(site)
        certificates_are_judged(site)
        certificates_are_replaced_without_a_restart(site)
        tokens_are_replaced_without_a_restart(site)
        prometheus_scrapes(site)
        without_tls_it_is_open_and_says_so(site)
        processes.stop("agent")
        check(processes.stop("controller") == 0, "the controller did not end well")
    return 0


if __name__ == "__main__":
    run_test(main)
