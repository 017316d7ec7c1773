"""The API reference, as docs/python.md says how to make it, holds everything that the package offers."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sape2


def test_every_public_name_has_an_entry(tmp_path: Path) -> None:
    pytest.importorskip("pdoc", reason="pdoc is not installed")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pdoc", "--docformat", "google", "-o", tmp_path, "sape2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Warn" not in ran.stderr, ran.stderr
    for module in (sape2, sape2.nn, sape2.ops, sape2.onnx):
        page = (tmp_path / f"{module.__name__.replace('.', '/')}.html").read_text(encoding="utf-8")
        for name in set(module.__all__) - {"nn", "ops", "onnx", "__version__"}:
            assert f'id="{name}"' in page, f"{module.__name__}.{name}"


@pytest.mark.parametrize("module", [sape2, sape2.nn, sape2.ops, sape2.onnx])
def test_every_public_name_is_documented(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]
        thing = getattr(module, name)
        if callable(thing):
            assert inspect.getdoc(thing), name
            if inspect.isfunction(thing) and inspect.signature(thing).parameters:
                assert "Args:" in inspect.getdoc(thing) or ">>>" in inspect.getdoc(thing), name
