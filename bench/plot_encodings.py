"""Draws the comparison of encodings: accuracy of every run, and what two probes found.

usage: plot_encodings.py FOLDER OUTPUT.svg     (FOLDER: results/encodings)
"""

import json
import pathlib
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, PANEL = 1180, 640, 190, 46, 210
# Middle tones, to be seen on light and on dark pages.
GREY, OURS = "#8a8a8a", "#1f9d6b"
COLOURS = {"ape": "#4a7fc1", "rope2d": "#a05fb0", "sape2-k+ape": "#c0603a", "sape2-rel-k": OURS}


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def runs_of(folder, *names):
    """{encoding: top-1 of each run}, the best first."""
    found = {row["encoding"]: [run["top-1"] for run in row["runs"]]
             for name in names for row in read(folder, name)["rows"] if row["runs"]}
    return dict(sorted(found.items(), key=lambda item: -sum(item[1]) / len(item[1])))


def draw_runs(out, left, width, title, runs):
    low = min(min(values) for values in runs.values()) // 5 * 5
    high = max(max(values) for values in runs.values()) // 5 * 5 + 5
    place = lambda value: left + (value - low) / (high - low) * width
    bottom = TOP + 20 * len(runs)
    out.append(f'<text class="title" x="{left}" y="26">{escape(title)}</text>')
    for value in range(int(low), int(high) + 1, 5):
        out.append(f'<line class="rule" x1="{place(value):.1f}" x2="{place(value):.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        out.append(f'<text x="{place(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value}</text>')
    for number, (name, values) in enumerate(runs.items()):
        y = TOP + 20 * number + 8
        colour = COLOURS.get(name, OURS if name.startswith("sape2-rel") else GREY)
        out.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end" style="fill:{colour}">{escape(name)}</text>')
        out.append(f'<line class="rule" x1="{left}" x2="{left + width}" y1="{y}" y2="{y}"/>')
        for value in values:
            out.append(f'<circle cx="{place(value):.1f}" cy="{y}" r="4.5" fill="{colour}" fill-opacity=".8"/>')


def draw_lines(out, left, top, width, title, axis, lines):
    """Lines are {name: [(label, value), …]} over the same labels."""
    labels = [label for label, _ in next(iter(lines.values()))]
    every = [value for points in lines.values() for _, value in points]
    low, high = min(every) // 10 * 10, -(-max(every) // 10) * 10
    place = lambda number, value: (left + number / (len(labels) - 1) * width, top + PANEL - (value - low) / (high - low) * PANEL)
    out.append(f'<text class="title" x="{left}" y="{top - 18}">{escape(title)}</text>')
    for value in range(int(low), int(high) + 1, 10):
        y = place(0, value)[1]
        out.append(f'<line class="rule" x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for number, label in enumerate(labels):
        out.append(f'<text x="{place(number, low)[0]:.1f}" y="{top + PANEL + 18}" text-anchor="middle">{escape(label)}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + PANEL + 38}" text-anchor="middle">{escape(axis)}</text>')
    for row, (name, points) in enumerate(lines.items()):
        path = " ".join("{:.1f},{:.1f}".format(*place(number, value)) for number, (_, value) in enumerate(points))
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="2.4"/>')
        y = top + 14 + 17 * row
        out.append(f'<line x1="{left + width + 14}" x2="{left + width + 34}" y1="{y}" y2="{y}" stroke="{COLOURS[name]}" stroke-width="2.4"/>')
        out.append(f'<text x="{left + width + 40}" y="{y + 4}" style="fill:{COLOURS[name]}">{escape(name)}</text>')


def probe_lines(probes, probe, table, label, column):
    found = {}
    for encoding, sets in probes.items():
        tables = next(each["tables"] for each in sets["cifar10"] if each["probe"] == probe)
        found[encoding] = [(row[label], row[column]) for row in tables[table]["rows"]]
    return found


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    folder = pathlib.Path(sys.argv[1])
    probes = read(folder, "probes")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
           f"<style>text{{fill:{GREY}}} .title{{font-size:15px}} .rule{{stroke:{GREY};stroke-opacity:.25}}</style>"]
    draw_runs(out, LEFT, 360, "CIFAR-10, top-1 % of every run, 50 epochs", runs_of(folder, "cifar10", "cifar10-more"))
    draw_runs(out, LEFT + 360 + LEFT, 360, "CIFAR-100", runs_of(folder, "cifar100"))
    draw_lines(out, 60, 350, 320, "CIFAR-10 at other sizes, top-1 %", "pixels (trained at 32×32)",
               probe_lines(probes, "sizes", 0, "pixels", "top-1 %"))
    draw_lines(out, 660, 350, 320, "The same answer after a shift, %", "pixels moved, mean of right and down",
               probe_lines(probes, "translation", 0, "pixels", "same answer %"))
    pathlib.Path(sys.argv[2]).write_text("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
