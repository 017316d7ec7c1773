"""Runs of a comparison shared out over processes, with a common folder and without; one of them may be lost."""

import json
import sys

import harness
from harness import SMALL, Processes, start, start_ranks, wait_for

COMMON = list(SMALL)
del COMMON[SMALL.index("--encoding"):SMALL.index("--encoding") + 2]
COMPARE = ["compare", "--encodings", "ape,none", "--seeds", "2", *COMMON, "--epochs", "1", "--log-steps", "5"]


def figures(folder):
    rows = json.loads((folder / "results.json").read_text())["rows"]
    return {(row["encoding"], run["seed"]): (run["top1"], run["loss"]) for row in rows for run in row["runs"]}


class Comparison(Processes):
    def test_shared_out_with_and_without_a_common_folder(self):
        one, both = self.folder / "one", self.folder / "both"
        self.good(start([*COMPARE, "--out", one]))
        out = self.good(start(["launch", "-n", "2", *COMPARE, "--out", both]))
        self.assertEqual(out.count("report.html"), 1, out)
        self.assertEqual(figures(one), figures(both))
        apart = [self.folder / "a", self.folder / "b"]
        for process in start_ranks([[*COMPARE, "--out", folder] for folder in apart]):
            self.good(process)
        trained = [sum(1 for _ in folder.glob("runs/*/*/config.json")) for folder in apart]
        self.assertEqual(sum(trained), 4, "each run is trained once")
        for folder in apart:
            self.assertEqual(figures(folder), figures(one))

    def test_runs_of_a_lost_process_are_taken_over(self):
        out = [self.folder / "a", self.folder / "b"]
        longer = [*COMPARE, "--epochs", "12"]
        ranks = start_ranks([[*longer, "--out", folder] for folder in out], SAPE2_SILENCE_SECONDS=3)
        wait_for(lambda: any((out[1] / "runs").glob("*/*/log.jsonl")))
        ranks[1].kill()
        ranks[1].communicate()
        self.good(ranks[0], 200)
        self.assertEqual(len(figures(out[0])), 4)

    def test_jobs_are_for_one_process(self):
        for process in start_ranks([[*COMPARE, "--jobs", "2", "--out", self.folder / "run"]] * 2):
            self.sentence(process, "--jobs is for one process, but a launcher started 2")


if __name__ == "__main__":
    harness.main()
