"""Draws docs/pictures/how_it_works.svg from the operators themselves.

usage: how_it_works.py LIBRARY OUTPUT.svg     (libsape2_ops.so; Debian: /usr/bin/python3)

A hand-made image of 8 × 8 patches, a ball on a wall: patches of one region get like keys and
queries. Left the image, then what SaPE² makes of it: the soft positions one patch sees along its row,
and how near every other patch is to it.
"""

import sys

import torch

SIDE, CELL, GAP, TOP = 8, 30, 60, 54
ORIGIN = (4, 3)  # the patch that looks: row, column


def regions():
    """1 inside the ball, 0 on the wall."""
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    return (((y - 3.5) ** 2 + (x - 3.5) ** 2) < 7).long()


def colour(region):
    return "#d1603d" if region else "#b4c2ce"


def soft_positions(region):
    """Each patch's soft positions along its row, (H, W, W), and the bias (N, N).

    Keys and queries point one way inside the ball and the other way outside, so gates open within a
    region and close across. The table holds the position itself, times a second, constant channel.
    """
    features = torch.stack([region.flatten() * 4.4 - 2.2, torch.full((SIDE * SIDE,), 0.44)], -1)
    q = k = features.double()[None, None]
    table = torch.arange(SIDE + 1, dtype=torch.float64)[:, None] * torch.tensor([0.0, 1.0])
    arguments = (q, k, table, table, SIDE, SIDE)
    gate_scale = torch.tensor(1.0, dtype=torch.float64)
    ux, _ = torch.ops.sape2.sape2_vectors(*arguments, mode="k", gate_scale=gate_scale)
    bias = torch.ops.sape2.sape2_bias(*arguments, mode="k", gate_scale=gate_scale)
    return (ux[0, 0] / k[0, 0, :, 1:]).view(SIDE, SIDE, SIDE), bias[0, 0]


def green(value):
    """White (near) to green (far)."""
    near, far = (255, 255, 255), (20, 110, 60)
    return "#%02x%02x%02x" % tuple(round(a + (b - a) * value) for a, b in zip(near, far))


def draw(path):
    region = regions()
    positions, bias = soft_positions(region)
    row, column = ORIGIN
    near = bias[row * SIDE + column].view(SIDE, SIDE)
    near = near / near.max()
    panel = SIDE * CELL
    width, height = 3 * panel + 2 * GAP + 40, panel + TOP + 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>']

    def text(x, y, words, size=13, anchor="middle", fill="#222"):
        out.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}">{words}</text>')

    def grid(index, title, fill, label=lambda y, x: "", note=""):
        left = 20 + index * (panel + GAP)
        text(left + panel / 2, TOP - 26, title, 15)
        text(left + panel / 2, TOP - 9, note, 12, fill="#445")
        for y in range(SIDE):
            for x in range(SIDE):
                cx, cy = left + x * CELL, TOP + y * CELL
                out.append(f'<rect x="{cx}" y="{cy}" width="{CELL}" height="{CELL}" fill="{fill(y, x)}" stroke="#8a949c" stroke-width="0.6"/>')
                if label(y, x):
                    text(cx + CELL / 2, cy + CELL / 2 + 4, label(y, x), 10.5)
        out.append(f'<rect x="{left + column * CELL}" y="{TOP + row * CELL}" width="{CELL}" height="{CELL}" fill="none" stroke="#c01818" stroke-width="3"/>')
        return left

    grid(0, "An image in patches", lambda y, x: colour(region[y, x]))
    grid(1, "Soft positions along the row", lambda y, x: colour(region[y, x]) if y == row else "#f6f7f8",
         lambda y, x: f"{positions[row, column, x]:.1f}" if y == row else "", "(and likewise along the column)")
    grid(2, "Bias seen from that patch", lambda y, x: green(near[y, x].item()))
    for index in (0, 1):
        x = 20 + (index + 1) * panel + index * GAP
        text(x + GAP / 2, TOP + panel / 2, "→", 30, fill="#566")
    text(width / 2, height - 32, "The paper’s form: gates from queries and keys add up to positions; positions become vectors; "
         "their distance is the bias,", 13, fill="#445")
    text(width / 2, height - 12, "white for none, green for much. It is added to the logits, so green patches gain "
         "attention.", 13, fill="#445")
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    torch.ops.load_library(sys.argv[1])
    draw(sys.argv[2])
