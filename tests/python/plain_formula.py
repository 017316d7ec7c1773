"""SaPE² attention as a formula in ordinary operations, computed in the inputs' own type: in float64
the truth, in 16 bits the yardstick of the twofold rule."""

import torch
import torch.nn.functional as F


def _distances(u):
    wide = u if u.dtype == torch.float64 else u.float()
    return torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist").to(u.dtype)


def sape2_attention(q, k, v, ex, ey, rows, cols, *, prefix, mode, span, form, scale, gate_scale,
                    gate_offset, gain, bias_inside):
    dtype = q.dtype
    images, heads, _, size = q.shape
    head = lambda t, axes: (t if t.dim() == 0 else t.view(-1, *[1] * axes)).to(dtype)
    grid = lambda t: t[:, :, prefix:].reshape(images, heads, rows, cols, size)

    def vectors(source, table, turned):
        turn = lambda t: t.transpose(2, 3) if turned else t
        gates = torch.sigmoid(
            head(gate_scale, 3) * (turn(grid(q)) @ turn(grid(k)).mT) + head(gate_offset, 3)
        )
        if span == "suffix":
            positions, origin = gates.flip(-1).cumsum(-1).flip(-1), 0
        else:
            left = gates.tril(-1).flip(-1).cumsum(-1).flip(-1)
            positions, origin = gates.triu(1).cumsum(-1) - left, table.shape[-2] // 2
        positions = positions.clamp(-origin, table.shape[-2] - 1 - origin)
        table = table.to(dtype)
        values = turn(grid(source)) @ (table.unsqueeze(1) if table.dim() == 3 else table).mT
        below = positions.detach().floor()
        at = lambda place: values.gather(-1, place.long() + origin)
        u = (positions - below) * at(positions.detach().ceil()) + (1 - positions + below) * at(below)
        return turn(u).reshape(images, heads, rows * cols, -1)

    bias = 0
    sources = {"q": [q], "k": [k], "qk": [q, k]}[mode]
    for index, source in enumerate(sources):
        tables = [t[index] if mode == "qk" else t for t in (ex, ey)]
        ux, uy = vectors(source, tables[0], False), vectors(source, tables[1], True)
        if form == "distance":
            bias = bias + _distances(ux) + _distances(uy)
        else:
            bias = bias + (ux.unsqueeze(3) + uy.unsqueeze(4)).flatten(3)
    bias = head(gain, 2) * F.pad(bias, (prefix, 0, prefix, 0))
    scores = q @ k.mT
    logits = scale * (scores + bias) if bias_inside else scale * scores + bias
    return logits.softmax(-1) @ v
