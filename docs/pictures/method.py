"""Draws the figures of docs/method.md: stages.svg and spans.svg.

usage: method.py FOLDER

stages.svg shows how queries, keys and tables become a bias. spans.svg puts one row of eight patches on two
rulers: where they stand by the paper's sum to the end of the row, and by our signed sum between two patches.
"""

import math
import pathlib
import sys

INK, SOFT, LINE, RED = "#222", "#5a666e", "#8a949c", "#c01818"
WALL, BALL = "#b4c2ce", "#d1603d"


class Drawing:
    def __init__(self, width, height):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                      'font-family="sans-serif" font-size="13">', '<rect width="100%" height="100%" fill="white"/>']

    def text(self, x, y, words, size=13, anchor="middle", fill=INK, extra=""):
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{extra}>{words}</text>')

    def box(self, x, y, width, height, fill, stroke=LINE, thick=0.8, round_by=0):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by}" fill="{fill}" '
                          f'stroke="{stroke}" stroke-width="{thick}"/>')

    def line(self, x1, y1, x2, y2, stroke=LINE, thick=1.2):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{stroke}" stroke-width="{thick}"/>')

    def arrow(self, x1, y, x2):
        self.line(x1, y, x2 - 6, y, SOFT, 1.6)
        self.parts.append(f'<path d="M{x2:g},{y:g} l-9,-5 v10 z" fill="{SOFT}"/>')

    def save(self, path):
        path.write_text("\n".join([*self.parts, "</svg>"]) + "\n", encoding="utf-8")


def stages(path):
    """Five boxes from left to right, under the names of the two stages."""
    boxes = [
        ("gates", ["g = σ(s·q·k + o)", "along the row,", "along the column"]),
        ("positions", ["sums of gates:", "to the end of the row,", "or from i to m"]),
        ("table", ["z[p] = k·e[p]", "(or q·e[p]), linear", "between whole p"]),
        ("axis vectors", ["Uˣ: one number", "per column; Uʸ: one", "number per row"]),
        ("bias", ["distance of two", "patches’ vectors,", "or the vector itself"]),
        ("attention", ["softmax of", "q·k plus bias,", "times v"]),
    ]
    wide, gap, top, high = 150, 26, 58, 92
    width = len(boxes) * wide + (len(boxes) - 1) * gap + 40
    picture = Drawing(width, top + high + 30)
    for index, (title, words) in enumerate(boxes):
        left = 20 + index * (wide + gap)
        second = index >= 4
        picture.box(left, top, wide, high, "#fdf3ee" if second else "#eef3f8", "#d9a58f" if second else "#9db2c6", 1.2, 6)
        picture.text(left + wide / 2, top + 24, title, 14, extra=' font-weight="bold"')
        for number, word in enumerate(words):
            picture.text(left + wide / 2, top + 46 + 17 * number, word, 12.5, fill=SOFT)
        if index:
            picture.arrow(left - gap + 3, top + high / 2, left - 2)
    for first, last, words in ((0, 3, "stage 1, per patch: its own row and column"), (4, 5, "stage 2, per pair of patches")):
        left, right = 20 + first * (wide + gap), 20 + last * (wide + gap) + wide
        picture.line(left, top - 14, right, top - 14, LINE, 1)
        picture.text((left + right) / 2, top - 24, words, 14)
    picture.save(path)


def spans(path):
    """A row with a ball in its middle, seen from a patch on the ball and from one on the wall."""
    region = [0, 0, 1, 1, 1, 1, 0, 0]
    count, cell, left, step = len(region), 78, 176, 78
    gate = lambda i, j: 1 / (1 + math.exp(-(1.3 if region[i] == region[j] else -1.3)))
    picture = Drawing(left + count * cell + 40, 444)

    def ruler(y, positions, first, last, seen_from, name, note):
        place = lambda p: left + (p - first + 0.5) * step
        picture.text(left - 14, y - 2, name, 13, "end")
        picture.text(left - 14, y + 14, note, 11, "end", SOFT)
        picture.line(place(first) - 8, y, place(last) + 8, y)
        for p in range(first, last + 1):
            picture.line(place(p), y - 4, place(p), y + 4)
            picture.text(place(p), y + 18, str(p).replace("-", "−"), 11, fill=SOFT)
        for m, p in enumerate(positions):
            own = m == seen_from
            picture.parts.append(f'<circle cx="{place(p):.1f}" cy="{y - 13}" r="8" fill="{BALL if region[m] else WALL}" '
                                 f'stroke="{RED if own else "#55616a"}" stroke-width="{2.4 if own else 0.8}" fill-opacity="0.85"/>')
            picture.text(round(place(p), 1), y - 9, str(m + 1), 10.5)

    def view(top, i, title):
        picture.text(left + count * cell / 2, top, title, 14)
        for j in range(count):
            picture.box(left + j * cell, top + 14, cell, 44, BALL if region[j] else WALL)
            picture.text(left + (j + 0.5) * cell, top + 33, str(j + 1), 12)
            picture.text(left + (j + 0.5) * cell, top + 50, f"g = {gate(i, j):.2f}", 10.5)
        picture.box(left + i * cell, top + 14, cell, 44, "none", RED, 3)
        g = [gate(i, j) for j in range(count)]
        suffix = [sum(g[m:]) for m in range(count)]
        between = [sum(g[i + 1:m + 1]) if m >= i else -sum(g[m:i]) for m in range(count)]
        ruler(top + 106, suffix, 0, count - 1, i, "suffix", "counted from the right end")
        ruler(top + 164, between, -i, count - 1 - i, i, "between", "from the patch, signed")

    view(26, 3, "Seen from patch 4: patches of the ball count, patches of the wall hardly do")
    view(240, 1, "Seen from patch 2: the other way round")
    picture.save(path)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    stages(folder / "stages.svg")
    spans(folder / "spans.svg")
