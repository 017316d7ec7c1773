"""timm's vision transformers: where their attention is, and the same attention with positions."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.fx
from torch import Tensor, nn

from ._encodings import Grid
from ._grid import record_grid, timm_grid
from ._site import Site
from .nn._attention import check_call, does_nothing, through
from .nn._encoding import LayerEncoding

torch.fx.wrap("check_call")

_KNOWN = {"Attention", "AttentionRope", "EvaAttention"}
_KNOWN_MODULES = ("timm.layers.attention", "timm.models.vision_transformer", "timm.models.eva")


def is_known(module: nn.Module) -> bool:
    """Whether a module is attention of timm's that `TimmAttention` can stand for."""
    return type(module).__name__ in _KNOWN and type(module).__module__ in _KNOWN_MODULES


class TimmAttention(nn.Module):
    """timm's attention with a position encoding: takes over the modules, parameters and buffers of one, by name."""

    # Names of timm's; some are None, and stay so.
    qkv: Any
    q_proj: Any
    k_proj: Any
    v_proj: Any
    q_norm: Any
    k_norm: Any
    norm: Any
    gate: Any
    proj: Any
    proj_drop: Any
    q_bias: Any
    k_bias: Any
    v_bias: Any

    def __init__(self, original: nn.Module, pos: LayerEncoding) -> None:
        super().__init__()
        self.num_heads = cast(int, original.num_heads)
        self.num_kv_heads: int = getattr(original, "num_kv_heads", self.num_heads)
        self.head_dim = cast(int, original.head_dim)
        self.num_prefix_tokens: int = getattr(original, "num_prefix_tokens", pos.prefix)
        self.rotate_half: bool = getattr(original, "rotate_half", False)
        for name in ("qkv", "q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "norm", "gate", "proj", "proj_drop"):
            setattr(self, name, getattr(original, name, None))
        self.q_bias = getattr(original, "q_bias", None)
        self.register_buffer("k_bias", getattr(original, "k_bias", None), persistent=False)
        self.v_bias = getattr(original, "v_bias", None)
        self.pos = pos
        self.train(original.training)

    def _together(self, x: Tensor) -> Tensor:
        """Q, k and v side by side."""
        if self.q_bias is None:
            together: Tensor = self.qkv(x)
            return together
        bias = torch.cat((self.q_bias, self.k_bias, self.v_bias))
        return nn.functional.linear(x, self.qkv.weight, bias)

    def _projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        images, tokens, _ = x.shape
        if self.qkv is None:
            q, k, v = (project(x).view(images, tokens, heads, self.head_dim).transpose(1, 2)
                       for project, heads in ((self.q_proj, self.num_heads), (self.k_proj, self.num_kv_heads),
                                              (self.v_proj, self.num_kv_heads)))  # fmt: skip
            return q, k, v
        together = self._together(x).view(images, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = together.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def _attended(self, x: Tensor, rope: Tensor | None) -> Tensor:
        if self.qkv is not None and rope is None and does_nothing(self.q_norm, x) and does_nothing(self.k_norm, x):
            together: Tensor = self.pos(self._together(x))
            return together
        images, tokens, _ = x.shape
        q, k, v = self._projected(x)
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = self._turned(q, rope), self._turned(k, rope)
        q, k = q.to(v.dtype), k.to(v.dtype)
        if self.num_kv_heads != self.num_heads:
            group = self.num_heads // self.num_kv_heads
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        attended: Tensor = self.pos(q, k, v)
        return attended.transpose(1, 2).reshape(images, tokens, self.num_heads * self.head_dim)

    def _turned(self, x: Tensor, rope: Tensor) -> Tensor:
        from timm.layers import apply_rot_embed_cat  # type: ignore[attr-defined]  # an optional library

        prefix, patches = x[:, :, : self.num_prefix_tokens], x[:, :, self.num_prefix_tokens :]
        return torch.cat([prefix, apply_rot_embed_cat(patches, rope, half=self.rotate_half)], dim=2)

    def forward(
        self, x: Tensor, rope: Tensor | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """As timm's; masks are refused."""
        check_call(x, attn_mask, is_causal)
        out = through(self.norm, self._attended(x, rope))
        if self.gate is not None:
            out = out * self.gate(x).sigmoid()
        return through(self.proj_drop, self.proj(out))


def sites(model: nn.Module, grid: Grid | None) -> Iterator[Site]:
    """Every attention layer of timm's in a model, by the vision transformer that it is part of."""
    for owner in model.modules():
        embedding = getattr(owner, "patch_embed", None)
        if embedding is None or not type(embedding).__module__.startswith("timm."):
            continue
        found = [
            (parent, name, child)
            for parent in owner.modules()
            for name, child in parent.named_children()
            if is_known(child)
        ]
        if found:
            yield from _sites_of(owner, cast(nn.Module, embedding), found, grid)


def _sites_of(
    owner: nn.Module, embedding: nn.Module, found: list[tuple[nn.Module, str, nn.Module]], grid: Grid | None
) -> Iterator[Site]:
    of_model = grid or getattr(embedding, "grid_size", None)
    if not hasattr(embedding, "dynamic_feat_size"):
        raise ValueError(
            f"{type(owner).__name__} takes patches without a grid ({type(embedding).__name__}); sape2 needs a grid"
        )
    if of_model is None:
        raise ValueError(f"{type(owner).__name__} does not say at which size it was trained; give grid=(rows, cols)")
    dropped = getattr(owner, "patch_drop", None)
    if getattr(dropped, "prob", 0):
        raise ValueError(
            f"{type(owner).__name__} drops patches in training, so that no grid is left; make it with patch_drop_rate=0"
        )

    @functools.cache
    def record() -> Any:
        return record_grid(embedding, (of_model[0], of_model[1]), timm_grid)

    for parent, name, attention in found:
        original = cast(Any, attention)
        rate = original.attn_drop.p
        if rate:
            raise ValueError(
                f"{type(owner).__name__} drops attention weights (attn_drop {rate}), which fused attention never "
                "stores; "
                "make it with attn_drop_rate=0"
            )
        head_dim = original.head_dim
        yield Site(
            dim=original.num_heads * head_dim,
            num_heads=original.num_heads,
            grid=(of_model[0], of_model[1]),
            prefix=int(getattr(owner, "num_prefix_tokens", 0)),
            weight=original.proj.weight,
            record=record,
            install=functools.partial(_install, owner, parent, name),
            absolute_positions=tuple(
                p for p in (getattr(owner, "pos_embed", None),) if isinstance(p, Tensor)
            ),
        )  # fmt: skip


class _NoWeightDecay:
    """A model's `no_weight_decay()` with the parameters of its encodings: what timm's optimisers ask for."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def __call__(self) -> set[str]:
        return set(self.names)


def _install(owner: nn.Module, parent: nn.Module, name: str, pos: LayerEncoding) -> None:
    parent._modules[name] = TimmAttention(cast(nn.Module, parent._modules[name]), pos)
    spared = {n for n, p in owner.named_parameters() if any(p is own for own in pos.parameters())}
    before = getattr(owner, "no_weight_decay", None)
    cast(Any, owner).no_weight_decay = _NoWeightDecay(spared | (set(before()) if callable(before) else set()))
