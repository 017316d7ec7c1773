"""What sape2.explain shows, against the operators and the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import peers
import pytest
import torch
from cases import lively
from conftest import ROOT
from torch import nn

import sape2
from sape2.nn import Attention, ViT

MODEL = ROOT / "models" / "cifar10-sape2-rel-k.safetensors"
SHIP = ROOT / "examples" / "images" / "ship.png"


def ship() -> torch.Tensor:
    """The pixels as bytes, `[32, 32, 3]`."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    return torch.frombuffer(bytearray(image.open(SHIP).convert("RGB").tobytes()), dtype=torch.uint8).view(32, 32, 3)


def spied(model: nn.Module, *inputs: torch.Tensor) -> list[tuple[Any, ...]]:
    """Every attention layer, the q, k and v that it was given in one tensor, and what it returned, by heads."""
    seen: list[tuple[Any, ...]] = []

    def keep(layer: Any, given: tuple[torch.Tensor], out: torch.Tensor) -> None:
        heads = layer.shape[1]
        qkv = given[0].unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        seen.append((layer, *qkv.contiguous(), out.unflatten(2, (heads, -1)).transpose(1, 2)))

    hooks = [m.register_forward_hook(keep) for m in model.modules() if isinstance(m, sape2.nn.LayerEncoding)]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("encoding", ["none", "rpe", "rope2d", "cope", "lape", "sape2-qk", "sape2-rel-k+ape"])
def test_attention_rows_are_those_of_the_attention(encoding: str) -> None:
    """Rows times v is what the layer returned, at a grid that it was not trained at."""
    model = lively(ViT("vit-micro", encoding=encoding, depth=2, pooling="class-token", registers=1)).eval()
    image, patches = torch.randn(3, 24, 40), [(0, 0), (5, 9), (2, 7)]
    explained = sape2.explain(model, image, patches=patches)
    seen = spied(model, image.unsqueeze(0))
    assert [rows.name for rows in explained.layers] == ["blocks.0.attn", "blocks.1.attn"]
    for rows, (_, _, _, v, out) in zip(explained.layers, seen):
        assert (rows.grid, rows.prefix, rows.encoding) == ((6, 10), 2, model.encoding)
        chosen = [2 + y * 10 + x for y, x in patches]
        torch.testing.assert_close(rows.attention @ v[0].cpu(), out[0][:, chosen].cpu(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(explained.output, model(image.unsqueeze(0)).detach())


def test_bias_gates_and_positions_are_the_operators() -> None:
    model = lively(ViT("vit-micro", encoding="sape2-rel-k", depth=1)).eval()
    image = torch.randn(1, 3, 32, 32)
    rows = sape2.explain(model, image, patches=[(4, 1)]).layers[0]
    [(layer, q, k, *_)] = spied(model, image)
    with torch.no_grad():
        bias = sape2.ops.sape2_bias(
            q, k, layer.ex, layer.ey, 8, 8, mode="k", span="between", form="direct",
            gate_scale=layer.gate_alpha / q.shape[-1] ** 0.5, gate_offset=layer.gate_beta,
        )  # fmt: skip
    torch.testing.assert_close(rows.bias, bias[0, :, [33]].cpu(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rows.bias_x + rows.bias_y, rows.bias)
    assert rows.gates_x.shape == rows.positions_x.shape == rows.gates_y.shape == (3, 1, 8)
    assert rows.gates_x.min() >= 0 and rows.gates_x.max() <= 1 and rows.gates is None and not rows.is_distance
    # Signed sums of gates from the patch on.
    torch.testing.assert_close(rows.positions_x[:, 0, 2:], rows.gates_x[:, 0, 2:].cumsum(-1))
    assert not rows.positions_x[:, 0, 1].any() and (rows.positions_x[:, 0, 0] < 0).all()


@pytest.mark.usefixtures("on_cpu")
def test_the_programs_numbers(program: str, tmp_path: Path) -> None:
    """The same patches and the same maps as `sape2 explain`, for a mean and for one head."""
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    explained = sape2.explain(sape2.load(MODEL), ship().numpy())
    for what, options, chosen in [
        ("bias", [], {}),
        ("gates", ["--layer", "2"], {"layer": 1}),
        ("attention", ["--layer", "1", "--head", "2"], {"layer": 0, "head": 1}),
        ("positions", [], {}),
    ]:
        file = tmp_path / "numbers.safetensors"
        subprocess.run(
            [program, "explain", MODEL, SHIP, "--what", what, "--safetensors", file, *options],
            check=True, capture_output=True,
        )  # fmt: skip
        numbers = safetensors.load_file(file)
        assert [tuple(patch) for patch in numbers["patches"].tolist()] == list(explained.patches)
        torch.testing.assert_close(
            explained.maps(what, **chosen), numbers["maps"], rtol=1e-4, atol=1e-5, equal_nan=True
        )


def test_a_prediction() -> None:
    model = sape2.load(MODEL)
    explained = sape2.explain(model, ship().numpy())
    assert model.config["class_names"][int(explained.output.argmax())] == "ship"
    torch.testing.assert_close(explained.image, ship().permute(2, 0, 1) / 255)
    normalised = model.normalise(ship().permute(2, 0, 1) / 255)
    assert torch.equal(sape2.explain(model, normalised).maps("bias"), explained.maps("bias"))
    torch.testing.assert_close(sape2.explain(model, normalised).image, explained.image)


def test_a_picture_of_pil() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    model = sape2.load(MODEL)
    assert torch.equal(sape2.explain(model, image.open(SHIP)).output, sape2.explain(model, ship().numpy()).output)


def test_patched_models() -> None:
    """The grid comes from the image; training mode and hooks are as before."""
    model = peers.timm().create_model(
        "vit_tiny_patch16_224", depth=2, embed_dim=48, num_heads=3, dynamic_img_size=True, drop_rate=0.5
    )
    lively(sape2.patch(model, "sape2-rel-k")).train()
    explained = sape2.explain(model, torch.randn(3, 48, 80))
    assert model.training and not any(
        m._forward_pre_hooks for m in model.modules() if type(m).__name__ == "LayerEncoding"
    )
    assert [rows.name for rows in explained.layers] == ["blocks.0.attn", "blocks.1.attn"]
    assert explained.maps("attention").shape == (2, 3, 5) and len(set(explained.patches)) == 2
    library = peers.transformers()
    config = library.ViTConfig(hidden_size=48, num_hidden_layers=1, num_attention_heads=3, image_size=32)
    explained = sape2.explain(sape2.patch(library.ViTModel(config), "sape2-k"), torch.randn(3, 32, 32))
    assert explained.offers == ("bias", "bias-x", "bias-y", "gates", "positions", "attention")
    assert explained.layers[0].is_distance


def test_figures() -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    explained = sape2.explain(ViT("vit-micro", encoding="cope", depth=1), torch.randn(3, 32, 32), patches=[(1, 2)])
    figure = explained.figure()
    titles = [axis.get_title() for axis in figure.axes if axis.get_title()]
    assert titles == ["image", "bias", "gates", "positions", "attention"]
    shown = explained.figure("attention", head=2).axes[1].images[0].get_array()
    assert torch.equal(torch.as_tensor(shown.data, device="cpu"), explained.maps("attention", head=2)[0])
    assert explained._repr_png_()[:4] == b"\x89PNG"


def test_numbers_need_no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    explained = sape2.explain(ViT("vit-micro", depth=1), torch.randn(3, 32, 32))
    assert explained._repr_png_() is None
    with pytest.raises(ImportError, match="a figure needs matplotlib: pip install matplotlib"):
        explained.figure()


def test_mistakes_are_one_sentence() -> None:
    model = ViT("vit-micro", encoding="rope2d", depth=1)
    image = torch.randn(3, 32, 32)
    explained = sape2.explain(model, image)
    for call, sentence in [
        (lambda: sape2.explain(nn.Linear(2, 2), torch.zeros(1, 1, 1, 2)), "Linear has no sape2 attention to look into"),
        (lambda: sape2.explain(model, torch.randn(2, 3, 32, 32)), "one image, .* was expected"),
        (lambda: sape2.explain(model, image, patches=[(8, 0)]), "patch 8, 0 is outside the grid of 8×8"),
        (lambda: explained.maps("bias"), "the encoding rope2d has no bias; look at its attention"),
        (lambda: explained.maps("colour"), '"colour" cannot be shown'),
        (lambda: explained.maps("attention", layer=1), "the model has layers 0 to 0"),
        (lambda: explained.maps("attention", head=3), "the model has heads 0 to 2"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="Sequential has preprocessing of its own"):
        sape2.explain(nn.Sequential(Attention(8, 1, grid=(2, 2))), [[0]])
    with pytest.raises(TypeError, match="^model is a str; a torch.nn.Module was expected"):
        sape2.explain("vit", torch.randn(3, 32, 32))
