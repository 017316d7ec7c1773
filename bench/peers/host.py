"""Measures what calls cost the host: one image, so that the GPU is done before the next call comes.

    python3 bench/peers/host.py --library build/cuda/lib/libsape2_ops.so

Microseconds a call of ours and of plain SDPA, least of several rounds: forward alone, forward that remembers
what backward needs, and both.
"""

import argparse
import time

import formulas
import torch
import worker
from peers import PEERS, QUICK

SHAPES = ([1, 6, 8, 8, 64], [1, 6, 14, 14, 64], [1, 1, 32, 32, 64])
CALLS, ROUNDS = 300, 7


def least_us(call):
    for _ in range(20):
        call()
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - begin) / CALLS * 1e6)
    return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", required=True, help="libsape2_ops.so, for the operators")
    worker.prepare(parser.parse_args().library)
    print("| images × heads, grid, size | what | forward | remembering | both |\n|---|---|---|---|---|")
    for shape in SHAPES:
        images, heads, rows, cols, size = shape
        for peer in (PEERS[index] for index in QUICK):
            forward, both = worker.steps(peer, shape, torch.bfloat16)
            function, leaves = getattr(formulas, peer.function), worker.inputs(shape, torch.bfloat16, peer.form == "direct")
            calls = (forward, lambda: function(*leaves, rows, cols), both)
            cells = " | ".join(f"{least_us(call):.1f}" for call in calls)
            print(f"| {images} × {heads}, {rows}×{cols}, {size} | {peer.name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
