"""results.json of other machines, damaged or forged, and grids of a tuning that nobody can mean."""

import copy
import json
import os
import shutil

from harness import Failure, check_no_wild_numbers, check_sentence, mutated
from models import SMALL_TRAINING

HERE = os.path.dirname(os.path.abspath(__file__))
PUBLISHED = os.path.join(HERE, "..", "..", "results", "encodings")
REPORTS = {"results.json", "report.html", "table.md"}
WILD = [0, -1, 7, 101, 10**6, 2**31, 2**53 + 1, 10**18, 2**63, 2**64 - 1, 2**64, -2**63, 1e17, 1e300, -1e308, 1e-320, 0.5,
        None, True, "", "16", "nan", "1e999", "\x1b]0;title\x07\x1b[31m", "<script>alert(1)</script>", "../../../../etc/passwd",
        "a|b\n\n# c", "\u202e", "x" * 100_000, [], {}, [[]], [0] * 300, {"a": {"b": {"c": {}}}}]
PIECES = [b"{", b"}", b"[", b"]", b'"', b",", b"-1", b"1e999", b"NaN", b"null", b"\xff", b"\0", b"\\ud800", b"[" * 100_000]
GRIDS = [["learning-rate=nan"], ["learning-rate=1e999"], ["learning-rate=-1"], ["learning-rate="], ["learning-rate"], ["=1"],
         ["epochs=1,2"], ["nothing=1"], ["learning-rate=1e-3,1e-3"], ["batch-size=0"], ["batch-size=99999999999999999999"],
         ["learning-rate=" + ",".join(f"{i}e-5" for i in range(1, 2000))], ["precision=float64"], ["\x1b[31m=1"],
         [f"{key}=" + ",".join(f"0.{i:02}" for i in range(1, 60))
          for key in ("learning-rate", "weight-decay", "beta1", "beta2", "dropout", "mixup-alpha", "cutmix-alpha")]]


def places(value, path=()):
    """Every place in a JSON value, as a path of keys."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def holder(value, path):
    for key in path[:-1]:
        value = value[key]
    return value


class Results:
    name = "results"
    quick = 18

    def __init__(self, context):
        self.context = context
        self.originals = {}
        published = [os.path.join(PUBLISHED, name) for name in ("cifar10.json", "cifar100.json", "shapes.json")]
        for path in (*published, self.own()):
            result = self.report(["--from", path], context.folder)
            if result.code != 0:
                raise Failure(f"the intact {path} is refused: {result.shown()}")
            with open(path, encoding="utf-8") as file:
                self.originals[path] = json.load(file)

    def own(self):
        """A comparison of segmentation from a trained model, none of which is published yet."""
        out = os.path.join(self.context.folder, "segmentation-compared")
        at = SMALL_TRAINING.index("--encoding")
        result = self.context.program.run(
            ["compare", "--encodings", "ape,rope2d", "--baseline", "ape", "--task", "segmentation", "--init",
             self.context.segmenter, *SMALL_TRAINING[:at], *SMALL_TRAINING[at + 2:], "--out", out], self.context.folder, seconds=60)
        if result.code != 0:
            raise Failure(f"a small comparison fails: {result.shown()}")
        return os.path.join(out, "results.json")

    def report(self, arguments, folder):
        out = os.path.join(folder, "out")
        shutil.rmtree(out, ignore_errors=True)
        return self.context.program.run(["compare", *arguments, "--out", out], folder, seconds=30)

    # What is done to the file, and whether the program must refuse it.

    def value(self, random, whole):
        path = random.choice([path for path in places(whole) if path])
        holder(whole, path)[path[-1]] = random.choice(WILD)
        return whole, False

    def key(self, random, whole):
        path = random.choice([path for path in places(whole) if path and isinstance(path[-1], str)])
        table = holder(whole, path)
        if random.random() < 0.5:
            del table[path[-1]]
        else:
            table[random.choice(["", "x", "\x1b[31m", "top-1 ", "seeds"])] = table.pop(path[-1])
        return whole, False

    def figure(self, random, whole):
        """A figure that no training has."""
        run = random.choice(random.choice([row for row in whole["rows"] if row["runs"]])["runs"])
        name = random.choice(sorted(key for key, figure in run.items() if not isinstance(figure, (list, dict))))
        run[name] = random.choice([-1, 1e300, -1e300, 1e39, "1", None, True])
        return whole, True

    def epoch(self, random, whole):
        runs = [run for row in whole["rows"] for run in row["runs"] if run["epochs"]]
        epoch = random.choice(random.choice(runs)["epochs"])
        name = random.choice(["epoch", "train_loss"])
        epoch[name] = random.choice([-1, 1e300, -1e39, "1", None, 10**18 if name == "epoch" else [1]])
        return whole, True

    def twice(self, random, whole):
        """The same run, row or seed twice would count twice."""
        how = random.randrange(3)
        if how == 0:
            whole["rows"].append(copy.deepcopy(random.choice(whole["rows"])))
        elif how == 1:
            runs = random.choice([row for row in whole["rows"] if row["runs"]])["runs"]
            runs.append(copy.deepcopy(random.choice(runs)))
        else:
            whole["seeds"] = [3, 3]
        return whole, True

    def plan(self, random, whole):
        """What a small file could make large: seeds, and a tuning's grid."""
        if random.random() < 0.5:
            whole["seeds"] = random.choice([0, -1, 10**9, 10**18, 2**63, 1.5, [], [-1], [True], [2**64]])
        else:
            axes = {key: [i / 200 for i in range(1, 150)] for key in ("learning_rate", "weight_decay", "beta1", "beta2")}
            whole["tuning"] = {"epochs": random.choice([1, 0, -1, 2**63]), "held out": 10, "axes": axes}
        return whole, True

    kinds = (value, key, figure, epoch, twice, plan)

    def case(self, random, number, folder):
        if number % 9 == 8:
            return self.tuning(random, number // 9, folder)
        path, original = random.choice(sorted(self.originals.items()))
        forged = os.path.join(folder, "results.json")
        if number % 9 == 7:
            refused = self.no_file(random, forged)
        elif number % 9 == 6:
            with open(forged, "wb") as file:
                file.write(mutated(random, json.dumps(original).encode(), PIECES))
            refused = False
        else:
            whole, refused = self.kinds[number % 9](self, random, copy.deepcopy(original))
            with open(forged, "w", encoding="utf-8") as file:
                json.dump(whole, file)
        how = random.randrange(4)
        arguments = [["--from", forged], ["--merge", path, forged], ["--merge", forged, path],
                     ["--merge", forged, folder, "--baseline", original["rows"][0]["encoding"]]][how]
        result = self.report(arguments, folder)
        if result.code != 0:
            check_sentence(result)
        elif refused:
            raise Failure(f"this should be refused, but {result.shown()}")
        self.check_written(result, folder)
        return 1

    def no_file(self, random, path):
        """What is no file at all, or has nothing to read."""
        how = random.randrange(5)
        if how == 0:
            os.mkfifo(path)
        elif how == 1:
            os.symlink(path, path)
        elif how == 2:
            os.symlink("/dev/zero", path)
        elif how == 3:
            os.mkdir(path)
        else:
            with open(path, "wb") as file:
                file.write(random.choice([b"", b"[]", b"null", b"[" * 3_000_000, b'{"rows":' * 200_000]))
        return True

    def check_written(self, result, folder):
        """Three reports or none, in the folder asked for, which are what they say they are."""
        out = os.path.join(folder, "out")
        written = set(os.listdir(out)) if os.path.isdir(out) else set()
        if set(os.listdir(folder)) - {"out", "results.json"} or written not in (set(), REPORTS):
            raise Failure(f"files that nobody asked for: {sorted(written)} {os.listdir(folder)}; {result.shown()}")
        if bool(written) != (result.code == 0):
            raise Failure(f"reports and exit code disagree; {result.shown()}")
        if not written:
            return
        check_no_wild_numbers(result)
        with open(os.path.join(out, "report.html"), encoding="utf-8") as file:
            page = file.read()
        if "<script" in page or '"nan' in page or "inf," in page:
            raise Failure(f"the report has what it must not have; {result.shown()}")
        again = self.context.program.run(["compare", "--from", os.path.join(out, "results.json"), "--out", out], folder)
        if again.code != 0 or again.out != result.out:
            raise Failure(f"the report of the report differs: {result.shown()} {again.shown()}")

    def tuning(self, random, number, folder):
        grid = GRIDS[number % len(GRIDS)]
        arguments = [word for axis in grid for word in ("--tune", axis)]
        result = self.context.program.run(
            ["compare", "--encodings", "ape", "--data", "shapes", "--train-images", "20", "--test-images", "4", "--model",
             "vit-micro", *arguments, "--tune-epochs", "1", "--out", os.path.join(folder, "out")], folder, seconds=30)
        check_sentence(result)
        if os.path.exists(os.path.join(folder, "out")):
            raise Failure(f"a folder is left by what was refused; {result.shown()}")
        return 1
