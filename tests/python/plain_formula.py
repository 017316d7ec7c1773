"""SaPE² attention as a formula in ordinary operations, computed in the inputs' own type: in float64
the truth, in 16 bits the yardstick of the twofold rule."""

import torch
import torch.nn.functional as F


def _distances(u):
    wide = u if u.dtype == torch.float64 else u.float()
    return torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist").to(u.dtype)


def _grid(tokens, rows, cols, prefix, turned):
    """Patches as rows of the grid, or turned as its columns: (images, heads, lines, n, size)."""
    images, heads, _, size = tokens.shape
    grid = tokens[:, :, prefix:].reshape(images, heads, rows, cols, size)
    return grid.transpose(2, 3) if turned else grid


def _per_head(value, axes, dtype):
    return (value if value.dim() == 0 else value.view(-1, *[1] * axes)).to(dtype)


def positions(q, k, rows, cols, prefix, span, gate_scale, gate_offset, table_rows, turned):
    """Positions along rows of the grid, or turned along its columns, and the table row of position 0."""
    lines = lambda t: _grid(t, rows, cols, prefix, turned)
    scale, offset = (_per_head(t, 3, q.dtype) for t in (gate_scale, gate_offset))
    gates = torch.sigmoid(scale * (lines(q) @ lines(k).mT) + offset)
    if span == "suffix":
        p, origin = gates.flip(-1).cumsum(-1).flip(-1), 0
    else:
        left = gates.tril(-1).flip(-1).cumsum(-1).flip(-1)
        p, origin = gates.triu(1).cumsum(-1) - left, table_rows // 2
    return p.clamp(-origin, table_rows - 1 - origin), origin


def sape2_attention(q, k, v, ex, ey, rows, cols, *, prefix, mode, span, form, scale, gate_scale,
                    gate_offset, gain, bias_inside):
    dtype = q.dtype

    def vectors(source, table, turned):
        p, origin = positions(q, k, rows, cols, prefix, span, gate_scale, gate_offset, table.shape[-2], turned)
        table = table.to(dtype)
        values = _grid(source, rows, cols, prefix, turned) @ (table.unsqueeze(1) if table.dim() == 3 else table).mT
        below = p.detach().floor()
        at = lambda place: values.gather(-1, place.long() + origin)
        u = (p - below) * at(p.detach().ceil()) + (1 - p + below) * at(below)
        return (u.transpose(2, 3) if turned else u).reshape(*q.shape[:2], rows * cols, -1)

    bias = 0
    sources = {"q": [q], "k": [k], "qk": [q, k]}[mode]
    for index, source in enumerate(sources):
        tables = [t[index] if mode == "qk" else t for t in (ex, ey)]
        ux, uy = vectors(source, tables[0], False), vectors(source, tables[1], True)
        if form == "distance":
            bias = bias + _distances(ux) + _distances(uy)
        else:
            bias = bias + (ux.unsqueeze(3) + uy.unsqueeze(4)).flatten(3)
    bias = _per_head(gain, 2, dtype) * F.pad(bias, (prefix, 0, prefix, 0))
    scores = q @ k.mT
    logits = scale * (scores + bias) if bias_inside else scale * scores + bias
    return logits.softmax(-1) @ v
