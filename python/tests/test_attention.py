"""sape2.nn.Attention beside timm's."""

from __future__ import annotations

import pytest
import torch
from cases import ENCODINGS
from conftest import DEVICE, needs_torch_2

import sape2
from sape2.nn import Attention
from sape2.nn._vit import _BlockEncoding


@needs_torch_2  # timm does
@pytest.mark.parametrize(
    "options", [{}, {"qkv_bias": True}, {"qk_norm": True}, {"scale_norm": True, "proj_bias": False}]
)
def test_without_positions_it_is_timms(options: dict[str, bool]) -> None:
    timm_layers = pytest.importorskip("timm.layers.attention")
    norm = torch.nn.LayerNorm
    theirs = timm_layers.Attention(48, 3, norm_layer=norm, **options)
    ours = Attention(48, 3, norm_layer=norm, **options, encoding="none", grid=(4, 5), prefix=1)
    assert ours.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(2, 21, 48)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-6 if DEVICE == "cpu" else 1e-5)
    assert ours(x, attn_mask=None, is_causal=False).shape == x.shape


@needs_torch_2  # timm does
def test_weights_of_timm_load_beside_positions() -> None:
    timm_layers = pytest.importorskip("timm.layers.attention")
    ours = Attention(48, 3, qkv_bias=True)
    missing, unexpected = ours.load_state_dict(timm_layers.Attention(48, 3, qkv_bias=True).state_dict(), strict=False)
    assert unexpected == []
    assert all(name.startswith("pos.") for name in missing)


def test_head_size_and_width_of_its_own() -> None:
    attention = Attention(48, 3, attn_head_dim=20, dim_out=32, grid=(2, 3), prefix=0)
    assert attention.pos.ex.shape[-1] == 20
    assert attention(torch.randn(2, 6, 48)).shape == (2, 6, 32)


def test_it_equals_the_operator() -> None:
    attention = Attention(48, 3, encoding="sape2-rel-k", grid=(4, 5), prefix=1)
    x, pos = torch.randn(2, 21, 48), attention.pos
    q, k, v = attention.qkv(x).view(2, 21, 3, 3, 16).permute(2, 0, 3, 1, 4)
    out = sape2.ops.sape2_attention(
        q, k, v, pos.ex, pos.ey, 4, 5, prefix=1, span="between", form="direct", bias_inside=False,
        gate_scale=pos.gate_alpha / 4, gate_offset=pos.gate_beta,
    )  # fmt: skip
    assert torch.equal(attention(x), attention.proj(out.transpose(1, 2).reshape(2, 21, 48)))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_one_tensor_for_q_k_and_v(encoding: str) -> None:
    """A projection's output gives what its thirds give, and so do the gradients."""
    layer = _BlockEncoding(encoding, 48, 3, (6, 6), 1)  # tables for another grid than 4×5
    qkv = torch.randn(2, 21, 3 * 48, requires_grad=True)
    q, k, v = qkv.view(2, 21, 3, 3, 16).permute(2, 0, 3, 1, 4).unbind(0)
    leaves = [qkv, *layer.parameters()]
    outs = [layer(qkv, grid=(4, 5)), layer(q, k, v, (4, 5)).transpose(1, 2).flatten(2)]
    gradients = [torch.autograd.grad(out.square().sum(), leaves, allow_unused=True) for out in outs]
    torch.testing.assert_close(outs[0], outs[1], rtol=0, atol=0 if DEVICE == "cpu" else 1e-6)
    torch.testing.assert_close(*gradients, rtol=0, atol=0 if DEVICE == "cpu" else 1e-5)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_one_tensor_for_q_k_and_v_is_watched(encoding: str) -> None:
    """A second derivative is refused, and so is a backward pass after the tensor was changed."""
    layer = _BlockEncoding(encoding, 48, 3, (4, 5), 1)
    qkv = torch.randn(2, 21, 3 * 48, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(qkv * 1).sum(), qkv, create_graph=True)
    with pytest.raises(RuntimeError, match="can be differentiated once"):
        gradient.square().sum().backward()
    projected = qkv * 1
    out = layer(projected).sum()
    projected.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_hooks_of_modules_that_do_nothing() -> None:
    """Somebody who watches q, or the gradient of a result, sees it."""
    attention, seen = Attention(48, 3, grid=(4, 5), prefix=1), []
    x = torch.randn(2, 21, 48, requires_grad=True)
    expected = attention(x)
    attention.q_norm.register_forward_hook(lambda _, given, __: seen.append(given[0].shape))
    attention.proj_drop.register_full_backward_hook(lambda _, given, __: seen.append(given[0].shape))
    out = attention(x)
    out.sum().backward()
    assert torch.equal(out, expected) and seen == [(2, 3, 21, 16), (2, 21, 48)]


@needs_torch_2  # torch.fx of PyTorch 1 does not run with Python 3.11
def test_torch_fx_keeps_every_module() -> None:
    traced = torch.fx.symbolic_trace(Attention(48, 3, grid=(4, 5), prefix=1).eval())
    assert {"q_norm", "k_norm", "norm", "proj_drop"} <= {str(node.target) for node in traced.graph.nodes}


def test_rows_and_columns_are_told_apart() -> None:
    """An image turned on its side gives the tokens turned, with the tables exchanged."""
    upright, turned = (Attention(32, 2, encoding="sape2-rel-k", grid=grid, prefix=0) for grid in ((3, 5), (5, 3)))
    turned.load_state_dict(upright.state_dict())
    turned.pos.ex, turned.pos.ey = turned.pos.ey, turned.pos.ex
    x = torch.randn(2, 3, 5, 32)
    there = upright(x.flatten(1, 2)).view(2, 3, 5, 32)
    back = turned(x.transpose(1, 2).flatten(1, 2)).view(2, 5, 3, 32).transpose(1, 2)
    torch.testing.assert_close(there, back, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"attn_drop": 0.1}, "attn_drop is 0.1, but the fused attention never stores its weights"),
        ({"num_heads": 0}, "num_heads is 0; a whole number from 1"),
        ({"num_heads": 4.0}, "num_heads is 4.0; a whole number from 1"),
        ({"grid": 14}, "^grid is 14; rows and columns were expected"),
        ({"grid": (2, 3, 4)}, r"^grid is \(2, 3, 4\); rows and columns were expected"),
        ({"grid": (4.0, 4)}, r"^grid is \(4.0, 4\); rows and columns were expected"),
        ({"num_heads": 5}, "dim is 64, which 5 heads do not divide"),
        ({"grid": (0, 4)}, "a grid of 0×4 and 1 prefix tokens make no model"),
        ({"prefix": -1}, "-1 prefix tokens make no model"),
    ],
)
def test_wrong_constructor_arguments(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Attention(64, **{"num_heads": 4, "grid": (4, 4), **arguments})


def test_numbers_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    assert Attention(64, numpy.int64(4), grid=(4, 4), prefix=1)(torch.randn(2, 17, 64)).shape == (2, 17, 64)


def test_wrong_calls() -> None:
    attention = Attention(64, 4, grid=(4, 4), prefix=1)
    with pytest.raises(ValueError, match="there are 26 tokens, but 1 before the patches and a grid of 4×4 make 17"):
        attention(torch.randn(1, 26, 64))
    layer, q = attention.pos, torch.randn(1, 4, 17, 16)
    with pytest.raises(ValueError, match="k or v is missing; give q, k and v, or one tensor"):
        layer(q, q)
    with pytest.raises(ValueError, match=r"^qkv is \[1, 17, 64\], expected \[images, tokens, 3·64\]"):
        layer(torch.randn(1, 17, 64))
    with pytest.raises(ValueError, match="there are 16 tokens, but 1 before the patches"):
        layer(torch.randn(1, 16, 192))
    for grid in (4, (4,), (4.0, 4.0), torch.zeros(3)):
        with pytest.raises(ValueError, match="^grid is .*; rows and columns were expected"):
            attention(torch.randn(1, 17, 64), grid=grid)
    for shape in ((17, 64), (1, 4, 4, 64)):
        with pytest.raises(ValueError, match=r"^tokens are \[.*\]; \[images, tokens, width\] was expected"):
            attention(torch.randn(shape))
    for shape in ((2, 17, 16), (2, 17, 4, 16), (2, 2, 17, 32)):
        with pytest.raises(ValueError, match=r"^q is \[.*\], expected \[images, 4 heads, tokens, 16 channels\]"):
            attention.pos(*torch.randn(3, *shape))
    with pytest.raises(ValueError, match="takes no mask"):
        attention(torch.randn(1, 17, 64), attn_mask=torch.zeros(17, 17))
