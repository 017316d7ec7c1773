"""A vision transformer of one's own, with sape2.nn.Attention, trained to say which half of an image is bright.

python examples/python/own_vit.py
"""

import argparse

import torch
from torch import nn

import sape2


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = sape2.nn.Attention(dim, heads, qkv_bias=True, encoding="sape2-rel-k", grid=grid, prefix=1)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class OwnViT(nn.Module):
    def __init__(self, size: int = 32, patch: int = 4, dim: int = 64, depth: int = 2, heads: int = 4, classes: int = 4):
        super().__init__()
        grid = (size // patch, size // patch)
        self.embed = nn.Conv2d(3, dim, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.blocks = nn.Sequential(*(Block(dim, heads, grid) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = self.embed(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(images), -1, -1), patches], 1)  # prefix=1: the class token
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def halves(count: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with one half brighter, and which half: left, right, upper or lower. Only positions tell them apart."""
    images, labels = 0.3 * torch.randn(count, 3, size, size), torch.randint(4, (count,))
    step = torch.where(torch.arange(size) < size // 2, 1.0, -1.0)
    sign = torch.where(labels % 2 == 0, 1.0, -1.0).view(-1, 1, 1, 1)
    images += sign * torch.where(labels.view(-1, 1, 1, 1) < 2, step.view(1, -1), step.view(-1, 1))
    return images, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    model = OwnViT()
    own = [p for name, p in model.named_parameters() if ".pos." in name]  # positions: no weight decay
    rest = [p for name, p in model.named_parameters() if ".pos." not in name]
    optimizer = torch.optim.AdamW([{"params": rest}, {"params": own, "weight_decay": 0}], lr=2e-3)
    for step in range(steps):
        images, labels = halves(64)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    images, labels = halves(256)
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean()
    print(f"accuracy {right:.1%}")


if __name__ == "__main__":
    main()
