#!/usr/bin/env python3
"""The reports of results/regions/retrofit.sh as one table: rows are encodings, columns the epochs of training.

usage: retrofit_table.py FOLDER
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any


def spread(values: list[float]) -> str:
    """Mean ± deviation, as the reports write it."""
    if not values:
        return "–"
    mean = f"{statistics.mean(values):.2f}"
    return mean if len(values) < 2 else f"{mean} ± {statistics.stdev(values):.2f}"


def rows(folder: Path) -> dict[tuple[str, str], dict[int, list[float]]]:
    """Top-1 of every seed, by encoding and kind (`retrofit` or `scratch`), then by epochs."""
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for report in sorted(folder.glob("*/results.json")):
        kind, _, epochs = report.parent.name.partition("-")
        for row in json.loads(report.read_text())["rows"]:
            runs: list[dict[str, Any]] = row["runs"]
            cells = found.setdefault((row["encoding"], kind), {})
            cells[int(epochs)] = [run["top-1"] for run in runs]
            before = [run["start"]["top-1"] for run in runs if "start" in run]
            if before:
                cells[0] = before
    return found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    found = rows(Path(sys.argv[1]))
    if not found:
        sys.exit(f"{sys.argv[1]} holds no folder with a results.json; run retrofit.sh first")
    columns = sorted({epochs for cells in found.values() for epochs in cells})
    print("| encoding, top-1 % after so many epochs | starts from |", *(f"{epochs} |" for epochs in columns))
    print("|---" * (2 + len(columns)) + "|")
    for (encoding, kind), cells in found.items():
        start = "the trained ape model" if kind == "retrofit" else "random weights"
        print(f"| {encoding} | {start} |", *(f"{spread(cells.get(epochs, []))} |" for epochs in columns))


if __name__ == "__main__":
    main()
