"""On a GPU: what the CPU computes, graphs, and the fused kernels that a report names."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import ENCODINGS, lively, operators, solved
from torch import Tensor

import sape2
from sape2.nn import Attention, ViT

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.usefixtures("on_cpu"),  # these tests move what they make
]


@pytest.fixture(autouse=True)
def _float32() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def moved(case: Any, device: str) -> Any:
    """The same arguments elsewhere, as leaves of their own."""

    def move(value: Any) -> Any:
        return value.detach().to(device).requires_grad_() if isinstance(value, Tensor) else value

    call, positional, named = case
    return call, [move(value) for value in positional], {name: move(value) for name, value in named.items()}


@pytest.mark.parametrize("name", list(operators()))
def test_operators_compute_what_they_do_on_the_cpu(name: str) -> None:
    case = operators()[name]
    for ours, expected in zip(solved(*moved(case, "cuda")), solved(*moved(case, "cpu"))):
        torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_models_compute_what_they_do_on_the_cpu(encoding: str) -> None:
    model = lively(ViT("vit-micro", encoding=encoding, depth=2, width=48, heads=3, classes=5))
    images = torch.randn(2, 3, 24, 40)
    expected = model(images)
    out = copy.deepcopy(model).cuda()(images.cuda())
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-4)


def test_files_of_models(tmp_path: Path) -> None:
    """Wherever a model is, its file and its ONNX file are the same."""
    model = ViT("vit-micro", encoding="sape2-rel-k+ape", depth=1)
    for device in ("cpu", "cuda"):
        sape2.save(model.to(device), tmp_path / f"{device}.safetensors")
        sape2.onnx.export(model, tmp_path / f"{device}.onnx")
    for kind in ("safetensors", "onnx"):
        assert (tmp_path / f"cuda.{kind}").read_bytes() == (tmp_path / f"cpu.{kind}").read_bytes()
    with torch.device("cuda"):
        by_default = sape2.load(tmp_path / "cuda.safetensors")
    named = sape2.load(tmp_path / "cpu.safetensors", device="cuda")
    for loaded in (by_default, named):
        values = loaded.state_dict()
        assert all(torch.equal(values[name], value) for name, value in model.state_dict().items())


def test_an_explanation_is_the_cpus() -> None:
    model = lively(ViT("vit-micro", encoding="sape2-k", depth=2))
    image = torch.randint(256, (32, 32, 3), dtype=torch.uint8).numpy()
    expected = sape2.explain(model, image, patches=[(1, 2)])
    explained = sape2.explain(model.cuda(), image, patches=[(1, 2)])
    assert torch.equal(explained.image, expected.image) and explained.output.is_cuda
    for what in expected.offers:
        torch.testing.assert_close(explained.maps(what), expected.maps(what), rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("encoding", ["sape2-k+ape", "sape2-rel-k", "rope2d", "cope"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_repeat_a_training_step(encoding: str, dtype: torch.dtype) -> None:
    """A captured forward and backward pass gives the bits of an eager one, for other numbers in the same place."""
    model = lively(ViT("vit-micro", encoding=encoding, depth=2, width=48, heads=3, classes=5)).to("cuda", dtype)
    images = torch.randn(2, 3, 32, 32).to("cuda", dtype)
    static = torch.zeros_like(images)

    def step(tokens: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(model(tokens).float().square().sum(), list(model.parameters())))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = step(static)
    static.copy_(images)
    graph.replay()
    for ours, expected in zip(kept, step(images)):
        assert torch.equal(ours, expected)


def test_compiled_by_inductor_with_graphs() -> None:
    attention = lively(Attention(48, 3, encoding="sape2-rel-k", grid=(4, 5), prefix=1)).cuda()
    compiled = torch.compile(attention, fullgraph=True, mode="reduce-overhead")
    for _ in range(3):
        x = torch.randn(2, 21, 48).cuda()
        torch.testing.assert_close(compiled(x).clone(), attention(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("encoding", ["sape2-rel-k", "sape2-k", "rpe", "cope", "none"])
def test_the_report_names_the_kernels_that_run(encoding: str, dtype: torch.dtype) -> None:
    model = ViT("vit-micro", encoding=encoding, depth=1).to("cuda", dtype)
    report = sape2.report(model, images=2)
    assert report[0].fused and report[0].forward and report[0].backward, report[0]
    assert f"1 layer on cuda:0: {report[0].call}" in str(report)
    images = torch.randn(2, 3, 32, 32).to("cuda", dtype)
    with torch.profiler.profile() as profiled:  # of the CPU and the GPU
        model(images).sum().backward()
        torch.cuda.synchronize()
    launched = " ".join(event.key for event in profiled.key_averages())
    if "kernel" not in launched:
        pytest.skip("PyTorch's profiler sees no kernels here")
    for kernel in report[0].forward + report[0].backward:
        if kernel.endswith("if there is a gain"):  # rpe has none
            continue
        name = kernel.split(": ")[1].split()[0].rstrip(",")
        assert f"{name}<" in launched or f"{name}(" in launched, (name, launched)
