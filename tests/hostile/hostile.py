#!/usr/bin/env python3
"""Hostile cases against the built program: damaged and forged models, images, masks and folders, requests, killed and
edited runs, wrong variables and foreign stores, killed comparisons, forged results, and wrong calls of operators. A case
fails if it crashes, hangs, loses data or gives a wrong answer with exit code 0.

A seed and a number make a case, so that every failure can be tried again. Without --minutes a fixed number of cases
is tried, which takes well under a minute on an idle machine. See README.md.
"""

import argparse
import functools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from comparisons import Comparisons
from harness import Failure, Program
from http_requests import Requests
from images import Images
from masks import Masks
from models import SMALL_TRAINING, Models, Segmenters
from operators import Operators
from processes import Processes
from results import Results
from runs import Runs

KINDS = (Operators, Models, Segmenters, Images, Masks, Requests, Runs, Processes, Comparisons, Results)


def parsed_arguments():
    names = [kind.name for kind in KINDS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the program, build/release/bin/sape2")
    parser.add_argument("--operators", help="build/release/tests/hostile_operators (default: beside the program)")
    parser.add_argument("--predict", help="build/release/bin/sape2-predict (default: beside the program, if it is there)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all cases (default: 1)")
    parser.add_argument("--minutes", type=float, help="go on for so long instead of a fixed number of cases")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="KIND", help=", ".join(names))
    parser.add_argument("--case", type=int, help="try this one case of the kind in --only")
    parser.add_argument("--patience", type=float, default=1,
                        help="stretch all limits of time and memory by this, for sanitized builds and busy machines")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the files of failed cases here")
    return parser.parse_args()


class Context:
    """What the kinds of cases share: the program, a small trained model, and a folder to work in."""

    def __init__(self, arguments, folder):
        self.program = Program(arguments.program, arguments.patience)
        beside = os.path.join(os.path.dirname(arguments.program), "..", "tests", "hostile_operators")
        self.operators = os.path.abspath(arguments.operators or beside)
        predict = arguments.predict or os.path.join(os.path.dirname(arguments.program), "sape2-predict")
        self.predict = Program(predict, arguments.patience) if os.path.exists(predict) else None
        self.seed, self.folder = arguments.seed, folder

    @functools.cached_property
    def model(self):
        """Trained when the first kind of cases asks for it."""
        return self.trained("model")

    @functools.cached_property
    def segmenter(self):
        """The same for segmentation."""
        return self.trained("segmenter", "--task", "segmentation")

    def trained(self, name, *options):
        run = os.path.join(self.folder, name)
        result = self.program.run(["train", *SMALL_TRAINING, *options, "--out", run], self.folder, seconds=60)
        if result.code != 0:
            raise Failure(f"a small model cannot be trained: {result.shown()}")
        return os.path.join(run, "last.safetensors")


class Attack:
    """One kind of cases, and what came of them."""

    def __init__(self, kind, context, keep):
        self.kind, self.context, self.keep = kind, context, keep
        self.cases = self.tried = self.failures = 0
        self.seconds = 0.0
        self.attempts = None

    def run(self, number):
        before = time.monotonic()
        folder = os.path.join(self.context.folder, f"{self.kind.name}-{number}")
        os.makedirs(folder, exist_ok=True)
        try:
            if self.attempts is None:
                self.attempts = self.kind(self.context)
            chance = random.Random(f"{self.context.seed}:{self.kind.name}:{number}")
            self.tried += self.attempts.case(chance, number, folder)
        except (Failure, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            self.fail(f"{self.kind.name} --case {number}", error)
            if self.keep:
                shutil.copytree(folder, os.path.join(self.keep, os.path.basename(folder)), symlinks=True,
                                dirs_exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        self.cases += 1
        self.seconds += time.monotonic() - before

    def fail(self, what, error):
        self.failures += 1
        text = str(error) if isinstance(error, Failure) else f"{type(error).__name__}: {error}"
        print(f"FAILED --seed {self.context.seed} --only {what}: {text}", flush=True)

    def finish(self):
        try:
            if hasattr(self.attempts, "finish"):
                self.attempts.finish()
        except Failure as error:
            self.fail(self.kind.name, error)


def attack(arguments, folder):
    context = Context(arguments, folder)
    attacks = [Attack(kind, context, arguments.keep) for kind in KINDS if kind.name in arguments.only]
    if arguments.case is not None:
        attacks[0].run(arguments.case)
    elif arguments.minutes is None:
        for each in attacks:
            for number in range(each.kind.quick):
                each.run(number)
    else:
        end = time.monotonic() + 60 * arguments.minutes
        while time.monotonic() < end:
            each = min(attacks, key=lambda one: one.seconds)  # the same time for every kind
            each.run(each.cases)
    for each in attacks:
        each.finish()
    for each in attacks:
        print(f"{each.kind.name:10} {each.cases:5} cases, {each.tried:7} attempts, {each.failures:3} failures, "
              f"{each.seconds:6.1f} s")
    return sum(each.failures for each in attacks)


def main():
    arguments = parsed_arguments()
    with tempfile.TemporaryDirectory(prefix="sape2-hostile-") as folder:
        failures = attack(arguments, folder)
    print(f"seed {arguments.seed}: " + (f"{failures} failures" if failures else "nothing crashed, hung, was lost or wrong"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
