"""A place in somebody's model where attention can get a position encoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from torch import Tensor

from ._encodings import Grid
from .nn._encoding import GridRecord, LayerEncoding


@dataclass
class Site:
    """One attention layer, and what has to be known to put an encoding into it."""

    dim: int
    """Width of all heads together."""
    num_heads: int
    grid: Grid
    prefix: int
    weight: Tensor
    """Whose device and type the encoding's parameters get."""
    record: Callable[[], GridRecord]
    """The model's record of its grid; made when first asked for, so that a model that is refused stays as it was."""
    install: Callable[[LayerEncoding], None]
    absolute_positions: tuple[Tensor, ...]
    """The model's own vectors per position."""
