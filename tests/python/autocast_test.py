"""The operators under autocast: they compute in its type, whatever the inputs are.

usage: autocast_test.py LIBRARY     (libsape2_ops.so)
"""

import unittest

import torch
from support import DEVICE, HALVES, Problem, main, ops


def low(tensors, dtype):
    return [t.detach().to(dtype).requires_grad_(t.requires_grad) for t in tensors]


class AutocastTest(unittest.TestCase):
    def test_every_operator_computes_in_the_type_of_autocast(self):
        tokens = lambda: torch.randn(2, 3, 12, 16, device=DEVICE, requires_grad=True)
        vectors = lambda length: torch.randn(2, 3, 12, length, device=DEVICE, requires_grad=True)
        tables = [torch.randn(7, 16, device=DEVICE, requires_grad=True) for _ in "xy"]
        calls = {
            "attention": (3, lambda *a: ops.attention(*a)),
            "sape2_attention": (3, lambda q, k, v: ops.sape2_attention(q, k, v, *tables, 3, 4)),
            "sape2_vectors": (2, lambda q, k: ops.sape2_vectors(q, k, *tables, 3, 4)[0]),
            "sape2_bias": (2, lambda q, k: ops.sape2_bias(q, k, *tables, 3, 4)),
            "cope_attention": (3, lambda q, k, v: ops.cope_attention(q, k, v, tables[0])),
            "distance_attention": (5, lambda *a: ops.distance_attention(*a, 3, 4)),
            "axial_attention": (5, lambda *a: ops.axial_attention(*a, 3, 4)),
        }
        for dtype in HALVES:
            for name, (count, call) in calls.items():
                with self.subTest(name, dtype=dtype):
                    wide = [tokens(), tokens(), tokens(), vectors(4), vectors(3)][:count]
                    with torch.autocast(DEVICE, dtype):
                        out = call(*wide)
                    narrow = low(wide, dtype)
                    expected = call(*narrow)
                    self.assertEqual(out.dtype, dtype)
                    self.assertTrue(torch.equal(out, expected))
                    dout = torch.randn_like(out)
                    gradients = torch.autograd.grad(out, wide, dout)
                    for gradient, other in zip(gradients, torch.autograd.grad(expected, narrow, dout)):
                        self.assertEqual(gradient.dtype, torch.float32)
                        self.assertTrue(torch.equal(gradient, other.float()))

    def test_inputs_of_several_types(self):
        """A norm on q and k leaves them in float32 beside a v in 16 bits."""
        for dtype in HALVES:
            with self.subTest(dtype=dtype):
                problem = Problem(3, 4, form="direct")
                leaves = problem.fresh()
                positional, named = problem.arguments({**leaves, "v": leaves["v"].to(dtype)})
                with torch.autocast(DEVICE, dtype):
                    out = ops.sape2_attention(*positional, **named)
                self.assertEqual(out.dtype, dtype)

    def test_parameters_keep_their_type(self):
        for dtype in HALVES:
            with self.subTest(dtype=dtype):
                problem = Problem(3, 4, form="direct")
                leaves = problem.fresh()
                positional, named = problem.arguments(leaves)
                with torch.autocast(DEVICE, dtype):
                    out = ops.sape2_attention(*positional, **named)
                gradients = torch.autograd.grad(out, list(leaves.values()), problem.dout.to(dtype))
                for name, gradient in zip(leaves, gradients):
                    self.assertEqual(gradient.dtype, torch.float32, name)

    def test_a_layer_trains(self):
        for dtype in HALVES:
            with self.subTest(dtype=dtype):
                torch.manual_seed(4)
                width, heads = 48, 3
                qkv = torch.nn.Linear(width, 3 * width).to(DEVICE)
                tables = [torch.nn.Parameter(0.02 * torch.randn(9, width // heads, device=DEVICE)) for _ in "xy"]
                x = torch.randn(2, 20, width, device=DEVICE)

                def gradients(enabled):
                    with torch.autocast(DEVICE, dtype, enabled=enabled):
                        q, k, v = qkv(x).view(2, 20, 3, heads, -1).permute(2, 0, 3, 1, 4)
                        out = ops.sape2_attention(q, k, v, *tables, 4, 5, span="between", form="direct")
                        loss = (out.float() ** 2).mean()
                    return torch.autograd.grad(loss, [qkv.weight, *tables])

                for low_one, exact in zip(gradients(True), gradients(False)):
                    self.assertLess((low_one - exact).norm().item(), 0.05 * exact.norm().item() + 1e-6)


if __name__ == "__main__":
    main()
