"""transformers' vision transformers: attention with positions as an `AttentionInterface` named "sape2"."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator
from typing import Any, Callable, cast

from torch import Tensor, nn

from ._encodings import Grid
from ._grid import convolution_grid, record_grid
from ._site import Site
from .nn._encoding import LayerEncoding

NAME = "sape2"

_KNOWN = {"deit", "dinov2", "dinov2_with_registers", "ijepa", "vit", "vit_msn"}
"""Models in which every token sees every token of one grid, and attention has no positions of its own."""


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of a module whose encoding is its child `pos`; registered with transformers by `register`.

    Shapes:
        query, key, value: `[B, h, N, d]`; the result: `[B, N, h, d]`.
    """
    pos = getattr(module, "pos", None)
    if not isinstance(pos, LayerEncoding):
        raise ValueError(
            f'{type(module).__name__} has no position encoding for attn_implementation="sape2"; call sape2.patch(model)'
        )
    if attention_mask is not None:
        raise ValueError("sape2's attention takes no mask: every token sees every token; leave attention_mask out")
    if dropout:
        raise ValueError(
            f"attention weights would be dropped at a rate of {dropout}, but fused attention never stores them; "
            "set attention_probs_dropout_prob to 0"
        )
    attended: Tensor = pos(query, key, value)
    return attended.transpose(1, 2), None


def _mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """No mask unless one was given, which is refused: while it traces, transformers would make one of ones."""
    return attention_mask


@functools.cache
def register() -> None:
    """Makes `attn_implementation="sape2"` known to transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attention_forward)
    try:
        from transformers.masking_utils import AttentionMaskInterface
    except ImportError:  # a transformers that does not make masks by name
        return
    AttentionMaskInterface.register(NAME, _mask)


def _is_known(module: nn.Module) -> bool:
    return type(module).__module__ in {f"transformers.models.{name}.modeling_{name}" for name in _KNOWN}


def is_attention(module: nn.Module) -> bool:
    """Whether a module is attention that calls transformers' `AttentionInterface`."""
    needed = ("config", "scaling", "num_attention_heads")
    return _is_known(module) and type(module).__name__.endswith("Attention") and all(hasattr(module, n) for n in needed)


def sites(model: nn.Module, grid: Grid | None) -> Iterator[Site]:
    """Every attention layer of a transformers model that has `embeddings` with a patch convolution."""
    for owner in model.modules():
        embeddings = getattr(owner, "embeddings", None)
        embedding = getattr(embeddings, "patch_embeddings", None)
        if not _is_known(owner) or not isinstance(getattr(embedding, "projection", None), nn.Conv2d):
            continue
        found = [module for module in owner.modules() if is_attention(module)]
        if found:
            yield from _sites_of(model, owner, cast(nn.Module, embeddings), cast(nn.Module, embedding), found, grid)


def _sites_of(
    model: nn.Module,
    owner: nn.Module,
    embeddings: nn.Module,
    embedding: nn.Module,
    found: list[nn.Module],
    grid: Grid | None,
) -> Iterator[Site]:
    of_model = grid or _trained_grid(embedding)
    extra = ("cls_token", "distillation_token", "register_tokens")
    prefix = sum(int(t.shape[1]) for t in (getattr(embeddings, name, None) for name in extra) if isinstance(t, Tensor))
    vectors = getattr(embeddings, "position_embeddings", None)

    @functools.cache
    def record() -> Any:
        return record_grid(embedding, of_model, convolution_grid)

    @functools.cache
    def own_config() -> None:
        """The model's configuration becomes its own: another model made from it stays as it is."""
        shared = cast(Any, owner).config
        own = copy.deepcopy(shared)
        own._attn_implementation = NAME
        for part in model.modules():
            if getattr(part, "config", None) is shared:
                part.config = own

    for module in found:
        attention = cast(Any, module)
        head_size = getattr(attention, "head_dim", None) or attention.attention_head_size
        if not math.isclose(attention.scaling, head_size**-0.5):
            raise ValueError(
                f"{type(owner).__name__} scales q·k by {attention.scaling:.6g}, sape2's attention by 1/√d = "
                f"{head_size**-0.5:.6g}; this model cannot be patched"
            )
        rate = getattr(attention, "attention_dropout", None) or getattr(attention, "dropout_prob", 0.0)
        if rate:
            raise ValueError(
                f"{type(owner).__name__} drops attention weights (rate {rate}), which fused attention never stores; "
                "set attention_probs_dropout_prob to 0 in its configuration"
            )
        yield Site(
            dim=attention.num_attention_heads * head_size,
            num_heads=attention.num_attention_heads,
            grid=of_model,
            prefix=prefix,
            weight=next(attention.parameters(), None),
            record=record,
            install=functools.partial(_install, module, own_config),
            absolute_positions=(vectors,) if isinstance(vectors, Tensor) else (),
        )


def _trained_grid(embedding: nn.Module) -> Grid:
    size, patch = cast(Any, embedding).image_size, cast(Any, embedding).patch_size
    height, width = (size, size) if isinstance(size, int) else size
    tall, wide = (patch, patch) if isinstance(patch, int) else patch
    return height // tall, width // wide


def _check_implementation(module: nn.Module, _: Any) -> None:
    """A forward pre-hook: transformers would compute attention without its positions, and not say so."""
    chosen = cast(Any, module).config._attn_implementation
    if chosen != NAME:
        raise ValueError(
            f'this model was patched, and attn_implementation is "{chosen}", which would leave its positions out; call '
            'model.set_attn_implementation("sape2")'
        )


def _install(module: nn.Module, own_config: Callable[[], None], pos: LayerEncoding) -> None:
    register()
    own_config()
    module.pos = pos
    module.register_forward_pre_hook(_check_implementation)
