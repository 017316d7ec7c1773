"""Every operator and every encoding, for tests that run over all of them."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

import sape2

ROWS, COLS, PREFIX, HEADS, SIZE = 4, 5, 1, 3, 16
TOKENS = PREFIX + ROWS * COLS

# Each encoding as it is, with +ape, and options that change its parameters or what happens at another grid.
ENCODINGS = [info.name for info in sape2.encodings()] + [
    "sape2-k+ape",
    "rope2d+ape",
    "cope[M=9,bias=inside]",
    "sape2-k[gain=-1,gain-mode=per-head,resize=extend]",
    "sape2-qk[tables=per-head,span=between,M=5]",
    "sape2-rel-k[gates=open,resize=resample]",
    "sape2-rel-q[gates=fixed,gain-mode=learnable,bias=inside,gate-scale=0.5]+ape",
]


def _tokens(images: int) -> Tensor:
    return torch.randn(images, HEADS, TOKENS, SIZE, requires_grad=True)


def operators(images: int = 2) -> dict[str, tuple[Callable[..., Any], list[Any], dict[str, Any]]]:
    """Arguments for every public operator, positional and by name, leaves that ask for gradients."""
    grid, patches, prefix = (ROWS, COLS), ROWS * COLS, {"prefix": PREFIX}
    leaf = lambda *shape: torch.randn(*shape, requires_grad=True)  # noqa: E731
    q, k, v = (_tokens(images) for _ in "qkv")
    tables = [leaf(9, SIZE), leaf(9, SIZE)]
    vectors = [leaf(images, HEADS, patches, COLS), leaf(images, HEADS, patches, ROWS)]
    gates = {"gate_scale": leaf(HEADS), "gate_offset": leaf(HEADS)}
    relative = {"span": "between", "form": "direct", "bias_inside": False, "gain": leaf(HEADS)}
    ops = sape2.ops
    return {
        "attention": (ops.attention, [q, k, v], {}),
        "sape2_attention": (ops.sape2_attention, [q, k, v, *tables, *grid], prefix),
        "sape2_attention relative": (ops.sape2_attention, [q, k, v, *tables, *grid], {**prefix, **relative, **gates}),
        "sape2_vectors": (ops.sape2_vectors, [q, k, *tables, *grid], {**prefix, **gates}),
        "sape2_bias": (ops.sape2_bias, [q, k, *tables, *grid], prefix),
        "distance_attention": (ops.distance_attention, [q, k, v, *vectors, *grid], prefix),
        "axial_attention": (ops.axial_attention, [q, k, v, *vectors, *grid], prefix),
        "cope_attention": (ops.cope_attention, [q, k, v, tables[0]], {}),
        "rope": (ops.rope, [q], prefix),
        "rope2d": (ops.rope2d, [q, *grid], prefix),
        "rope2d_mixed": (ops.rope2d_mixed, [q, leaf(HEADS, SIZE // 2), leaf(HEADS, SIZE // 2), *grid], prefix),
    }


def solved(call: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> list[Tensor]:
    """Outputs, and gradients of all leaves for fixed gradients of the outputs."""
    outputs = call(*positional, **named)
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    leaves = [t for t in [*positional, *named.values()] if isinstance(t, Tensor)]
    generator = torch.Generator().manual_seed(1)
    given = [torch.randn(o.shape, generator=generator, device="cpu").to(o) for o in outputs]
    return [*(o.detach() for o in outputs), *torch.autograd.grad(outputs, leaves, given)]


def lively(model: torch.nn.Module) -> torch.nn.Module:
    """Weights that a trained model could have: first values are too small for a mistake to show."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model
