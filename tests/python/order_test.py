"""Launches overlap on the GPU, their results must not: calls that follow one another at once, each taking
what the one before makes, give what they give with a pause after each.

usage: order_test.py LIBRARY     (libsape2_ops.so)
"""

import unittest

import torch
from support import Problem, main, needs_gpu, ops, same

ROUNDS = 5


def attend(problem, own, x):
    positional, named = problem.arguments({**own, "q": x, "k": x, "v": x})
    return ops.sape2_attention(*positional, **named)


def pause(*_):
    torch.cuda.synchronize()


class Chain:
    """Attention of every kind one after the other; q, k and v of each are the output before."""

    def __init__(self, rows, cols, prefix, size, images, dtype):
        sizes = dict(rows=rows, cols=cols, prefix=prefix, size=size, images=images, dtype=dtype)
        self.problems = [Problem(form=form, **sizes) for form in ("direct", "distance", "direct")]
        self.start = self.problems[0].leaves["q"]
        self.dout = self.problems[0].dout

    def solve(self, after_each):
        leaves = {"x": self.start.clone().requires_grad_()}
        x = leaves["x"]
        for step, problem in enumerate(self.problems):
            own = problem.fresh()
            leaves.update({f"{name}{step}": own[name] for name in ("ex", "ey", "gate_scale", "gate_offset", "gain")})
            for call in (lambda x: ops.attention(x, x, x), lambda x: attend(problem, own, x)):
                after_each()
                x = call(x)
                x.register_hook(after_each)
        gradients = torch.autograd.grad(x, list(leaves.values()), self.dout)
        return {"out": x.detach(), **dict(zip(leaves, gradients))}


@needs_gpu
class OrderTest(unittest.TestCase):
    def test_calls_that_follow_at_once(self):
        for dtype in (torch.bfloat16, torch.float16):
            for sizes in (dict(rows=8, cols=8, prefix=0, size=64, images=64), dict(rows=32, cols=32, prefix=0, size=64, images=4),
                          dict(rows=20, cols=40, prefix=1, size=64, images=2), dict(rows=17, cols=9, prefix=2, size=32, images=8)):
                with self.subTest(dtype=dtype, **sizes):
                    chain = Chain(dtype=dtype, **sizes)
                    expected = chain.solve(pause)
                    for _ in range(ROUNDS):
                        self.assertTrue(same(chain.solve(lambda *_: None), expected))

    def test_inputs_that_were_just_written(self):
        for form in ("distance", "direct"):
            for sizes in (dict(rows=8, cols=8), dict(rows=32, cols=32)):
                with self.subTest(form=form, **sizes):
                    problem, other = (Problem(form=form, dtype=torch.bfloat16, size=64, **sizes) for _ in "ab")
                    other.dout = problem.dout
                    expected = other.solve()
                    leaves = problem.fresh()
                    pause()
                    torch.cuda._sleep(10_000_000)  # everything below is waiting in the stream by then
                    with torch.no_grad():
                        for name, leaf in leaves.items():
                            leaf.copy_(other.leaves[name])
                    results = problem.solve(leaves=leaves)
                    with torch.no_grad():
                        for leaf in leaves.values():
                            leaf.zero_()
                    self.assertTrue(same(results, expected))


if __name__ == "__main__":
    main()
