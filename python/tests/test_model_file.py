"""Model files, from and to the program."""

from __future__ import annotations

import json
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
import torch
from cases import ENCODINGS, lively
from conftest import ROOT, needs_torch_2

import sape2
from sape2.nn import ViT

pytestmark = pytest.mark.usefixtures("on_cpu")


def write_png(path: Path, pixels: torch.Tensor) -> None:
    """An RGB image `[height, width, 3]` of bytes."""
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    packed = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(packed))


def by_the_program(program: str, model: Path, image: Path, *options: str) -> torch.Tensor:
    """Log-probabilities of all classes: logits but for a constant."""
    command = [program, "predict", str(model), str(image), "--top", "1000", "--json", *options]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    entries = printed[0]["predictions"]
    scores = {entry["index"]: entry["probability"] for entry in entries}
    return torch.tensor([scores[index] for index in range(len(scores))], dtype=torch.float64).log()


def by_python(model: ViT, pixels: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        images = model.normalise(pixels.permute(2, 0, 1).unsqueeze(0) / 255)
        return model(images)[0].double().log_softmax(0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_model_from_python_in_the_program(program: str, tmp_path: Path, encoding: str) -> None:
    """And back: a file that the program wrote holds the same weights."""
    pooling = ("mean", "sequence", "class-token")[len(encoding) % 3]
    model = ViT(
        "vit-micro", encoding=encoding, depth=2, width=48, heads=3, classes=5, image_size=(24, 32), pooling=pooling,
        registers=len(encoding) % 2, layer_scale=0.5, mean=[0.5, 0.4, 0.3], deviation=[0.2, 0.3, 0.25],
    )  # fmt: skip
    lively(model).eval()
    file, image, converted = tmp_path / "model.safetensors", tmp_path / "image.png", tmp_path / "converted.safetensors"
    sape2.save(model, file)
    for height, width, options in ((24, 32, []), (40, 40, ["--size", "40"])):  # the size trained at, and another grid
        pixels = torch.randint(256, (height, width, 3))
        write_png(image, pixels)
        theirs = by_the_program(program, file, image, *options)
        torch.testing.assert_close(by_python(model, pixels), theirs, rtol=0, atol=1e-5)
    subprocess.run([program, "convert", str(file), "-o", str(converted), "--weights", "float32"], check=True)
    back = sape2.load(converted)
    assert back.config == model.config
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", ["cifar10-sape2-k", "cifar10-sape2-rel-k"])
def test_a_trained_model_in_python(program: str, tmp_path: Path, name: str) -> None:
    file, image = ROOT / "models" / f"{name}.safetensors", tmp_path / "image.png"
    pixels = torch.randint(256, (32, 32, 3))
    write_png(image, pixels)
    model = sape2.load(file)
    assert "cat" in model.config["class_names"]
    torch.testing.assert_close(by_python(model, pixels), by_the_program(program, file, image), rtol=0, atol=1e-5)


def test_round_trip(tmp_path: Path) -> None:
    model = ViT("vit-micro", depth=1, encoding="sape2-k+ape", class_names=["cat", "dog"])
    sape2.save(model, tmp_path / "model.safetensors", metadata={"note": "untrained"})
    back = sape2.load(str(tmp_path / "model.safetensors"))
    assert not back.training
    assert (back.config, back.metadata) == (model.config, {"note": "untrained"})
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in model.state_dict().items())
    sape2.save(back, tmp_path / "again.safetensors", dtype=torch.bfloat16)
    again = sape2.load(tmp_path / "again.safetensors")
    assert again.metadata == {"note": "untrained"}
    assert torch.equal(again.head.weight, model.head.weight.to(torch.bfloat16).float())


@needs_torch_2
def test_it_is_where_pytorch_makes_tensors() -> None:
    file = ROOT / "models" / "cifar10-sape2-k.safetensors"
    with torch.device("meta"):
        assert all(p.is_meta for p in sape2.load(file).parameters())
        assert not any(p.is_meta for p in sape2.load(file, device="cpu").parameters())


def test_other_programs_read_it(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = ViT("vit-micro", depth=1)
    sape2.save(model, tmp_path / "model.safetensors")
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    assert set(tensors) == set(model.state_dict())


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        sape2.load(tmp_path / "nowhere.safetensors")
    (tmp_path / "text.safetensors").write_text("these are no weights at all, only words")
    with pytest.raises(ValueError, match="text.safetensors"):
        sape2.load(tmp_path / "text.safetensors")
    with pytest.raises(TypeError, match=r"holds a sape2.nn.ViT, but the model is a Linear; save its state_dict\(\)"):
        sape2.save(torch.nn.Linear(2, 2), tmp_path / "model.safetensors")  # type: ignore[arg-type]
    model = ViT("vit-micro", depth=1)
    with pytest.raises(ValueError, match="torch.float16"):
        sape2.save(model, tmp_path / "model.safetensors", dtype=torch.float16)
    with pytest.raises(ValueError, match="model file's own"):
        sape2.save(model, tmp_path / "model.safetensors", metadata={"format": "mine"})
    model.head = torch.nn.Linear(96, 3)
    with pytest.raises(ValueError, match=r'tensor "head.weight" has the shape \[3, 96\], expected \[10, 96\]'):
        sape2.save(model, tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()
