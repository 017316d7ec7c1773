"""What a call of an attention costs the host: one patch, so that there is next to nothing to compute.

    python bench/python/host.py

Microseconds per call on the CPU, the least of several rounds, in time of the calling thread, which other programs on
the machine hardly change: without gradients, with what backward needs kept, and forward + backward. PyTorch's own
attention has three gradients, sape2-rel-k seven: those of q, k and v, two tables, and scale and offset of the gates.
What four more cost by themselves shows torch.cat, which has next to nothing else to do, of three tensors and of seven.
`bench/peers/host.py` measures the same on a GPU.
"""

from __future__ import annotations

import argparse
import time
from typing import Callable

HEAD_SIZE = 8


def least(call: Callable[[], object], args: argparse.Namespace) -> float:
    """Microseconds per call, of the fastest round."""
    times = []
    for _ in range(args.rounds + 1):  # the first one warms up
        begin = time.thread_time()
        for _ in range(args.calls):
            call()
        times.append((time.thread_time() - begin) / args.calls * 1e6)
    return min(times[1:])


def measured(args: argparse.Namespace) -> dict[str, list[float]]:
    """The three times of each way to call attention."""
    import torch

    import sape2

    torch.set_num_threads(1)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(shape, requires_grad=True)

    q, k, v = (leaf(1, 1, 1, HEAD_SIZE) for _ in range(3))
    ex, ey, gate_scale, gate_offset = leaf(1, HEAD_SIZE), leaf(1, HEAD_SIZE), leaf(1), leaf(1)
    layer = sape2.nn.LayerEncoding("sape2-rel-k", HEAD_SIZE, 1, (1, 1))

    def operator() -> torch.Tensor:
        return sape2.ops.sape2_attention(
            q, k, v, ex, ey, 1, 1, span="between", form="direct", gate_scale=gate_scale, gate_offset=gate_offset,
            bias_inside=False,
        )  # fmt: skip

    small = [leaf(HEAD_SIZE) for _ in range(7)]
    ways: dict[str, tuple[Callable[[], torch.Tensor], list[torch.Tensor]]] = {
        "PyTorch's attention": (lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v), [q, k, v]),
        "sape2.ops.attention": (lambda: sape2.ops.attention(q, k, v), [q, k, v]),
        "sape2.ops.sape2_attention, sape2-rel-k": (operator, [q, k, v, ex, ey, gate_scale, gate_offset]),
        "sape2.nn.LayerEncoding, sape2-rel-k": (lambda: layer(q, k, v), [q, k, v, *layer.parameters()]),
        "torch.cat of three tensors": (lambda: torch.cat(small[:3]), small[:3]),
        "torch.cat of seven tensors": (lambda: torch.cat(small), small),
    }
    results = {}
    for name, (forward, leaves) in ways.items():
        ones = torch.ones_like(forward())
        with torch.no_grad():
            times = [least(forward, args)]
        times.append(least(forward, args))
        times.append(least(lambda f=forward, x=leaves, g=ones: torch.autograd.grad(f(), x, g), args))
        results[name] = times
    return results


def table(results: dict[str, list[float]]) -> str:
    """The times, and in brackets over those of the first row, as Markdown."""
    first = next(iter(results.values()))
    rows = ["| µs per call | forward | forward, for backward | forward + backward |", "|---|---|---|---|"]
    for name, times in results.items():
        cells = (f"{one:.1f} ({one / base:.2f}×)" for one, base in zip(times, first))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000, help="calls per round (default: 1000)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds (default: 15)")
    print(table(measured(parser.parse_args())))


if __name__ == "__main__":
    main()
