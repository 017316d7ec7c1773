"""The operators in a captured CUDA graph, forward and backward.

usage: graph_test.py LIBRARY     (libsape2_ops.so)
"""

import unittest

import torch
from support import Problem, main, needs_gpu, ops, same

TYPES = (torch.float32, torch.bfloat16, torch.float16)


def captured(work):
    """`work` in a graph, and what it returned while it was captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = work()
    return graph, results


@needs_gpu
class GraphTest(unittest.TestCase):
    def test_sape2_attention(self):
        """A replay with other numbers gives what a call with them gives."""
        for form in ("distance", "direct"):
            for dtype in TYPES:
                for sizes in (dict(rows=8, cols=8), dict(rows=20, cols=17, prefix=1), dict(rows=20, cols=17, size=64)):
                    with self.subTest(form=form, dtype=dtype, **sizes):
                        problem, other = (Problem(form=form, dtype=dtype, **sizes) for _ in "ab")
                        other.dout = problem.dout
                        leaves = problem.fresh()
                        graph, results = captured(lambda: problem.solve(leaves=leaves))
                        with torch.no_grad():
                            for name, leaf in leaves.items():
                                leaf.copy_(other.leaves[name])
                        graph.replay()
                        torch.cuda.synchronize()
                        self.assertTrue(same(results, other.solve()))

    def test_the_other_operators(self):
        tensor = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        q, k, v = (tensor(2, 3, 21, 16) for _ in "qkv")
        ux, uy, e = tensor(2, 3, 20, 5), tensor(2, 3, 20, 4), torch.randn(9, 16, device="cuda", requires_grad=True)
        calls = {
            "attention": (lambda: ops.attention(q, k, v), [q, k, v]),
            "distance": (lambda: ops.distance_attention(q, k, v, ux, uy, 4, 5, prefix=1), [q, k, v, ux, uy]),
            "axial": (lambda: ops.axial_attention(q, k, v, ux, uy, 4, 5, prefix=1), [q, k, v, ux, uy]),
            "vectors": (lambda: ops.sape2_vectors(q, k, e, e, 4, 5, prefix=1)[1], [q, k, e]),
            "cope": (lambda: ops.cope_attention(q, k, v, e), [q, k, v, e]),
            "rope2d": (lambda: ops.rope2d(q, 4, 5, prefix=1), [q]),
        }
        for name, (call, leaves) in calls.items():
            with self.subTest(name):

                def work():
                    out = call()
                    return [out.detach(), *torch.autograd.grad(out, leaves, torch.ones_like(out))]

                graph, results = captured(work)
                graph.replay()
                torch.cuda.synchronize()
                for got, expected in zip(results, work()):
                    self.assertTrue(torch.equal(got, expected))


if __name__ == "__main__":
    main()
