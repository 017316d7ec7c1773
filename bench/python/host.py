"""What a call of an attention costs the host: one patch, so that there is next to nothing to compute.

    python bench/python/host.py

Microseconds per call on the CPU, the least of several rounds, in time of the calling thread, which other programs on
the machine hardly change: without gradients, with what backward needs kept, and forward + backward. PyTorch's own
attention has three gradients, sape2-rel-k seven: those of q, k and v, two tables, and scale and offset of the gates.
torch.cat of three and of seven tensors, which has next to nothing else to do, shows what four more cost by themselves.
One row has its derivatives written in Python, as PyTorch's stable ABI would ask for.

Then the same for whole attention layers, as models call them: a projection to q, k and v, attention, a projection.
`bench/peers/host.py` measures attention alone on a GPU.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, Callable

HEAD_SIZE = 8
Times = dict[str, list[float]]


def least(call: Callable[[], object], args: argparse.Namespace) -> float:
    """Microseconds per call, of the fastest round."""
    times = []
    for _ in range(args.rounds + 1):  # the first one warms up
        begin = time.thread_time()
        for _ in range(args.calls):
            call()
        times.append((time.thread_time() - begin) / args.calls * 1e6)
    return min(times[1:])


def timed(ways: dict[str, tuple[Callable[[], Any], list[Any]]], args: argparse.Namespace) -> Times:
    """The three times of each call, whose gradients go to the tensors beside it."""
    import torch

    results = {}
    for name, (forward, leaves) in ways.items():
        ones = torch.ones_like(forward())
        with torch.no_grad():
            times = [least(forward, args)]
        times.append(least(forward, args))
        times.append(least(lambda f=forward, x=leaves, g=ones: torch.autograd.grad(f(), x, g), args))
        results[name] = times
    return results


def attention(args: argparse.Namespace) -> Times:
    """Attention alone."""
    import torch

    import sape2

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

    kernels = torch.ops.sape2
    options = (1, 1, 0, "k", "between", "direct", HEAD_SIZE**-0.5)

    def forward(*t: torch.Tensor) -> Any:
        return kernels._sape2_attention_forward.default(*t[:5], *options, *t[5:], None, False, 0)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.save_for_backward(*inputs, *output)

    def backward(ctx: Any, gradient: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        *t, out, softmax, kept = ctx.saved_tensors
        return tuple(
            kernels._sape2_attention_backward.default(
                [gradient], [out, softmax, kept], 0b1111111, *t[:5], *options, *t[5:], None, False, 0
            )
        )

    library = torch.library.Library("sape2_host", "FRAGMENT")
    names = ", ".join(f"Tensor {name}" for name in ("q", "k", "v", "ex", "ey", "gate_scale", "gate_offset"))
    library.define(f"attention({names}) -> (Tensor, Tensor, Tensor)")
    library.impl("attention", forward, "CPU")
    torch.library.register_autograd("sape2_host::attention", backward, setup_context=keep, lib=library)

    small = [leaf(HEAD_SIZE) for _ in range(7)]
    learnt = [q, k, v, ex, ey, gate_scale, gate_offset]
    ways = {
        "PyTorch's attention": (lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v), [q, k, v]),
        "`sape2.ops.attention`": (lambda: sape2.ops.attention(q, k, v), [q, k, v]),
        "`sape2.ops.sape2_attention`, sape2-rel-k": (operator, learnt),
        "the same kernels behind `torch.library.register_autograd`": (
            lambda: torch.ops.sape2_host.attention.default(*learnt)[0],
            learnt,
        ),
        "`sape2.nn.LayerEncoding`, sape2-rel-k": (lambda: layer(q, k, v), [q, k, v, *layer.parameters()]),
        "`torch.cat` of three tensors": (lambda: torch.cat(small[:3]), small[:3]),
        "`torch.cat` of seven tensors": (lambda: torch.cat(small), small),
    }
    return timed(ways, args)


def layers(args: argparse.Namespace) -> Times:
    """Whole attention layers."""
    import torch

    import sape2

    class Plain(torch.nn.Module):
        """What timm's layer does."""

        def __init__(self) -> None:
            super().__init__()
            self.qkv = torch.nn.Linear(HEAD_SIZE, 3 * HEAD_SIZE)
            self.proj = torch.nn.Linear(HEAD_SIZE, HEAD_SIZE)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            images, tokens, width = x.shape
            q, k, v = self.qkv(x).reshape(images, tokens, 3, 1, HEAD_SIZE).permute(2, 0, 3, 1, 4).unbind(0)
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return self.proj(out.transpose(1, 2).reshape(images, tokens, width))

    x = torch.randn(1, 1, HEAD_SIZE, requires_grad=True)
    modules: dict[str, torch.nn.Module] = {"a layer with PyTorch's attention": Plain()}
    for encoding in ("none", "sape2-k", "sape2-rel-k"):
        modules[f"`sape2.nn.Attention`, {encoding}"] = sape2.nn.Attention(
            HEAD_SIZE, 1, qkv_bias=True, encoding=encoding, grid=(1, 1), prefix=0
        )
    return timed({name: (lambda m=m: m(x), [x, *m.parameters()]) for name, m in modules.items()}, args)


def table(results: Times) -> str:
    """The times, and in brackets over those of the first row, as Markdown."""
    first = next(iter(results.values()))
    rows = ["| µs per call | forward | forward, for backward | forward + backward |", "|---|---|---|---|"]
    for name, times in results.items():
        cells = (f"{one:.1f} ({one / base:.2f}×)" for one, base in zip(times, first))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--calls", type=int, default=1000, help="calls per round (default: 1000)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds (default: 15)")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    print(table(attention(args)), table(layers(args)), sep="\n\n")


if __name__ == "__main__":
    main()
