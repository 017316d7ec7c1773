"""What the forward pass keeps for the backward pass on a GPU, and what it costs.

usage: kept_test.py LIBRARY     (libsape2_ops.so)
"""

import unittest

import torch
from support import HALVES, Problem, main, needs_gpu, ops, peak_bytes

TYPES = (torch.float32, *HALVES)
# A head a block, whose backward pass makes its vectors itself or has them kept; and in tiles.
SIZES = (
    dict(rows=8, cols=8),
    dict(rows=14, cols=14),
    dict(rows=14, cols=14, prefix=1),
    dict(rows=20, cols=17, prefix=1),
)


def attend(problem, leaves):
    positional, named = problem.arguments(leaves)
    return ops.sape2_attention(*positional, **named)


@needs_gpu
class KeptTest(unittest.TestCase):
    def each(self, check):
        for form in ("distance", "direct"):
            for dtype in TYPES:
                for sizes in SIZES:
                    with self.subTest(form=form, dtype=dtype, **sizes):
                        problem = Problem(form=form, dtype=dtype, size=64, **sizes)
                        check(problem, problem.fresh())

    def test_the_same_graph_twice(self):
        def check(problem, leaves):
            out, tensors = attend(problem, leaves), list(leaves.values())
            first, second = (torch.autograd.grad(out, tensors, problem.dout, retain_graph=True) for _ in "ab")
            for some, other in zip(first, second):
                self.assertTrue(torch.equal(some, other))

        self.each(check)

    def test_a_table_changed_in_between_is_refused(self):
        def check(problem, leaves):
            out = attend(problem, leaves)
            with torch.no_grad():
                leaves["ex"].add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                out.backward(problem.dout)

        self.each(check)

    def test_nothing_without_gradients(self):
        def check(problem, leaves):
            before = torch.cuda.memory_allocated()
            with torch.no_grad():
                out = attend(problem, leaves)
            # The allocator counts in pieces of 512 bytes.
            self.assertLessEqual(torch.cuda.memory_allocated() - before, out.numel() * out.element_size() + 512)

        self.each(check)

    def test_at_most_twice_the_memory_of_plain_attention(self):
        for form in ("distance", "direct"):
            for sizes in (
                dict(rows=14, cols=14, images=64),
                dict(rows=32, cols=32, images=8),
                dict(rows=48, cols=48),
                dict(rows=64, cols=64, images=1),
            ):
                with self.subTest(form=form, **sizes):
                    problem = Problem(form=form, dtype=torch.bfloat16, size=64, heads=6, **sizes)
                    leaves = problem.fresh()
                    qkv = [leaves[n] for n in "qkv"]
                    plain = torch.nn.functional.scaled_dot_product_attention
                    ours = peak_bytes(lambda: problem.solve(leaves=leaves))
                    other = peak_bytes(lambda: torch.autograd.grad(plain(*qkv), qkv, problem.dout))
                    self.assertLessEqual(ours, 2 * other)
                    print(f"{sizes} {form}: {ours / 2**20:.1f} MiB, {ours / other:.2f} of plain attention's", flush=True)


if __name__ == "__main__":
    main()
