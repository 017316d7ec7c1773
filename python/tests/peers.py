"""timm and transformers for the tests that need them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import NEW_TORCH


def timm() -> Any:
    """timm, or a skipped test."""
    _need_torch_2()
    _stand_in_for_torchvision()
    return pytest.importorskip("timm", reason="timm is not installed")


def transformers() -> Any:
    """transformers, or a skipped test."""
    _need_torch_2()
    _stand_in_for_torchvision()
    return pytest.importorskip("transformers", reason="transformers is not installed")


def _need_torch_2() -> None:
    if not NEW_TORCH:
        pytest.skip("needs PyTorch 2")


def _stand_in_for_torchvision() -> None:
    """Declares two operators of torchvision's compiled part if that cannot be loaded.

    timm imports torchvision, whose wheels need CUDA's libraries, and fails for want of these declarations alone.
    """
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _stand_in_for_torchvision.library = library  # type: ignore[attr-defined]  # its end would undo it
    except ImportError:
        pass
