"""Runs SAM's image encoder without the bias that it stores for every pair of patches.

    python examples/python/accelerate_sam.py --model facebook/sam-vit-base

Without --model the encoder is a small one with random weights, to see that everything runs.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from transformers import SamModel, SamVisionConfig, SamVisionModel

import sape2


def encoder(name: str | None, size: int) -> nn.Module:
    """The encoder of a published model, or a small one of random weights."""
    if name is not None:
        return SamModel.from_pretrained(name).vision_encoder
    model = SamVisionModel(
        SamVisionConfig(
            hidden_size=96, num_hidden_layers=2, num_attention_heads=3, mlp_dim=192, image_size=size,
            window_size=7, global_attn_indexes=[1], output_channels=32, initializer_range=0.1,
        )
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if "rel_pos" in name:  # they start at 0
            nn.init.normal_(parameter, std=0.5)
    return model


@torch.no_grad()
def encoded(model: nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The encoder's output, and the seconds of the second run."""
    model(images)
    begin = time.perf_counter()
    output = model(images).last_hidden_state
    if images.is_cuda:
        torch.cuda.synchronize()
    return output, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a SAM of the hub, such as facebook/sam-vit-base; it takes 1024×1024")
    parser.add_argument("--size", type=int, default=256, help="height and width of the images of the small encoder")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = encoder(args.model, args.size).to(device).eval()
    side = 1024 if args.model else args.size
    images = torch.randn(1, 3, side, side, device=device)

    expected, original_time = encoded(model, images)
    print(sape2.report(model))
    sape2.accelerate(model)
    print(sape2.report(model))
    output, time_now = encoded(model, images)
    largest = expected.abs().max().item()
    print(f"largest difference {(output - expected).abs().max().item():.1e}, of outputs up to {largest:.1f}")
    print(f"original {original_time * 1000:.1f} ms, accelerated {time_now * 1000:.1f} ms")


if __name__ == "__main__":
    main()
