"""ONNX files against the models they were made from, in onnxruntime."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import peers
import pytest
import torch
from cases import ENCODINGS, lively
from conftest import needs_torch_2
from torch import Tensor, nn

import sape2
import sape2.onnx
from sape2.nn import Attention, LayerEncoding, ViT

pytestmark = [needs_torch_2, pytest.mark.usefixtures("on_cpu")]


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    if "uninstalled" not in request.fixturenames:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name))


def outputs_of(path: Path, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """What onnxruntime computes, of a file that has standard operators alone."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {node.domain for node in model.graph.node} == {""} and not model.functions
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    ran = session.run(names, {name: x.numpy() for name, x in inputs.items()})
    return {name: torch.from_numpy(x) for name, x in zip(names, ran)}


def first(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def check(model: nn.Module, path: Path, size: tuple[int, int], **options: Any) -> None:
    """Exports and compares, for numbers of images that the export did not see."""
    sape2.onnx.export(model, path, **options)
    model.eval()
    for images in (1, 5):
        x = torch.randn(images, 3, *size)
        ran = outputs_of(path, {"images": x})
        expected = first(model(x)).detach()
        assert expected.abs().max() > 1e-2
        torch.testing.assert_close(next(iter(ran.values())), expected, rtol=0, atol=1e-4)


def is_of_attention(encoding: str) -> bool:
    try:
        LayerEncoding(encoding, 32, 2, (3, 4))
    except ValueError:
        return False
    return True


class EveryLayer(nn.Module):
    """All encodings of attention, one beside the other: one export takes as long as ten."""

    def __init__(self) -> None:
        super().__init__()
        self.names = [e for e in ENCODINGS if is_of_attention(e)]
        self.layers = nn.ModuleList(LayerEncoding(e, 32, 2, (3, 4), prefix=1) for e in self.names)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        """One result per encoding."""
        return tuple(layer(q, k, v) for layer in self.layers)


def test_every_encoding_of_attention(tmp_path: Path) -> None:
    model = EveryLayer()
    lively(model)
    path = tmp_path / "layers.onnx"
    sape2.onnx.export(
        model, path, torch.zeros(3, 1, 2, 13, 16).unbind(0), input_names=["q", "k", "v"], output_names=model.names
    )
    for images in (1, 4):
        q, k, v = torch.randn(3, images, 2, 13, 16)
        ran = outputs_of(path, {"q": q, "k": k, "v": v})
        assert list(ran) == model.names and len(ran) > 12
        for name, expected in zip(model.names, model(q, k, v)):
            assert (ran[name] - expected).abs().max() < 1e-4, name


AT_INPUT = [e for e in ENCODINGS if not is_of_attention(e)]
POOLINGS = ["mean", "sequence", "class-token"]


class EveryInput(nn.Module):
    """Vision transformers whose encodings add positions to the tokens, and each pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.models = nn.ModuleList(
            ViT("vit-micro", encoding=e, pooling=POOLINGS[i % 3], registers=i % 2, depth=1, width=32, heads=2)
            for i, e in enumerate(AT_INPUT)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """One result per encoding."""
        return tuple(model(images) for model in self.models)


def test_every_encoding_of_the_input_and_every_pooling(tmp_path: Path) -> None:
    assert {"ape", "sinusoidal", "sinusoidal2d", "lape"} <= set(AT_INPUT)
    model = lively(EveryInput())
    path = tmp_path / "models.onnx"
    names = [f"logits{i}" for i in range(len(AT_INPUT))]
    sape2.onnx.export(model, path, torch.zeros(1, 3, 16, 24), output_names=names)
    model.eval()
    for images in (1, 3):
        x = torch.randn(images, 3, 16, 24)
        ran = outputs_of(path, {"images": x})
        for encoding, name, expected in zip(AT_INPUT, names, model(x)):
            assert (ran[name] - expected).abs().max() < 1e-4, encoding


def test_a_vit_without_an_example(tmp_path: Path) -> None:
    import onnx

    model = lively(ViT("vit-micro", encoding="sape2-rel-k", depth=2, class_names=["Käse", "dog"]))
    path = tmp_path / "model.onnx"
    check(model.train(), path, (32, 32))
    described = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(described["sape2"]) == model.config
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


def test_a_vit_that_is_not_as_it_was_built_is_traced(tmp_path: Path) -> None:
    model = lively(ViT("vit-micro", depth=1))
    model.head = nn.Sequential(model.head, nn.ReLU())
    check(model, tmp_path / "model.onnx", (32, 32))
    with pytest.raises(ValueError, match="images are 30×32, which patches of 4×4 do not divide"):
        sape2.onnx.export(ViT("vit-micro"), tmp_path / "x.onnx", torch.zeros(1, 3, 30, 32))


@pytest.mark.parametrize("opset", [sape2.onnx.OPSETS[0], 21, sape2.onnx.OPSETS[-1]])
def test_opsets_and_the_mode_of_training(opset: int, tmp_path: Path) -> None:
    import onnx

    model = nn.Sequential(nn.Dropout(0.5), Attention(32, 2, grid=(2, 3), prefix=0)).train()
    model[0].eval()
    sape2.onnx.export(model, tmp_path / "model.onnx", torch.zeros(1, 6, 32), opset=opset)
    assert [entry.version for entry in onnx.load(tmp_path / "model.onnx").opset_import] == [opset]
    assert [module.training for module in (model, model[0], model[1])] == [True, False, True]
    x = torch.randn(3, 6, 32)
    ran = outputs_of(tmp_path / "model.onnx", {"images": x})
    torch.testing.assert_close(ran["logits"], model.eval()(x).detach(), rtol=0, atol=1e-4)


def test_a_patched_model_of_timm(tmp_path: Path) -> None:
    model = peers.timm().create_model(
        "vit_tiny_patch16_224", depth=1, embed_dim=48, num_heads=3, img_size=(32, 64), num_classes=5
    )
    check(lively(sape2.patch(model, "sape2-rel-k")), tmp_path / "timm.onnx", (32, 64))


def test_a_patched_model_of_transformers(tmp_path: Path) -> None:
    library = peers.transformers()
    model = library.ViTForImageClassification(
        library.ViTConfig(
            hidden_size=48, num_hidden_layers=1, num_attention_heads=3, intermediate_size=64, image_size=32,
            num_labels=5,
        )
    )  # fmt: skip
    check(lively(sape2.patch(model, "sape2-k")), tmp_path / "transformers.onnx", (32, 32))


def test_an_accelerated_model(tmp_path: Path) -> None:
    model = peers.timm().create_model("samvit_base_patch16", img_size=64, depth=1, embed_dim=48, num_heads=3)
    model = nn.Sequential(sape2.accelerate(model))
    check(lively(model), tmp_path / "sam.onnx", (64, 64), example=torch.zeros(1, 3, 64, 64))


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="opset is 11; one from 18 to 23 was expected"):
        sape2.onnx.export(ViT("vit-micro"), tmp_path / "x.onnx", opset=11)
    with pytest.raises(ValueError, match="Linear does not say what it takes: give one of its inputs as example="):
        sape2.onnx.export(nn.Linear(2, 2), tmp_path / "x.onnx")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sape2.onnx.export(nn.Linear(2, 2), tmp_path / "nowhere" / "x.onnx", torch.zeros(2, 2))
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"/none\" is no folder to write \"model.onnx\" into; make it first"):
        sape2.onnx.export(torch.nn.Linear(2, 2), tmp_path / "none" / "model.onnx", torch.zeros(1, 2))


def test_without_onnxscript(uninstalled: None, tmp_path: Path) -> None:
    sape2.onnx.export(ViT("vit-micro"), tmp_path / "vit.onnx")
    with pytest.raises(ImportError, match="sape2.onnx.export needs onnxscript: pip install onnxscript"):
        sape2.onnx.export(nn.Linear(2, 2), tmp_path / "x.onnx", torch.zeros(2, 2))


def test_with_an_old_pytorch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(torch.onnx, "ONNXProgram")
    with pytest.raises(ImportError, match="sape2.onnx.export needs PyTorch 2.6 or later, but this is"):
        sape2.onnx.export(nn.Linear(2, 2), tmp_path / "x.onnx", torch.zeros(2, 2))
