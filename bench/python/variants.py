"""What the benchmarks of models share: each variant of a model runs in a process of its own, and is timed there.

A benchmark gives `measured(args, variant)`, which builds the variant and returns `steps(...)` of it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from typing import Any, Callable

DEVICES = ("cuda", "cpu")
DTYPES = ("float32", "bfloat16", "float16")


def parser(description: str, variants: tuple[str, ...]) -> argparse.ArgumentParser:
    """The options that all of them have."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--device", choices=DEVICES, default="cuda")
    made.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    made.add_argument("--repeats", type=int, default=20)
    made.add_argument("--forward-only", action="store_true")
    made.add_argument("--variants", nargs="+", choices=variants, default=list(variants))
    made.add_argument("--json", help="a file to write the figures to as well")
    return made


def resident_bytes() -> int:
    """Most memory that this process has held."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def steps(args: argparse.Namespace, model: Any, output: Callable[[], Any]) -> dict[str, Any]:
    """Times in milliseconds, the least of `--repeats` after two that do not count; memory in MiB; and the output.

    On a GPU memory is what PyTorch allocated at most, weights included; on the CPU it is how much the process grew.
    """
    import torch

    gpu = args.device == "cuda"
    at_rest = resident_bytes()

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return output()

    def both() -> None:
        model.zero_grad(set_to_none=True)
        output().sum().backward()

    def timed(run: Callable[[], object]) -> tuple[float, float]:
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        times = []
        for _ in range(2 + args.repeats):
            begin = time.perf_counter()
            run()
            if gpu:
                torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - begin))
        peak = torch.cuda.max_memory_allocated() if gpu else resident_bytes() - at_rest
        return min(times[2:]), peak / 2**20

    result: dict[str, Any] = {}
    result["forward"], result["forward_memory"] = timed(forward)
    result["output"] = forward().float().cpu().numpy()
    if not args.forward_only:
        result["both"], result["both_memory"] = timed(both)
    return result


def run(args: argparse.Namespace, measured: Callable[..., dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every variant, each in a fresh process. Says what is measured: compiling can take minutes."""
    fresh = multiprocessing.get_context("spawn")
    results = {}
    for number, variant in enumerate(args.variants, 1):
        print(f"{number} of {len(args.variants)}: {variant} …", file=sys.stderr, end=" ", flush=True)
        begin = time.perf_counter()
        with fresh.Pool(1) as pool:
            results[variant] = pool.apply(measured, (args, variant))
        times = ", ".join(
            f"{name} {results[variant][name]:.1f} ms" for name in ("forward", "both") if name in results[variant]
        )
        print(f"{times} ({time.perf_counter() - begin:.0f} s)", file=sys.stderr, flush=True)
    return results


def table(results: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown; the difference is from the first."""
    expected = next(iter(results.values()))["output"]
    lines = ["| | forward | peak | forward + backward | peak | largest difference |", "|---|---|---|---|---|---|"]
    for variant, result in results.items():
        both = [f"{result['both']:.1f} ms", f"{result['both_memory']:.0f} MiB"] if "both" in result else ["", ""]
        difference = abs(result["output"] - expected).max()
        cells = [variant, f"{result['forward']:.1f} ms", f"{result['forward_memory']:.0f} MiB", *both]
        lines.append(f"| {' | '.join(cells)} | {difference:.1e} |")
    return "\n".join(lines)


def report(args: argparse.Namespace, what: str, results: dict[str, dict[str, Any]]) -> None:
    """Prints the table with where and what was measured; writes the file of `--json`."""
    import torch

    place = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{place}, PyTorch {torch.__version__}, {what}, {args.dtype}")
    print(table(results))
    print(f"largest output: {abs(next(iter(results.values()))['output']).max():.1f}")
    if args.json:
        kept = {name: {k: v for k, v in result.items() if k != "output"} for name, result in results.items()}
        with open(args.json, "w") as file:
            json.dump(kept, file, indent=2)
