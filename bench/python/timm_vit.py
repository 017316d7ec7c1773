"""A Vision Transformer of timm: the original with PyTorch's attention, and patched with an encoding of ours.

    python bench/python/timm_vit.py --device cuda --batch 64
    python bench/python/timm_vit.py --device cpu --batch 2 --dtype float32 --variants original patched

Random weights: time of a forward pass and of forward + backward, and peak memory. A patched model starts as the same
function, so that its outputs equal the original's.
"""

from __future__ import annotations

import argparse
from typing import Any

import variants

VARIANTS = ("original", "original, compiled", "patched", "patched, compiled")


def measured(args: argparse.Namespace, variant: str) -> dict[str, Any]:
    """Times, memory and the output of one variant."""
    import timm
    import torch

    import sape2

    torch.manual_seed(0)
    model = timm.create_model(args.model, img_size=args.size, num_classes=1000)
    if variant.startswith("patched"):
        sape2.patch(model, args.encoding)
    dtype = getattr(torch, args.dtype)
    kept = torch.float32 if args.autocast else dtype
    model = model.to(args.device, kept).train()
    images = torch.randn(args.batch, 3, args.size, args.size, generator=torch.Generator().manual_seed(1))
    images = images.to(args.device, kept)
    call = torch.compile(model) if variant.endswith("compiled") else model

    def output() -> torch.Tensor:
        with torch.autocast(args.device, dtype, enabled=args.autocast):
            return call(images)

    return variants.steps(args, model, output)


def main() -> None:
    parser = variants.parser(__doc__, VARIANTS)
    parser.add_argument("--model", default="vit_small_patch16_224", help="a name that timm knows")
    parser.add_argument("--encoding", default="sape2-rel-k")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--autocast", action="store_true", help="parameters in float32, computation in --dtype")
    args = parser.parse_args()

    results = variants.run(args, measured)
    import timm

    what = f"timm {timm.__version__}, {args.model}, {args.encoding}, batch {args.batch}, {args.size}×{args.size}"
    what += ", autocast" if args.autocast else ""
    variants.report(args, what, results)


if __name__ == "__main__":
    main()
