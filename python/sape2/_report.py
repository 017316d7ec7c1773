"""What runs in sape2's kernels in a model, and what does not."""

from __future__ import annotations

from dataclasses import dataclass

from torch import float64, nn

from . import _accelerate, _timm, _transformers
from .nn._encoding import LayerEncoding


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


class Report(tuple[LayerReport, ...]):
    """The attention layers of a model; printed as a table."""

    def __str__(self) -> str:
        if not self:
            return "no attention layer that sape2 knows"
        rows = [("layer", "attention", "positions", "fused", "")]
        rows += [(r.name, r.attention, r.encoding, "yes" if r.fused else "no", r.reason) for r in self]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def report(model: nn.Module) -> Report:
    """Lists the attention layers of a model: fused or not, and why not.

    Args:
        model: any model; layers of timm, transformers and sape2 are known.

    Returns:
        A tuple of `LayerReport`, which prints as a table.

    >>> from sape2.nn import ViT
    >>> print(report(ViT("vit-micro", encoding="sape2-rel-k")))  # doctest: +NORMALIZE_WHITESPACE
    layer             attention        positions      fused
    blocks.0.attn     _BlockAttention  sape2-rel-k    yes
    blocks.1.attn     _BlockAttention  sape2-rel-k    yes
    blocks.2.attn     _BlockAttention  sape2-rel-k    yes
    blocks.3.attn     _BlockAttention  sape2-rel-k    yes
    """
    layers = []
    for name, module in model.named_modules():
        entry = _entry(name or "(the model)", module)
        if entry is not None:
            layers.append(entry)
    return Report(layers)


def _entry(name: str, module: nn.Module) -> LayerReport | None:
    kind = type(module).__name__
    pos = getattr(module, "pos", None)
    if isinstance(pos, LayerEncoding):
        plain = any(p.dtype == float64 for p in module.parameters())
        reason = "float64 runs on the plain formula; use float32 or bfloat16" if plain else ""
        return LayerReport(name, kind, pos.encoding, not plain, reason)
    if isinstance(module, (_accelerate.WindowAttention, _accelerate.PooledAttention)):
        return LayerReport(name, kind, "decomposed relative", True, "")
    refused = _accelerate.refusal(module)
    if refused is not None:
        return LayerReport(name, kind, "decomposed relative", False, refused or "sape2.accelerate(model) fuses it")
    if _timm.is_known(module) or _transformers.is_attention(module):
        return LayerReport(name, kind, "none in attention", False, "sape2.patch(model) gives it an encoding")
    return None
