"""What the tests share: the device they run on, problems to solve, and the rule results are held to.

Every test runs on the GPU where PyTorch finds one, otherwise on the CPU; those that are about the GPU
itself say that there is none and are skipped."""

import os
import sys
import unittest

import plain_formula
import torch

ops = torch.ops.sape2
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALVES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.bfloat16]
needs_gpu = unittest.skipUnless(DEVICE == "cuda", "there is no GPU here")
needs_compile = unittest.skipUnless(hasattr(torch, "compile"), "torch.compile needs PyTorch 2")


def main():
    """Runs the tests of a file, whose last argument is libsape2_ops.so."""
    torch.ops.load_library(sys.argv.pop())
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'the CPU'}")
    done = unittest.main(verbosity=2, exit=False)
    sys.stdout.flush()
    sys.stderr.flush()
    # Python may end while PyTorch's backward threads still begin or end, which aborts the process.
    os._exit(not done.result.wasSuccessful())


class Problem:
    """Arguments of sape2_attention: `leaves` by name, the grid, settings, and `dout`."""

    def __init__(self, rows, cols, prefix=0, images=2, heads=3, size=16, form="distance", mode="k",
                 dtype=torch.float32, device=DEVICE, **settings):
        self.grid = (rows, cols)
        relative = form == "direct"
        self.settings = dict(prefix=prefix, mode=mode, form=form, scale=size**-0.5,
                             span="between" if relative else "suffix", bias_inside=not relative)
        self.settings.update(settings)
        longest = max(rows, cols)
        positions = 2 * longest - 1 if self.settings["span"] == "between" else longest + 1
        lead = (2,) if mode == "qk" else ()
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        # Drawn on the CPU, so that a problem is the same on every device.
        tokens = lambda: torch.randn(images, heads, prefix + rows * cols, size).to(device, dtype)
        table = lambda: (0.3 * torch.randn(*lead, positions, size)).to(device, wide)
        per_head = lambda middle: (middle + 0.1 * torch.randn(heads)).to(device, wide)
        for _ in range(20):
            self.leaves = {name: tokens() for name in "qkv"}
            self.leaves.update(ex=table(), ey=table(), gate_scale=per_head(size**-0.5),
                               gate_offset=per_head(1.0), gain=per_head(1.0))
            if dtype != torch.float32 or self.from_integers() > 2e-6:
                break
        self.dout = tokens()

    def from_integers(self):
        """How near a position comes to an integer, where rounding alone would decide its slope."""
        wide = {n: t.double() for n, t in self.leaves.items()}
        nearest = 1.0
        for turned in (False, True):
            p, _ = plain_formula.positions(
                wide["q"], wide["k"], *self.grid, self.settings["prefix"], self.settings["span"], wide["gate_scale"],
                wide["gate_offset"], wide["ex"].shape[-2], turned)
            away = (p - p.round()).abs()
            moving = away[away > 0]  # positions that are integers by themselves have no slope
            nearest = min([nearest, *([moving.min().item()] if moving.numel() else [])])
        return nearest

    def arguments(self, leaves):
        """Positional and keyword arguments of the operator and of the formula."""
        named = {n: leaves[n] for n in ("gate_scale", "gate_offset", "gain")}
        return [leaves[n] for n in ("q", "k", "v", "ex", "ey")] + list(self.grid), {**self.settings, **named}

    def fresh(self, dtype=None):
        """New leaves of the same values that ask for gradients, all of `dtype` where it is given."""
        return {n: (t if dtype is None else t.to(dtype)).detach().clone().requires_grad_()
                for n, t in self.leaves.items()}

    def solve(self, operator=None, dtype=None, leaves=None):
        """Output and gradients by name; by the operator unless another function is given."""
        leaves = leaves or self.fresh(dtype)
        positional, named = self.arguments(leaves)
        out = (operator or ops.sape2_attention)(*positional, **named)
        gradients = torch.autograd.grad(out, list(leaves.values()), self.dout.to(out.dtype))
        return {"out": out.detach(), **{"d" + n: g for n, g in zip(leaves, gradients)}}


def peak_bytes(work):
    """Of GPU memory, beyond what was there before. The most of several calls: what PyTorch's threads
    still hold of the call before makes the next one look small."""
    work()
    peaks = []
    for _ in range(5):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        kept = work()
        torch.cuda.synchronize()
        del kept
        peaks.append(torch.cuda.max_memory_allocated() - before)
    return max(peaks)


def same(some, others):
    """Whether two solutions agree to the last bit."""
    return all(torch.equal(some[n], others[n]) for n in some)


def _error(some, truth):
    return (some.double() - truth).norm().item()


def out_of_bounds(problem, ours=None):
    """The results of a problem that break the twofold rule: an error against float64 of more than
    twice that of the plain formula in the same type. A formula that is exact to a thousandth (in
    float32 a tenth of that) is not held against us, nor is rounding where gradients cancel; and of
    a few numbers, one for each head, the formula's error may be small by luck, the more so in float32
    on the GPU, where it adds up over all pairs in another order than we do."""
    ours = ours or problem.solve()
    truth = problem.solve(plain_formula.sape2_attention, torch.float64)
    dtype = problem.leaves["q"].dtype
    yardstick = problem.solve(plain_formula.sape2_attention, dtype)
    small = 1e-4 if dtype == torch.float32 else 1e-3
    terms = small * truth["dv"].norm().item()
    broken = {}
    for name, exact in truth.items():
        per_head = 8 if dtype == torch.float32 and DEVICE == "cuda" else 4
        factor = 2 if exact.dim() > 1 else per_head
        allowed = factor * max(_error(yardstick[name], exact), small * exact.norm().item(), terms)
        if not _error(ours[name], exact) <= allowed:
            broken[name] = f"error {_error(ours[name], exact):.2e}, allowed {allowed:.2e}"
    return broken
