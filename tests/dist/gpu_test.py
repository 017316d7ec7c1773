"""Processes that share one GPU, with sums by Gloo: NCCL refuses two ranks on one GPU. Skipped where there is none."""

import socket
import subprocess
import sys

import harness
from harness import MASKS, SMALL, Processes, start, start_ranks, steps_of, wait_for

SKIPPED = 77
ON_GPU = ["--device", "cuda", "--precision", "float32"]


class SharedGpu(Processes):
    def test_two_and_three_follow_one(self):
        for task, arguments in (("classes", SMALL), ("masks", MASKS)):
            one = self.folder / f"{task}-1"
            self.good(start(["train", *arguments, *ON_GPU, "--out", one]))
            for count in (2, 3):
                with self.subTest(task=task, processes=count):
                    run = self.folder / f"{task}-{count}"
                    out = self.good(start(["launch", "-n", str(count), "train", *arguments, *ON_GPU, "--out", run]))
                    self.assertIn("sums by Gloo", out)
                    self.follows(one, run)

    def test_one_that_is_killed_is_named(self):
        run = self.folder / "run"
        ranks = start_ranks([["train", *SMALL, *ON_GPU, "--epochs", "500", "--out", run]] * 2)
        wait_for(lambda: steps_of(run) >= 2)
        ranks[1].kill()
        ranks[1].communicate()
        self.sentence(ranks[0], f"rank 1 (host {socket.gethostname()}, process {ranks[1].pid})", "was killed")


def has_gpu(program):
    """Whether the program finds one; `sape2 info` says "no device" otherwise, or has no such line."""
    told = subprocess.run([program, "info"], capture_output=True, text=True, check=True).stdout
    return any(line.split()[:1] == ["CUDA"] and "no device" not in line for line in told.splitlines())


if __name__ == "__main__":
    if not has_gpu(sys.argv[1]):
        print("skipped: there is no GPU here")
        sys.exit(SKIPPED)
    harness.main()
