"""The worked example of docs/method.md: four patches in one row, step by step, in plain Python.

usage: worked_example.py [PAGE]     prints the tables, or writes them into the page between its markers

No library is used, so that every line can be read against the formulas of the page.
tests/docs/worked_example_test.py holds the figures to the operators, and the page to the figures.
"""

import math
import sys

BEGIN, END = "<!-- begin worked example: {} -->", "<!-- end worked example -->"

# Patches 1 and 2 show a dog, 3 and 4 the grass. Queries equal keys; the second channel is always 1.
K = Q = [(1.25, 1.0), (1.25, 1.0), (-1.25, 1.0), (-1.25, 1.0)]
D, W = 2, 4
ROOT = math.sqrt(D)

# Tables: only the second channel is used, so that k·e[p] is the number given here.
SUFFIX = [0.0, 1.0, 1.6, 2.0, 2.2]  # positions 0 … 4
BETWEEN = [-0.6, -0.4, -0.2, 0.0, -0.5, -1.0, -1.5]  # positions −3 … 3: left costs less than right


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def gates(i, patches, scale, offset):
    return [1 / (1 + math.exp(-(scale * dot(Q[i], K[j]) + offset))) for j in patches]


def suffix_positions(g):
    return [min(sum(g[m:]), len(SUFFIX) - 1) for m in range(len(g))]


def between_positions(g, i):
    right = [sum(g[i + 1:m + 1]) for m in range(i, len(g))]
    left = [-sum(g[m:i]) for m in range(i)]
    return left + right


def read(table, position, origin):
    """The table at a position between two rows; `origin` is the row of position 0."""
    place = position + origin
    low = math.floor(place)
    share = place - low
    return share * table[math.ceil(place)] + (1 - share) * table[low]


def vector(i, patches, own, span, scale, offset):
    """Gates, positions and axis vector of patch i over the patches of one line, where it is number `own`."""
    g = gates(i, patches, scale, offset)
    if span == "suffix":
        p, table, origin = suffix_positions(g), SUFFIX, 0
    else:
        p, table, origin = between_positions(g, own), BETWEEN, len(BETWEEN) // 2
    return g, p, [K[i][1] * read(table, position, origin) for position in p]


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))


def softmax(logits):
    powers = [math.exp(x) for x in logits]
    return [x / sum(powers) for x in powers]


def solve(span, offset):
    """Every step for all four patches: sape2-k (suffix, distances, bias inside the division by √d) or
    sape2-rel-k (between, direct, outside). A column has one patch."""
    lines = [vector(i, range(W), i, span, 1 / ROOT, offset) for i in range(W)]
    ux = [line[2] for line in lines]
    uy = [vector(i, [i], 0, span, 1 / ROOT, offset)[2] for i in range(W)]
    plain = [[dot(Q[i], K[n]) / ROOT for n in range(W)] for i in range(W)]
    if span == "suffix":
        bias = [[distance(ux[i], ux[n]) + distance(uy[i], uy[n]) for n in range(W)] for i in range(W)]
        logits = [[plain[i][n] + bias[i][n] / ROOT for n in range(W)] for i in range(W)]
    else:
        bias = [[ux[i][n] + uy[i][0] for n in range(W)] for i in range(W)]
        logits = [[plain[i][n] + bias[i][n] for n in range(W)] for i in range(W)]
    return {"gates": [line[0] for line in lines], "positions": [line[1] for line in lines], "ux": ux, "uy": uy,
            "bias": bias, "plain": [softmax(row) for row in plain], "attention": [softmax(row) for row in logits]}


def paper():
    """sape2-k, gates as the paper has them."""
    return solve("suffix", 0)


def relative():
    """sape2-rel-k, gates as they start: α = 1, β = 2."""
    return solve("between", 2)


def signed(x):
    return f"{x:.2f}".replace("-", "−") if round(x, 2) else "0"


def percent(x):
    return f"{100 * x:.1f} %"


def table(rows):
    """A Markdown table of (label, numbers, how to write them)."""
    lines = ["| | 1 (dog) | 2 (dog) | 3 (grass) | 4 (grass) |", "|---|---|---|---|---|"]
    for label, numbers, write in rows:
        lines.append(f"| {label} | " + " | ".join(write(x) for x in numbers) + " |")
    return "\n".join(lines)


def paper_table():
    it = paper()
    rows = []
    for i in (0, 2):
        rows += [(f"gate $g_{{{i + 1}j}}$", it["gates"][i], signed),
                 (f"position $p_{{{i + 1}m}}$", it["positions"][i], signed),
                 (f"vector $U^x_{i + 1}$", it["ux"][i], signed)]
    rows += [("bias $b_{1n}$", it["bias"][0], signed),
             ("attention of patch 1 without bias", it["plain"][0], percent),
             ("attention of patch 1 with the bias", it["attention"][0], percent)]
    return table(rows)


def relative_table():
    it = relative()
    rows = []
    for i in (0, 2):
        rows += [(f"gate $g_{{{i + 1}j}}$", it["gates"][i], signed),
                 (f"position $p_{{{i + 1}m}}$", it["positions"][i], signed),
                 (f"bias $b_{{{i + 1}n}} = U^x_{i + 1}[n]$", it["bias"][i], signed),
                 (f"attention of patch {i + 1} with the bias", it["attention"][i], percent)]
    return table(rows)


def blocks():
    return {"paper": paper_table(), "relative": relative_table()}


def sentences():
    """The figures that the page names in its text, as it writes them."""
    it, ours = paper(), relative()
    dog, grass = it["gates"][0][0], it["gates"][0][2]
    above = it["positions"][0][1] - 1
    apart = [abs(a - b) for a, b in zip(it["ux"][0], it["ux"][2])]
    moved = 100 * (it["attention"][0][2] - it["plain"][0][2])
    return [f"$q \\cdot k$ is {dot(Q[0], K[0]):.2f} within a region and {signed(dot(Q[0], K[2]))} across",
            f"each dog patch as {dog:.2f} and each grass patch as {grass:.2f}",
            f"${dog:.2f} + {grass:.2f} + {grass:.2f} = {above + 1:.2f}$",
            f"${above:.2f} \\cdot 1.6 + {1 - above:.2f} \\cdot 1 = {it['ux'][0][1]:.2f}$",
            f"$({', '.join(signed(x) for x in apart)})$, a distance of {it['bias'][0][2]:.2f}",
            f"by about {moved:.0f} percentage points",
            f"at {signed(ours['positions'][2][1])} and {signed(ours['positions'][2][0])}, not −1 and −2"]


def written(page):
    """The text of a page with the tables of today."""
    for name, text in blocks().items():
        begin = BEGIN.format(name)
        head, rest = page.split(begin, 1)
        page = head + begin + "\n" + text + "\n" + END + rest.split(END, 1)[1]
    return page


def main():
    if len(sys.argv) < 2:
        print("\n\n".join(blocks().values()))
        return
    with open(sys.argv[1], encoding="utf-8") as file:
        page = written(file.read())
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write(page)


if __name__ == "__main__":
    main()
