"""The build back end of the package: scikit-build-core, told where the user's PyTorch is.

pip builds in an environment of its own, which holds what `[build-system] requires` names and hides everything else.
The operators must be compiled against the PyTorch that will load them, so this file asks the Python that pip was
called with, outside of that environment, where its PyTorch is. PyTorch is never installed by this build.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from scikit_build_core import build as _backend

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

_ASK = """
import json, torch
gpus = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())} if torch.version.cuda else []
print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda or "", "gpus": sorted(gpus),
                  "prefix": torch.utils.cmake_prefix_path}))
"""

_NO_TORCH = """
sape2 is compiled against the PyTorch you use, and {python} has none{because}. Install PyTorch first (pip install \
torch); if it is installed in another environment, add --no-build-isolation or name that environment's Python in \
SAPE2_PYTHON.
"""
_NO_COMPILER = """
sape2 compiles C++20, and no C++ compiler was found. Install one (Debian, Ubuntu: apt-get install g++; Fedora: dnf \
install gcc-c++), or name yours in CXX.
"""
_NO_NVCC = """
sape2: this PyTorch has CUDA {cuda}, but there is no nvcc of CUDA {major}{others}, so the operators are built for the \
CPU only. Install the toolkit of CUDA {major} or set CUDA_HOME, and install again.
"""
_OLD_GPUS = """
sape2: TORCH_CUDA_ARCH_LIST names only GPUs of compute capability below 8.0, for which there are no CUDA kernels, so \
the operators are built for the CPU only. Name a newer GPU in it, or unset it.
"""

_ARCHITECTURES = "80;90a"  # if no GPU is visible


def _stop(sentence: str) -> NoReturn:
    raise SystemExit("\n" + sentence.strip() + "\n")


def _torch() -> dict[str, Any]:
    """The user's PyTorch: version, CUDA version, the GPUs it sees, folder of its CMake package."""
    python = os.environ.get("SAPE2_PYTHON", sys.executable)
    # pip hides the user's packages by variables that only this process and its children have.
    hiding = ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONSAFEPATH")
    environment = {name: value for name, value in os.environ.items() if name not in hiding}
    try:
        asked = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, env=environment, cwd="/", check=False
        )
    except OSError as error:
        _stop(f"SAPE2_PYTHON is {python}, which cannot be run: {error.strerror}.")
    if asked.returncode:
        last = (asked.stderr.strip().splitlines() or [""])[-1]
        missing = "No module named 'torch'" in last
        _stop(_NO_TORCH.format(python=python, because="" if missing else f" that can be imported ({last})"))
    found: dict[str, Any] = json.loads(asked.stdout.strip().splitlines()[-1])
    return found


def _architecture(capability: list[int]) -> str:
    """What the CUDA kernels are compiled for to run on such a GPU."""
    major, minor = capability
    return "90a" if (major, minor) == (9, 0) else "80" if major == 8 else "80-virtual"


def _cuda_version(nvcc: str) -> str:
    """What CUDA an nvcc is of, such as 13.0; empty if it cannot be run."""
    try:
        ran = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    found = re.search(r"release (\d+\.\d+)", ran.stdout)
    return found[1] if found else ""


def _nvcc(cuda: str) -> str | None:
    """An nvcc for a PyTorch built with a CUDA; None, after saying why, if there is none of its major version."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [*(f"{home}/bin/nvcc" for home in homes if home), "nvcc", "/usr/local/cuda/bin/nvcc"]
    major = cuda.split(".")[0]
    others = {}
    for nvcc in filter(None, map(shutil.which, places)):
        version = _cuda_version(nvcc)
        if version.split(".")[0] == major:
            return nvcc
        others[nvcc] = f"{nvcc} is of CUDA {version}" if version else f"{nvcc} cannot be run"
    described = f" ({', '.join(others.values())})" if others else ""
    print(_NO_NVCC.strip().format(cuda=cuda, major=major, others=described), file=sys.stderr)
    return None


def _gpus_named() -> list[list[int]] | None:
    """The GPUs that TORCH_CUDA_ARCH_LIST names, as PyTorch's own extensions read it: 8.0;9.0a or "8.6 9.0+PTX".

    Those before 8.0, which have no kernels here, are left out. None if there is no such list.
    """
    value = os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip()
    if not value:
        return None
    names = re.split(r"[\s;,]+", value)
    found = [re.fullmatch(r"(\d+)\.(\d)[af]?(\+PTX)?", name) for name in names]
    if not all(found):
        _stop(f'TORCH_CUDA_ARCH_LIST is "{value}"; sape2 reads compute capabilities there, such as 8.0;9.0.')
    return [[int(name[1]), int(name[2])] for name in found if name and int(name[1]) >= 8]


def _cuda_settings(cuda: str, gpus: list[list[int]]) -> dict[str, str]:
    """CUDA kernels need nvcc; without it operators on a GPU run as plain formulas, and the package says so.

    Each setting is always given, because the build folder remembers those of the build before.
    """
    named = _gpus_named()
    nvcc = _nvcc(cuda) if cuda else None
    if nvcc and named == []:
        print(_OLD_GPUS.strip(), file=sys.stderr)
        nvcc = None
    kernels = "ON" if nvcc else "OFF"
    settings = {"SAPE2_CUDA": kernels, "SAPE2_CUDA_KERNELS": kernels, "SAPE2_NVCC": nvcc or ""}
    if nvcc:
        settings["SAPE2_CUDA_ARCHITECTURES"] = (
            ";".join(sorted({_architecture(gpu) for gpu in named or gpus})) or _ARCHITECTURES
        )
    return {f"cmake.define.{name}": value for name, value in settings.items()}


def _settings(given: dict[str, Any] | None) -> dict[str, Any]:
    if not os.environ.get("CXX") and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        _stop(_NO_COMPILER)
    torch = _torch()
    settings: dict[str, Any] = {
        "cmake.define.CMAKE_PREFIX_PATH": ";".join(
            filter(None, [torch["prefix"], os.environ.get("CMAKE_PREFIX_PATH")])
        ),
        "cmake.define.SAPE2_PYTHON_TORCH": torch["version"],
        "cmake.define.SAPE2_PYTHON_TORCH_CUDA": torch["cuda"],
        **_cuda_settings(torch["cuda"], torch["gpus"]),
    }
    # A folder for each PyTorch, so that a second build compiles only what changed.
    root = Path(__file__).resolve().parent.parent
    if os.access(root, os.W_OK):
        place = hashlib.sha256(torch["prefix"].encode()).hexdigest()[:8]
        settings["build-dir"] = str(root / "build" / f"python-{torch['version']}-{place}")
    return {**settings, **(given or {})}


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """Compiles and packs the package."""
    return _backend.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """The same for `pip install -e .`: the Python files stay where they are."""
    return _backend.build_editable(wheel_directory, _settings(config_settings), metadata_directory)


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """The sources; needs neither PyTorch nor a compiler."""
    return _backend.build_sdist(sdist_directory, config_settings)


get_requires_for_build_wheel = _backend.get_requires_for_build_wheel
get_requires_for_build_editable = _backend.get_requires_for_build_editable
get_requires_for_build_sdist = _backend.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = _backend.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = _backend.prepare_metadata_for_build_editable
