"""The operators under torch.compile: one graph without a break, forward and backward, for any number
of images.

usage: compile_test.py LIBRARY     (libsape2_ops.so)
"""

import unittest

import torch
from support import DEVICE, HALVES, Problem, main, needs_compile, ops

if hasattr(torch, "compile"):
    from torch._dynamo.testing import CompileCounterWithBackend


def layer(qkv, ex, ey, gate_scale, gate_offset, heads, rows, cols, form):
    """q, k and v as views of a projection's output, as a model has them."""
    images, tokens, _ = qkv.shape
    q, k, v = qkv.view(images, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
    out = ops.sape2_attention(q, k, v, ex, ey, rows, cols, form=form, gate_scale=gate_scale,
                              span="between" if form == "direct" else "suffix", gate_offset=gate_offset)
    return out.transpose(1, 2).reshape(images, tokens, -1) * 2


def layer_inputs(images, form, heads=3, rows=4, cols=5, size=16, dtype=torch.float32):
    problem = Problem(rows, cols, images=images, heads=heads, size=size, form=form)
    qkv = torch.randn(images, rows * cols, 3 * heads * size, device=DEVICE).to(dtype)
    names = ("ex", "ey", "gate_scale", "gate_offset")
    return [t.requires_grad_() for t in (qkv, *(problem.leaves[n] for n in names))]


def solved(function, leaves, *others):
    out = function(*leaves, *others)
    torch.manual_seed(5)
    return [out.detach(), *torch.autograd.grad(out, leaves, torch.randn_like(out))]


def operators(images):
    """Every operator as a function of tensors, and tensors for it."""
    tokens = [torch.randn(images, 3, 21, 16, device=DEVICE, requires_grad=True) for _ in "qkv"]
    vectors = [torch.randn(images, 3, 20, n, device=DEVICE, requires_grad=True) for n in (5, 4)]
    table = torch.randn(9, 16, device=DEVICE, requires_grad=True)
    frequencies = torch.randn(3, 8, device=DEVICE, requires_grad=True)
    return {
        "attention": (lambda *a: ops.attention(*a), tokens),
        "sape2_attention": (lambda q, k, v, e: ops.sape2_attention(q, k, v, e, e, 4, 5, prefix=1), [*tokens, table]),
        "sape2_vectors": (lambda q, k, e: ops.sape2_vectors(q, k, e, e, 4, 5, prefix=1)[0], [*tokens[:2], table]),
        "sape2_bias": (lambda q, k, e: ops.sape2_bias(q, k, e, e, 4, 5, prefix=1), [*tokens[:2], table]),
        "distance_attention": (lambda *a: ops.distance_attention(*a, 4, 5, prefix=1), [*tokens, *vectors]),
        "axial_attention": (lambda *a: ops.axial_attention(*a, 4, 5, prefix=1), [*tokens, *vectors]),
        "cope_attention": (lambda *a: ops.cope_attention(*a), [*tokens, table]),
        "rope": (lambda x: ops.rope(x, prefix=1), tokens[:1]),
        "rope2d": (lambda x: ops.rope2d(x, 4, 5, prefix=1), tokens[:1]),
        "rope2d_mixed": (lambda x, f: ops.rope2d_mixed(x, f, f, 4, 5, prefix=1), [tokens[0], frequencies]),
    }


@needs_compile
class CompileTest(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()

    def assert_equal(self, some, others):
        for got, expected in zip(some, others):
            torch.testing.assert_close(got, expected, rtol=0, atol=0)

    def test_every_operator_in_one_graph(self):
        """Whatever the number of images: the second compiles once more, the third not at all."""
        for name in operators(1):
            with self.subTest(name):
                torch._dynamo.reset()
                counter = CompileCounterWithBackend("aot_eager")
                call, _ = operators(1)[name]
                compiled = torch.compile(call, backend=counter, fullgraph=True)
                for images in (4, 3, 7):
                    _, leaves = operators(images)[name]
                    for some, other in zip(solved(compiled, leaves), solved(call, leaves)):
                        torch.testing.assert_close(some, other)
                self.assertLessEqual(counter.frame_count, 2)

    def test_a_layer_by_inductor(self):
        compiled = torch.compile(layer, fullgraph=True)
        for form in ("distance", "direct"):
            for dtype in (torch.float32, *HALVES):
                with self.subTest(form=form, dtype=dtype):
                    leaves = layer_inputs(2, form, dtype=dtype)
                    self.assert_equal(solved(compiled, leaves, 3, 4, 5, form), solved(layer, leaves, 3, 4, 5, form))

    def test_other_numbers_of_images(self):
        """The second number of images compiles once more with it left open, the third not at all."""
        for form in ("distance", "direct"):
            with self.subTest(form=form):
                torch._dynamo.reset()
                counter = CompileCounterWithBackend("aot_eager")
                compiled = torch.compile(layer, backend=counter, fullgraph=True)
                for images in (4, 3, 7, 5):
                    leaves = layer_inputs(images, form)
                    self.assert_equal(solved(compiled, leaves, 3, 4, 5, form), solved(layer, leaves, 3, 4, 5, form))
                self.assertLessEqual(counter.frame_count, 2)

    def test_under_autocast(self):
        weight = torch.randn(144, 48, device=DEVICE, requires_grad=True)

        def projected(x, w, *parameters):
            with torch.autocast(DEVICE, torch.bfloat16):
                return layer(torch.nn.functional.linear(x, w), *parameters, 3, 4, 5, "direct")

        x = torch.randn(2, 20, 48, device=DEVICE, requires_grad=True)
        leaves = [x, weight, *layer_inputs(2, "direct")[1:]]
        compiled = torch.compile(projected, backend="aot_eager", fullgraph=True)
        got, expected = solved(compiled, leaves), solved(projected, leaves)
        self.assertEqual(got[0].dtype, torch.bfloat16)
        for some, other in zip(got, expected):
            torch.testing.assert_close(some, other, rtol=2e-2, atol=2e-2)

    def test_without_gradients(self):
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        for mode in (torch.no_grad, torch.inference_mode):
            with self.subTest(mode), mode():
                leaves = [t.detach() for t in layer_inputs(2, "direct")]
                self.assertTrue(torch.equal(compiled(*leaves, 3, 4, 5, "direct"), layer(*leaves, 3, 4, 5, "direct")))

    def test_what_pytorch_checks_of_operators(self):
        if not hasattr(torch.library, "opcheck"):
            self.skipTest("this PyTorch has no opcheck")
        for form in ("distance", "direct"):
            for head_size in (16, 256):  # on a GPU the second has the plain formula as its kernel
                problem = Problem(3, 4, prefix=1, size=head_size, form=form)
                positional, named = problem.arguments(problem.fresh())
                torch.library.opcheck(ops.sape2_attention.default, positional, named)


if __name__ == "__main__":
    main()
