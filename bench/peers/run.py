"""Measures SaPE² attention and everything one could use instead, in one run, and prints one table.

    python3 bench/peers/run.py --library build/cuda/lib/libsape2_ops.so [--json peers.json] [--quick]

Each peer runs in a process that can be ended: one that fails or takes too long is a row that says so.
What torch.compile needs is compiled ahead by several processes at once.
"""

import argparse
import json
import os
import pathlib
import sys

import jobs
from peers import PEERS, QUICK

SHAPES = "128x6:8x8:64,64x6:14x14:64,8x6:32x32:64,1x6:64x64:64"
COLUMNS = ["images × heads, grid, size", "what", "forward graph ms", "×", "both ms", "×", "both graph ms", "×", "MiB", "×", "share"]


def parse_shape(text):
    try:
        batch, grid, size = text.split(":")
        (images, heads), (rows, cols) = (map(int, part.split("x")) for part in (batch, grid))
        return [images, heads, rows, cols, int(size)]
    except ValueError:
        sys.exit(f'run.py: shape "{text}" is not understood; write IMAGESxHEADS:ROWSxCOLS:SIZE, such as 128x6:8x8:64')


def is_wanted(peer, only):
    return only is None or peer is PEERS[0] or any(text in peer.name for text in only.split(";"))


def floor_ms(shape, ceilings, backward):
    """What plain attention of this size needs at the measured ceilings."""
    images, heads, rows, cols, size = shape
    tokens = rows * cols
    moved = (12 if backward else 4) * images * heads * tokens * size * 2
    operations = (14 if backward else 4) * images * heads * tokens**2 * size
    return max(moved / ceilings["copy"], operations / ceilings["product"]) / 1e9


def number(value, digits=3):
    return "–" if value is None else f"{value:.{digits}f}"


def ratio(value, base):
    return "–" if not value or not base else f"{value / base:.2f}"


def cells(row, plain, ceilings):
    images, heads, rows, cols, size = row["shape"]
    shape = f"{images} × {heads}, {rows}×{cols}, {size}"
    if "failed" in row:
        return [shape, row["peer"], row["failed"].replace("|", "/")] + [""] * (len(COLUMNS) - 3)
    forward, both = row["forward"], row.get("both", {})
    base_forward, base_both = plain.get("forward", {}), plain.get("both", {})
    time = both.get("graph_ms") or both.get("ms")
    share = f"{100 * floor_ms(row['shape'], ceilings, True) / time:.0f} %" if time else "–"
    values = [shape, row["peer"], number(forward["graph_ms"] or forward["ms"]),
              ratio(forward["graph_ms"] or forward["ms"], base_forward.get("graph_ms"))]
    if "failed" in both:
        return values + [both["failed"].replace("|", "/")] + [""] * (len(COLUMNS) - 5)
    for key in ("ms", "graph_ms"):
        values += [number(both.get(key)), ratio(both.get(key), base_both.get(key))]
    return values + [number(both.get("mib"), 0), ratio(both.get("mib"), base_both.get("mib")), share]


def print_table(rows, ceilings):
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for shape in dict.fromkeys(tuple(row["shape"]) for row in rows):
        here = [row for row in rows if tuple(row["shape"]) == shape]
        plain = next((row for row in here if row["peer"] == PEERS[0].name), {})
        for row in here:
            print("| " + " | ".join(cells(row, plain, ceilings)) + " |")


def measured(wanted, options, clock):
    """A row for each job, and the ceilings."""
    answers = {}
    for job in wanted:
        longest = PEERS[job["peer"]].longest_line
        if max(job["shape"][2:4]) > longest:
            answers[id(job)] = {"failed": f"not tried: made for lines of up to {longest}"}
    compiled = [job for job in wanted if PEERS[job["peer"]].compiled and id(job) not in answers]
    # One thread each: together they have more to compile than the machine has cores.
    owners = [jobs.Worker("worker", options.library, environment={"TORCHINDUCTOR_COMPILE_THREADS": "1"}) for _ in compiled]
    shared = jobs.Worker("worker", options.library)
    try:
        with jobs.holding(options.lock, alone=False):
            if compiled:
                print(f"compiling {len(compiled)} functions", file=sys.stderr, flush=True)
            ahead = jobs.run_at_once(owners, [{**job, "what": "compile"} for job in compiled], options.at_once,
                                     jobs.Clock(min(options.compile_limit, clock.left())))
        for job, made in zip(compiled, ahead):
            if "failed" in made:
                answers[id(job)] = {"failed": "compiling: " + made["failed"]}
        runs = [(shared, job) for job in wanted if not PEERS[job["peer"]].compiled and id(job) not in answers]
        runs += [(owner, job) for owner, job in zip(owners, compiled) if id(job) not in answers]
        with jobs.holding(options.lock, alone=True):
            ceilings = shared.run({"what": "ceilings"}, options.limit)
            if "failed" in ceilings:
                sys.exit("run.py: the GPU could not be measured: " + ceilings["failed"])
            for worker, job in runs:
                print(f"{PEERS[job['peer']].name} {job['shape']}", file=sys.stderr, flush=True)
                answers[id(job)] = jobs.run_within(worker, job, options.limit, clock)
                if worker is not shared:
                    worker.close()
    finally:
        for worker in [shared, *owners]:
            worker.close()
    rows = [{"peer": PEERS[job["peer"]].name, "form": PEERS[job["peer"]].form, "shape": job["shape"], **answers[id(job)]}
            for job in wanted]
    return rows, ceilings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", required=True, help="libsape2_ops.so, for the operators")
    parser.add_argument("--shapes", default=SHAPES, help=f"IMAGESxHEADS:ROWSxCOLS:SIZE,… (default: {SHAPES})")
    parser.add_argument("--dtype", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--quick", action="store_true", help="ours and plain SDPA only")
    parser.add_argument("--only", help="peers whose names hold one of these, and plain SDPA: TEXT;TEXT;…")
    parser.add_argument("--no-compile", action="store_true", help="leave out what torch.compile makes")
    parser.add_argument("--limit", type=float, default=60, help="seconds a peer may take at one shape (default: 60)")
    parser.add_argument("--compile-limit", type=float, default=300, help="seconds for all compilations (default: 300)")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="compilations at once (default: one a core)")
    parser.add_argument("--budget", type=float, default=3600, help="seconds for the whole run (default: 3600)")
    parser.add_argument("--lock", help="a file shared with other runs: they compile together, each measures alone")
    parser.add_argument("--json", help="write all figures to this file")
    options = parser.parse_args()

    clock = jobs.Clock(options.budget)
    shapes = [parse_shape(text) for text in options.shapes.split(",")]
    chosen = QUICK if options.quick else [i for i, peer in enumerate(PEERS) if is_wanted(peer, options.only)]
    wanted = [{"what": "measure", "peer": peer, "shape": shape, "dtype": options.dtype}
              for peer in chosen if not (options.no_compile and PEERS[peer].compiled) for shape in shapes]

    rows, ceilings = measured(wanted, options, clock)
    print(f"{ceilings['gpu']}, PyTorch {ceilings['torch']}, {options.dtype}; copy {ceilings['copy']:.2f} TB/s, "
          f"product {ceilings['product']:.0f} TFLOP/s")
    print("both: forward + backward; ms: called from Python; graph ms: in a CUDA graph; ×: over plain SDPA's; MiB: peak beyond "
          "inputs; share: of what plain attention needs at those ceilings (graph time)\n")
    print_table(rows, ceilings)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"dtype": options.dtype, "ceilings": ceilings, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
