"""Training steps of one model in PyTorch, job by job, in a process that train.py starts."""

import functools
import time

import torch
from formulas import paper_bias, product_distances, relative_bias
from torch import nn
from torch.nn import functional as F

PRESETS = {"vit-small": (12, 384, 6, 4), "vit-compact": (9, 192, 12, 2)}
SIDE = 8  # patches of 4×4 on images of 32×32
WARM_UPS = 4
STEPS, ROWS = 30, 4


def prepare():
    torch.cuda.init()


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
        self.blocks = nn.ModuleList([Block(width, heads, ratio, encoding) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 10)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2)
        if self.pos is not None:
            x = x + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x.mean(1)))


class Training:
    """A model with its optimiser and one batch."""

    def __init__(self, model, batch, encoding, compiled, whole):
        torch.manual_seed(0)
        self.model = ViT(*PRESETS[model], encoding).cuda()
        if compiled and whole:
            self.model.compile(dynamic=False)
        elif compiled:
            for block in self.model.blocks:
                block.compile(dynamic=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True, capturable=True)
        self.images = torch.randn(batch, 3, 32, 32, device="cuda")
        self.targets = torch.softmax(torch.randn(batch, 10, device="cuda"), 1)
        torch.cuda.synchronize()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        # A recording must not keep casts that were made outside it.
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(self.model(self.images), self.targets)
        loss.backward()
        self.optimizer.step()

    def warm_up(self):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self.step()
        torch.cuda.synchronize()

    def recorded(self):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


@functools.lru_cache(maxsize=2)
def training_of(model, batch, encoding, compiled, whole):
    training = Training(model, batch, encoding, compiled, whole)
    training.warm_up()
    return training


def least_ms(run):
    best = float("inf")
    for _ in range(ROWS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            run()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / STEPS)
    return 1000 * best


def work(job):
    compiled = job["what"] != "eager"
    training = training_of(job["model"], job["batch"], job["encoding"], compiled, job["whole"])
    if job["what"] == "compile":
        return {}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    run = training.recorded() if job["what"] == "graph" else training.step
    return {"ms": least_ms(run), "mib": torch.cuda.max_memory_allocated() / 2**20}
