#!/usr/bin/env python3
"""weft calibrate: a file of constants that weft plan, a cluster's `calibration` and weft validate take; and what they refuse."""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["WEFT_SOURCE"], "tests", "support"))
from processes import free_ports  # noqa: E402

BIN = pathlib.Path(os.environ["WEFT_BIN"])
CLUSTER = """version: 1
name: one core
nodes: 1
gpus_per_node: 2
device: cpu
intra_node_rate: 4GB/s
nic_rate: 10Gbit/s
intra_latency: 40us
"""
MODEL = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4,
         "intermediate_size": 256, "vocab_size": 256, "max_position_embeddings": 128, "tie_word_embeddings": False}


def run(*arguments, status=0):
    done = subprocess.run([str(BIN / "weft"), *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != status:
        raise AssertionError(f"weft {' '.join(map(str, arguments))}: ended with {done.returncode}: {done.stderr}")
    return done


def iteration(model, cluster, *more):
    done = run("plan", model, "--cluster", cluster, "--global-batch", 8, "--seq", 64, "--gpus", 1, "--precision", "fp32",
               "--framework", "weft-train", "--output", "json", *more)
    return json.loads(done.stdout)["plans"][0]["predicted"]["iteration_s"]


def constants(text):
    return {name: float(value) for name, value in re.findall(r"name: (\S+), value: ([^,]+),", text)}


def check_refused(folder, model, cluster, good):
    def changed(pattern, replacement):
        text = re.sub(pattern, replacement, good, count=1)
        assert text != good, pattern
        path = folder / "changed.yaml"
        path.write_text(text)
        return path

    cases = [(r"gpu\.cpu\.gemm16", "gpu.cpu.gem16", "gpu.cpu.gem16: no such constant"),
             (r"gpu\.cpu\.gemm16", "gpu.abacus.gemm16", "gpu.abacus.gemm16: no such constant"),
             (r"(gpu\.cpu\.gemm16, value: )[^,]+(, least: )[^,]+(, most: )[^,]+", r"\g<1>99\g<2>0\g<3>100",
              "gpu.cpu.gemm16: value 99, expected 0.01 to 8"),
             (r"fitted: true", "fitted: true, colour: red", "colour"),
             (r"^version: 1", "version: 1\nother: 2", "other: unknown key")]
    for pattern, replacement, piece in cases:
        path = changed(pattern, replacement)
        for arguments in (("--cluster", cluster, "--calibration", path), ("--cluster", folder / "with.yaml")):
            said = run("plan", model, *arguments, "--global-batch", 8, "--seq", 64, status=2).stderr
            assert piece in said and "changed.yaml" in said and len(said.splitlines()) == 1, f"{piece}: {said}"
    run("plan", model, "--cluster", cluster, "--calibration", folder / "missing.yaml", "--global-batch", 8, "--seq", 64, status=2)
    for arguments, piece in ((("--link", "local"), "--cluster"), (("--rank", 1), "--link"), (("--duration", "2h"), "hour"),
                             (("--threads", 0), "--threads")):
        assert piece in run("calibrate", *arguments, status=2).stderr, arguments


def check_written_or_said(wanted, measured, said):
    """Out of the range that predictions take is a machine's, and not this program's, fault."""
    for constant in wanted:
        assert constant in measured or f"{constant} left out" in said, f"{constant} is neither written nor left out: {said}"


def check_two_ranks(folder, cluster):
    """Two processes, as on two machines: rank 0 writes the link's constants, rank 1 nothing."""
    out, link = folder / "link.yaml", f"127.0.0.1:{free_ports(1)[0]}"
    other = subprocess.Popen([str(BIN / "weft"), "calibrate", "--link", link, "--rank", "1", "--cluster", str(cluster), "--out",
                              str(folder / "none.yaml")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = run("calibrate", "--duration", "0.2s", "--link", link, "--rank", 0, "--cluster", cluster, "--out", out).stderr
        heard = other.communicate(timeout=60)[0]
    finally:
        other.kill()
    assert other.returncode == 0 and not (folder / "none.yaml").exists(), heard
    assert "a message" in said and link in said, said
    check_written_or_said(("link.nic.efficiency", "link.nic.shared", "link.nic.steps"), constants(out.read_text()), said)
    assert "link.nic.shared" in out.read_text(), said


def seconds_on_processor(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check_no_memory():
    """No more of it than there is once it measures: one line, and no signal."""
    process = subprocess.Popen([str(BIN / "weft-torch"), "calibrate", "--seconds", "20"], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    try:
        while process.poll() is None and seconds_on_processor(process.pid) < 3:
            time.sleep(0.02)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (1 << 20, 1 << 20))
        said = process.communicate(timeout=100)[1]
    finally:
        process.kill()
    one = len(said.splitlines()) == 1
    assert process.returncode == 1 and "measuring this machine: " in said and one, f"{process.returncode}: {said}"


def main():
    if not (BIN / "weft-torch").exists():
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model, cluster, out = folder / "model.json", folder / "cluster.yaml", folder / "measured.yaml"
        model.write_text(json.dumps(MODEL))
        cluster.write_text(CLUSTER)
        said = run("calibrate", "--duration", "1s", "--link", "local", "--cluster", cluster, "--out", out).stderr
        good = out.read_text()
        measured = constants(good)
        missing = {"gpu.cpu.gemm16", "gpu.cpu.memory", "gpu.cpu.launch"} - set(measured)
        assert not missing, f"{missing} not written: {said}"
        check_written_or_said(("gpu.cpu.ramp_depth", "gpu.cpu.flash", "gpu.cpu.flash_ramp", "host.kernel", "link.cpu.efficiency",
                               "link.cpu.latency"), measured, said)
        # The constants are what is planned by, whichever way they come, and more of them is faster.
        before = iteration(model, cluster)
        by_option = iteration(model, cluster, "--calibration", out)
        assert by_option != before, "the calibration changes nothing"
        (folder / "with.yaml").write_text(CLUSTER + "calibration: changed.yaml\n")
        (folder / "changed.yaml").write_text(good)
        assert iteration(model, folder / "with.yaml") == by_option, "a cluster's calibration is not that of the option"
        slow = re.sub(r"(gpu\.cpu\.gemm16, value: )[^,]+", r"\g<1>0.01", good)
        (folder / "changed.yaml").write_text(slow)
        assert iteration(model, folder / "with.yaml") > 2 * by_option, "a processor of a hundredth of its rate is not slower"
        check_refused(folder, model, cluster, good)
        check_two_ranks(folder, cluster)
        check_no_memory()
        print(", ".join(f"{key} {value:.4g}" for key, value in sorted(measured.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
