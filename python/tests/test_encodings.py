"""Encodings: one parser and one list for C++ and Python."""

from __future__ import annotations

import json
import subprocess

import pytest
import torch
from cases import ENCODINGS

import sape2
from sape2.nn import InputEncoding, LayerEncoding


def test_the_list_is_the_programs(program: str) -> None:
    info = json.loads(subprocess.run([program, "info", "--json"], check=True, capture_output=True, text=True).stdout)
    theirs = [(e["name"], [option["name"] for option in e.get("options", [])]) for e in info["encodings"]]
    assert theirs == [(e.name, [option.name for option in e.options]) for e in sape2.encodings()]


@pytest.mark.parametrize(
    ("encoding", "sentence"),
    [
        ("sape2-relk", 'encoding "sape2-relk" is not known; the nearest is "sape2-rel-k"'),
        ("sape2-k[span=betwen]", 'option "span" of encoding "sape2-k" cannot be "betwen"; the nearest is "between"'),
        ("rope2d[M=3]", 'encoding "rope2d" has no options, but "M=3" was given'),
        ("", "an encoding is empty"),
        ("sape2-rel-k[M=4]", "M"),
    ],
)
def test_mistakes_get_the_programs_sentence(encoding: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        sape2.nn.Attention(64, 4, encoding=encoding)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_canonical_string() -> None:
    assert sape2.nn.Attention(64, 4, encoding=" sape2-k[ gain=-1.0, span=suffix ]").pos.encoding == "sape2-k[gain=-1]"


def test_a_shape_that_an_encoding_cannot_serve() -> None:
    with pytest.raises(ValueError, match="needs a head size divisible by 4, but width 18 over 3 heads gives 6"):
        LayerEncoding("rope2d", 18, 3, (4, 4))


@pytest.mark.parametrize("grid", [(4, 4.0), (1.5, 2), ("4", 4), (float("nan"), 4), (2**70, 1), (None, 4)])
def test_a_grid_is_of_whole_numbers(grid: tuple[int, int]) -> None:
    LayerEncoding("sape2-rel-k", 64, 4, (4, 4))  # must not be taken for one of its kin
    with pytest.raises(ValueError, match="^(grid is|width, heads, rows, cols and prefix are) .*; .*whole numbers"):
        LayerEncoding("sape2-rel-k", 64, 4, grid)


def test_an_encoding_is_a_string() -> None:
    with pytest.raises(TypeError, match="^encoding is 3; a string such as"):
        LayerEncoding(3, 64, 4, (4, 4))  # type: ignore[arg-type]


def test_input_and_layers_are_told_apart() -> None:
    with pytest.raises(ValueError, match=r'give "sape2-k" here and put sape2.nn.InputEncoding\("ape"'):
        LayerEncoding("sape2-k+ape", 64, 4, (4, 4))
    with pytest.raises(ValueError, match=r'give "none" here and put sape2.nn.InputEncoding\("sinusoidal"'):
        LayerEncoding("sinusoidal", 64, 4, (4, 4))
    with pytest.raises(ValueError, match=r"hands positions from layer to layer, which only sape2.nn.ViT does"):
        LayerEncoding("lape", 64, 4, (4, 4))
    with pytest.raises(ValueError, match=r"acts in attention: give it to sape2.nn.Attention"):
        InputEncoding("sape2-k", 64, (4, 4))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_learns_at_other_grids(encoding: str) -> None:
    """Every parameter takes part at the grid trained at and at another one."""
    model = sape2.nn.ViT("vit-micro", encoding=encoding, depth=2, width=48, heads=3, pooling="class-token")
    for size in ((32, 32), (24, 40)):
        model.zero_grad()
        (model(torch.randn(2, 3, *size)) ** 2).sum().backward()
        unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
        assert unused == []


def test_first_values_come_from_the_seed() -> None:
    make = lambda: sape2.nn.Attention(64, 4, encoding="rope2d-mixed", grid=(4, 4)).state_dict()  # noqa: E731
    torch.manual_seed(3)
    some = make()
    torch.manual_seed(3)
    others = make()
    assert all(torch.equal(some[name], others[name]) for name in some)
    assert not torch.equal(some["pos.fx"], make()["pos.fx"])


def test_first_values_are_the_librarys() -> None:
    layer = LayerEncoding("sape2-rel-k[gain-mode=per-head]", 256, 4, (14, 14))
    assert layer.ex.shape == (27, 64)
    assert 0.018 < layer.ex.std() < 0.022
    assert torch.equal(layer.gate_alpha, torch.ones(4))
    assert torch.equal(layer.gate_beta, torch.full((4,), 2.0))
    assert torch.equal(layer.gain, torch.ones(4))
    assert torch.equal(LayerEncoding("rpe", 64, 4, (3, 4)).rx, torch.zeros(4, 7))


def test_prefix_tokens_have_no_position() -> None:
    """An axis of one patch has nothing to say: attention is then plain, whatever the tables hold."""
    layer = LayerEncoding("rpe", 32, 2, (3, 3), prefix=2)
    torch.nn.init.normal_(layer.rx, std=5)
    q, k, v = torch.randn(3, 1, 2, 11, 16)
    plain, ours = sape2.ops.attention(q, k, v), layer(q, k, v)
    torch.testing.assert_close(ours[:, :, :2], plain[:, :, :2])
    assert (ours[:, :, 2:] - plain[:, :, 2:]).abs().max() > 0.01
