"""Gives a model of timm content-dependent positions, and fine-tunes it on a folder of images.

    python examples/python/finetune_timm.py --model vit_small_patch16_224 --pretrained --data photos

`photos` has a folder per class. Without --data the images are coloured noise, to see that everything runs.
"""

from __future__ import annotations

import argparse

import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sape2


def loader(args: argparse.Namespace, model: nn.Module) -> tuple[DataLoader, int]:
    """Batches of images as the model wants them, and the number of classes."""
    if args.data is None:
        labels = torch.arange(64) % 2
        images = torch.randn(64, 3, args.size, args.size) + (labels * 2.0 - 1).view(-1, 1, 1, 1)
        return DataLoader(TensorDataset(images, labels), args.batch, shuffle=True), 2
    from torchvision.datasets import ImageFolder

    settings = timm.data.resolve_data_config(model=model) | {"input_size": (3, args.size, args.size)}
    images = ImageFolder(args.data, timm.data.create_transform(**settings, is_training=True))
    return DataLoader(images, args.batch, shuffle=True, num_workers=2), len(images.classes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_tiny_patch16_224")
    parser.add_argument("--pretrained", action="store_true", help="download timm's weights")
    parser.add_argument("--data", help="a folder with a folder of images per class")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--encoding", default="sape2-rel-k")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--depth", type=int, help="layers, to try it on a small machine")
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = {} if args.depth is None else {"depth": args.depth}
    model = timm.create_model(args.model, pretrained=args.pretrained, img_size=args.size, **small)
    batches, classes = loader(args, model)
    model.reset_classifier(classes)
    model.eval()

    # The patched model computes what the model did; from there the new positions are learnt.
    example = torch.randn(2, 3, args.size, args.size)
    before = model(example)
    sape2.patch(model, args.encoding)
    print(f"patched: outputs changed by {(model(example) - before).abs().max().item():.1e} at most")
    print(sape2.report(model))

    # Positions start at nothing and may move fast; what was learnt before should not. Neither they nor norms decay.
    groups: dict[str, list[nn.Parameter]] = {"positions": [], "weights": [], "others": []}
    for name, parameter in model.named_parameters():
        kind = "positions" if ".pos." in name else "weights" if parameter.dim() > 1 else "others"
        groups[kind].append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": groups["positions"], "lr": 1e-3, "weight_decay": 0.0},
            {"params": groups["weights"], "lr": 1e-4, "weight_decay": 0.05},
            {"params": groups["others"], "lr": 1e-4, "weight_decay": 0.0},
        ]
    )
    model.to(device).train()
    step = 0
    while step < args.steps:
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0 or step == args.steps - 1:
                print(f"step {step}: loss {loss.item():.3f}")
            step += 1
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
