"""Loads the libraries with the operators, into a PyTorch that they were built for."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import torch

from . import _build

VERSION: str = _build.VERSION
FOLDER = Path(_build.__file__).resolve().parent / "lib"  # with `pip install -e`, not beside this file

_MAJOR = _build.CUDA_VERSION.split(".")[0]
TOOLKIT = f"the toolkit of CUDA {_MAJOR} (nvcc)" if _MAJOR else "the CUDA toolkit (nvcc)"  # what kernels need


def _described(version: str, cuda: str) -> str:
    return f"PyTorch {version} ({'CUDA ' + cuda if cuda else 'CPU'})"


def _major_minor(version: str) -> str:
    return ".".join(re.findall(r"\d+", version)[:2])


def check(built_with: str, built_cuda: str, version: str, cuda: str) -> None:
    """Raises ImportError with one sentence unless libraries built with one PyTorch fit another.

    C++ libraries fit every release of one minor version, and of one major version of CUDA.
    """
    same = _major_minor(built_with) == _major_minor(version) and built_cuda.split(".")[0] == cuda.split(".")[0]
    if not same:
        raise ImportError(
            f"sape2 was built for {_described(built_with, built_cuda)}, but this is {_described(version, cuda)}: "
            "build it again with `pip install --force-reinstall --no-deps .` in a clone of its repository"
        )


def _load() -> None:
    check(_build.TORCH_VERSION, _build.CUDA_VERSION, torch.__version__, torch.version.cuda or "")
    for name in ("libsape2_ops.so", "libsape2_python.so"):
        torch.ops.load_library(str(FOLDER / name))  # type: ignore[no-untyped-call, unused-ignore]
    if torch.cuda.is_available() and not _build.CUDA_KERNELS:
        warnings.warn(
            "sape2 was built without CUDA kernels, so on a GPU its operators run as slow plain formulas: install "
            f"{TOOLKIT} and build it again",
            stacklevel=2,
        )


_load()
