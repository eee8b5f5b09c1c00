#!/usr/bin/env python3
"""Calls that are sent again. What a relay on the way has recorded of an agent's and a submitter's TLS connections is sent to the
controller, and to its HTTP, once more, byte for byte: no handshake comes about, and nothing of the calls happens again. A submission that
is repeated by its submitter or by another one, and a registration of an agent's earlier life while its host has a session, are refused.
Each is logged and counted.
"""
import glob
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import Processes, check, run_test, skip, wait_until  # noqa: E402
from recording_relay import RecordingRelay, records  # noqa: E402
from roles_test import BIN, EXAMPLES, Site  # noqa: E402

ALERT, SEALED_ALERT_BYTES = 21, 2 + 1 + 16  # a record's type; with the type within and a tag
HANDSHAKE_FAILED = "no TLS handshake"


def lines_of_jobs(site):
    return [line for line in site.may("viewer-wall", "jobs").splitlines() if "mine" in line]


def recorded(site, call):
    """The bytes that `call` sends to the controller, by way of a relay."""
    relay, there = RecordingRelay(site.address), site.address
    site.address = relay.address
    try:
        call()
    finally:
        site.address = there
    sent = wait_until(lambda: [bytes(each) for each in relay.sessions if len(each) > 500], 10, "bytes of the call")
    return relay, max(sent, key=len)


def replay(site, relay, sent, what):
    """They are refused: at most the controller's own part of a new handshake comes back, whose keys nobody here has."""
    before, log = site.refused("handshake"), site.processes.log("controller").count(HANDSHAKE_FAILED)
    answer = relay.replay(sent)
    kinds = [kind for kind, _ in records(answer)]
    wait_until(lambda: site.refused("handshake") > before, 10, f"{what} sent again to be counted")
    wait_until(lambda: site.processes.log("controller").count(HANDSHAKE_FAILED) > log, 5, f"{what} sent again to be logged")
    print(f"ok: {what}, {len(sent)} bytes in {len(records(sent))} records sent again: {len(answer)} bytes back (records {kinds}), closed, "
          f"counted {site.refused('handshake') - before:.0f} times, logged", flush=True)


def submission_on_the_wire(site):
    job = site.processes.write("job.yaml", f"version: 1\nname: mine\nmodel: {EXAMPLES}/gpt2.json\nglobal_batch: 8\nsequence: 128\ngpus: 1\n"
                               "precision: fp32\n")
    relay, sent = recorded(site, lambda: site.may("submitter-slurm", "submit", job))
    check(len(lines_of_jobs(site)) == 1, "the job that was submitted by way of the relay is not there")
    site.may("submitter-slurm", "release", "mine")
    state = lines_of_jobs(site)
    replay(site, relay, sent, "a submission")
    replay(site, relay, sent, "a submission")
    check(lines_of_jobs(site) == state, f"before {state}, after {lines_of_jobs(site)}")
    relay.close()
    return job


def session_on_the_wire(site):
    """An agent's session, the host's registration with it; the agent is at the relay, and its own session stands meanwhile."""
    relay, sent = recorded(site, lambda: start_and_wait(site))
    joined = site.processes.log("controller").count("agent joined")
    replay(site, relay, sent, "an agent's session")
    check(site.processes.log("controller").count("agent joined") == joined, "the agent's session has been made once more")
    check("h1               connected" in site.may("viewer-wall", "topo"), "the host's session does not stand any more")
    return relay


def start_and_wait(site):
    """The agent's clock is an hour ahead, so that the number of its start is higher than that of one that starts later."""
    found = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not found:
        skip("fabric", "no faketime (package faketime), with which a clock is set")
    env = {**os.environ, "LD_PRELOAD": found[0], "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    site.processes.start_ready("agent", agent_command(site, "agent"), env=env)
    wait_until(lambda: "h1               connected" in site.weft("viewer-wall", "topo").stdout, 10, "the agent at the controller")
    time.sleep(1)  # some reports


def agent_command(site, name):
    return [BIN / "weft-agent", "--host", "h1", "--run-dir", site.processes.path("run-" + name), "--interfaces", "lo", "--controller", site.address,
            "--http", "127.0.0.1:0", *site.tls("agent-h1")]


def submission_of_the_same_job(site, job):
    site.may("submitter-other", "submit", job)
    state = lines_of_jobs(site)
    before = site.refused("replayed")
    for who in ("submitter-other", "submitter-slurm"):
        site.may_not(who, 'job "mine" exists already', "submit", job)
    check(site.refused("replayed") == before + 2, f"{site.refused('replayed') - before} repeated submissions are counted")
    check("exists already" in "".join(line for line in site.processes.log("controller").splitlines() if "refused a call" in line),
          "repeated submissions are not logged")
    check(lines_of_jobs(site) == state, f"before {state}, after {lines_of_jobs(site)}")
    site.may_not("submitter-slurm", 'job "mine" is not one of submitter "slurm"', "release", "mine")  # it is still the other's


def registration_of_an_earlier_life(site):
    """The same agent with its good certificate, whose number of its start is lower, as an old registration has it."""
    before = site.refused("replayed")
    site.processes.start_ready("earlier", agent_command(site, "earlier"))
    wait_until(lambda: site.refused("replayed") > before, 15, "the old registration to be counted")
    check("is open" in "".join(line for line in site.processes.log("controller").splitlines() if "refused a call" in line),
          "an old registration is not logged")
    check("h1               connected" in site.may("viewer-wall", "topo"), "the host's session does not stand any more")
    check(site.processes.log("controller").count("agent joined host=h1") == 1, "the session that stood was replaced")
    site.processes.stop("earlier")
    print("ok: a registration of an earlier start of the agent")


def request_of_http(site):
    """An operator's request, as s_client sends it by way of a relay."""
    relay = RecordingRelay(site.http)
    done = subprocess.run(["openssl", "s_client", "-connect", relay.address, "-CAfile", f"{site.folder}/ca.pem", "-cert",
                           f"{site.folder}/operator-ann.pem", "-key", f"{site.folder}/operator-ann.key", "-quiet", "-ign_eof"],
                          input=b"GET /api/v1/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", capture_output=True, timeout=30, check=False)
    check(b"200 OK" in done.stdout, f"the request that is recorded: {done.stdout[:200]} {done.stderr[:200]}")
    before = site.refused("handshake")
    answer = relay.replay(bytes(relay.sessions[0]))
    last = records(answer)[-1]
    check(last[0] == ALERT or len(last[1]) == SEALED_ALERT_BYTES, f"a request sent again: {answer[-80:]}")
    wait_until(lambda: site.refused("handshake") > before, 10, "a request sent again to be counted")
    print(f"ok: a request of HTTP, {len(relay.sessions[0])} bytes sent again")


def main():
    with Processes("weft-replay-") as processes:
        site = Site(processes)
        job = submission_on_the_wire(site)
        relay = session_on_the_wire(site)
        submission_of_the_same_job(site, job)
        registration_of_an_earlier_life(site)
        request_of_http(site)
        processes.check_alive()
        processes.stop("agent")
        relay.close()
        check(processes.stop("controller") == 0, "the controller did not end well")
    return 0


if __name__ == "__main__":
    run_test(main)
