"""Words of other strategies to a run of weft-train: followed by all ranks in memory, or refused while training goes on.

The agent's part is played here, message for message, so that words can be wrong in ways that no controller would send; with the
real daemons it is tests/system/reshard_test.py. Losses against one process of plain LibTorch (fp32, relative 1e-4).
"""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..")]

from weft_train import PLUGIN, PROGRAM, TEXT, check, environment, losses  # noqa: E402
from processes import Processes, free_ports, run_test  # noqa: E402

SEQUENCE, BATCH, RANKS = 16, 8, 4
# Ranks meet twice a second, so how many steps all words take depends on the machine: twice as many until they are enough.
STEPS, MOST_STEPS = 600, 600 << 6
# Over all steps: so little that they do not make 1e-4 of the last bit that two orders of adding differ by.
LEARNT = 0.018
MODEL = {"model_type": "gpt2", "n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 64, "vocab_size": 256, "n_inner": 64,
         "activation_function": "gelu_new"}
CLUSTER = """version: 1
name: words
nodes: {nodes}
gpus_per_node: 1
device: cpu
device_memory: 4GiB
intra_node_rate: 1GB/s
nic_rate: 100Mbit/s
nic_latency: 100us
"""
MAGIC, VERSION, ENVIRONMENT_REPLY, STRATEGY_REQUEST = 0x54465741, 1, 5, 6
HEADER, REQUEST = struct.Struct("<IHHII"), struct.Struct("<64s64sQQdII200s")


class Agent:
    """Gives the next word once the last one was answered, and keeps the answers."""

    def __init__(self, run_dir, words):
        self.words, self.answers, self.iterations, self.at = words, [], [], 0
        os.makedirs(run_dir)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(os.path.join(run_dir, "agent.sock"))
        self.socket.listen(16)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            peer, _ = self.socket.accept()
            with peer:
                packet = peer.recv(4096)
                if len(packet) != HEADER.size + REQUEST.size:
                    continue  # the plugin's hello: it works without an agent
                _, _, kind, _, _ = HEADER.unpack(packet[:HEADER.size])
                job, _, epoch, digest, iteration, refused, _, reason = REQUEST.unpack(packet[HEADER.size:])
                check(kind == STRATEGY_REQUEST and job.rstrip(b"\0") == b"words", f"asked {kind} of {job}")
                check(0 <= iteration < 60, f"an iteration of {iteration} s")
                self.iterations.append(iteration)
                if epoch == self.at + 1:
                    self.answers.append((f"{digest:016x}", bool(refused), reason.rstrip(b"\0").decode()))
                    self.at += 1
                text = self.text().encode()
                reply = struct.pack("<II8184s", 1, len(text), text)
                peer.send(HEADER.pack(MAGIC, VERSION, ENVIRONMENT_REPLY, len(reply), 0) + reply)

    def text(self):
        if self.at >= len(self.words):
            return "WEFT_JOB_ID=words\n"  # nothing more is asked
        return f"WEFT_RESHARD=on\nWEFT_RESHARD_EPOCH={self.at + 1}\nWEFT_ARGUMENTS={self.words[self.at]}\n"


def emitted(folder, fix, ranks=RANKS):
    """The words of a strategy, as a controller hands them over."""
    cluster = os.path.join(folder, "cluster.yaml")
    with open(cluster, "w", encoding="utf-8") as out:
        out.write(CLUSTER.format(nodes=ranks))
    ran = subprocess.run([os.path.join(os.environ["WEFT_BIN"], "weft"), "plan", os.path.join(folder, "model.json"), "--cluster",
                          cluster, "--global-batch", str(BATCH), "--seq", str(SEQUENCE), "--precision", "fp32", "--framework",
                          "weft-train", "--fix", fix, "--emit", "weft-train"], capture_output=True, text=True, timeout=60,
                         check=False)
    check(ran.returncode == 0, f"weft plan {fix}: {ran.stderr}")
    return " ".join(line for line in ran.stdout.splitlines() if not line.startswith("#")).split()


def digest_of(words):
    return words[words.index("--program-digest") + 1]


def changed(words, flag, value):
    return [value if at > 0 and words[at - 1] == flag else word for at, word in enumerate(words)]


def train(processes, name, words, world, run_dir, steps):
    command = [PROGRAM, *words, "--config", os.path.join(processes.folder, "model.json"), "--data", TEXT, "--steps", str(steps),
               "--lr", f"{LEARNT / steps:.9f}", "--clip", "1", "--output", "json", "--world", str(world), "--stall-timeout", "60s",
               "--job", "words"]
    if world > 1:
        command += ["--rendezvous", f"127.0.0.1:{free_ports(1)[0]}", "--plugin", PLUGIN]
    variables = {**environment(), "WEFT_RUN_DIR": run_dir, **({"WEFT_RESHARD": "on"} if run_dir else {})}
    children = [processes.start(f"{name}-rank{rank}", [*command, "--rank", str(rank)], env=variables, stdout_pipe=rank == 0)
                for rank in range(world)]
    output, _ = children[0].communicate(timeout=400)
    for rank, child in enumerate(children):
        status = child.wait(60)
        check(status == 0, f"{name}: rank {rank} ended with {status}: {processes.log(f'{name}-rank{rank}')}")
    return [json.loads(line) for line in output.splitlines()]


def run_until_answered(processes, folder, data, words):
    """What the agent heard, and what rank 0 printed, of a run that was long enough for all words; its steps."""
    steps = STEPS
    while True:
        run_dir = os.path.join(folder, f"run{steps}")
        agent = Agent(run_dir, [" ".join(text) for text, _ in words])
        lines = train(processes, f"words{steps}", data, RANKS, run_dir, steps)
        if len(agent.answers) == len(words):
            return agent, lines, steps
        check(steps < MOST_STEPS, f"{len(agent.answers)} words of {len(words)} were answered in {steps} steps: {agent.answers}")
        steps *= 2


def words_are_followed_or_refused(processes, folder):
    data = emitted(folder, "dp=4,zero_stage=3")
    pipeline = emitted(folder, "dp=2,pp=2,tp=1,zero_stage=1")
    tensor = emitted(folder, "tp=2,dp=2,pp=1,zero_stage=0")
    words = [(changed(pipeline, "--program-digest", "0123456789abcdef"), "this model's program has"),
             (emitted(folder, "dp=2,pp=1", 2), "made for 2 ranks, this run has 4"),
             (pipeline, None),
             (["--resume", "/tmp/elsewhere"], 'word "--resume"'),
             (changed(tensor, "--seq", "32"), "sequences of 32, expected the 8 of 16"),
             (tensor, None),
             (tensor, None),  # what runs already
             (data, None)]
    agent, lines, steps = run_until_answered(processes, folder, data, words)
    runs = digest_of(data)
    for (text, why), (digest, refused, reason) in zip(words, agent.answers, strict=True):
        check(refused == (why is not None), f"{text}: refused {refused}: {reason}")
        runs = runs if refused else digest_of(text)
        check(digest == runs, f"{text}: {digest} runs, expected {runs}")
        check(why is None or why in reason, f"{text}: {reason}, expected {why}")
    check(max(agent.iterations) > 0, "no iteration was told")
    refusals = [line["reshard_refused"] for line in lines if "reshard_refused" in line]
    check([r["epoch"] for r in refusals] == [1, 2, 4, 5], f"refused: {refusals}")
    changes = [line["reshard"] for line in lines if "reshard" in line]
    check([c["strategy"].split()[0] for c in changes] == ["dp=2", "dp=2", "dp=4"] and len(changes) == 3, f"changes: {changes}")
    for change in changes:
        check(change["sent_bytes"] == change["planned_bytes"], f"not what was planned: {change}")
    check([line["step"] for line in lines if "step" in line] == list(range(steps)), "steps were lost")
    for volume in lines[-1]["summary"]["volumes"]:
        check(volume["planned_bytes"] == volume["sent_bytes"], f"{volume}")
    planned = ("--strategy", data[data.index("--strategy") + 1], "--program-digest", digest_of(data))
    plain = [word for word in data if word not in planned]
    expected = losses(train(processes, "plain", plain, 1, "", steps))
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses(lines), expected, strict=True))
    check(worst < 1e-4, f"losses differ by {worst:.3g}")
    print(f"{len(changes)} words followed, {len(refusals)} refused, {steps} steps, losses within {worst:.1e}; changes took "
          f"{[round(1e3 * c['took_s']) for c in changes]} ms", flush=True)


def wrong_use_is_refused(processes, folder):
    data = emitted(folder, "dp=4,zero_stage=3")
    base = ["--config", os.path.join(folder, "model.json"), "--data", TEXT, "--steps", "2"]
    unplanned = ["--seq", "16", "--global-batch", "8"]
    for arguments, run_dir, why in (([*base, *unplanned, "--job", "words"], "/run/weft", "without a program"),
                                    ([*base, *data, "--world", "1", "--job", "words"], "/run/weft", "made for 4 ranks"),
                                    ([*base, *emitted(folder, "dp=1", 1)], "/run/weft", "expected --job"),
                                    ([*base, *emitted(folder, "dp=1", 1), "--job", "words"], "", "WEFT_RUN_DIR not empty")):
        variables = {**environment(), "WEFT_RUN_DIR": run_dir, "WEFT_RESHARD": "on"}
        ran = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False, env=variables)
        check(ran.returncode == 2 and why in ran.stderr, f"{arguments}: {ran.returncode}: {ran.stderr}")


def main():
    with Processes() as processes, tempfile.TemporaryDirectory() as folder:
        processes.folder = folder
        with open(os.path.join(folder, "model.json"), "w", encoding="utf-8") as out:
            json.dump(MODEL, out)
        for fact in (words_are_followed_or_refused, wrong_use_is_refused):
            fact(processes, folder)
            print(f"ok {fact.__name__}", flush=True)
    return 0


if __name__ == "__main__":
    run_test(main)
