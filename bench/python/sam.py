"""SAM's ViT-B image encoder: the original and accelerated by sape2, each also with its blocks compiled.

    python bench/python/sam.py --device cuda --size 1024 --dtype bfloat16
    python bench/python/sam.py --device cpu --size 512 --dtype float32 --layers 3

transformers' encoder with random weights, one image: time of a forward pass and of forward + backward, peak memory,
and the largest difference of the outputs from the original's.
"""

from __future__ import annotations

import argparse
from typing import Any

import variants

VARIANTS = ("original", "compiled", "accelerated", "accelerated, compiled")


def encoder(args: argparse.Namespace) -> Any:
    """The encoder with the same random weights every time.

    transformers draws them so small that every output would be 0, and relative positions start at 0.
    """
    import torch
    from transformers import SamVisionConfig, SamVisionModel

    torch.manual_seed(0)
    layers = {} if args.layers is None else {"num_hidden_layers": args.layers, "global_attn_indexes": [args.layers - 1]}
    model = SamVisionModel(SamVisionConfig(image_size=args.size, initializer_range=0.02, **layers))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "rel_pos" in name:
                parameter.normal_(0, 0.1)
    return model.to(args.device, getattr(torch, args.dtype)).eval()


def measured(args: argparse.Namespace, variant: str) -> dict[str, Any]:
    """Times, memory and the output of one variant."""
    import torch

    import sape2

    model = encoder(args)
    if variant.startswith("accelerated"):
        sape2.accelerate(model)
    images = torch.randn(1, 3, args.size, args.size, generator=torch.Generator().manual_seed(1))
    images = images.to(args.device, getattr(torch, args.dtype))
    if variant.endswith("compiled"):
        # Block by block: as a whole it takes minutes to compile, forward and backward.
        for layer in model.vision_encoder.layers:
            layer.compile()
    return variants.steps(args, model, lambda: model(images).last_hidden_state)


def main() -> None:
    parser = variants.parser(__doc__, VARIANTS)
    parser.add_argument("--size", type=int, default=1024, help="height and width of the image")
    parser.add_argument("--layers", type=int, help="layers, the last of them global; ViT-B has 12, with 4 global")
    args = parser.parse_args()

    results = variants.run(args, measured)
    import transformers

    what = f"transformers {transformers.__version__}, {args.size}×{args.size}, {args.layers or 12} layers"
    variants.report(args, what, results)


if __name__ == "__main__":
    main()
