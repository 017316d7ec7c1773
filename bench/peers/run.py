"""Measures SaPE² attention and everything one could use instead, in one run, and prints one table.

    python3 bench/peers/run.py --library build/lib/libsape2_ops.so [--quick] [--no-compile]
"""

import argparse

import torch

import formulas
import measure

SHAPES = [(128, 6, 8, 8, 64), (64, 6, 14, 14, 64), (8, 6, 32, 32, 64), (1, 6, 64, 64, 64)]


def peers(compiled):
    yield "plain SDPA", formulas.plain_sdpa
    yield "ours, plain", formulas.ours_plain
    yield "ours, sape2-k", formulas.ours
    yield "ours, sape2-rel-k", formulas.ours_relative
    yield "listing (sape2)", formulas.listing
    yield "SDPA + stored distances", formulas.sdpa_with_distances
    yield "listing (sape2-rel)", formulas.relative_listing
    yield "SDPA + stored bias (rel)", formulas.sdpa_with_relative
    if compiled:
        yield "compiled listing", torch.compile(formulas.listing)
        yield "compiled matrix form", torch.compile(formulas.matrix_form)
        yield "compiled rel", torch.compile(formulas.relative_listing)


def inputs(shape, relative):
    images, heads, rows, cols, size = shape
    torch.manual_seed(0)
    tensor = lambda: torch.randn(
        images, heads, rows * cols, size, device="cuda", dtype=torch.bfloat16, requires_grad=True
    )
    longest = max(rows, cols)
    positions = 2 * longest - 1 if relative else longest + 1
    table = lambda: (0.02 * torch.randn(positions, size, device="cuda")).requires_grad_()
    gates = [
        torch.full((heads,), start, device="cuda", requires_grad=True) for start in (size**-0.5, 2.0)
    ]
    return [tensor(), tensor(), tensor(), table(), table()] + (gates if relative else [])


def step_of(function, shape, relative):
    leaves = inputs(shape, relative)
    gradient = torch.randn_like(leaves[0])
    plain = function in (formulas.plain_sdpa, formulas.ours_plain)
    wanted = leaves[:3] if plain else leaves

    def step():
        out = function(*leaves, shape[2], shape[3])
        torch.autograd.grad(out, wanted, gradient)

    return step


def share_of_ceilings(shape, milliseconds, copy, product):
    """What a plain attention of this size needs at the ceilings, over the time."""
    images, heads, rows, cols, size = shape
    tokens = rows * cols
    bytes_moved = 12 * images * heads * tokens * size * 2
    operations = 14 * images * heads * tokens**2 * size
    floor = max(bytes_moved / copy / 1e9, operations / product / 1e9)
    return floor / milliseconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--quick", action="store_true", help="ours and plain SDPA only")
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.ops.load_library(options.library)

    copy, product = measure.copy_ceiling(), measure.product_ceiling()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; copy {copy:.2f} TB/s, product {product:.0f} TFLOP/s")
    print("forward + backward, bfloat16; time from Python and in a CUDA graph, ratio of each to plain SDPA's,")
    print("peak extra memory, share of the plain attention's floor at those ceilings (graph time)\n")
    print("| images × heads, grid | what | ms | × | graph ms | × | MiB | share |")
    print("|---|---|---|---|---|---|---|---|")
    for shape in SHAPES:
        base = {}
        for name, function in peers(not options.no_compile):
            if options.quick and not (name.startswith("ours") or name.startswith("plain")):
                continue
            step = step_of(function, shape, "rel" in name)
            try:
                eager, graph, memory = measure.eager_ms(step), measure.graph_ms(step), measure.peak_mib(step)
            except RuntimeError as error:
                print(f"| {shape} | {name} | failed: {str(error).splitlines()[0][:80]} |")
                continue
            base.setdefault("eager", eager)
            base.setdefault("graph", graph)
            in_graph = f"{graph:.3f} | {graph / base['graph']:.2f}" if graph else "– | –"
            share = share_of_ceilings(shape, graph or eager, copy, product)
            where = f"{shape[0]} × {shape[1]}, {shape[2]}×{shape[3]}"
            print(
                f"| {where} | {name} | {eager:.3f} | {eager / base['eager']:.2f} | {in_graph} | {memory:.0f} | {100 * share:.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
