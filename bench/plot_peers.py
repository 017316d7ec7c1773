"""Draws the time of every peer against the number of tokens.

usage: plot_peers.py PEERS.json OUTPUT.svg     (PEERS.json from bench/peers/run.py --json)

Forward and backward for one head of one image, on both axes in powers; the device's time where a CUDA
graph could be made, otherwise (hollow points) the time of calls from Python. A peer without a backward
pass is drawn by its forward pass alone, dashed.
"""

import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, PANEL_WIDTH, PANEL_HEIGHT, LABELS = 1180, 560, 66, 46, 330, 440, 190
PANELS = {"distance": "Distance form (sape2-k)", "direct": "Direct form (sape2-rel-k)"}
# Middle tones, to be seen on light and on dark pages.
GREY = "#8a8a8a"
OTHERS = ["#c0603a", "#4a7fc1", "#a05fb0", "#b08a1e", "#c2506e", "#4a9aa8"]


def points_of(row):
    """(tokens, microseconds a head, hollow) of one row; nothing where it failed."""
    images, heads, rows, cols, _ = row["shape"]
    figures = row.get("both") if "ms" in (row.get("both") or {}) else row.get("forward")
    if not figures or "ms" not in figures:
        return None
    time = figures.get("graph_ms") or figures["ms"]
    return rows * cols, 1000 * time / (images * heads), not figures.get("graph_ms")


def series(rows, form):
    """{name: (points, forward only)} of one panel, plain attention in both."""
    found = {}
    for row in rows:
        if row["form"] not in (form, "none") or (point := points_of(row)) is None:
            continue
        points, _ = found.setdefault(row["peer"], ([], "ms" not in (row.get("both") or {})))
        points.append(point)
    return {name: (sorted(points), partial) for name, (points, partial) in found.items()}


def colours(lines):
    others = iter(OTHERS * 3)
    return {name: "#1f9d6b" if name.startswith("ours, sape2") else GREY if name in ("plain SDPA", "ours, plain")
            else next(others) for name in lines}


def spread(places, gap, low, high):
    """Label heights as near to `places` as they go without touching."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    heights = [max(low, min(high, place)) for place in places]
    for before, here in zip(order, order[1:]):
        heights[here] = max(heights[here], heights[before] + gap)
    overflow = max(0, max(heights, default=0) - high)
    for here, after in zip(reversed(order), [None, *reversed(order)]):
        limit = high if after is None else heights[after] - gap
        if overflow:
            heights[here] = min(heights[here], limit)
    return heights


def draw_panel(out, left, title, lines, bounds):
    (x0, x1), (y0, y1) = bounds
    place = lambda x, y: (left + (math.log10(x) - x0) / (x1 - x0) * PANEL_WIDTH,
                          TOP + PANEL_HEIGHT - (math.log10(y) - y0) / (y1 - y0) * PANEL_HEIGHT)
    out.append(f'<text class="title" x="{left}" y="26">{escape(title)}</text>')
    for power in range(y0, y1 + 1):
        _, y = place(10**x0, 10.0**power)
        label = f"{10.0**power:g} µs" if power < 3 else f"{10.0 ** (power - 3):g} ms"
        out.append(f'<line class="rule" x1="{left}" x2="{left + PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for tokens in sorted({x for points, _ in lines.values() for x, _, _ in points}):
        x, _ = place(tokens, 10.0**y0)
        out.append(f'<line class="rule" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + PANEL_HEIGHT}"/>')
        out.append(f'<text x="{x:.1f}" y="{TOP + PANEL_HEIGHT + 18}" text-anchor="middle">{tokens}</text>')
    out.append(f'<text x="{left + PANEL_WIDTH / 2}" y="{TOP + PANEL_HEIGHT + 38}" text-anchor="middle">tokens of an image</text>')

    names, colour = list(lines), colours(lines)
    ends = [place(*lines[name][0][-1][:2]) for name in names]
    # A line that ends early is named above its end, where no other line is any more.
    early = [x < left + PANEL_WIDTH - 20 for x, _ in ends]
    heights = spread([y - 175 if soon else y for (_, y), soon in zip(ends, early)], 15, TOP, TOP + PANEL_HEIGHT)
    for name, (end_x, end_y), height, soon in zip(names, ends, heights, early):
        points, partial = lines[name]
        ours = name.startswith("ours, sape2")
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point[:2]) for point in points))
        dash = ' stroke-dasharray="5 4"' if partial else ""
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour[name]}" stroke-width="{3 if ours else 1.8}"{dash}/>')
        for tokens, time, hollow in points:
            x, y = place(tokens, time)
            fill = "none" if hollow else colour[name]
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if ours else 3}" fill="{fill}" stroke="{colour[name]}"/>')
        text_x = left + 8 if soon else left + PANEL_WIDTH + 16
        begin, end = ((end_x, end_y - 5), (end_x, height + 8)) if soon else ((end_x + 5, end_y), (text_x - 4, height))
        out.append(f'<line x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{colour[name]}" stroke-width="0.8"/>')
        weight = ' font-weight="bold"' if ours else ""
        suffix = ", forward only" if partial else ""
        out.append(f'<text x="{text_x}" y="{height + 4:.1f}" style="fill:{colour[name]}"{weight}>{escape(name + suffix)}</text>')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    found = json.loads(pathlib.Path(sys.argv[1]).read_text())
    panels = {form: series(found["rows"], form) for form in PANELS}
    points = [point for lines in panels.values() for made, _ in lines.values() for point in made]
    if not points:
        sys.exit(f"plot_peers.py: {sys.argv[1]} holds no measured row")
    xs, ys = [math.log10(p[0]) for p in points], [math.log10(p[1]) for p in points]
    bounds = (min(xs) - 0.08, max(xs) + 0.02), (math.floor(min(ys)), math.ceil(max(ys)))
    gpu, dtype = found["ceilings"]["gpu"], found["dtype"]
    note = f"; {found['note']}" if "note" in found else ""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
           f"<style>text{{fill:{GREY}}} .title{{font-size:15px}} .rule{{stroke:{GREY};stroke-opacity:.25}}</style>"]
    for index, (form, lines) in enumerate(panels.items()):
        draw_panel(out, LEFT + index * (PANEL_WIDTH + LABELS + LEFT), PANELS[form], lines, bounds)
    out.append(f'<text x="{LEFT}" y="{HEIGHT - 8}">Forward + backward of one head of one image, {escape(dtype)}, '
               f"{escape(gpu)}; hollow points: called from Python, no CUDA graph{escape(note)}</text></svg>")
    pathlib.Path(sys.argv[2]).write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
