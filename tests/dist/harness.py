"""What the tests of several processes share: starting the program as ranks, by hand or by a launcher."""

import json
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = None  # set by main()
# A machine that is busy with other things must not fail a test; a hang still does.
PATIENCE = float(os.environ.get("SAPE2_TEST_PATIENCE", "1"))

# 20 steps of a very small model with everything that a batch can have.
SMALL = ["--data", "shapes", "--train-images", "160", "--test-images", "40", "--image-size", "16", "--patch-size", "4",
         "--depth", "2", "--width", "24", "--heads", "2", "--encoding", "sape2-rel-k", "--batch-size", "16",
         "--epochs", "2", "--log-steps", "1", "--learning-rate", "1e-3", "--stochastic-depth", "0.2",
         "--mixup-alpha", "0.8", "--flip", "true", "--crop-padding", "2", "--clip-norm", "1", "--ema-decay", "0.9"]

# The same for segmentation, whose augmentation leaves pixels that are not counted.
MASKS = ["--task", "segmentation", *SMALL, "--mixup-alpha", "0", "--scale-low", "0.7", "--scale-high", "1.4",
         "--colour-jitter", "0.2"]


def free_port():
    """Out of the range from which systems choose ports themselves, so that nobody takes it meanwhile."""
    while True:
        port = random.randrange(20000, 30000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def environment(**variables):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "SLURM_", "OMPI_", "PMI_", "TORCHELASTIC_"))}
    kept.update({"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"})
    kept.update({name: str(value) for name, value in variables.items()})
    return kept


def start(arguments, wrapper=(), **variables):
    """The program, or a launcher with it, as a process of its own."""
    return subprocess.Popen([*wrapper, PROGRAM, *map(os.fspath, arguments)], env=environment(**variables),
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_ranks(commands, port=None, address="127.0.0.1", **variables):
    """One process a command, rank by rank."""
    port = port or free_port()
    return [start(command, RANK=rank, WORLD_SIZE=len(commands), LOCAL_RANK=rank, LOCAL_WORLD_SIZE=len(commands),
                  MASTER_ADDR=address, MASTER_PORT=port, **variables) for rank, command in enumerate(commands)]


def finish(process, seconds):
    """Code, output and errors; a process that takes longer hangs."""
    try:
        out, err = process.communicate(timeout=seconds * PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"hangs: not done after {seconds * PATIENCE:.0f} s; {out[-500:]} {err[-1500:]}") from None
    return process.returncode, out, err


def children_of(process):
    """Processes of a launcher, by rank."""
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) != process.pid:
            continue
        for variable in variables:
            if variable.startswith(b"RANK="):
                found[int(variable[5:])] = int(folder.name)
    return found


def log_of(run):
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def losses_of(run):
    return [line["loss"] for line in log_of(run) if line["kind"] == "step"]


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds * PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("what is waited for does not come")
        time.sleep(0.02)


def steps_of(run):
    """Steps that a run has logged so far."""
    log = run / "log.jsonl"
    return log.read_text().count('"kind":"step"') if log.exists() else 0


class Processes(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="sape2-dist-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def good(self, process, seconds=120):
        code, out, err = finish(process, seconds)
        self.assertEqual(code, 0, out + err)
        return out

    def sentence(self, process, *parts, seconds=60):
        """The end of a process that failed with one sentence."""
        code, out, err = finish(process, seconds)
        self.assertNotEqual(code, 0, out)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("sape2: "), err)
        for part in parts:
            self.assertIn(part, err)
        return err

    def follows(self, run, other):
        """Losses within 1e-5 of each other's."""
        one, two = losses_of(run), losses_of(other)
        self.assertEqual(len(one), len(two))
        self.assertGreaterEqual(len(one), 20)
        self.assertLess(max(abs(a - b) for a, b in zip(one, two)), 1e-5)

    def same_weights(self, run, other):
        for name in ("best.safetensors", "last.safetensors"):
            self.assertEqual((run / name).read_bytes(), (other / name).read_bytes(), name)


def main():
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    sys.modules["harness"].PROGRAM = PROGRAM
    unittest.main()
