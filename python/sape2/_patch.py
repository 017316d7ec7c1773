"""Position encodings put into models that exist already: timm's and transformers' vision transformers."""

from __future__ import annotations

import copyreg
import functools
from typing import Any

from torch import Tensor, nn

from . import _timm, _transformers
from ._encodings import Grid, SilentStart, described, rows_and_cols
from ._grid import follow_grid
from ._site import check_module
from .nn._attention import Attention
from .nn._encoding import LayerEncoding

__all__ = ["attn_layer", "follow_grid", "patch"]


def patch(
    model: nn.Module,
    encoding: str = "sape2-rel-k",
    *,
    keep_ape: bool = True,
    unchanged: bool = True,
    grid: Grid | None = None,
) -> nn.Module:
    """Gives every attention layer of a vision transformer another position encoding, in place.

    Weights, names and everything else of the model stay; each attention gains parameters below `pos`. They start so
    that the encoding adds nothing: the model computes what it computed before, and fine-tuning goes on from there. The
    grid of patches is taken from the images, so other and non-square sizes work as far as the model itself takes them.

    Knows timm's `VisionTransformer` and its kin (DeiT, EVA, ViTs with rotary positions) and transformers' ViT, DeiT,
    DINOv2, I-JEPA and MSN, also as parts of a larger model.

    Args:
        model: changed in place.
        encoding: one that acts in attention, such as `"sape2-rel-k"`; `sape2.encodings()` lists all.
        keep_ape: whether the model's own vectors per position stay. If not, they are set to 0 and frozen, which
            changes the model's outputs.
        unchanged: whether the encoding must start without any effect. `False` starts it as in a new model, which
            rotary encodings need.
        grid: rows and columns at which the model was trained, if the model does not say.

    Returns:
        The model.

    Raises:
        ValueError: if the model has no attention over one grid of patches, or the encoding cannot start unchanged; the
            sentence says what to do.

    >>> import timm, torch
    >>> model = timm.create_model("vit_tiny_patch16_224", num_classes=10).eval()
    >>> images = torch.randn(1, 3, 224, 224)
    >>> before = model(images)
    >>> torch.allclose(patch(model, "sape2-rel-k")(images), before, atol=1e-5)
    True
    >>> model.blocks[0].attn.pos
    LayerEncoding("sape2-rel-k", grid=(14, 14), prefix=1)
    """
    check_module(model)
    if any(isinstance(module, LayerEncoding) for module in model.modules()):
        raise ValueError(f"this {type(model).__name__} has sape2 attention already; patch a model once, when it is new")
    if grid is not None and min(rows_and_cols(grid)) < 1:
        raise ValueError(f"grid is {grid}; rows and columns were expected, as whole numbers such as (14, 14)")
    spread = next((type(m).__name__ for m in model.modules() if _is_spread(m)), None)
    if spread is not None:
        raise ValueError(
            f"the model is spread over processes already ({spread}), which would leave the new parameters out; patch "
            "it first, and wrap it then"
        )
    sites = [*_timm.sites(model, grid), *_transformers.sites(model, grid)]
    if not sites:
        raise ValueError(
            f"{type(model).__name__} has no attention over one grid of patches that sape2 knows; timm's and "
            "transformers' ViT, DeiT, EVA and DINOv2 can be patched; for a model of your own use sape2.nn.Attention"
        )
    for site in sites:
        if not isinstance(site.weight, Tensor) or not site.weight.is_floating_point():
            raise ValueError(
                f"the weights of this {type(model).__name__} are quantised, which new parameters cannot be; patch and "
                "train the model first, and quantise it then"
            )
    zeroed: tuple[str, ...] = ()
    if unchanged:
        start = _starting_at_zero(encoding, sites[0].dim // sites[0].num_heads)
        encoding, zeroed = start.encoding, start.zeroed
    # Everything that can fail comes before the first change.
    layers = [
        LayerEncoding(
            encoding,
            site.dim,
            site.num_heads,
            site.grid,
            site.prefix,
            device=site.weight.device,
            dtype=site.weight.dtype,
        )
        for site in sites
    ]
    for site, layer in zip(sites, layers):
        for name in zeroed:
            getattr(layer, name).data.zero_()
        layer.record = site.record()
        site.install(layer)
    if not keep_ape:
        for site in sites:
            for vectors in site.absolute_positions:
                vectors.data.zero_()
                vectors.requires_grad_(False)
    return model


def _is_spread(module: nn.Module) -> bool:
    """Whether a module is DistributedDataParallel or one of the two FSDPs, which take stock of parameters once."""
    return any(
        base.__module__.startswith(("torch.nn.parallel.distributed", "torch.distributed."))
        and base.__name__ in ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")
        for base in type(module).__mro__
    )


def _starting_at_zero(encoding: str, head_size: int) -> SilentStart:
    """How the encoding starts without effect and learns from there; ValueError if it cannot."""
    info = described(encoding, (head_size, 1, 2, 3, 0))
    if info.silent_start is not None:
        return info.silent_start
    if info.name.startswith("sape2"):
        raise ValueError(
            f'encoding "{info.encoding}" cannot start without effect and learn from there; leave its gain out, or use '
            "unchanged=False"
        )
    raise ValueError(
        f'encoding "{info.encoding}" changes the attention from the start, so the model would not compute what it did '
        "before; use unchanged=False if that is meant, or an encoding that adds a bias, such as sape2-rel-k"
    )


def attn_layer(encoding: str = "sape2-rel-k", *, grid: Grid = (14, 14), prefix: int = 1) -> type[Attention]:
    """A class for the argument `attn_layer` of timm's models: new models with sape2 attention from the start.

    Args:
        encoding: one that acts in attention.
        grid: rows and columns of patches that the model is trained at.
        prefix: tokens before the patches (class token, registers).

    Returns:
        A class with the constructor of timm's `Attention`. Pass the model through `follow_grid` if images of other
        sizes will come.

    >>> import timm, torch
    >>> model = timm.create_model("vit_tiny_patch16_224", attn_layer=attn_layer("sape2-rel-k"), dynamic_img_size=True)
    >>> follow_grid(model)(torch.randn(1, 3, 160, 256)).shape
    torch.Size([1, 1000])
    """
    return _attn_layer(encoding, rows_and_cols(grid), prefix)


class _AttnLayer(type):
    """The class of the classes that `attn_layer` makes: pickle makes them again, since they have no place by name."""

    arguments: tuple[str, Grid, int]


@functools.cache
def _attn_layer(encoding: str, grid: Grid, prefix: int) -> type[Attention]:
    class SapeAttention(Attention, metaclass=_AttnLayer):
        arguments = encoding, grid, prefix

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options, encoding=encoding, grid=grid, prefix=prefix)

    return SapeAttention


def _made_again(layer: _AttnLayer) -> tuple[Any, tuple[str, Grid, int]]:
    return _attn_layer, layer.arguments


copyreg.pickle(_AttnLayer, _made_again)
