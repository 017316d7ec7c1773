"""Training steps in PyTorch, to stand beside `sape2 bench train --device cuda`: the same ViT, batch,
precision (bfloat16 with float32 master weights) and AdamW, in three ways: eager, torch.compile, and
torch.compile with CUDA graphs. Random images that lie on the GPU; no augmentation.

    python3 bench/peers/train.py --model vit-small --encoding sape2-k+ape --batch 128
"""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

from formulas import paper_bias, product_distances, relative_bias

PRESETS = {"vit-small": (12, 384, 6, 4), "vit-compact": (9, 192, 12, 2)}
SIDE = 8  # patches of 4×4 on images of 32×32


class Attention(nn.Module):
    def __init__(self, width, heads, encoding):
        super().__init__()
        self.heads, self.encoding = heads, encoding
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        rows = {"sape2-k": SIDE + 1, "sape2-rel-k": 2 * SIDE - 1}.get(encoding.split("+")[0])
        if rows:
            self.ex = nn.Parameter(0.02 * torch.randn(rows, width // heads))
            self.ey = nn.Parameter(0.02 * torch.randn(rows, width // heads))
        if encoding == "sape2-rel-k":
            self.gate_scale = nn.Parameter(torch.full((heads,), (width // heads) ** -0.5))
            self.gate_offset = nn.Parameter(torch.full((heads,), 2.0))

    def forward(self, x):
        images, tokens, width = x.shape
        q, k, v = self.qkv(x).view(images, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scale = q.shape[-1] ** -0.5
        bias = None
        if self.encoding.startswith("sape2-k"):
            bias = scale * paper_bias(q, k, self.ex, self.ey, SIDE, SIDE, product_distances)
        if self.encoding == "sape2-rel-k":
            bias = relative_bias(q, k, self.ex, self.ey, self.gate_scale, self.gate_offset, SIDE, SIDE)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias.to(q.dtype))
        return self.proj(out.transpose(1, 2).reshape(images, tokens, width))


class Block(nn.Module):
    def __init__(self, width, heads, ratio, encoding):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn = Attention(width, heads, encoding)
        self.mlp = nn.Sequential(nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, depth, width, heads, ratio, encoding):
        super().__init__()
        self.embed = nn.Conv2d(3, width, 4, 4)
        self.pos = nn.Parameter(0.02 * torch.randn(1, SIDE * SIDE, width)) if "ape" in encoding.split("+") else None
        self.blocks = nn.Sequential(*[Block(width, heads, ratio, encoding) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 10)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2)
        if self.pos is not None:
            x = x + self.pos
        return self.head(self.norm(self.blocks(x).mean(1)))


def measure(mode, args):
    torch.manual_seed(0)
    model = ViT(*PRESETS[args.model], args.encoding).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)
    images = torch.randn(args.batch, 3, 32, 32, device="cuda")
    targets = torch.softmax(torch.randn(args.batch, 10, device="cuda"), 1)
    forward = model if mode == "eager" else torch.compile(
        model, mode="max-autotune-no-cudagraphs" if mode == "graphs" else "default")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(forward(images), targets)
        loss.backward()
        optimizer.step()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run = step
    if mode == "graphs":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    best = float("inf")
    for _ in range(4):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(20):
            run()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / 20)
    return 1000 * best, torch.cuda.max_memory_allocated() / 2**20


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=PRESETS, default="vit-small")
    parser.add_argument("--encoding", choices=["none", "ape", "sape2-k", "sape2-k+ape", "sape2-rel-k"], default="ape")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--modes", default="eager,compiled,graphs")
    args = parser.parse_args()
    for mode in args.modes.split(","):
        milliseconds, mebibytes = measure(mode, args)
        print(f"{args.model} {args.encoding} batch {args.batch} {mode}: {milliseconds:.2f} ms a step, "
              f"{1000 * args.batch / milliseconds:.0f} images/s, {mebibytes:.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
