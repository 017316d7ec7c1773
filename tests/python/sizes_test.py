"""Sizes that nobody names: each works and agrees with the formula, or is refused with one sentence.

usage: sizes_test.py LIBRARY     (libsape2_ops.so)
"""

import unittest

import torch
from support import DEVICE, HALVES, Problem, main, needs_gpu, ops, out_of_bounds, same

UNUSUAL = {
    "one token": dict(rows=1, cols=1),
    "one patch behind two tokens": dict(rows=1, cols=1, prefix=2),
    "one row": dict(rows=1, cols=37),
    "one column": dict(rows=37, cols=1, prefix=1),
    "257 tokens": dict(rows=16, cols=16, prefix=1),
    "5 prefix tokens": dict(rows=6, cols=7, prefix=5),
    "many tokens, 5 prefix tokens": dict(rows=17, cols=19, prefix=5, images=1, heads=2),
    "head size 1": dict(rows=5, cols=6, size=1),
    "head size 8": dict(rows=5, cols=6, size=8),
    "head size 24": dict(rows=5, cols=6, size=24),
    "head size 80": dict(rows=5, cols=6, size=80),
    "head size 80, many tokens": dict(rows=17, cols=17, size=80, images=1, heads=1),
    "head size 256": dict(rows=5, cols=6, size=256),
    "a line of 129": dict(rows=2, cols=129, images=1, heads=1),
}


def enough_memory(gibibytes):
    return DEVICE == "cuda" and torch.cuda.mem_get_info()[0] > gibibytes * 2**30


class SizesTest(unittest.TestCase):
    def test_unusual_sizes(self):
        for name, sizes in UNUSUAL.items():
            for form in ("distance", "direct"):
                for dtype in (torch.float32, *HALVES):
                    with self.subTest(name, form=form, dtype=dtype):
                        torch.manual_seed(1)
                        problem = Problem(form=form, dtype=dtype, **sizes)
                        ours = problem.solve()
                        self.assertEqual(out_of_bounds(problem, ours), {})
                        self.assertTrue(same(ours, problem.solve()), "two runs differ")

    def test_every_mode(self):
        for mode in ("q", "qk"):
            for form in ("distance", "direct"):
                for dtype in (torch.float32, *HALVES):
                    for sizes in (dict(rows=7, cols=5, prefix=1), dict(rows=18, cols=16, images=1, heads=1)):
                        with self.subTest(mode, form=form, dtype=dtype, **sizes):
                            torch.manual_seed(2)
                            self.assertEqual(out_of_bounds(Problem(form=form, mode=mode, dtype=dtype, **sizes)), {})

    def test_no_images(self):
        for form in ("distance", "direct"):
            for dtype in (torch.float32, *HALVES):
                with self.subTest(form=form, dtype=dtype):
                    found = Problem(4, 5, images=0, form=form, dtype=dtype).solve()
                    self.assertEqual(found["out"].shape, (0, 3, 20, 16))
                    for name in ("dex", "dey", "dgate_scale", "dgate_offset", "dgain"):
                        self.assertEqual(found[name].abs().sum().item(), 0, name)

    @needs_gpu
    def test_more_heads_than_65535(self):
        for form in ("distance", "direct"):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(form=form, dtype=dtype):
                    self.assertEqual(out_of_bounds(Problem(2, 2, images=10923, heads=6, size=8, form=form, dtype=dtype)), {})

    @needs_gpu
    def test_more_elements_than_31_bits_count(self):
        """The last images of a huge batch come out as they do alone."""
        if not enough_memory(80):
            self.skipTest("80 GiB of free GPU memory are needed")
        for rows, images in ((8, 87400), (32, 5464)):
            for form in ("distance", "direct"):
                with self.subTest(rows=rows, form=form):
                    problem = Problem(rows, rows, images=1, heads=6, size=64, form=form, dtype=torch.bfloat16)
                    shape = (images, 6, rows * rows, 64)
                    for name in "qkv":
                        problem.leaves[name] = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
                    problem.dout = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
                    leaves = {n: t.requires_grad_() for n, t in problem.leaves.items()}
                    whole = problem.solve(leaves=leaves)
                    for part in (slice(0, 2), slice(images - 2, images)):
                        few = Problem(rows, rows, images=1, heads=6, size=64, form=form, dtype=torch.bfloat16)
                        few.leaves = {n: t[part].clone() if n in "qkv" else t for n, t in problem.leaves.items()}
                        few.dout = problem.dout[part].clone()
                        alone = few.solve()
                        for name in ("out", "dq", "dk", "dv"):
                            self.assertTrue(torch.equal(whole[name][part], alone[name]), name)
                    del whole, leaves, problem
                    torch.cuda.empty_cache()


class RefusalTest(unittest.TestCase):
    def test_sentences(self):
        q, table = torch.zeros(2, 3, 12, 8, device=DEVICE), torch.zeros(5, 8, device=DEVICE)
        wrong = (
            (r"q \[2, 3, 12, 8\] has 12 tokens, but prefix \+ rows·cols is 0 \+ 3·5", (q, q, q, table, table, 3, 5), {}),
            (r"q \[2, 3, 0, 8\] has an empty axis", (q[:, :, :0],) * 3 + (table, table, 3, 4), {}),
            (r"ex is on meta but q is on", (q, q, q, table.to("meta"), table, 3, 4), {}),
            (r"gain is torch.float16|gain is Half", (q, q, q, table, table, 3, 4), dict(gain=torch.ones(3, device=DEVICE).half())),
        )
        for sentence, positional, named in wrong:
            with self.subTest(sentence), self.assertRaisesRegex((TypeError, ValueError), sentence):
                ops.sape2_attention(*positional, **named)


if __name__ == "__main__":
    main()
