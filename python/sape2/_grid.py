"""The grid of patches of the images at hand: attention inside a model is handed tokens, not their rows and columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable, cast

import torch
import torch.fx
from torch import Tensor, nn

from ._encodings import Grid
from ._site import check_module
from .nn._encoding import LayerEncoding
from .nn._grid_record import GridRecord


class _RecordGrid:
    """A forward pre-hook of a patch embedding: notes the grid that it is about to make.

    A hook there, and not on the model, sees `forward_features` and the like, too. A class, and not a closure, so that
    models can be pickled and copied.
    """

    def __init__(self, record: GridRecord, grid_of: Callable[[nn.Module, Tensor], Grid]) -> None:
        self.record = record
        self.grid_of = grid_of

    def __call__(self, embedding: nn.Module, inputs: tuple[Any, ...]) -> None:
        if not isinstance(inputs[0], torch.fx.Proxy):  # a traced graph keeps the grid of the last images
            self.record.note(*self.grid_of(embedding, inputs[0]))


def timm_grid(embedding: nn.Module, images: Tensor) -> Grid:
    """The grid that timm's PatchEmbed makes of images `[B, channels, height, width]`."""
    size = cast(Any, embedding).dynamic_feat_size((images.shape[-2], images.shape[-1]))
    return size[0], size[1]


def convolution_grid(embedding: nn.Module, images: Tensor) -> Grid:
    """The grid that the convolution `projection` of a patch embedding makes of images."""
    convolution = cast(nn.Conv2d, embedding.projection)
    padding = cast("tuple[int, ...]", convolution.padding)
    rows, cols = (
        (images.shape[axis - 2] + 2 * padding[axis] - convolution.kernel_size[axis]) // convolution.stride[axis] + 1
        for axis in (0, 1)
    )
    return rows, cols


def record_grid(embedding: nn.Module, grid: Grid, grid_of: Callable[[nn.Module, Tensor], Grid]) -> GridRecord:
    """A record that follows a patch embedding; `grid` until its first image."""
    record = GridRecord(*grid)
    embedding.register_forward_pre_hook(_RecordGrid(record, grid_of))
    return record


def follow_grid(model: nn.Module) -> nn.Module:
    """Lets the sape2 attention layers of a timm model take their grid from the images, whatever their size.

    For models made with `attn_layer(…)`; `patch` does this by itself.

    Args:
        model: a model with timm's `patch_embed`; changed in place.

    Returns:
        The model.
    """
    check_module(model)
    for owner in list(_owners(model)):
        layers = [layer for layer in owner.modules() if isinstance(layer, LayerEncoding)]
        record = record_grid(cast(nn.Module, owner.patch_embed), layers[0].grid, timm_grid)
        for layer in layers:
            layer.record = record
    return model


def _owners(model: nn.Module) -> Iterator[nn.Module]:
    found = False
    for module in model.modules():
        embedding = getattr(module, "patch_embed", None)
        if hasattr(embedding, "dynamic_feat_size") and any(isinstance(m, LayerEncoding) for m in module.modules()):
            found = True
            yield module
    if not found:
        raise ValueError(
            f"{type(model).__name__} has no timm patch_embed with sape2 attention behind it; "
            "give the grid of each call to sape2.nn.Attention as grid=(rows, cols)"
        )
