"""Which kernels serve the attention of a layer: what it calls is watched, and the library's own dispatch is asked."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import _build, _library, ops
from ._accelerate import PooledAttention, WindowAttention
from .nn._encoding import LayerEncoding

Query = dict[str, Any]
"""Arguments of `sape2.ops.kernel_for`: a call by its sizes and options."""

_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_LARGEST_HEAD_OF_CPU = 256


@dataclass(frozen=True)
class Serving:
    """What serves a call of attention. Either there is a reason why no kernel does, or the rest says which."""

    reason: str = ""
    kernel: str = ""
    call: str = ""
    forward: tuple[str, ...] = ()
    backward: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()


class _Watched(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Notes every call of an operator of the library, by its name and arguments."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        library, name = func._schema.name.split("::")
        if library == "sape2":
            arguments = dict(zip((argument.name for argument in func._schema.arguments), args))
            self.calls.append((name, arguments | (kwargs or {})))
        return func(*args, **(kwargs or {}))


def serving(
    attention: LayerEncoding | WindowAttention | PooledAttention,
    images: int,
    device: torch.device | str,
    dtype: torch.dtype,
) -> Serving:
    """What serves a layer on a device: tensors' own, or one of the names that `kernel_for` knows."""
    kind = device.type if isinstance(device, torch.device) else device
    reason = _no_kernels(device, kind, dtype)
    if reason:
        return Serving(reason)
    if isinstance(attention, LayerEncoding):
        query = _of_encoding(attention, images, dtype)
    else:
        query = _of_accelerated(attention, images)
    if query.get("form") == "paths":
        return Serving('the form "paths" runs on the plain formula; "direct" and "distance" have kernels')
    if kind == "cpu":
        return _on_the_cpu(query["head_size"])
    with torch.cuda.device(device) if isinstance(device, torch.device) else nullcontext():
        forward, backward = (
            _read(ops.kernel_for(**query, dtype=_name(dtype), device=kind, backward=backward))
            for backward in (False, True)
        )
    if "no fused kernel" in forward.told:
        return Serving(forward.told["no fused kernel"])
    families = [forward.told.get(part, "") for part in ("attention", "stage 1")]
    return Serving(
        kernel=" + ".join(family for family in families if family and not family.startswith("in the")),
        call=forward.call.replace(" forward,", ",", 1),
        forward=forward.kernels,
        backward=backward.kernels,
        passed_over=forward.passed_over,
    )


def _no_kernels(device: torch.device | str, kind: str, dtype: torch.dtype) -> str:
    """Why a device has no kernels for a type at all; empty if it has."""
    if dtype == torch.float64:
        return "float64 runs on the plain formula; use float32 or bfloat16"
    if kind == "cpu" and dtype == torch.float16:
        return "float16 is not supported on the CPU; use bfloat16 or float32"
    if dtype not in _TYPES:
        return f"{_name(dtype)} is not supported; use float32 or bfloat16"
    if kind == "cuda" and not _build.CUDA_KERNELS:
        return f"sape2 was built without CUDA kernels; install {_library.TOOLKIT} and build it again"
    if isinstance(device, torch.device) and kind not in ("cpu", "cuda"):
        return f'tensors on "{kind}" run in no kernel; ask for another device, e.g. device="sm_90"'
    return ""


def _on_the_cpu(head_size: int) -> Serving:
    if head_size <= _LARGEST_HEAD_OF_CPU:
        return Serving(kernel="CPU kernels")
    return Serving(
        f"the CPU kernels take heads of up to {_LARGEST_HEAD_OF_CPU} channels, and head_size is {head_size}; these run "
        "on the plain formula"
    )


def _of_encoding(layer: LayerEncoding, images: int, dtype: torch.dtype) -> Query:
    """What an encoding calls at the grid of its last call, found with tensors that have no values."""

    def without_values(*shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    rows, cols = layer.current_grid()
    width, heads, _, _, prefix = layer.shape
    tokens = without_values(images, heads, prefix + rows * cols, width // heads, dtype=dtype)
    parameters = [without_values(*p.shape, dtype=p.dtype) for p in layer.tensors()]
    with torch.no_grad(), _Watched() as watched:
        torch.ops.sape2._encoded_attention.default(
            tokens, tokens, tokens, layer.encoding, layer.shape, parameters, rows, cols
        )
    return _query(*watched.calls[-1])  # attention comes last


def _of_accelerated(attention: WindowAttention | PooledAttention, images: int) -> Query:
    """What an accelerated layer calls at the grid that its tables were made for."""
    (rows, head_size), cols = attention.rel_pos_h.shape, attention.rel_pos_w.shape[0]
    return {
        "op": "sape2_attention",
        "mode": "q",
        "span": "between",
        "form": "direct",
        "images": images,
        "heads": attention.num_heads,
        "rows": (rows + 1) // 2,
        "cols": (cols + 1) // 2,
        "head_size": head_size,
        "prefix": int(getattr(attention, "has_cls_token", False)),
    }


def _query(name: str, call: dict[str, Any]) -> Query:
    """A call of one of the kernels in `torch.ops.sape2` as a question."""
    images, heads, tokens, head_size = call["q"].shape
    query: Query = {"images": images, "heads": heads, "head_size": head_size, "rows": 1, "cols": tokens}
    on_grid: Query = {key: call[key] for key in ("rows", "cols", "prefix", "form") if key in call}
    if name == "_sape2_attention_forward":
        stage1 = {"mode": call["mode"], "span": call["span"], "positions": call["ex"].shape[-2]}
        return {**query, **on_grid, **stage1, "op": "sape2_attention"}
    if name == "_cope_attention_forward":
        return {**query, "op": "cope_attention"}
    if call.get("ux") is None:
        return {**query, "op": "attention"}
    sets = {"mode": "qk"} if call["ux"].dim() == 5 else {}
    op = "distance_attention" if call["form"] == "distance" else "axial_attention"
    return {**query, **on_grid, **sets, "op": op}


def _name(dtype: torch.dtype) -> str:
    return str(dtype).rpartition(".")[2]


@dataclass(frozen=True)
class _Answer:
    """The lines of `kernel_for`."""

    call: str
    told: dict[str, str]
    kernels: tuple[str, ...]
    passed_over: tuple[str, ...]


def _read(text: str) -> _Answer:
    call, *lines = text.splitlines()
    kernels = tuple(line.strip() for line in lines if line.startswith("    "))
    told = [line.strip() for line in lines if not line.startswith("    ")]
    return _Answer(
        call.partition(": ")[2],
        dict(line.split(": ", 1) for line in told if ": " in line),
        kernels,
        tuple(line.removeprefix("not ") for line in told if line.startswith("not ")),
    )
