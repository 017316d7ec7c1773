"""SAM's ViT-B image encoder: the original, its torch.compile, and accelerated by sape2.

    python bench/python/sam.py --device cuda --size 1024 --dtype bfloat16
    python bench/python/sam.py --device cpu --size 512 --dtype float32 --layers 3

transformers' encoder with random weights, one image: time of a forward pass and of forward + backward (the least of
--repeats runs after two that are not counted), peak memory, and the largest difference of the outputs from the
original's. On a GPU memory is what PyTorch allocated at most, weights included; on the CPU it is how much the process
grew at most, and each variant runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from typing import Any

VARIANTS = ("original", "compiled", "accelerated")


def encoder(args: argparse.Namespace) -> Any:
    """The encoder with the same random weights every time.

    transformers draws them so small that every output would be 0, and relative positions start at 0.
    """
    import torch
    from transformers import SamVisionConfig, SamVisionModel

    torch.manual_seed(0)
    layers = {} if args.layers is None else {"num_hidden_layers": args.layers, "global_attn_indexes": [args.layers - 1]}
    model = SamVisionModel(SamVisionConfig(image_size=args.size, initializer_range=0.02, **layers))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "rel_pos" in name:
                parameter.normal_(0, 0.1)
    return model.to(args.device, getattr(torch, args.dtype)).eval()


def resident_bytes() -> int:
    """Most memory that this process has held."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(args: argparse.Namespace, variant: str) -> dict[str, Any]:
    """Times in milliseconds, memory in MiB, and the output."""
    import torch

    import sape2

    model = encoder(args)
    if variant == "accelerated":
        sape2.accelerate(model)
    images = torch.randn(1, 3, args.size, args.size, generator=torch.Generator().manual_seed(1))
    images = images.to(args.device, getattr(torch, args.dtype))
    call = torch.compile(model) if variant == "compiled" else model
    gpu = args.device == "cuda"

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return call(images).last_hidden_state

    def both() -> None:
        model.zero_grad(set_to_none=True)
        call(images).last_hidden_state.sum().backward()

    def timed(run: Any) -> tuple[float, float]:
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

    at_rest = resident_bytes()
    result: dict[str, Any] = {}
    result["forward"], result["forward_memory"] = timed(forward)
    result["output"] = forward().float().cpu().numpy()
    if not args.forward_only:
        result["both"], result["both_memory"] = timed(both)
    return result


def run(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Every variant, each in a fresh process."""
    fresh = multiprocessing.get_context("spawn")
    results = {}
    for variant in args.variants:
        with fresh.Pool(1) as pool:
            results[variant] = pool.apply(measured, (args, variant))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", type=int, default=1024, help="height and width of the image")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
    parser.add_argument("--layers", type=int, help="layers, the last of them global; ViT-B has 12, with 4 global")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--forward-only", action="store_true")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--json", help="a file to write the figures to as well")
    args = parser.parse_args()

    results = run(args)
    import torch
    import transformers

    place = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{place}, PyTorch {torch.__version__}, transformers {transformers.__version__}, {args.size}×{args.size}, "
          f"{args.dtype}, {args.layers or 12} layers")  # fmt: skip
    print(table(results))
    print(f"largest output: {abs(next(iter(results.values()))['output']).max():.1f}")
    if args.json:
        kept = {name: {k: v for k, v in result.items() if k != "output"} for name, result in results.items()}
        with open(args.json, "w") as file:
            json.dump(kept, file, indent=2)


if __name__ == "__main__":
    main()
