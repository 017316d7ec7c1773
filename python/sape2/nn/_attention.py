"""Multi-head self-attention with positions, under timm's names."""

from __future__ import annotations

from typing import Any, Callable, SupportsIndex

import torch
import torch.fx
from torch import Tensor, nn

from .._encodings import Grid
from ._encoding import LayerEncoding


@torch.fx.wrap
def check_call(x: Tensor, attn_mask: Tensor | None, is_causal: bool) -> None:
    """ValueError for what attention does not take. torch.fx, which knows no values, keeps the call as it stands."""
    if x.dim() != 3:
        raise ValueError(f"tokens are {list(x.shape)}; [images, tokens, width] was expected")
    if attn_mask is not None or is_causal:
        raise ValueError(
            "sape2's attention takes no mask: every token sees every token; leave attn_mask and is_causal out"
        )


def does_nothing(module: nn.Module, x: Tensor) -> bool:
    """Whether a module gives what it is given, and nobody watches it; torch.fx keeps every module in its graph."""
    watched = (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or getattr(module, "_backward_pre_hooks", None)  # PyTorch 1 has none
    )
    if watched or isinstance(x, torch.fx.Proxy):
        return False
    return type(module) is nn.Identity or (type(module) is nn.Dropout and (module.p == 0 or not module.training))


def through(module: nn.Module, x: Tensor) -> Tensor:
    """What a module makes of `x`; one that does nothing is not called, which would take as long as a small layer."""
    out: Tensor = x if does_nothing(module, x) else module(x)
    return out


class Attention(nn.Module):
    """Self-attention of a vision transformer, with any position encoding.

    Constructor arguments and parameter names (`qkv`, `q_norm`, `k_norm`, `norm`, `proj`) are those of timm's
    `Attention`, whose weights load into it; the encoding's own parameters are below `pos`.

    Args:
        dim: width of the tokens.
        num_heads: number of heads.
        attn_head_dim: head size, if it is not `dim / num_heads`.
        dim_out: width of the result, if it is not `dim`.
        qkv_bias: whether the projection to q, k and v has a bias.
        qk_norm: whether q and k are normalised, by `norm_layer`.
        scale_norm: whether the result is normalised before the last projection, by `norm_layer`.
        proj_bias: whether the last projection has a bias.
        attn_drop: must be 0: attention weights are never stored, so none can be dropped.
        proj_drop: dropout after the last projection.
        norm_layer: makes a norm from a width; by default `nn.LayerNorm`.
        encoding: the position encoding, as on the command line; see `sape2.encodings()`.
        grid: rows and columns of patches that the model is trained at.
        prefix: tokens before the patches (class token, registers).

    Shapes:
        tokens: `[B, N, dim]` with `N = prefix + rows·cols`; patch `(y, x)` is token `prefix + y·cols + x`.

    >>> import torch
    >>> attention = Attention(64, 4, qkv_bias=True, encoding="sape2-rel-k", grid=(6, 6), prefix=1)
    >>> [name for name, _ in attention.named_parameters()][:4]
    ['qkv.weight', 'qkv.bias', 'pos.ex', 'pos.ey']
    >>> attention(torch.randn(2, 37, 64)).shape
    torch.Size([2, 37, 64])

    Another grid than the one trained at, as a rectangle here, is said in the call:

    >>> attention(torch.randn(2, 1 + 4 * 8, 64), grid=(4, 8)).shape
    torch.Size([2, 33, 64])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        attn_head_dim: int | None = None,
        dim_out: int | None = None,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        scale_norm: bool = False,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: Callable[..., nn.Module] | None = None,
        device: Any = None,
        dtype: Any = None,
        *,
        encoding: str = "sape2-rel-k",
        grid: Grid = (14, 14),
        prefix: int = 1,
    ) -> None:
        super().__init__()
        if attn_drop:
            raise ValueError(
                f"attn_drop is {attn_drop}, but the fused attention never stores its weights and cannot drop them; "
                "use 0, and proj_drop in its place"
            )
        if not isinstance(num_heads, SupportsIndex) or num_heads < 1:
            raise ValueError(f"num_heads is {num_heads}; a whole number from 1 was expected")
        if attn_head_dim is None and dim % num_heads:
            raise ValueError(f"dim is {dim}, which {num_heads} heads do not divide")
        where = {"device": device, "dtype": dtype}
        make_norm = norm_layer or nn.LayerNorm
        self.num_heads = num_heads
        self.head_dim = attn_head_dim or dim // num_heads
        self.attn_dim = num_heads * self.head_dim
        self.qkv = nn.Linear(dim, 3 * self.attn_dim, bias=qkv_bias, **where)
        self.q_norm = make_norm(self.head_dim, **where) if qk_norm else nn.Identity()
        self.k_norm = make_norm(self.head_dim, **where) if qk_norm else nn.Identity()
        self.norm = make_norm(self.attn_dim, **where) if scale_norm else nn.Identity()
        self.pos = self._make_encoding(encoding, grid, prefix, where)
        self.proj = nn.Linear(self.attn_dim, dim_out or dim, bias=proj_bias, **where)
        self.proj_drop = nn.Dropout(proj_drop)

    def _make_encoding(self, encoding: str, grid: Grid, prefix: int, where: dict[str, Any]) -> LayerEncoding:
        return LayerEncoding(encoding, self.attn_dim, self.num_heads, grid, prefix, **where)

    def forward(
        self, x: Tensor, grid: Grid | None = None, *, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Attention over `x`; `grid` if it is not the one trained at.

        `attn_mask` and `is_causal` are there for timm's blocks, which name them, and must be left as they are.
        """
        check_call(x, attn_mask, is_causal)
        qkv = self.qkv(x)
        if does_nothing(self.q_norm, qkv) and does_nothing(self.k_norm, qkv):
            out: Tensor = self.pos(qkv, None, None, grid)  # by place: hooks of PyTorch 1 see nothing else
        else:
            images, tokens, _ = x.shape
            q, k, v = qkv.view(images, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
            q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
            out = self.pos(q, k, v, grid).transpose(1, 2).reshape(images, tokens, self.attn_dim)
        return through(self.proj_drop, self.proj(through(self.norm, out)))
