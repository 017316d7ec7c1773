"""What the tests share."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
NEW_TORCH = int(torch.__version__.split(".")[0]) >= 2
DEVICE = os.environ.get("SAPE2_TEST_DEVICE", "cpu")  # where all tests run, e.g. cuda
needs_torch_2 = pytest.mark.skipif(not NEW_TORCH, reason="needs PyTorch 2")


# PyPI's torchvision, which timm imports, is built for CUDA. Beside a PyTorch for the CPU it lacks its own operators,
# and ends when it describes two of them.
def _lacks_operators() -> bool:
    found = NEW_TORCH and not torch.version.cuda and importlib.util.find_spec("torchvision")
    return bool(found) and "+cpu" not in importlib.metadata.version("torchvision")


if _lacks_operators():
    TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        TORCHVISION.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples in docstrings that use another package are skipped where it is not installed."""
    for item in items:
        text = getattr(getattr(item, "dtest", None), "docstring", None) or ""
        for package in ("timm", "transformers", "onnx"):
            if f"import {package}" in text and not importlib.util.find_spec(package):
                item.add_marker(pytest.mark.skip(reason=f"there is no {package}"))


def pytest_configure() -> None:
    if DEVICE != "cpu":
        torch.set_default_device(DEVICE)
        # What is compared with float32 is float32, and adds up in one order.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.deterministic = True


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """For tests of what is the CPU's: files, other programs, threads; and for those that move what they make."""
    with contextlib.nullcontext() if DEVICE == "cpu" else torch.device("cpu"):
        yield


@pytest.fixture(scope="session")
def program() -> str:
    """The `sape2` program: SAPE2_PROGRAM, or one on the path."""
    found = os.environ.get("SAPE2_PROGRAM") or shutil.which("sape2")
    if not found:
        pytest.skip("there is no sape2 program: set SAPE2_PROGRAM to its path")
    return found
