"""Draws how time and memory of the attention grow with the number of tokens.

usage: plot_growth.py ROWS.json OUTPUT.svg     (ROWS.json from `sape2 bench attention --json`)
"""

import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, PANEL = 940, 420, 70, 50, 340
COLOURS = {"plain": "#7a7a7a", "sape2-k": "#1b7f4b", "sape2-rel-k": "#b3501e"}


def series(rows, value):
    """{name: [(tokens, value)]} for the fused encodings and, for times, plain attention."""
    found = {}
    for row in rows:
        tokens = row["rows"] * row["cols"]
        found.setdefault(row["encoding"], []).append((tokens, row[f"fused_{value}"]))
        if value == "ms":
            found.setdefault("plain", []).append((tokens, row["plain_ms"]))
    for name, points in found.items():
        best = {}
        for tokens, number in points:
            best[tokens] = min(number, best.get(tokens, number))
        found[name] = sorted(best.items())
    return found


def panel(out, left, title, lines, unit, slopes):
    xs = [math.log10(x) for points in lines.values() for x, _ in points]
    ys = [math.log10(max(y, 1e-3)) for points in lines.values() for _, y in points]
    x0, x1 = min(xs), max(xs)
    y0, y1 = math.floor(min(ys)), math.ceil(max(ys))
    place = lambda x, y: (left + (math.log10(x) - x0) / (x1 - x0) * PANEL,
                          TOP + 300 - (math.log10(max(y, 1e-3)) - y0) / (y1 - y0) * 300)
    out.append(f'<text x="{left + PANEL / 2}" y="30" text-anchor="middle" font-size="15">{title}</text>')
    for power in range(y0, y1 + 1):
        _, y = place(10**x0, 10.0**power)
        out.append(f'<line x1="{left}" x2="{left + PANEL}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{10.0**power:g}</text>')
    for tokens in sorted({x for points in lines.values() for x, _ in points}):
        x, _ = place(tokens, 1)
        out.append(f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{TOP + 300}" stroke="#eee"/>')
        out.append(f'<text x="{x}" y="{TOP + 318}" text-anchor="middle">{tokens}</text>')
    out.append(f'<text x="{left + PANEL / 2}" y="{TOP + 340}" text-anchor="middle">tokens</text>')
    out.append(f'<text x="{left - 44}" y="{TOP - 10}">{unit}</text>')
    for power, label in slopes:  # a dashed line of that slope through the last point of the first curve
        x, y = next(iter(lines.values()))[-1]
        start = 10**x0
        (ax, ay), (bx, by) = place(start, y * (start / x) ** power), place(x, y)
        out.append(f'<line x1="{ax}" y1="{min(ay, TOP + 300)}" x2="{bx}" y2="{by}" stroke="#999" stroke-dasharray="5 4"/>')
        out.append(f'<text x="{ax + 6}" y="{min(ay, TOP + 300) - 6}" fill="#777">{label}</text>')
    for name, points in lines.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS.get(name, "#335")}" stroke-width="2.5"/>')
        for point in points:
            x, y = place(*point)
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{COLOURS.get(name, "#335")}"/>')


def main():
    rows = json.load(open(sys.argv[1]))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12" fill="#222"><rect width="100%" height="100%" fill="white"/>']
    times = series(rows, "ms")
    panel(out, LEFT, "Time, forward and backward", times, "ms", [(2, "∝ N²")])
    panel(out, LEFT + PANEL + 120, "Memory beyond inputs and outputs", series(rows, "mib"), "MiB", [(1.5, "∝ N·(H+W)")])
    for index, name in enumerate(times):
        x = LEFT + index * 210
        out.append(f'<rect x="{x}" y="{HEIGHT - 22}" width="14" height="6" fill="{COLOURS.get(name, "#335")}"/>')
        label = "plain, no bias (LibTorch)" if name == "plain" else f"{name}, fused"
        out.append(f'<text x="{x + 20}" y="{HEIGHT - 15}">{label}</text>')
    out.append("</svg>")
    open(sys.argv[2], "w").write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
