"""A place in somebody's model where attention can get a position encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from torch import Tensor, nn

from ._encodings import Grid
from .nn._encoding import LayerEncoding
from .nn._grid_record import GridRecord


def check_module(model: object) -> None:
    """TypeError unless a model was given."""
    if not isinstance(model, nn.Module):
        what = f"the class {model.__name__}" if isinstance(model, type) else f"a {type(model).__name__}"
        raise TypeError(f"model is {what}; a torch.nn.Module was expected")


@dataclass
class Site:
    """One attention layer, and what has to be known to put an encoding into it."""

    dim: int
    """Width of all heads together."""
    num_heads: int
    grid: Grid
    prefix: int
    weight: Any
    """The tensor whose device and type the encoding's parameters get; something else if the model is quantised."""
    record: Callable[[], GridRecord]
    """The model's record of its grid; made when first asked for, so that a model that is refused stays as it was."""
    install: Callable[[LayerEncoding], None]
    absolute_positions: tuple[Tensor, ...]
    """The model's own vectors per position."""
