"""What stands between an installation and an import."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

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


def _fake_nvcc(folder: Path, version: str) -> Path:
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(f'#!/bin/sh\necho "Cuda compilation tools, release {version}, V{version}.88"\n', encoding="utf-8")
    nvcc.chmod(0o755)
    return nvcc


def _backend(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("scikit_build_core")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    for name in ("CUDA_PATH", "TORCH_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name, raising=False)
    return importlib.import_module("build_backend")


def test_the_nvcc_that_the_build_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CUDA_HOME goes first, then PATH; an nvcc of another major version of CUDA is left aside, and named."""
    backend = _backend(monkeypatch)
    home, path = _fake_nvcc(tmp_path / "home", "13.0"), _fake_nvcc(tmp_path / "path", "13.2")
    old, ancient = _fake_nvcc(tmp_path / "old", "12.4"), _fake_nvcc(tmp_path / "ancient", "2.3")
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "/usr/local/cuda/bin/nvcc" else which(name))

    def settings(cuda_home: Path, first_in_path: Path, cuda: str = "13.1") -> dict[str, str]:
        monkeypatch.setenv("CUDA_HOME", str(cuda_home.parents[1]))
        monkeypatch.setenv("PATH", f"{first_in_path.parent}:/usr/bin:/bin")
        given: dict[str, str] = backend._cuda_settings(cuda, [])
        return {name.removeprefix("cmake.define.SAPE2_"): value for name, value in given.items()}

    with_kernels = {"CUDA": "ON", "CUDA_KERNELS": "ON", "CUDA_ARCHITECTURES": "80;90a"}
    assert settings(home, path) == {**with_kernels, "NVCC": str(home)}
    assert settings(old, path) == {**with_kernels, "NVCC": str(path)}
    assert not capsys.readouterr().err
    # What the build folder remembers of a build with kernels is taken back.
    assert settings(old, ancient) == {"CUDA": "OFF", "CUDA_KERNELS": "OFF", "NVCC": ""}
    sentence = f"there is no nvcc of CUDA 13 ({old} is of CUDA 12.4, {ancient} is of CUDA 2.3), so the operators are"
    assert sentence in capsys.readouterr().err
    assert settings(home, path, cuda="") == {"CUDA": "OFF", "CUDA_KERNELS": "OFF", "NVCC": ""}
    assert not capsys.readouterr().err


def test_the_architectures_that_the_build_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of TORCH_CUDA_ARCH_LIST, else those of the GPUs that are there, else all."""
    backend = _backend(monkeypatch)
    monkeypatch.setenv("CUDA_HOME", str(_fake_nvcc(tmp_path, "13.0").parents[1]))

    def architectures(named: str, gpus: list[list[int]]) -> str:
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", named)
        taken: str = backend._cuda_settings("13.2", gpus)["cmake.define.SAPE2_CUDA_ARCHITECTURES"]
        return taken

    assert architectures("", []) == "80;90a"
    assert architectures("", [[9, 0], [9, 0]]) == "90a"
    assert architectures("", [[12, 0], [8, 6]]) == "80;80-virtual"
    assert architectures("9.0a", []) == "90a"
    assert architectures("8.0;8.6", [[9, 0]]) == "80"
    assert architectures("7.5 8.6 9.0+PTX", []) == "80;90a"
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0;7.5")
    assert backend._cuda_settings("13.2", [[9, 0]])["cmake.define.SAPE2_CUDA"] == "OFF"
    assert "names only GPUs of compute capability below 8.0" in capsys.readouterr().err
    with pytest.raises(SystemExit, match='TORCH_CUDA_ARCH_LIST is "Hopper"; sape2 reads compute capabilities there'):
        architectures("Hopper", [])
