"""Training steps in PyTorch beside ours, in one table: the same ViT, batch, precision (bfloat16 with
float32 master weights) and AdamW; eager, compiled, and compiled inside one CUDA graph of the whole step.

    python3 bench/peers/train.py [--sape2 build/cuda/bin/sape2] [--json train.json]

PyTorch's steps run on random images that lie on the GPU, without augmentation; ours (with --sape2)
include it. Each model has a process of its own, and one that fails or takes too long is a row that says so.
Models are compiled at once, and measured one after the other.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import jobs

CASES = "vit-small:128:ape,vit-small:128:sape2-k+ape,vit-compact:256:ape,vit-compact:256:sape2-k,vit-compact:256:sape2-rel-k"
ENCODINGS = ["none", "ape", "sape2-k", "sape2-k+ape", "sape2-rel-k"]
MODELS = ["vit-small", "vit-compact"]
RECIPES = {"vit-small": "paper", "vit-compact": "strong"}
MODES = ["eager", "compiled", "graph"]


def parse_case(text):
    model, batch, encoding = (text.split(":") + ["", ""])[:3]
    if model not in MODELS or not batch.isdigit() or encoding not in ENCODINGS:
        sys.exit(f'train.py: case "{text}" is not understood; write MODEL:BATCH:ENCODING with a model of '
                 f"{', '.join(MODELS)} and an encoding of {', '.join(ENCODINGS)}")
    return {"model": model, "batch": int(batch), "encoding": encoding}


def ours(program, recipes, case, limit):
    """The same step by `sape2 bench train`, augmentation included."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [program, "bench", "train", "--device", "cuda", "--data", "shapes", "--precision", "bfloat16",
                   "--train-images", "16384", "--test-images", "64", "--recipe", str(recipes / f"{RECIPES[case['model']]}.toml"),
                   "--model", case["model"], "--encoding", case["encoding"], "--batch-size", str(case["batch"]), "--json", file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"failed": f"took more than {limit:.0f} s"}
        if done.returncode != 0:
            words = done.stderr.strip().splitlines() or ["no words"]
            return {"failed": words[-1][:160]}
        gpu = json.loads(pathlib.Path(file.name).read_text())["gpu"]
        return {"ms": gpu["step_ms"], "mib": gpu["peak_bytes"] / 2**20}


def cell(figures):
    if not figures:
        return "–"
    return figures["failed"].replace("|", "/") if "failed" in figures else f"{figures['ms']:.2f}"


def print_table(rows, with_ours):
    names = ["model, batch", "encoding", "eager ms", "compiled ms", "compiled + graph ms", "images/s", "MiB"]
    print("| " + " | ".join(names + ["ours ms", "peer / ours"] * with_ours) + " |\n|" + "---|" * (len(names) + 2 * with_ours))
    for row in rows:
        good = [f for f in (row.get(mode) for mode in MODES) if f and "ms" in f]
        best = min(good, key=lambda f: f["ms"], default=None)
        values = [f"{row['model']}, {row['batch']}", row["encoding"], *(cell(row.get(mode)) for mode in MODES)]
        values += [f"{1000 * row['batch'] / best['ms']:.0f}", f"{best['mib']:.0f}"] if best else ["–", "–"]
        if with_ours:
            mine = row.get("ours", {})
            values += [cell(mine), f"{best['ms'] / mine['ms']:.2f}" if best and "ms" in mine else "–"]
        print("| " + " | ".join(values) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", default=CASES, help=f"MODEL:BATCH:ENCODING,… (default: {CASES})")
    parser.add_argument("--whole", action="store_true", help="compile whole models instead of their blocks (takes far longer)")
    parser.add_argument("--sape2", help="our program, to be measured in the same run")
    parser.add_argument("--limit", type=float, default=60, help="seconds to measure a model in one way (default: 60)")
    parser.add_argument("--compile-limit", type=float, default=600, help="seconds for all compilations (default: 600)")
    parser.add_argument("--budget", type=float, default=3600, help="seconds for the whole run (default: 3600)")
    parser.add_argument("--lock", help="a file shared with other runs: they compile together, each measures alone")
    parser.add_argument("--json", help="write all figures to this file")
    options = parser.parse_args()

    folder = pathlib.Path(__file__).resolve().parent
    clock = jobs.Clock(options.budget)
    cases = [{**parse_case(text), "whole": options.whole} for text in options.cases.split(",")]
    workers = [jobs.Worker("train_worker", environment={"TORCHINDUCTOR_COMPILE_THREADS": "3"}) for _ in cases]
    rows = [dict(case) for case in cases]
    try:
        print(f"compiling {len(cases)} models", file=sys.stderr, flush=True)
        with jobs.holding(options.lock, alone=False):
            ahead = jobs.run_at_once(workers, [{**case, "what": "compile"} for case in cases], len(cases),
                                     jobs.Clock(min(options.compile_limit, clock.left())))
        with jobs.holding(options.lock, alone=True):
            for row, case, worker, made in zip(rows, cases, workers, ahead):
                for mode in MODES:
                    failed = "failed" in made and mode != "eager"
                    row[mode] = ({"failed": "compiling: " + made["failed"]} if failed else
                                 jobs.run_within(worker, {**case, "what": mode}, options.limit, clock))
                worker.close()
                if options.sape2 and clock.left() > 0:
                    row["ours"] = ours(options.sape2, folder.parent.parent / "recipes", case, min(options.limit, clock.left()))
    finally:
        for worker in workers:
            worker.close()
    print_table(rows, bool(options.sape2))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
