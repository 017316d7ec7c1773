"""Data-parallel training as users start it: it follows one process, goes on with another number of processes, and
leaves what one process leaves."""

import signal
import sys

import harness
from harness import MASKS, SMALL, Processes, finish, log_of, start, start_ranks, steps_of, wait_for


class Training(Processes):
    def test_two_and_four_follow_one(self):
        one = self.folder / "one"
        self.good(start(["train", *SMALL, "--out", one]))
        for count in (2, 4):
            run = self.folder / str(count)
            out = self.good(start(["launch", "-n", str(count), "train", *SMALL, "--out", run]))
            self.follows(one, run)
            # One writer and one voice.
            self.assertEqual(out.count("best top-1"), 1, out)
            self.assertIn(f"{count} processes train together", out)
            self.assertEqual(sorted(path.name for path in run.iterdir() if "tfevents" not in path.name),
                             sorted(path.name for path in one.iterdir() if "tfevents" not in path.name))
            epochs = [line for line in log_of(run) if line["kind"] == "epoch"]
            for mine, theirs in zip(epochs, (line for line in log_of(one) if line["kind"] == "epoch")):
                self.assertAlmostEqual(mine["test_loss"], theirs["test_loss"], delta=1e-5)

    def test_goes_on_with_another_number(self):
        whole, run = self.folder / "whole", self.folder / "run"
        self.good(start(["train", *SMALL, "--out", whole]))
        stopped = start(["launch", "-n", "2", "train", *SMALL, "--out", run])
        wait_for(lambda: steps_of(run) >= 3)
        stopped.send_signal(signal.SIGTERM)
        code, out, err = finish(stopped, 60)
        if code != 0:  # else it was quicker
            self.assertEqual(code, 130, err)
            self.assertIn("go on with", out)
        self.good(start(["launch", "-n", "3", "train", "--resume", run]))
        self.follows(whole, run)

    def test_masks_follow_one_process(self):
        one = self.folder / "one"
        self.good(start(["train", *MASKS, "--out", one]))
        for count in (2, 3):
            run = self.folder / str(count)
            out = self.good(start(["launch", "-n", str(count), "train", *MASKS, "--out", run]))
            self.assertEqual(out.count("best mean IoU"), 1, out)
            self.follows(one, run)
            self.same_masks(one, run)

    def test_masks_go_on_with_another_number(self):
        whole, run = self.folder / "whole", self.folder / "run"
        self.good(start(["train", *MASKS, "--out", whole]))
        ranks = start_ranks([["train", *MASKS, "--checkpoint-steps", "1", "--out", run]] * 3)
        wait_for(lambda: steps_of(run) >= 3)
        ranks[0].send_signal(signal.SIGTERM)
        for process in ranks:
            code, out, err = finish(process, 60)
            self.assertIn(code, (0, 130), out + err)  # 0: it was quicker
        self.good(start(["launch", "-n", "2", "train", "--resume", run]))
        self.follows(whole, run)
        self.same_masks(whole, run)

    def same_masks(self, run, other):
        """A pixel or two may lie so near a boundary that a last digit decides."""
        one, two = ([line for line in log_of(path) if line["kind"] == "epoch"] for path in (run, other))
        for mine, theirs in zip(one, two, strict=True):
            self.assertAlmostEqual(mine["test_loss"], theirs["test_loss"], delta=1e-5)
            for figure in ("mean_iou", "boundary_f1", "pixel_accuracy"):
                self.assertAlmostEqual(mine[figure], theirs[figure], delta=2e-3)

    def test_the_same_batch_needs_an_image_for_each(self):
        for process in start_ranks([["train", *SMALL, "--batch-size", "1", "--out", self.folder / "run"]] * 2):
            self.sentence(process, "cannot be shared out over 2 processes")

    def test_one_process_alone_is_none_of_several(self):
        out = self.good(start(["launch", "-n", "1", "train", *SMALL, "--epochs", "1", "--out", self.folder / "run"]))
        self.assertNotIn("processes train together", out)


if __name__ == "__main__":
    harness.main()
