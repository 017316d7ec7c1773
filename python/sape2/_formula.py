"""The kernels as plain formulas in PyTorch's operations, for programs that have no sape2: ONNX.

An encoding is C++ down to the few kernels that compute attention; only these are written here, and held to the
operators by tests. Each function has the arguments and outputs of the kernel of its name in `torch.ops.sape2`.
16-bit inputs are computed in float32.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable

import torch
from torch import Tensor

from ._encodings import Grid


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _per_head(value: Tensor | None, axes: int) -> Tensor | None:
    """A number for all heads, or one per head before `axes` further axes."""
    if value is None:
        return None
    return _wide(value) if value.dim() == 0 else _wide(value).view(-1, *[1] * axes)


def _attended(logits: Tensor, v: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The kernels' outputs: the attention, and rows of the softmax, which only the way back reads."""
    return torch.matmul(logits.softmax(-1), _wide(v)).to(dtype), logits[..., :2]


def _read(table: Tensor, positions: Tensor, origin: int) -> Tensor:
    """Values of a table `[…, M]` at fractional positions `[…, n]`; position 0 is column `origin`."""
    below = positions.floor()
    last = table.shape[-1] - 1

    def column(position: Tensor) -> Tensor:
        # Whatever a position that is no number becomes as an integer, it stays inside the table.
        return table.gather(-1, (position.long() + origin).clamp(0, last))

    weight = positions - below
    return weight * column(positions.ceil()) + (1 - weight) * column(below)


def _positions(gates: Tensor, span: str, rows_of_table: int) -> tuple[Tensor, int]:
    """Soft positions `[…, n, n]` that the gates of each line add up to, and the table's row of position 0.

    Sums are matrix products with triangles of ones: every runtime has those.
    """
    n = gates.shape[-1]
    upper = torch.ones(n, n, dtype=gates.dtype, device=gates.device).triu()
    lower = upper.transpose(0, 1)
    if span == "suffix":
        origin = 0
        positions = torch.matmul(gates, lower)
    else:
        origin = (rows_of_table - 1) // 2
        inner = upper * lower
        right, left = gates * (upper - inner), gates * (lower - inner)
        positions = torch.matmul(right, upper) - torch.matmul(left, lower)
    return positions.clamp(-origin, rows_of_table - 1 - origin), origin


def _axis(
    q: Tensor, k: Tensor, read: Tensor, table: Tensor, span: str, scale: Tensor | float, offset: Tensor | None
) -> Tensor:
    """The vectors `[B, h, lines, n, n]` of one axis, tokens laid out in its lines `[B, h, lines, n, d]`."""
    products = scale * torch.matmul(q, k.transpose(-2, -1))
    gates = torch.sigmoid(products if offset is None else products + offset)
    positions, origin = _positions(gates, span, table.shape[-2])
    if table.dim() == 3:
        table = table.unsqueeze(1)
    return _read(torch.matmul(read, table.transpose(-2, -1)), positions, origin)


def _vectors(
    q: Tensor,
    k: Tensor,
    ex: Tensor,
    ey: Tensor,
    grid: Grid,
    prefix: int,
    mode: str,
    span: str,
    gate_scale: Tensor | None,
    gate_offset: Tensor | None,
) -> tuple[Tensor, Tensor]:
    q, k, ex, ey = (_wide(x) for x in (q, k, ex, ey))
    rows, cols = grid
    q_lines, k_lines = (x[:, :, prefix:].reshape(*x.shape[:2], rows, cols, x.shape[3]) for x in (q, k))
    given = _per_head(gate_scale, 3)
    scale = 1 / math.sqrt(q.shape[-1]) if given is None else given
    offset = _per_head(gate_offset, 3)

    def part(read: Tensor, ex: Tensor, ey: Tensor) -> tuple[Tensor, Tensor]:
        x = _axis(q_lines, k_lines, read, ex, span, scale, offset)
        q_columns, k_columns, read_columns = (t.transpose(2, 3) for t in (q_lines, k_lines, read))
        y = _axis(q_columns, k_columns, read_columns, ey, span, scale, offset)
        return x.flatten(2, 3), y.transpose(2, 3).flatten(2, 3)

    if mode != "qk":
        return part(q_lines if mode == "q" else k_lines, ex, ey)
    of_q, of_k = part(q_lines, ex[0], ey[0]), part(k_lines, ex[1], ey[1])
    return torch.stack([of_q[0], of_k[0]]), torch.stack([of_q[1], of_k[1]])


def _distances(vectors: Tensor) -> Tensor:
    """Distances of all pairs of `[…, N, n]`, one entry after the other: nothing is larger than the result."""
    squares = None
    for entry in vectors.unbind(-1):
        square = (entry.unsqueeze(-1) - entry.unsqueeze(-2)).square()
        squares = square if squares is None else squares + square
    assert squares is not None
    return squares.sqrt()


def _bias(ux: Tensor, uy: Tensor, grid: Grid, prefix: int, form: str) -> Tensor:
    """The bias `[B, h, N, N]`, 0 for prefix tokens."""
    if form == "distance":
        bias = _distances(_wide(ux)) + _distances(_wide(uy))
    else:
        # The entry of the other's column and of its row: the sum over the grid, flattened.
        bias = (_wide(ux).unsqueeze(-2) + _wide(uy).unsqueeze(-1)).flatten(-2)
        if form == "paths":
            # The key's vectors at the query's place are the same, the other way round.
            bias = (bias + bias.transpose(-1, -2)) / 2
    if bias.dim() == 5:
        bias = bias.sum(0)
    return torch.nn.functional.pad(bias, (prefix, 0, prefix, 0)) if prefix else bias


def _attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ux: Tensor | None,
    uy: Tensor | None,
    rows: int,
    cols: int,
    prefix: int,
    form: str,
    scale: float,
    gain: Tensor | None,
    bias_inside: bool,
) -> tuple[Tensor, Tensor]:
    logits = scale * torch.matmul(_wide(q), _wide(k).transpose(-2, -1))
    if ux is not None and uy is not None:
        bias, factor = _bias(ux, uy, (rows, cols), prefix, form), _per_head(gain, 2)
        bias = bias if factor is None else factor * bias
        logits = logits + (scale * bias if bias_inside else bias)
    return _attended(logits, v, q.dtype)


def _sape2_attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ex: Tensor,
    ey: Tensor,
    rows: int,
    cols: int,
    prefix: int,
    mode: str,
    span: str,
    form: str,
    scale: float,
    gate_scale: Tensor | None,
    gate_offset: Tensor | None,
    gain: Tensor | None,
    bias_inside: bool,
    kept: int,
) -> tuple[Tensor, Tensor, Tensor]:
    ux, uy = _vectors(q, k, ex, ey, (rows, cols), prefix, mode, span, gate_scale, gate_offset)
    out, softmax = _attention_forward(q, k, v, ux, uy, rows, cols, prefix, form, scale, gain, bias_inside)
    return out, softmax, softmax


def _packed_sape2_attention_forward(
    qkv: Tensor,
    heads: int,
    ex: Tensor,
    ey: Tensor,
    rows: int,
    cols: int,
    prefix: int,
    mode: str,
    span: str,
    form: str,
    scale: float,
    gate_scale: Tensor | None,
    gate_divisor: float,
    gate_offset: Tensor | None,
    gain: Tensor | None,
    bias_inside: bool,
    kept: int,
) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = qkv.view(*qkv.shape[:2], 3, heads, qkv.shape[2] // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)
    divided = None if gate_scale is None else gate_scale / gate_divisor
    out, *others = _sape2_attention_forward(
        q, k, v, ex, ey, rows, cols, prefix, mode, span, form, scale, divided, gate_offset, gain, bias_inside, kept
    )
    return out.transpose(1, 2).flatten(2), others[0], others[1]


def _cope_attention_forward(q: Tensor, k: Tensor, v: Tensor, e: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    wide = _wide(q)
    products = scale * torch.matmul(wide, _wide(k).transpose(-2, -1))
    positions, origin = _positions(torch.sigmoid(products), "suffix", e.shape[0])
    bias = _read(torch.matmul(wide, _wide(e).transpose(0, 1)), positions, origin)
    return _attended(products + bias, v, q.dtype)


def _sape2_vectors_forward(
    q: Tensor,
    k: Tensor,
    ex: Tensor,
    ey: Tensor,
    rows: int,
    cols: int,
    prefix: int,
    mode: str,
    span: str,
    gate_scale: Tensor | None,
    gate_offset: Tensor | None,
) -> tuple[Tensor, Tensor]:
    ux, uy = _vectors(q, k, ex, ey, (rows, cols), prefix, mode, span, gate_scale, gate_offset)
    return ux.to(q.dtype), uy.to(q.dtype)


def _bias_forward(ux: Tensor, uy: Tensor, rows: int, cols: int, prefix: int, form: str) -> Tensor:
    return _bias(ux, uy, (rows, cols), prefix, form).to(ux.dtype)


FORMULAS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        _attention_forward,
        _sape2_attention_forward,
        _packed_sape2_attention_forward,
        _cope_attention_forward,
        _sape2_vectors_forward,
        _bias_forward,
    )
}
"""By the kernel's name in `torch.ops.sape2`."""


def table() -> dict[Any, Callable[..., Any]]:
    """A decomposition table for `torch.export`: every operator of ours into PyTorch's own."""
    found: dict[Any, Callable[..., Any]] = {
        getattr(torch.ops.sape2, name).default: formula for name, formula in FORMULAS.items()
    }
    composite = torch._C.DispatchKey.CompositeImplicitAutograd  # type: ignore[attr-defined, unused-ignore]
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"):
        if name.startswith("sape2::"):
            op = getattr(torch.ops.sape2, name.split("::")[1]).default
            found[op] = functools.partial(op._op_dk, composite)
    return found
