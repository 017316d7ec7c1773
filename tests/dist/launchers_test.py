"""torchrun, srun and mpirun: by their variables, and torchrun itself where Python has torch."""

import os
import shutil
import signal
import sys

import harness
from harness import SMALL, Processes, children_of, finish, free_port, start, steps_of, wait_for

TORCHRUN = shutil.which("torchrun")


class Launchers(Processes):
    def launched(self, variables):
        """Two ranks with those variables of a launcher follow one process."""
        one, run = self.folder / "one", self.folder / "run"
        self.good(start(["train", *SMALL, "--out", one]))
        ranks = [start(["train", *SMALL, "--out", run], **variables(rank)) for rank in (0, 1)]
        for rank in ranks:
            self.good(rank)
        self.follows(one, run)

    def test_slurm(self):
        job = os.getpid()
        self.launched(lambda rank: dict(SLURM_PROCID=rank, SLURM_STEP_NUM_TASKS=2, SLURM_LOCALID=rank,
                                        SLURM_STEP_TASKS_PER_NODE=2, SLURM_STEP_NODELIST="localhost", SLURM_JOB_ID=job))

    def test_mpirun(self):
        job = f"prterun-{os.getpid()}"
        self.launched(lambda rank: dict(OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE=2, PMIX_NAMESPACE=job,
                                        OMPI_COMM_WORLD_LOCAL_RANK=rank, OMPI_COMM_WORLD_LOCAL_SIZE=2))

    def test_torchrun_starts_again_from_the_last_checkpoint(self):
        if not TORCHRUN:
            self.skipTest("torchrun is not installed")
        whole, run = self.folder / "whole", self.folder / "run"
        command = ["train", *SMALL, "--epochs", "6", "--checkpoint-steps", "1"]
        self.good(start(["launch", "-n", "2", *command, "--out", whole]))
        # Static: torchrun itself keeps the store, and rank 0 must not.
        wrapper = [TORCHRUN, "--nproc_per_node", "2", "--max_restarts", "3", "--master_addr", "127.0.0.1",
                   "--master_port", str(free_port()), "--no_python"]
        launcher = start([*command, "--out", run], wrapper)
        wait_for(lambda: steps_of(run) >= 3 and len(children_of(launcher)) == 2, 120)
        os.kill(children_of(launcher)[1], signal.SIGKILL)
        code, out, err = finish(launcher, 200)
        self.assertEqual(code, 0, out + err)
        self.assertIn("going on after step", out)
        self.same_weights(whole, run)

    def test_launch_says_what_it_misses(self):
        for arguments, part in ((["launch", "-n", "2"], "needs a command"),
                                (["launch", "-n", "2", "--machines", "2", "train"], "--meet HOST:PORT"),
                                (["launch", "-n", "2", "--machine", "1", "train"], "numbers begin at 0"),
                                (["launch", "-n", "2", "--meet", "here", "train"], "expected HOST:PORT"),
                                (["launch", "-n", "2", "launch", "-n", "2"], "has no use for")):
            self.sentence(start(arguments), part)
        code, _, err = finish(start(["launch", "-n", "2", "train", "--no-such-option"]), 60)
        self.assertEqual(code, 2, err)
        self.assertEqual(err.count("no-such-option"), 2, err)


if __name__ == "__main__":
    harness.main()
