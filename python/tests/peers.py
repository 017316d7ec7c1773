"""timm and transformers for the tests that need them."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import NEW_TORCH


def timm() -> Any:
    """timm, or a skipped test."""
    _need_torch_2()
    return pytest.importorskip("timm", reason="timm is not installed")


def transformers() -> Any:
    """transformers, or a skipped test."""
    _need_torch_2()
    return pytest.importorskip("transformers", reason="transformers is not installed")


def _need_torch_2() -> None:
    if not NEW_TORCH:
        pytest.skip("needs PyTorch 2")
