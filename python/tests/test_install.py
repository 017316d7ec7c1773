"""What stands between an installation and an import."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

import sape2
from sape2 import _build, _library


def test_the_version_is_the_programs(program: str) -> None:
    assert sape2.__version__ == importlib.metadata.version("sape2")
    printed = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    assert sape2.__version__ in printed


def test_the_metadata_never_asks_for_pytorch() -> None:
    metadata = importlib.metadata.metadata("sape2")
    assert metadata.get_all("Requires-Dist") in (None, [])
    assert (_library.FOLDER.parent / "py.typed").exists() or (Path(sape2.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize(
    ("version", "cuda"),
    [(_build.TORCH_VERSION, _build.CUDA_VERSION), (_build.TORCH_VERSION.split("+")[0], _build.CUDA_VERSION)],
)
def test_the_pytorch_it_was_built_for(version: str, cuda: str) -> None:
    _library.check(_build.TORCH_VERSION, _build.CUDA_VERSION, version, cuda)


def test_other_pytorches() -> None:
    _library.check("2.13.0+cpu", "", "2.13.1", "")
    _library.check("2.11.0+cu130", "13.0", "2.11.1+cu131", "13.1")
    sentence = r"sape2 was built for PyTorch 2.13.0 \(CPU\), but this is PyTorch 2.11.0 \(CUDA 13.0\): build it again"
    with pytest.raises(ImportError, match=sentence):
        _library.check("2.13.0", "", "2.11.0", "13.0")
    with pytest.raises(ImportError, match="CUDA 12.8"):
        _library.check("2.11.0", "12.8", "2.11.0", "13.0")


def test_an_import_beside_another_pytorch(tmp_path: Path) -> None:
    """The check comes before the libraries, which would only say that a symbol is undefined."""
    code = "import torch; torch.__version__ = '9.9.0'; import sape2"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ran.returncode == 1
    assert f"ImportError: sape2 was built for PyTorch {torch.__version__}" in ran.stderr.splitlines()[-1]


def test_the_source_package_builds_what_a_clone_does(tmp_path: Path) -> None:
    """The archive for PyPI: with pyproject.toml, and with the sources of every layer that CMake asks for."""
    pytest.importorskip("scikit_build_core")
    root = Path(__file__).parents[2]
    code = f"import build_backend; build_backend.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, env={**os.environ, "PYTHONPATH": "python"})
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        files = {name.split("/", 1)[1] for name in archive.getnames()}
    layers = re.search(r"foreach\(layer ([a-z ]+)\)", (root / "cmake/PythonPackage.cmake").read_text(encoding="utf-8"))
    assert layers is not None
    assert {"pyproject.toml", "CMakeLists.txt", "LICENSE", "python/build_backend.py"} <= files
    assert {f"src/{layer}/CMakeLists.txt" for layer in layers[1].split()} <= files
