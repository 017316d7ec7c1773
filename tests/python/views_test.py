"""Inputs that are views: results as for tensors of their own, and no hidden copies.

usage: views_test.py LIBRARY     (libsape2_ops.so)
"""

import unittest

import torch
from support import DEVICE, HALVES, Problem, main, needs_gpu, ops, out_of_bounds, peak_bytes, same

GRIDS = (dict(rows=6, cols=7, prefix=1), dict(rows=18, cols=17, images=1, heads=2),
         dict(rows=17, cols=24, images=1, heads=1, size=64))
TYPES = (torch.float32, *HALVES)


def thirds_of_one(problem):
    """q, k and v as a projection makes them: views of one tensor [images, tokens, 3·heads·size]."""
    tokens = torch.stack([problem.leaves[n] for n in "qkv"], 0).permute(1, 3, 0, 2, 4).contiguous()
    parts = tokens.permute(2, 0, 3, 1, 4).unbind(0)
    return {n: t.detach().requires_grad_() for n, t in {**problem.leaves, **dict(zip("qkv", parts))}.items()}


class ViewsTest(unittest.TestCase):
    def each(self, check):
        for form in ("distance", "direct"):
            for dtype in TYPES:
                for sizes in GRIDS:
                    with self.subTest(form=form, dtype=dtype, **sizes):
                        torch.manual_seed(3)
                        check(Problem(form=form, dtype=dtype, **sizes))

    def test_thirds_of_one_tensor(self):
        def check(problem):
            views = thirds_of_one(problem)
            self.assertFalse(views["q"].is_contiguous())
            self.assertTrue(same(problem.solve(leaves=views), problem.solve()))

        self.each(check)

    def test_the_projection_gets_its_gradient(self):
        problem = Problem(4, 5, form="direct")
        images, heads, tokens, size = problem.leaves["q"].shape
        qkv = torch.randn(images, tokens, 3, heads, size, device=DEVICE, requires_grad=True)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        problem.leaves.update(q=q.detach().clone(), k=k.detach().clone(), v=v.detach().clone())
        apart = problem.solve()
        positional, named = problem.arguments({**problem.leaves, "q": q, "k": k, "v": v})
        out = ops.sape2_attention(*positional, **named)
        (gradient,) = torch.autograd.grad(out, qkv, problem.dout)
        for part, name in enumerate(("dq", "dk", "dv")):
            self.assertTrue(torch.equal(gradient.permute(2, 0, 3, 1, 4)[part], apart[name]), name)

    def test_any_strides(self):
        def check(problem):
            turned = {n: t.detach().transpose(2, 3).contiguous().transpose(2, 3) if n in "qkv" else t
                      for n, t in problem.leaves.items()}
            odd = {n: torch.cat([t.new_zeros(1), t.flatten()])[1:].view_as(t) if n in "qkv" else t
                   for n, t in problem.leaves.items()}  # not aligned to more than one number
            for leaves in (turned, odd):
                leaves = {n: t.detach().requires_grad_() for n, t in leaves.items()}
                self.assertEqual(out_of_bounds(problem, problem.solve(leaves=leaves)), {})

        self.each(check)

    def test_repeated_tensors(self):
        """One image expanded to three, and one tensor as q, k and v."""
        table = torch.randn(9, 16, device=DEVICE)
        x = torch.randn(1, 2, 20, 16, device=DEVICE, requires_grad=True)
        wide = x.expand(3, 2, 20, 16)
        out = ops.sape2_attention(wide, wide, wide, table, table, 4, 5, span="between", form="direct")
        alone = ops.sape2_attention(x, x, x, table, table, 4, 5, span="between", form="direct")
        self.assertTrue(torch.equal(out, alone.expand_as(out)))
        (three,) = torch.autograd.grad(out.sum(), x)
        (one,) = torch.autograd.grad(alone.sum(), x)
        self.assertLess((three - 3 * one).norm().item(), 1e-4 * (3 * one).norm().item() + 1e-5)

    @needs_gpu
    def test_views_cost_no_copy(self):
        for form in ("distance", "direct"):
            for dtype in TYPES:
                for sizes in (dict(rows=8, cols=8, images=64), dict(rows=32, cols=32, images=2)):
                    with self.subTest(form=form, dtype=dtype, **sizes):
                        problem = Problem(heads=6, size=64, form=form, dtype=dtype, **sizes)
                        views, own = thirds_of_one(problem), problem.fresh()
                        of_views = peak_bytes(lambda: problem.solve(leaves=views))
                        of_own = peak_bytes(lambda: problem.solve(leaves=own))
                        # The allocator hands out blocks of up to 1 MiB more than was asked for; a copy is larger.
                        spare = views["q"].numel() * views["q"].element_size() // 2
                        self.assertLessEqual(of_views, of_own + spare)


if __name__ == "__main__":
    main()
