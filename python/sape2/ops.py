"""The operators: attention with positions, computed in fused kernels with gradients.

Each function calls the operator of the same name in `torch.ops.sape2`, which autograd, autocast, `torch.compile`,
`torch.export` and meta tensors know. On the CPU tensors are float32, bfloat16 or float64, on CUDA float16 too.

Shapes, in every function: `B` images, `h` heads, `N = prefix + rows·cols` tokens, head size `d`. Patch `(y, x)` is
token `prefix + y·cols + x`; the `prefix` tokens before the patches (class token, registers) have no position. Tables,
gates and gains may stay float32 whatever q is. Wrong arguments raise ValueError or TypeError with one sentence that
says what was expected. The attention operators can be differentiated once; a second backward is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from typing import Literal

    Mode = Literal["q", "k", "qk"]
    Span = Literal["suffix", "between"]
    Form = Literal["distance", "direct", "paths"]

__all__ = [
    "attention",
    "axial_attention",
    "cope_attention",
    "distance_attention",
    "kernel_for",
    "rope",
    "rope2d",
    "rope2d_mixed",
    "sape2_attention",
    "sape2_bias",
    "sape2_vectors",
]

_ops = torch.ops.sape2


def _number(value: Tensor | float | None, q: Tensor) -> Tensor | None:
    """What the operators take for one number that is not learnt."""
    if value is None or isinstance(value, Tensor):
        return value
    return torch.full((), value, dtype=torch.promote_types(q.dtype, torch.float32), device=q.device)


def attention(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None) -> Tensor:
    """Softmax attention with no positions: `softmax(scale · q kᵀ) v`.

    Args:
        q: `[B, h, N, d]`.
        k: as q.
        v: as q.
        scale: factor on q·k; by default `1/√d`.

    Returns:
        `[B, h, N, d]`, of q's type.

    >>> q, k, v = torch.randn(3, 2, 4, 10, 16)
    >>> out = attention(q, k, v)
    >>> torch.allclose(out, torch.softmax(q @ k.mT / 4, -1) @ v, atol=1e-5)
    True
    """
    out: Tensor = _ops.attention.default(q, k, v, scale=scale)
    return out


def sape2_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ex: Tensor,
    ey: Tensor,
    rows: int,
    cols: int,
    *,
    prefix: int = 0,
    mode: Mode = "k",
    span: Span = "suffix",
    form: Form = "distance",
    scale: float | None = None,
    gate_scale: Tensor | float | None = None,
    gate_offset: Tensor | float | None = None,
    gain: Tensor | float | None = None,
    bias_inside: bool = True,
) -> Tensor:
    """SaPE² attention: both stages in one operator, with no N×N matrix in memory.

    The defaults are the paper's `sape2-k`. `span="between", form="direct", bias_inside=False` with gates that begin
    near open (`gate_offset` 2) is `sape2-rel-k`.

    Args:
        q: `[B, h, N, d]`.
        k: as q.
        v: as q.
        ex: table of positions along x, `[M, d]`, or `[h, M, d]` for one per head; in mode `"qk"` with one more
            leading axis of 2, Q's table, then K's.
        ey: table of positions along y, of the same shape.
        rows: rows of patches.
        cols: columns of patches.
        prefix: tokens before the patches.
        mode: what meets the tables: q, k, or both.
        span: `"suffix"`: gates are summed to the end of the row (`M = max(rows, cols) + 1` is exact); `"between"`:
            from patch to patch, signed (`M = 2·max(rows, cols) − 1` is exact, and M is odd). Longer positions clamp.
        form: `"distance"`: the bias is the distance of two patches' vectors; `"direct"`: it is read from the
            query's vector; `"paths"`: the mean of that and of the same read from the key's (not fused).
        scale: factor on q·k; by default `1/√d`.
        gate_scale: factor on q·k in a gate, a number or a tensor `[]` or `[h]`, one per head; by default `1/√d`.
        gate_offset: added to it; by default 0. Scale 0 with offset `inf` opens all gates.
        gain: factor on the bias; by default 1.
        bias_inside: `scale·(q·k + gain·b)`, or `scale·q·k + gain·b`.

    Returns:
        `[B, h, N, d]`, of q's type.

    >>> q, k, v = torch.randn(3, 2, 4, 1 + 5 * 7, 16, requires_grad=True)
    >>> ex, ey = torch.randn(2, 2 * 7 - 1, 16)
    >>> out = sape2_attention(q, k, v, ex, ey, 5, 7, prefix=1, span="between", form="direct",
    ...                       gate_offset=torch.full((4,), 2.0), bias_inside=False)
    >>> out.shape
    torch.Size([2, 4, 36, 16])
    """
    # The operator of this name, with its arguments in order: PyTorch takes 2 µs longer for named ones.
    out: Tensor = _ops._sape2_attention.default(
        q, k, v, ex, ey, rows, cols, prefix, mode, span, form, scale, _number(gate_scale, q), 1.0,
        _number(gate_offset, q), _number(gain, q), bias_inside,
    )  # fmt: skip
    return out


def sape2_vectors(
    q: Tensor,
    k: Tensor,
    ex: Tensor,
    ey: Tensor,
    rows: int,
    cols: int,
    *,
    prefix: int = 0,
    mode: Mode = "k",
    span: Span = "suffix",
    gate_scale: Tensor | float | None = None,
    gate_offset: Tensor | float | None = None,
) -> tuple[Tensor, Tensor]:
    """Stage 1 of SaPE² alone: every patch's axis vectors, from which the bias is made.

    Args: as in `sape2_attention`.

    Returns:
        Vectors along x, `[B, h, rows·cols, cols]`, and along y, `[B, h, rows·cols, rows]`; in mode `"qk"` with a
        leading axis of 2.

    >>> q, k = torch.randn(2, 2, 4, 5 * 7, 16)
    >>> ex, ey = torch.randn(2, 8, 16)
    >>> ux, uy = sape2_vectors(q, k, ex, ey, 5, 7)
    >>> ux.shape, uy.shape
    (torch.Size([2, 4, 35, 7]), torch.Size([2, 4, 35, 5]))
    """
    ux, uy = _ops.sape2_vectors.default(
        q, k, ex, ey, rows, cols, prefix=prefix, mode=mode, span=span, gate_scale=_number(gate_scale, q),
        gate_offset=_number(gate_offset, q),
    )  # fmt: skip
    return ux, uy


def distance_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ux: Tensor,
    uy: Tensor,
    rows: int,
    cols: int,
    *,
    prefix: int = 0,
    scale: float | None = None,
    gain: Tensor | float | None = None,
    bias_inside: bool = True,
) -> Tensor:
    """Attention whose bias is a distance: `b_in = ‖ux_i − ux_n‖ + ‖uy_i − uy_n‖` between patches, 0 for prefix tokens.

    Args:
        q: `[B, h, N, d]`; k and v as q.
        k: as q.
        v: as q.
        ux: `[B, h, rows·cols, cols]`, perhaps with a leading axis of 2, whose biases add.
        uy: `[B, h, rows·cols, rows]`, likewise.
        rows: rows of patches.
        cols: columns of patches.
        prefix: tokens before the patches.
        scale: factor on q·k; by default `1/√d`.
        gain: factor on the bias, `[]` or `[h]`; by default 1.
        bias_inside: `scale·(q·k + gain·b)`, or `scale·q·k + gain·b`.

    Returns:
        `[B, h, N, d]`, of q's type.

    >>> q, k, v = torch.randn(3, 2, 4, 1 + 5 * 7, 16)
    >>> ux, uy = torch.randn(2, 4, 35, 7), torch.randn(2, 4, 35, 5)
    >>> distance_attention(q, k, v, ux, uy, 5, 7, prefix=1, gain=torch.tensor(-1.0)).shape
    torch.Size([2, 4, 36, 16])
    """
    out: Tensor = _ops.distance_attention.default(
        q, k, v, ux, uy, rows, cols, prefix=prefix, scale=scale, gain=_number(gain, q), bias_inside=bias_inside
    )
    return out


def axial_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    zx: Tensor,
    zy: Tensor,
    rows: int,
    cols: int,
    *,
    prefix: int = 0,
    scale: float | None = None,
    gain: Tensor | float | None = None,
    bias_inside: bool = False,
) -> Tensor:
    """Attention with decomposed relative positions: `b_in = zx_i[x_n] + zy_i[y_n]`, as in SAM and MViTv2.

    Args:
        q: `[B, h, N, d]`.
        k: as q.
        v: as q.
        zx: `[B, h, rows·cols, cols]`: of each patch, the bias to every column. Perhaps with a leading axis of 2,
            whose biases add.
        zy: `[B, h, rows·cols, rows]`: … to every row.
        rows: rows of patches.
        cols: columns of patches.
        prefix: tokens before the patches, whose bias is 0.
        scale: factor on q·k; by default `1/√d`.
        gain: factor on the bias, `[]` or `[h]`; by default 1.
        bias_inside: `scale·(q·k + gain·b)`, or `scale·q·k + gain·b`.

    Returns:
        `[B, h, N, d]`, of q's type.

    >>> q, k, v = torch.randn(3, 2, 4, 5 * 7, 16)
    >>> zx, zy = torch.randn(2, 4, 35, 7), torch.randn(2, 4, 35, 5)
    >>> bias = (zy.unsqueeze(-1) + zx.unsqueeze(-2)).flatten(-2)  # what SAM stores
    >>> stored = torch.softmax(q @ k.mT / 4 + bias, -1) @ v
    >>> torch.allclose(axial_attention(q, k, v, zx, zy, 5, 7), stored, atol=1e-5)
    True
    """
    out: Tensor = _ops.axial_attention.default(
        q, k, v, zx, zy, rows, cols, prefix=prefix, scale=scale, gain=_number(gain, q), bias_inside=bias_inside
    )
    return out


def sape2_bias(
    q: Tensor,
    k: Tensor,
    ex: Tensor,
    ey: Tensor,
    rows: int,
    cols: int,
    *,
    prefix: int = 0,
    mode: Mode = "k",
    span: Span = "suffix",
    gate_scale: Tensor | float | None = None,
    gate_offset: Tensor | float | None = None,
    form: Form = "distance",
) -> Tensor:
    """The bias of SaPE² before the gain, stored in full: for looking at, not for speed.

    Args: as in `sape2_attention`.

    Returns:
        `[B, h, N, N]`; rows and columns of prefix tokens are 0.

    >>> q, k = torch.randn(2, 1, 2, 3 * 4, 8)
    >>> ex, ey = torch.randn(2, 5, 8)
    >>> bias = sape2_bias(q, k, ex, ey, 3, 4)
    >>> bias.shape, bool((bias.diagonal(dim1=-2, dim2=-1) == 0).all())
    (torch.Size([1, 2, 12, 12]), True)
    """
    bias: Tensor = _ops.sape2_bias.default(
        q, k, ex, ey, rows, cols, prefix=prefix, mode=mode, span=span, gate_scale=_number(gate_scale, q),
        gate_offset=_number(gate_offset, q), form=form,
    )  # fmt: skip
    return bias


def cope_attention(q: Tensor, k: Tensor, v: Tensor, e: Tensor, *, scale: float | None = None) -> Tensor:
    """CoPE: contextual positions over the raster order of all tokens, prefix tokens included.

    Args:
        q: `[B, h, N, d]`.
        k: as q.
        v: as q.
        e: table of positions `[M, d]`; longer positions clamp to the last row.
        scale: factor on q·k, in the gates and in the logits; by default `1/√d`.

    Returns:
        `[B, h, N, d]`, of q's type.

    >>> q, k, v = torch.randn(3, 2, 4, 20, 16)
    >>> cope_attention(q, k, v, torch.randn(20, 16)).shape
    torch.Size([2, 4, 20, 16])
    """
    out: Tensor = _ops.cope_attention.default(q, k, v, e, scale=scale)
    return out


def rope(x: Tensor, *, prefix: int = 0) -> Tensor:
    """Rotary position over the raster index of the patches; for q and for k, before `attention`.

    Adjacent channels `(a, b)` turn to `(a cos − b sin, a sin + b cos)`, pair `t` by `10000^(−t/(d/2))` per patch.

    Args:
        x: `[B, h, N, d]`, d even.
        prefix: tokens before the patches, which are left as they are.

    Returns:
        as x.

    >>> x = torch.randn(2, 4, 1 + 20, 16)
    >>> turned = rope(x, prefix=1)
    >>> torch.equal(turned[:, :, :2], x[:, :, :2])  # the prefix token, and patch 0
    True
    """
    out: Tensor = _ops.rope.default(x, prefix=prefix)
    return out


def rope2d(x: Tensor, rows: int, cols: int, *, prefix: int = 0) -> Tensor:
    """Axial rotary position: the first half of the channel pairs turns with x, the second with y.

    Args:
        x: `[B, h, N, d]`, d divisible by 4.
        rows: rows of patches.
        cols: columns of patches.
        prefix: tokens before the patches, which are left as they are.

    Returns:
        as x.

    >>> rope2d(torch.randn(2, 4, 1 + 5 * 7, 16), 5, 7, prefix=1).shape
    torch.Size([2, 4, 36, 16])
    """
    out: Tensor = _ops.rope2d.default(x, rows, cols, prefix=prefix)
    return out


def rope2d_mixed(x: Tensor, fx: Tensor, fy: Tensor, rows: int, cols: int, *, prefix: int = 0) -> Tensor:
    """Rotary position with learnable frequencies along x and y for every head and pair of channels.

    Args:
        x: `[B, h, N, d]`, d even.
        fx: angle per column, `[h, d/2]`.
        fy: angle per row, `[h, d/2]`.
        rows: rows of patches.
        cols: columns of patches.
        prefix: tokens before the patches, which are left as they are.

    Returns:
        as x.

    >>> fx, fy = torch.randn(2, 4, 8)
    >>> rope2d_mixed(torch.randn(2, 4, 5 * 7, 16), fx, fy, 5, 7).shape
    torch.Size([2, 4, 35, 16])
    """
    out: Tensor = _ops.rope2d_mixed.default(x, fx, fy, rows, cols, prefix=prefix)
    return out


def kernel_for(
    op: str,
    images: int,
    heads: int,
    rows: int,
    cols: int,
    head_size: int,
    *,
    prefix: int = 0,
    dtype: str = "bfloat16",
    form: Form = "direct",
    mode: Mode = "k",
    span: Span | None = None,
    positions: int = 0,
    backward: bool = False,
    device: str = "sm_90",
) -> str:
    """Which CUDA kernels a call takes, and why not faster ones, as some lines of text. Needs no GPU.

    Args:
        op: the operator's name, e.g. `"sape2_attention"`, `"axial_attention"` or `"attention"`.
        images: B.
        heads: h.
        rows: rows of patches; 1 for operators without a grid.
        cols: columns of patches; all tokens for operators without a grid.
        head_size: d.
        prefix: tokens before the patches.
        dtype: `"bfloat16"`, `"float16"` or `"float32"`.
        form: of `sape2_attention`.
        mode: `"qk"` makes two sets of axis vectors.
        span: by default `"between"` for the direct form, `"suffix"` for distances.
        positions: rows of a table of positions; by default as many as no position leaves.
        backward: the backward pass.
        device: a compute capability, e.g. `"sm_80"`, or `"cuda"` for the current GPU.

    >>> print(kernel_for("sape2_attention", 128, 6, 14, 14, 64).splitlines()[1].strip())
    attention: attention_head
    """
    text: str = _ops.kernel_for.default(
        op,
        images,
        heads,
        rows,
        cols,
        head_size,
        prefix=prefix,
        dtype=dtype,
        form=form,
        mode=mode,
        span=span,
        positions=positions,
        backward=backward,
        device=device,
    )
    return text
