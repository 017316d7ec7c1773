"""The worked example of docs/method.md: its figures are what the operators compute, and the page has them.

usage: worked_example_test.py LIBRARY     (libsape2_ops.so)"""

import pathlib
import sys
import tempfile
import unittest

import torch

import pages

sys.path.insert(0, str(pages.ROOT / "docs" / "pictures"))
import how_it_works  # noqa: E402
import method  # noqa: E402
import worked_example  # noqa: E402

PAGE = pages.ROOT / "docs" / "method.md"


def operators(table, offset, **settings):
    """Axis vectors, bias and attention of the example by the operators."""
    tokens = torch.tensor(worked_example.K, dtype=torch.float64)[None, None]
    table = torch.tensor([(0.0, value) for value in table], dtype=torch.float64)
    span, form = settings["span"], settings["form"]
    offset = torch.tensor(float(offset), dtype=torch.float64)
    ux, uy = torch.ops.sape2.sape2_vectors(tokens, tokens, table, table, 1, 4, span=span, gate_offset=offset)
    bias = torch.ops.sape2.sape2_bias(tokens, tokens, table, table, 1, 4, span=span, gate_offset=offset, form=form)
    values = torch.eye(4, dtype=torch.float64)[None, None]  # so that the output is the attention itself
    pad = lambda t: torch.nn.functional.pad(t, (0, 2))  # values have four channels, so tokens and tables do too
    root = 2 ** -0.5
    attention = torch.ops.sape2.sape2_attention(
        pad(tokens), pad(tokens), values, pad(table), pad(table), 1, 4, scale=root,
        gate_scale=torch.tensor(root, dtype=torch.float64), gate_offset=offset, **settings)
    return {"ux": ux[0, 0], "uy": uy[0, 0], "bias": bias[0, 0], "attention": attention[0, 0]}


class WorkedExample(unittest.TestCase):
    def compare(self, by_hand, by_operators):
        for name, tensor in by_operators.items():
            torch.testing.assert_close(torch.tensor(by_hand[name], dtype=torch.float64), tensor, rtol=0, atol=1e-12)

    def test_the_papers_form(self):
        self.compare(worked_example.paper(),
                     operators(worked_example.SUFFIX, 0, span="suffix", form="distance", bias_inside=True))

    def test_our_form(self):
        self.compare(worked_example.relative(),
                     operators(worked_example.BETWEEN, 2, span="between", form="direct", bias_inside=False))

    def test_the_page_has_these_figures(self):
        page = PAGE.read_text(encoding="utf-8")
        self.assertEqual(worked_example.written(page), page,
                         "docs/method.md is out of date: python3 docs/pictures/worked_example.py docs/method.md")
        words = " ".join(page.split())
        self.assertEqual([sentence for sentence in worked_example.sentences() if sentence not in words], [])

    def test_the_figures_are_what_the_scripts_draw(self):
        scripts = {"stages.svg": method.stages, "spans.svg": method.spans, "how_it_works.svg": how_it_works.draw}
        with tempfile.TemporaryDirectory() as folder:
            for name, draw in scripts.items():
                drawn = pathlib.Path(folder) / name
                draw(drawn)
                kept = pages.ROOT / "docs" / "pictures" / name
                self.assertEqual(drawn.read_text(encoding="utf-8"), kept.read_text(encoding="utf-8"))


if __name__ == "__main__":
    torch.ops.load_library(sys.argv.pop())
    unittest.main(verbosity=2)
