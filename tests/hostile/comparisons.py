"""Comparisons by several processes that are killed at random: the figures are those of one that was left alone."""

import json
import os
import signal
import subprocess
import time

from harness import Failure, Result, check_end

COMPARE = ["compare", "--encodings", "ape,sape2-rel-k", "--data", "shapes", "--train-images", "80", "--test-images", "16",
           "--depth", "1", "--width", "16", "--heads", "1", "--mlp-ratio", "1", "--batch-size", "8", "--epochs", "2",
           "--warmup-epochs", "0", "--checkpoint-steps", "2", "--log-steps", "1", "--seeds", "2", "--baseline", "ape",
           "--tune", "learning-rate=1e-3,3e-3", "--tune-epochs", "1"]
JOBS = ["--threads", "2", "--jobs", "2"]


def figures(out):
    """All that the training decides, of every trial and every run."""
    with open(os.path.join(out, "results.json"), encoding="utf-8") as file:
        results = json.load(file)
    if not results["finished"]:
        raise Failure("a comparison that ended with exit code 0 says that it is not finished")
    return [[row["encoding"], row["chosen"], row["trials"],
             [[run["seed"], run["top-1"], run["loss"], run["epochs"]] for run in row["runs"]]] for row in results["rows"]]


def children(parent):
    """The processes that `parent` started, by Linux's own list."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


class Comparisons:
    name = "comparisons"
    quick = 2

    def __init__(self, context):
        self.context = context
        whole = os.path.join(context.folder, "compared")
        before = time.monotonic()
        result = context.program.run([*COMPARE, "--threads", "1", "--out", whole], context.folder, seconds=120)
        self.duration = time.monotonic() - before
        if result.code != 0:
            raise Failure(f"the comparison itself fails: {result.shown()}")
        self.whole = figures(whole)

    def case(self, random, _number, folder):
        """Killed, or one of its processes killed, again and again; then left alone."""
        out = os.path.join(folder, "out")
        for _ in range(random.randint(1, 3)):
            self.disturbed(random, [*COMPARE, *JOBS, "--out", out], folder)
        result = self.context.program.run([*COMPARE, *JOBS, "--out", out], folder, seconds=120)
        if result.code != 0:
            raise Failure(f"a killed comparison does not go on: {result.shown()}")
        if figures(out) != self.whole:
            raise Failure("the figures are not those of a comparison that was left alone")
        return 1

    def disturbed(self, random, arguments, folder):
        process = self.context.program.start(arguments, folder)
        time.sleep(random.uniform(0.05, 0.8) * self.duration)
        beside = children(process.pid)
        how = random.choice(["all", "parent", "companion", "asked"])
        if how == "companion" and beside:
            os.kill(random.choice(beside), signal.SIGKILL)
            self.end(process, arguments, seconds=120)  # the others do its part
            return
        if how == "all":
            for one in beside:
                os.kill(one, signal.SIGKILL)
        process.send_signal(random.choice([signal.SIGTERM, signal.SIGINT]) if how == "asked" else signal.SIGKILL)
        self.end(process, arguments, seconds=30)
        self.wait_for_companions(beside)

    def end(self, process, arguments, seconds):
        try:
            out, err = process.communicate(timeout=seconds * self.context.program.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure("a comparison does not end") from None
        if process.returncode not in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
            check_end(Result(arguments, process.returncode, out, err))

    def wait_for_companions(self, beside):
        """Nobody trains on once the process that was started by hand is gone."""
        deadline = time.monotonic() + 30 * self.context.program.patience
        while any(os.path.exists(f"/proc/{one}/exe") for one in beside):
            if time.monotonic() > deadline:
                raise Failure("a process goes on after the one that started it was killed")
            time.sleep(0.02)
