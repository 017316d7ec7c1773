"""Decomposed relative positions of models that exist already, without the N×N bias that they store."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from . import ops
from ._site import check_module


def accelerate(model: nn.Module) -> nn.Module:
    """Runs attention with decomposed relative positions in the fused kernel, in place: same weights, same outputs.

    SAM's image encoder (transformers: SAM, SAM-HQ, GOT-OCR 2; timm), ViTDet (transformers) and MViTv2 (timm) add
    `q·r` along rows and along columns to every logit and store the sum, a number per pair of patches, layer and head.
    `sape2.ops.sape2_attention` with open gates computes it inside the kernel, forward and backward. Names of
    parameters stay, so weights load and save as before. Layers of MViTv2 whose keys are pooled more than their queries
    stay as they are; `sape2.report` lists them.

    Args:
        model: changed in place. Attention weights cannot be returned any more.

    Returns:
        The model.

    Raises:
        ValueError: if the model has no such layer.

    >>> import timm
    >>> model = timm.create_model("samvit_base_patch16", img_size=256, depth=2, embed_dim=96, num_heads=3).eval()
    >>> images = torch.randn(1, 3, 256, 256)
    >>> before = model(images)
    >>> torch.allclose(accelerate(model)(images), before, atol=1e-5)
    True
    """
    check_module(model)
    changed = 0
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if refusal(child) == "":
                parent._modules[name] = _accelerated(child)
                changed += 1
    if not changed:
        reasons = sorted({reason for module in model.modules() if (reason := refusal(module))})
        raise ValueError(
            f"{type(model).__name__} has no attention with decomposed relative positions that could be accelerated"
            + (f" ({'; '.join(reasons)})" if reasons else "; SAM, ViTDet and MViTv2 of timm and transformers have")
        )
    return model


def refusal(module: nn.Module) -> str | None:
    """Why a module stays as it is: "" if it need not, None if it has no decomposed relative positions."""
    kind = _kind(module)
    attention = cast(Any, module)
    if kind is None or not hasattr(module, "rel_pos_h"):
        return None
    rate = _dropout(attention)
    if rate:
        return f"it drops attention weights at a rate of {rate}, which fused attention never stores"
    if kind == "mvit":
        queries, keys = _stride(attention.pool_q), _stride(attention.pool_k)
        if queries != keys:
            return f"queries are pooled by {queries}, keys by {keys}: fused attention takes one grid for both"
    return ""


_KINDS = {
    ("transformers.models.sam", "SamVisionAttention"): "pair",
    ("transformers.models.sam", "SamVisionSdpaAttention"): "pair",
    ("transformers.models.sam_hq", "SamHQVisionAttention"): "pair",
    ("transformers.models.sam_hq", "SamHQVisionSdpaAttention"): "pair",
    ("transformers.models.got_ocr2", "GotOcr2VisionAttention"): "pair",
    ("transformers.models.vitdet", "VitDetAttention"): "single",
    ("timm.models", "Attention"): "tensor",
    ("timm.models", "MultiScaleAttention"): "mvit",
}
"""By package and class: what its attention returns."""


def _kind(module: nn.Module) -> str | None:
    package = type(module).__module__.rpartition(".")[0]
    kind = _KINDS.get((package, type(module).__name__))
    if kind == "tensor" and type(module).__module__ != "timm.models.vision_transformer_sam":
        return None
    return kind


def _dropout(attention: Any) -> float:
    dropped = getattr(attention, "attn_drop", None)
    return float(dropped.p if dropped is not None else getattr(attention, "dropout", 0.0))


def _stride(pool: Any) -> int:
    stride = 1 if pool is None else pool.stride
    return int(stride if isinstance(stride, int) else stride[0])


def _accelerated(module: nn.Module) -> nn.Module:
    kind = cast(str, _kind(module))
    return PooledAttention(module) if kind == "mvit" else WindowAttention(module, kind)


def position_table(table: Tensor, places: int, longest: int) -> Tensor:
    """A table of relative positions as `sape2.ops.sape2_attention` reads it.

    Args:
        table: a vector per offset from the other patch to the own one, `[L, d]`; stretched if the axis is not the one
            that it was made for.
        places: patches along the axis.
        longest: patches along the longer axis, for which both tables have rows.

    Returns:
        A vector per offset from the own patch to the other one, `[2·longest − 1, d]`.
    """
    if table.shape[0] != 2 * places - 1:
        table = nn.functional.interpolate(table.t()[None], size=2 * places - 1, mode="linear")[0].t()
    table = table.flip(0)
    return nn.functional.pad(table, (0, 0, longest - places, longest - places)) if places < longest else table


class OpenGates(nn.Module):
    """Gates that are all 1: positions are offsets then, and `sape2-rel-q` is decomposed relative position.

    Kept in float32, as the kernels take them, whatever type the model has.
    """

    scale: Tensor
    offset: Tensor

    def __init__(self, num_heads: int, device: torch.device) -> None:
        super().__init__()
        self.register_buffer("scale", torch.zeros(num_heads, device=device), persistent=False)
        self.register_buffer("offset", torch.full((num_heads,), torch.inf, device=device), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> OpenGates:
        self.scale, self.offset = fn(self.scale).float(), fn(self.offset).float()
        return self


def decomposed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    along_x: Tensor,
    along_y: Tensor,
    grid: tuple[int, int],
    prefix: int,
    gates: OpenGates,
) -> Tensor:
    """Attention with `q·r` of both axes added to the logits, in one operator."""
    rows, cols = grid
    ex, ey = (position_table(table, places, max(grid)) for table, places in ((along_x, cols), (along_y, rows)))
    return ops.sape2_attention(
        q, k, v, ex, ey, rows, cols, prefix=prefix, mode="q", span="between", form="direct", bias_inside=False,
        gate_scale=gates.scale, gate_offset=gates.offset,
    )  # fmt: skip


class WindowAttention(nn.Module):
    """Attention of SAM and ViTDet over windows `[B, rows, cols, dim]`: takes over modules and tables, by name."""

    qkv: Any
    proj: Any
    q_norm: Any
    k_norm: Any
    proj_drop: Any
    rel_pos_h: Tensor
    rel_pos_w: Tensor

    def __init__(self, original: nn.Module, result: str) -> None:
        super().__init__()
        self.num_heads: int = getattr(original, "num_heads", None) or original.num_attention_heads  # type: ignore[assignment]
        self.result = result
        for name in ("qkv", "q_norm", "k_norm", "rel_pos_h", "rel_pos_w", "proj", "proj_drop"):
            if hasattr(original, name):
                setattr(self, name, getattr(original, name))
        self.normed = hasattr(original, "q_norm")
        self.dropped = hasattr(original, "proj_drop")
        self.gates = OpenGates(self.num_heads, self.rel_pos_h.device)
        self.train(original.training)

    def forward(self, hidden_states: Tensor, output_attentions: bool | None = False) -> Any:
        """As the original, without attention weights."""
        if output_attentions:
            raise ValueError("sape2.accelerate leaves no attention weights to return; leave output_attentions out")
        images, rows, cols, dim = hidden_states.shape
        qkv = self.qkv(hidden_states.reshape(images, rows * cols, dim))
        q, k, v = qkv.view(images, rows * cols, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.normed:
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        out = decomposed_attention(q, k, v, self.rel_pos_w, self.rel_pos_h, (rows, cols), 0, self.gates)
        out = self.proj(out.transpose(1, 2).reshape(images, rows, cols, -1))
        if self.dropped:
            out = self.proj_drop(out)
        return {"pair": (out, None), "single": (out,)}.get(self.result, out)


class PooledAttention(nn.Module):
    """Attention of MViTv2 in layers whose queries and keys have one grid."""

    qkv: Any
    proj: Any
    norm_q: Any
    norm_k: Any
    norm_v: Any
    pool_q: Any
    pool_k: Any
    pool_v: Any
    rel_pos_h: Tensor
    rel_pos_w: Tensor

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        mvit = cast(Any, original)
        self.num_heads: int = mvit.num_heads
        self.dim_out: int = mvit.dim_out
        self.has_cls_token: bool = mvit.has_cls_token
        self.residual_pooling: bool = mvit.residual_pooling
        for name in (
            "qkv",
            "proj",
            "norm_q",
            "norm_k",
            "norm_v",
            "pool_q",
            "pool_k",
            "pool_v",
            "rel_pos_h",
            "rel_pos_w",
        ):
            setattr(self, name, getattr(original, name))
        self.gates = OpenGates(self.num_heads, self.rel_pos_h.device)
        self.train(original.training)

    def _pooled(self, x: Tensor, size: Any, pool: Any, norm: Any) -> tuple[Tensor, Any]:
        from timm.models.mvitv2 import reshape_post_pool, reshape_pre_pool  # an optional library

        if pool is not None:
            x, token = reshape_pre_pool(x, size, self.has_cls_token)
            x, size = reshape_post_pool(pool(x), self.num_heads, token)
        return (x if norm is None else norm(x)), size

    def forward(self, x: Tensor, feat_size: Any) -> tuple[Tensor, Any]:
        """As the original."""
        images, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(images, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        q, size = self._pooled(q, feat_size, self.pool_q, self.norm_q)
        k, _ = self._pooled(k, feat_size, self.pool_k, self.norm_k)
        v, _ = self._pooled(v, feat_size, self.pool_v, self.norm_v)
        q, k = q.to(v.dtype), k.to(v.dtype)
        prefix = int(self.has_cls_token)
        out = decomposed_attention(q, k, v, self.rel_pos_w, self.rel_pos_h, tuple(size), prefix, self.gates)
        if self.residual_pooling:
            out = out + q
        result: Tensor = self.proj(out.transpose(1, 2).reshape(images, -1, self.dim_out))
        return result, size
