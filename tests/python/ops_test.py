"""The operators as Python users meet them: loaded from the library, differentiable, with clear errors.

usage: ops_test.py LIBRARY     (libsape2_ops.so)
"""

import sys
import unittest

import golden
import torch

ops = torch.ops.sape2


def relative_error(actual, expected):
    return ((actual.double() - expected).abs().max() / expected.abs().max()).item()


class Case:
    """A golden SaPE² case in one type: positional and keyword arguments, and the leaves behind them."""

    def __init__(self, tensors, settings, dtype):
        self.leaves = {}

        def leaf(name):
            self.leaves[name] = tensors[name].to(dtype).clone().requires_grad_()
            return self.leaves[name]

        if settings["mode"] == "qk":
            tables = [torch.stack([leaf(axis + "q"), leaf(axis + "k")]) for axis in ("ex", "ey")]
        else:
            tables = [leaf("ex"), leaf("ey")]
        numbers = {
            name: leaf(name) if name in tensors else torch.tensor(float(settings[name]), dtype=dtype)
            for name in ("gate_scale", "gate_offset", "gain")
        }
        grid = [int(settings["H"]), int(settings["W"])]
        self.arguments = [leaf("q"), leaf("k"), leaf("v"), *tables, *grid]
        self.options = dict(
            prefix=int(settings["P"]),
            mode=settings["mode"],
            span=settings["span"],
            form=settings["form"],
            scale=float(settings["scale"]),
            bias_inside=settings["inside"] == "True",
            **numbers,
        )


class GoldenTest(unittest.TestCase):
    def test_values_and_gradients(self):
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
            for name, tensors, settings in golden.sape2_cases():
                with self.subTest(name=name, dtype=dtype):
                    case = Case(tensors, settings, dtype)
                    out = ops.sape2_attention(*case.arguments, **case.options)
                    self.assertLess(relative_error(out, tensors["out"]), tolerance)
                    out.backward(tensors["dout"].to(dtype))
                    for leaf_name, leaf in case.leaves.items():
                        error = relative_error(leaf.grad, tensors["d" + leaf_name])
                        self.assertLess(error, tolerance, "d" + leaf_name)


class GradientTest(unittest.TestCase):
    def test_gradcheck(self):
        q, k, v = (torch.randn(1, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in "qkv")
        tables = [torch.randn(5, 4, dtype=torch.float64, requires_grad=True) for _ in "xy"]

        def run(*inputs):
            return ops.sape2_attention(*inputs, 2, 3, prefix=1, span="between", form="direct")

        self.assertTrue(torch.autograd.gradcheck(run, (q, k, v, *tables)))
        self.assertTrue(torch.autograd.gradcheck(ops.cope_attention, (q, k, v, tables[0])))
        self.assertTrue(torch.autograd.gradcheck(lambda x: ops.rope2d(x, 2, 3, prefix=1), (q,)))

    def test_second_backward_is_refused(self):
        q = torch.randn(1, 2, 6, 4, requires_grad=True)
        table = torch.randn(4, 4)
        out = ops.sape2_attention(q, q, q, table, table, 2, 3)
        (gradient,) = torch.autograd.grad(out.sum(), q, create_graph=True)
        with self.assertRaisesRegex(RuntimeError, "a second backward was asked for"):
            gradient.sum().backward()

    def test_no_grad_and_inference_mode(self):
        q = torch.randn(1, 2, 6, 4, requires_grad=True)
        table = torch.randn(4, 4)
        expected = ops.sape2_attention(q, q, q, table, table, 2, 3).detach()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                out = ops.sape2_attention(q, q, q, table, table, 2, 3)
            self.assertFalse(out.requires_grad)
            self.assertTrue(torch.equal(out, expected))


class ErrorTest(unittest.TestCase):
    def setUp(self):
        self.q = torch.zeros(2, 3, 13, 8)
        self.table = torch.zeros(5, 8)

    def call(self, q=None, table=None, rows=3, cols=4, **options):
        q = self.q if q is None else q
        table = self.table if table is None else table
        return ops.sape2_attention(q, q, q, table, table, rows, cols, **{"prefix": 1, **options})

    def test_good_call(self):
        self.assertEqual(self.call().shape, self.q.shape)

    def test_sentences(self):
        wrong = (
            (ValueError, r"q \[2, 3, 13, 8\] has 13 tokens, but prefix \+ rows·cols is 1 \+ 3·5", dict(cols=5)),
            (ValueError, r'mode is "x"; one of "q", "k", "qk" was expected', dict(mode="x")),
            (ValueError, r'M = 4 rows; span "between" needs an odd number', dict(table=torch.zeros(4, 8), span="between")),
            (ValueError, r"gain \[2\] is neither one number nor one for each of q's 3 heads", dict(gain=torch.zeros(2))),
            (TypeError, r"q is float16, which is not supported on the CPU", dict(q=self.q.half())),
            (ValueError, r"ex is on meta but q is on cpu", dict(table=self.table.to("meta"))),
        )
        for kind, sentence, arguments in wrong:
            with self.subTest(sentence=sentence), self.assertRaisesRegex(kind, sentence):
                self.call(**arguments)

    def test_meta(self):
        out = ops.sape2_attention(*(t.to("meta") for t in (self.q,) * 3 + (self.table,) * 2), 3, 4, prefix=1)
        self.assertEqual((out.device.type, out.shape), ("meta", self.q.shape))

    def test_hooks_that_hand_back_other_tensors(self):
        """Saved tensors may come back in another shape; the backward pass must see it before its kernels do."""
        q = self.q.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:, :, :1] if t.dim() == 4 else t):
            out = ops.attention(q, q, q)
        with self.assertRaisesRegex(ValueError, r"_attention_backward: grads\[0\] .* does not fit"):
            out.sum().backward()

    def test_internal_operators_check_too(self):
        for rows, sentence in ((200, "but prefix . rows.cols is 1 . 200.4"), (-1, "rows is -1")):
            with self.assertRaisesRegex(ValueError, "_sape2_vectors_forward: .*" + sentence):
                ops._sape2_vectors_forward(self.q, self.q, self.table, self.table, rows, 4, 1, "k", "suffix", None, None)


if __name__ == "__main__":
    torch.ops.load_library(sys.argv.pop())
    torch.manual_seed(0)
    unittest.main(verbosity=2)
