"""SaPE² attention in ordinary PyTorch operations: what a user would otherwise write or call.

All take q, k, v (images, heads, rows·cols, size) and tables ex, ey (positions, size), mode K; the
relative ones also their learnable gates, gate_scale and gate_offset (heads).
"""

import torch
import torch.nn.functional as F


def interpolated(values, positions, origin):
    """values (…, M) read between whole positions; the listing's gather, with whole-number indices."""
    below = positions.detach().floor()
    above = positions.detach().ceil()
    weight = positions - below
    return weight * values.gather(-1, above.long() + origin) + (1 - weight) * values.gather(
        -1, below.long() + origin
    )


def axis_vectors(q, k, table, span, gate_scale, gate_offset):
    """One axis, lines in the last but two places: (…, n, size) to (…, n, n)."""
    gates = torch.sigmoid((q * gate_scale) @ k.mT + gate_offset)
    if span == "suffix":
        positions, origin = gates.flip(-1).cumsum(-1).flip(-1), 0
    else:
        left = gates.tril(-1).flip(-1).cumsum(-1).flip(-1)
        positions, origin = gates.triu(1).cumsum(-1) - left, table.shape[0] // 2
    positions = positions.clamp(-origin, table.shape[0] - 1 - origin)
    return interpolated(k @ table.to(k.dtype).T, positions, origin)


def vectors(q, k, ex, ey, rows, cols, span, gate_scale, gate_offset):
    images, heads, tokens, size = q.shape
    grid = lambda t: t.reshape(images, heads, rows, cols, size)
    turned = lambda t: grid(t).transpose(2, 3)
    ux = axis_vectors(grid(q), grid(k), ex, span, gate_scale, gate_offset)
    uy = axis_vectors(turned(q), turned(k), ey, span, gate_scale, gate_offset).transpose(2, 3)
    return ux.reshape(images, heads, tokens, cols), uy.reshape(images, heads, tokens, rows)


def subtracted_distances(u):
    """As the listing has it."""
    return torch.cdist(u.float(), u.float(), p=2).to(u.dtype)


def product_distances(u):
    """|u|² + |w|² − 2u·w, which a compiler can fuse."""
    squares = (u.float() * u.float()).sum(-1)
    product = (u @ u.mT).float()
    return (squares.unsqueeze(-1) + squares.unsqueeze(-2) - 2 * product).clamp_min(1e-12).sqrt().to(u.dtype)


def paper_bias(q, k, ex, ey, rows, cols, distances):
    ux, uy = vectors(q, k, ex, ey, rows, cols, "suffix", q.shape[-1] ** -0.5, 0.0)
    return distances(ux) + distances(uy)


def relative_bias(q, k, ex, ey, gate_scale, gate_offset, rows, cols):
    gates = [gate.to(q.dtype).view(-1, 1, 1, 1) for gate in (gate_scale, gate_offset)]
    ux, uy = vectors(q, k, ex, ey, rows, cols, "between", *gates)
    return (ux.unsqueeze(3) + uy.unsqueeze(4)).flatten(3)


def listing(q, k, v, ex, ey, rows, cols):
    """The paper's code made runnable: scores, bias and softmax stored in full."""
    bias = paper_bias(q, k, ex, ey, rows, cols, subtracted_distances)
    return ((q @ k.mT + bias) * q.shape[-1] ** -0.5).softmax(-1) @ v


def matrix_form(q, k, v, ex, ey, rows, cols):
    bias = paper_bias(q, k, ex, ey, rows, cols, product_distances)
    return ((q @ k.mT + bias) * q.shape[-1] ** -0.5).softmax(-1) @ v


def sdpa_with_distances(q, k, v, ex, ey, rows, cols):
    bias = paper_bias(q, k, ex, ey, rows, cols, product_distances)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias * q.shape[-1] ** -0.5)


def relative_listing(q, k, v, ex, ey, gate_scale, gate_offset, rows, cols):
    bias = relative_bias(q, k, ex, ey, gate_scale, gate_offset, rows, cols)
    return (q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v


def sdpa_with_relative(q, k, v, ex, ey, gate_scale, gate_offset, rows, cols):
    """A stored bias, as SAM and MONAI do it."""
    bias = relative_bias(q, k, ex, ey, gate_scale, gate_offset, rows, cols)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def flex_distances(q, k, v, ex, ey, rows, cols):
    """FlexAttention, each score's distances summed entry by entry; it has no backward pass."""
    from torch.nn.attention.flex_attention import flex_attention

    ux, uy = vectors(q, k, ex, ey, rows, cols, "suffix", q.shape[-1] ** -0.5, 0.0)
    torch._dynamo.graph_break()  # score functions read tensors that are stored
    scale = q.shape[-1] ** -0.5

    def distance(u, image, head, query, key):
        total = 0.0
        for entry in range(u.shape[-1]):
            step = u[image, head, query, entry].float() - u[image, head, key, entry].float()
            total = total + step * step
        return torch.sqrt(total)

    def biased(score, image, head, query, key):
        return score + scale * (distance(ux, image, head, query, key) + distance(uy, image, head, query, key))

    return flex_attention(q, k, v, score_mod=biased)


def flex_relative(q, k, v, ex, ey, gate_scale, gate_offset, rows, cols):
    """FlexAttention reading the two small tensors of the direct form."""
    from torch.nn.attention.flex_attention import flex_attention

    gates = [gate.to(q.dtype).view(-1, 1, 1, 1) for gate in (gate_scale, gate_offset)]
    ux, uy = vectors(q, k, ex, ey, rows, cols, "between", *gates)
    torch._dynamo.graph_break()  # score functions read tensors that are stored

    def biased(score, image, head, query, key):
        return score + ux[image, head, query, key % cols] + uy[image, head, query, key // cols]

    return flex_attention(q, k, v, score_mod=biased)


def plain_sdpa(q, k, v, ex, ey, rows, cols):
    return F.scaled_dot_product_attention(q, k, v)


def ours(q, k, v, ex, ey, rows, cols):
    return torch.ops.sape2.sape2_attention(q, k, v, ex, ey, rows, cols)


def ours_relative(q, k, v, ex, ey, gate_scale, gate_offset, rows, cols):
    return torch.ops.sape2.sape2_attention(
        q, k, v, ex, ey, rows, cols, span="between", form="direct", gate_scale=gate_scale,
        gate_offset=gate_offset, bias_inside=False,
    )


def ours_plain(q, k, v, ex, ey, rows, cols):
    return torch.ops.sape2.attention(q, k, v)
