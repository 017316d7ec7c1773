"""What runs in sape2's kernels in a model, in which of them, and what does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass

import torch
from torch import nn

from . import _accelerate, _kernels, _timm, _transformers, ops
from ._site import check_module
from .nn._encoding import LayerEncoding

_MOST_IMAGES = 2**31 - 1


@dataclass(frozen=True)
class LayerReport:
    """One attention layer of a model."""

    name: str
    """Where it is in the model."""
    attention: str
    """Its class."""
    encoding: str
    """Its position encoding."""
    fused: bool
    reason: str
    """Why it is not fused, and what to do; empty if it is."""
    kernel: str = ""
    """The kernels that compute it, forward and backward: on a GPU the families of `docs/kernels-gpu.md`."""
    device: str = ""
    """The device that the report is about."""
    call: str = ""
    """What the layer asks of a GPU: operator, type, images, heads, grid and head size."""
    forward: tuple[str, ...] = ()
    """The CUDA kernels that this launches, in order, each with its file."""
    backward: tuple[str, ...] = ()
    """Those of the backward pass."""
    passed_over: tuple[str, ...] = ()
    """The families that are faster, and why each does not serve."""


class Report(tuple[LayerReport, ...]):
    """The attention layers of a model; printed as a table, and what their kernels are below it."""

    def __repr__(self) -> str:
        if not self:
            return "no attention layer that sape2 knows"
        rows = [("layer", "attention", "positions", "fused", "kernels, or why none")]
        rows += [(r.name, r.attention, r.encoding, "yes" if r.fused else "no", r.kernel or r.reason) for r in self]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        counted = Counter((r.device, r.call, r.forward, r.backward, r.passed_over) for r in self if r.call)
        for (device, call, forward, backward, passed_over), count in counted.items():
            table += ["", f"{count} {'layer' if count == 1 else 'layers'} on {device}: {call}"]
            for title, kernels in (("forward", forward), ("backward", backward)):
                titles = [f"{title}:", *[""] * len(kernels)]
                table += [f"  {title:10}{kernel}" for title, kernel in zip(titles, kernels)]
            table += [f"  not {family}" for family in passed_over]
        return "\n".join(table)


def report(
    model: nn.Module,
    *,
    images: int = 32,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Report:
    """Lists the attention layers of a model: fused or not, in which kernels, and why not in faster ones.

    Each layer is asked about at the grid of its last call, or at the one it was made for. Nothing is computed, and no
    GPU is needed to ask for one.

    Args:
        model: any model; layers of timm, transformers and sape2 are known.
        images: how many it gets at once. Windows of SAM and ViTDet count as images.
        device: `"cpu"`, `"cuda"`, or the compute capability of a GPU that need not be there, e.g. `"sm_90"`; by
            default where the model is.
        dtype: the type that attention computes in, if it is not that of the layer's weights: autocast's.

    Returns:
        A tuple of `LayerReport`, which prints as a table.

    >>> from sape2.nn import ViT
    >>> model = ViT("vit-micro", encoding="sape2-rel-k", depth=2)
    >>> print(report(model, device="sm_90", dtype=torch.bfloat16))
    layer          attention        positions    fused  kernels, or why none
    blocks.0.attn  _BlockAttention  sape2-rel-k  yes    attention_head
    blocks.1.attn  _BlockAttention  sape2-rel-k  yes    attention_head
    <BLANKLINE>
    2 layers on sm_90: sape2_attention, bfloat16, 32 images × 3 heads, 8×8 patches, direct, head size 32
      forward:  attention_head/forward.cuh: forward_kernel for 8×8
      backward: attention_head/backward.cuh: backward_kernel for 8×8
                common/partial_sums.cu: sum_kernel, parameters' gradients
    """
    check_module(model)
    if not 1 <= images <= _MOST_IMAGES:
        raise ValueError(f"images is {images}; 1 … {_MOST_IMAGES} was expected")
    question = _Question(images, _known(device), dtype)
    layers = []
    for name, module in model.named_modules():
        entry = _entry(name or "(the model)", module, question)
        if entry is not None:
            layers.append(entry)
    return Report(layers)


@dataclass(frozen=True)
class _Question:
    """The arguments of `report`; None stands for what the layer has."""

    images: int
    device: torch.device | str | None
    dtype: torch.dtype | None

    def about(self, module: nn.Module) -> tuple[torch.device | str, torch.dtype]:
        """Device and type of a layer."""
        weights = list(module.parameters())
        plain = any(weight.dtype == torch.float64 for weight in weights)
        own = torch.float64 if plain else weights[0].dtype if weights else torch.float32
        at = weights[0].device if weights else torch.device("cpu")
        return self.device or at, self.dtype or own


def _known(device: torch.device | str | None) -> torch.device | str | None:
    """A device of PyTorch's, or a compute capability; ValueError if it is neither."""
    if device is None or isinstance(device, torch.device):
        return device
    if not isinstance(device, str):
        raise TypeError(f'device is {device!r}; a torch.device or a name such as "cuda" or "sm_90" was expected')
    if device.partition(":")[0] in ("cpu", "cuda"):
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise ValueError(f'device is "{device}", which is none of PyTorch\'s') from error
    ops.kernel_for("attention", 1, 1, 1, 1, 1, device=device)  # says which names there are
    return device


def _entry(name: str, module: nn.Module, question: _Question) -> LayerReport | None:
    kind = type(module).__name__
    pos = getattr(module, "pos", None)
    if isinstance(pos, LayerEncoding):
        return _served(name, module, pos, pos.encoding, question)
    if isinstance(module, (_accelerate.WindowAttention, _accelerate.PooledAttention)):
        return _served(name, module, module, "decomposed relative", question)
    refused = _accelerate.refusal(module)
    if refused is not None:
        return LayerReport(name, kind, "decomposed relative", False, refused or "sape2.accelerate(model) fuses it")
    if _timm.is_known(module) or _transformers.is_attention(module):
        return LayerReport(name, kind, "none in attention", False, "sape2.patch(model) gives it an encoding")
    return None


def _served(
    name: str,
    module: nn.Module,
    attention: LayerEncoding | _accelerate.WindowAttention | _accelerate.PooledAttention,
    encoding: str,
    question: _Question,
) -> LayerReport:
    device, dtype = question.about(module)
    found = _kernels.serving(attention, question.images, device, dtype)
    return LayerReport(name, type(module).__name__, encoding, not found.reason, device=str(device), **asdict(found))
